"""What the view can look back at: the last deliveries in memory, within bounds, and a trace file of any size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.view import trace_file
from graphbus_core.view.comparing import compare_sides
from graphbus_core.view.records import MemoryRecords, Query, Records
from graphbus_core.view.trace_file import Appended, FileRecords, Growth

HEADER = b'{"trace_version":1}\n'


def traced(number: int, **fields: Any) -> TracedDelivery:
    """The delivery of event `number`, which event 1 has caused unless it is said otherwise."""
    known: dict[str, Any] = {
        "event_id": f"{number:032x}",
        "causation_id": "" if number == 1 else f"{1:032x}",
        "correlation_id": f"{1:032x}",
        "topic": "/Order/Placed",
        "src": "",
        "published_by": "",
        "published": 1000.0 + number,
        "handler": "Shop.on_order",
        "attempt": 1,
        "started": 1000.0 + number,
        "duration_s": 0.5,
        "outcome": "done",
    }
    return TracedDelivery(**(known | fields))


def in_memory(deliveries: list[TracedDelivery], _folder: Path) -> Records:
    records = MemoryRecords()
    for each in deliveries:
        records.add(each)
    return records


def in_a_file(deliveries: list[TracedDelivery], folder: Path) -> Records:
    path = folder / "trace.jsonl"
    path.write_bytes(HEADER + b"".join(msgspec.json.encode(each) + b"\n" for each in deliveries))
    return FileRecords(path)


both = pytest.mark.parametrize("store", [in_memory, in_a_file])


@both
def test_pages_lead_back_to_the_first_delivery_and_forth_to_the_last(store: Any, tmp_path: Path) -> None:
    records: Records = store([traced(number) for number in range(1, 8)], tmp_path)
    newest = records.page(Query(limit=3))
    assert [each.event_id[-1] for each in newest.deliveries] == ["5", "6", "7"]
    assert (newest.has_older, newest.has_newer) == (True, False)
    before = records.page(Query(limit=3, before=newest.deliveries[0].seq))
    assert [each.event_id[-1] for each in before.deliveries] == ["2", "3", "4"]
    assert (before.has_older, before.has_newer) == (True, True)
    first = records.page(Query(limit=3, before=before.deliveries[0].seq))
    assert [each.event_id[-1] for each in first.deliveries] == ["1"]
    assert (first.has_older, first.has_newer) == (False, True)
    after = records.page(Query(limit=2, after=first.deliveries[0].seq))
    assert [each.event_id[-1] for each in after.deliveries] == ["2", "3"]
    assert (after.has_older, after.has_newer) == (True, True)


@both
@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(topic="/Order/Placed"), "13"),
        (Query(topic="/Order/*"), "123"),
        (Query(agent="Shop"), "134"),
        (Query(agent="Shop.on_order"), "1"),
        (Query(key="k2"), "2"),
        (Query(is_failed=True), "34"),
        (Query(topic="/Nowhere/**"), ""),
    ],
)
def test_a_page_has_only_what_fits(store: Any, query: Query, found: str, tmp_path: Path) -> None:
    records: Records = store(
        [
            traced(1),
            traced(2, topic="/Order/Paid", key="k2", handler="Books.on_paid"),
            traced(3, outcome="failed", handler="Till.on_order", published_by="Shop.on_other"),
            traced(4, topic="/Mail", attempt=2, handler="Shop.on_mail"),
        ],
        tmp_path,
    )
    assert "".join(each.event_id[-1] for each in records.page(query).deliveries) == found


@both
def test_a_tree_is_what_follows_from_the_same_root_and_nothing_else(store: Any, tmp_path: Path) -> None:
    other = traced(5, correlation_id="f" * 32, causation_id="f" * 32)
    records: Records = store([traced(1, payload='{"a":1}'), other, traced(2), traced(3, payload="[]")], tmp_path)
    found = records.tree(f"{2:032x}")
    assert [(each.delivery.event_id[-1], each.payload) for each in found] == [("1", '{"a":1}'), ("2", ""), ("3", "[]")]
    assert all(each.delivery.payload == "" for each in found)
    assert records.tree("e" * 32) == []


@both
def test_nothing_recorded_is_an_empty_page(store: Any, tmp_path: Path) -> None:
    records: Records = store([], tmp_path)
    page = records.page(Query())
    assert (page.deliveries, page.oldest, page.newest, records.bounds()) == ((), 0, 0, (0, 0))


def test_the_memory_is_bounded_by_number_and_by_bytes() -> None:
    few = MemoryRecords(most=10)
    for number in range(1, 50):
        few.add(traced(number))
    assert few.bounds() == (40, 49)
    small = MemoryRecords(most_bytes=100_000)
    for number in range(1, 50):
        small.add(traced(number, payload="x" * 20_000))
    assert small.bounds() == (46, 49)
    assert small.bytes <= 100_000


def test_one_delivery_that_is_larger_than_the_bound_is_kept() -> None:
    small = MemoryRecords(most_bytes=1000)
    small.add(traced(1, payload="x" * 5000))
    assert small.bounds() == (1, 1)


# --- files that are not as they should be ---


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"trace_version":2}\n', "a newer GraphBus has written it"),
        (b"\x00\xff rubbish", "it is damaged"),
        (b"", "it is damaged"),
        (HEADER, "no deliveries yet"),
        (HEADER + msgspec.json.encode(traced(1))[:-30], "it was cut off"),
    ],
    ids=["newer", "rubbish", "empty file", "no deliveries", "cut off"],
)
def test_what_is_wrong_with_a_trace_is_said_in_words(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    assert words in FileRecords(path).problem()


def test_a_trace_that_was_cut_off_shows_the_deliveries_before_that(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [msgspec.json.encode(traced(number)) for number in (1, 2, 3)]
    path.write_bytes(HEADER + b"\n".join(lines)[:-30])
    page = FileRecords(path).page(Query())
    assert [each.event_id[-1] for each in page.deliveries] == ["1", "2"]


def test_lines_that_are_no_deliveries_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(
        HEADER + msgspec.json.encode(traced(1)) + b'\n{"torn":\n\n\xff\n' + msgspec.json.encode(traced(2)) + b"\n"
    )
    assert [each.event_id[-1] for each in FileRecords(path).page(Query()).deliveries] == ["1", "2"]


def test_blocks_end_anywhere_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = in_a_file([traced(number) for number in range(1, 10)], tmp_path)
    for size in (1, 7, 100, 399, 400, 401, 5000):
        monkeypatch.setattr(trace_file, "_BLOCK_BYTES", size)
        page = records.page(Query())
        assert [each.event_id[-1] for each in page.deliveries] == list("123456789"), size
        second = page.deliveries[1].seq
        assert [each.event_id[-1] for each in records.page(Query(after=second)).deliveries] == list("3456789"), size
        assert len(records.tree(f"{4:032x}")) == 9


def test_a_line_that_is_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [traced(1), traced(2, payload="x" * 5000), traced(3), traced(4, payload="y" * 5000), traced(5)]
    path.write_bytes(HEADER + b"".join(msgspec.json.encode(each) + b"\n" for each in lines))
    records = FileRecords(path)
    monkeypatch.setattr(trace_file, "_LONGEST_LINE", 1000)
    for size in (100, 399, 2000):
        monkeypatch.setattr(trace_file, "_BLOCK_BYTES", size)
        page = records.page(Query())
        assert [each.event_id[-1] for each in page.deliveries] == ["1", "3", "5"], size
        after = records.page(Query(after=page.deliveries[0].seq))
        assert [each.event_id[-1] for each in after.deliveries] == ["3", "5"], size


@pytest.mark.slow
def test_a_trace_of_two_gigabytes_takes_the_memory_of_a_few_blocks(tmp_path: Path) -> None:
    """The file has a hole, as only its size matters; what lies behind the hole is found, and what lies before it too."""
    import tracemalloc

    path = tmp_path / "trace.jsonl"
    line = msgspec.json.encode(traced(1)) + b"\n"
    with path.open("wb") as file:
        file.write(HEADER + line)
        file.seek(2 << 30)
        file.write(b"\n" + msgspec.json.encode(traced(2, correlation_id=f"{2:032x}", causation_id="")) + b"\n")
    assert os.stat(path).st_size > 2 << 30
    records = FileRecords(path)
    tracemalloc.start()
    page = records.page(Query(limit=1))
    tree = records.tree(f"{2:032x}")
    found = compare_sides({"old": records, "new": records}, "", "")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [each.event_id[-1] for each in page.deliveries] == ["2"]
    assert [each.delivery.event_id[-1] for each in tree] == ["2"]
    assert page.oldest == len(HEADER) + 1
    assert peak < 64 << 20
    assert found.same == ("/Order/Placed",)
    assert "Of old only the last 64 MB are compared" in found.note


def test_a_trace_tells_what_was_appended_and_when_it_is_another_file(tmp_path: Path) -> None:
    in_a_file([traced(1)], tmp_path)
    path = tmp_path / "trace.jsonl"
    growth = Growth(FileRecords(path))
    assert growth.look() == Appended()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(msgspec.json.encode(traced(2)) + b"\n" + msgspec.json.encode(traced(3)) + b"\n")
    new = growth.look()
    assert (new.first, new.is_other_file) == (size + 1, False)
    assert new.last > new.first
    with path.open("ab") as file:
        file.write(b'{"half": ')
    assert growth.look() == Appended()  # a line that is being written
    path.rename(tmp_path / "trace.1.jsonl")
    assert growth.look() == Appended()
    in_a_file([traced(4)], tmp_path)
    assert growth.look().is_other_file
    assert growth.look() == Appended()


def test_a_page_is_searched_for_only_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [traced(number, correlation_id="f" * 32, causation_id="e" * 32, topic="/Other") for number in range(3, 60)]
    records = in_a_file([traced(1), traced(2), *others], tmp_path)
    monkeypatch.setattr(trace_file, "_MOST_SEARCHED", 2000)
    page = records.page(Query(topic="/Nowhere"))
    assert page.deliveries == ()
    assert page.has_older
    assert "there may be more further away" in page.note


def test_what_is_damaged_in_a_trace_is_left_out_of_a_comparison(tmp_path: Path) -> None:
    records = in_a_file([traced(1)], tmp_path)
    with (tmp_path / "trace.jsonl").open("ab") as file:
        file.write(b'{"torn":\n' + msgspec.json.encode(traced(2)) + b"\n")
    assert [each.event_id[-1] for each in records.all()] == ["1", "2"]


def test_deliveries_that_only_mention_a_tree_are_not_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"{1:032x}"
    mention = [traced(n, correlation_id="f" * 32, causation_id="", error=f"after {root}") for n in range(3, 9)]
    records = in_a_file([traced(1), traced(2), *mention, traced(9)], tmp_path)
    assert [each.delivery.event_id[-1] for each in records.tree(root)] == ["1", "2", "9"]
    monkeypatch.setattr(trace_file, "_AROUND_EVENT", 500)
    assert [each.delivery.event_id[-1] for each in records.tree(root)] == ["9"]
