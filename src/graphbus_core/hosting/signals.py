"""SIGTERM and SIGINT end a running graph in good order: the main thread leaves what it does with `StopRequested`.

A handler that runs on the main thread may end first; so may the start of the graph.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BUSY_POLL_S = 0.01
_START_S = 10.0
"""So long a signal waits for a graph that is being started."""
SIGNAL_POLL_S = 0.5
_asked: list[int] = []
"""The signals for which `StopRequested` was raised, as long as somebody minds signals."""


class StopRequested(BaseException):
    """Somebody asked the process to end. Not an Exception: no handler of an event swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """What shells expect of a process that such a signal has interrupted."""
        return 128 + self.number


class SignalHandler:
    """What a signal waits for.

    Attributes:
        is_busy: True while the main thread must not be interrupted.
        begin_grace: Gives how many seconds a signal waits at most.
    """

    def __init__(self) -> None:
        self.is_busy: Callable[[], bool] = lambda: True
        self.begin_grace: Callable[[], float] = lambda: _START_S
        self._waiter: threading.Thread | None = None
        self._is_over = False
        self._is_asked = False
        self._number = 0
        self._asking = threading.Lock()

    def request_stop(self) -> None:
        """Do what SIGTERM does, unless a signal has come already; from any thread but the main one."""
        with (
            self._asking
        ):  # `handle_signal` cannot run between the look and the signal, which it might take for the second one
            if not self._is_asked:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def handle_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: wait for what must not be interrupted; a second one while it waits does not wait.

        Raises:
            Stopped: Now is the time.
        """
        with self._asking:
            self._is_asked = True
        if self._is_over:
            return
        if self._waiter is None and self.is_busy():
            self._waiter = threading.Thread(
                target=self._send_again, args=(number,), name="graphbus-signal", daemon=True
            )
            self._waiter.start()
            return
        self._number = self._number or number
        if number == signal.SIGINT:
            # SIGTERM may have come as well. Python calls handlers in the order of their numbers, so the last one leaves: a signal
            # that is still noted when the handlers are taken away is reported with a traceback.
            signal.raise_signal(signal.SIGTERM)
            return
        self._is_over = True
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        _asked.append(self._number)
        raise StopRequested(self._number)

    def finish(self) -> None:
        """Let go of a signal that still waits: what it would have interrupted is done."""
        self._is_over = True
        if self._waiter is not None:
            self._waiter.join()

    def _send_again(self, number: int) -> None:
        deadline = monotonic() + self.begin_grace()
        while self.is_busy() and monotonic() < deadline and not self._is_over:
            sleep(_BUSY_POLL_S)
        if not self._is_over:
            signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def stop_on_signals() -> Iterator[SignalHandler]:
    """Raise `StopRequested` in the main thread at the first SIGTERM or SIGINT; a later one ends the process at once."""
    patience = SignalHandler()
    if threading.current_thread() is not threading.main_thread():
        yield patience
        return
    before = {number: signal.signal(number, patience.handle_signal) for number in _SIGNALS}
    try:
        yield patience
    finally:
        patience.finish()
        _asked.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt_main_thread() -> None:
    """Let the main thread leave what it does, as after Ctrl-C; from any thread."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def reading_with_signals() -> Iterator[None]:
    """Let the main thread notice a signal while it reads, at the latest after `SIGNAL_POLL_S`; on other threads nothing is done.

    Python notes a signal and calls its handler between two instructions. Of one that is noted right before a read begins to wait,
    the read knows nothing. So SIGURG, which means nothing here, interrupts the read again and again, and Python looks.
    """
    main = threading.get_ident()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = threading.Event()

    def interrupt() -> None:
        while not is_over.wait(SIGNAL_POLL_S):
            signal.pthread_kill(main, signal.SIGURG)

    before = signal.signal(signal.SIGURG, lambda *_: None)
    waker = threading.Thread(target=interrupt, name="graphbus-look", daemon=True)
    waker.start()
    try:
        yield
    finally:
        is_over.set()
        waker.join()
        signal.signal(signal.SIGURG, before or signal.SIG_DFL)  # None: a handler that Python knows nothing of


def wait_for_signal() -> None:
    """Do nothing until a signal arrives."""
    while True:
        raise_missed_signal()
        sleep(
            SIGNAL_POLL_S
        )  # not `signal.pause`: a signal that comes right before it would be noticed with the next one only


def raise_missed_signal() -> None:
    """Raise `StopRequested` for a signal that has raised it where nobody heard it, e.g. while Python ran a finaliser.

    Who waits on the main thread does so for `SIGNAL_POLL_S` at a time, and calls this in between.
    """
    if _asked:
        raise StopRequested(_asked[-1])
