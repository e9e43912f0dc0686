"""Lanes: where `async def` handlers run. One event loop; per agent a bounded mailbox and a worker that awaits its handlers.

    who drains  -- put -->  mailbox of the agent  -- worker task: `await handler(event)` -->  ended

A worker lives as long as its mailbox has something; several events that wait cost one wake-up. No state of a lane is locked:
a mailbox may be filled by any thread, and everything else happens on the thread of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from threading import Thread, get_ident
from time import monotonic
from typing import Any

import msgspec

from graphbus_core.bus.doorbell import Doorbell
from graphbus_core.bus.receipts import Receipt
from graphbus_core.errors import RunError
from graphbus_core.isolation import carry_each

_PATIENCE_S = 1.0
"""How long a cancelled handler may take to end."""
_FAIR_TURN = 64
"""So many deliveries that never wait may follow each other before the others on the loop have their turn."""


class Delivery(msgspec.Struct, eq=False):
    """One call of one handler or method.

    It is cheap to make (85 ns) and costs as much as half of that for each field that is written later: what most deliveries never
    need is not written.

    Attributes:
        call: Takes the event if there is one.
        lane: Who the handler belongs to.
        event: What the handler is called with; None for a call.
        subscription: Of the handler; None for a call.
        attempt: 1 for the first time that the event goes to this handler.
        chain: Who waits for the end of this call, from the outermost on: lane and name.
        timeout_s: How long it may take.
        then: Called when it is over, on the loop, in the place of what the bus does otherwise.
        children: How many events it has published.
        is_plain: A `def` of an agent on the loop is running: it cannot await anything.
        result: What it has given; not noted for an event that nobody follows.
        task: The worker that awaits it, or has.
        is_over: It has been carried to its end; only noted where somebody waits for it, who has set `then`.
        is_given_up: Nobody waits for its result any more.
        is_awaited: Who published the event awaits it and what comes of it, which nobody follows yet.
        receipt: Counts this delivery, if somebody follows the event or what it came of.
    """

    call: Callable[..., Any]
    lane: Hashable = ""
    event: Any = None
    subscription: Any = None
    is_awaited: bool = False
    attempt: int = 1
    receipt: Receipt | None = None
    chain: tuple[tuple[Hashable, str], ...] = ()
    timeout_s: float | None = None
    then: Callable[[Delivery], None] | None = None
    children: int = 0
    result: Any = None
    error: BaseException | None = None
    task: Any = None
    is_over: bool = False
    is_plain: bool = False
    is_given_up: bool = False

    @property
    def name(self) -> str:
        """The handler, or the agent that is called."""
        return str(self.lane) if self.subscription is None else str(self.subscription.name)

    def begin(self) -> Any:
        """Call; what an `async def` gives is to be awaited."""
        if self.is_given_up:
            return None
        if self.timeout_s is not None:
            timeout_s, self.timeout_s = self.timeout_s, None
            return _in_time(self.begin, timeout_s)
        subscription = self.subscription
        if subscription is not None and subscription.is_async:  # its body does not run yet
            return self.call(self.event) if subscription.is_active else None
        self.is_plain = True  # unless it gives a coroutine, whose body does not run yet either
        try:
            if subscription is None:
                return self.call()
            return self.call(self.event) if subscription.is_active else None
        finally:
            self.is_plain = False


_current: ContextVar[Delivery | None] = ContextVar("graphbus_delivery", default=None)
current = _current.get
"""The delivery on whose behalf this code runs on the loop, or in a thread that it has started; None outside of one."""
become = _current.set


class Lane:
    """The mailbox of an agent, or of one subscription that takes several events at once."""

    __slots__ = ("box", "concurrency", "is_called", "workers")

    def __init__(self, concurrency: int) -> None:
        self.box: deque[Delivery] = deque()
        self.concurrency = concurrency
        self.workers = 0
        self.is_called = False


class Lanes:
    """The loop and its lanes.

    Args:
        capacity: How many deliveries may wait in one mailbox.
        ended: Called on the loop with each delivery that is over.
        bell: Rung when a full mailbox has room again.
        is_adopted: Take the loop that is running here, which somebody else ends, in the place of one on a thread of its own.
    """

    def __init__(
        self, capacity: int, ended: Callable[[Delivery], None], bell: Doorbell, *, is_adopted: bool = False
    ) -> None:
        import asyncio

        self.under_way: dict[Delivery, None] = {}
        self._asyncio = asyncio
        self.limit = asyncio.timeout
        self.capacity = capacity
        self._ended = ended
        self._bell = bell
        self.by_key: dict[Hashable, Lane] = {}
        self._workers: set[asyncio.Task[None]] = set()  # the loop itself keeps weak references only
        self.watchers = 0  # how many threads want to know of every end
        self.is_cancelled = False
        self._is_blocked = False
        self._stuck: set[Hashable] = set()
        self._is_stopped = False
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

    @property
    def is_idle(self) -> bool:
        """True when nothing waits in a mailbox or runs."""
        return not self.under_way

    def now_under_way(self) -> list[Delivery]:
        """What waits in a mailbox or runs, at one moment.

        `list` reads a dict in one go. `tuple` does not: it may let the garbage collector in, and so another thread.
        """
        return list(self.under_way)

    def lane(self, key: Hashable, concurrency: int = 1) -> Lane:
        """Give a lane; it is made when first asked for, and stays."""
        return self.by_key.get(key) or self.by_key.setdefault(key, Lane(concurrency))

    def has_room(self, lane: Lane) -> bool:
        """True while one more event may wait in the mailbox."""
        return len(lane.box) < self.capacity

    def put(self, delivery: Delivery, lane: Lane) -> None:
        """Add to a mailbox, whether it has room or not; from any thread."""
        self.under_way[delivery] = None
        lane.box.append(delivery)
        if lane.workers < lane.concurrency and not lane.is_called:
            lane.is_called = True
            if get_ident() == self.home:
                self.start(lane)
            else:
                with suppress(RuntimeError):  # the loop has ended: who has closed the bus finds it
                    self.loop.call_soon_threadsafe(self.start, lane)

    def start(self, lane: Lane) -> None:
        """Let there be workers for what waits in a mailbox."""
        lane.is_called = False
        for _ in range(min(len(lane.box), lane.concurrency - lane.workers)):
            lane.workers += 1
            worker = self.loop.create_task(self._work(lane))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    def cancel(self) -> list[Delivery]:
        """Cancel what runs, empty the mailboxes, and give the events that were not handled to their end.

        A handler that does not let itself be cancelled is left behind, and with it its agent; a handler that keeps the loop to
        itself, and with it everybody.
        """
        cancellation = _Cancellation()
        if not self._is_stopped:
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self._cancel, cancellation)
            self._bell.wait(lambda: cancellation.has_begun and self.is_idle, _PATIENCE_S)
            self._is_blocked = not cancellation.has_begun
        self.is_cancelled, cancellation.is_over = False, True
        self._leave_behind(cancellation)
        return cancellation.left

    def is_stuck(self, key: Hashable) -> bool:
        """True for a lane with a handler that did not let itself be cancelled."""
        return self._is_blocked or key in self._stuck

    def _leave_behind(self, cancellation: _Cancellation) -> None:
        for delivery in self.now_under_way():
            self._stuck.add(delivery.lane)
            then = delivery.then
            if then is None:
                cancellation.left.append(delivery)
            elif then is not _nothing_more:
                delivery.error = RunError("GBE618")
                then(delivery)
                delivery.is_over = True
            delivery.then, delivery.is_given_up = _nothing_more, True

    def stop(self) -> None:
        """End the loop and its thread; a handler that does not let itself be cancelled is left behind."""
        self._is_stopped = True
        if self._thread is None:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        self._asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = self._asyncio.all_tasks(self.loop)
        for task in left - self._workers:
            task.cancel()  # left behind by a handler
        if left:
            self.loop.run_until_complete(self._asyncio.wait(left, timeout=_PATIENCE_S))
        self.loop.close()

    async def _work(self, lane: Lane) -> None:
        try:
            while lane.box:
                await carry_each(self._turn(lane, self._asyncio.current_task()), self.end)
                if lane.box:
                    await self._asyncio.sleep(0)
        finally:
            lane.workers -= 1
            if lane.box:
                self.start(lane)

    def _turn(self, lane: Lane, task: Any) -> Iterator[Delivery]:
        """Take out of a mailbox one after the other, until it is empty or others on the loop should have their turn."""
        box = lane.box
        for _ in range(_FAIR_TURN):
            if not box:
                return
            delivery = box.popleft()
            if len(box) == self.capacity - 1:
                self._bell.ring()
            delivery.task = task
            become(delivery)
            yield delivery

    def end(self, delivery: Delivery) -> None:
        """A delivery is over."""
        error, task = delivery.error, delivery.task
        if error is not None and isinstance(error, self._asyncio.CancelledError) and task.cancelling():
            task.uncancel()  # the worker goes on
        if self.is_cancelled:
            delivery.error = RunError("GBE618")
        self._ended(delivery)
        is_awaited_for = delivery.then is not None
        if is_awaited_for:
            delivery.is_over = True
        self.under_way.pop(delivery, None)
        if is_awaited_for or self.watchers or not self.under_way:
            self._bell.ring()

    def _cancel(self, cancellation: _Cancellation) -> None:
        if cancellation.is_over:
            return  # nobody waits for it, and what is in the mailboxes now is meant to be done
        self.is_cancelled = True
        for delivery in self.now_under_way():
            if delivery.then is None:
                delivery.then = _nothing_more
                cancellation.left.append(delivery)
        for lane in list(self.by_key.values()):
            while lane.box:
                self.end(lane.box.pop())
        for delivery in self.now_under_way():
            if delivery.task is not None:
                delivery.task.cancel()
        cancellation.has_begun = True
        self._bell.ring()


class _Cancellation:
    """What one `cancel` has come to; `left` are the events whose end nobody will judge any more."""

    __slots__ = ("has_begun", "is_over", "left")

    def __init__(self) -> None:
        self.has_begun = self.is_over = False
        self.left: list[Delivery] = []


async def _in_time(work: Callable[[], Any], timeout_s: float) -> Any:
    from asyncio import timeout

    try:
        async with timeout(timeout_s) as limit:
            result = work()
            return await result if isinstance(result, Awaitable) else result
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"it took more than {timeout_s:g} s") from None
        raise


def _nothing_more(_delivery: Delivery) -> None:
    """It was cancelled, and is a dead letter."""


def now_plus(seconds: float | None) -> float | None:
    """The moment so many seconds from now; None for no limit."""
    return None if seconds is None else monotonic() + seconds
