"""The driver on an event loop: where agents with `async def` handlers run, one event of an agent at a time.

    pump:  queue -- fill --> lanes -- next_in_lane --> first step, here and now --> ended
                                                          '--> it waits for something: its worker, a task, takes the next steps

Most handlers end without waiting, and so cost no task. While its first step is taken, the task of the worker is the current
one, so that `asyncio.timeout` and the like find the task that will go on. Each worker has a context of its own, in which all
events of its lane are handled: what a handler sets in a ContextVar, the next one of this agent sees, and nobody else. With
`concurrency` each event has a new one.

A plain `def` of an agent that has `async def` handlers runs here as well, as any other handler of the agent: it would have to be
locked against them on another thread. One that takes long belongs into an agent without `async def`, or into `asyncio.to_thread`.
Agents without `async def` handlers never run here: see `sync`.
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

_FAIR_TURN = 64
"""So many deliveries may follow each other before others on the loop have their turn."""

_current: ContextVar[Delivery | None] = ContextVar("graphbus_delivery", default=None)
current_delivery, set_current_delivery = _current.get, _current.set
"""The delivery on whose behalf this code runs on the loop, or in a thread or task that it has started; None outside of one."""


class Worker:
    """Where the handlers of a lane run: a context, and a task for those that wait for something."""

    __slots__ = ("_core", "_driver", "_handed", "_lane", "_parked", "context", "delivery", "task")

    def __init__(self, driver: LoopDriver, lane: Lane) -> None:
        self._driver, self._core, self._lane = driver, driver.core, lane
        self._handed: Any = ENDED
        self._parked: Future[None] | None = None
        self.context = Context()
        self.delivery: Delivery | None = None
        self.task: Task[None] | None = None

    def make_task(self) -> Task[None]:
        """Make the task: when it is first needed, and again when it was cancelled."""
        task = self.task = self._driver.loop.create_task(self._work())
        task.add_done_callback(self._rescue)
        return task

    def begin(self, delivery: Delivery) -> Any:
        """Take the first step of a delivery; give what it waits for, or `ENDED`."""
        if self._lane.concurrency > 1:  # else it would be chance which event had this context before
            self.context = Context()
        if delivery.timeout_s is not None:
            _limit(delivery, delivery.timeout_s)
        receipt = delivery.receipt
        is_plain = delivery.on_end is None and (receipt is None or receipt.event is not delivery.event)
        subscription = delivery.subscription
        if is_plain and subscription.is_async and subscription.is_active:
            awaited = self.context.run(begin_coroutine, delivery, set_current_delivery, delivery.call, delivery.event)
        else:
            awaited = self.context.run(begin_work, delivery, set_current_delivery, delivery.begin)
        self.after_first_step(delivery, awaited)
        return awaited

    def after_first_step(self, delivery: Delivery, awaited: Any) -> None:
        """The first step was taken."""
        if awaited is ENDED:
            self._lane.idle.append(self)
            self._driver.end_delivery(delivery, self._lane)
        else:
            self.delivery, delivery.worker = delivery, self

    def cancel(self) -> None:
        """Cancel what the task waits for."""
        if self.task is not None:
            self.task.cancel()

    def hand_over(self, awaited: Any) -> None:
        """The task takes the next steps."""
        self._handed = awaited
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)

    async def _work(self) -> None:
        task = self.task
        while self.task is task:
            if self._handed is ENDED:
                task._log_destroy_pending = False  # type: ignore[union-attr]  # idle: nothing is lost if the loop ends first
                await self._park()
                task._log_destroy_pending = True  # type: ignore[union-attr]
            awaited, self._handed = self._handed, ENDED
            await drive_to_end(awaited, self.resume)

    async def _park(self) -> None:
        self._parked = self._driver.loop.create_future()
        try:
            await self._parked
        except self._driver.asyncio.CancelledError as cancelled:
            if self._handed is ENDED:
                raise  # there is nothing to do, and there will be nothing
            self._cancel_handed(cancelled)
        finally:
            self._parked = None

    def _cancel_handed(self, cancelled: BaseException) -> None:
        """A handler was cancelled, or a time limit was over, before the task came to wait for what it waits for."""
        awaited, self._handed = self._handed, ENDED
        if awaited is not None:
            awaited.cancel()
        following = self.resume(None, cancelled)
        if following is not ENDED:
            self._handed = following

    def _rescue(self, task: Task[None]) -> None:
        """The task was cancelled before it had begun."""
        if self._handed is not ENDED and self.task is task:
            self._cancel_handed(self._driver.asyncio.CancelledError())
            if self._handed is not ENDED:
                self.make_task()

    def resume(self, value: Any, error: BaseException | None) -> Any:
        """Take one step of the delivery; give what it waits for, or `ENDED`."""
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
                self.task = None  # it ends now
            self._lane.idle.append(self)
            driver.end_delivery(delivery, self._lane)
        if self._core.queue or self._core.ready:
            driver.pump()
        return awaited


class LoopDriver:
    """The loop, and what runs on it.

    Args:
        judge: Called on the loop with each delivery that has failed or whose end somebody counts.
        fill: Called on the loop: puts into lanes what the queue has for them alone, or gives what may begin at once.
        bell: Rung when a lane has room again, and when there is nothing under way.
        is_adopted: Take the loop that is running here, which somebody else ends, in the place of one on a thread of its own.
    """

    def __init__(
        self,
        core: Core,
        judge: Callable[[Delivery], None],
        fill: Callable[[], Delivery | None],
        notifier: Notifier,
        *,
        is_adopted: bool = False,
    ) -> None:
        import asyncio

        self.asyncio = asyncio
        self.core, self._judge, self._fill, self._notifier = core, judge, fill, notifier
        self.limit = asyncio.timeout
        self.watchers = 0  # how many threads want to know of every end
        self.is_cancelled = False
        self.is_stepping = self._is_called = False  # what is published in a step does not begin before its end
        self._is_blocked = self._is_stopped = False
        self._stuck: set[Hashable] = set()
        self._entered: Task[None] | None = None  # that of the worker which takes its first step
        self._thread: Thread | None = None
        if is_adopted:
            self.loop = asyncio.get_running_loop()
            self.home = get_ident()
            return
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="graphbus-loop", daemon=True)
        self._thread.start()
        self.home = self._thread.ident or 0

    @property
    def is_here(self) -> bool:
        """True on the thread of the loop."""
        return get_ident() == self.home

    # --- what is to be done ---

    def put(self, delivery: Delivery, lane: Lane) -> None:
        """Put a delivery into a lane, whether that has room or not; from any thread."""
        self.core.place(delivery, lane)
        self.wake()

    def wake(self) -> None:
        """Let the loop look at the lanes and the queue; from any thread. On its own it does so at once."""
        if get_ident() == self.home:
            self.pump()
        elif not self._is_called:
            self._call_pump()

    def _call_pump(self) -> None:
        is_called, self._is_called = False, True
        try:
            with suppress(RuntimeError):  # the loop has ended: who has closed the bus finds what is left
                self.loop.call_soon_threadsafe(self.pump)
                is_called = True
        finally:
            if not is_called:  # a KeyboardInterrupt came first: the next one is to call it
                self._is_called = False

    def pump(self, first: Delivery | None = None) -> None:
        """Begin with everything that may begin. Inside a step nothing: whoever takes the step does it afterwards.

        Args:
            first: What is begun before all else; its lane has nothing else in hand.
        """
        if self.is_stepping:
            return
        self._is_called = False
        core, asyncio, loop = self.core, self.asyncio, self.loop
        queue, ready = core.queue, core.ready
        outer = asyncio.current_task(loop)
        if outer is not None:
            asyncio._leave_task(loop, outer)
        self.is_stepping = True
        try:
            for _ in range(_FAIR_TURN):
                if first is None and queue:
                    first = self._fill()
                if first is not None:
                    begun, first = first, None
                    self._start(begun, begun.subscription.mailbox)
                elif not ready or (following := core.next_in_lane()) is None:
                    return
                else:
                    self._start(*following)
        finally:
            self.is_stepping = False
            self._leave_entered()
            if outer is not None:
                asyncio._enter_task(loop, outer)
        loop.call_soon(self.pump)
        self._is_called = True

    def _start(self, delivery: Delivery, lane: Lane) -> None:
        """Take the first step of a delivery, for which the lane has a worker."""
        if len(lane.box) == self.core.mailbox - 1:
            self._notifier.notify()
        worker = lane.idle.pop() if lane.idle else Worker(self, lane)
        task = worker.task
        if task is None or task.done():
            task = worker.make_task()
        if task is not self._entered:
            self._leave_entered()
            self.asyncio._enter_task(self.loop, task)
            self._entered = task
        awaited = worker.begin(delivery)
        if awaited is not ENDED:
            worker.hand_over(awaited)

    def _leave_entered(self) -> None:
        """No worker is at work any more: its task is not the current one."""
        entered, self._entered = self._entered, None
        if entered is not None:
            self.asyncio._leave_task(self.loop, entered)

    def begin_alone(self, delivery: Delivery) -> Any:
        """Take the first step of a delivery in the task of its publisher, which goes on with it if it waits for something."""
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
        """A delivery is over."""
        core = self.core
        error, then, receipt = delivery.error, delivery.on_end, delivery.receipt
        if self.is_cancelled:
            delivery.error = RunError("GBE618")
        if then is not None:
            then(delivery)
            delivery.is_over = True
        elif (
            error is not None
            or (delivery.is_awaited and delivery.children)
            or (receipt is not None and receipt.event is delivery.event)
        ):
            self._judge(delivery)
        elif receipt is not None and receipt.release():
            core.receipts.close(receipt)
        core.leave_lane(delivery, lane)
        if self._notifier.waiting and (then is not None or self.watchers or not (core.under_way or core.queue)):
            self._notifier.notify()

    def forget(self, subscription: LiveSubscription) -> None:
        """Let go of a lane that is not needed any more if it has nothing in hand; from any thread."""

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
        """Cancel what runs, empty the lanes, and give the events that were not handled to their end.

        A handler that does not let itself be cancelled is left behind, and with it its agent; a handler that keeps the loop to
        itself, and with it everybody.
        """
        cancellation = _Cancellation()
        under_way = self.core.under_way
        if not self._is_stopped:
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._cancel, cancellation)
            self._notifier.wait(lambda: cancellation.has_begun and not under_way, _PATIENCE_S)
            self._is_blocked = not cancellation.has_begun
        self.is_cancelled, cancellation.is_over = False, True
        for delivery in under_way.copy():
            self._stuck.add(delivery.lane)
            self._leave_behind(delivery, cancellation)
        return cancellation.left

    def _leave_behind(self, delivery: Delivery, cancellation: _Cancellation) -> None:
        then = delivery.on_end
        if then is None:
            cancellation.left.append(delivery)
        elif then is not _nothing_more:
            delivery.error = RunError("GBE618")
            then(delivery)
            delivery.is_over = True
        delivery.on_end, delivery.is_given_up = _nothing_more, True

    def is_stuck(self, key: Hashable) -> bool:
        """True for a lane with a handler that did not let itself be cancelled."""
        return self._is_blocked or key in self._stuck

    def _cancel(self, cancellation: _Cancellation) -> None:
        if cancellation.is_over:
            return  # nobody waits for it, and what is in the lanes now is meant to be done
        self.is_cancelled = True
        for delivery in self.core.under_way.copy():
            if delivery.on_end is None:
                delivery.on_end, delivery.is_cancelled = _nothing_more, True
                cancellation.left.append(delivery)
        for lane in list(self.core.lanes.values()):
            while lane.box:
                lane.running += 1
                self.end_delivery(lane.box.pop(), lane)
        for worker in self._workers_that_wait():
            worker.cancel()
        cancellation.has_begun = True
        self._notifier.notify()

    def _workers_that_wait(self) -> list[Worker]:
        return [each.worker for each in self.core.under_way.copy() if each.worker is not None]

    def stop(self) -> None:
        """End the loop and its thread; a handler that does not let itself be cancelled is left behind."""
        self._is_stopped = True
        with suppress(RuntimeError):  # the program has ended its loop
            self.loop.call_soon_threadsafe(self._dismiss)
        if self._thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_PATIENCE_S)

    def _dismiss(self) -> None:
        for lane in self.core.lanes.values():
            for worker in lane.idle:
                worker.cancel()

    def _run(self) -> None:
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
    """What one `cancel` has come to; `left` are the events whose end nobody will judge any more."""

    __slots__ = ("has_begun", "is_over", "left")

    def __init__(self) -> None:
        self.has_begun = self.is_over = False
        self.left: list[Delivery] = []


def _nothing_more(_delivery: Delivery) -> None:
    """It was cancelled, and is a dead letter."""


def _limit(delivery: Delivery, timeout_s: float) -> None:
    call = delivery.call
    delivery.call, delivery.timeout_s = lambda *event: _in_time(call, event, timeout_s), None


async def _in_time(call: Callable[..., Any], arguments: tuple[Any, ...], timeout_s: float) -> Any:
    from asyncio import timeout

    try:
        async with timeout(timeout_s) as limit:
            return await call(*arguments)
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"it took more than {timeout_s:g} s") from None
        raise
