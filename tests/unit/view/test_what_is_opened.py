"""What the view makes of a path or an address, of the counts of a running graph, and of a session of the past."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphbus_core import GraphBusNode, build_graph, subscribe
from graphbus_core.clock import SystemClock
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.members import connect
from graphbus_core.hosting.state import FILE as STATE_FILE
from graphbus_core.ledger.attached import AttachedLedger
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.sqlite import SqliteLedger
from graphbus_core.negotiation.transcript import TRANSCRIPT, TranscriptEvent, load_session, save_session
from graphbus_core.view.counting import Counting
from graphbus_core.view.negotiation import Board, show_session
from graphbus_core.view.opening import open_source
from tests.fakes.landed_sessions import FILES, PRICE, Agreed
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S
from tests.project_files import write_project
from tests.unit.view.test_view_records import HEADER, traced


def make_ledger(path: Path) -> None:
    """An SQLite ledger without events."""

    async def make() -> None:
        ledger = SqliteLedger(str(path))
        await ledger.open([])
        await ledger.close()

    asyncio.run(make())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built project with a session, a trace, a ledger without artifacts beside it, and a second build."""
    root = write_project(tmp_path / "shop", FILES)
    monkeypatch.chdir(root)
    session = Agreed(root, makes_commits=False).accept(PRICE)
    session.records.append(msgspec.structs.replace(session.records[0], status="rejected", commit=None, gate=None))
    session.save()
    build_graph(root / "agents")
    state = root / ".graphbus" / "state"
    state.mkdir(exist_ok=True)
    (state / "trace.jsonl").write_bytes(HEADER + msgspec.json.encode(traced(1)) + b"\n")
    (root / "old.jsonl").write_bytes(HEADER + msgspec.json.encode(traced(2)) + b"\n")
    make_ledger(root / "ledger.sqlite3")
    return root


@pytest.mark.parametrize(
    ("what", "other", "kind", "name", "sides"),
    [
        (".graphbus", "", "trace", ".graphbus", ["trace.jsonl"]),
        (".graphbus", "old.jsonl", "trace", ".graphbus", [".graphbus", "old.jsonl"]),
        (".graphbus/state/trace.jsonl", "", "trace", ".graphbus/state/trace.jsonl", ["trace.jsonl"]),
        ("old.jsonl", ".graphbus", "trace", "old.jsonl", ["old.jsonl", ".graphbus"]),
        ("S001", "", "negotiation", "S001", []),
        (".graphbus/sessions/S001", "", "negotiation", "S001", []),
        (".graphbus/sessions/S001/record.json", "", "negotiation", "S001", []),
        ("ledger.sqlite3", "", "ledger", "ledger.sqlite3", []),
    ],
)
def test_a_path_is_opened_as_what_it_is(
    shop: Path, what: str, *, other: str, kind: str, name: str, sides: list[str]
) -> None:
    with closing(open_source(what, other)) as source:
        assert (source.origin.kind, source.origin.name) == (kind, name)
        assert {agent.name for agent in source.artifacts.agents.agents} == {"Order", "Stock"}
        assert [choice.name for choice in source.compare("", "").choices] == sides


def test_a_build_that_runs_on_a_ledger_shows_the_ledger_once_there_is_one(shop: Path) -> None:
    (shop / "pyproject.toml").write_text('[tool.graphbus]\n[tool.graphbus.runtime]\nledger = "sqlite"\n')
    with closing(open_source(".graphbus")) as source:
        assert source.origin.kind == "trace"
    make_ledger(shop / ".graphbus" / "state" / STATE_FILE)
    with closing(open_source(".graphbus")) as source:
        assert source.origin.kind == "ledger"


@pytest.mark.parametrize(("what", "other"), [("S002", ""), ("nothing.jsonl", ""), ("old.jsonl", "nothing.jsonl")])
def test_what_is_not_there_is_refused(what: str, other: str, shop: Path) -> None:
    with pytest.raises(GraphBusError) as refusal:
        open_source(what, other)
    assert refusal.value.code == "GBE101"


def test_a_trace_without_a_build_says_that_the_graph_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").write_bytes(HEADER + msgspec.json.encode(traced(1)) + b"\n")
    with closing(open_source("trace.jsonl")) as source:
        assert "there are no artifacts beside it" in source.origin.note


# --- sessions ---


def test_a_session_without_its_transcript_shows_its_outcome(shop: Path) -> None:
    (shop / ".graphbus" / "sessions" / "S001" / TRANSCRIPT).unlink(missing_ok=True)
    picture = show_session(shop / ".graphbus", "")
    assert "only the outcome" in picture.note
    assert (picture.session, picture.state, picture.agents) == ("S001", "ended", ("Order", "Stock"))
    (case,) = picture.proposals
    assert [(vote.evaluator, vote.decision) for vote in case.votes] == [("Stock", "accept")]


