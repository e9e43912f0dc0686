"""The driver on an event loop: agents with `async def` handlers run here, each with one event at a time.

    pump:  queue -- fill_lanes --> lanes -- next_in_lane --> first step of the coroutine, at once --> ended
                                                                 '--> it waits: the task of its worker takes the next steps

Most handlers end without waiting for anything; the driver runs them without switching to a task. During the first step the
worker's task is made the current one, because `asyncio.timeout` and the like look for the task that will continue. Each worker
has one contextvars context for all events of its lane: what a handler sets in a ContextVar is seen by the next handler of this
agent, and by no other agent. With `concurrency` above 1 each event has a new context.

A plain `def` handler of an agent that also has `async def` handlers runs on the loop too: on another thread it could run at the
same time as they do. Long computations belong in an agent without `async def`, or in `asyncio.to_thread`. Agents without
`async def` handlers never run here, see `sync`; lanes and the turn are explained in `core`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context, ContextVar
from threading import Thread, get_ident
from typing import TYPE_CHECKING, Any

from graphbus_core.bus.core import Core, Delivery, Lane
from graphbus_core.bus.routes import LiveSubscription
from graphbus_core.bus.waiting import Notifier
from graphbus_core.errors import RunError
from graphbus_core.isolation import ENDED, begin_coroutine, begin_work, drive_to_end, resume_work

if TYPE_CHECKING:
    from asyncio import Future, Task

_PATIENCE_S = 1.0
"""How long a cancelled handler may take to end."""

_MOST_STARTS_IN_A_ROW = 64
"""This many deliveries may start in a row before other callbacks of the loop run."""

_current: ContextVar[Delivery | None] = ContextVar("graphbus_delivery", default=None)
current_delivery, set_current_delivery = _current.get, _current.set
"""The delivery whose handler runs this code, on the loop or in a task or thread that the handler has started; None elsewhere."""


class Worker:
    """Runs the handlers of a lane: it holds their contextvars context, and a task for those that wait for something."""

    __slots__ = ("_core", "_driver", "_handed", "_lane", "_parked", "context", "delivery", "task")

    def __init__(self, driver: LoopDriver, lane: Lane) -> None:
        self._driver, self._core, self._lane = driver, driver.core, lane
        self._handed: Any = ENDED  # what the handler waits for, until the task takes it over; else ENDED
        self._parked: Future[None] | None = None  # the task waits for this future while it is idle
        self.context = Context()
        self.delivery: Delivery | None = None  # the one that waits for something
        self.task: Task[None] | None = None

    def make_task(self) -> Task[None]:
        """Create and return the task; called when it is first needed, and again after a handler was cancelled."""
        task = self.task = self._driver.loop.create_task(self._run_task())
        task.add_done_callback(self._restart_if_cancelled)
        return task

    def begin(self, delivery: Delivery) -> Any:
        """Run the first step of a delivery; return the awaitable that it waits for, or `ENDED`."""
        if self._lane.concurrency > 1:  # else a handler would see what an arbitrary earlier one has set in a ContextVar
            self.context = Context()
        if delivery.timeout_s is not None:
            _add_time_limit(delivery, delivery.timeout_s)
        receipt = delivery.receipt
        is_result_unused = delivery.on_end is None and (receipt is None or receipt.event is not delivery.event)
        subscription = delivery.subscription
        if is_result_unused and subscription.is_async and subscription.is_active:  # `begin_work`, but faster
            awaited = self.context.run(begin_coroutine, delivery, set_current_delivery, delivery.call, delivery.event)
        else:
            awaited = self.context.run(begin_work, delivery, set_current_delivery, delivery.begin)
        self.after_first_step(delivery, awaited)
        return awaited

    def after_first_step(self, delivery: Delivery, awaited: Any) -> None:
        """After the first step: end the delivery if it is over (`ENDED`), else keep it for the next steps."""
        if awaited is ENDED:
            self._lane.idle.append(self)
            self._driver.end_delivery(delivery, self._lane)
        else:
            self.delivery, delivery.worker = delivery, self

    def cancel(self) -> None:
        """Cancel the task, if there is one, and with it the handler that it runs."""
        if self.task is not None:
            self.task.cancel()

    def hand_over(self, awaited: Any) -> None:
        """Let the task take the next steps of the delivery; `awaited` is what it waits for."""
        self._handed = awaited
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)

    async def _run_task(self) -> None:
        """Wait for a delivery that must be continued, and run it to its end, again and again; the body of the task."""
        task = self.task
        while self.task is task:
            if self._handed is ENDED:
                task._log_destroy_pending = False  # type: ignore[union-attr]  # no warning if the loop ends while it is idle
                await self._wait_for_step()
                task._log_destroy_pending = True  # type: ignore[union-attr]
            awaited, self._handed = self._handed, ENDED
            await drive_to_end(awaited, self.resume)

    async def _wait_for_step(self) -> None:
        """Wait until `hand_over` is called. If the task is cancelled just after that, the handler gets the cancellation."""
        self._parked = self._driver.loop.create_future()
        try:
            await self._parked
        except self._driver.asyncio.CancelledError as cancelled:
            if self._handed is ENDED:
                raise  # the worker is idle and not needed any more
            self._cancel_handed(cancelled)
        finally:
            self._parked = None

    def _cancel_handed(self, cancelled: BaseException) -> None:
        """Raise the cancellation in a handler that the task has not taken over yet; if it catches that, hand it over again."""
        awaited, self._handed = self._handed, ENDED
        if awaited is not None:
            awaited.cancel()
        next_awaited = self.resume(None, cancelled)
        if next_awaited is not ENDED:
            self._handed = next_awaited

    def _restart_if_cancelled(self, task: Task[None]) -> None:
        """If the task was cancelled before its first step, raise the cancellation in the handler that was handed over."""
        if self._handed is not ENDED and self.task is task:
            self._cancel_handed(self._driver.asyncio.CancelledError())
            if self._handed is not ENDED:
                self.make_task()

    def resume(self, value: Any, error: BaseException | None) -> Any:
        """Run the delivery's next step with the value or error of the last awaitable; return the next awaitable, or `ENDED`."""
        driver, delivery = self._driver, self.delivery
        if delivery is None:
            return ENDED
        before, driver.is_stepping = driver.is_stepping, True
        try:
            awaited = self.context.run(resume_work, delivery, value, error)
        finally:
            driver.is_stepping = before
        if awaited is ENDED:
            self.delivery = None
            if self.task is not None and self.task.cancelling():
                self.task = None  # a cancelled task ends after this step
            self._lane.idle.append(self)
            driver.end_delivery(delivery, self._lane)
        if self._core.queue or self._core.ready:
            driver.pump()
        return awaited


