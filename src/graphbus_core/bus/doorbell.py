"""Doorbell: where threads wait until something has changed."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition


class Doorbell:
    """Ringing costs next to nothing while nobody waits. Change first, ring then; a change made so is never overlooked.

    Attributes:
        waiting: How many threads wait.
    """

    __slots__ = ("_changed", "waiting")

    def __init__(self) -> None:
        self._changed = Condition()
        self.waiting = 0

    def ring(self) -> None:
        """Let those who wait look again."""
        if self.waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, until: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until it is so; False when it was not in time. It is looked at before the first ring, and quickly, please."""
        with self._changed:
            self.waiting += 1
            try:
                return bool(self._changed.wait_for(until, timeout_s))
            finally:
                self.waiting -= 1