def test_a_session_with_its_transcript_shows_what_is_written_there(shop: Path) -> None:
    record = msgspec.structs.replace(load_session(shop / ".graphbus"), session="S002")
    payload = {"proposal": {"proposal_id": "P007", "round": 1, "src": "Stock", "intent": "fix it"}}
    save_session(shop / ".graphbus", record, (TranscriptEvent(topic="/Negotiation/Proposed", payload=payload),))
    picture = show_session(shop / ".graphbus", "")
    assert (picture.session, picture.note, [case.id for case in picture.proposals]) == ("S002", "", ["P007"])


def test_a_folder_without_sessions_says_how_one_is_begun(tmp_path: Path) -> None:
    picture = show_session(tmp_path, "")
    assert (picture.state, picture.proposals) == ("none", ())
    assert "--enable-agents" in picture.note


def test_a_damaged_transcript_is_refused_in_words(shop: Path) -> None:
    record = msgspec.structs.replace(load_session(shop / ".graphbus"), session="S002")
    event = TranscriptEvent(topic="/Negotiation/Proposed", payload={"proposal": 7})
    save_session(shop / ".graphbus", record, (event,))
    with pytest.raises(GraphBusError, match="its transcript is damaged") as refusal:
        show_session(shop / ".graphbus", "S002")
    assert refusal.value.code == "GBE405"


def test_an_event_of_an_unknown_kind_changes_nothing_on_a_board() -> None:
    board = Board()
    board.add("/Negotiation/Invented", {})
    assert (board.changes, board.picture().proposals) == (0, ())


# --- counts ---


class Till(GraphBusNode):
    @subscribe("/Sold")
    def on_sold(self, event: Mapping[str, Any]) -> None:
        if not event["quantity"]:
            raise ValueError("nothing to sell")


class Slow(GraphBusNode):
    def on_start(self) -> None:
        self.may_go = threading.Event()

    @subscribe("/Asked")
    async def on_asked(self, event: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self.may_go.wait, PATIENCE_S)


@pytest.fixture
def on_a_ledger() -> Iterator[LiveGraph]:
    graph = connect(Till, on_error="isolate")
    graph.ledger = AttachedLedger(graph, MemoryLedger(SystemClock(), graph._states), partitions=1)
    graph.at_end(graph.ledger.close)
    try:
        graph.bus.hosting.start_dispatcher()
        graph.ledger.begin()
        yield graph
    finally:
        graph.stop()


def test_only_what_has_changed_is_counted_again_and_dead_letters_once() -> None:
    graph = connect(Till, on_error="isolate")
    try:
        counting = Counting(graph)
        graph.publish("/Sold", {"quantity": 0})
        graph.publish("/Sold", {"quantity": 1})
        (counts,) = counting.counts(every=False).values()
        assert (counts.delivered, counts.failed, counts.dead, counts.waiting) == (2, 1, 1, 0)
        assert counting.counts(every=False) == {}
        (again,) = counting.counts(every=True).values()
        assert again == counts
    finally:
        graph.stop()


def test_what_is_dead_in_a_ledger_is_counted_at_its_handler(on_a_ledger: LiveGraph) -> None:
    on_a_ledger.publish("/Sold", {"quantity": 0})
    assert comes_true(lambda: "dead" in str(on_a_ledger.ledger_metrics()), PATIENCE_S)
    counting = Counting(on_a_ledger)
    assert counting.counts(every=True)["Till.on_sold <- /Sold"].dead == 1
    assert counting.counts(every=False) == {}  # and the ledger is not asked again so soon


def test_events_wait_for_a_handler_on_the_event_loop_and_the_oldest_is_the_lag() -> None:
    graph = connect(Slow, on_error="isolate")
    try:
        threads = [threading.Thread(target=graph.publish, args=("/Asked", {})) for _ in range(3)]
        for thread in threads:
            thread.start()
        counting = Counting(graph)
        assert comes_true(lambda: counting.counts(every=True)["Slow.on_asked <- /Asked"].waiting >= 2)
        assert comes_true(lambda: counting.counts(every=True)["Slow.on_asked <- /Asked"].lag_s > 0)
        graph.node("Slow").may_go.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert comes_true(lambda: counting.counts(every=True)["Slow.on_asked <- /Asked"].waiting == 0)
    finally:
        graph.node("Slow").may_go.set()
        graph.stop()
