"""A fake clock whose time passes only when a test says so, for testing retries and delays without waiting."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from threading import Lock

_NEW_YEAR_2026 = 1_767_225_600.0
_NS = 1_000_000_000


class FakeTimer:
    """A timer of a `FakeClock`; `work` is None when it has run or was cancelled."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], None]) -> None:
        self.work: Callable[[], None] | None = work

    def cancel(self) -> None:
        """Cancel the timer, so that its function is not called."""
        self.work = None


class FakeClock:
    """A `Clock` whose time passes only in `advance` and `advance_to_next`.

    These methods call the functions of due timers on the thread of the test, in order; during each call, it is the time of that
    timer. Timers that such a function starts are included. `advance` raises an exception of a function; later timers then wait
    for the next `advance`.

    Args:
        now: The time at the start, in seconds since the epoch; the beginning of 2026 by default.
    """

    def __init__(self, now: float = _NEW_YEAR_2026) -> None:
        self._start = now
        self._elapsed_ns = 0  # an int, so that ten steps of 0.1 s are exactly 1 s
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._numbers = count()
        self._changing = Lock()

    def time(self) -> float:
        """Return the time in seconds since the epoch."""
        return self._start + self._elapsed_ns / _NS

    def monotonic(self) -> float:
        """Return the seconds that have passed since the clock was created."""
        return self._elapsed_ns / _NS

    def after(self, delay_s: float, work: Callable[[], None]) -> FakeTimer:
        """Call `work` when `delay_s` seconds have passed; at the next `advance` if they are 0 or negative. Return the timer."""
        timer = FakeTimer(work)
        with self._changing:
            heappush(self._timers, (self._elapsed_ns + max(0, round(delay_s * _NS)), next(self._numbers), timer))
        return timer

    def close(self) -> None:
        """Cancel all timers."""
        with self._changing:
            self._timers.clear()

    @property
    def waiting(self) -> list[float]:
        """The seconds until each waiting timer is due, the next one first."""
        with self._changing:
            return [(due_ns - self._elapsed_ns) / _NS for due_ns, _, timer in sorted(self._timers) if timer.work]

    def advance(self, seconds: float) -> int:
        """Let time pass, call the functions of all timers that are due by then, and return how many there were.

        Args:
            seconds: How much time passes.

        Raises:
            ValueError: The seconds are negative.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        end_ns = self._elapsed_ns + round(seconds * _NS)
        fired = 0
        while self._fire_next(end_ns):
            fired += 1
        self._elapsed_ns = end_ns
        return fired

    def advance_to_next(self) -> bool:
        """Let time pass until the next timer is due, and call its function; False, and no time passes, if there is none."""
        return self._fire_next(None)

    def _fire_next(self, end_ns: int | None) -> bool:
        """Set the time to that of the next timer, and call its function; False if none is due by `end_ns` (None: any time)."""
        with self._changing:
            work = None
            while self._timers and work is None:
                due_ns = self._timers[0][0]
                if end_ns is not None and due_ns > end_ns:
                    return False
                timer = heappop(self._timers)[2]
                work, timer.work = timer.work, None
            if work is None:
                return False
            self._elapsed_ns = max(self._elapsed_ns, due_ns)
        work()  # without the lock, since it may start timers
        return True


class BusClock:
    """The clock of one bus, based on a `FakeClock`: functions of timers run on the bus, on the thread that lets time pass.

    Args:
        clock: The clock, which several buses may share.
        run: Runs a function on the bus and delivers what it publishes.
    """

    def __init__(self, clock: FakeClock, run: Callable[[Callable[[], None]], object]) -> None:
        self.time, self.monotonic = clock.time, clock.monotonic
        self._clock = clock
        self._run = run
        self._timers: list[FakeTimer] = []

    def after(self, delay_s: float, work: Callable[[], None]) -> FakeTimer:
        """Run `work` on the bus when `delay_s` seconds have passed, and deliver what it publishes. Return the timer."""

        def run() -> None:
            self._run(work)

        timer = self._clock.after(delay_s, run)
        self._timers = [*(each for each in self._timers if each.work), timer]
        return timer

    def close(self) -> None:
        """Cancel the timers of this bus; those of other buses stay."""
        for timer in self._timers:
            timer.cancel()
