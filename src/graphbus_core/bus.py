"""MessageBus: in-process publish and subscribe. Both modes run on it.

    publish -> queue -> one thread at a time drains: event by event, handler by handler, run to completion
                          |- `def` handlers: called in place          |- agents with `async def` handlers: lanes

Who publishes while nobody drains, drains. A publish inside a handler, or from another thread meanwhile, only queues.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from operator import length_hint
from threading import Event as Signal
from threading import Thread, get_ident
from time import monotonic, time
from typing import Any, Literal, TypeVar

from graphbus_core.errors import RunError
from graphbus_core.lanes import Delivery, Lanes
from graphbus_core.model.deliveries import DeadLetter, Reason, Statistics
from graphbus_core.model.messages import Event, child_of, count_descendant
from graphbus_core.model.payload import freeze
from graphbus_core.model.proposals import Json
from graphbus_core.routing import Admit, Dispatch, Routes, Subscription
from graphbus_core.signatures import Handler

T = TypeVar("T")
R = TypeVar("R")

OnError = Literal["isolate", "raise"]

_log = logging.getLogger("graphbus.bus")


class _Job:
    """A function that another thread wants to have run while no handler runs."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.result: Any = None
        self.error: Exception | None = RunError("GBE618")  # what stays when it is interrupted
        self.done = Signal()

    def perform(self) -> None:
        try:
            self.result, self.error = attempt(self.work)
        finally:
            self.done.set()


def run_each(calls: Iterator[Callable[[T], object]], argument: T, failed: Callable[[Exception], object]) -> None:
    """Call each of `calls`; the Exception of one goes to `failed` and does not keep the next from being called."""
    while True:
        try:
            for call in calls:
                call(argument)
            return
        except Exception as error:  # noqa: BLE001 - what a handler raises is its own affair: isolation
            failed(error)


def attempt(work: Callable[[], R]) -> tuple[R | None, Exception | None]:
    """Call `work` and give its result and None, or None and the Exception that it raised."""
    results: list[R] = []
    errors: list[Exception] = []
    run_each(iter([lambda _nothing: results.append(work())]), None, errors.append)
    return (results[0], None) if results else (None, errors[0])


def _skip(_event: Event) -> None:
    """Takes the place of a handler that was unsubscribed while an event was on its way to it."""


