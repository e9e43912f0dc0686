"""A clock that stands still until a test lets time pass, so that retries and delays are tested without waiting for them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from threading import Lock

_NEW_YEAR_2026 = 1_767_225_600.0
_NS = 1_000_000_000


class FakeTimer:
    """Work that waits in a `FakeClock`; None when it is done or cancelled."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], None]) -> None:
        self.work: Callable[[], None] | None = work

    def cancel(self) -> None:
        """Let it not happen."""
        self.work = None


class FakeClock:
    """A `Clock` whose time passes only in `advance`.

    What is due is called there, on the thread of the test: in the order of the times, each at its own time, and what it sets for
    later as well if that is due, too. An exception of it comes out of `advance`, and the rest waits for the next one.

    Args:
        now: Seconds since the epoch at which it stands; the first moment of 2026 by default.
    """

    def __init__(self, now: float = _NEW_YEAR_2026) -> None:
        self._start = now
        self._elapsed_ns = 0  # whole numbers, so that ten times 0.1 is 1
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._numbers = count()
        self._changing = Lock()

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._start + self._elapsed_ns / _NS

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_ns / _NS

    def after(self, delay_s: float, work: Callable[[], None]) -> FakeTimer:
        """Call `work` when so much time was let pass."""
        timer = FakeTimer(work)
        with self._changing:
            heappush(self._timers, (self._elapsed_ns + max(0, round(delay_s * _NS)), next(self._numbers), timer))
        return timer

    def close(self) -> None:
        """Let nothing happen any more of what waits."""
        with self._changing:
            self._timers.clear()

    @property
    def waiting(self) -> list[float]:
        """The seconds after which something will happen, the next first."""
        with self._changing:
            return [(due_ns - self._elapsed_ns) / _NS for due_ns, _, timer in sorted(self._timers) if timer.work]

    def advance(self, seconds: float) -> int:
        """Let time pass, and tell how many timers were due.

        Raises:
            ValueError: For less than no time.
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
        """Let time pass until the next timer is due; False when none waits."""
        return self._fire_next(None)

    def _fire_next(self, end_ns: int | None) -> bool:
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
        work()
        return True


class BusClock:
    """A `FakeClock` as one bus sees it: what is due is done and delivered on the thread that lets time pass."""

    def __init__(self, clock: FakeClock, run: Callable[[Callable[[], None]], object]) -> None:
        self.time, self.monotonic = clock.time, clock.monotonic
        self._clock = clock
        self._run = run
        self._timers: list[FakeTimer] = []

    def after(self, delay_s: float, work: Callable[[], None]) -> FakeTimer:
        """Let the bus do `work` when so much time was let pass."""

        def run() -> None:
            self._run(work)

        timer = self._clock.after(delay_s, run)
        self._timers = [*(each for each in self._timers if each.work), timer]
        return timer

    def close(self) -> None:
        """Let nothing happen any more of what waits for this bus."""
        for timer in self._timers:
            timer.cancel()
