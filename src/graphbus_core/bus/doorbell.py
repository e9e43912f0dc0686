"""Doorbell: where threads wait until something has changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic

_LOOK_AGAIN_S = 10.0
"""A KeyboardInterrupt may come after a change and before its ring; who waits sees the change nevertheless, but later."""


class Doorbell:
    """Ringing costs next to nothing while nobody waits. Change first, ring then; a change made so is never overlooked.

    There is no lock that all share. Code of others may run in between, of a signal, a finalizer or who looks: whether it rings or
    raises, nobody is locked out.

    Attributes:
        waiting: One locked lock for each thread that waits; to unlock it is to wake the thread.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Lock] = []

    def ring(self) -> None:
        """Let those who wait look again."""
        for asleep in self.waiting[:]:
            with suppress(RuntimeError):  # it has been woken already, and has yet to look
                asleep.release()

    def wait(self, until: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until it is so; False when it was not in time. It is looked at before the first ring, and quickly, please."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        asleep = Lock()
        asleep.acquire()
        try:
            self.waiting.append(asleep)
            while not until():
                left_s = _LOOK_AGAIN_S if deadline is None else min(_LOOK_AGAIN_S, deadline - monotonic())
                if left_s <= 0:
                    return False
                asleep.acquire(timeout=left_s)
            return True
        finally:
            if asleep in self.waiting:  # or a KeyboardInterrupt was quicker
                self.waiting.remove(asleep)
