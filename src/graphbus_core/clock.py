"""The clock of a bus: the time, and timers that call a function later. Tests replace it with `testing.FakeClock`."""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from threading import Condition, Thread, current_thread
from typing import Protocol

from graphbus_core.isolation import attempt
from graphbus_core.log import Log

_log = Log("graphbus.clock")

_PATIENCE_S = 1.0
"""How long `close` waits for a timer function that is running."""
_LONGEST_WAIT_S = 3600.0
_MOST_CANCELLED = 64
"""If more timers than this, and more than half of all, are cancelled, the heap is rebuilt without them."""


class Timer(Protocol):
    """A function call that is scheduled."""

    def cancel(self) -> None:
        """Cancel the call. Has no effect when it was cancelled before or has begun."""


class Clock(Protocol):
    """The source of time that a bus uses."""

    def time(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def after(self, delay_s: float, work: Callable[[], None]) -> Timer:
        """Call `work` once, after `delay_s` seconds, on a thread that the clock chooses."""

    def close(self) -> None:
        """Cancel all timers."""


class SystemClock:
    """The time of the machine. One daemon thread, started with the first timer, runs timers one at a time in due order.

    A slow timer function delays the later ones; an exception of one is logged. All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._timers: list[tuple[float, int, _SystemTimer]] = []  # a heap of (due, number, timer); numbers break ties
        self._numbers = count()
        self._cancelled = 0
        self._thread: Thread | None = None
        self._is_closed = False

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def after(self, delay_s: float, work: Callable[[], None]) -> Timer:
        """Call `work` once, after `delay_s` seconds, on the thread of this clock; never after `close`."""
        timer = _SystemTimer(self, work)
        with self._changed:
            if self._is_closed:
                timer.work = None
                return timer
            heappush(self._timers, (time.monotonic() + max(0.0, delay_s), next(self._numbers), timer))
            if self._thread is None:
                self._start()
            elif self._timers[0][2] is timer:
                self._changed.notify()
        return timer

    def close(self) -> None:
        """Cancel all timers, and wait up to a second for one that is running. A second call does nothing."""
        with self._changed:
            self._is_closed = True
            self._timers.clear()
            self._changed.notify()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread():
            thread.join(_PATIENCE_S)

    def forget(self, timer: _SystemTimer) -> None:
        """Cancel a timer and release its function; does nothing if it was cancelled before or has begun.

        If most timers in the heap are cancelled, the heap is rebuilt without them.
        """
        with self._changed:
            if timer.work is None:
                return
            timer.work = None
            self._cancelled += 1
            if self._cancelled > _MOST_CANCELLED and self._cancelled * 2 > len(self._timers):
                self._timers = [entry for entry in self._timers if entry[2].work is not None]
                heapify(self._timers)
                self._cancelled = 0

    def _start(self) -> None:
        """Start the thread that runs timers; the caller holds the lock."""
        self._thread = Thread(target=self._run, name="graphbus-timer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Run timers until the clock is closed; the body of the clock's thread."""
        is_over = False
        try:
            while (work := self._wait_for_work()) is not None:
                _run_and_log(work)
            is_over = True
        finally:
            if not is_over:  # a BaseException has ended this thread; another one runs the remaining timers
                with self._changed:
                    if not self._is_closed:
                        self._start()

    def _wait_for_work(self) -> Callable[[], None] | None:
        """Wait until a timer is due, remove it and return its function; None when the clock is closed."""
        with self._changed:
            while not self._is_closed:
                if not self._timers:
                    self._changed.wait()
                    continue
                due, _, timer = self._timers[0]
                work, left_s = timer.work, due - time.monotonic()
                if work is not None and left_s > 0:
                    self._changed.wait(min(left_s, _LONGEST_WAIT_S))
                    continue
                heappop(self._timers)
                timer.work = None
                if work is not None:
                    return work
                self._cancelled -= 1  # this timer was cancelled: look at the next one
            return None


class _SystemTimer:
    """A timer of a `SystemClock`; `work` is None when it has run or was cancelled."""

    __slots__ = ("_clock", "work")

    def __init__(self, clock: SystemClock, work: Callable[[], None]) -> None:
        self._clock = clock
        self.work: Callable[[], None] | None = work

    def cancel(self) -> None:
        """Cancel the call; does nothing if it was cancelled before or has begun."""
        self._clock.forget(self)


def _run_and_log(work: Callable[[], None]) -> None:
    """Call a timer function, and log its exception: nothing on the clock's thread could handle it."""
    try:
        _, error = attempt(work)
    except (KeyboardInterrupt, SystemExit) as interruption:  # raised by a handler
        _log.error("a timer function raised %s; the clock continues", type(interruption).__name__)
        return
    if error is not None:
        _log.error("a timer function failed", exc_info=error)
