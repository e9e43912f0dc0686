"""MessageBus: in-process publish and subscribe. Both modes run on it. The face of the parts that do it:

core    what there is to do, as data             sync    the driver on threads         calls     who waits for a result
routes  who hears which topic                    loop    the driver on an event loop   closing   the end
failures, outcomes, dead_letters, receipts: what becomes of an event
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from sys import exception
from threading import get_ident
from typing import Any, Literal, TypeVar

from graphbus_core.bus.calls import Calls
from graphbus_core.bus.closing import Closing, End
from graphbus_core.bus.core import RUNNING, Core
from graphbus_core.bus.dead_letters import DeadLetterKeeper, DeadLetters
from graphbus_core.bus.failures import Failures
from graphbus_core.bus.loop import LoopDriver, current
from graphbus_core.bus.publishing import Publisher
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.routes import Admit, Dispatch, Routes, Subscription
from graphbus_core.bus.signatures import Handler
from graphbus_core.bus.sync import SyncDriver
from graphbus_core.bus.waiting import Bell
from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import BackpressureError, RunError
from graphbus_core.isolation import ENDED, carry_on, run_round
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
"""How long a receipt may take to notice that it is done."""


class MessageBus:
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
        learn: Told of each Topic that something is published on; True if `admit` is to be asked about it again.
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
        learn: Callable[[Topic[Any]], bool] | None = None,
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
        dispatcher: bool = False,
    ) -> None:
        used = SystemClock() if clock is None else clock
        self.middleware = tuple(middleware)
        self._bell = Bell()
        self._letters = DeadLetters(dead_letters, used)
        self._routes = Routes(self._put, admit, known_topics, self.middleware)
        self._core = Core(
            self._routes, history=history, capacity=queue, mailbox=mailbox, max_hops=max_hops, max_tree=max_tree
        )
        failures = Failures(self._core, self._letters, used, is_raised=on_error == "raise")
        on_root = [each.on_root for each in middleware if hasattr(each, "on_root")]
        self._sync = SyncDriver(self._core, failures, self._bell, used)
        self._publisher = Publisher(self._core, self._sync, self._letters, failures, on_root=on_root)
        self._calls = Calls(self._core, self._sync, self._publisher, failures)
        self._closing = Closing(
            self._core,
            self._sync,
            self._calls,
            failures,
            self._letters,
            bell=self._bell,
            own_clock=used if clock is None else None,
        )
        self._learn = learn
        self._dispatches = self._routes.dispatches
        self._queue, self._history = self._core.queue, self._core.history
        self._followed = self._core.receipts.followed
        self._fail = failures.fail_in_round
        self._time = self._sync.time
        self._waiting = self._bell.waiting
        self._on_root = bool(on_root)
        if dispatcher:
            self.start_dispatcher()

    def _put(self, subscription: Subscription, call: Callable[[Event], object], event: Event) -> None:
        self._sync.put_event(subscription, call, event)

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
    ) -> Subscription:
        """Call the handler for every event of the topic that is delivered from now on, after those subscribed before.

        Args:
            topic: A topic or a pattern.
            handler: See docs/writing-agents.md for what it may take.
            name: For logs and dead letters; the handler's qualified name by default.
            owner: The agent; handlers of one owner never run at once. The object of a bound method by default.
            shape: `topic_payload` for a handler that takes these two; else what counts if annotations cannot be resolved.
            policy: Further attempts, time and concurrency.

        Raises:
            RunError: GBE610 for a malformed topic, GBE611 for a handler whose signature fits no row of the table.
        """
        subscription = self._routes.add(name_of(topic), handler, name=name, owner=owner, shape=shape, policy=policy)
        if self._routes.has_many_to_count:
            self._settle_counts()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop calling the handler, also for an event that is on its way; unsubscribing twice does nothing."""
        if self._routes.remove(subscription):
            self._core.round.skip(subscription, self._routes.skip(subscription))
            self._settle_counts()
            if self._sync.loop is not None and subscription.mailbox is not None:
                self._sync.loop.forget(subscription)

    def _settle_counts(self) -> None:
        """Only the thread that has the turn may; when another one has it, it will."""
        if self._sync.is_inside:
            self._routes.settle_counts()
        elif self._core.take_turn():
            try:
                self._routes.settle_counts()
            finally:
                self._core.turn.append(None)
            self._sync.look_again()

    def use_lane(self, owner: str) -> None:
        """Run everything of this owner on the event loop, one after the other, as if it had an async handler."""
        self._routes.use_lane(owner)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions, in the order in which they are served."""
        return self._routes.subscriptions

    # --- publishing ---

    def publish(self, topic: str | Topic[Any], payload: Json = None, *, src: str = "") -> Receipt | None:
        """Send an event to all handlers of the topic; safe from any thread.

        Returns:
            With a dispatcher, to a publisher from outside: the receipt. Else None: an outermost publish has delivered everything
            when it returns, and one inside a handler, or while another thread delivers, only queues. On the thread of the event
            loop it never waits for a handler that waits.

        Raises:
            RunError: GBE610 malformed topic, GBE612, GBE613 not JSON or too large, GBE615 closed bus, and what `admit` refuses.
            BackpressureError: GBE636 too many events wait; inside a handler the event is a dead letter instead.
        """
        name: str = topic  # type: ignore[assignment]  # else it is none of the keys, and `_open` gives the name
        dispatch = self._dispatches.get(name)
        if dispatch is None:
            name, dispatch = self._open(topic)
        check = dispatch.check
        if check is not None:
            payload = check(payload)
        core = self._core
        turn = core.turn_of_callers
        if not turn:  # somebody delivers, or nobody does so here
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
                self._bell.ring()
        if queue or core.turn_of_callers is not turn:
            sync.until(sync.is_quiet)
        return None

    def _open(self, topic: str | Topic[Any]) -> tuple[str, Dispatch]:
        """A Topic, or a topic that is published for the first time, or any topic of a bus that is closing."""
        name = name_of(topic)
        if self._learn is not None and isinstance(topic, Topic) and self._learn(topic):
            self._routes.let_go(name)
        known = self._dispatches.get(name)
        if known is not None:
            return name, known
        if self._sync.is_closing and not self._sync.is_handling():
            raise RunError("GBE615", topic=name)
        return name, self._routes.compile(name)

    async def publish_async(self, topic: str | Topic[Any], payload: Json = None, *, src: str = "") -> None:
        """Send an event, and be back when everything that came of it is delivered, further attempts included.

        For a program whose loop the bus has adopted (`async with bus`). Inside a handler it only queues, like `publish`. If the
        one handler is an `async def` and its agent is free, who cancels the publisher cancels it. A `def` handler of an agent
        without `async def` never runs on the loop: it gets a thread.

        Raises:
            RunError: GBE639 on another loop, and what `publish` raises.
            Exception: On a bus with `on_error="raise"`, the first that a handler has raised.
        """
        name: str = topic  # type: ignore[assignment]  # else it is none of the keys, and `_open` gives the name
        dispatch = self._dispatches.get(name)
        if dispatch is None:
            name, dispatch = self._open(topic)
        check = dispatch.check
        if check is not None:
            payload = check(payload)
        sync = self._sync
        loop = sync.loop
        if loop is None or loop.home != get_ident():
            raise RunError("GBE639", topic=name)
        if current() is not None:
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
                loop.end(delivery, delivery.subscription.mailbox)
        if self._waiting or self._queue or self._core.ready:
            sync.look_again()  # before it goes on: the handler may wait for what it has published
        if awaited is not ENDED:
            await carry_on(awaited, delivery.worker.resume)
        if delivery.receipt is not None:
            await self._end_of(loop, delivery.receipt)

    async def _publish_and_follow(self, loop: LoopDriver, event: Event) -> None:
        receipt = Receipt(event)
        self._core.receipts.open(receipt)
        try:
            self._publisher.accept(event)
        except BackpressureError:
            self._followed.pop(id(event), None)
            raise
        await self._end_of(loop, receipt)

    async def _end_of(self, loop: LoopDriver, receipt: Receipt) -> None:
        if not receipt.is_done:
            ended = loop.loop.create_future()

            def settle() -> None:
                if not ended.done():
                    ended.set_result(None)

            receipt.then(lambda: _tell(loop, settle))
            await ended
        self._sync.raise_what_was_raised()
        receipt.raise_what_was_raised()

    def adopt_loop(self) -> None:
        """Run all async handlers on the event loop that is running here, in the place of one on a thread of its own.

        Raises:
            RunError: GBE638 when there is one already.
        """
        self._sync.adopt_loop()

    def deliver_again(self, event: Event, subscription: Subscription | None, attempt: int = 1) -> None:
        """Queue an event once more, for this subscription or for all; safe from any thread, and delivers nothing itself.

        What the handler publishes has the ids that it had at the first attempt.

        Args:
            event: As it was delivered before.
            subscription: When it is unsubscribed meanwhile, the event is a dead letter.
            attempt: Which attempt it will be.
        """
        self._sync.deliver_again(event, subscription, attempt)

    def deliver_once_more(self, event: Event, subscription: Subscription | None) -> Receipt:
        """Queue an event that has a tree of its own, for this subscription or for all, and follow what comes of it.

        Its dead letters do not go to the keeper until `release_dead_letters`.

        Raises:
            RunError: GBE615 closed bus, GBE648 inside a handler.
        """
        sync = self._sync
        sync.refuse_in_handler()
        if sync.is_closing:
            raise RunError("GBE615", topic=event.topic)
        self._letters.claim(event)
        receipt = Receipt(event.root, sync.is_handling)
        receipt.then(self._bell.ring)
        self._core.receipts.open(receipt)
        self._queue.append(sync.entry(event, subscription))
        self._bell.ring()
        return receipt

    # --- calls ---

    def run(self, work: Callable[[], R], *, owner: str = "") -> R | Awaitable[R]:
        """Run a function while no handler runs, deliver what it has published, and give its result.

        Inside a handler it runs at once; inside an async handler it gives an awaitable. From another thread it waits its turn.

        Args:
            work: May give an awaitable if its owner has async handlers.
            owner: The agent that the function belongs to.

        Raises:
            DeadlockError: GBE633 when the owner, whose work runs on the event loop one after the other, waits for this already.
        """
        return self._calls.run(work, owner)

    def caller(self, function: Callable[[A], Any], *, owner: str = "") -> Callable[[A], Any]:
        """Make a function that calls another as `run` does, but at once when nobody is at work.

        Args:
            function: Belongs to an owner without async handlers.
            owner: The agent that the function belongs to.
        """
        core, sync, queue, called = self._core, self._sync, self._queue, ((owner, owner),)

        def call(argument: A) -> Any:
            turn = core.turn_of_callers
            if not turn or queue or core.round.event is not None:
                return self._calls.run(lambda: function(argument), owner)
            try:
                del turn[0]  # see `Core.take_turn`
            except IndexError:
                return self._calls.run(lambda: function(argument), owner)
            is_over = False
            try:
                core.deliverer, sync.called = get_ident(), called
                result = function(argument)
                is_over = True
            finally:
                sync.called = ()
                try:
                    if queue and (is_over or isinstance(exception(), Exception)):
                        sync.drain()  # after a KeyboardInterrupt nothing more is delivered
                finally:
                    core.deliverer = 0
                    turn.append(None)
                    if self._bell.waiting:
                        self._bell.ring()
            if queue or core.turn_of_callers is not turn:
                sync.until(sync.is_quiet)
            return result

        return call

    def request(
        self, topic: str | Topic[Any], payload: Json = None, timeout_s: float | None = 30.0, *, src: str = ""
    ) -> Any:
        """Send an event to the one handler that answers it, and give what that returns; inside an async handler, to be awaited.

        It is a call that is addressed by a topic. The exception of the handler is raised here and is no dead letter. Handlers of
        a pattern hear it like any event, and so do those of the very topic with `-> None` beside the one that answers. A `def`
        handler that runs in place of the one who asks cannot be interrupted: it is waited for however long it takes.

        Args:
            topic: Exactly one handler of this very topic must answer.
            payload: A JSON-shaped value.
            timeout_s: How long to wait; None: for ever.
            src: The agent that asks.

        Raises:
            RunError: GBE631 no handler, GBE632 several, GBE637 too long a chain, and what `publish` raises.
            RequestTimeoutError: GBE635. A handler that has begun goes on; what it raises then is a dead letter.
            DeadlockError: GBE633 when who would answer waits for this already.
        """
        name, dispatch = self._open(topic)
        if dispatch.check is not None:
            payload = dispatch.check(payload)
        return self._calls.request(dispatch, name, payload, timeout_s, src)

    # --- waiting ---

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until all is quiet: nothing is queued or in hand, and no further attempt waits. False when that takes longer.

        Args:
            timeout_s: How long; None: as long as it takes.

        Raises:
            RunError: GBE648 inside a handler, which would wait for itself.
            Exception: With `on_error="raise"`, what a further attempt has raised.
        """
        sync, core = self._sync, self._core
        sync.refuse_in_handler()

        def is_done() -> bool:
            return sync.is_loop_idle() and core.next_due() is None

        return sync.until_or_raise(lambda: sync.is_at_rest(is_done), timeout_s)

    def refuse_in_handler(self) -> None:
        """Raise RunError GBE648 inside a handler: who waits there waits for itself."""
        self._sync.refuse_in_handler()

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Deliver, or wait while others do, until a receipt is done. False when the bus is closed and it never will be.

        Args:
            is_rest_enough: Come back as well when the whole bus has nothing left to do but further attempts.

        Raises:
            RunError: GBE648 inside a handler.
            Exception: With `on_error="raise"`, what a further attempt has raised.
        """
        sync = self._sync
        sync.refuse_in_handler()
        is_so = sync.until_or_raise(lambda: receipt.is_done or (is_rest_enough and sync.is_quiet()), None)
        return receipt.is_done or (not is_so and receipt.wait(_PATIENCE_S))

    # --- life ---

    def start_dispatcher(self, on_interruption: Callable[[], None] = lambda: None) -> None:
        """From now on one thread delivers, and a publish from outside only queues.

        Args:
            on_interruption: Called on that thread when a KeyboardInterrupt, SystemExit or CancelledError of a handler has ended
                it; the queue is kept, and `close` delivers it.
        """
        self._sync.start_dispatcher(on_interruption)

    @property
    def is_dispatcher_lost(self) -> bool:
        """There was a thread that delivers, and it has ended although nobody has stopped it."""
        dispatcher = self._sync.dispatcher
        return dispatcher is not None and not dispatcher.is_alive()

    @property
    def interruption(self) -> BaseException | None:
        """What has ended the dispatcher, if anything."""
        return self._sync.interruption

    def is_drained_by(self, thread: int | None) -> bool:
        """True while the thread with this identity delivers events."""
        return self._core.deliverer == thread

    def close(self, grace_s: float = 10.0, last: Callable[[], None] | None = None, ends: Iterable[End] = ()) -> None:
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

    # --- what there was ---

    def history(self) -> tuple[Event, ...]:
        """The last events in the order of their delivery."""
        return tuple(self._history.copy())

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last dead letters, oldest first."""
        return tuple(self._letters.ring.copy())

    def release_dead_letters(self, event: Event) -> tuple[DeadLetter, ...]:
        """Give what has died of an event that was delivered once more; from now on its dead letters go to the keeper."""
        return self._letters.release(event)

    def forget_dead_letter(self, letter: DeadLetter) -> None:
        """Take a letter out of the ring, if it is there; it stays counted."""
        self._letters.forget(letter)

    @property
    def keeper(self) -> DeadLetterKeeper | None:
        """Who gets every dead letter besides the ring, at once and on whatever thread it dies; it must not raise."""
        return self._letters.keeper

    @keeper.setter
    def keeper(self, keeper: DeadLetterKeeper | None) -> None:
        self._letters.keeper = keeper

    def statistics(self) -> Statistics:
        """Count what has happened so far."""
        return self._routes.statistics(queued=len(self._queue), dead_letters=self._letters.count)


def _tell(loop: LoopDriver, settle: Callable[[], None]) -> None:
    loop.loop.call_soon_threadsafe(settle)


SimpleMessageBus = MessageBus  # the name that seed 001 uses

__all__ = ["MessageBus", "OnError", "SimpleMessageBus", "Subscription"]
