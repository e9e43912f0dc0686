"""Clock: what time it is, and what shall happen later. Tests put another one in its place."""

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
"""How long `close` waits for work that is under way."""
_LONGEST_WAIT_S = 3600.0
_FEW = 64
"""So many cancelled timers may lie around before it is looked whether they are the most."""


class Timer(Protocol):
    """Something that shall happen later."""

    def cancel(self) -> None:
        """Let it not happen; doing so twice, or too late, does nothing."""


class Clock(Protocol):
    """Where a bus has its time from."""

    def time(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def after(self, delay_s: float, work: Callable[[], None]) -> Timer:
        """Call `work` on some thread when the time has come."""

    def close(self) -> None:
        """Let nothing happen any more."""


class SystemClock:
    """The time of the machine. One thread, started when first needed, calls what is due, in the order of the times.

    Work that takes long makes the rest late, and work that raises is logged. Safe from any thread.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._timers: list[tuple[float, int, _Timer]] = []  # a heap; the number keeps equal times in order
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
        """Call `work` on the thread of this clock when the time has come; never, once the clock is closed."""
        timer = _Timer(self, work)
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
        """Let nothing happen any more; waits a moment for what is under way. Twice is once."""
        with self._changed:
            self._is_closed = True
            self._timers.clear()
            self._changed.notify()
            thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread():
            thread.join(_PATIENCE_S)

    def forget(self, timer: _Timer) -> None:
        """Let a timer not happen, and let go of its work."""
        with self._changed:
            if timer.work is None:
                return
            timer.work = None
            self._cancelled += 1
            if self._cancelled > _FEW and self._cancelled * 2 > len(self._timers):
                self._timers = [entry for entry in self._timers if entry[2].work is not None]
                heapify(self._timers)
                self._cancelled = 0

    def _start(self) -> None:
        self._thread = Thread(target=self._run, name="graphbus-timer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        is_over = False
        try:
            while (work := self._wait_for_work()) is not None:
                _do(work)
            is_over = True
        finally:
            if not is_over:  # something that nobody may catch has ended this thread; the others' time still comes
                with self._changed:
                    if not self._is_closed:
                        self._start()

    def _wait_for_work(self) -> Callable[[], None] | None:
        """Wait until something is due and take it out; None when the clock is closed."""
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
                self._cancelled -= 1
            return None


class _Timer:
    """Work that waits in a `SystemClock`; None when it is done or cancelled."""

    __slots__ = ("_clock", "work")

    def __init__(self, clock: SystemClock, work: Callable[[], None]) -> None:
        self._clock = clock
        self.work: Callable[[], None] | None = work

    def cancel(self) -> None:
        """Let it not happen."""
        self._clock.forget(self)


def _do(work: Callable[[], None]) -> None:
    try:
        _, error = attempt(work)
    except (
        KeyboardInterrupt,
        SystemExit,
    ) as leaving:  # of a handler: there is nobody above this thread to whom it could go
        _log.error("%s ended what a timer had begun, and nothing else", type(leaving).__name__)
        return
    if error is not None:
        _log.error("what a timer has called failed", exc_info=error)
