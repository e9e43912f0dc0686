"""Closing a bus: accepted events are delivered until the grace period ends; the rest become dead letters.

refuse new events -> deliver until the grace is over; do not wait for handlers any longer -> dead letters -> end the owners
-> `last` -> stop the loop -> dead letters of what was published meanwhile
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from threading import get_ident
from time import monotonic

from graphbus_core.bus.calls import CallRunner
from graphbus_core.bus.core import NEVER_FREE, Core
from graphbus_core.bus.dead_letters import DeadLetters
from graphbus_core.bus.failures import Failures
from graphbus_core.bus.sync import SyncDriver
from graphbus_core.bus.waiting import Notifier
from graphbus_core.clock import Clock
from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt, attempt_anything
from graphbus_core.model.deliveries import ONCE
from graphbus_core.model.messages import Event

_PATIENCE_S = 1.0
"""How long an idle dispatcher may take to end."""
_TURN_WAIT_S = 0.1
"""How long a thread that has the turn may take to give it back, e.g. one whose handler waits for room in a lane."""

OwnerEnd = tuple[str, Callable[[], None]]
"""The name of an owner of handlers, and the function that ends it."""


class Closing:
    """Closes a bus, once.

    Args:
        own_clock: The clock that is closed with the bus; None if the clock belongs to the caller.
    """

    def __init__(
        self,
        core: Core,
        sync: SyncDriver,
        calls: CallRunner,
        failures: Failures,
        letters: DeadLetters,
        *,
        notifier: Notifier,
        own_clock: Clock | None,
    ) -> None:
        self._core, self._sync, self._calls, self._failures = core, sync, calls, failures
        self._letters, self._notifier, self._own_clock = letters, notifier, own_clock
        self._unclosed: list[None] = [None]  # the thread that removes this token closes the bus

    def close(self, grace_s: float, last: Callable[[], None] | None, ends: Iterable[OwnerEnd]) -> None:
        """Close the bus; further calls do nothing. The arguments are those of `MessageBus.close`.

        Raises:
            RunError: GBE627 inside a handler.
            BaseException: The first exception of the deliveries, or else of the ends; raised when the bus is closed.
        """
        sync = self._sync
        if sync.is_handling() and not sync.is_closing:
            raise RunError("GBE627")
        try:
            del self._unclosed[0]
        except IndexError:
            return
        try:
            sync.is_closing = True
            self._core.routes.stop_caching()
            sync.deadline = monotonic() + grace_s
        finally:
            if sync.deadline is None:  # a KeyboardInterrupt came: the next call of `close` starts over
                self._unclosed.append(None)
        self._notifier.notify()
        interruption = self._deliver_remaining(sync.deadline)
        self._stop_dispatcher()
        sync.deadline = monotonic()  # no thread delivers from now on, nor one whose handler returns late
        sync.is_abandoned = self._core.deliverer != 0  # 0: the turn is free, or taken only to look at the state
        sync.dead_letter_rest()
        if sync.is_abandoned:
            sync.closer = get_ident()
            self._notifier.wait(lambda: self._core.turn, _TURN_WAIT_S)
        else:
            sync.deadline = None
        try:
            self._end_owners(ends)
            if last is not None:
                self._calls.run(last, "")
        finally:
            self._stop_parts()
        if interruption is not None:
            raise interruption

    def _deliver_remaining(self, deadline: float) -> BaseException | None:
        """Deliver until the bus is at rest or the grace is over; return the first exception that was raised, or None."""
        sync = self._sync
        first: BaseException | None = None

        def is_done() -> bool:
            return sync.is_loop_idle() and not self._failures.falls_due_by(deadline)

        while True:
            raised = attempt_anything(lambda: sync.wait_until(lambda: sync.is_at_rest(is_done), deadline))
            first = first or raised
            if not isinstance(raised, (Exception, SystemExit)):  # None, or a KeyboardInterrupt or the like
                return first

    def _stop_dispatcher(self) -> None:
        """Stop the dispatcher thread, if there is one; do not wait for it if it is still in a handler."""
        sync = self._sync
        if sync.dispatcher is not None:
            sync.is_stopping = True
            self._notifier.notify()
            sync.dispatcher.join(_PATIENCE_S if self._core.turn else 0)
            sync.dispatcher = None

    # --- the owners ---

    def _end_owners(self, ends: Iterable[OwnerEnd]) -> None:
        """End the owners one after the other, and deliver what one publishes meanwhile before the next one ends.

        The first exception of a handler, on a bus with `on_error="raise"`, is raised after all owners have ended.
        """
        left, ended = deque(ends), list[str]()
        first: Exception | None = None
        while left:  # the owner is taken out before the call, so that a call that raises cannot repeat for ever
            work = partial(self._end_until_one_publishes, left.popleft(), left, ended)
            _, error = attempt(partial(self._calls.run, work, ""))  # also delivers what was published
            first = first or error
        if first is not None:
            raise first

    def _end_until_one_publishes(self, following: OwnerEnd | None, left: deque[OwnerEnd], ended: list[str]) -> None:
        """End owners until one of them has published. A separate job for each owner would cost thirty times as much.

        Args:
            following: The first owner to end.
            left: The owners after it; those that are ended here are taken out.
            ended: The names of ended owners that still have their handlers; emptied when these are replaced.
        """
        queue = self._core.queue
        while following is not None:
            owner, end = following
            ended.append(owner)
            queued = len(queue)
            end()
            if len(queue) > queued:
                self._refuse_events_for(ended)
                ended.clear()
                return
            following = left.popleft() if left else None

    def _refuse_events_for(self, owners: Collection[str]) -> None:
        """Replace the handlers of these owners, which have ended, by handlers that make each event a dead letter."""
        routes = self._core.routes
        for each in routes.subscriptions:
            if each.owner in owners and routes.remove(each):
                refuse = partial(self._record_as_closed, name=each.name, why=f"{each.owner} had already stopped")
                routes.add(each.topic, refuse, name=each.name, owner="the end", shape="event", policy=ONCE)

    def _record_as_closed(self, event: Event, *, name: str, why: str) -> None:
        self._letters.record_undelivered(event, "closed", why, name)

    def _stop_parts(self) -> None:
        """Stop the loop and the bus's own clock, make dead letters of what was not delivered, and end all receipts."""
        sync = self._sync
        sync.deadline = monotonic()
        self._notifier.wait(lambda: self._core.turn, 0 if sync.is_abandoned else _TURN_WAIT_S)
        sync.is_over = True
        self._core.turn_of_callers = NEVER_FREE  # a publisher takes the path that finds the bus closed
        sync.closer = 0
        if sync.loop is not None:
            sync.loop.stop()
        if self._own_clock is not None:
            self._own_clock.close()
        sync.dead_letter_rest()
        self._core.receipts.end()
        self._letters.close()
        self._notifier.notify()
