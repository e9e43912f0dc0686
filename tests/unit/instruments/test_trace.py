"""The trace: what is written down of each delivery, how it survives, and the tree that is made of it."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graphbus_core import GraphBusNode, connect, schema_method, subscribe
from graphbus_core.cli.running.trace_text import delivery_line, tree_lines
from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments import trace as tracing
from graphbus_core.hosting.instruments.trace import Recorder, Tracer
from graphbus_core.hosting.instruments.trace_file import FILE, TraceFile, TraceReader
from graphbus_core.hosting.instruments.trace_tree import plant
from graphbus_core.hosting.instruments.traced import Delivery


class Orders(GraphBusNode):
    @subscribe("/Order/Placed")
    def on_placed(self, event) -> None:
        self.publish("/Order/Checked", {"n": event["n"]})
        self.publish("/Order/Counted", {"n": event["n"]})

    @schema_method(input_schema={})
    def place(self) -> None:
        self.publish("/Order/Placed", {"n": 1})


class Stock(GraphBusNode):
    @subscribe("/Order/Checked")
    def on_checked(self, n) -> None:
        raise ValueError(f"no\nstock {n}")

    @subscribe("/Order/Counted")
    async def on_counted(self, n) -> None:
        pass


def traced(tmp_path: Path, count: int = 1, **options) -> Path:
    with (
        Tracer(tmp_path, **options) as tracer,
        connect(Orders, Stock, middleware=[tracer], on_error="isolate") as graph,
    ):
        for n in range(count):
            graph.publish("/Order/Placed", {"n": n})
    return tmp_path / FILE


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[TraceReader]:
    with TraceReader(traced(tmp_path)) as opened:
        yield opened


def delivered(n: int = 0, **changes) -> Delivery:
    fields = {
        "event_id": f"{n:032x}",
        "causation_id": "",
        "correlation_id": f"{n:032x}",
        "topic": "/A/B",
        "src": "",
        "published_by": "",
        "published": 1.0,
        "handler": "A.b",
        "attempt": 1,
        "started": 1.0,
        "duration_s": 0.001,
        "outcome": "done",
    }
    return Delivery(**{**fields, **changes})


def test_every_delivery_is_written_with_its_cause_handler_and_outcome(reader: TraceReader) -> None:
    (root,) = reader.roots(10)
    assert (root.topic, root.events, root.deliveries, root.failed) == ("/Order/Placed", 3, 3, 1)
    by_handler = {each.handler: each for each in reader.tree(root.event_id)}
    assert set(by_handler) == {"Orders.on_placed", "Stock.on_checked", "Stock.on_counted"}
    failed = by_handler["Stock.on_checked"]
    assert (failed.outcome, failed.error) == ("failed", "ValueError: no")
    assert failed.causation_id == root.event_id
    assert failed.published_by == "Orders.on_placed"
    assert 0 < by_handler["Orders.on_placed"].duration_s < 5


def test_payloads_are_written_only_when_asked_for(tmp_path: Path) -> None:
    for folder, options, payload in (("a", {}, ""), ("b", {"with_payloads": True}, '{"n":0}')):
        with TraceReader(traced(tmp_path / folder, **options)) as reader:
            (root,) = reader.roots(1)
            assert reader.tree(root.event_id)[0].payload == payload


def test_nobody_else_can_read_the_file(tmp_path: Path) -> None:
    assert stat.S_IMODE(traced(tmp_path).stat().st_mode) == 0o600


def test_nothing_is_lost_when_it_is_closed_and_the_oldest_are_forgotten_first(tmp_path: Path) -> None:
    path = traced(tmp_path, count=700, kept=1000)
    with TraceReader(path) as reader:
        assert sum(root.deliveries for root in reader.roots(-1)) == 1000
        assert len(reader.roots(5)) == 5
        assert reader.roots(1)[0].deliveries == 3


def test_a_second_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    traced(tmp_path)
    with TraceReader(traced(tmp_path)) as reader:
        assert len(reader.roots(10)) == 2


def test_a_graph_that_is_faster_than_the_disk_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_PENDING", 10)
    monkeypatch.setattr(tracing, "_BATCH", 5)
    with TraceReader(traced(tmp_path, count=200)) as reader:
        assert sum(root.deliveries for root in reader.roots(-1)) == 600


def test_a_file_that_cannot_be_written_any_more_stops_the_trace_and_not_the_graph(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Tracer(tmp_path) as tracer, connect(Orders, Stock, middleware=[tracer], on_error="isolate") as graph:
        with closing(sqlite3.connect(tmp_path / FILE)) as database:
            database.execute("DROP TABLE deliveries")
        for n in range(5):
            graph.publish("/Order/Placed", {"n": n})
        tracer.close()
        tracer.close()
        graph.publish("/Order/Placed", {"n": 6})
        assert graph.bus.statistics().published == 18
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            tracer._file._database.execute("SELECT 1")
    said = [record.message for record in caplog.records if record.name == "graphbus.trace"]
    assert said == ["The trace cannot be written: no such table: deliveries. The graph runs on without a trace."]


def test_an_empty_file_holds_no_trace_to_read_and_takes_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(RunError) as refused, TraceReader(tmp_path / FILE) as reader:
        reader.roots(1)
    assert refused.value.code == "GBE684"
    TraceFile(tmp_path / FILE, kept=9).close()


@pytest.mark.parametrize("content", [b"x\n", b"no database, whatever its name says" * 40])
def test_who_meets_a_damaged_trace_is_told_which_file_to_move_away(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    for use in (TraceReader, lambda path: TraceFile(path, kept=9)):
        with pytest.raises(RunError, match="The trace cannot be read: it is damaged") as refused:
            use(path)
        assert (refused.value.code, str(refused.value.where)) == ("GBE643", str(path))
        assert "Move the file away" in refused.value.hint
    assert path.read_bytes() == content


def test_a_trace_that_is_damaged_further_on_is_told_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with closing(TraceFile(path, kept=9)):
        pass
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with TraceReader(path) as reader, pytest.raises(RunError) as refused:
        reader.roots(1)
    assert refused.value.code == "GBE643"


def test_a_folder_in_which_nothing_can_be_written_is_refused_before_the_graph_starts(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, no folder")
    with pytest.raises(RunError) as refused:
        Tracer(tmp_path / "state")
    assert refused.value.code == "GBE683"
    assert threading.active_count() == 1


def test_without_a_trace_nothing_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(RunError) as refused:
        TraceReader(tmp_path / FILE)
    assert refused.value.code == "GBE684"


def test_a_call_is_no_delivery_but_what_it_publishes_is() -> None:
    recorder = Recorder()
    shown: list[str] = []
    recorder.show = lambda delivery: shown.append(delivery.handler)
    with connect(Orders, middleware=[recorder]) as graph:
        graph.call("Orders", "place")
    assert [each.handler for each in recorder.deliveries()] == ["Orders.on_placed"] == shown
    assert recorder.deliveries()[0].src == "Orders"


def test_ids_are_found_by_how_they_begin(reader: TraceReader) -> None:
    (root,) = reader.roots(1)
    assert reader.matching(root.event_id[:10], 5) == [root.event_id]
    assert len(reader.matching("", 5)) == 3
    assert set(reader.last_ids(9)) == set(reader.matching("", 9))
    for each in reader.last_ids(9):
        assert reader.root_of(each) == root.event_id


def test_the_tree_shows_who_caused_what(reader: TraceReader) -> None:
    (root,) = reader.roots(1)
    tree = plant(root.event_id, reader.tree(root.event_id))
    (handled,) = tree.handled
    assert [each.topic for each in handled.caused] == ["/Order/Checked", "/Order/Counted"]
    lines = list(tree_lines(tree, marked=handled.caused[0].event_id))
    text = "\n".join(lines)
    assert "ValueError: no" in text
    assert "<- this one" in lines[2]
    assert lines[-1].startswith("3 deliveries of 3 events in ")


def test_a_repeated_delivery_is_shown_as_often_as_it_was_tried_and_owns_what_the_last_attempt_caused() -> None:
    root = f"{7:032x}"
    deliveries = [
        delivered(7, outcome="failed", error="OSError: gone"),
        delivered(7, attempt=2, outcome="interrupted"),
        delivered(7, attempt=3),
        delivered(8, causation_id=root, correlation_id=root, published_by="A.b", handler="C.d"),
    ]
    tree = plant(root, deliveries)
    assert [len(each.caused) for each in tree.handled] == [0, 0, 1]
    lines = list(tree_lines(tree))
    assert "OSError: gone" in lines[1]
    assert "interrupted after" in lines[2]
    assert "attempt 3" in lines[3]
    assert "2 of them repeated" in lines[-1]


def test_what_is_forgotten_at_the_root_is_said_and_the_rest_is_shown() -> None:
    root = f"{7:032x}"
    lost = delivered(8, causation_id=root, correlation_id=root, published_by="A.b", handler="C.d", payload='"x"' * 100)
    lines = list(tree_lines(plant(root, [lost])))
    assert "(not in the trace any more)" in lines[0]
    assert "/A/B" in lines[1]
    assert "C.d" in lines[2]
    assert "…" in lines[1]


def test_a_chain_of_twenty_thousand_events_is_drawn() -> None:
    count = 20_000
    chain = [
        delivered(
            n, causation_id=f"{n - 1:032x}" if n else "", correlation_id=f"{0:032x}", published_by="A.b" if n else ""
        )
        for n in range(count)
    ]
    tree = plant(f"{0:032x}", chain)
    lines = list(tree_lines(tree, limit=10))
    assert len(lines) == 12
    assert "more lines" in lines[9]
    assert lines[-1].startswith("20,000 deliveries of 20,000 events")


def test_one_delivery_is_one_line() -> None:
    line = delivery_line(delivered(5, outcome="failed", error="ValueError: \x1b[31m", topic="/A/B"))
    assert "\x1b[31m" not in line.replace("\x1b[31m\x1b[1m", "")
    assert "\n" not in line
    assert "A.b" in line
