"""Whole sessions with a model: killed and resumed, replayed, repeated, side by side, with answers in any order."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.build import run_build_pipeline
from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import detect_conflicts
from graphbus_core.editing import sandboxes
from graphbus_core.editing.sandboxes.process import FinishedProcess, Sandbox
from graphbus_core.errors import (
    BuildError,
    ModelError,
    NegotiationError,
    NotJudgedError,
    SeveralErrors,
    UsageError,
)
from graphbus_core.llm.client import ModelPrompt
from graphbus_core.model.config import Budget, BuildConfig, LLMConfig, ResolvedBuild, SafetyConfig, Settings
from graphbus_core.model.messages import Event
from graphbus_core.negotiation.driver import NegotiationSession
from graphbus_core.negotiation.replay import replay_session
from graphbus_core.negotiation.session_workspace import SessionOutcome
from graphbus_core.negotiation.transcript import load_session
from graphbus_core.settings import resolve_build
from tests import thoroughness
from tests.fakes.model_sessions import GoodModel, negotiate, result_of, sources, write_zoo
from tests.fakes.negotiating_agents import OpenGate
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S

Figure = Callable[[str, object], None]
REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def config_of(root: Path) -> ResolvedBuild:
    return resolve_build(BuildConfig(paths=(str(root / "agents"),)))


def start(root: Path, answers: int, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.e2e.session_driver", str(root), str(answers), *options]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answers_in(root: Path) -> int:
    path = root / ".graphbus/sessions/S001/answers.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_answers(root: Path, count: int) -> None:
    assert comes_true(lambda: answers_in(root) >= count)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that nothing has interrupted."""
    root = write_zoo(tmp_path_factory.mktemp("finished") / "zoo")
    negotiate(root, GoodModel())
    return root


def test_answers_in_any_order_give_the_same_files_record_and_artifacts(
    finished: Path, tmp_path: Path, figure: Figure
) -> None:
    chance = random.Random(7)
    widths = (1, 16)
    for width in widths:
        root = write_zoo(tmp_path / str(width) / "zoo")
        model = GoodModel(lambda _prompt: time.sleep(chance.random() * 0.03))
        negotiate(root, model, settings=Settings(llm=LLMConfig(concurrency=width)))
        assert result_of(root) == result_of(finished)
    figure("shuffled latencies and other numbers of threads with other bytes", f"0 of {len(widths)}")


@pytest.mark.parametrize(("stop", "after"), [(signal.SIGKILL, 2), (signal.SIGINT, 6)])
def test_a_session_that_was_killed_goes_on_and_comes_to_the_same_result(
    finished: Path, tmp_path: Path, stop: signal.Signals, after: int
) -> None:
    root = write_zoo(tmp_path / "zoo")
    before = sources(root)
    victim = start(root, after)
    wait_for_answers(root, after)
    victim.send_signal(stop)
    victim.communicate(timeout=PATIENCE_S)
    assert sources(root) == before
    assert answers_in(root) == after
    again = start(root, 0, "--resume")
    out, err = again.communicate(timeout=PATIENCE_S)
    assert (again.returncode, err) == (0, "")
    assert int(out) == 13 - after
    assert result_of(root) == result_of(finished)


class BusyMachine:
    """A sandbox on a machine that is too busy at the n-th run; from 1."""

    def __init__(self, inner: Sandbox, at: int) -> None:
        self.tier = inner.tier
        self.runs = 0
        self._inner, self._at = inner, at

    def visible_path(self, cwd: Path) -> Path:
        return self._inner.visible_path(cwd)

    def run(self, *command: Any, **limits: Any) -> FinishedProcess:
        self.runs += 1
        if self.runs == self._at:
            raise NotJudgedError("GBE332", wall_s=1200.0, used_s=9.0, timeout_s=60.0)
        return self._inner.run(*command, **limits)


