"""Calling what users wrote: an Exception of it is an outcome and spreads to nobody; all other ways to end go on up.

What it has started as processes can be found by a mark, and ended.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar

from graphbus_core.errors import RunError

T = TypeVar("T")
R = TypeVar("R")


def run_each(calls: Iterator[Callable[[T], object]], argument: T, failed: Callable[[Exception], object]) -> None:
    """Call each of `calls`; the Exception of one goes to `failed` and does not keep the next from being called."""
    while True:
        try:
            for call in calls:
                call(argument)
            return
        except Exception as error:  # noqa: BLE001 - what a handler raises is its own affair: isolation
            failed(error)


def attempt(work: Callable[[], R]) -> tuple[R | None, Exception | None]:
    """Call `work` and give its result and None, or None and the Exception that it raised."""
    results: list[R] = []
    errors: list[Exception] = []
    run_each(iter([lambda _nothing: results.append(work())]), None, errors.append)
    return (results[0], None) if results else (None, errors[0])


class Job:
    """Work that another thread does and this one waits for."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._under_way = Lock()  # a tenth of the price of an Event
        self._under_way.acquire()
        self._work: Callable[[], Any] | None = work
        self._result: Any = None
        self._error: Exception | None = None
        self._is_done = False

    def perform(self) -> None:
        """Do the work, once, and let the one who waits go on."""
        work, self._work = self._work, None
        try:
            if work is not None:
                self._result, self._error = attempt(work)
                self._is_done = True
        finally:
            self._under_way.release()

    def wait(self, timeout_s: float = -1) -> bool:
        """Wait until the work is done, once; False when it was not done in time."""
        return self._under_way.acquire(timeout=timeout_s)

    def give_up(self) -> None:
        """Nobody waits any more: what has not begun is not done."""
        self._work = None

    def result(self) -> Any:
        """Give the result, or raise the Exception that the work has raised, or GBE618 when it was interrupted."""
        if not self._is_done:
            raise RunError("GBE618")
        if self._error is not None:
            raise self._error
        return self._result


def end_marked(variable: str, value: str) -> None:
    """Kill the processes that bear a mark in their environment, and those that they start meanwhile.

    Who has left the group and the session of its parent is found by it; who has given up its environment is not, nor is anybody
    where there is no /proc.
    """
    for _ in range(50):
        left = _marked(f"{variable}={value}".encode())
        if not left:
            break
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _marked(mark: bytes) -> list[int]:
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with (
                suppress(OSError),
                open(f"/proc/{name}/environ", "rb") as environ,
            ):  # it may be somebody else's, or gone
                if mark in environ.read().split(b"\0"):
                    found.append(int(name))
    return found
