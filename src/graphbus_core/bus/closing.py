"""The end of a bus: what it has accepted is delivered while the grace lasts; the rest becomes dead letters, and nobody waits on.

refuse new -> drain -> | a handler does not end: it is left behind | -> bury -> `last` -> stop the loop -> bury what came late
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from threading import get_ident
from time import monotonic

from graphbus_core.bus.awaiting import Awaiter
from graphbus_core.bus.right import Right
from graphbus_core.clock import Clock
from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt, attempt_anything
from graphbus_core.model.deliveries import ONCE
from graphbus_core.model.messages import Event

_PATIENCE_S = 1.0
"""How long a dispatcher that has nothing to do may take to end."""
_LAST_LOOK_S = 0.1
"""How long who drains may take to notice that what its handler waited for will not come."""

_End = tuple[str, Callable[[], None]]
"""An owner, and what ends it."""


class Closing(Awaiter):
    """Ends a bus in good order."""

    _own_clock: Clock | None = None

    def close(
        self,
        grace_s: float = 10.0,
        last: Callable[[], None] | None = None,
        ends: Iterable[_End] = (),
    ) -> None:
        """Refuse new events, deliver what waits, and stop. Closing twice does nothing.

        Further attempts that come due within the grace are waited for, unless the clock is one that a test lets pass. What is
        not delivered when the grace is over goes to the dead letters; async handlers are cancelled, and a `def` handler that
        does not end is left behind: its event is a dead letter, and the handlers after it are not called.

        Args:
            grace_s: How long to wait.
            last: Called after the last event, while the event loop still runs.
            ends: Before that, for each owner what ends it. What it publishes goes to the owners that have not ended; for
                one that has it is a dead letter.

        Raises:
            RunError: GBE627 inside a handler, which would wait for itself.
            BaseException: What a handler has raised meanwhile and may not be caught, when all is done; a KeyboardInterrupt ends
                the grace.
        """
        if self._is_handling() and not self._is_closing:
            raise RunError("GBE627")
        # No other thread comes in between reading and writing in a line without a call.
        is_closed_already, self._is_closing = self._is_closing, True
        if is_closed_already:
            return
        self._routes.stop_caching()
        self._deadline = monotonic() + grace_s
        self._bell.ring()
        interruption = self._deliver_the_rest(self._deadline)
        self._stop_dispatcher()
        self._deadline = monotonic()  # nobody delivers meanwhile, nor who comes back from a handler that did not end
        self._is_abandoned = not self._right_to_drain.is_free
        self._bury()
        if self._is_abandoned:
            self._closer = get_ident()
            self._bell.wait(lambda: self._right_to_drain.is_free, _LAST_LOOK_S)
        else:
            self._deadline = None
        try:
            self._end_owners(ends)
            if last is not None:
                self.run(last)
        finally:
            self._end()
        if interruption is not None:
            raise interruption

    def _end_owners(self, ends: Iterable[_End]) -> None:
        """One after the other; what one publishes in its end is delivered before the next is ended.

        An Exception of a handler, on a bus that lets it go up, does so when all are ended.
        """
        left, ended = deque(ends), list[str]()
        first: Exception | None = None
        while left:  # the next is taken out here: what is raised before his turn must not keep us here for ever
            _, error = attempt(partial(self.run, partial(self._end_some, left.popleft(), left, ended)))
            first = first or error
        if first is not None:
            raise first

    def _end_some(self, following: _End | None, left: deque[_End], ended: list[str]) -> None:
        """End owners until one of them has published. A turn for each would cost thirty times what it costs to stop an agent."""
        while following is not None:
            owner, end = following
            ended.append(owner)
            queued = len(self._queue)
            end()
            if len(self._queue) > queued:
                self._let_go_of(ended)
                ended.clear()
                return
            following = left.popleft() if left else None

    def _let_go_of(self, owners: Collection[str]) -> None:
        """In the place of their handlers stands from now on what makes their events dead letters."""
        for each in self._routes.subscriptions:
            if each.owner in owners and self._routes.remove(each):
                refuse = partial(self._refuse_for, name=each.name, why=f"{each.owner} had stopped before")
                self._routes.add(each.topic, refuse, name=each.name, owner="the end", shape="event", policy=ONCE)

    def _refuse_for(self, event: Event, *, name: str, why: str) -> None:
        self._stop(event, "closed", why, name)

    def _deliver_the_rest(self, deadline: float) -> BaseException | None:
        """Drain until all is quiet or the grace is over, and give the first that went up meanwhile."""
        first: BaseException | None = None

        def is_done() -> bool:
            return self._is_loop_idle() and not self._falls_due_by(deadline)

        while True:
            raised = attempt_anything(lambda: self._until(lambda: self._is_at_rest(is_done), deadline))
            first = first or raised
            if not isinstance(raised, (Exception, SystemExit)):
                return first

    def _stop_dispatcher(self) -> None:
        dispatcher = self._dispatcher
        if dispatcher is not None:
            self._is_stopping = True
            self._bell.ring()
            dispatcher.join(_PATIENCE_S if self._right_to_drain.is_free else 0)
            self._dispatcher = None

    def _end(self) -> None:
        self._right_of_callers = Right()  # who was about to publish finds the bus closed
        self._deadline = monotonic()
        self._bell.wait(lambda: self._right_to_drain.is_free, 0 if self._is_abandoned else _LAST_LOOK_S)
        self._is_over = True
        self._closer = 0
        if self._lanes is not None:
            self._lanes.stop()
        if self._own_clock is not None:
            self._own_clock.close()
        self._bury()
        self._receipts.end()
        self._bell.ring()
