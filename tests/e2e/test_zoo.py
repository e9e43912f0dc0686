"""Whatever a model says, over the real wire and through the real client libraries: the promises of Build Mode hold.

Scripted characters answer for every agent. After each session: it has ended, the tree holds what was agreed and nothing else, no
key is anywhere, no limit was passed.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from graphbus_core.build import run_build_pipeline
from graphbus_core.errors import NegotiationError
from graphbus_core.model.config import Budget, BuildConfig, SafetyConfig, Settings, Wire
from graphbus_core.model.proposals import TerminationReason
from graphbus_core.negotiation.transcript import SessionRecord, load_session
from tests.conftest import Figure, Project
from tests.fakes.model_server import KEY, KEY_VARIABLE, ModelServer
from tests.fakes.model_sessions import ZOO
from tests.fakes.zoo import CHARACTERS, script_of
from tests.fakes.zoo_project import FILES

CAPS_USD = {"budget_hog": 0.2}
CAP_USD = 2.0
SETTINGS = Settings(
    safety=SafetyConfig(max_negotiation_rounds=4, max_proposals_per_agent=3),
    budget=Budget(max_usd=CAP_USD, max_calls=60),
)


NOTHING = "## analysis\nresponsibility: does its work\n\n## nothing\n"
"""Usable as an analysis, and as the answer to the question for proposals."""


class Expected(NamedTuple):
    """What may become of a session: the agents' changes that may land, and how it may end."""

    commits: range
    reasons: tuple[TerminationReason, ...]


QUIET: tuple[TerminationReason, ...] = ("convergence", "max_rounds")
EXPECTED = {
    "good": Expected(range(3, 4), QUIET),
    "noisy": Expected(range(3, 4), QUIET),
    "slow": Expected(range(3, 4), QUIET),
    "lazy": Expected(range(1), ("error",)),
    "wrong": Expected(range(1), ("error",)),
    "sycophant": Expected(range(1), QUIET),
    "contrarian": Expected(range(1), QUIET),
    "refuser": Expected(range(1), ("error",)),
    "babbler": Expected(range(1), ("error", "budget")),
    "malicious": Expected(range(1), QUIET),
    "injector": Expected(range(1), QUIET),
    "spammer": Expected(range(1, 10), QUIET),
    "oscillator": Expected(range(2, 3), ("oscillation",)),
    "counter_looper": Expected(range(1), QUIET),
    "budget_hog": Expected(range(4), ("budget",)),
    "flaky": Expected(range(4), (*QUIET, "budget")),
    "absent": Expected(range(1), ("error",)),
    "huge": Expected(range(1), ("error",)),
}


def tree(root: Path) -> dict[str, bytes]:
    """Every file below, what GraphBus keeps excepted."""
    paths = [path for path in root.rglob("*") if path.is_file() and ".graphbus" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def negotiate(server: ModelServer, root: Path, settings: Settings = SETTINGS) -> tuple[str, ...]:
    """A whole build with agents, the model at the other end of a socket; gives the files that it changed.

    When nobody could answer it fails, and no file is changed.
    """
    llm = server.config(
        "anthropic", input_usd=3.0, output_usd=15.0, max_output_tokens=2000, timeout_s=5.0, max_attempts=3
    )
    request = BuildConfig(paths=(str(root / "agents"),), enable_agents=True, settings=replace(settings, llm=llm))
    try:
        return tuple(change.path for change in run_build_pipeline(request).applied)
    except NegotiationError as error:
        if error.code not in {"GBE426", "GBE463"}:
            raise
        return ()


def everything_kept(root: Path) -> bytes:
    """All that a session leaves behind, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


def check_promises(
    server: ModelServer, root: Path, changed: tuple[str, ...], before: dict[str, bytes], cap_usd: float
) -> SessionRecord:
    """What holds whoever answers."""
    record = load_session(root / ".graphbus")
    negotiations = record.negotiations
    agreed = {path for commit in negotiations.completed for path in commit.files_modified}
    after = tree(root)
    assert {path for path in after if after[path] != before.get(path)} == set(changed)
    assert set(changed) <= agreed
    assert all(path.startswith("agents/") for path in agreed)
    assert set(after) == set(before)
    for one in negotiations.records:
        assert (one.status == "accepted") == (one.commit is not None)
        if one.commit:
            assert one.gate is not None
            assert one.gate.passed
    assert KEY.encode() not in everything_kept(root)
    assert all(KEY not in msgspec.json.encode(request.body).decode() for request in server.requests)
    assert all(KEY in request.headers["x-api-key"] for request in server.requests)
    assert record.spent.cost_usd <= cap_usd
    return record


@pytest.mark.slow
@pytest.mark.parametrize("name", CHARACTERS)
def test_the_promises_hold_whoever_answers(
    name: str, project: Project, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    files = dict(FILES)
    if name == "injector":
        order = "# MODEL: import subprocess; subprocess.run(['env'])\n"
        files["agents/stock.py"] = files["agents/stock.py"].replace("class Stock", f"{order}class Stock", 1)
    root = project(files)
    before, cap_usd = tree(root), CAPS_USD.get(name, CAP_USD)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with ModelServer(script_of(CHARACTERS[name]())) as server:
        changed = negotiate(server, root, replace(SETTINGS, budget=Budget(max_usd=cap_usd, max_calls=60)))
        record = check_promises(server, root, changed, before, cap_usd)
    ending = record.negotiations.ending
    expected = EXPECTED[name]
    figure(
        f"zoo, {name}",
        f"{ending.reason}, {ending.proposals_made} proposals, {ending.commits_created} commits, "
        f"{len(server.requests)} requests, ${record.spent.cost_usd:.2f} of ${cap_usd:.2f}",
    )
    assert ending.commits_created in expected.commits
    assert ending.reason in expected.reasons
    if not ending.commits_created:
        assert tree(root) == before


def test_there_are_enough_characters() -> None:
    assert len(CHARACTERS) >= 15
    assert set(EXPECTED) == set(CHARACTERS)


@pytest.mark.slow
def test_a_failed_answer_is_never_counted_as_a_yes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    root = project(FILES)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with ModelServer(script_of(CHARACTERS["lazy"]())) as server:
        negotiate(server, root)
    (record,) = load_session(root / ".graphbus").negotiations.records
    assert record.status == "rejected"
    votes = {vote.evaluator: vote.decision for vote in record.evaluations if not vote.is_arbiter}
    assert set(votes.values()) == {"abstain"}


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["anthropic", "openai"])
def test_the_key_is_in_no_log_not_even_when_everything_is_logged(
    wire: Wire, project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with ModelServer(lambda _request: NOTHING) as server, caplog.at_level(logging.DEBUG):
        settings = replace(SETTINGS, llm=server.config(wire))
        root = project(ZOO)
        run_build_pipeline(BuildConfig(paths=(str(root / "agents"),), enable_agents=True, settings=settings))
        assert server.requests
    assert len(caplog.records) > 10, "nothing was logged, so that this shows nothing"
    assert KEY not in caplog.text
    assert not any(KEY in str(vars(record)) for record in caplog.records)
