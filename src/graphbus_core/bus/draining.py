"""Who drains a bus: one thread at a time has the right to. And how everybody else knows that all is done.

    take the one token -> deliver -> put a new token back -> ring -> look whether anything has come meanwhile

Whoever adds something and finds no token may leave: who has it looks again. Whoever waits looks whenever the bell rings.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from threading import Thread, get_ident
from time import monotonic

from graphbus_core.bus import lanes as loop
from graphbus_core.bus.lanes import Delivery, Lanes
from graphbus_core.bus.waiting import Waiter


class Drainer(Waiter):
    """Lets one thread deliver, and others wait until it has."""

    # --- who delivers ---

    def _announce(self) -> None:
        """Something was queued: let it be delivered by whom it may concern."""
        if self._is_over:
            self._bury()  # somebody else has closed the bus meanwhile
        elif self._lanes is not None and self._lanes.is_here:
            self._drain_on_loop(self._lanes)
        elif loop.current() is not None:  # a thread that an async handler waits for
            self._ask_a_thread()
        else:
            self._bell.ring()
            self._drain_if_free()

    def _ask_a_thread(self) -> None:
        """Let somebody else deliver: this thread may not, or cannot."""
        if self._dispatcher is None and not self._bell.waiting and self._right_to_drain.is_free:
            Thread(target=self._drain_if_free, name="graphbus-drain").start()
        self._bell.ring()

    def _may_drain(self) -> bool:
        dispatcher = self._dispatcher
        is_free = dispatcher is None or (self._is_closing and self.interruption is not None)
        return (is_free or (dispatcher is not None and dispatcher.ident == get_ident())) and not self._is_late()

    def _is_late(self) -> bool:
        deadline = self._deadline  # who closes the bus may take it away meanwhile
        return deadline is not None and monotonic() >= deadline

    def _has_work(self) -> bool:
        """Something waits, and this thread can deliver it."""
        waits = self._queue or self._errands or self._event is not None
        return bool(waits and self._right_to_drain.is_free and self._may_drain())

    def _drain_if_free(self, drain: Callable[[], None] | None = None) -> None:
        while self._has_work():
            try:
                del self._right_to_drain.token
            except AttributeError:
                return
            try:
                self._drainer = get_ident()
                (drain or self._drain)()
            finally:
                self._drainer = 0
                self._right_to_drain.token = []
                self._bell.ring()

    def _drain_on_loop(self, lanes: Lanes) -> None:
        """Put what only lanes hear into them; for the rest, and where a mailbox is full, a thread is needed that may wait."""
        while self._queue:
            try:
                del self._right_to_drain.token
            except AttributeError:
                return  # a thread drains, and looks again before it ends
            try:
                is_stuck = not self._fill(lanes)
            finally:
                self._right_to_drain.token = []
            if is_stuck:
                self._ask_a_thread()
                return
            self._bell.ring()

    @abstractmethod
    def _drain(self) -> None:
        """Deliver what waits."""

    @abstractmethod
    def _fill(self, lanes: Lanes) -> bool:
        """Deliver on the loop what only lanes hear; False when something else comes first."""

    # --- who waits ---

    def _is_at_rest(self, is_idle: Callable[[], object]) -> bool:
        """Something is so, and nothing is queued or in hand, all at the same moment.

        Only who has the token, or a handler on the loop, puts something on the loop or plans a further attempt. So when the same
        token is there before and after, nothing has gone from what is looked at last to what was looked at first. What falls due
        is queued before it is no longer planned: that is to be looked at in `is_idle`, after the loop.
        """
        before = self._right_to_drain.present
        if before is None or not is_idle() or self._queue or self._errands or self._event is not None:
            return False
        return self._right_to_drain.present is before

    def _is_loop_idle(self) -> bool:
        return self._lanes is None or self._lanes.is_idle

    def _is_quiet(self) -> bool:
        """Nothing is queued, in hand or on the loop; further attempts may wait."""
        return self._is_at_rest(self._is_loop_idle)

    def _until_all_but(self, others: Iterable[Delivery]) -> None:
        """Deliver, and wait until nothing is under way but what was so before."""
        lanes = self._lanes
        known = set(others)
        if lanes is None or not known:
            self._until(self._is_quiet)
            return
        lanes.watchers += 1
        try:
            self._until(lambda: self._is_at_rest(lambda: lanes.under_way.keys() <= known))
        finally:
            lanes.watchers -= 1

    def _until(self, is_so: Callable[[], object], deadline: float | None = None) -> bool:
        """Wait until something is so, and meanwhile deliver; False when it was not so in time, or before the bus was closed."""
        while True:
            self._drain_if_free()
            self._raise_what_was_raised()
            if is_so():
                return True
            ends = [each for each in (deadline, self._deadline) if each is not None]
            left_s = min(ends) - monotonic() if ends else None
            if left_s is not None and left_s <= 0:
                return False
            self._bell.wait(lambda: is_so() or self._has_work() or self._has_raised() or self._is_over, left_s)

    def _has_raised(self) -> bool:
        """An async handler has raised what is to go up here."""
        return bool(self._raised) and self._dispatcher is None

    def _raise_what_was_raised(self) -> None:
        if self._has_raised():
            raised = self._first_raised()
            if raised is not None:
                raise raised

    def _first_raised(self) -> BaseException | None:
        """Take it out; None when another thread was quicker."""
        try:
            return self._raised.popleft()
        except IndexError:
            return None
