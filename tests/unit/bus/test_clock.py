"""The clock of a bus: what is due happens once, in its order, on one thread that nothing kills."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.clock import SystemClock
from tests.patience import PATIENCE_S


@pytest.fixture
def clock() -> Iterator[SystemClock]:
    clock = SystemClock()
    yield clock
    clock.close()


def timers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "graphbus-timer"]


def test_a_clock_starts_a_thread_when_something_shall_happen_and_not_before(clock: SystemClock) -> None:
    assert clock.time() == pytest.approx(time.time(), abs=5)
    assert clock.monotonic() <= clock.monotonic()
    assert timers() == []
    done = threading.Event()
    clock.after(0, done.set)
    assert done.wait(PATIENCE_S)
    assert len(timers()) == 1
    assert timers()[0].daemon
    clock.close()
    assert timers() == []


@given(st.lists(st.floats(0, 0.02), max_size=12))
def test_what_is_due_happens_in_the_order_of_the_times(delays: list[float]) -> None:
    clock = SystemClock()
    happened: list[int] = []
    everybody_has_asked, everything = threading.Event(), threading.Event()
    try:
        clock.after(0, lambda: _ignore(everybody_has_asked.wait(PATIENCE_S)))
        dues = []
        for number, delay in enumerate(delays):
            before = time.monotonic()
            clock.after(delay, lambda number=number: happened.append(number))  # type: ignore[misc]
            dues.append((before + delay, time.monotonic() + delay))
        clock.after(0.03, everything.set)
        everybody_has_asked.set()
        assert everything.wait(PATIENCE_S)
    finally:
        clock.close()
    assert sorted(happened) == list(range(len(delays)))
    for earlier, later in pairwise(happened):
        assert dues[earlier][0] <= dues[later][1]


def _ignore(_result: object) -> None:
    """A timer gives nothing."""


def test_equal_times_keep_the_order_of_the_asking(clock: SystemClock) -> None:
    happened: list[int] = []
    done = threading.Event()
    clock.after(-1, lambda: time.sleep(0.02))  # meanwhile the others fall due together
    for number in range(20):
        clock.after(0.0, lambda number=number: happened.append(number))  # type: ignore[misc]
    clock.after(0.001, done.set)
    assert done.wait(PATIENCE_S)
    assert happened == list(range(20))


def test_an_earlier_time_goes_before_a_later_one_that_is_waited_for(clock: SystemClock) -> None:
    clock.after(60, lambda: None)
    done = threading.Event()
    clock.after(0.01, done.set)
    assert done.wait(PATIENCE_S)


def test_what_is_cancelled_does_not_happen(clock: SystemClock) -> None:
    happened: list[str] = []
    done, may_go = threading.Event(), threading.Event()
    clock.after(0, lambda: may_go.wait(PATIENCE_S))  # until then nothing is called, however late it is
    timer = clock.after(0.001, lambda: happened.append("cancelled"))
    timer.cancel()
    timer.cancel()
    last = clock.after(0.002, done.set)
    may_go.set()
    assert done.wait(PATIENCE_S)
    last.cancel()  # too late
    assert happened == []


def test_thousands_of_cancelled_timers_hold_no_memory(clock: SystemClock) -> None:
    kept = clock.after(60, lambda: None)
    for _ in range(5000):
        clock.after(60, lambda: None).cancel()
    assert len(clock._timers) < 200
    kept.cancel()


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt()])
def test_work_that_raises_is_logged_and_the_clock_goes_on(
    clock: SystemClock, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def work() -> None:
        raise error

    with caplog.at_level(logging.ERROR, "graphbus.clock"):
        clock.after(0, work)
        clock.after(0, done.set)
        assert done.wait(PATIENCE_S)
    assert len(caplog.records) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_not_even_what_nobody_may_catch_keeps_the_rest_from_happening(clock: SystemClock) -> None:
    class Unheard(BaseException):
        pass

    ended: list[threading.Thread] = []

    def work() -> None:
        ended.append(threading.current_thread())
        raise Unheard

    done = threading.Event()
    clock.after(0, work)
    clock.after(0.01, done.set)
    assert done.wait(PATIENCE_S)
    ended[0].join(PATIENCE_S)  # what it says at its end belongs to this test


def test_nothing_happens_after_close_and_closing_twice_is_once() -> None:
    clock = SystemClock()
    happened: list[str] = []
    clock.after(0.02, lambda: happened.append("late"))
    clock.close()
    clock.close()
    clock.after(0, lambda: happened.append("after")).cancel()
    time.sleep(0.05)
    assert happened == []
    assert timers() == []


def test_work_may_close_its_own_clock(clock: SystemClock) -> None:
    done = threading.Event()

    def work() -> None:
        clock.close()
        done.set()

    clock.after(0, work)
    assert done.wait(PATIENCE_S)


def test_a_clock_is_safe_from_many_threads(clock: SystemClock) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    happened: list[int] = []
    try:

        def ask() -> None:
            for _ in range(200):
                clock.after(0.001, lambda: happened.append(1))
                clock.after(0.001, lambda: happened.append(-1)).cancel()

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = threading.Event()
        clock.after(0.01, done.set)
        assert done.wait(PATIENCE_S)
    finally:
        sys.setswitchinterval(before)
    assert happened.count(1) == 1200
