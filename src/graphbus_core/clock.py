"""Clock: what time it is, and what shall happen later. Tests put another one in its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


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
    """The time of the machine. One thread, started when first needed, calls what is due."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def after(self, delay_s: float, work: Callable[[], None]) -> Timer:
        """Call `work` on the thread of this clock when the time has come."""
        raise NotImplementedError

    def close(self) -> None:
        """Let nothing happen any more."""
