"""Waiting in the middle of a handler: who waits for whom, and what a thread does for others meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic

from graphbus_core.bus import lanes as loop
from graphbus_core.bus.judging import Judging
from graphbus_core.bus.queueing import Asker, Errand


class Waiter(Judging):
    """Lets the thread that drains wait without keeping those it waits for from their work."""

    def _wait_here(self, is_so: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait in the middle of a handler, and meanwhile do what lanes ask of this thread; False when it was not so in time."""
        deadline = loop.now_plus(timeout_s)
        before = self._suspended
        self._suspended = busy = before.union(owner for owner, _ in self._chain())
        try:
            while not is_so():
                errand = self._errand_for_others(busy)
                if errand is not None:
                    self._do_meanwhile(errand, busy)
                    continue
                left_s = None if deadline is None else deadline - monotonic()
                if not self._bell.wait(lambda: is_so() or self._has_errand(busy), left_s):
                    return False
        finally:
            self._suspended = before
        return True

    def _do_meanwhile(self, errand: Errand, busy: frozenset[Hashable]) -> None:
        """Those who wait on this stack cannot go on before the errand is done, and so wait for it as well."""
        is_noted = errand.owner != "" and self._waits.enter(busy, errand.owner)
        try:
            errand.do()
        finally:
            if is_noted:
                self._waits.leave(busy, errand.owner)

    def _has_errand(self, busy: frozenset[Hashable]) -> bool:
        return any(errand.owner not in busy for errand in list(self._errands))

    def _errand_for_others(self, busy: frozenset[Hashable]) -> Errand | None:
        """Take out the first errand that does not go to an agent that is waiting here in the middle of a handler."""
        for errand in list(self._errands):
            if errand.owner not in busy:
                self._errands.remove(errand)
                return errand
        return None

    def _chain(self) -> tuple[Asker, ...]:
        """Who waits for what this code does, from the outermost on, and whose code it is."""
        inner = self._inner if self._is_inside else loop.current()
        if inner is not None:
            own: Asker = (inner.lane, inner.name)
            return (*inner.chain, own, *(self._called if self._is_inside else ()))
        if not self._is_inside:
            return ()
        if self._event is None:
            return self._called
        subscription = self._dispatch.subscriptions[self._position]
        return ((subscription.lane, subscription.name), *self._called)
