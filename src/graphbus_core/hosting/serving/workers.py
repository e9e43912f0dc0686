"""Worker threads of an event loop, for what may block: the code of handlers, files, and the state of a graph."""

from __future__ import annotations

from asyncio import Future, Semaphore, get_running_loop, timeout
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt

R = TypeVar("R")
_Outcome = tuple[R | None, Exception | None]


class Workers:
    """Runs blocking functions for an event loop, each on a daemon thread of its own.

    A pool of the standard library would keep the process from ending while a handler hangs.

    Args:
        size: How many functions run at the same time.
        backlog: How many more may wait.
    """

    def __init__(self, size: int, backlog: int) -> None:
        self._size = size
        self._backlog = backlog
        self._free = Semaphore(size)
        self._waiting = 0

    async def do(self, work: Callable[[], R], timeout_s: float) -> _Outcome[R]:
        """Run a function on a thread; return (its result, None), or (None, the Exception that it raised).

        Raises:
            RunError: GBE678 when too many functions wait, GBE679 after `timeout_s`. A function that has not begun by then never
                runs; one that has begun runs on, and its result is dropped.
        """
        if self._free.locked() and self._waiting >= self._backlog:
            raise RunError("GBE678", count=self._size + self._waiting)
        try:
            async with timeout(timeout_s):
                self._waiting += 1
                try:
                    await self._free.acquire()
                finally:
                    self._waiting -= 1
                return await self._start_thread(work)
        except TimeoutError:
            raise RunError("GBE679", timeout_s=timeout_s) from None

    def _start_thread(self, work: Callable[[], R]) -> Future[_Outcome[R]]:
        """Start a thread for the function, and return the future of its outcome; raise GBE678 if no thread can be started."""
        loop = get_running_loop()
        future: Future[_Outcome[R]] = loop.create_future()

        def set_outcome(outcome: _Outcome[R]) -> None:
            self._free.release()
            if not future.done():
                future.set_result(outcome)

        def perform() -> None:
            outcome: _Outcome[R] = None, RunError("GBE618")  # stays if a BaseException ends the thread
            try:
                outcome = attempt(work)
            finally:
                with suppress(RuntimeError):  # the loop has ended, so nothing waits for this
                    loop.call_soon_threadsafe(set_outcome, outcome)

        try:
            Thread(target=perform, name="graphbus-http-worker", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            self._free.release()
            raise RunError("GBE678", count=self._size + self._waiting) from None
        return future
