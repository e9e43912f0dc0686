"""MessageBus: in-process publish and subscribe. Both modes run on it.

    publish -> queue -> one thread at a time drains: event by event, handler by handler, run to completion
                          |- `def` handlers: called in place          |- agents with `async def` handlers: lanes

Who publishes while nobody drains, drains. A publish inside a handler, or from another thread meanwhile, only queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import length_hint
from threading import Thread, get_ident
from time import monotonic, sleep, time
from typing import Literal, TypeVar, cast

from graphbus_core.errors import RunError
from graphbus_core.isolation import Job, run_each
from graphbus_core.lanes import Delivery, Lanes
from graphbus_core.ledger import Ledger
from graphbus_core.middleware import Middleware
from graphbus_core.model.agent import HandlerShape
from graphbus_core.model.deliveries import ONCE, DeadLetter, DeliveryPolicy, Statistics
from graphbus_core.model.messages import Event, child_of, count_descendant
from graphbus_core.model.payload import freeze
from graphbus_core.model.proposals import Json
from graphbus_core.routing import Admit, Dispatch, Routes, Subscription
from graphbus_core.signatures import Handler

R = TypeVar("R")

OnError = Literal["isolate", "raise"]


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
        mailbox: How many events may wait for one agent with async handlers before the delivery of others waits for it.
        known_topics: How many topics are kept compiled.
        admit: Asked once per topic: raises RunError for an unknown one, or gives the check of its payloads or None.
        middleware: What goes around every handler, outermost first.
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
    ) -> None:
        self._on_error = on_error
        self._max_hops = max_hops
        self._max_tree = max_tree
        self._mailbox = mailbox
        self._routes = Routes(self._put, admit, known_topics, middleware)
        self.middleware = tuple(middleware)
        self._dispatches = self._routes.dispatches
        self._ledger = Ledger(history, dead_letters)
        self._history = self._ledger.history
        self._queue: deque[Event | Job] = deque()
        # Whoever deletes the one token drains; append gives it back. No signal can arrive between `del` and the `try` after it.
        self._right_to_drain: list[None] = [None]
        self._drainer = 0
        self._event: Event | None = None  # being delivered; still set after an interruption
        self._dispatch = Dispatch([], [], None)
        self._calls: Iterator[Callable[[Event], object]] = iter(())
        self._publishing = (self._calls, -1)  # the delivery, by its iterator, and the handler that published last
        self._children = 0  # how many it has published
        self._lanes: Lanes | None = None
        self._is_closing = False
        self._on_failure = self._failed  # bound once: binding costs as much as a handler
        self._deadline: float | None = None
        self._is_abandoned = False

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

    def use_lane(self, owner: str) -> None:
        """Run everything of this owner on the event loop, one after the other, as if it had an async handler."""
        self._routes.use_lane(owner)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All subscriptions, in the order in which they are served."""
        return self._routes.subscriptions

    # --- publishing ---

    def publish(self, topic: str, payload: Json = None, *, src: str = "") -> None:
        """Send an event to all handlers of the topic; safe from any thread.

        Raises:
            RunError: GBE610 malformed topic, GBE612, GBE613 not JSON or too large, GBE615 closed bus, and what `admit` refuses.
        """
        dispatch = self._dispatches.get(topic) or self._open(topic)
        if dispatch.check is not None:
            payload = dispatch.check(payload)
        lanes, queue = self._lanes, self._queue
        if lanes is not None and lanes.is_here:
            self._enqueue(topic, payload, src)
            return
        try:
            del self._right_to_drain[0]
        except IndexError:  # a handler of this thread publishes, or another thread drains
            self._enqueue(topic, payload, src)
            return
        try:
            self._drainer = get_ident()
            event = Event(topic, payload, src, time())
            if queue or self._event is not None:
                queue.append(event)
            else:  # what `_take_next` does, without the queue
                self._history.append(event)
                dispatch.events += 1
                self._dispatch = dispatch
                self._calls = calls = iter(dispatch.calls)
                self._event = event
                run_each(calls, event, self._on_failure)
                self._event = None
            if queue or self._lanes is not None:
                self._drain()
        finally:
            self._drainer = 0
            self._right_to_drain.append(None)
        if queue:
            self._drain_if_free()

    def run(self, work: Callable[[], R], *, owner: str = "") -> R | Awaitable[R]:
        """Run a function while no handler runs, deliver what it has published, and give its result.

        Inside a handler it runs at once; inside an async handler it gives an awaitable. From another thread it waits its turn.

        Args:
            work: May give an awaitable if its owner has async handlers.
            owner: The agent that the function belongs to.
        """
        if self._lanes is not None and self._lanes.is_here:
            return self._lanes.send_out(lambda: self._run_here(work, owner))
        if self._is_inside or self._is_abandoned:
            return self._run_here(work, owner)
        job = Job(lambda: self._run_here(work, owner))
        self._queue.append(job)
        self._wake()
        try:
            self._drain_if_free()
            job.wait()
        finally:
            job.give_up()
        result: R = job.result()
        return result

    def _run_here(self, work: Callable[[], R], owner: str) -> R:
        if owner not in self._routes.async_lanes or self._is_abandoned:
            return work()
        delivery = Delivery(work, None)
        lanes = self._ready_lanes()
        lanes.put(owner, delivery)
        lanes.wait_for(delivery)
        if delivery.error is not None:
            raise delivery.error
        result: R = delivery.result
        return result

    def _enqueue(self, topic: str, payload: Json, src: str) -> None:
        frozen = freeze(payload)
        cause = self._cause()
        if cause is None:
            self._queue.append(Event(topic, frozen, src, time()))
        else:
            event, by, ordinal = cause
            child = child_of(event, topic, frozen, src, by=by, ordinal=ordinal)
            if self._runs_away(child):
                return
            self._queue.append(child)
        self._wake()
        if not self._is_inside:
            self._drain_if_free()

    def _cause(self) -> tuple[Event, str, int] | None:
        """The event whose handler is publishing, the handler, and how many it has published before."""
        event = self._event
        if event is not None and self._is_inside:
            position = self._position
            if self._publishing[0] is not self._calls or self._publishing[1] != position:
                self._publishing, self._children = (self._calls, position), 0
            ordinal = self._children
            self._children += 1
            return event, self._dispatch.subscriptions[position].name, ordinal
        delivery = Lanes.current()
        if delivery is None or delivery.about is None:
            return None
        delivery.children += 1
        event, subscription = delivery.about
        return event, subscription.name, delivery.children - 1

    @property
    def _is_inside(self) -> bool:
        return self._drainer == get_ident()

    def _runs_away(self, child: Event) -> bool:
        if child.hops > self._max_hops:
            self._ledger.stopped(child, "hops", f"the causal chain has more than {self._max_hops} events")
        elif count_descendant(child) > self._max_tree:
            self._ledger.stopped(child, "tree", f"more than {self._max_tree} events came of one")
        else:
            return False
        return True

    @property
    def _position(self) -> int:
        """Which call of the dispatch is running: a list iterator knows how much of it is left."""
        return len(self._dispatch.calls) - length_hint(self._calls) - 1

    def _resume(self, event: Event) -> None:
        """Call the handlers that have not been called yet: all, or after an interruption the rest."""
        run_each(self._calls, event, self._on_failure)
        self._event = None

    def _drain_if_free(self) -> None:
        if self._lanes is not None and self._lanes.is_here:
            if self._right_to_drain:  # nobody drains, and the loop must not wait for itself
                Thread(target=self._drain_if_free, name="graphbus-drain").start()
            return
        while self._queue and not self._is_late():
            try:
                del self._right_to_drain[0]
            except IndexError:
                return
            try:
                self._drainer = get_ident()
                self._drain()
            finally:
                self._drainer = 0
                self._right_to_drain.append(None)

    def _drain(self) -> None:
        while True:
            if self._event is not None:
                self._resume(self._event)
            while self._queue and not self._is_late():
                self._take_next()
            if self._lanes is None or not self._lanes.wait(self._deadline):
                return
            self._settle(self._lanes)

    def _take_next(self) -> None:
        """Deliver the first of the queue; it leaves the queue when it cannot get lost any more."""
        item = self._queue[0]
        if isinstance(item, Job):
            try:
                item.perform()
            finally:
                self._leave_queue(item)
            return
        dispatch = self._dispatches.get(item.topic) or self._routes.compile(item.topic)
        self._history.append(item)
        dispatch.events += 1
        self._dispatch = dispatch
        self._calls = iter(dispatch.calls)
        self._event = item
        self._leave_queue(item)
        self._resume(item)

    def _leave_queue(self, item: Event | Job) -> None:
        if self._queue and self._queue[0] is item:  # another thread may have closed the bus and emptied the queue
            self._queue.popleft()

    def _settle(self, lanes: Lanes) -> None:
        while lanes.done:
            delivery = lanes.done.popleft()
            lanes.settle()
            if delivery.error is None or delivery.about is None:
                continue
            if not isinstance(delivery.error, Exception):
                raise delivery.error
            event, subscription = delivery.about
            self._fail(event, subscription, delivery.error)

    def _failed(self, error: Exception) -> None:
        """A handler that was called in place has raised."""
        self._fail(cast("Event", self._event), self._dispatch.subscriptions[self._position], error)

    def _fail(self, event: Event, subscription: Subscription, error: Exception) -> None:
        subscription.failed += 1
        self._ledger.failed(event, subscription.name, error)
        if self._on_error == "raise":
            raise error

    def _wake(self) -> None:
        if self._lanes:
            self._lanes.wake()

    def _is_late(self) -> bool:
        return self._deadline is not None and monotonic() >= self._deadline

    def _open(self, topic: str) -> Dispatch:
        """A topic that is published for the first time, or any topic of a bus that is closing."""
        if self._is_closing and not self._is_inside and Lanes.current() is None:
            raise RunError("GBE615", topic=topic)
        return self._routes.compile(topic)

    def _put(self, subscription: Subscription, event: Event) -> None:
        """Send the event to a handler that runs on the event loop."""

        def work() -> object:
            return subscription.call(event) if subscription.is_active else None

        self._ready_lanes().put(subscription.lane, Delivery(work, (event, subscription)))

    def _ready_lanes(self) -> Lanes:
        self._lanes = self._lanes or Lanes(self._mailbox)
        return self._lanes

    def close(self, grace_s: float = 10.0, last: Callable[[], None] | None = None) -> None:
        """Refuse new events, deliver what waits, and stop. Closing twice does nothing.

        What is not delivered when the grace is over goes to the dead letters; async handlers are cancelled.

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

    def _wait_for_quiet(self, deadline: float) -> bool:
        """Drain, or wait for the thread that does; False when that one's handler does not return in time."""
        while True:
            look = Job(lambda: len(self._queue) == 1 and (self._lanes is None or self._lanes.is_idle))
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
        left = [(item, "") for item in self._queue if isinstance(item, Event)]
        self._queue.clear()
        if self._lanes is not None:
            left += [(about[0], about[1].name) for each in self._lanes.cancel() if (about := each.about) is not None]
        for event, subscription in left:
            self._ledger.stopped(event, "closed", "the bus was closed first", subscription)

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

    def is_drained_by(self, thread: int | None) -> bool:
        """True while the thread with this identity delivers events."""
        return self._drainer == thread

    def statistics(self) -> Statistics:
        """Count what has happened so far."""
        return self._routes.statistics(queued=len(self._queue), dead_letters=self._ledger.dead_count)


SimpleMessageBus = MessageBus  # the name that seed 001 uses
