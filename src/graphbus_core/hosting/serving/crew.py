"""Threads that do what the loop of the server must not wait for: a bounded number of them, with a bounded line before them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt

R = TypeVar("R")


class Errand:
    """One piece of work; `settle` gets its result, or the Exception that it raised, on the thread that did it."""

    __slots__ = ("is_dropped", "settle", "work")

    def __init__(self, work: Callable[[], object], settle: Callable[[Any, Exception | None], None]) -> None:
        self.work = work
        self.settle = settle
        self.is_dropped = False


class Crew:
    """Does work for a server.

    Args:
        size: Threads; each is started when first needed.
        backlog: How much work may wait for them.
    """

    def __init__(self, size: int, backlog: int) -> None:
        self._size = max(1, size)
        self._limit = self._size + backlog
        self._line: SimpleQueue[Errand | None] = SimpleQueue()
        self._lock = Lock()
        self._threads = 0
        self.in_hand = 0

    async def do(self, work: Callable[[], R], timeout_s: float) -> tuple[R | None, Exception | None]:
        """Have the work done by a thread, and give its result and None, or None and the Exception that it raised.

        Raises:
            RunError: GBE678 when too much waits, GBE679 when the time is up; what has not begun then never does.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[R | None, Exception | None]] = loop.create_future()

        def give(result: Any, error: Exception | None) -> None:
            if not future.done():
                future.set_result((result, error))

        def settle(result: Any, error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it the one who waited
                loop.call_soon_threadsafe(give, result, error)

        errand = Errand(work, settle)
        self._accept(errand)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise RunError("GBE679", timeout_s=timeout_s) from None
        finally:
            errand.is_dropped = True

    def dismiss(self) -> None:
        """Let the threads end. One that is at work ends after it."""
        for _ in range(self._threads):
            self._line.put(None)

    def _accept(self, errand: Errand) -> None:
        with self._lock:
            if self.in_hand >= self._limit:
                raise RunError("GBE678", count=self.in_hand)
            self.in_hand += 1
            is_short = self._threads < min(self._size, self.in_hand)
            self._threads += is_short
        if is_short:
            self._hire()
        self._line.put(errand)

    def _hire(self) -> None:
        """Start one more thread; where the system gives none, those that there are have to do.

        Raises:
            RunError: GBE678 when there are none.
        """
        try:
            Thread(target=self._work, name="graphbus-http-worker", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    self.in_hand -= 1
                    raise RunError("GBE678", count=self.in_hand) from None

    def _work(self) -> None:
        try:
            while (errand := self._line.get()) is not None:
                self._perform(errand)
        finally:
            with self._lock:
                self._threads -= 1

    def _perform(self, errand: Errand) -> None:
        """Do it; whatever else than an Exception ends it ends the thread too, and another one takes its place."""
        result: object = None
        error: Exception | None = RunError("GBE618")
        try:
            if not errand.is_dropped:
                result, error = attempt(errand.work)
        finally:
            with self._lock:
                self.in_hand -= 1
            errand.settle(result, error)
