"""MessageBus: in-process publish and subscribe. Both modes run on it.

How events are delivered is in `delivering`, `routing` says to whom, `lanes` runs what is `async def`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import exception
from threading import get_ident
from typing import Any, TypeVar

from graphbus_core.bus.closing import Closing
from graphbus_core.bus.lanes import Delivery, current, now_plus
from graphbus_core.bus.ledger import DeadLetterKeeper
from graphbus_core.bus.queueing import OnError, Redelivery
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routing import Admit, Subscription
from graphbus_core.bus.signatures import Handler
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import RunError
from graphbus_core.middleware import Middleware
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.deliveries import ONCE, DeadLetter, DeliveryPolicy, Statistics
from graphbus_core.model.messages import Event

A = TypeVar("A")

_PATIENCE_S = 1.0
"""How long a receipt may take to notice that it is done."""


class MessageBus(Closing):
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
        queue: How many events may wait. More are refused: an outside publisher gets a BackpressureError, and what a handler
            publishes becomes a dead letter.
        mailbox: How many events may wait for one agent with async handlers before the delivery of others waits for it.
        known_topics: How many topics are kept compiled.
        admit: Asked once per topic: raises RunError for an unknown one, or gives the check of its payloads or None.
        middleware: What goes around every handler, outermost first.
        clock: Where it has its time from; one that was given is not closed with the bus.
        dispatcher: One thread of its own delivers, and a publish from outside only queues and gives a Receipt.
    """

    def __init__(
        self,
        *,
        history: int = 1000,
        on_error: OnError = "isolate",
        max_hops: int = 64,
        max_tree: int = 10_000,
        dead_letters: int = 1000,
        queue: int = 100_000,
        mailbox: int = 1024,
        known_topics: int = 4096,
        admit: Admit | None = None,
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
        dispatcher: bool = False,
    ) -> None:
        used = SystemClock() if clock is None else clock
        super().__init__(
            history=history,
            on_error=on_error,
            max_hops=max_hops,
            max_tree=max_tree,
            dead_letters=dead_letters,
            queue=queue,
            mailbox=mailbox,
            known_topics=known_topics,
            admit=admit,
            middleware=middleware,
            clock=used,
        )
        self._own_clock = used if clock is None else None
        self.middleware = tuple(middleware)
        if dispatcher:
            self.start_dispatcher()

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

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop calling the handler, also for an event that is on its way; unsubscribing twice does nothing."""
        if self._routes.remove(subscription) and self._event is not None:
            self._dispatch.take_out(subscription, after=self._position)

    def caller(
        self,
        function: Callable[[A], Any],
        *,
        owner: str = "",
    ) -> Callable[[A], Any]:
        """Make a function that calls another as `run` does, but at once when nobody is at work.

        Args:
            function: Belongs to an owner without async handlers.
            owner: The agent that the function belongs to.
        """
        queue, called = self._queue, ((owner, owner),)

        def call_in_turn(argument: A) -> Any:
            return self.run(lambda: function(argument), owner=owner)

        def call(argument: A) -> Any:
            lanes = self._lanes
            others: Sequence[Delivery] = ()
            if lanes is not None:
                if lanes.is_here or current() is not None:
                    return call_in_turn(argument)
                others = lanes.now_under_way()
            try:
                del self._right_of_callers.token
            except AttributeError:
                return call_in_turn(argument)
            is_over = False
            try:
                self._drainer = get_ident()
                if queue or self._event is not None:
                    self._drain()
                try:
                    self._called = called
                    result = function(argument)
                    is_over = True
                finally:
                    self._called = ()
                    if queue and (is_over or isinstance(exception(), Exception)):
                        self._drain()  # after a KeyboardInterrupt nothing more is delivered
            finally:
                self._drainer = 0
                self._right_to_drain.token = []
                if queue or self._lanes is not None or self._waiting:
                    self._leave(others, is_interrupted=not is_over and not isinstance(exception(), Exception))
            return result

        return call

    def _leave(self, others: Sequence[Delivery], *, is_interrupted: bool) -> None:
        """A caller has given the right to drain back: others may wait for that; it waits for what it has brought about."""
        self._bell.ring()
        if not is_interrupted and (self._queue or self._lanes is not None):
            self._until_all_but(others)

    def use_lane(self, owner: str) -> None:
        """Run everything of this owner on the event loop, one after the other, as if it had an async handler."""
        self._routes.use_lane(owner)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions, in the order in which they are served."""
        return self._routes.subscriptions

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until all is quiet: nothing is queued or in hand, and no further attempt waits. False when that takes longer.

        Args:
            timeout_s: How long; None: as long as it takes.

        Raises:
            RunError: GBE648 inside a handler, which would wait for itself.
            Exception: With `on_error="raise"`, what a further attempt has raised.
        """
        self.refuse_in_handler()

        def is_done() -> bool:
            return self._is_loop_idle() and self._retries.next_due() is None

        return self._until_or_raise(lambda: self._is_at_rest(is_done), timeout_s)

    def refuse_in_handler(self) -> None:
        """Raise RunError GBE648 inside a handler: who waits there waits for itself."""
        if self._is_handling():
            raise RunError("GBE648")

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Deliver, or wait while others do, until a receipt is done. False when the bus is closed and it never will be.

        Args:
            is_rest_enough: Come back as well when the whole bus has nothing left to do but further attempts.

        Raises:
            RunError: GBE648 inside a handler.
            Exception: With `on_error="raise"`, what a further attempt has raised.
        """
        self.refuse_in_handler()
        is_so = self._until_or_raise(lambda: receipt.is_done or (is_rest_enough and self._is_quiet()), None)
        return receipt.is_done or (not is_so and receipt.wait(_PATIENCE_S))

    def _until_or_raise(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        def is_so_at_last() -> object:
            error, self._late_error = self._late_error, None
            if error is not None:
                raise error
            return is_so()

        return self._until(is_so_at_last, now_plus(timeout_s))

    def deliver_once_more(self, event: Event, subscription: Subscription | None) -> Receipt:
        """Queue an event that has a tree of its own, for this subscription or for all, and follow what comes of it.

        Its dead letters do not go to the keeper until `release_dead_letters`.

        Raises:
            RunError: GBE615 closed bus, GBE648 inside a handler.
        """
        self.refuse_in_handler()
        if self._is_closing:
            raise RunError("GBE615", topic=event.topic)
        self._ledger.claimed[id(event)] = event, []
        receipt = Receipt(event.root, self._is_handling)
        receipt.then(self._bell.ring)
        self._receipts.open(receipt)
        self._queue.append(event if subscription is None else Redelivery(event, subscription, 1))
        self._bell.ring()
        return receipt

    def release_dead_letters(self, event: Event) -> tuple[DeadLetter, ...]:
        """Give what has died of an event that was delivered once more; from now on its dead letters go to the keeper."""
        with self._judging:
            return tuple(self._ledger.claimed.pop(id(event))[1])

    def forget_dead_letter(self, letter: DeadLetter) -> None:
        """Take a letter out of the ring, if it is there; it stays counted."""
        with self._judging:
            self._ledger.forget(letter)

    def __enter__(self) -> MessageBus:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    async def __aenter__(self) -> MessageBus:
        self.adopt_loop()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        from asyncio import to_thread

        await to_thread(self.close)

    def history(self) -> tuple[Event, ...]:
        """The last events in the order of their delivery."""
        return (*self._history,)  # in one go: see `Lanes.now_under_way`

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last dead letters, oldest first."""
        return (*self._ledger.dead,)  # likewise

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
