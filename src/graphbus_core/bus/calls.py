"""Calls of methods, and requests, which one handler answers: work whose result the caller waits for.

Where the work runs depends on the caller and on the agent that is called (lanes and the turn are explained in `core`):

    caller \\ called agent       without `async def`, in place              with `async def`, on the loop
    a thread from outside       as a job in the queue                      put into its lane by a job in the queue
    a `def` handler             at once, in the middle of the handler      put into its lane; the handler waits
    an `async def` handler      as a `ThreadJob`, by a delivering thread   put into its lane; awaited
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any, NoReturn, TypeVar, cast

from graphbus_core.bus.core import RUNNING, Core, Delivery, ThreadJob, Waiter
from graphbus_core.bus.failures import Failures
from graphbus_core.bus.loop import LoopDriver, current_delivery
from graphbus_core.bus.publishing import Publisher
from graphbus_core.bus.routes import Dispatch, LiveSubscription
from graphbus_core.bus.sync import SyncDriver
from graphbus_core.bus.waiting import now_plus
from graphbus_core.errors import DeadlockError, RequestTimeoutError, RunError, did_you_mean
from graphbus_core.isolation import Job, attempt
from graphbus_core.model.messages import Event
from graphbus_core.schema.json import Json, freeze

R = TypeVar("R")


class CallRunner:
    """Runs calls and requests, and gives their results to the callers."""

    def __init__(self, core: Core, sync: SyncDriver, publisher: Publisher, failures: Failures) -> None:
        self._core, self._sync, self._publisher, self._failures = core, sync, publisher, failures

    def run(self, work: Callable[[], R], owner: str) -> R | Awaitable[R]:
        """See `MessageBus.run`."""
        sync = self._sync
        is_async = owner in self._core.routes.async_lanes
        loop = sync.loop
        is_on_loop = loop is not None and loop.is_here
        chain = self._refuse_deadlock(owner, owner, owner, is_awaited=is_async or is_on_loop)
        delivery = Delivery(work, owner, chain=chain, on_end=_ignore_end)
        if loop is not None and is_on_loop:
            return self._await(loop, delivery, lambda: self._begin(delivery, is_async=is_async), None, is_async)
        result: R
        if sync.is_inside or sync.closer == get_ident():
            if is_async:
                with self._waiting_for(delivery, owner):
                    self._begin(delivery, is_async=True)
                    sync.wait_in_handler(lambda: delivery.is_over)
            else:
                self._begin(delivery, is_async=False)
            result = _result_or_raise(delivery)
            return result
        if not self._ask_from_outside(delivery, lambda: self._begin(delivery, is_async=is_async), None):
            raise RunError("GBE618")  # the bus was closed
        result = _result_or_raise(delivery)
        return result

    def request(self, dispatch: Dispatch, topic: str, payload: Json, timeout_s: float | None, src: str) -> Any:
        """See `MessageBus.request`."""
        sync = self._sync
        responder = self._responder(topic, dispatch)
        chain = self._refuse_deadlock(responder.lane, responder.name, topic)
        event = self._request_event(topic, freeze(payload), src)
        delivery = Delivery(responder.call, responder.lane, event, responder, chain=chain, on_end=self._end_request)
        delivery.timeout_s = responder.policy.timeout_s

        is_async = self._core.routes.is_async(responder)

        def begin() -> None:
            self._queue_for_others(event, responder, dispatch)
            self._begin(delivery, is_async=is_async)

        loop = sync.loop
        if loop is not None and loop.is_here:
            return self._await(loop, delivery, begin, timeout_s, is_async)
        if sync.is_inside:
            with self._waiting_for(delivery, topic):
                begin()
                is_in_time = sync.wait_in_handler(lambda: delivery.is_over, timeout_s)
        else:
            is_in_time = self._ask_from_outside(delivery, begin, timeout_s)
        if not is_in_time:
            raise self._timeout_error(delivery, timeout_s)
        return _result_or_raise(delivery)

    def _queue_for_others(self, event: Event, responder: LiveSubscription, dispatch: Dispatch) -> None:
        """Count a request, and queue its event for the other handlers of the topic."""
        core, sync = self._core, self._sync
        core.history.append(event)
        core.routes.count(responder, published=1)
        others = [each for each in dispatch.subscriptions if each is not responder and each.is_active]
        for _ in [responder, *others] if core.receipts.followed else ():
            core.receipts.hold(event)
        core.queue.extend(sync.queue_entry(event, each) for each in others)
        if others and not sync.is_inside:
            sync.wake_deliverer()

    def _responder(self, topic: str, dispatch: Dispatch) -> LiveSubscription:
        """Return the one handler that answers: it has this exact topic and returns a value. The others only get the event."""
        exact = [each for each in dispatch.subscriptions if each.topic == topic]
        found = [each for each in exact if each.answers] if len(exact) > 1 else exact
        if not found:
            known = [each.topic for each in self._core.routes.subscriptions if each.topic != topic]
            raise RunError("GBE631", topic=topic, suggestion=did_you_mean(topic, known))
        if len(found) > 1:
            raise RunError("GBE632", topic=topic, count=len(found), names=", ".join(each.name for each in found))
        return found[0]

    def _request_event(self, topic: str, payload: Json, src: str) -> Event:
        """Create the event of a request; inside a handler it becomes a child of the handler's event."""
        cause = self._publisher.current_cause()
        if cause is None:
            event = Event(topic, payload, src, self._sync.time())
            self._publisher.notify_middleware_of_root(event)
            return event
        event = self._publisher.make_child(cause, topic, payload, src)
        if self._publisher.refuse_if_too_long(event):
            raise RunError("GBE637", topic=topic)
        return event

    # --- deadlocks ---

    def _refuse_deadlock(self, lane: Hashable, name: str, topic: str, *, is_awaited: bool = True) -> tuple[Waiter, ...]:
        """Return the agents that would wait for this call, outermost first, or raise DeadlockError if one waits for another.

        That is so if the called agent is among them, or waits for one of them on another thread or lane. A call that is not
        awaited runs on the stack of its caller, so there the called agent may be among them.
        """
        chain, waits = self._sync.waiting_chain(), self._sync.waits
        if (is_awaited and any(waiting == lane for waiting, _ in chain)) or (
            chain and waits and waits.leads_back(lane, self._busy_lanes(chain))
        ):
            self._raise_deadlock(chain, name, topic)
        return chain

    def _busy_lanes(self, chain: tuple[Waiter, ...]) -> frozenset[Hashable]:
        """Return the lanes of a chain that handle nothing else while they wait."""
        lanes = self._core.lanes
        return frozenset(lane for lane, _ in chain if lane not in lanes or lanes[lane].concurrency == 1)

    @contextmanager
    def _waiting_for(self, delivery: Delivery, topic: str) -> Iterator[None]:
        """Note the waiting agents of a delivery while the block runs.

        Raises:
            DeadlockError: GBE633 if the called agent has begun to wait for one of them meanwhile.
        """
        held, waits = self._busy_lanes(delivery.chain), self._sync.waits
        if not waits.enter(held, delivery.lane):
            delivery.is_given_up = True
            self._raise_deadlock(delivery.chain, delivery.name, topic)
        try:
            yield
        finally:
            waits.leave(held, delivery.lane)

    @staticmethod
    def _raise_deadlock(chain: tuple[Waiter, ...], name: str, topic: str) -> NoReturn:
        raise DeadlockError("GBE633", topic=topic, chain=" > ".join([*(waiting for _, waiting in chain), name]))

    # --- where it runs ---

    def _begin(self, delivery: Delivery, *, is_async: bool) -> None:
        """Put the delivery into its lane, or run it on this thread now."""
        sync = self._sync
        if is_async:
            loop = sync.ready_loop()
            if loop.is_stuck(delivery.lane) or sync.is_over:
                self._end(delivery, RunError("GBE618"))
            else:
                concurrency = 1 if delivery.subscription is None else delivery.subscription.policy.concurrency
                loop.put(delivery, self._core.lane(delivery.lane, concurrency))
            return
        before = sync.inner, sync.called
        try:
            if delivery.event is not None:
                sync.inner, sync.called = delivery, ()
            elif delivery.lane != "":
                sync.called = (*sync.called, (delivery.lane, delivery.name))
            delivery.result, error = attempt(delivery.begin)
            self._end(delivery, error)
        finally:
            sync.inner, sync.called = before
            if not delivery.is_over:
                self._end(delivery, RunError("GBE618"))

    @staticmethod
    def _end(delivery: Delivery, error: Exception | None) -> None:
        delivery.error, delivery.is_over = error, True
        cast("Callable[[Delivery], None]", delivery.on_end)(delivery)

    def _ask_from_outside(self, delivery: Delivery, begin: Callable[[], None], timeout_s: float | None) -> bool:
        """Queue a job that begins the delivery, and wait until both are over; False if `timeout_s` passed first."""
        sync = self._sync
        who: list[int] = []
        others = self._core.under_way.copy()

        def work() -> None:
            who.append(get_ident())
            begin()

        job = Job(work)
        try:
            self._core.queue.append(job)
            sync.wake_deliverer()
            is_in_time = sync.wait_until(
                lambda: job.is_over and (delivery.is_over or job.is_refused), now_plus(timeout_s)
            )
        finally:
            job.give_up()
        if not is_in_time:
            return False
        job.result()
        if who == [get_ident()] and sync.dispatcher is None:
            sync.wait_for_all_but(others)
        return True

    def _await(
        self, loop: LoopDriver, delivery: Delivery, begin: Callable[[], None], timeout_s: float | None, is_async: bool
    ) -> Awaitable[Any]:
        """On the loop: begin the delivery, and return an awaitable of its result.

        Raises:
            RunError: GBE628 in a plain `def` handler, which cannot await it.
        """
        asker = current_delivery()
        if asker is not None and asker.is_plain:
            raise RunError("GBE628")
        answered = loop.loop.create_future()
        then = cast("Callable[[Delivery], None]", delivery.on_end)

        def settle() -> None:
            if not answered.done():
                answered.set_result(None)

        def tell(delivery: Delivery) -> None:
            then(delivery)
            with suppress(RuntimeError):  # the loop has ended, and with it the caller
                loop.loop.call_soon_threadsafe(settle)

        delivery.on_end = tell
        if is_async:
            begin()
        else:
            self._core.thread_jobs.append(ThreadJob(delivery.lane, lambda: self._run_for_handler(asker, begin)))
            self._sync.wake_other_thread()

        async def wait() -> Any:
            try:
                with self._waiting_for(delivery, delivery.name):
                    async with loop.limit(timeout_s):
                        await answered
            except TimeoutError:
                raise self._timeout_error(delivery, timeout_s) from None
            return _result_or_raise(delivery)

        return wait()

    def _run_for_handler(self, asker: Delivery | None, begin: Callable[[], None]) -> None:
        """Call `begin` on the delivering thread as if the handler of `asker` did it."""
        sync = self._sync
        before = sync.inner, sync.called
        sync.inner, sync.called = asker, ()
        try:
            begin()
        finally:
            sync.inner, sync.called = before

    # --- how it ends ---

    def _end_request(self, delivery: Delivery) -> None:
        """Process the end of a request: its exception goes to the caller, or is an ordinary failure if nobody waits any more."""
        event, responder = delivery.event, delivery.subscription
        if isinstance(delivery.error, Exception):
            if delivery.is_given_up:
                delivery.state = RUNNING
                self._failures.handle_failure(delivery, delivery.error)
            else:
                responder.failed += 1
                delivery.error.add_note(f"raised by {responder.name} while it handled a request on {event.topic}")
        if self._core.receipts.followed:
            self._core.receipts.release(event)

    def _timeout_error(self, delivery: Delivery, timeout_s: float | None) -> RunError:
        delivery.is_given_up = True
        if timeout_s is None or self._sync.is_late():
            return RunError("GBE618")  # the bus was closed first
        return RequestTimeoutError("GBE635", responder=delivery.name, topic=delivery.event.topic, timeout_s=timeout_s)


def _ignore_end(_delivery: Delivery) -> None:
    """Do nothing at the end of a call: its caller waits for `is_over`."""


def _result_or_raise(delivery: Delivery) -> Any:
    """Return the result of a delivery that is over, or raise its exception."""
    if delivery.error is not None:
        raise delivery.error
    return delivery.result
