"""The trace: what is written down of each delivery, how it survives, and the tree that is made of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from graphbus_core import GraphBusNode, connect, schema_method, subscribe
from graphbus_core.cli.running.trace_text import tree_lines
from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments.trace import (
    FILE,
    PREVIOUS_FILE,
    TracedDelivery,
    TraceFile,
    Tracer,
    build_tree,
    find_event,
    list_roots,
    read_trace,
)


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


def traced(folder: Path, count: int = 1, *, with_payloads: bool = False, **options) -> list[TracedDelivery]:
    with TraceFile(folder, **options) as file:
        tracer = Tracer(file.add, with_payloads=with_payloads)
        with connect(Orders, Stock, middleware=[tracer], on_error="isolate") as graph:
            for n in range(count):
                graph.publish("/Order/Placed", {"n": n})
    return read_trace(folder)


def delivered(n: int = 0, **changes) -> TracedDelivery:
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
    return TracedDelivery(**{**fields, **changes})


class Till(GraphBusNode):
    @subscribe("/Card/Charged", key="card_number")
    def on_charged(self, event: dict) -> None:
        pass


@pytest.mark.parametrize(("redacted", "key"), [((), "4711"), (("CARD",), "[redacted]")])
def test_a_key_that_must_not_be_shown_is_not_written(tmp_path: Path, redacted: tuple[str, ...], key: str) -> None:
    with (
        TraceFile(tmp_path) as file,
        connect(Till, middleware=[Tracer(file.add, redacted=redacted)], on_error="isolate") as graph,
    ):
        graph.publish("/Card/Charged", {"card_number": 4711})
    (delivery,) = read_trace(tmp_path)
    assert delivery.key == key


def test_every_delivery_is_written_with_its_cause_handler_and_outcome(tmp_path: Path) -> None:
    deliveries = traced(tmp_path)
    (root,) = list_roots(deliveries)
    assert (root.topic, root.events, root.deliveries, root.failed) == ("/Order/Placed", 3, 3, 1)
    by_handler = {each.handler: each for each in deliveries}
    assert set(by_handler) == {"Orders.on_placed", "Stock.on_checked", "Stock.on_counted"}
    failed = by_handler["Stock.on_checked"]
    assert (failed.outcome, failed.error) == ("failed", "ValueError: no")
    assert failed.causation_id == root.event_id
    assert failed.published_by == "Orders.on_placed"
    assert by_handler["Orders.on_placed"].duration_s > 0


def test_payloads_are_written_only_when_asked_for(tmp_path: Path) -> None:
    assert traced(tmp_path / "a")[0].payload == ""
    assert traced(tmp_path / "b", with_payloads=True)[0].payload == '{"n":0}'


def test_nobody_else_can_read_the_file(tmp_path: Path) -> None:
    traced(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_full_file_makes_room_and_the_oldest_are_forgotten_first(tmp_path: Path) -> None:
    kept = traced(tmp_path, count=700, most_bytes=100_000)
    assert 200 < len(kept) < 600
    assert {path.name for path in tmp_path.iterdir()} == {FILE, PREVIOUS_FILE}
    assert all(path.stat().st_size < 101_000 for path in tmp_path.iterdir())
    assert len(list_roots(kept, 5)) == 5
    assert list_roots(kept)[0].deliveries == 3


def test_a_delivery_is_in_the_file_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    with TraceFile(tmp_path) as file:
        file.add(delivered(1))
        assert read_trace(tmp_path) == [delivered(1)]


def test_a_file_that_cannot_be_written_any_more_stops_the_trace_and_not_the_graph(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = TraceFile(tmp_path)
    os.close(file._handle)
    file._handle = os.open(os.devnull, os.O_RDONLY)
    for n in range(5):
        file.add(delivered(n))
    said = [record.message for record in caplog.records if record.name == "graphbus.trace"]
    assert said == ["The trace cannot be written: bad file descriptor. The graph runs on without a trace."]


def test_an_empty_file_takes_a_trace_and_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"")
    TraceFile(tmp_path).close()
    assert read_trace(tmp_path) == []
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"event_id": "12')
    assert read_trace(tmp_path) == []


@pytest.mark.parametrize("content", [b"x\n", b"[" * 9000, b'{"trace_version": "1"}\n', b'{"trace_version": 2}\n'])
def test_who_meets_a_trace_that_is_damaged_or_newer_is_told_which_file_to_move_away(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    reason = "a newer GraphBus has written it" if b"2" in content else "it is damaged"
    for use in (read_trace, TraceFile):
        with pytest.raises(RunError, match=f"The trace cannot be read: {reason}") as refused:
            use(tmp_path)
        assert (refused.value.code, str(refused.value.where)) == ("GBE643", str(path))
        assert "ove the file away" in refused.value.hint
    assert path.read_bytes() == content


def test_a_call_is_no_delivery_but_what_it_publishes_is() -> None:
    recorder = Tracer()
    shown: list[str] = []
    recorder.show = lambda delivery: shown.append(delivery.handler)
    with connect(Orders, middleware=[recorder]) as graph:
        graph.call("Orders", "place")
    assert [each.handler for each in recorder.recorded] == ["Orders.on_placed"] == shown
    assert recorder.recorded[0].src == "Orders"


def test_ids_are_found_by_how_they_begin(tmp_path: Path) -> None:
    deliveries = traced(tmp_path)
    root = deliveries[0].correlation_id
    for each in deliveries:
        assert find_event(deliveries, each.event_id[:12].upper())[:2] == (each.event_id, root)
    assert find_event(deliveries, "last").event_id == root
    with pytest.raises(RunError, match="3 events have an ID that begins with"):
        find_event(deliveries, "")
    with pytest.raises(RunError, match="GBE685"):
        find_event(deliveries, "none")


def test_the_tree_shows_who_caused_what(tmp_path: Path) -> None:
    tree = find_event(traced(tmp_path), "last").tree
    checked, counted = tree.effects[tree.event_id]
    assert [tree.deliveries[each][0].topic for each in (checked, counted)] == ["/Order/Checked", "/Order/Counted"]
    lines = list(tree_lines(tree, marked=checked))
    assert "Orders.on_placed" in lines[1]
    assert "<- this one" in lines[2]
    assert "Stock.on_checked" in lines[3]
    assert "ValueError: no" in lines[3]
    assert [line.count("│") for line in lines[2:6]] == [0, 1, 0, 0]
    assert lines[-1].startswith("3 deliveries of 3 events in ")


def test_a_repeated_delivery_is_shown_as_often_as_it_was_tried_and_owns_what_the_last_attempt_caused() -> None:
    root = f"{7:032x}"
    deliveries = [
        delivered(7, outcome="failed", error="OSError: gone"),
        delivered(7, attempt=2, outcome="interrupted"),
        delivered(7, attempt=3),
        delivered(8, causation_id=root, correlation_id=root, published_by="A.b", handler="C.d", topic="/Child/T"),
    ]
    lines = list(tree_lines(build_tree(root, deliveries)))
    for line, part in enumerate(("/A/B", "OSError: gone", "interrupted after", "attempt 3", "/Child/T")):
        assert part in lines[line]
    assert "2 of them repeated" in lines[-1]


def test_a_chain_of_twenty_thousand_events_is_drawn() -> None:
    count = 20_000
    chain = [
        delivered(
            n, causation_id=f"{n - 1:032x}" if n else "", correlation_id=f"{0:032x}", published_by="A.b" if n else ""
        )
        for n in range(count)
    ]
    tree = build_tree(f"{0:032x}", chain)
    lines = list(tree_lines(tree, limit=10))
    assert len(lines) == 12
    assert "more lines" in lines[9]
    assert lines[-1].startswith("20,000 deliveries of 20,000 events")
