"""The delivery loop of a bus: the queue, the one thread at a time that drains it, and what becomes of each handler's call.

    publish -> queue -> one thread at a time drains: event by event, handler by handler, run to completion
                          |- `def` handlers: called in place          |- agents with `async def` handlers: lanes

Who publishes while nobody drains, drains. A publish inside a handler, or from another thread meanwhile, only queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import length_hint
from threading import Lock, Thread, get_ident
from time import monotonic, time
from typing import Literal, NamedTuple, TypeVar, cast

from graphbus_core.clock import Clock, SystemClock
from graphbus_core.errors import RunError
from graphbus_core.isolation import Job, run_each
from graphbus_core.isolation import attempt as try_to
from graphbus_core.lanes import Delivery, Lanes, within
from graphbus_core.ledger import Ledger, tell
from graphbus_core.middleware import Middleware
from graphbus_core.model.deliveries import Retry
from graphbus_core.model.messages import Event, child_of, count_descendant
from graphbus_core.model.payload import freeze
from graphbus_core.model.proposals import Json
from graphbus_core.redelivery import decide
from graphbus_core.retries import Retries, Waiting
from graphbus_core.routing import Admit, Call, Dispatch, Routes, Subscription

R = TypeVar("R")

OnError = Literal["isolate", "raise"]


class Redelivery(NamedTuple):
    """A further attempt to deliver one event to one subscription."""

    event: Event
    subscription: Subscription
    attempt: int


class Deliverer:
    """Delivers events to handlers, in one total order. `MessageBus` is its public face; see there for the arguments."""

    def __init__(
        self,
        *,
        history: int,
        on_error: OnError,
        max_hops: int,
        max_tree: int,
        dead_letters: int,
        mailbox: int,
        known_topics: int,
        admit: Admit | None,
        middleware: Sequence[Middleware],
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._has_own_clock = clock is None
        self._time = (
            time if clock is None else clock.time
        )  # without the way through the clock where it makes no difference
        self._on_error = on_error
        self._max_hops = max_hops
        self._max_tree = max_tree
        self._mailbox = mailbox
        self._routes = Routes(self._put, admit, known_topics, middleware)
        self._dispatches = self._routes.dispatches
        self._ledger = Ledger(history, dead_letters, self._clock)
        self._retries = Retries(self._clock, self._enqueue_again, self._deliver_due)
        self._history = self._ledger.history
        self._queue: deque[Event | Job | Redelivery] = deque()
        # Whoever deletes the one token drains; append gives it back. No signal can arrive between `del` and the `try` after it.
        self._right_to_drain: list[None] = [None]
        self._drainer = 0
        self._event: Event | None = None  # being delivered; still set after an interruption
        self._attempt = 1
        self._dispatch = Dispatch([], [], None)
        self._calls: Iterator[Call] = iter(())
        self._publishing = (self._calls, -1)  # the delivery, by its iterator, and the handler that published last
        self._children = 0  # how many it has published
        self._lanes: Lanes | None = None
        self._is_closing = False
        self._on_failure = self._failed  # bound once: binding costs as much as a handler
        self._judging = Lock()
        self._deadline: float | None = None
        self._is_abandoned = False
        self._late_error: Exception | None = None

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
            event = Event(topic, payload, src, self._time())
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

    def deliver_again(self, event: Event, subscription: Subscription | None, attempt: int = 1) -> None:
        """Queue an event once more, for this subscription or for all; safe from any thread, and delivers nothing itself.

        What the handler publishes has the ids that it had at the first attempt.

        Args:
            event: As it was delivered before.
            subscription: When it is unsubscribed meanwhile, nothing happens.
            attempt: Which attempt it will be.
        """
        self._queue.append(event if subscription is None else Redelivery(event, subscription, attempt))
        self._wake()
        if not self._drainer:
            Thread(target=self._drain_if_free, name="graphbus-drain").start()

    def _enqueue_again(self, waiting: Waiting) -> None:
        self._queue.append(Redelivery(waiting.event, waiting.subscription, waiting.attempt))

    def _deliver_due(self) -> None:
        """What has fallen due is delivered by whoever drains, else by the thread that keeps the time."""
        self._wake()
        if not self._is_inside:
            _, error = try_to(self._drain_if_free)
            if error is not None:  # only with `on_error="raise"`: for whoever waits in `settle`
                self._late_error = self._late_error or error
                raise error

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

    def run_quiet(self, work: Callable[[Routes], R], patience_s: float) -> R:
        """Run a function while nothing is being handled at all, on the event loop neither; it may exchange who is served.

        What is published meanwhile waits.

        Raises:
            RunError: GBE690 inside a handler, and when the handlers on the event loop have not ended in time.
        """
        if self._is_inside or Lanes.current() is not None:
            raise RunError("GBE690", reason="one of its handlers asks for it")
        return cast("R", self.run(lambda: self._run_when_quiet(work, monotonic() + patience_s)))

    def _run_when_quiet(self, work: Callable[[Routes], R], deadline: float) -> R:
        lanes = self._lanes
        while lanes is not None and monotonic() < deadline and lanes.wait(deadline):
            self._settle(lanes)
        if lanes is not None and not lanes.is_idle:
            raise RunError("GBE690", reason="an async handler does not come to its end")
        return work(self._routes)

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

    # --- causes ---

    def _enqueue(self, topic: str, payload: Json, src: str) -> None:
        frozen = freeze(payload)
        cause = self._cause()
        if cause is None:
            self._queue.append(Event(topic, frozen, src, self._time()))
        else:
            event, by, ordinal = cause
            child = child_of(event, topic, frozen, src, by=by, ordinal=ordinal, timestamp=self._time())
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
        self._attempt = 1

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
        if isinstance(item, Redelivery):
            self._take_again(item)
            return
        dispatch = self._dispatches.get(item.topic) or self._routes.find(item.topic)
        self._history.append(item)
        dispatch.events += 1
        self._dispatch = dispatch
        self._calls = iter(dispatch.calls)
        self._event = item
        self._leave_queue(item)
        self._resume(item)

    def _take_again(self, item: Redelivery) -> None:
        event, subscription, attempt = item
        self._attempt = attempt
        dispatch = self._routes.only(subscription, attempt)
        subscription.delivered += len(dispatch.calls)
        self._dispatch = dispatch
        self._calls = iter(dispatch.calls)
        self._event = event
        self._leave_queue(item)
        failed = subscription.failed
        self._resume(event)
        if subscription.failed == failed and subscription.lane not in self._routes.async_lanes:
            self._retries.forget(event, subscription)

    def _leave_queue(self, item: Event | Job | Redelivery) -> None:
        if self._queue and self._queue[0] is item:  # another thread may have closed the bus and emptied the queue
            self._queue.popleft()

    def _settle(self, lanes: Lanes) -> None:
        while lanes.done:
            delivery = lanes.done.popleft()
            lanes.settle()
            if delivery.about is None:
                continue
            event, subscription = delivery.about
            if delivery.error is None:
                if delivery.attempt > 1:
                    self._retries.forget(event, subscription)
                continue
            if not isinstance(delivery.error, Exception):
                raise delivery.error
            self._judge(event, subscription, delivery.error, delivery.attempt)

    def _failed(self, error: Exception) -> None:
        """A handler that was called in place has raised."""
        subscription = self._dispatch.subscriptions[self._position]
        self._judge(cast("Event", self._event), subscription, error, self._attempt)

    def _judge(self, event: Event, subscription: Subscription, error: Exception, attempt: int) -> None:
        """Decide what becomes of an event that a handler could not handle: the one place for all handlers and attempts."""
        decision = decide(subscription.policy, attempt, error)
        with self._judging:
            subscription.failed += 1
            if isinstance(decision, Retry) and self._try_again(event, subscription, error, attempt, decision.delay_s):
                return
            since = self._retries.first_failure(event, subscription) if attempt > 1 else None
            self._ledger.failed(event, subscription.name, error, attempt=attempt, since=since)
        self._retries.forget(event, subscription)
        if self._on_error == "raise":
            raise error

    def _try_again(
        self, event: Event, subscription: Subscription, error: Exception, attempt: int, delay_s: float
    ) -> bool:
        told = tell(error)
        if not self._retries.plan(event, subscription, attempt=attempt + 1, delay_s=delay_s, error=told):
            return False
        of = subscription.policy.retries + 1
        self._ledger.retrying(event, subscription.name, told, attempt=attempt, of=of, delay_s=delay_s)
        return True

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

    def _put(self, subscription: Subscription, call: Call, event: Event, attempt: int) -> None:
        """Send the event to a handler that runs on the event loop."""

        def work() -> object:
            return call(event) if subscription.is_active else None

        def work_in_time() -> object:
            result = work()
            return within(timeout_s, result) if isinstance(result, Awaitable) else result

        timeout_s = subscription.policy.timeout_s or 0.0
        what = work_in_time if timeout_s else work
        self._ready_lanes().put(subscription.lane, Delivery(what, (event, subscription), attempt))

    def _ready_lanes(self) -> Lanes:
        self._lanes = self._lanes or Lanes(self._mailbox)
        return self._lanes