def _place_of(error: Exception) -> str:
    """Where it was raised, `file:line`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""


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
        admit: Asked once per topic: raises RunError for an unknown one, or gives the check of its payloads or None.
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
    ) -> None:
        self._on_error = on_error
        self._max_hops = max_hops
        self._max_tree = max_tree
        self._mailbox = mailbox
        self._routes = Routes(self._put, admit, known_topics)
        self._dispatches = self._routes.dispatches
        self._history: deque[Event] = deque(maxlen=history)
        self._dead: deque[DeadLetter] = deque(maxlen=dead_letters)
        self._dead_count = 0
        self._queue: deque[Event | _Job] = deque()
        self._right_to_drain: deque[None] = deque([None])  # whoever pops the one token drains; append gives it back
        self._drainer = 0
        self._event: Event | None = None  # being delivered; still set after an interruption
        self._dispatch = Dispatch([], [], None)
        self._calls: Iterator[Callable[[Event], object]] = iter(())
        self._parent: Event | None = None  # of the last child, with the place of its handler and how many it has
        self._parent_position = -1
        self._children = 0
        self._lanes: Lanes | None = None
        self._is_closing = False
        self._on_failure = self._failed  # bound once: binding costs as much as a handler
        self._deadline: float | None = None

    # --- subscriptions ---

    def subscribe(
        self, topic: str, handler: Handler, *, name: str = "", owner: str = "", with_topic: bool = False
    ) -> Subscription:
        """Call the handler for every event of the topic that is delivered from now on, after those subscribed before.

        Args:
            topic: A topic or a pattern.
            handler: See docs/runtime.md for what it may take.
            name: For logs and dead letters; the handler's qualified name by default.
            owner: The agent; handlers of one owner never run at once. The object of a bound method by default.
            with_topic: The handler takes `(topic, payload)`.

        Raises:
            RunError: GBE610 for a malformed topic, GBE611 for a handler whose signature fits no row of the table.
        """
        return self._routes.add(topic, handler, name=name, owner=owner, with_topic=with_topic)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop calling the handler, also for an event that is on its way; unsubscribing twice does nothing."""
        if self._routes.remove(subscription) and self._event is not None:
            self._take_out(self._dispatch, subscription)

    def _take_out(self, dispatch: Dispatch, subscription: Subscription) -> None:
        """Of the event that is being delivered, if it has not got there yet."""
        for index, each in enumerate(dispatch.subscriptions):
            if each is subscription and index > self._position:
                dispatch.calls[index] = _skip
                subscription.delivered -= 1

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
            RunError: GBE610 for a malformed topic, GBE612 and GBE613 for a payload that is not JSON or too large, GBE615 once
                the bus is closed, and what `admit` refuses.
        """
        dispatch = self._dispatches.get(topic) or self._open(topic)
        if dispatch.check is not None:
            payload = dispatch.check(payload)
        lanes, queue = self._lanes, self._queue
        if lanes is not None and lanes.is_here:
            self._enqueue(topic, payload, src)
            return
        try:
            self._right_to_drain.pop()
        except IndexError:  # a handler of this thread publishes, or another thread drains
            self._enqueue(topic, payload, src)
            return
        try:
            self._drainer = get_ident()
            event = Event(topic, payload, src, time())
            if queue or self._event is not None:
                queue.append(event)
            else:  # what `_deliver` does, without the call
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
        if self._drainer == get_ident():
            return self._run_here(work, owner)
        job = _Job(lambda: self._run_here(work, owner))
        self._queue.append(job)
        self._wake()
        self._drain_if_free()
        job.done.wait()
        if job.error is not None:
            raise job.error
        result: R = job.result
        return result

    def _run_here(self, work: Callable[[], R], owner: str) -> R:
        if owner not in self._routes.async_lanes:
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
        if cause is None:
            self._drain_if_free()

    def _cause(self) -> tuple[Event, str, int] | None:
        """The event whose handler is publishing, the handler, and how many it has published before."""
        event = self._event
        if event is not None and self._drainer == get_ident():
            position = self._position
            if self._parent is not event or self._parent_position != position:
                self._parent, self._parent_position, self._children = event, position, 0
            ordinal = self._children
            self._children += 1
            return event, self._dispatch.subscriptions[position].name, ordinal
        delivery = self._lanes.current() if self._lanes is not None else None
        if delivery is None or delivery.about is None:
            return None
        ordinal = delivery.children
        delivery.children += 1
        event, subscription = delivery.about
        return event, subscription.name, ordinal

    def _runs_away(self, child: Event) -> bool:
        if child.hops > self._max_hops:
            self._bury(child, "", "hops", f"the causal chain has more than {self._max_hops} events", trail=child.trail)
        elif count_descendant(child) > self._max_tree:
            self._bury(child, "", "tree", f"more than {self._max_tree} events came of one", trail=child.trail)
        else:
            return False
        return True

    # --- delivery, by the one thread that has the right to drain ---

    @property
    def _position(self) -> int:
        """Which call of the dispatch is running: a list iterator knows how much of it is left."""
        return len(self._dispatch.calls) - length_hint(self._calls) - 1

    def _deliver(self, event: Event, dispatch: Dispatch) -> None:
        self._history.append(event)
        dispatch.events += 1
        self._dispatch = dispatch
        self._calls = calls = iter(dispatch.calls)
        self._event = event
        run_each(calls, event, self._on_failure)
        self._event = None

    def _resume(self, event: Event) -> None:
        """Go on after an interruption: the handlers that have not been called yet."""
        run_each(self._calls, event, self._on_failure)
        self._event = None

    def _drain_if_free(self) -> None:
        if self._lanes is not None and self._lanes.is_here:
            if self._right_to_drain:  # nobody drains, and the loop must not wait for itself
                Thread(target=self._drain_if_free, name="graphbus-drain").start()
            return
        while self._queue and not self._is_late():
            try:
                self._right_to_drain.pop()
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
        item = self._queue.popleft()
        if isinstance(item, _Job):
            item.perform()
        else:
            self._deliver(item, self._dispatches.get(item.topic) or self._routes.compile(item.topic))

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
        if self._event is not None:
            self._fail(self._event, self._dispatch.subscriptions[self._position], error)

    def _fail(self, event: Event, subscription: Subscription, error: Exception) -> None:
        subscription.failed += 1
        _log.error("%s failed on %s (event %s)", subscription.name, event.topic, event.event_id, exc_info=error)
        self._bury(event, subscription.name, "handler", f"{type(error).__name__}: {error}", place=_place_of(error))
        if self._on_error == "raise":
            raise error

    def _bury(
        self,
        event: Event,
        subscription: str,
        reason: Reason,
        error: str,
        *,
        place: str = "",
        trail: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._dead_count += 1
        letter = DeadLetter(
            event=event,
            subscription=subscription,
            reason=reason,
            error=error,
            timestamp=time(),
            place=place,
            trail=trail,
        )
        self._dead.append(letter)
        if reason != "handler":
            _log.error("%s was not delivered: %s", event.topic, error)

    def _wake(self) -> None:
        if self._lanes is not None:
            self._lanes.wake()

    def _is_late(self) -> bool:
        return self._deadline is not None and monotonic() >= self._deadline

    # --- dispatch tables ---

    def _open(self, topic: str) -> Dispatch:
        """A topic that is published for the first time, or any topic of a bus that is closing."""
        if self._is_closing and self._cause() is None:
            raise RunError("GBE615", topic=topic)
        return self._routes.compile(topic)

    def _put(self, subscription: Subscription, event: Event) -> None:
        """Send the event to a handler that runs on the event loop."""

        def work() -> object:
            return subscription.call(event) if subscription.is_active else None

        self._ready_lanes().put(subscription.lane, Delivery(work, (event, subscription)))

    def _ready_lanes(self) -> Lanes:
        if self._lanes is None:
            self._lanes = Lanes(self._mailbox, attempt)
        return self._lanes

    # --- the end ---

    def close(self, grace_s: float = 10.0, last: Callable[[], None] | None = None) -> None:
        """Refuse new events, deliver what waits, and stop. Closing twice does nothing.

        What is not delivered when the grace is over goes to the dead letters; async handlers are cancelled.

        Args:
            grace_s: How long to wait.
            last: Called after the last event, while the event loop still runs.
        """
        if self._is_closing:
            return
        self._is_closing = True
        self._routes.stop_caching()
        self._deadline = monotonic() + grace_s
        quiet = _Job(lambda: None)
        self._queue.append(quiet)
        self._wake()
        self._drain_if_free()
        quiet.done.wait(max(0.0, self._deadline - monotonic()))
        self._bury_the_rest()
        try:
            if last is not None:
                self._deadline = None
                self.run(last)
        finally:
            if self._lanes is not None:
                self._lanes.stop()

    def _bury_the_rest(self) -> None:
        left = [(item, "") for item in self._queue if isinstance(item, Event)]
        self._queue.clear()
        if self._lanes is not None:
            left += [(about[0], about[1].name) for each in self._lanes.cancel() if (about := each.about) is not None]
        for event, subscription in left:
            self._bury(event, subscription, "closed", "the bus was closed before it was delivered")

    def __enter__(self) -> MessageBus:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    # --- inspection ---

    def history(self) -> tuple[Event, ...]:
        """The last events in the order of their delivery."""
        return tuple(self._history)

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The last dead letters, oldest first."""
        return tuple(self._dead)

    def statistics(self) -> Statistics:
        """Count what has happened so far."""
        published, counts = self._routes.counts()
        return Statistics(
            published=published,
            queued=len(self._queue),
            delivered=sum(count.delivered for count in counts.values()),
            failed=sum(count.failed for count in counts.values()),
            dead_letters=self._dead_count,
            subscriptions=counts,
        )


SimpleMessageBus = MessageBus
"""The name that seed 001 uses."""
