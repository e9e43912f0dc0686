"""Waiting: where threads sleep until something is so, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from threading import Lock
from time import monotonic

_LOOK_AGAIN_S = 10.0
"""A KeyboardInterrupt may come after a change and before its ring. Nothing else needs this."""


class Notifier:
    """Rung by who changes something that others wait for. To ring costs next to nothing while nobody waits.

    No lock is shared: code of others may run in between, of a signal, a finalizer or who looks. Whether it rings or raises,
    nobody is locked out. Who waits registers before looking; who changes something does so before looking at who waits.

    Attributes:
        waiting: One locked lock for each thread that waits; to unlock it is to wake the thread.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Lock] = []

    def notify(self) -> None:
        """Let those who wait look again."""
        for asleep in self.waiting.copy():
            with suppress(RuntimeError):  # it has been woken already, and has yet to look
                asleep.release()

    def wait(self, until: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until it is so; False when it was not in time. `until` is called before the first ring, and must be quick."""
        deadline = now_plus(timeout_s)
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
            with suppress(ValueError):  # a KeyboardInterrupt was quicker
                self.waiting.remove(asleep)


def now_plus(seconds: float | None) -> float | None:
    """The moment so many seconds from now; None for no limit."""
    return None if seconds is None else monotonic() + seconds


class WaitGraph:
    """Edges from agents that are in the middle of something to those that they wait for."""

    __slots__ = ("_changing", "_edges")

    def __init__(self) -> None:
        self._edges: dict[Hashable, list[Hashable]] = {}
        self._changing = Lock()

    def __bool__(self) -> bool:
        return bool(self._edges)

    def leads_back(self, target: Hashable, held: Iterable[Hashable]) -> bool:
        """True when the target waits, directly or through others, for one of those who are held."""
        with self._changing:
            return self._leads_back(target, frozenset(held))

    def enter(self, held: Iterable[Hashable], target: Hashable) -> bool:
        """Note that all who are held wait for the target; False, and nothing is noted, when it waits for one of them."""
        held = frozenset(held)
        with self._changing:
            if self._leads_back(target, held):
                return False
            for each in held - {target}:
                self._edges.setdefault(each, []).append(target)
        return True

    def leave(self, held: Iterable[Hashable], target: Hashable) -> None:
        """The wait is over."""
        with self._changing:
            for each in frozenset(held) - {target}:
                targets = self._edges[each]
                targets.remove(target)
                if not targets:
                    del self._edges[each]

    def _leads_back(self, target: Hashable, held: frozenset[Hashable]) -> bool:
        seen: set[Hashable] = set()
        ahead = [target]
        while ahead:
            here = ahead.pop()
            for further in self._edges.get(here, ()):
                if further in held:
                    return True
                if further not in seen:
                    seen.add(further)
                    ahead.append(further)
        return False
