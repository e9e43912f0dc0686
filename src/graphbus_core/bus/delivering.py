"""The delivery loop of a bus: what is published, how it is delivered, and what becomes of each handler's call.

    publish -> queue -> one thread at a time drains: event by event, handler by handler, run to completion
                          |- `def` handlers: called in place          |- agents with `async def` handlers: lanes

Who publishes while nobody drains, drains, unless there is a dispatcher: then it alone does. A publish inside a handler, or from
another thread meanwhile, only queues. On the thread of the event loop, what only lanes hear is put into them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Thread, get_ident
from typing import cast

from graphbus_core.bus import lanes as loop
from graphbus_core.bus.lanes import Delivery, Lanes
from graphbus_core.bus.ledger import without_ours
from graphbus_core.bus.placing import Placer
from graphbus_core.bus.queueing import OnError, Redelivery
from graphbus_core.bus.receipts import Receipt
from graphbus_core.bus.right import Right
from graphbus_core.bus.routing import Call, Dispatch, Subscription
from graphbus_core.clock import SystemClock
from graphbus_core.errors import RunError
from graphbus_core.isolation import Job, attempt_anything, run_each, run_one
from graphbus_core.isolation import attempt as try_to
from graphbus_core.log import Log
from graphbus_core.model.messages import Event
from graphbus_core.schema.json import Json

_log = Log("graphbus.bus")

_NO_MORE: Iterator[Call] = iter(())
"""What is left to call when the only handler is at work: nothing."""


class Deliverer(Placer):
    """Delivers events to handlers, in one total order. `MessageBus` is its public face; see there for the arguments."""

    # --- publishing ---

    def publish(self, topic: str, payload: Json = None, *, src: str = "") -> Receipt | None:
        """Send an event to all handlers of the topic; safe from any thread.

        Returns:
            With a dispatcher, to a publisher from outside: the receipt. Else None: an outermost publish has delivered everything
            when it returns, and one inside a handler, or while another thread delivers, only queues.

        Raises:
            RunError: GBE610 malformed topic, GBE612, GBE613 not JSON or too large, GBE615 closed bus, and what `admit` refuses.
            BackpressureError: GBE636 too many events wait; inside a handler the event is a dead letter instead.
        """
        dispatch = self._dispatches.get(topic) or self._open(topic)
        check = dispatch.check
        if check is not None:
            payload = check(payload)
        lanes, queue, now = self._lanes, self._queue, self._time
        others: Sequence[Delivery] = ()
        if lanes is not None:
            if lanes.home == get_ident() or loop.current() is not None:
                return self._publish_on_loop(lanes, topic, payload, src)
            others = lanes.now_under_way()
        try:
            del self._right_of_callers.token
        except AttributeError:  # a handler of this thread publishes, or another thread drains
            return self._enqueue(topic, payload, src)
        try:
            self._drainer = get_ident()
            event = Event(topic, payload, src, now())
            if queue or self._event is not None:
                queue.append(event)
            else:  # what `_take_next` does, without the queue
                self._history.append(event)
                dispatch.events += 1
                self._dispatch = dispatch
                if (only := dispatch.only) is not None:
                    self._calls = _NO_MORE
                    self._event = event
                    run_one(only, event, self._on_failure)
                else:
                    self._calls = calls = iter(dispatch.calls)
                    self._event = event
                    run_each(calls, event, self._on_failure)
                self._event = None
            if queue:
                self._drain()
        finally:
            self._drainer = 0
            self._right_to_drain.token = []
            if self._waiting:
                self._bell.ring()
        if queue or self._lanes is not None:
            self._until_all_but(others)
        return None

    def deliver_again(self, event: Event, subscription: Subscription | None, attempt: int = 1) -> None:
        """Queue an event once more, for this subscription or for all; safe from any thread, and delivers nothing itself.

        What the handler publishes has the ids that it had at the first attempt.

        Args:
            event: As it was delivered before.
            subscription: When it is unsubscribed meanwhile, nothing happens.
            attempt: Which attempt it will be.
        """
        if self._followed:
            self._receipts.hold(event)
        self._queue.append(event if subscription is None else Redelivery(event, subscription, attempt))
        self._ask_a_thread()

    def _deliver_due(self) -> None:
        """What has fallen due is delivered by whoever drains, else by the thread that keeps the time.

        That one never waits for async handlers, unless it is a test that lets the time pass.
        """
        self._bell.ring()
        if self._is_handling() or self._dispatcher is not None:
            return
        self._drain_if_free(self._drain_late)
        if not isinstance(self._clock, SystemClock):
            self._keep_error(lambda: self._until(self._is_quiet))

    def _drain_late(self) -> None:
        """Who waits in `settle` is to find the error when this thread no longer has the right to drain."""
        self._keep_error(self._drain)

    def _keep_error(self, work: Callable[[], object]) -> None:
        _, error = try_to(work)
        if error is not None:  # only with `on_error="raise"`
            self._late_error = self._late_error or error
            self._bell.ring()
            raise error

    # --- delivering ---

    def _drain(self) -> None:
        if self._event is not None:
            self._resume(self._event)
        while (self._errands or self._queue) and not self._is_late():
            if self._errands:
                self._errands.popleft().do()
            elif self._take_next():
                return
        if self._is_over:
            self._bury()  # a handler that was left behind has published

    def _fill(self, lanes: Lanes) -> bool:
        queue = self._queue
        if self._event is not None or self._is_late():
            return False
        while queue:
            item = queue[0]
            if not isinstance(item, Event):
                return False
            dispatch = self._dispatches.get(item.topic) or self._routes.compile(item.topic)
            if not self._has_room(lanes, dispatch):
                return False
            if not self._leave_queue(item):
                return True
            self._history.append(item)
            dispatch.events += 1
            for call in dispatch.calls:
                call(item)
            if self._followed:
                self._receipts.release(item)
        return True

    def _take_next(self) -> bool:
        """Deliver the first of the queue; it leaves the queue when it cannot get lost any more.

        Returns:
            True when this thread has to leave the rest to another one.
        """
        try:
            item = self._queue[0]
        except IndexError:  # somebody else has closed the bus
            return True
        if isinstance(item, Job):
            try:
                item.perform()
            finally:
                self._leave_queue(item)
                self._bell.ring()
            return not self._may_drain()  # it may have started a dispatcher
        if isinstance(item, Redelivery):
            self._take_again(item)
            return False
        dispatch = self._dispatches.get(item.topic) or self._routes.compile(item.topic)
        self._history.append(item)
        dispatch.events += 1
        self._begin_round(item, item, dispatch)
        return False

    def _take_again(self, item: Redelivery) -> None:
        event, subscription, self._attempt = item
        dispatch = self._routes.only(subscription, item.attempt)
        if not dispatch.calls:
            self._miss(item)
        subscription.delivered += len(dispatch.calls)
        failed = subscription.failed
        self._begin_round(item, event, dispatch)
        is_over = not dispatch.calls or not self._routes.is_async(subscription)
        if is_over and subscription.failed == failed:
            self._retries.forget(event, subscription)

    def _begin_round(self, item: Event | Redelivery, event: Event, dispatch: Dispatch) -> None:
        if self._followed:
            dispatch = self._recorded(dispatch, event)
        self._dispatch = dispatch
        self._calls = iter(dispatch.calls)
        self._event = event
        if self._leave_queue(item):
            self._resume(event)
        else:
            self._event = None

    def _recorded(self, dispatch: Dispatch, event: Event) -> Dispatch:
        """The same calls, with what they return in the receipt, if the event has one."""
        if not self._receipts.has(event):
            return dispatch

        def recorded(call: Call, subscription: Subscription) -> Call:
            return lambda event: self._receipts.note(event, subscription.name, call(event))

        calls = [
            call if self._routes.is_async(each) else recorded(call, each)
            for call, each in zip(dispatch.calls, dispatch.subscriptions, strict=True)
        ]
        return Dispatch(calls, dispatch.subscriptions, None)

    def _leave_queue(self, item: Event | Job | Redelivery) -> bool:
        """Take the first out of the queue; False when another thread has closed the bus and was quicker."""
        try:
            first = self._queue.popleft()
        except IndexError:
            return False
        if first is item:
            return True
        self._queue.appendleft(first)
        return False

    def _resume(self, event: Event) -> None:
        """Call the handlers that have not been called yet: all, or after an interruption the rest."""
        run_each(self._calls, event, self._on_failure)
        self._event = None
        self._attempt = 1
        if self._followed:
            self._receipts.release(event)

    def _open(self, topic: str) -> Dispatch:
        """A topic that is published for the first time, or any topic of a bus that is closing."""
        if self._is_closing and not self._is_handling():
            raise RunError("GBE615", topic=topic)
        return self._routes.compile(topic)

    # --- the dispatcher ---

    def start_dispatcher(self, on_interruption: Callable[[], None] = lambda: None) -> None:
        """From now on one thread delivers, and a publish from outside only queues.

        Args:
            on_interruption: Called on that thread when a KeyboardInterrupt, SystemExit or CancelledError of a handler has ended
                it; the queue is kept, and `close` delivers it.
        """
        self._on_interruption = on_interruption
        self._right_of_callers = Right()
        self._dispatcher = Thread(target=self._dispatch_all, name="graphbus-dispatcher", daemon=True)
        self._dispatcher.start()

    @property
    def is_dispatcher_lost(self) -> bool:
        """There was a thread that delivers, and it has ended although nobody has stopped it."""
        dispatcher = self._dispatcher
        return dispatcher is not None and not dispatcher.is_alive()

    def _dispatch_all(self) -> None:
        self.interruption = attempt_anything(self._serve_until_stopped)
        if self.interruption is not None:
            self._bell.ring()  # who closes the bus delivers now
            _log.error("a handler has ended the delivery of events", exc_info=without_ours(self.interruption))
            self._on_interruption()

    def _serve_until_stopped(self) -> None:
        while not self._is_stopping:
            self._drain_if_free()
            raised = self._first_raised()
            if raised is not None:
                raise raised
            self._bell.wait(lambda: self._is_stopping or self._raised or self._has_work())

    # --- what becomes of a call ---

    def _failed(self, error: Exception) -> None:
        """A handler that was called in place has raised."""
        event, position = cast("Event", self._event), self._position
        subscription = self._dispatch.subscriptions[position]
        with self._judging:
            is_buried = event is self._buried
            self._failing = event, position
        if is_buried:
            self._ledger.failed(event, subscription.name, error, attempt=self._attempt, is_dead=True)
        elif self._judge(event, subscription, error, self._attempt):
            raise error


__all__ = ["Deliverer", "OnError"]
