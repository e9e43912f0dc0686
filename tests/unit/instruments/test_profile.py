"""The profile: counts, times and percentiles of handlers and methods, and how far they can be off."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from graphbus_core import GraphBusNode, connect, schema_method, subscribe
from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments import profile as profiling
from graphbus_core.hosting.instruments.profile import (
    FILE,
    Profile,
    Profiler,
    Row,
    load_profile,
    save_profile,
    sort_rows,
)


class Counter(GraphBusNode):
    @subscribe("/Count/Up")
    def on_up(self, n) -> None:
        if n % 10 == 9:
            raise ValueError("nine")

    @subscribe("/Count/Up")
    async def on_up_later(self, n) -> None:
        pass

    @schema_method(input_schema={"n": int})
    def look(self, n: int) -> None:
        pass


def test_handlers_and_methods_are_counted_with_their_failures() -> None:
    profiler = Profiler()
    with connect(Counter, middleware=[profiler], on_error="isolate") as graph:
        for n in range(20):
            graph.publish("/Count/Up", {"n": n})
        graph.call("Counter", "look", n=1)
    rows = {row.name: row for row in profiler.profile().handlers}
    assert {name: (row.count, row.failed, row.kind) for name, row in rows.items()} == {
        "Counter.on_up": (20, 2, "event"),
        "Counter.on_up_later": (20, 0, "event"),
        "Counter.look": (1, 0, "call"),
    }
    assert sum(row.share for row in rows.values()) == pytest.approx(1)
    for row in rows.values():
        assert row.p50_s <= row.p99_s <= row.max_s <= row.total_s
        assert row.mean_s == pytest.approx(row.total_s / row.count)


@pytest.mark.parametrize("fraction", [0.5, 0.99])
def test_a_percentile_is_at_most_2_2_percent_off(fraction: float) -> None:
    chance = random.Random(fraction)
    durations = [int(chance.lognormvariate(10, 3)) + 1 for _ in range(5000)]
    measured = profiling._HandlerCounters("A.b", "event")
    for each in durations:
        measured.add(each)
    exact = sorted(durations)[int(len(durations) * fraction) - 1]
    assert measured.quantile_ns(fraction) == pytest.approx(exact, rel=0.0221)


def test_the_memory_does_not_grow_with_the_number_of_runs() -> None:
    measured = profiling._HandlerCounters("A.b", "event")
    before = len(measured.histogram)
    for n in range(1, 10_000):
        measured.add(n * 1000)
    assert len(measured.histogram) == before == 768


def test_it_is_written_whole_read_again_and_sorted_by_any_column(tmp_path: Path) -> None:
    times = {"total_s": 1.0, "mean_s": 1.0, "p50_s": 1.0, "p99_s": 1.0, "max_s": 1.0, "share": 0.5}
    often = Row(name="A.b", kind="event", count=9, failed=0, **times)
    long = Row(name="C.d", kind="call", count=1, failed=3, **{**times, "total_s": 9.0})
    profile = Profile(began=1.5, wall_s=2.5, handlers=(long, often))
    save_profile(profile, tmp_path / "state")
    assert load_profile(tmp_path / "state") == profile
    assert [each.name for each in (tmp_path / "state").iterdir()] == [FILE]
    orders = {key: sort_rows(profile, key)[0].name for key in ("total", "count", "failed", "p99", "name")}
    assert orders == {"total": "C.d", "count": "A.b", "failed": "C.d", "p99": "A.b", "name": "A.b"}
    (tmp_path / FILE).write_text("{")
    with pytest.raises(RunError, match=r"cannot be read.*GBE687"):
        load_profile(tmp_path)
    with pytest.raises(RunError, match="GBE683"):
        save_profile(profile, tmp_path / FILE)
