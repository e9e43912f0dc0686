"""MessageBus: in-process publish and subscribe, the public interface of the bus. Build Mode and Runtime Mode both run on it.

It puts the other modules of this package together; `core` explains how an event is delivered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from threading import get_ident
from typing import Any, Literal, TypeVar

from graphbus_core.bus.calls import CallRunner
from graphbus_core.bus.closing import Closing, OwnerEnd
from graphbus_core.bus.core import RUNNING, Core
from graphbus_core.bus.dead_letters import DeadLetters
from graphbus_core.bus.failures import Failures
from graphbus_core.bus.hosting import Hosting
from graphbus_core.bus.loop import LoopDriver, current_delivery
from graphbus_core.bus.publishing import Publisher
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routes import AdmitTopic, Dispatch, LiveSubscription, Routes
from graphbus_core.bus.signatures import Handler
from graphbus_core.bus.sync import SyncDriver
from graphbus_core.bus.waiting import Notifier
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import BackpressureError, RunError
from graphbus_core.isolation import ENDED, drive_to_end, run_round
from graphbus_core.middleware import Middleware
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.deliveries import ONCE, DeadLetter, DeliveryPolicy, Statistics
from graphbus_core.model.messages import Event
from graphbus_core.model.topics import Topic, name_of
from graphbus_core.schema.json import Json

A = TypeVar("A")
R = TypeVar("R")

OnError = Literal["isolate", "raise"]

_PATIENCE_S = 1.0
"""How long `wait_for` waits for a receipt after the bus was closed, which ends all receipts."""


class MessageBus:
    """Delivers events to handlers, in one total order.

    A `publish` outside of handlers returns after its event and all events caused by it are handled. KeyboardInterrupt, SystemExit
    and CancelledError in a handler stop the delivery and are raised by `publish`; waiting events are kept, and the next publish
    delivers them. The payload of such a publish is not copied: do not change it before `publish` returns. The payload of an event
    that waits in the queue is copied.

    Args:
        history: How many events `history()` remembers.
        on_error: `"raise"` makes `publish` raise the first exception of a handler; for tests.
        max_hops: The longest chain of events that cause each other.
        max_tree: How many events one event may cause in all.
        dead_letters: How many dead letters are kept; older ones are only counted.
        queue: How many events may wait. Beyond that, a publisher outside of handlers gets a BackpressureError, and an event
            that a handler publishes becomes a dead letter.
        mailbox: How many events may wait for one agent with async handlers before the delivery to others pauses.
        known_topics: How many topics keep their compiled list of handlers; with a further one, all are compiled again.
        admit: Called when a topic is first used: raises RunError if it is unknown; returns the check of its payloads, or None.
        learn: Called with each Topic object that is published on; True if `admit` must be called again for it.
        middleware: Wraps every handler, the first one outermost.
        clock: The source of time. A clock that is passed here is not closed with the bus.
        dispatcher: Deliver on one thread of its own; a publish outside of handlers then only queues and returns a Receipt.

    Attributes:
        hosting: What a graph, a ledger and a simulation do with their bus.
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
        admit: AdmitTopic | None = None,
        learn: Callable[[Topic[Any]], bool] | None = None,
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
        dispatcher: bool = False,
    ) -> None:
        used = SystemClock() if clock is None else clock
        self.middleware = tuple(middleware)
        self._notifier = Notifier()
        self._letters = DeadLetters(dead_letters, used)
        self._routes = Routes(self._put_in_lane, admit, known_topics, self.middleware)
        self._core = Core(
            self._routes, history=history, capacity=queue, mailbox=mailbox, max_hops=max_hops, max_tree=max_tree
        )
        failures = Failures(self._core, self._letters, used, is_raised=on_error == "raise")
        on_root = [each.on_root for each in middleware if hasattr(each, "on_root")]
        self._sync = SyncDriver(self._core, failures, self._notifier, used)
        self._publisher = Publisher(self._core, self._sync, self._letters, failures, on_root=on_root)
        self._calls = CallRunner(self._core, self._sync, self._publisher, failures)
        self._closing = Closing(
            self._core,
            self._sync,
            self._calls,
            failures,
            self._letters,
            notifier=self._notifier,
            own_clock=used if clock is None else None,
        )
        self.hosting = Hosting(
            self._core, self._sync, self._publisher, self._calls, letters=self._letters, notifier=self._notifier
        )
        self._learn = learn
        self._dispatches = self._routes.dispatches
        self._queue, self._history = self._core.queue, self._core.history
        self._followed = self._core.receipts.followed
        self._fail = failures.handle_failure_in_place
        self._time = self._sync.time
        self._waiting = self._notifier.waiting
        self._on_root = bool(on_root)
        if dispatcher:
            self._sync.start_dispatcher()

    def _put_in_lane(self, subscription: LiveSubscription, call: Callable[[Event], object], event: Event) -> None:
        """Call `SyncDriver.put_in_lane`; the driver does not exist yet when `Routes` is created with this function."""
        self._sync.put_in_lane(subscription, call, event)

    # --- subscribing ---

    def subscribe(
        self,
        topic: str | Topic[Any],
        handler: Handler,
        *,
        name: str = "",
        owner: str = "",
        shape: HandlerShape | None = None,
        policy: DeliveryPolicy = ONCE,
    ) -> LiveSubscription:
        """Call the handler for every event of the topic that is delivered from now on, after those subscribed before.

        Args:
            topic: A topic or a pattern.
            handler: See docs/writing-agents.md for what it may take.
            name: For logs and dead letters; the handler's qualified name by default.
            owner: The agent; handlers of one owner never run at once. The object of a bound method by default.
            shape: `topic_payload` for a handler that takes these two; else the shape to use if annotations cannot be resolved.
            policy: Further attempts, time and concurrency.

        Raises:
            RunError: GBE610 for a malformed topic, GBE611 for a handler whose signature fits no row of the table.
        """
        subscription = self._routes.add(name_of(topic), handler, name=name, owner=owner, shape=shape, policy=policy)
        if self._routes.has_many_to_count:
            self._settle_counts()
        return subscription

    def unsubscribe(self, subscription: LiveSubscription) -> None:
        """Stop calling the handler, even for an event that is being delivered. Unsubscribing twice does nothing."""
        if self._routes.remove(subscription):
            self._core.round.skip(subscription, self._routes.skip(subscription))
            self._settle_counts()
            if self._sync.loop is not None and subscription.mailbox is not None:
                self._sync.loop.forget(subscription)

    def _settle_counts(self) -> None:
        """Add the events of outdated dispatches to the counts of subscriptions, if this thread has or gets the turn.

        Otherwise the thread that has the turn does it when it delivers next.
        """
        if self._sync.is_inside:
            self._routes.settle_counts()
        elif self._core.take_turn():
            try:
                self._routes.settle_counts()
            finally:
                self._core.turn.append(None)
            self._sync.wake_after_change()

    @property
    def subscriptions(self) -> tuple[LiveSubscription, ...]:
        """All subscriptions, in the order in which their handlers are called."""
        return self._routes.subscriptions

    # --- publishing ---

    def publish(self, topic: str | Topic[Any], payload: Json = None, *, src: str = "") -> Receipt | None:
        """Send an event to all handlers of the topic; safe from any thread.

        Outside of handlers it returns when everything is delivered. Inside a handler, with a dispatcher, or while another
        thread delivers, it only queues. On the thread of the event loop it does not wait for handlers that await something.

        Returns:
            The receipt, on a bus with a dispatcher and outside of handlers; else None.

        Raises:
            RunError: GBE610 malformed topic, GBE612, GBE613 not JSON or too large, GBE615 closed bus, and what `admit` and its
                check raise.
            BackpressureError: GBE636 too many events wait. Inside a handler the event becomes a dead letter instead.
            BaseException: An exception of a handler that stops the delivery (see the class), and any with `on_error="raise"`.
        """
        name: str = topic  # type: ignore[assignment]  # a Topic object is never a key: `_resolve_topic` returns its name
        dispatch = self._dispatches.get(name)
        if dispatch is None:
            name, dispatch = self._resolve_topic(topic)
        check = dispatch.check
        if check is not None:
            payload = check(payload)
        core = self._core
        turn = core.turn_of_callers
        if not turn:  # another thread delivers, or publishers never do on this bus
            return self._publisher.publish(dispatch, name, payload, src)
        event, queue, sync = Event(name, payload, src, self._time()), self._queue, self._sync
        try:
            del turn[0]  # see `Core.take_turn`
        except IndexError:
            return self._publisher.publish(dispatch, name, payload, src)
        try:
            core.deliverer = get_ident()
            round_ = core.round
            if queue or dispatch.is_forgotten or round_.event is not None:
                queue.append(event)
            else:  # what `Core.begin` does, without the queue
                self._history.append(event)
                dispatch.events += 1
                round_.at = None
                round_.pairs = dispatch.pairs
                round_.event = event
                run_round(round_, event, self._fail)
                round_.event = None
            if queue:
                sync.drain()
        finally:  # see `SyncDriver.deliver`
            core.deliverer = 0
            turn.append(None)
            if self._waiting:
                self._notifier.notify()
        if queue or core.turn_of_callers is not turn:
            sync.wait_until(sync.is_quiet)
        return None

    def _resolve_topic(self, topic: str | Topic[Any]) -> tuple[str, Dispatch]:
        """Return the name and the dispatch of a topic that is not a key of `_dispatches`, e.g. a Topic object or a new name.

        Raises:
            RunError: GBE615 the bus is closing and this is no handler; GBE610 malformed topic, and what `admit` raises.
        """
        name = name_of(topic)
        if self._learn is not None and isinstance(topic, Topic) and self._learn(topic):
            self._routes.forget_topic(name)
        known = self._dispatches.get(name)
        if known is not None:
            return name, known
        if self._sync.is_closing and not self._sync.is_handling():
            raise RunError("GBE615", topic=name)
        return name, self._routes.compile(name)

    async def publish_async(self, topic: str | Topic[Any], payload: Json = None, *, src: str = "") -> None:
        """Send an event, and return when everything that it caused is handled, further attempts included.

        For a program whose loop the bus has adopted (`async with bus`). Inside a handler it only queues, like `publish`. If the
        only handler is an `async def` and its agent is free, the handler runs in the task of the publisher and is cancelled
        with it. A `def` handler of an agent without `async def` runs on a thread.

        Raises:
            RunError: GBE639 on another loop, and what `publish` raises.
            Exception: On a bus with `on_error="raise"`, the first exception of a handler.
        """
        name: str = topic  # type: ignore[assignment]  # as in `publish`
        dispatch = self._dispatches.get(name)
        if dispatch is None:
            name, dispatch = self._resolve_topic(topic)
        check = dispatch.check
        if check is not None:
            payload = check(payload)
        sync = self._sync
        loop = sync.loop
        if loop is None or loop.home != get_ident():
            raise RunError("GBE639", topic=name)
        if current_delivery() is not None or self._publisher.outlet is not None:
            self._publisher.publish(dispatch, name, payload, src)
            return
        event = Event(name, payload, src, self._time())
        delivery = None if self._on_root else self._core.begin_at_once(event, dispatch)
        if delivery is None:
            await self._publish_and_follow(loop, event)
            return
        try:
            delivery.is_awaited = True
            awaited = loop.begin_alone(delivery)
        finally:
            if delivery.state is RUNNING and delivery.coroutine is None:  # a KeyboardInterrupt came before the handler
                loop.end_delivery(delivery, delivery.subscription.mailbox)
        if self._waiting or self._queue or self._core.ready:
            sync.wake_after_change()  # before the next steps: the handler may wait for an event that it has published
        if awaited is not ENDED:
            await drive_to_end(awaited, delivery.worker.resume)
        if delivery.receipt is not None:
            await self._await_receipt(loop, delivery.receipt)

    async def _publish_and_follow(self, loop: LoopDriver, event: Event) -> None:
        """Queue an event, and return when everything that it caused is handled; raise what `publish_async` raises."""
        receipt = Receipt(event)
        self._core.receipts.open(receipt)
        try:
            self._publisher.accept(event)
        except BackpressureError:
            self._followed.pop(id(event), None)
            raise
        await self._await_receipt(loop, receipt)

    async def _await_receipt(self, loop: LoopDriver, receipt: Receipt) -> None:
        """Wait on the loop until a receipt is done; then raise the first exception of a handler that has to be raised, if any."""
        if not receipt.is_done:
            ended = loop.loop.create_future()

            def settle() -> None:
                if not ended.done():
                    ended.set_result(None)

            receipt.call_when_done(lambda: loop.loop.call_soon_threadsafe(settle))
            await ended
        self._sync.raise_what_was_raised()
        receipt.raise_what_was_raised()

    def adopt_loop(self) -> None:
        """Run all async handlers on the event loop that is running on this thread, instead of on a loop of the bus.

        Raises:
            RunError: GBE638 if the bus has a loop already.
        """
        self._sync.adopt_loop()

    # --- calls ---

    def run(self, work: Callable[[], R], *, owner: str = "") -> R | Awaitable[R]:
        """Run a function while no handler runs, deliver what it publishes, and return its result.

        Inside a `def` handler it runs at once. Inside an `async def` handler the result is an awaitable. On another thread it
        waits until the bus is free.

        Args:
            work: The function; it may return an awaitable if its owner has async handlers.
            owner: The agent that the function belongs to.

        Raises:
            DeadlockError: GBE633 if the owner, whose handlers run on the event loop one at a time, waits for this call itself.
            RunError: GBE618 if the bus is closed first; GBE628 in a `def` handler that runs on the event loop.
        """
        return self._calls.run(work, owner)

    def request(
        self, topic: str | Topic[Any], payload: Json = None, timeout_s: float | None = 30.0, *, src: str = ""
    ) -> Any:
        """Send an event to the one handler that answers it, and return its result; inside an async handler, an awaitable of it.

        An exception of the handler is raised here, and makes no dead letter. Handlers of patterns that match the topic, and
        handlers of the same topic with `-> None`, get the event too, but do not answer. `timeout_s` cannot interrupt a `def`
        handler that runs on this thread.

        Args:
            topic: The topic; exactly one of its handlers must return a value.
            payload: A JSON-shaped value.
            timeout_s: How long to wait; None waits for ever.
            src: The agent that sends the request.

        Raises:
            RunError: GBE631 no handler, GBE632 several, GBE637 too long a chain, and what `publish` raises.
            RequestTimeoutError: GBE635. A handler that has begun continues; if it raises then, that is a dead letter.
            DeadlockError: GBE633 if the answering agent waits for this request itself.
        """
        name, dispatch = self._resolve_topic(topic)
        if dispatch.check is not None:
            payload = dispatch.check(payload)
        return self._calls.request(dispatch, name, payload, timeout_s, src)

    # --- waiting ---

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is queued, running or planned for a further attempt; False if `timeout_s` passed first.

        Args:
            timeout_s: How long to wait; None waits for ever.

        Raises:
            RunError: GBE648 inside a handler, which would wait for itself.
            Exception: With `on_error="raise"`, the exception of a further attempt.
        """
        sync, core = self._sync, self._core
        sync.refuse_in_handler()

        def is_done() -> bool:
            return sync.is_loop_idle() and core.next_due() is None

        return sync.wait_until_or_raise(lambda: sync.is_at_rest(is_done), timeout_s)

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Deliver, or wait while others do, until a receipt is done; False if it is not done.

        Args:
            is_rest_enough: Return False when the bus has nothing left to do but further attempts. Otherwise the result is False
                only if the bus was closed first.

        Raises:
            RunError: GBE648 inside a handler.
            Exception: With `on_error="raise"`, the exception of a further attempt.
        """
        sync = self._sync
        sync.refuse_in_handler()
        is_reached = sync.wait_until_or_raise(lambda: receipt.is_done or (is_rest_enough and sync.is_quiet()), None)
        return receipt.is_done or (not is_reached and receipt.wait(_PATIENCE_S))

    # --- life ---

    def close(
        self, grace_s: float = 10.0, last: Callable[[], None] | None = None, ends: Iterable[OwnerEnd] = ()
    ) -> None:
        """Refuse new events, deliver those that wait, and stop. Closing twice does nothing.

        The grace includes further attempts that are due within it, unless a test advances the clock. When it ends, async handlers
        are cancelled. A `def` handler that has not returned continues on its thread, but the handlers after it are not called.
        Every event that was not handled becomes a dead letter.

        Args:
            grace_s: How many seconds to deliver before the rest become dead letters.
            last: Called after all functions of `ends`, while the event loop still runs.
            ends: Each owner with the function that ends it, in order. Events that such a function publishes are delivered to the
                owners that have not ended yet, and are dead letters for the others.

        Raises:
            RunError: GBE627 inside a handler, which would wait for itself.
            BaseException: The first exception of a handler that stops the delivery (see the class), or any with
                `on_error="raise"`; raised when the bus is closed. A KeyboardInterrupt ends the grace.
        """
        self._closing.close(grace_s, last, ends)

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

    # --- history and statistics ---

    def history(self) -> tuple[Event, ...]:
        """Return the last events, in the order of their delivery."""
        return tuple(self._history.copy())

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Return the last dead letters, oldest first."""
        return tuple(self._letters.latest.copy())

    def statistics(self) -> Statistics:
        """Return how many events were published, delivered, failed and so on so far."""
        return self._routes.statistics(queued=len(self._queue), dead_letters=self._letters.count)


SimpleMessageBus = MessageBus  # the name that seed 001 uses

__all__ = ["MessageBus", "OnError", "SimpleMessageBus"]
