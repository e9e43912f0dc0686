"""An event loop in a thread of its own, for libraries that are asynchronous while their callers are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from graphbus_core.isolation import attempt

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future


_PATIENCE_S = 2.0
"""How long the last tasks of a loop may make no progress before it is closed all the same."""


class Resident(Protocol):
    """What lives in the loop and is closed with it."""

    async def close(self) -> None:
        """Give back what it holds."""


Inhabitant = TypeVar("Inhabitant", bound=Resident)
R = TypeVar("R")


class LoopThread(Generic[Inhabitant]):
    """Makes something in a thread of its own and runs coroutines on it there.

    Args:
        name: Of the thread.
        move_in: Called in the thread; what it raises, each `run` raises.
    """

    def __init__(self, name: str, move_in: Callable[[], Inhabitant]) -> None:
        self._move_in = move_in
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inhabitant: Inhabitant | None = None
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[Inhabitant], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine to its end and give its result; Ctrl-C while it waits drops it.

        Raises:
            CancelledError: The thread was stopped before or meanwhile, that of `concurrent.futures`.
        """
        self._is_ready.wait()
        if self._failure is not None:
            raise self._failure
        future = self._submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _submit(self, work: Callable[[Inhabitant], Coroutine[Any, Any, R]]) -> Future[R]:
        import asyncio
        from concurrent.futures import CancelledError

        with self._lock:  # after `stop` nobody would run it
            if self._is_stopped or self._inhabitant is None or self._loop is None:
                raise CancelledError
            return asyncio.run_coroutine_threadsafe(work(self._inhabitant), self._loop)

    def stop(self) -> None:
        """Drop what is under way, close the inhabitant, end the thread; who has not moved in yet is not waited for."""
        with self._lock:
            is_first, self._is_stopped = not self._is_stopped, True
            if is_first and self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
            has_moved_in = self._loop is not None or self._failure is not None
        self._is_ready.set()
        if has_moved_in:
            self._thread.join()

    def _live(self) -> None:
        import asyncio

        inhabitant, failure = attempt(self._move_in)
        with self._lock:
            self._inhabitant, self._failure = inhabitant, failure
            if inhabitant is not None:
                self._loop = asyncio.new_event_loop()
            is_stopped = self._is_stopped
        self._is_ready.set()
        if inhabitant is None or self._loop is None:
            return
        try:
            if not is_stopped:
                self._loop.run_forever()
            self._loop.run_until_complete(_wind_up(inhabitant))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(_settle())
        finally:
            self._loop.close()


async def _wind_up(inhabitant: Resident) -> None:
    import asyncio

    under_way = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
    await inhabitant.close()


async def _settle() -> None:
    """Wait for what has been asked of the loop meanwhile: generators that nobody holds any more are ended by tasks."""
    import asyncio

    await asyncio.sleep(0)
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(left, timeout=_PATIENCE_S)
        if not any(task.done() for task in left):
            return
        await asyncio.sleep(0)
