"""Who answers, and that nothing stays open."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.errors import ModelError, NegotiationError, UsageError
from graphbus_core.llm.client import Clients
from graphbus_core.model.config import LLMConfig, ResolvedBuild, Settings
from graphbus_core.negotiation.apply import load_commits
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.freshness import AgentInputs, describe_changes, describe_models
from graphbus_core.negotiation.lock import load_lock
from graphbus_core.negotiation.sessions import claim_project, load_answers, load_start
from graphbus_core.negotiation.transcript import load_transcript
from tests.fakes.model_sessions import GoodModel, write_zoo


def config_of(root: Path, **llm: object) -> ResolvedBuild:
    settings = Settings(llm=LLMConfig(**llm))  # type: ignore[arg-type]
    return ResolvedBuild(root=str(root), paths=(str(root / "agents"),), settings=settings)


def test_without_a_key_the_rules_negotiate_and_it_is_said_why(tmp_path: Path) -> None:
    for llm, note in (({}, "no key of a model's provider was found"), ({"model": "rules"}, "")):
        with Backend(environ={}) as backend:
            assert backend.open_clients(config_of(tmp_path, **llm)) is None
        assert backend.note == note


def test_a_model_that_is_named_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the environment variable ANTHROPIC_API_KEY is not set"):
        Backend(environ={}).open_clients(config_of(tmp_path, model="anthropic:claude"))
    with pytest.raises(UsageError):
        Backend(environ={}).open_clients(config_of(tmp_path, model="nobody:x"))


def test_each_client_is_closed_once_and_the_project_is_free_afterwards(tmp_path: Path) -> None:
    config = config_of(write_zoo(tmp_path / "zoo"))
    project = Project.read(config, cache=False)
    one, other = GoodModel(), GoodModel()
    for _ in range(2):
        with Backend(Clients(one.client, other.client, one.client)) as backend:
            agents = backend.activate(config, project.definitions, project.order.order)
            with pytest.raises(NegotiationError, match="Another negotiation of this project is running"):
                claim_project(config)
        assert set(agents.prices) == {"proposer", "evaluator", "arbiter"}
    assert (one.closed, other.closed) == (2, 2)


def test_the_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / ".graphbus").write_text("a file", encoding="utf-8")
    with pytest.raises(NegotiationError) as failure:
        claim_project(config_of(tmp_path))
    assert failure.value.code == "GBE407"


def test_what_is_kept_of_a_session_may_be_missing_or_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "sessions/S001"
    folder.mkdir(parents=True)
    assert load_answers(tmp_path, "S001") == ()
    for data in (b"nonsense\n", b"\xff\xfe\n", b'{"key": "\xff"}\n', b"[" * 100_000 + b"\n"):
        for name, read in (
            ("answers.jsonl", load_answers),
            ("session.json", load_start),
            ("transcript.jsonl", load_transcript),
            ("commits.json", load_commits),
        ):
            (folder / name).write_bytes(data)
            with pytest.raises(NegotiationError) as failure:
                read(tmp_path, "S001")
            assert failure.value.code == "GBE405"
    assert load_lock(config_of(tmp_path)) is None


WAS = AgentInputs(source="1", neighbours={"A": "1", "B": "1"}, findings="1", intent="1", policy="1", model="x")


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"source": "2"}, "the source of the agent has changed"),
        ({"neighbours": {"A": "2", "B": "1"}}, "the contract of A has changed"),
        ({"neighbours": {"A": "1"}}, "B is no longer a neighbour of the agent"),
        ({"neighbours": {"A": "1", "B": "1", "C": "1"}}, "C has become a neighbour of the agent"),
        ({"findings": ""}, "the findings of the rules about the agent have changed"),
        ({"intent": ""}, "the intent or the goals have changed"),
        ({"policy": "2"}, "the safety settings or the prompts have changed"),
        ({"model": "y"}, "the model has changed from x to y"),
    ],
    ids=str,
)
def test_each_input_that_has_changed_is_named(now: dict[str, object], told: str) -> None:
    import msgspec

    assert list(describe_changes(WAS, msgspec.structs.replace(WAS, **now))) == [told]
    assert list(describe_changes(WAS, WAS)) == []


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ((), "rules"),
        (("a:x", "a:x", "a:x"), "a:x"),
        (("a:x", "b:y", "b:y"), "a:x (proposer), b:y (evaluator, arbiter)"),
        (("a:x", "a:x", "b:y"), "a:x (proposer, evaluator), b:y (arbiter)"),
        (("b:y", "a:x", "b:y"), "b:y (proposer, arbiter), a:x (evaluator)"),
    ],
)
def test_models_that_change_places_are_others(models: tuple[str, ...], told: str) -> None:
    roles = dict(zip(("proposer", "evaluator", "arbiter"), models, strict=False))
    assert describe_models(roles) == describe_models(dict(reversed(roles.items()))) == told
