"""A model proposes and rules vote: who is asked for what, and what the command line says that such votes prove."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.negotiation.transcript import load_session
from tests.fakes.model_server import KEY, KEY_VARIABLE, ModelServer
from tests.fakes.model_sessions import sources, write_zoo
from tests.fakes.model_texts import asked_in
from tests.fakes.zoo import good, prompt_of, script_of

MEANING = "Rules vote: an accept proves that declared contracts and edges still fit, not that a change makes sense."
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(script_of(good)) as serving:
        yield serving


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ModelServer) -> Path:
    """A project whose settings name the server, but no model."""
    root = write_zoo(tmp_path / "zoo")
    address = f'[tool.graphbus.llm.providers.stub]\nbase_url = "{server.url("anthropic")}"\nwire = "anthropic"\n'
    with (root / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write(f'\n{address}key_env = "{KEY_VARIABLE}"\ndefault_model = "m"\n')
    monkeypatch.chdir(root)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    return root


def tasks(server: ModelServer) -> set[str]:
    return {asked_in(prompt_of(request)).task for request in server.requests}


def name_roles(root: Path, **roles: str) -> None:
    """Put models of roles into the settings."""
    path = root / "pyproject.toml"
    lines = "".join(f'{role} = "{model}"\n' for role, model in roles.items())
    path.write_text(f"{path.read_text()}\n[tool.graphbus.llm]\n{lines}", encoding="utf-8")


@pytest.mark.slow
def test_a_model_proposes_and_is_asked_for_no_vote(zoo: Path, server: ModelServer, capsys: Captured) -> None:
    before = sources(zoo)
    assert main(["negotiate", "agents", "--model", "stub", "--voters", "rules"]) == 0
    out = capsys.readouterr().out
    assert tasks(server) == {"analyze", "propose"}
    assert "Their answers come from stub:m (proposer), rules (evaluator, arbiter)." in out
    assert out.count(MEANING) == 1
    record = load_session(zoo / ".graphbus")
    assert record.models == {"proposer": "stub:m", "evaluator": "rules", "arbiter": "rules"}
    votes = [vote for one in record.negotiations.records for vote in one.evaluations]
    assert votes
    assert {vote.reasoning for vote in votes} <= {"no schema impact on my side", "my code changes, my contracts do not"}
    assert sources(zoo) != before
    assert main(["inspect-negotiation"]) == 0
    assert MEANING in capsys.readouterr().out
    judged = next(one.proposal.proposal_id for one in record.negotiations.records if one.evaluations)
    assert main(["inspect-negotiation", judged]) == 0
    assert f"Votes\n  {MEANING}\n" in capsys.readouterr().out
    asked = len(server.requests)
    assert main(["replay", "--verify"]) == 0
    assert len(server.requests) == asked


@pytest.mark.slow
def test_a_session_in_which_the_model_votes_does_not_say_so(zoo: Path, server: ModelServer, capsys: Captured) -> None:
    assert main(["negotiate", "agents", "--model", "stub"]) == 0
    assert main(["inspect-negotiation"]) == 0
    assert MEANING not in capsys.readouterr().out
    assert "evaluate" in tasks(server)


def test_a_role_in_the_settings_can_be_given_to_the_rules(zoo: Path, server: ModelServer, capsys: Captured) -> None:
    name_roles(zoo, model="stub", evaluator="rules")
    assert main(["negotiate", "agents", "--rounds", "1"]) == 0
    assert "stub:m (proposer, arbiter), rules (evaluator)" in capsys.readouterr().out
    assert tasks(server) == {"analyze", "propose"}


def test_rules_propose_and_a_model_votes(zoo: Path, server: ModelServer, capsys: Captured) -> None:
    assert main(["negotiate", "agents", "--rounds", "1", "--model", "rules", "--voters", "stub"]) == 0
    assert "rules (proposer), stub:m (evaluator, arbiter)" in capsys.readouterr().out
    assert tasks(server) <= {"evaluate"}


@pytest.mark.parametrize("roles", [{"proposer": "stub"}, {"model": "rules", "proposer": "stub"}])
def test_only_the_proposer_is_named(
    zoo: Path, server: ModelServer, roles: dict[str, str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    name_roles(zoo, **roles)
    assert main(["negotiate", "agents", "--rounds", "1"]) == 0
    assert MEANING in capsys.readouterr().out
    assert tasks(server) == {"analyze", "propose"}


def test_a_session_of_rules_only_is_as_before_and_needs_no_key(zoo: Path, capsys: Captured) -> None:
    name_roles(zoo, model="stub")
    for options in (["--model", "rules"], ["--model", "rules", "--voters", "rules"]):
        assert main(["negotiate", "agents", "--rounds", "1", "--force", *options]) == 0
        out = capsys.readouterr().out
        assert out.startswith("Rules, not a model, negotiate")
        assert MEANING not in out
        assert load_session(zoo / ".graphbus").models == {}


def test_the_replay_of_a_session_of_rules_asks_no_model_that_its_settings_name(zoo: Path, server: ModelServer) -> None:
    """Earlier versions let the rules negotiate if `model` was `rules`, whatever the roles were set to."""
    assert main(["negotiate", "agents", "--rounds", "1", "--model", "rules"]) == 0
    (zoo / ".graphbus" / "negotiation.lock").unlink()
    start = zoo / ".graphbus" / "sessions" / "S001" / "session.json"
    content = json.loads(start.read_bytes())
    content["settings"]["llm"] |= {"evaluator": "stub", "arbiter": "stub"}
    start.write_text(json.dumps(content), encoding="utf-8")
    assert main(["replay", "--verify"]) == 0
    assert server.requests == []


def test_votes_of_rules_are_no_part_of_what_a_plan_counts(zoo: Path, capsys: Captured) -> None:
    assert main(["negotiate", "agents", "--plan", "--model", "stub", "--voters", "rules"]) == 0
    assert "rules (evaluator, arbiter): no model is asked, nothing is spent." in capsys.readouterr().out
    assert main(["negotiate", "agents", "--plan", "--model", "stub", "--voters", "rules", "--json"]) == 0
    phases = {phase["task"]: phase for phase in json.loads(capsys.readouterr().out)["plan"]["phases"]}
    assert {task for task, phase in phases.items() if phase["tokens"]} == {"analyze", "propose", "repair"}
    assert {phases[task]["cost_usd"] for task in ("evaluate", "arbitrate")} == {0.0}


def test_votes_need_agents(zoo: Path, capsys: Captured) -> None:
    assert main(["build", "agents", "--voters", "rules"]) == 2
    assert "--voters" in capsys.readouterr().err
