"""A clock that stands still until a test lets time pass."""

from __future__ import annotations

import pytest

from graphbus_core.testing import FakeClock
from graphbus_core.testing.clock import BusClock


def test_work_is_done_in_the_order_of_its_times_each_at_its_own_time() -> None:
    clock = FakeClock()
    log: list[tuple[str, float]] = []
    for name, delay_s in (("late", 3.0), ("early", 1.0), ("with late", 3.0), ("never", 9.0)):
        clock.after(delay_s, lambda name=name: log.append((name, clock.monotonic())))
    assert clock.waiting == [1.0, 3.0, 3.0, 9.0]
    assert clock.advance(4.0) == 3
    assert log == [("early", 1.0), ("late", 3.0), ("with late", 3.0)]
    assert clock.waiting == [5.0]


def test_work_that_sets_more_work_is_followed_while_it_is_due() -> None:
    clock = FakeClock()
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(clock.monotonic())
        clock.after(0.1, tick)

    clock.after(0.1, tick)
    clock.advance(1.0)
    assert len(ticks) == 10
    assert ticks[-1] == 1.0


def test_a_bus_lets_go_of_its_own_timers_only() -> None:
    clock = FakeClock()
    log: list[str] = []
    clock.after(1.0, lambda: log.append("another's"))
    of_a_bus = BusClock(clock, lambda work: work())
    of_a_bus.after(1.0, lambda: log.append("its own"))
    of_a_bus.close()
    clock.advance(1.0)
    assert log == ["another's"]


def test_time_can_be_let_pass_until_the_next_thing_happens() -> None:
    clock = FakeClock()
    log: list[float] = []
    clock.after(60.0, lambda: log.append(clock.monotonic()))
    assert clock.advance_to_next()
    assert log == [60.0]
    assert not clock.advance_to_next()
    assert clock.monotonic() == 60.0


def test_an_exception_comes_out_and_the_rest_waits_for_the_next_time() -> None:
    clock = FakeClock()
    log: list[str] = []
    clock.after(1.0, lambda: 1 // 0)
    clock.after(2.0, lambda: log.append("second"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(5.0)
    assert clock.advance(5.0) == 1
    assert log == ["second"]
