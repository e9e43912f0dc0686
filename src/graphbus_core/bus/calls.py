"""Calls of methods, and requests, which one handler answers: work whose result the caller waits for.

Where the work runs depends on the caller and on the agent that is called (lanes and the turn are explained in `core`):

    caller \\ called agent       without `async def` handlers               with `async def` handlers
    a thread outside handlers   a job in the queue runs it                 a job in the queue puts it into the agent's lane
    a `def` handler             runs at once, inside the handler           goes into the agent's lane; the handler waits
    an `async def` handler      a delivering thread runs a `ThreadJob`     goes into the agent's lane; the handler awaits it
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
    """Runs calls and requests, and returns their results to the callers."""

    def __init__(self, core: Core, sync: SyncDriver, publisher: Publisher, failures: Failures) -> None:
        self._core, self._sync, self._publisher, self._failures = core, sync, publisher, failures

    def run(self, work: Callable[[], R], owner: str) -> R | Awaitable[R]:
        """Run `work` as a call of the agent `owner` and return its result; on the event loop, an awaitable of it.

        Raises:
            DeadlockError: GBE633 if the owner waits for this call itself.
            RunError: GBE618 if the bus is closed first; GBE628 in a `def` handler that runs on the loop.
            Exception: What `work` raises.
        """
        sync = self._sync
        is_async = owner in self._core.routes.async_lanes
        loop = sync.loop
        is_on_loop = loop is not None and loop.is_here and not sync.is_inside
        chain = self._refuse_deadlock(owner, owner, owner, is_awaited=is_async or is_on_loop)
        delivery = Delivery(work, owner, chain=chain, on_end=_ignore_end)
        if loop is not None and is_on_loop:
            return self._begin_on_loop(loop, delivery, lambda: self._begin(delivery, is_async=is_async), None, is_async)
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
        if not self._begin_as_job(delivery, lambda: self._begin(delivery, is_async=is_async), None):
            raise RunError("GBE618")  # the bus was closed
        result = _result_or_raise(delivery)
        return result

    def request(self, dispatch: Dispatch, topic: str, payload: Json, timeout_s: float | None, src: str) -> Any:
        """Send a request to the one handler that answers it, and return its result; on the event loop, an awaitable of it.

        Raises:
            RunError: What `MessageBus.request` raises.
        """
        sync = self._sync
        responder = self._find_responder(topic, dispatch)
        chain = self._refuse_deadlock(responder.lane, responder.name, topic)
        event = self._create_request_event(topic, freeze(payload), src)
        delivery = Delivery(responder.call, responder.lane, event, responder, chain=chain, on_end=self._end_request)
        delivery.timeout_s = responder.policy.timeout_s
        cause = self._publisher.current_cause()
        if type(cause) is Delivery:
            delivery.outbox = cause.outbox

        is_async = self._core.routes.is_async(responder)

        def begin() -> None:
            self._queue_for_others(event, responder, dispatch)
            self._begin(delivery, is_async=is_async)

        loop = sync.loop
        if loop is not None and loop.is_here and not sync.is_inside:
            return self._begin_on_loop(loop, delivery, begin, timeout_s, is_async)
        if sync.is_inside:
            with self._waiting_for(delivery, topic):
                begin()
                is_in_time = sync.wait_in_handler(lambda: delivery.is_over, timeout_s)
        else:
            is_in_time = self._begin_as_job(delivery, begin, timeout_s)
        if not is_in_time:
            raise self._give_up(delivery, timeout_s)
        return _result_or_raise(delivery)

    def deliver(self, delivery: Delivery) -> None:
        """Deliver an event to one subscription, outside of the order of the queue; the delivery's `on_end` is called at its end.

        The events that the handler publishes are collected in `outbox`. With a dispatcher this returns at once. Without one, a
        `def` handler has returned by then, and an `async def` handler has begun on the loop.
        """
        core, sync, subscription = self._core, self._sync, delivery.subscription
        is_async = core.routes.is_async(subscription)

        def begin() -> None:
            core.history.append(delivery.event)
            core.routes.count(subscription, published=1)
            self._begin(delivery, is_async=is_async)

        if sync.dispatcher is not None:
            core.queue.append(Job(begin))
            sync.wake_deliverer()
        elif is_async:
            begin()
        else:
            sync.deliver(begin)

    def _queue_for_others(self, event: Event, responder: LiveSubscription, dispatch: Dispatch) -> None:
        """Count the event of a request, and queue it for the handlers of the topic that do not answer."""
        core, sync = self._core, self._sync
        core.history.append(event)
        core.routes.count(responder, published=1)
        others = [each for each in dispatch.subscriptions if each is not responder and each.is_active]
        for _ in [responder, *others] if core.receipts.followed else ():  # one count for each delivery
            core.receipts.hold(event)
        core.queue.extend(sync.queue_entry(event, each) for each in others)
        if others and not sync.is_inside:
            sync.wake_deliverer()

    def _find_responder(self, topic: str, dispatch: Dispatch) -> LiveSubscription:
        """Return the handler that answers a request; raise GBE631 if there is none, GBE632 if there are several.

        It subscribes to this topic itself. A single one answers even with `-> None`; of several, only those that return a value.
        """
        exact = [each for each in dispatch.subscriptions if each.topic == topic]
        found = [each for each in exact if each.answers] if len(exact) > 1 else exact
        if not found:
            known = [each.topic for each in self._core.routes.subscriptions if each.topic != topic]
            advice = (
                "Let exactly one of its handlers return a value." if exact else "Add one handler that subscribes to it."
            )
            raise RunError("GBE631", topic=topic, suggestion=did_you_mean(topic, known), advice=advice)
        if len(found) > 1:
            raise RunError("GBE632", topic=topic, count=len(found), names=", ".join(each.name for each in found))
        return found[0]

    def _create_request_event(self, topic: str, payload: Json, src: str) -> Event:
        """Create the event of a request; inside a handler it is a child of the event that is handled.

        Raise GBE637 if its chain is too long or its tree too large; the event is then a dead letter.
        """
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
        """Return the agents that would wait for this call, outermost first; raise DeadlockError if it would never return.

        That is so if the called agent (`lane`) is one of them, or waits for one of them on another thread or lane. With
        `is_awaited=False` it may be one of them: such a call runs on its caller's stack. `name` and `topic` are for the message.
        """
        chain, waits = self._sync.waiting_chain(), self._sync.waits
        if (is_awaited and any(waiting == lane for waiting, _ in chain)) or (
            chain and waits and waits.leads_back(lane, self._busy_lanes(chain))
        ):
            self._raise_deadlock(chain, lane, name, topic)
        return chain

    def _busy_lanes(self, chain: tuple[Waiter, ...]) -> frozenset[Hashable]:
        """Return the lanes of a chain that handle nothing else meanwhile; one with `concurrency` above 1 may."""
        lanes = self._core.lanes
        return frozenset(lane for lane, _ in chain if lane not in lanes or lanes[lane].concurrency == 1)

    @contextmanager
    def _waiting_for(self, delivery: Delivery, topic: str) -> Iterator[None]:
        """While the block runs, note in the graph of waits that the agents in the delivery's chain wait for the called agent.

        Raises:
            DeadlockError: GBE633 if the called agent already waits for one of them; the delivery is then given up.
        """
        held, waits = self._busy_lanes(delivery.chain), self._sync.waits
        if not waits.enter(held, delivery.lane):
            delivery.is_given_up = True
            self._raise_deadlock(delivery.chain, delivery.lane, delivery.name, topic)
        try:
            yield
        finally:
            waits.leave(held, delivery.lane)

    @staticmethod
    def _raise_deadlock(chain: tuple[Waiter, ...], lane: Hashable, name: str, topic: str) -> NoReturn:
        """Raise GBE633. Its message names the handlers of the chain, the called method `name`, and what that waits for."""
        first, *others = [*(waiting for _, waiting in chain), name]
        what = f"The request {topic}" if topic.startswith("/") else f"The call of {topic}"
        in_lane = next((waiting for each, waiting in chain if each == lane), None)
        end = (
            f"which cannot start until {in_lane} returns"
            if in_lane
            else "whose agent already waits for one of these agents"
        )
        chain_text = f"{first} waits for {', which waits for '.join(others)}, {end}"
        raise DeadlockError("GBE633", what=what, chain=chain_text)

    # --- where it runs ---

    def _begin(self, delivery: Delivery, *, is_async: bool) -> None:
        """Put the delivery into its lane if `is_async`, or else run it on this thread now.

        It ends with GBE618 at once if its lane is stuck or the bus is over.
        """
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
            if not delivery.is_over:  # a KeyboardInterrupt or the like has ended it
                self._end(delivery, RunError("GBE618"))

    @staticmethod
    def _end(delivery: Delivery, error: Exception | None) -> None:
        """Set the error of a delivery, mark it as over and call its `on_end`."""
        delivery.error, delivery.is_over = error, True
        cast("Callable[[Delivery], None]", delivery.on_end)(delivery)

    def _begin_as_job(self, delivery: Delivery, begin: Callable[[], None], timeout_s: float | None) -> bool:
        """For callers outside of handlers: queue a job that calls `begin`, and wait until the job and the delivery are over.

        Return False if `timeout_s` passed or the bus was closed first; raise what `begin` raises.
        """
        sync = self._sync
        runner: list[int] = []  # the id of the thread that has run the job
        others = self._core.under_way.copy()

        def work() -> None:
            runner.append(get_ident())
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
        if runner == [get_ident()] and sync.dispatcher is None:  # nobody else waits for what the job has caused
            sync.wait_for_all_but(others)
        return True

    def _begin_on_loop(
        self, loop: LoopDriver, delivery: Delivery, begin: Callable[[], None], timeout_s: float | None, is_async: bool
    ) -> Awaitable[Any]:
        """Begin the delivery from the thread of the loop, and return an awaitable of its result.

        Args:
            begin: Begins the delivery. It is called here if `is_async`; else a thread that delivers calls it as a `ThreadJob`.

        Raises:
            RunError: GBE628 in a plain `def` handler, which cannot await it.
        """
        caller = current_delivery()
        if caller is not None and caller.is_plain:
            raise RunError("GBE628", handler=caller.name)
        answered = loop.loop.create_future()
        on_end = cast("Callable[[Delivery], None]", delivery.on_end)

        def settle() -> None:
            if not answered.done():
                answered.set_result(None)

        def report_end(delivery: Delivery) -> None:
            on_end(delivery)
            with suppress(RuntimeError):  # the loop has ended, and with it the caller
                loop.loop.call_soon_threadsafe(settle)

        delivery.on_end = report_end
        if is_async:
            begin()
        else:
            self._core.thread_jobs.append(ThreadJob(delivery.lane, lambda: self._run_for_handler(caller, begin)))
            self._sync.wake_other_thread()

        async def wait_for_result() -> Any:
            try:
                with self._waiting_for(delivery, delivery.name):
                    async with loop.limit(timeout_s):
                        await answered
            except TimeoutError:
                raise self._give_up(delivery, timeout_s) from None
            return _result_or_raise(delivery)

        return wait_for_result()

    def _run_for_handler(self, caller: Delivery | None, begin: Callable[[], None]) -> None:
        """Call `begin` on the delivering thread; what it publishes counts as published by the handler of `caller`."""
        sync = self._sync
        before = sync.inner, sync.called
        sync.inner, sync.called = caller, ()
        try:
            begin()
        finally:
            sync.inner, sync.called = before

    # --- how it ends ---

    def _end_request(self, delivery: Delivery) -> None:
        """Process the end of a request: its exception gets a note for the caller, who raises it.

        If the caller does not wait any more, the exception is handled like that of any other event.
        """
        event, responder = delivery.event, delivery.subscription
        if isinstance(delivery.error, Exception):
            if delivery.is_given_up:
                delivery.state = RUNNING  # the state that `handle_failure` expects; requests do not use theirs
                self._failures.handle_failure(delivery, delivery.error)
            else:
                responder.failed += 1
                delivery.error.add_note(f"raised by {responder.name} while it handled a request on {event.topic}")
        if self._core.receipts.followed:
            self._core.receipts.release(event)

    def _give_up(self, delivery: Delivery, timeout_s: float | None) -> RunError:
        """Give up a delivery, and return the error for its caller: GBE618 if the bus was closed first, else GBE635."""
        delivery.is_given_up = True
        if timeout_s is None or self._sync.is_late():  # without a time limit only a close ends the wait
            return RunError("GBE618")
        return RequestTimeoutError("GBE635", responder=delivery.name, topic=delivery.event.topic, timeout_s=timeout_s)


def _ignore_end(_delivery: Delivery) -> None:
    """Do nothing at the end of a call: its caller waits for `is_over`."""


def _result_or_raise(delivery: Delivery) -> Any:
    """Return the result of a delivery that is over, or raise its exception."""
    if delivery.error is not None:
        raise delivery.error
    return delivery.result
