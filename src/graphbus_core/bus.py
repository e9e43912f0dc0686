"""MessageBus: in-process publish and subscribe. Both modes run on it.

How events are delivered is in `delivering`, `routing` says to whom, `lanes` runs what is `async def`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import exception
from threading import TIMEOUT_MAX, get_ident
from time import monotonic, sleep
from typing import Any, TypeVar

from graphbus_core.clock import Clock, SystemClock
from graphbus_core.delivering import Deliverer, OnError, Redelivery
from graphbus_core.errors import RunError
from graphbus_core.isolation import Job
from graphbus_core.lanes import Lanes
from graphbus_core.ledger import DeadLetterKeeper
from graphbus_core.middleware import Middleware
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.deliveries import ONCE, DeadLetter, DeliveryPolicy, Statistics
from graphbus_core.model.messages import Event
from graphbus_core.model.payload import freeze
from graphbus_core.model.proposals import Json
from graphbus_core.routing import Admit, Subscription
from graphbus_core.signatures import Handler

A = TypeVar("A")


class MessageBus(Deliverer):
    """Delivers events to handlers, in one total order.

    An outermost `publish` returns when everything that came of it is delivered. KeyboardInterrupt, SystemExit and CancelledError
    of a handler stop the delivery and go up; what waits is kept and delivered by the next publish. The payload of an outermost
    publish is not copied: nobody else can change it, and who publishes it must not either. One that waits is copied.

    Args:
        history: How many events are remembered; 0: none.
        on_error: `raise` lets the first exception of a handler go up, as if it were a KeyboardInterrupt: for tests.
        max_hops: How long a chain of events may become.
        max_tree: How many events may come of one.
        dead_letters: How many dead letters are kept; older ones are only counted.
        mailbox: How many events may wait for one agent with async handlers before the delivery of others waits for it.
        known_topics: How many topics are kept compiled.
        admit: Asked once per topic: raises RunError for an unknown one, or gives the check of its payloads or None.
        middleware: What goes around every handler, outermost first.
        clock: Where it has its time from; one that was given is not closed with the bus.
    """

    def __init__(
        self,
        *,
        history: int = 1000,
        on_error: OnError = "isolate",
        max_hops: int = 64,
        max_tree: int = 10_000,
        dead_letters: int = 1000,
        mailbox: int = 1024,
        known_topics: int = 4096,
        admit: Admit | None = None,
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            history=history,
            on_error=on_error,
            max_hops=max_hops,
            max_tree=max_tree,
            dead_letters=dead_letters,
            mailbox=mailbox,
            known_topics=known_topics,
            admit=admit,
            middleware=middleware,
            clock=clock,
        )
        self.middleware = tuple(middleware)

    def subscribe(
        self,
        topic: str,
        handler: Handler,
        *,
        name: str = "",
        owner: str = "",
        shape: HandlerShape | None = None,
        policy: DeliveryPolicy = ONCE,
    ) -> Subscription:
        """Call the handler for every event of the topic that is delivered from now on, after those subscribed before.

        Args:
            topic: A topic or a pattern.
            handler: See docs/runtime.md for what it may take.
            name: For logs and dead letters; the handler's qualified name by default.
            owner: The agent; handlers of one owner never run at once. The object of a bound method by default.
            shape: `topic_payload` for a handler that takes these two; else what counts if annotations cannot be resolved.
            policy: Further attempts, time and concurrency.

        Raises:
            RunError: GBE610 for a malformed topic, GBE611 for a handler whose signature fits no row of the table.
        """
        return self._routes.add(topic, handler, name=name, owner=owner, shape=shape, policy=policy)

    def send(self, topic: str, payload: Json = None, *, src: str = "") -> Event:
        """Queue an event for another thread to deliver, and give it: for a publisher that must not wait.

        Raises:
            RunError: What `publish` raises.
        """
        dispatch = self._dispatches.get(topic) or self._open(topic)
        checked = payload if dispatch.check is None else dispatch.check(payload)
        event = Event(topic, freeze(checked), src, self._time())
        self.deliver_again(event, None)
        return event

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop calling the handler, also for an event that is on its way; unsubscribing twice does nothing."""
        if self._routes.remove(subscription) and self._event is not None:
            self._dispatch.take_out(subscription, after=self._position)

    def caller(
        self, function: Callable[[A], Any], after: Callable[[Any], Any], again: Callable[[A], Any]
    ) -> Callable[[A], Any]:
        """Make a function that calls another as `run` does, but at once when nobody is at work.

        Args:
            function: Belongs to an owner without async handlers.
            after: Gives what is to be returned instead of the result, which may be an awaitable, or raises.
            again: What is called in the place of both when the turn has come after some waiting: the function that this makes,
                or another one that has taken its place meanwhile.
        """
        right, queue = self._right_to_drain, self._queue

        def call(argument: A) -> Any:
            lanes = self._lanes
            if lanes is not None and lanes.is_here:
                return after(self.run(lambda: function(argument)))
            try:
                del right[0]
            except IndexError:
                if self._is_inside or self._is_abandoned:  # a handler of this thread calls
                    return after(self.run(lambda: function(argument)))
                return self.run(lambda: again(argument))  # another thread drains
            is_over = is_quiet = False
            try:
                self._drainer = get_ident()
                has_waited = bool(queue) or self._event is not None
                if has_waited:
                    self._drain()
                try:
                    result = again(argument) if has_waited else function(argument)
                    is_over = True
                finally:
                    if is_over or isinstance(exception(), Exception):  # after a KeyboardInterrupt nothing more is delivered
                        if queue or lanes is not None:
                            self._drain()
                        is_quiet = True
            finally:
                self._drainer = 0
                right.append(None)
                if queue and is_quiet:
                    self._drain_if_free()
            return result if has_waited else after(result)

        return call

    def use_lane(self, owner: str) -> None:
        """Run everything of this owner on the event loop, one after the other, as if it had an async handler."""
        self._routes.use_lane(owner)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions, in the order in which they are served."""
        return self._routes.subscriptions

    def close(self, grace_s: float = 10.0, last: Callable[[], None] | None = None) -> None:
        """Refuse new events, deliver what waits, and stop. Closing twice does nothing.

        Further attempts that come due within the grace are waited for, unless the clock is one that a test lets pass. What is
        not delivered when the grace is over goes to the dead letters; async handlers are cancelled.

        Args:
            grace_s: How long to wait.
            last: Called after the last event, while the event loop still runs.

        Raises:
            RunError: GBE627 inside a handler, which would wait for itself.
        """
        if self._is_closing:
            return
        if self._is_inside:
            raise RunError("GBE627")
        self._is_closing = True
        self._routes.stop_caching()
        self._deadline = monotonic() + grace_s
        self._is_abandoned = not self._wait_for_quiet(self._deadline)
        self._deadline = None
        self._bury_the_rest()
        try:
            if last is not None:
                self.run(last)
        finally:
            if self._lanes is not None:
                self._lanes.stop()
            if self._has_own_clock:
                self._clock.close()

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until all is quiet: nothing is queued or in hand, and no further attempt waits. False when that takes longer.

        Args:
            timeout_s: How long; None: as long as it takes.

        Raises:
            RunError: GBE648 inside a handler, which would wait for itself.
            Exception: With `on_error="raise"`, what a further attempt has raised.
        """
        if self._is_inside or Lanes.current() is not None:
            raise RunError("GBE648")
        deadline = monotonic() + (TIMEOUT_MAX / 2 if timeout_s is None else timeout_s)
        while True:
            look = Job(lambda: self._is_quiet and self._retries.next_due() is None)
            self._queue.append(look)
            self._wake()
            self._drain_if_free()
            if not look.wait(max(0.0, deadline - monotonic())):
                look.give_up()
                return False
            error, self._late_error = self._late_error, None
            if error is not None:
                raise error
            if look.result() or monotonic() >= deadline:
                return bool(look.result())
            sleep(0.002)

    @property
    def _is_quiet(self) -> bool:
        """Asked by a Job: nothing else is queued or in hand."""
        return len(self._queue) == 1 and (self._lanes is None or self._lanes.is_idle)

    def _falls_due_by(self, deadline: float) -> bool:
        """True when a further attempt will come in time; the clock of a test does not pass by itself."""
        due = self._retries.next_due() if isinstance(self._clock, SystemClock) else None
        return due is not None and due <= deadline

    def _wait_for_quiet(self, deadline: float) -> bool:
        """Drain, or wait for the thread that does; False when that one's handler does not return in time."""
        while True:
            look = Job(lambda: self._is_quiet and not self._falls_due_by(deadline))
            self._queue.append(look)
            self._wake()
            self._drain_if_free()
            if not look.wait(max(0.0, deadline - monotonic())):
                look.give_up()
                return not self._drainer
            if look.result() or self._is_late():
                return True
            sleep(0.002)

    def _bury_the_rest(self) -> None:
        """What was not delivered, or not as often as it should, becomes dead letters."""
        why = "the bus was closed first"
        for item in self._queue:
            if isinstance(item, Event):
                self._ledger.stopped(item, "closed", why)
            elif isinstance(item, Redelivery):
                event, subscription, attempt = item
                since = self._retries.first_failure(event, subscription)
                self._ledger.stopped(event, "closed", why, subscription.name, attempts=attempt - 1, since=since)
        self._queue.clear()
        for waiting, since in self._retries.cancel():
            told = f"the bus was closed before attempt {waiting.attempt}; the last one failed: {waiting.error}"
            name, attempts = waiting.subscription.name, waiting.attempt - 1
            self._ledger.stopped(waiting.event, "closed", told, name, attempts=attempts, since=since)
        for delivery in self._lanes.cancel() if self._lanes is not None else ():
            if delivery.about is not None:
                event, subscription = delivery.about
                self._ledger.stopped(event, "closed", why, subscription.name, attempts=delivery.attempt - 1)

    def __enter__(self) -> MessageBus:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def history(self) -> tuple[Event, ...]:
        """The last events in the order of their delivery."""
        return tuple(self._history)

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last dead letters, oldest first."""
        return tuple(self._ledger.dead)

    @property
    def keeper(self) -> DeadLetterKeeper | None:
        """Who gets every dead letter besides the ring, at once and on whatever thread it dies; it must not raise."""
        return self._ledger.keeper

    @keeper.setter
    def keeper(self, keeper: DeadLetterKeeper | None) -> None:
        self._ledger.keeper = keeper

    def is_drained_by(self, thread: int | None) -> bool:
        """True while the thread with this identity delivers events."""
        return self._drainer == thread

    def statistics(self) -> Statistics:
        """Count what has happened so far."""
        return self._routes.statistics(queued=len(self._queue), dead_letters=self._ledger.dead_count)


SimpleMessageBus = MessageBus  # the name that seed 001 uses

__all__ = ["MessageBus", "OnError", "SimpleMessageBus", "Subscription"]
