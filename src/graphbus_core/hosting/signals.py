"""SIGTERM and SIGINT end a running graph in good order: the main thread leaves what it does with `Stopped`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """Somebody asked the process to end. Not an Exception: no handler of an event swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """What shells expect of a process that such a signal has interrupted."""
        return 128 + self.number


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `Stopped` in the main thread at the first of the signals; a second one ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        raise Stopped(number)

    for number in _SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_signal() -> None:
    """Do nothing until a signal arrives."""
    while True:
        signal.pause()
