"""`--plan`, `--frozen`, `--resume` and `graphbus replay` as a person sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from graphbus_core.cli import console, main
from graphbus_core.cli.live import NegotiationLines
from graphbus_core.cli.plan import show_plan
from graphbus_core.llm.speed import ModelSpeed, load_speed, save_speed
from graphbus_core.model.config import Budget, BuildConfig, LLMConfig, SafetyConfig, Settings
from tests.fakes.model_sessions import GoodModel, negotiate, write_zoo

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = write_zoo(tmp_path / "zoo")
    monkeypatch.chdir(root)
    return root


def planned(model: GoodModel, *, as_json: bool = False, **asked_for: object) -> None:
    console.prepare_streams()
    request = BuildConfig(paths=("agents",), enable_agents=True, **asked_for)  # type: ignore[arg-type]
    show_plan(request, as_json=as_json, backend=model.backend())
    console.flush()


def test_a_plan_says_what_it_can_cost_asks_nobody_and_writes_nothing(zoo: Path, capsys: Captured) -> None:
    model = GoodModel()
    planned(model)
    out = capsys.readouterr().out
    assert "4 agents, 1 arbiter among them, at most 10 rounds." in out
    assert "scripted:test (proposer, evaluator, arbiter): up to $3 for a million tokens in, $15 out." in out
    assert "At most 118 questions. Worst case $5.00" in out
    assert "It stops before it exceeds 10,000 calls, $5" in out
    assert model.asked == []
    assert model.closed == 1
    assert not (zoo / ".graphbus").exists()


def test_an_unknown_price_is_said_and_only_calls_and_tokens_count(zoo: Path, capsys: Captured) -> None:
    model = GoodModel()
    model.client.price = None
    planned(model, settings=Settings(budget=Budget(max_tokens=50_000)))
    out = capsys.readouterr().out
    assert "its price is not known, so only calls and tokens are limited" in out
    assert "Worst case 50,000 tokens." in out
    assert "dollars ≤" not in out
    assert "It stops before it exceeds 10,000 calls, 50,000 tokens. Set" in out
    assert "No limit in dollars is possible for scripted:test; `max_tokens` in [tool.graphbus.budget]" in out


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
def test_no_session_puts_more_questions_than_its_plan_says(zoo: Path, capsys: Captured, rounds: int) -> None:
    model = GoodModel()
    planned(model, as_json=True, rounds=rounds)
    bound = json.loads(capsys.readouterr().out)["bound"]
    assert model.asked == []
    spent = negotiate(zoo, model, rounds=rounds, dry_run=True).spent
    assert 0 < spent.calls <= bound["calls"]
    assert spent.usage.total_tokens <= bound["tokens"]
    assert spent.cost_usd <= bound["cost_usd"]


def test_without_a_key_the_plan_says_that_the_rules_negotiate(zoo: Path, capsys: Captured) -> None:
    assert main(["build", "agents", "--enable-agents", "--plan"]) == 0
    out = capsys.readouterr().out
    assert "The rules negotiate (no key of a model's provider was found): no model is asked, nothing is spent." in out
    assert main(["negotiate", "agents", "--model", "rules", "--plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["models"] == {}


def test_the_plan_names_the_agents_that_programs_represent(zoo: Path, capsys: Captured) -> None:
    with (zoo / "pyproject.toml").open("a") as file:
        file.write('\n[tool.graphbus.agents]\nMailService = { command = ["no-such-program"] }\n')
    assert main(["negotiate", "agents", "--model", "rules", "--plan"]) == 0
    said = "The rules and programs for MailService negotiate: no model is asked, what the programs spend is not known."
    assert said in capsys.readouterr().out


@pytest.mark.slow
def test_a_session_of_rules_is_locked_frozen_and_replayed(zoo: Path, capsys: Captured) -> None:
    assert main(["build", "agents", "--frozen"]) == 3
    assert ".graphbus/negotiation.lock does not exist" in capsys.readouterr().err
    assert main(["build", "agents", "--enable-agents"]) == 0
    assert main(["build", "agents", "--frozen"]) == 0
    capsys.readouterr()
    assert main(["replay", "--verify"]) == 0
    out = capsys.readouterr().out
    assert "Replayed S001 from the lock: 0 recorded answers, no model asked." in out
    assert "✓ Record, files and artifacts are the same, byte for byte." in out
    lock = zoo / ".graphbus/negotiation.lock"
    text = lock.read_text(encoding="utf-8")
    document = json.loads(text)
    first = next(iter(document["session"]["artifacts"]))
    document["session"]["artifacts"][first] = "0" * 64
    lock.write_text(json.dumps(document), encoding="utf-8")
    assert main(["replay"]) == 0
    with (zoo / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('[tool.graphbus.llm]\nmodel = "anthropic:claude-x"\n')
    assert main(["build", "agents", "--frozen"]) == 3
    assert "the model has changed from rules to anthropic:claude-x" in capsys.readouterr().err
    assert main(["replay"]) == 0
    assert main(["replay", "--verify", "--json"]) == 5
    captured = capsys.readouterr()
    assert f"different: the artifact {first} has different content" in captured.out
    assert "The replay of session S001 differs from its record" in captured.err


def test_there_is_nothing_to_resume_or_to_replay_in_a_new_project(zoo: Path, capsys: Captured) -> None:
    assert main(["negotiate", "agents", "--resume"]) == 5
    assert "There is no interrupted session" in capsys.readouterr().err
    assert main(["replay"]) == 5
    assert "GBE403" in capsys.readouterr().err
    assert main(["build", "agents", "--frozen", "--enable-agents"]) == 2


@pytest.mark.slow
def test_a_session_that_a_person_or_the_limit_of_rounds_ended_is_told_apart(zoo: Path, capsys: Captured) -> None:
    settings = Settings(safety=SafetyConfig(max_negotiation_rounds=1))
    negotiate(zoo, GoodModel(), settings=settings)
    assert main(["build", "agents", "--frozen"]) == 3
    assert "OrderService: it has not settled yet" in capsys.readouterr().err
    session = zoo / ".graphbus/sessions/S001/session.json"
    session.write_text(
        session.read_text(encoding="utf-8").replace('"is_reviewed": false', '"is_reviewed": true'), "utf-8"
    )
    assert main(["replay", "S001"]) == 5
    assert "a person decided on its changes" in capsys.readouterr().err


AMOUNTS = {"calls": 2, "requests": 2, "cached": 0, "tokens": 1234, "cost_usd": 0.25, "unpriced": 0, "of_usd": 5.0}


def test_the_status_shows_calls_tokens_and_dollars_and_an_unknown_price_is_said_once() -> None:
    live = NegotiationLines()
    assert live.lines("/Negotiation/Spent", AMOUNTS) == []
    assert live.status == "2 calls, 1,234 tokens, $0.25"
    unpriced = {**AMOUNTS, "unpriced": 1}
    said = [line for _ in range(3) for line in live.lines("/Negotiation/Spent", unpriced)]
    assert len(said) == 1
    assert "price of this model is not known" in said[0]


@pytest.mark.parametrize("limit", ["nan", "inf"])
def test_a_limit_that_limits_nothing_is_refused(zoo: Path, capsys: Captured, limit: str) -> None:
    """No number is above `nan`, and neither can be written into a record."""
    for plan in ((), ("--plan",)):
        assert main(["build", str(zoo / "agents"), "--enable-agents", "--max-usd", limit, *plan]) == 2
        assert f"{limit} is not a valid limit in dollars. [GBE145]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_bounds_what_then_happens_and_is_nothing_once_all_have_settled(
    zoo: Path, capsys: Captured, figure: Callable[[str, object], None]
) -> None:
    planned(GoodModel(), as_json=True)
    before = json.loads(capsys.readouterr().out)
    spent = negotiate(zoo, GoodModel()).spent
    assert spent.calls <= before["bound"]["calls"]
    assert spent.usage.total_tokens <= before["bound"]["tokens"]
    assert spent.cost_usd <= before["bound"]["cost_usd"]
    figure("calls of a session against the printed bound", f"{spent.calls} of {before['bound']['calls']}")
    planned(GoodModel())
    assert "At most 0 questions. Worst case $0 and 0 tokens." in capsys.readouterr().out
    again = GoodModel()
    negotiate(zoo, again)
    assert again.asked == []
    figure("model calls of a build in which nothing has changed", len(again.asked))


@pytest.mark.slow
def test_a_frozen_build_says_what_the_lock_covers_and_a_part_of_it_passes_too(zoo: Path, capsys: Captured) -> None:
    negotiate(zoo, GoodModel())
    for paths, covered in ((["agents"], "4 agents"), (["agents/orders.py"], "1 agent"), (["agents"], "4 agents")):
        assert main(["build", *paths, "--frozen"]) == 0
        assert f"✓ The lock covers {covered}: each has settled on its present inputs\n" in capsys.readouterr().out
    assert main(["build", "agents", "--frozen", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["locked"] == 4


@pytest.mark.slow
def test_a_negotiation_of_a_part_leaves_the_others_in_the_lock(zoo: Path, capsys: Captured) -> None:
    negotiate(zoo, GoodModel())
    before = json.loads((zoo / ".graphbus/negotiation.lock").read_text(encoding="utf-8"))["agents"]
    assert main(["build", "agents/orders.py", "--enable-agents", "--model", "rules"]) == 0
    after = json.loads((zoo / ".graphbus/negotiation.lock").read_text(encoding="utf-8"))["agents"]
    assert set(after) == set(before)
    assert [name for name in before if after[name] != before[name]] == ["OrderService"]
    capsys.readouterr()
    assert main(["build", "agents", "--frozen"]) == 3
    assert "OrderService: " in capsys.readouterr().err


def test_a_plan_needs_no_key(zoo: Path, capsys: Captured) -> None:
    assert main(["negotiate", "agents", "--plan", "--model", "openai"]) == 0
    out = capsys.readouterr().out
    assert "openai:" in out
    assert "for a million tokens in" in out
    assert main(["negotiate", "agents", "--model", "openai"]) == 5
    assert "GBE440" in capsys.readouterr().err


def test_what_a_program_spends_is_not_promised_to_be_limited(zoo: Path, capsys: Captured) -> None:
    plan = ["negotiate", "agents", "--plan", "--max-usd", "2", "--model", "command:claude -p"]
    assert main(plan) == 0
    out = capsys.readouterr().out
    assert "command:claude -p (proposer, evaluator, arbiter): what the program spends is not known" in out
    assert "$" not in out
    assert "No limit in dollars is possible for command:claude -p" in out
    assert main([*plan, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"]["cost_usd"] is None


def test_a_limit_in_dollars_is_promised_for_the_models_with_a_price_only(zoo: Path, capsys: Captured) -> None:
    settings = Settings(llm=LLMConfig(model="anthropic", evaluator="command:judge"), budget=Budget(max_usd=2))
    console.prepare_streams()
    show_plan(BuildConfig(paths=("agents",), enable_agents=True, settings=settings), as_json=False)
    out = capsys.readouterr().out
    assert "It stops before it exceeds 10,000 calls, $2 for anthropic:claude-sonnet-5-5. Set" in out
    assert "No limit in dollars is possible for command:judge;" in out


def test_a_local_model_costs_nothing_and_no_dollars_are_mentioned_as_a_limit(zoo: Path, capsys: Captured) -> None:
    assert main(["negotiate", "agents", "--plan", "--model", "ollama:small"]) == 0
    out = capsys.readouterr().out
    assert "ollama:small (proposer, evaluator, arbiter): it runs on this machine and costs nothing." in out
    assert "It stops before it exceeds 10,000 calls. Set these limits in [tool.graphbus.budget].\n" in out


def test_the_expected_time_is_unknown_until_the_speed_of_the_model_is_measured(zoo: Path, capsys: Captured) -> None:
    plan = ["negotiate", "agents", "--plan", "--model", "ollama:small"]
    assert main(plan) == 0
    out = capsys.readouterr().out
    assert "How long it takes is not known: `graphbus doctor --test` measures the speed of the model.\n" in out
    assert not (zoo / ".graphbus").exists()
    speed = ModelSpeed(read_per_s=100.0, write_per_s=10.0, bytes_per_token=4.0, answer_tokens=150)
    save_speed(zoo / ".graphbus", "ollama:small", speed)
    assert main([*plan, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)["plan"]["expected"]
    # 4 analyses, then 3 proposals, 3 votes, and 2 rounds in which 3 agents have nothing to propose
    assert expected["questions"] == 16
    written = 4 * 200 + 3 * 350 + 3 * 150 + 2 * 3 * 15
    read = expected["tokens"] - written
    assert expected["seconds"] == pytest.approx(read / 100 + written / 10), "one question at a time on this machine"
    assert main(plan) == 0
    assert f" and {console.format_duration(expected['seconds'])} at the measured speed.\n" in capsys.readouterr().out
    save_speed(zoo / ".graphbus", "ollama:small", msgspec.structs.replace(speed, read_per_s=0.0, write_per_s=20.0))
    kept = load_speed(zoo / ".graphbus", "ollama:small")
    assert kept is not None
    assert (kept.read_per_s, kept.write_per_s) == (100.0, 20.0)


@pytest.mark.slow
def test_a_session_in_which_each_agent_proposes_once_takes_what_was_expected(
    zoo: Path, capsys: Captured, figure: Callable[[str, object], None]
) -> None:
    planned(GoodModel(), as_json=True)
    expected = json.loads(capsys.readouterr().out)["plan"]["expected"]
    spent = negotiate(zoo, GoodModel()).spent
    figure("questions and tokens of a session, expected", (expected["questions"], expected["tokens"]))
    figure("questions and tokens of a session", (spent.calls, spent.usage.total_tokens))
    assert expected["questions"] == pytest.approx(spent.calls, rel=0.5)
    assert expected["tokens"] == pytest.approx(spent.usage.total_tokens, rel=0.5)