def test_a_busy_machine_judges_nothing_and_the_session_goes_on_to_the_same_result(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each place where code is tried, in a quick run at every third: nothing is refused or written, no answer paid twice."""
    inner = sandboxes.choose_sandbox("jail")
    assert inner is not None
    number, step = 1, 1 if thoroughness.is_thorough else 3
    while True:
        root, machine, model = write_zoo(tmp_path / str(number) / "zoo"), BusyMachine(inner, number), GoodModel()
        before = sources(root)
        with monkeypatch.context() as patch:
            patch.setattr(sandboxes, "choose_sandbox", lambda *_: machine)  # noqa: B023 - used up before the next round
            with suppress(NotJudgedError):
                negotiate(root, model)
        if machine.runs < number:
            break
        assert sources(root) == before
        kept = load_session(root / ".graphbus")
        assert not kept.is_applied
        assert {record.status for record in kept.negotiations.records} <= {"pending", "accepted"}
        again = GoodModel()
        negotiate(root, again, is_resumed=True)
        assert len(model.asked) + len(again.asked) == 13
        assert result_of(root) == result_of(finished)
        number += step
    assert number > 3
    assert result_of(root) == result_of(finished)


def test_a_session_that_was_killed_before_its_changes_were_written_goes_on(finished: Path, tmp_path: Path) -> None:
    """The record is on the disk already, and the changes are not."""
    root, bus = write_zoo(tmp_path / "zoo"), MessageBus()
    before = sources(root)

    def interrupt(event: Event) -> None:
        if event["stage"] == "APPLY_CODE_CHANGES":
            raise KeyboardInterrupt

    bus.subscribe("/Build/Stage", interrupt)
    request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True)
    with pytest.raises(KeyboardInterrupt):
        run_build_pipeline(request, bus=bus, backend=GoodModel().backend())
    record = load_session(root / ".graphbus")
    assert (record.negotiations.ending.reason, record.is_applied, sources(root)) == ("convergence", False, before)
    again = GoodModel()
    negotiate(root, again, is_resumed=True)
    assert again.asked == []
    assert result_of(root) == result_of(finished)
    with pytest.raises(NegotiationError, match="no interrupted session"):
        negotiate(root, again, is_resumed=True)


def test_what_moved_since_is_named_instead_of_resumed(tmp_path: Path) -> None:
    root = write_zoo(tmp_path / "zoo")

    def interrupt(prompt: ModelPrompt) -> None:
        if "evaluate" in prompt.task[:40]:
            raise ModelError("GBE442", is_final=True, provider="x", variable="X_KEY", reason="revoked")

    with pytest.raises(ModelError) as failure:
        negotiate(root, GoodModel(interrupt))
    assert failure.value.status == 5
    record = load_session(root / ".graphbus")
    assert (record.negotiations.ending.reason, record.is_applied) == ("error", False)
    stock = root / "agents/stock.py"
    text = stock.read_text(encoding="utf-8")
    stock.write_text(text + "# later\n", encoding="utf-8")
    with pytest.raises(NegotiationError, match=r"since it was interrupted: agents/stock\.py has changed"):
        negotiate(root, GoodModel(), is_resumed=True)
    stock.write_text(text, encoding="utf-8")
    with pytest.raises(NegotiationError, match="the intent has changed"):
        negotiate(root, GoodModel(), is_resumed=True, intent="another one")
    with pytest.raises(NegotiationError, match="the model that votes has changed"):
        negotiate(root, GoodModel(), is_resumed=True, voters="rules")
    model = GoodModel()
    model.client.model = "scripted:other"
    with pytest.raises(NegotiationError, match="the model has changed from scripted:test to scripted:other"):
        negotiate(root, model, is_resumed=True)
    assert negotiate(root, GoodModel(), is_resumed=True).applied
    with pytest.raises(NegotiationError) as nothing:
        negotiate(root, GoodModel(), is_resumed=True)
    assert nothing.value.code == "GBE421"


def test_a_key_that_is_refused_ends_the_session_and_is_no_row_of_abstentions(tmp_path: Path) -> None:
    root = write_zoo(tmp_path / "zoo")

    def refuse(_prompt: ModelPrompt) -> None:
        raise ModelError("GBE442", is_final=True, provider="x", variable="X_KEY", reason="unknown")

    model = GoodModel(refuse)
    with pytest.raises(ModelError, match="rejected the key"):
        negotiate(root, model)
    assert len(model.asked) <= 4
    assert model.closed == 1


def test_a_replay_gives_the_same_bytes_from_the_session_and_from_the_lock_alone(
    finished: Path, tmp_path: Path, figure: Figure
) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(finished, clone, ignore=shutil.ignore_patterns(".graphbus"))
    (clone / ".graphbus").mkdir()
    shutil.copy(finished / ".graphbus/negotiation.lock", clone / ".graphbus")
    for root, session in ((finished, "S001"), (clone, "")):
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        done = replay_session(config_of(root), session)
        assert (done.session, done.requests, done.differences) == ("S001", 13, ())
        assert done.files == ("agents/mail.py", "agents/orders.py", "agents/stock.py")
        assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    figure("replays with other bytes than their session", "0 of 2")
    assert run_build_pipeline(BuildConfig(paths=(str(clone / "agents"),), is_frozen=True)).built


def test_a_replay_names_what_is_not_as_it_was(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "zoo"
    shutil.copytree(finished, root)
    record = root / ".graphbus/sessions/S001/record.json"
    record.write_text(record.read_text(encoding="utf-8").replace('"convergence"', '"max_rounds"'), encoding="utf-8")
    (difference,) = replay_session(config_of(root), "S001").differences
    assert 'of the record was "reason": "max_rounds"' in difference
    answers = root / ".graphbus/sessions/S001/answers.jsonl"
    answers.write_bytes(b"".join(answers.read_bytes().splitlines(keepends=True)[:-1]))
    (difference,) = replay_session(config_of(root), "S001").differences
    assert "contains no answer from scripted:test" in difference
    assert not difference.endswith(".")
    (root / "agents/judge.py").write_bytes(b"# another\n" + (root / "agents/judge.py").read_bytes())
    with pytest.raises(NegotiationError, match=r"have changed since it ended \(agents/judge\.py\)"):
        replay_session(config_of(root), "S001")


def test_a_build_in_which_nothing_has_changed_asks_no_model(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "zoo"
    shutil.copytree(finished, root)
    lock = (root / ".graphbus/negotiation.lock").read_bytes()
    model = GoodModel()
    negotiate(root, model)
    assert model.asked == []
    assert (root / ".graphbus/negotiation.lock").read_bytes() == lock
    stock = root / "agents/stock.py"
    stock.write_text(stock.read_text(encoding="utf-8").replace("Counts what", "Adds up what"), encoding="utf-8")
    negotiate(root, model, dry_run=True)
    assert {agent for task, agent in model.asked if task != "evaluate"} == {"StockService"}
    model.asked.clear()
    negotiate(root, model, force=True, dry_run=True, use_cache=False)
    assert {agent for task, agent in model.asked if task == "analyze"} >= {"OrderService", "MailService", "Judge"}


def test_a_frozen_build_names_each_agent_and_what_has_changed(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "zoo"
    shutil.copytree(finished, root)
    frozen = BuildConfig(paths=(str(root / "agents"),), is_frozen=True)
    run_build_pipeline(frozen)
    stock = root / "agents/stock.py"
    stock.write_text(stock.read_text(encoding="utf-8").replace("Counts what", "Adds up what"), encoding="utf-8")
    with pytest.raises(BuildError, match="StockService: the source of the agent has changed") as failure:
        run_build_pipeline(frozen)
    assert failure.value.status == 3
    orders = root / "agents/orders.py"
    orders.write_text(
        orders.read_text(encoding="utf-8").replace('"total": float})', '"total": int})'), encoding="utf-8"
    )
    with pytest.raises(SeveralErrors) as several:
        run_build_pipeline(frozen)
    told = [error.sentence for error in several.value.errors]
    assert "The lock is out of date for MailService: the contract of OrderService has changed." in told
    (root / ".graphbus/negotiation.lock").write_text("<<<<<<< ours\n", encoding="utf-8")
    with pytest.raises(BuildError) as damaged:
        run_build_pipeline(frozen)
    (root / ".graphbus/negotiation.lock").unlink()
    with pytest.raises(BuildError) as missing:
        run_build_pipeline(frozen)
    assert (damaged.value.code, missing.value.code) == ("GBE222", "GBE220")
    with pytest.raises(UsageError, match="--frozen cannot be combined with --enable-agents"):
        run_build_pipeline(BuildConfig(paths=frozen.paths, is_frozen=True, enable_agents=True))


def test_a_second_negotiation_is_refused_before_it_asks_anybody(tmp_path: Path) -> None:
    root = write_zoo(tmp_path / "zoo")
    first = start(root, 1)
    wait_for_answers(root, 1)
    model = GoodModel()
    with pytest.raises(NegotiationError) as refusal:
        negotiate(root, model)
    assert refusal.value.code == "GBE420"
    assert str(first.pid) in refusal.value.sentence
    assert model.asked == []
    negotiate(root, model, dry_run=True, settings=Settings(safety=SafetyConfig(max_negotiation_rounds=1)))
    first.kill()
    first.communicate(timeout=PATIENCE_S)


def run_openly(root: Path, model: GoodModel, bus: MessageBus | None = None) -> SessionOutcome:
    """Negotiate without the gate's child processes."""
    config = config_of(root)
    project = Project.read(config, cache=False)
    with model.backend() as backend:
        agents = backend.activate(config, project.definitions, project.order.order)
        negotiation = NegotiationSession(config, bus or MessageBus(), backend=backend)
        if bus:
            bus.subscribe("/Stop", lambda event: negotiation.stop())
        negotiation.analyze(agents, project)
        return negotiation.run(project, agents, detect_conflicts(project), OpenGate())


def test_a_session_asks_in_as_few_waves_as_its_critical_path_has(tmp_path: Path) -> None:
    """Nobody is answered before all who take part in the phase have asked.

    A model that has not given a usable answer yet gets three questions at a time, so the four analyses take two waves; then come
    the proposals, the votes, and the proposals of another round.
    """
    waves = [threading.Barrier(asking) for asking in (3, 1, 3, 3, 3)]
    places = iter([wave for wave in waves for _ in range(wave.parties)])
    broken: list[ModelPrompt] = []

    def answer_together(prompt: ModelPrompt) -> None:
        try:
            next(places).wait(timeout=PATIENCE_S)
        except threading.BrokenBarrierError:
            broken.append(prompt)

    model = GoodModel(answer_together)
    outcome = run_openly(write_zoo(tmp_path / "zoo"), model)
    assert (len(outcome.negotiations.completed), len(model.asked), broken) == (3, 13, [])


def test_no_session_costs_more_than_its_cap_and_what_it_costs_is_shared_out(
    finished: Path, tmp_path: Path, figure: Figure
) -> None:
    whole = load_session(finished / ".graphbus")
    assert whole.spent.requests == 13
    assert whole.spent.cost_usd > 0
    assert set(whole.costs) == {"P001", "P002", "P003"}
    assert sum(whole.costs.values()) < whole.spent.cost_usd
    for number, max_usd in enumerate((0.001, 0.5)):
        root = write_zoo(tmp_path / str(number) / "zoo")
        settings = Settings(budget=Budget(max_usd=max_usd), llm=LLMConfig(max_output_tokens=2000, use_cache=False))
        negotiate(root, GoodModel(), settings=settings)
        record = load_session(root / ".graphbus")
        assert record.spent.cost_usd <= max_usd
        figure("dollars of a session against its cap", f"{record.spent.cost_usd:.4f} of {max_usd}")
        if max_usd < 0.01:
            assert record.negotiations.ending.reason == "budget"
            assert "max_usd is 0.001" in record.negotiations.ending.detail
            assert record.spent.requests == 0


@pytest.mark.parametrize("width", [1, 16])
def test_a_stop_does_not_wait_for_a_model(tmp_path: Path, width: int) -> None:
    root = write_zoo(tmp_path / "zoo")
    with (root / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[tool.graphbus.llm]\nconcurrency = {width}\n")
    release, bus = threading.Event(), MessageBus()
    answered = []

    def answer_late(prompt: ModelPrompt) -> None:
        if "propose" in prompt.task[:30]:
            threading.Timer(0.2, lambda: bus.publish("/Stop", {})).start()
            answered.append(release.wait(PATIENCE_S))

    outcome = run_openly(root, GoodModel(answer_late), bus)
    assert (outcome.negotiations.ending.reason, answered) == ("manual", [])
    release.set()


def test_no_prompt_and_no_place_is_in_anything_that_is_kept(finished: Path) -> None:
    kept = b"".join(path.read_bytes() for path in sorted((finished / ".graphbus").rglob("*")) if path.is_file())
    assert b"# Your task" not in kept
    assert os.fsencode(str(finished)) not in kept