class LoopDriver:
    """An event loop, and the deliveries that run on it.

    Args:
        settle: Called on the loop with each delivery that failed or that a receipt counts.
        fill_lanes: Called on the loop: moves events from the queue into lanes, or returns a delivery that may begin at once.
        notifier: Notified when a lane has room again and when nothing is under way.
        is_adopted: Use the loop that is running on this thread, and leave its end to its owner. Else start one on a new thread.
    """

    def __init__(
        self,
        core: Core,
        settle: Callable[[Delivery], None],
        fill_lanes: Callable[[], Delivery | None],
        notifier: Notifier,
        *,
        is_adopted: bool = False,
    ) -> None:
        import asyncio

        self.asyncio = asyncio
        self.core, self._settle, self._fill_lanes, self._notifier = core, settle, fill_lanes, notifier
        self.limit = asyncio.timeout
        self.watchers = 0  # how many threads must be notified of the end of each delivery
        self.is_cancelled = False  # `cancel` is at work: every delivery that ends now ends with GBE618
        self.is_stepping = False  # a handler's step runs: events published in it begin after it
        self._is_called = False  # `pump` is scheduled
        self._is_blocked = self._is_stopped = False
        self._stuck: set[Hashable] = set()  # the lanes with a handler that ignored its cancellation
        self._entered: Task[None] | None = None  # the task that `_start_delivery` has made the current one
        self._thread: Thread | None = None
        if is_adopted:
            self.loop = asyncio.get_running_loop()
            self.home = get_ident()
            return
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run_loop, name="graphbus-loop", daemon=True)
        self._thread.start()
        self.home = self._thread.ident or 0

    @property
    def is_here(self) -> bool:
        """True on the thread of the loop."""
        return get_ident() == self.home

    # --- deliveries ---

    def put(self, delivery: Delivery, lane: Lane) -> None:
        """Put a delivery into a lane, even into a full one, and wake the loop; from any thread."""
        self.core.place(delivery, lane)
        self.wake()

    def wake(self) -> None:
        """Make the loop look at the lanes and the queue; from any thread. On the loop's own thread it does so at once."""
        if get_ident() == self.home:
            self.pump()
        elif not self._is_called:
            self._schedule_pump()

    def _schedule_pump(self) -> None:
        """Schedule `pump` on the loop, and note that it is scheduled; nothing happens if the loop has ended."""
        is_scheduled, self._is_called = False, True
        try:
            with suppress(RuntimeError):  # the loop has ended: `close` finds what is left
                self.loop.call_soon_threadsafe(self.pump)
                is_scheduled = True
        finally:
            if not is_scheduled:  # e.g. a KeyboardInterrupt came first: the next `wake` must schedule it
                self._is_called = False

    def pump(self, first: Delivery | None = None) -> None:
        """Begin the deliveries that may begin, on the loop's thread; after `_MOST_STARTS_IN_A_ROW` schedule the rest.

        Inside a step of a handler this does nothing; it is called again after the step.

        Args:
            first: A delivery of `Core.begin_at_once`, to begin before all others.
        """
        if self.is_stepping:
            return
        self._is_called = False
        core, asyncio, loop = self.core, self.asyncio, self.loop
        queue, ready = core.queue, core.ready
        outer = asyncio.current_task(loop)
        if (
            outer is not None
        ):  # left meanwhile: asyncio allows one current task, and `_start_delivery` enters those of workers
            asyncio._leave_task(loop, outer)
        self.is_stepping = True
        try:
            for _ in range(_MOST_STARTS_IN_A_ROW):
                if first is None and queue:
                    first = self._fill_lanes()
                if first is not None:
                    begun, first = first, None
                    self._start_delivery(begun, begun.subscription.mailbox)
                elif not ready or (following := core.next_in_lane()) is None:
                    return
                else:
                    self._start_delivery(*following)
        finally:
            self.is_stepping = False
            self._leave_entered_task()
            if outer is not None:
                asyncio._enter_task(loop, outer)
        loop.call_soon(self.pump)
        self._is_called = True

    def _start_delivery(self, delivery: Delivery, lane: Lane) -> None:
        """Run the first step of a delivery on an idle worker of its lane, or on a new one."""
        if len(lane.box) == self.core.mailbox - 1:  # the lane was full: threads may wait for room
            self._notifier.notify()
        worker = lane.idle.pop() if lane.idle else Worker(self, lane)
        task = worker.task
        if task is None or task.done():
            task = worker.make_task()
        if task is not self._entered:
            self._leave_entered_task()
            self.asyncio._enter_task(self.loop, task)
            self._entered = task
        awaited = worker.begin(delivery)
        if awaited is not ENDED:
            worker.hand_over(awaited)

    def _leave_entered_task(self) -> None:
        """Undo `_start_delivery`: its task is no longer the current one of the loop. Nothing happens if there is none."""
        entered, self._entered = self._entered, None
        if entered is not None:
            self.asyncio._leave_task(self.loop, entered)

    def begin_alone(self, delivery: Delivery) -> Any:
        """Run the first step of a delivery in the task of its publisher; return the awaitable that it waits for, or `ENDED`.

        The publisher must pass that awaitable and `delivery.worker.resume` to `drive_to_end`.
        """
        lane: Lane = delivery.subscription.mailbox
        worker = lane.idle.pop() if lane.idle else Worker(self, lane)
        before, self.is_stepping = self.is_stepping, True
        try:
            awaited = worker.context.run(begin_coroutine, delivery, set_current_delivery, delivery.call, delivery.event)
            worker.after_first_step(delivery, awaited)
        finally:
            self.is_stepping = before
        return awaited

    def end_delivery(self, delivery: Delivery, lane: Lane) -> None:
        """Process the end of a delivery: call its `on_end`, or else settle failures and receipts; then free its lane.

        While the bus cancels the handlers, every delivery ends with the error GBE618.
        """
        core = self.core
        error, on_end, receipt = delivery.error, delivery.on_end, delivery.receipt
        if self.is_cancelled:
            delivery.error = RunError("GBE618")
        if on_end is not None:
            on_end(delivery)
            delivery.is_over = True
        elif (
            error is not None
            or (delivery.is_awaited and delivery.children)
            or (receipt is not None and receipt.event is delivery.event)
        ):
            self._settle(delivery)
        elif receipt is not None and receipt.release():
            core.receipts.close(receipt)
        core.leave_lane(delivery, lane)
        if self._notifier.waiting and (on_end is not None or self.watchers or not (core.under_way or core.queue)):
            self._notifier.notify()

    def forget(self, subscription: LiveSubscription) -> None:
        """Drop the lane of a removed subscription, later on the loop, if nothing uses it by then; from any thread."""

        def forget() -> None:
            lane = self.core.lanes.get(subscription.lane)
            if lane is None or lane.running or lane.box or self.core.routes.needs_lane(subscription):
                return
            del self.core.lanes[subscription.lane]
            while lane.idle:
                lane.idle.pop().cancel()

        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(forget)

    # --- the end ---

    def cancel(self) -> list[Delivery]:
        """Cancel the running handlers, empty the lanes, and return the deliveries of events that were not handled to their end.

        This waits up to `_PATIENCE_S`. A handler that has not ended by then is left behind, and its lane is stuck. If a handler
        blocks the loop itself, all lanes are stuck. Calls end with the error GBE618 for their callers.
        """
        cancellation = _Cancellation()
        under_way = self.core.under_way
        if not self._is_stopped:
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._cancel_on_loop, cancellation)
            self._notifier.wait(lambda: cancellation.has_begun and not under_way, _PATIENCE_S)
            self._is_blocked = not cancellation.has_begun
        self.is_cancelled, cancellation.is_over = False, True
        for delivery in under_way.copy():
            self._stuck.add(delivery.lane)
            self._abandon_delivery(delivery, cancellation)
        return cancellation.left

    def _abandon_delivery(self, delivery: Delivery, cancellation: _Cancellation) -> None:
        """Give up a delivery that ignored its cancellation: a call ends with GBE618, an event is added to `left`."""
        on_end = delivery.on_end
        if on_end is None:
            cancellation.left.append(delivery)
        elif on_end is not _ignore_end:
            delivery.error = RunError("GBE618")
            on_end(delivery)
            delivery.is_over = True
        delivery.on_end, delivery.is_given_up = _ignore_end, True

    def is_stuck(self, key: Hashable) -> bool:
        """True for a lane with a handler that ignored its cancellation; for every lane if a handler blocks the loop."""
        return self._is_blocked or key in self._stuck

    def _cancel_on_loop(self, cancellation: _Cancellation) -> None:
        """Cancel the running handlers and empty the lanes; `cancel` schedules this on the loop."""
        if cancellation.is_over:
            return  # too late: `cancel` has stopped waiting, and the lanes may hold later work by now
        self.is_cancelled = True
        for delivery in self.core.under_way.copy():
            if delivery.on_end is None:
                delivery.on_end, delivery.is_cancelled = _ignore_end, True
                cancellation.left.append(delivery)
        for lane in list(self.core.lanes.values()):
            while lane.box:
                lane.running += 1  # `end_delivery` counts it as ended
                self.end_delivery(lane.box.pop(), lane)
        for worker in self._workers_that_wait():
            worker.cancel()
        cancellation.has_begun = True
        self._notifier.notify()

    def _workers_that_wait(self) -> list[Worker]:
        """Return the workers whose delivery has begun and waits for something."""
        return [each.worker for each in self.core.under_way.copy() if each.worker is not None]

    def stop(self) -> None:
        """Cancel idle workers, and end the loop unless it is adopted. Wait for its thread, but not longer than `_PATIENCE_S`."""
        self._is_stopped = True
        with suppress(RuntimeError):  # the program has ended its loop
            self.loop.call_soon_threadsafe(self._cancel_idle_workers)
        if self._thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_PATIENCE_S)

    def _cancel_idle_workers(self) -> None:
        """End the tasks of the workers that have nothing to do."""
        for lane in self.core.lanes.values():
            for worker in lane.idle:
                worker.cancel()

    def _run_loop(self) -> None:
        """Run the loop until `stop`, then cancel the remaining tasks and close it; the body of the loop's own thread."""
        self.asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = self.asyncio.all_tasks(self.loop)
        workers = {worker.task for worker in self._workers_that_wait()}
        for task in left - workers:
            task.cancel()  # left behind by a handler, or idle
        if left:
            self.loop.run_until_complete(self.asyncio.wait(left, timeout=_PATIENCE_S))
        self.loop.close()


class _Cancellation:
    """The state of one call of `LoopDriver.cancel`; `left` holds the deliveries that become dead letters."""

    __slots__ = ("has_begun", "is_over", "left")

    def __init__(self) -> None:
        self.has_begun = self.is_over = False
        self.left: list[Delivery] = []


def _ignore_end(_delivery: Delivery) -> None:
    """Ignore the end of a delivery that was cancelled: `cancel` has returned it or ended its call."""


def _add_time_limit(delivery: Delivery, timeout_s: float) -> None:
    """Wrap the call of a delivery so that it raises TimeoutError after this many seconds; its `timeout_s` becomes None."""
    call = delivery.call
    delivery.call, delivery.timeout_s = lambda *event: _call_in_time(call, event, timeout_s), None


async def _call_in_time(call: Callable[..., Any], arguments: tuple[Any, ...], timeout_s: float) -> Any:
    """Await the call. After the time limit in seconds, cancel it and raise a TimeoutError that names the limit."""
    from asyncio import timeout

    try:
        async with timeout(timeout_s) as limit:
            return await call(*arguments)
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"it took more than {timeout_s:g} s") from None
        raise
