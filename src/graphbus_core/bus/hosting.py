"""What a graph, a ledger and a simulation do with the bus that they host; the users of a bus need none of it."""

from __future__ import annotations

from collections.abc import Callable
from sys import exception
from threading import get_ident
from typing import Any, NamedTuple, NoReturn, TypeVar

from graphbus_core.bus.calls import CallRunner
from graphbus_core.bus.core import NEVER_FREE, Core
from graphbus_core.bus.dead_letters import DeadLetters
from graphbus_core.bus.publishing import Publisher
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.bus.sync import SyncDriver
from graphbus_core.bus.waiting import Notifier
from graphbus_core.errors import RunError
from graphbus_core.model.messages import Event

A = TypeVar("A")


class PlannedAttempt(NamedTuple):
    """A further attempt that waits until `at` on the clock of the bus, after `error` in the last one."""

    event: Event
    subscription: LiveSubscription
    attempt: int
    at: float
    error: str


class Hosting:
    """The side of a bus that its host sees.

    Attributes:
        letters: The dead letters and the log of failures.
        use_lane: See `Routes.use_lane`.
        deliver: See `CallRunner.deliver`.
        start_dispatcher: See `SyncDriver.start_dispatcher`.
        refuse_in_handler: See `SyncDriver.refuse_in_handler`.
    """

    def __init__(
        self,
        core: Core,
        sync: SyncDriver,
        publisher: Publisher,
        calls: CallRunner,
        *,
        letters: DeadLetters,
        notifier: Notifier,
    ) -> None:
        self._core, self._sync, self._publisher, self._calls, self._notifier = core, sync, publisher, calls, notifier
        self.letters, self.use_lane, self.deliver = letters, core.routes.use_lane, calls.deliver
        self.start_dispatcher, self.refuse_in_handler = sync.start_dispatcher, sync.refuse_in_handler

    # --- calls ---

    def caller(self, function: Callable[[A], Any], *, owner: str = "") -> Callable[[A], Any]:
        """Return a function that passes its argument to `function` as `run` does, on a faster path while the bus is free.

        Args:
            function: A function of an agent without async handlers.
            owner: The name of this agent.
        """
        core, sync, queue, called = self._core, self._sync, self._core.queue, ((owner, owner),)

        def call(argument: A) -> Any:
            turn = core.turn_of_callers
            if not turn or queue or core.round.event is not None:
                return self._calls.run(lambda: function(argument), owner)
            try:
                del turn[0]  # see `Core.take_turn`
            except IndexError:
                return self._calls.run(lambda: function(argument), owner)
            has_returned = False
            try:
                core.deliverer, sync.called = get_ident(), called
                result = function(argument)
                has_returned = True
            finally:
                sync.called = ()
                try:
                    if queue and (has_returned or isinstance(exception(), Exception)):
                        sync.drain()  # not after a KeyboardInterrupt: that stops the delivery
                finally:
                    core.deliverer = 0
                    turn.append(None)
                    if self._notifier.waiting:
                        self._notifier.notify()
            if queue or core.turn_of_callers is not turn:
                sync.wait_until(sync.is_quiet)
            return result

        return call

    # --- deliveries ---

    def use_ledger(self, outlet: Callable[[Event], None]) -> None:
        """From now on pass published events to `outlet` instead of delivering them; `deliver` delivers what a ledger hands out.

        An event that a handler of such a delivery publishes is collected in its `outbox` instead.
        """
        self._core.turn_of_callers = NEVER_FREE
        self._publisher.outlet = outlet

    def deliver_once_more(self, event: Event, subscription: LiveSubscription | None) -> Receipt:
        """Queue an event again, for one subscription or for all (None), and return a receipt that follows what it causes.

        Another thread delivers it, or `wait_for`. Until `letters.release`, its dead letters do not go to the keeper.

        Raises:
            RunError: GBE615 closed bus, GBE648 inside a handler.
        """
        sync = self._sync
        sync.refuse_in_handler()
        if sync.is_closing:
            raise RunError("GBE615", topic=event.topic)
        self.letters.claim(event)
        receipt = Receipt(event.root, sync.is_handling)
        receipt.call_when_done(self._notifier.notify)
        self._core.receipts.open(receipt)
        self._core.queue.append(sync.queue_entry(event, subscription))
        self._notifier.notify()
        return receipt

    # --- what waits ---

    def planned_attempts(self) -> list[PlannedAttempt]:
        """Return the further attempts that wait for their time; any thread may ask."""
        return [
            PlannedAttempt(each.event, each.subscription, each.attempt, at, each.last_error)
            for each, (at, _) in list(self._core.retrying.items())
        ]

    def waiting_in_lanes(self) -> list[tuple[LiveSubscription, Event]]:
        """Return the events that wait for handlers on the event loop, each with its subscription; any thread may ask."""
        lanes = [each.box for each in list(self._core.lanes.values())]
        waiting = [delivery for box in lanes for delivery in box.copy()]
        return [(each.subscription, each.event) for each in waiting if each.subscription is not None]

    # --- threads ---

    @property
    def is_dispatcher_lost(self) -> bool:
        """True if the dispatcher thread has ended before the bus was closed, because of an exception: see `interruption`."""
        dispatcher = self._sync.dispatcher
        return dispatcher is not None and not dispatcher.is_alive()

    @property
    def interruption(self) -> BaseException | None:
        """The exception that ended the dispatcher, if any."""
        return self._sync.interruption

    def is_drained_by(self, thread: int | None) -> bool:
        """True while the thread with this id (`threading.get_ident()`) delivers events."""
        return self._core.deliverer == thread

    def use_no_threads(
        self, call_soon: Callable[[Callable[[], None]], object], refuse_to_wait: Callable[[], NoReturn]
    ) -> None:
        """Let `call_soon` do what another thread would do, and call `refuse_to_wait` where this one would wait for it."""
        self._sync.start_thread, self._sync.wait_for_change = call_soon, lambda *_: refuse_to_wait()

    @property
    def running_handler(self) -> str:
        """The handler whose code this is; empty outside of handlers of events."""
        cause = self._publisher.current_cause()
        return getattr(cause, "name", "")
