"""SIGTERM and SIGINT stop a running graph cleanly: `StopRequested` is raised in the main thread.

A handler that runs on the main thread, and the start of a graph, may finish first: then a helper thread sends the signal again
when they are done, or when the grace has passed.
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
"""How many seconds a signal waits for a graph that is starting."""
SIGNAL_POLL_S = 0.5
"""How often a main thread that waits must return to Python code, which is where Python runs signal handlers."""
_raised_signals: list[int] = []
"""The signals for which `StopRequested` was raised within the current `stop_on_signals`."""
_waiting_blocks: list[None] = []
"""One for each `interruptible` block that runs."""


class StopRequested(BaseException):
    """A signal asked the process to stop. A BaseException, so that isolating the errors of handlers does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """The exit status that shells expect of a process that this signal has ended."""
        return 128 + self.number


class SignalHandler:
    """Handles SIGTERM and SIGINT: raises `StopRequested` in the main thread as soon as that may be interrupted.

    Attributes:
        is_busy: Returns True while the main thread must not be interrupted.
        begin_grace: Returns for how many seconds a signal may wait from now on.
    """

    def __init__(self) -> None:
        self.is_busy: Callable[[], bool] = lambda: True
        self.begin_grace: Callable[[], float] = lambda: _START_S
        self._waiter: threading.Thread | None = None
        self._is_over = False  # `StopRequested` was raised, or `finish` was called: later signals are ignored
        self._has_signal = False
        self._number = 0
        self._lock = threading.Lock()

    def request_stop(self) -> None:
        """Send SIGTERM to this process unless a signal has arrived before; from any thread but the main one."""
        with self._lock:  # if a signal came after the test, SIGTERM would be the second signal, which raises at once
            if not self._has_signal:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def handle_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: raise now or, while the main thread is busy, start the thread that sends the signal again later.

        Once it has raised, or `finish` was called, it does nothing.

        Raises:
            StopRequested: If the main thread may be interrupted, or this is the second signal.
        """
        with self._lock:
            self._has_signal = True
        if self._is_over:
            return
        if self._waiter is None and self._must_wait():
            self._waiter = threading.Thread(
                target=self._send_again, args=(number,), name="graphbus-signal", daemon=True
            )
            self._waiter.start()
            return
        self._number = self._number or number
        if number == signal.SIGINT:
            # SIGTERM may be pending as well. Python calls the handlers of pending signals in the order of their numbers, so that
            # of SIGTERM is the last. If only that one raises, no pending signal is left for the default handlers set below.
            signal.raise_signal(signal.SIGTERM)
            return
        self._is_over = True
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        _raised_signals.append(self._number)
        raise StopRequested(self._number)

    def _must_wait(self) -> bool:
        return not _waiting_blocks and self.is_busy()

    def finish(self) -> None:
        """Ignore signals from now on, one that waits included, because the work that they would interrupt has ended."""
        self._is_over = True
        if self._waiter is not None:
            self._waiter.join()

    def _send_again(self, number: int) -> None:
        """Send the signal to the main thread again once that may be interrupted or the grace is over; not after `finish`."""
        deadline = monotonic() + self.begin_grace()
        while self._must_wait() and monotonic() < deadline and not self._is_over:
            sleep(_BUSY_POLL_S)
        if not self._is_over:
            signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal stop a graph that starts: within the block, it waits for something that may take for ever."""
    _waiting_blocks.append(None)
    try:
        yield
    finally:
        _waiting_blocks.pop()


@contextmanager
def stop_on_signals() -> Iterator[SignalHandler]:
    """Within the block, raise `StopRequested` at the first SIGTERM or SIGINT; a signal after that ends the process at once.

    On any thread but the main one, signals are not handled.
    """
    signal_handler = SignalHandler()
    if threading.current_thread() is not threading.main_thread():
        yield signal_handler
        return
    before = {number: signal.signal(number, signal_handler.handle_signal) for number in _SIGNALS}
    try:
        yield signal_handler
    finally:
        signal_handler.finish()
        _raised_signals.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt_main_thread() -> None:
    """Send SIGINT to the main thread, as Ctrl-C does, unless SIGINT is ignored or has the default action; from any thread."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def reading_with_signals() -> Iterator[None]:
    """Within the block, make the main thread handle signals while it reads, after `SIGNAL_POLL_S` at most.

    On any other thread the block changes nothing.

    Python runs signal handlers between two instructions. A signal that arrives right before a blocking system call is not handled
    until the call returns. So a thread interrupts the call every `SIGNAL_POLL_S` with SIGURG, which is not used otherwise.
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
    interrupter = threading.Thread(target=interrupt, name="graphbus-look", daemon=True)
    interrupter.start()
    try:
        yield
    finally:
        is_over.set()
        interrupter.join()
        signal.signal(signal.SIGURG, before or signal.SIG_DFL)  # `before` is None if C code had set that handler


def wait_for_signal() -> None:
    """Block the main thread until a signal raises `StopRequested`."""
    while True:
        raise_missed_signal()
        sleep(SIGNAL_POLL_S)  # not `signal.pause`: it would miss a signal that arrives right before it


def raise_missed_signal() -> None:
    """Raise `StopRequested` again if it was raised where Python ignores exceptions, such as in a finaliser.

    Loops that wait on the main thread call this every `SIGNAL_POLL_S`.
    """
    if _raised_signals:
        raise StopRequested(_raised_signals[-1])
