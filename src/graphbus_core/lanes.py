"""Lanes: where `async def` handlers run. One event loop on one thread, one bounded mailbox per agent, one event at a time.

    the thread that drains  -- put -->  mailbox of the agent  -- worker task -->  handler
                            <-- done, woken up; errands of handlers that call another agent --

The thread that drains waits here until all mailboxes are empty, so that an outermost publish returns when all is quiet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import ContextVar
from threading import Condition, Thread, get_ident
from time import monotonic
from typing import Any

from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt

Work = Callable[[], Any]


class Delivery:
    """One call of one handler or method on the loop; `about` is what the bus knows of it, `is_plain` that a `def` is running."""

    __slots__ = ("about", "attempt", "children", "error", "is_over", "is_plain", "result", "work")

    def __init__(self, work: Work, about: Any, attempt: int = 1) -> None:
        self.work = work
        self.about = about
        self.attempt = attempt
        self.children = 0
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self.is_plain = False


_PATIENCE_S = 1.0
"""How long a cancelled handler may take to end."""

_current: ContextVar[Delivery | None] = ContextVar("graphbus_delivery", default=None)


class Lanes:
    """The loop, its thread and its mailboxes. Only `wake`, `current`, `is_here` and `send_out` are for other threads."""

    def __init__(self, mailbox: int) -> None:
        import asyncio

        self.done: deque[Delivery] = deque()
        self._asyncio = asyncio
        self._limit = mailbox
        self._changed = Condition()
        self._boxes: dict[Hashable, deque[Delivery]] = {}
        self._workers: set[asyncio.Task[None]] = set()  # the loop itself keeps weak references only
        self._running: set[asyncio.Task[None]] = set()
        self._errands: deque[Callable[[], None]] = deque()
        self._pending = 0
        self._is_woken = False
        self._is_cancelled = False
        self._is_stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="graphbus-loop", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """True on the thread of the loop."""
        return get_ident() == self._thread.ident

    @property
    def is_idle(self) -> bool:
        """True when no delivery waits, runs or is to be settled."""
        return not self._pending

    @staticmethod
    def current() -> Delivery | None:
        """Give the delivery that the running task handles, or None outside of one."""
        return _current.get()

    def put(self, lane: Hashable, delivery: Delivery) -> None:
        """Add to a mailbox; waits while it is full."""
        box = self._boxes.setdefault(lane, deque())
        self._wait(lambda: len(box) < self._limit)
        with self._changed:
            self._pending += 1
            box.append(delivery)
            is_first = len(box) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._start, box)

    def wait(self, deadline: float | None = None) -> bool:
        """Wait until a delivery is done or somebody calls `wake`; False when nothing is under way or the time is up."""
        self._wait(lambda: bool(self.done) or self._is_woken or not self._pending, deadline)
        with self._changed:
            has_news = bool(self.done) or self._is_woken
            self._is_woken = False
        return has_news

    def wait_for(self, delivery: Delivery) -> None:
        """Wait until this delivery is done, and take it out."""
        self._wait(lambda: delivery.is_over)
        if delivery in self.done:
            self.done.remove(delivery)
            self.settle()

    def settle(self) -> None:
        """Count one delivery that was taken out of `done` as over."""
        with self._changed:
            self._pending -= 1

    def wake(self) -> None:
        """There is something to do for the thread that drains."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def send_out(self, work: Work) -> Awaitable[Any]:
        """From the loop: let the thread that drains do the work, and await its result.

        Raises:
            RunError: GBE628 for a plain `def`, which cannot wait for it.
        """
        delivery = _current.get()
        if delivery is not None and delivery.is_plain:
            raise RunError("GBE628")
        future = self._loop.create_future()

        def give(result: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def errand() -> None:
            result, error = attempt(work)
            with suppress(RuntimeError):  # the loop has ended, and with it the one who waited
                self._loop.call_soon_threadsafe(give, result, error)

        with self._changed:
            self._errands.append(errand)
            self._changed.notify_all()
        awaitable: Awaitable[Any] = future
        return awaitable

    def cancel(self) -> list[Delivery]:
        """Cancel what is under way, and give every delivery that was not done."""
        with self._changed:
            self._is_cancelled = True
            left = [delivery for box in self._boxes.values() for delivery in box]
        self._loop.call_soon_threadsafe(self._cancel)
        self._wait(lambda: not any(self._boxes.values()), monotonic() + _PATIENCE_S)
        with self._changed:
            self._is_cancelled = False
        return left

    def stop(self) -> None:
        """End the loop and its thread; a handler that does not let itself be cancelled is left behind."""
        self._is_stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)

    def _wait(self, until: Callable[[], bool], deadline: float | None = None) -> None:
        while True:
            with self._changed:
                while not until() and not self._errands:
                    left_s = None if deadline is None else deadline - monotonic()
                    if left_s is not None and left_s <= 0:
                        return
                    self._changed.wait(left_s)
                if not self._errands:
                    return
                errand = self._errands.popleft()
            errand()

    def _run(self) -> None:
        self._asyncio.set_event_loop(self._loop)
        while not self._is_stopping:
            with suppress(KeyboardInterrupt, SystemExit):  # the delivery keeps it; the thread that drains raises it
                self._loop.run_forever()
        left = self._workers | self._running
        if left:
            self._loop.run_until_complete(self._asyncio.wait(left, timeout=_PATIENCE_S))
        self._loop.close()

    def _start(self, box: deque[Delivery]) -> None:
        worker = self._loop.create_task(self._work(box))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def _work(self, box: deque[Delivery]) -> None:
        is_over = False
        while not is_over:
            delivery = box[0]
            task = self._loop.create_task(self._perform(delivery))
            self._running.add(task)
            finished = self._loop.create_future()
            task.add_done_callback(finished.set_result)  # `await task` would raise what the handler has raised
            await finished
            self._running.discard(task)
            delivery.error = self._asyncio.CancelledError() if task.cancelled() else task.exception()
            with self._changed:
                box.popleft()
                is_over = not box
                self._end(delivery)
                self._changed.notify_all()

    def _end(self, delivery: Delivery) -> None:
        """Hand the delivery back to the thread that drains; a cancelled one is nobody's any more."""
        delivery.is_over = True
        if self._is_cancelled:
            delivery.error = RunError("GBE618")
            self._pending -= 1
        else:
            self.done.append(delivery)

    @staticmethod
    async def _perform(delivery: Delivery) -> None:
        _current.set(delivery)
        delivery.is_plain = True  # the body of an `async def` does not run yet
        try:
            result = delivery.work()
        finally:
            delivery.is_plain = False
        delivery.result = await result if isinstance(result, Awaitable) else result

    def _cancel(self) -> None:
        with self._changed:
            for box in self._boxes.values():
                while len(box) > 1:
                    self._end(box.pop())
        for task in list(self._running):
            task.cancel()


async def within(timeout_s: float, awaitable: Awaitable[Any]) -> Any:
    """Await something on the loop, and cancel it when it takes too long.

    Raises:
        TimeoutError: It was cancelled by this.
    """
    import asyncio

    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await awaitable
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"it took more than {timeout_s:g} s") from None
        raise
