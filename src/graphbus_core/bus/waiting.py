"""Waiting: how threads sleep until a condition holds, and the graph of agents that wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from threading import Lock
from time import monotonic

_LOOK_AGAIN_S = 10.0
"""A sleeping thread also checks its condition this often: a KeyboardInterrupt may come between a change and `notify`."""


class Notifier:
    """Wakes threads that wait for a condition. `notify` costs almost nothing while no thread waits.

    Unlike `threading.Condition` it holds no lock while other code runs: a signal handler, a finalizer or a condition may itself
    call `notify`, or raise. No notification is lost: a waiting thread registers before it checks its condition, and a thread
    that changes something does so before it looks for registered threads.

    Attributes:
        waiting: One locked lock for each waiting thread; releasing it wakes the thread.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Lock] = []

    def notify(self) -> None:
        """Make all waiting threads check their conditions again."""
        for asleep in self.waiting.copy():
            with suppress(RuntimeError):  # the thread was woken before and has not checked its condition yet
                asleep.release()

    def wait(self, until: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until a condition holds; False if `timeout_s` passed first.

        Args:
            until: The condition. It is checked at once and after each `notify`, so it must be fast.
            timeout_s: None waits for ever.
        """
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
            with suppress(ValueError):  # a KeyboardInterrupt came before `append`
                self.waiting.remove(asleep)


def now_plus(seconds: float | None) -> float | None:
    """Return the monotonic time this many seconds from now; None for None."""
    return None if seconds is None else monotonic() + seconds


class WaitGraph:
    """Which agents wait for which others in the middle of a handler. It finds deadlocks. Safe from any thread."""

    __slots__ = ("_changing", "_edges")

    def __init__(self) -> None:
        self._edges: dict[Hashable, list[Hashable]] = {}
        self._changing = Lock()

    def __bool__(self) -> bool:
        return bool(self._edges)

    def leads_back(self, target: Hashable, held: Iterable[Hashable]) -> bool:
        """True if the target waits, directly or through others, for one of the `held` agents."""
        with self._changing:
            return self._is_waiting_for(target, frozenset(held))

    def enter(self, held: Iterable[Hashable], target: Hashable) -> bool:
        """Note that each of the `held` agents waits for the target; an agent is not noted as waiting for itself.

        Returns:
            False, and nothing is noted, if the target already waits, directly or through others, for one of them.
        """
        held = frozenset(held)
        with self._changing:
            if self._is_waiting_for(target, held):
                return False
            for each in held - {target}:
                self._edges.setdefault(each, []).append(target)
        return True

    def leave(self, held: Iterable[Hashable], target: Hashable) -> None:
        """Remove what `enter` has noted with the same arguments; call this only after it has returned True."""
        with self._changing:
            for each in frozenset(held) - {target}:
                targets = self._edges[each]
                targets.remove(target)
                if not targets:
                    del self._edges[each]

    def _is_waiting_for(self, target: Hashable, held: frozenset[Hashable]) -> bool:
        """True if the target waits, directly or through others, for one of `held`; the caller holds the lock."""
        seen: set[Hashable] = set()
        unvisited = [target]
        while unvisited:
            agent = unvisited.pop()
            for awaited in self._edges.get(agent, ()):
                if awaited in held:
                    return True
                if awaited not in seen:
                    seen.add(awaited)
                    unvisited.append(awaited)
        return False
