"""The terminal as a prompt and a debugger share it: one of them reads at a time, and nobody writes into a line that is typed.

The prompt reads on the main thread. A debugger on another thread interrupts it with a signal, and the prompt shows the line
again, with what was typed, when the debugger has done. Log lines from other threads go above the line.
"""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import RLock, current_thread, main_thread
from time import sleep
from types import FrameType, ModuleType
from typing import Any

_POLL_S = 0.005
_WAKE = signal.SIGUSR1


class _Interrupted(BaseException):
    """The line is taken from the prompt."""


class Terminal:
    """Who has the terminal.

    Attributes:
        complete: Gives the n-th way to complete a word of the prompt, or None.
        asked: What a debugger has written before the line that it waits for; empty while it does not.
    """

    def __init__(self) -> None:
        self.complete: Callable[[str, int], str | None] | None = None
        self._taken = RLock()
        self._is_reading = False
        self._prompt = ""
        self._typed = ""
        self._modes: list[Any] | None = None
        self.asked = ""

    @cached_property
    def readline(self) -> ModuleType | None:
        """The module of this name, where the Python has it and a person types."""
        if not sys.stdin.isatty():
            return None
        try:
            import readline
        except ImportError:
            return None
        return readline

    @contextmanager
    def taken(self) -> Iterator[Terminal]:
        """Have the terminal, on any thread, until the end of the block; Ctrl-C cancels a line of the main thread meanwhile."""
        with self._taken:
            self._keep_modes()
            while self._is_reading:
                signal.pthread_kill(main_thread().ident or 0, _WAKE)
                sleep(_POLL_S)
            with self._without_history(), interruptible():
                try:
                    yield self
                finally:
                    self.asked = ""

    def read_line(self, prompt: str) -> str:
        """Let the person type a line, on the main thread.

        Raises:
            EOFError: Ctrl-D.
            KeyboardInterrupt: Ctrl-C.
        """
        self._keep_modes()
        self._prompt, self._typed = prompt, ""
        before = signal.signal(_WAKE, self._give_way)
        try:
            while True:
                line = self._try_to_read(prompt)
                if line is not None:
                    return line
        finally:
            signal.signal(_WAKE, before)

    def say_above(self, text: str, write: Callable[[str], None]) -> None:
        """Write text; above the line if one is being typed and somebody else writes."""
        if self.asked:  # the debugger keeps the terminal until it has its line
            self._say_above(self.asked, text, write)
        elif not self._is_reading or current_thread() is main_thread():
            write(text)
        else:
            with self._taken:
                self._say_above(self._prompt, text, write)

    def _say_above(self, prompt: str, text: str, write: Callable[[str], None]) -> None:
        sys.stdout.write("\r\x1b[2K")
        sys.stdout.flush()
        write(text)
        sys.stdout.write(f"{prompt}{self._line()}")
        sys.stdout.flush()

    def restore(self) -> None:
        """Leave the terminal as it was: a thread that still reads when the process ends would leave it without an echo."""
        if self._modes is not None:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._modes)

    def _keep_modes(self) -> None:
        if self._modes is None and sys.stdin.isatty():
            self._modes = termios.tcgetattr(sys.stdin.fileno())

    def _try_to_read(self, prompt: str) -> str | None:
        """The line, or None when somebody else has needed the terminal meanwhile."""
        with self._taken:
            self._is_reading = True
        try:
            if self.readline is not None:
                self.readline.set_completer(self.complete)
                self.readline.set_completer_delims(" \t\n")  # a debugger has set its own
                self.readline.parse_and_bind("tab: complete")
                self.readline.set_pre_input_hook(self._type_again if self._typed else None)
            return input(prompt)
        except _Interrupted:
            self._is_reading = False
            sys.stdout.write("\r\x1b[2K")
            sys.stdout.flush()
            return None
        finally:
            self._is_reading = False
            if self.readline is not None:
                self.readline.set_pre_input_hook(None)

    def _give_way(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_reading:
            self._typed = self._line()
            raise _Interrupted

    def _line(self) -> str:
        return "" if self.readline is None else str(self.readline.get_line_buffer())

    def _type_again(self) -> None:
        if self.readline is not None:
            self.readline.insert_text(self._typed)
            self.readline.redisplay()

    @contextmanager
    def _without_history(self) -> Iterator[None]:
        """What is typed to a debugger is no command of the prompt."""
        readline = self.readline
        if readline is None:
            yield
            return
        length = readline.get_current_history_length()
        try:
            yield
        finally:
            for position in range(readline.get_current_history_length() - 1, length - 1, -1):
                readline.remove_history_item(position)


class LogStream:
    """A stream for log lines: what is written to it goes above the line that is being typed."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def write(self, text: str) -> None:
        """Write to stderr."""
        self._terminal.say_above(text, _to_stderr)

    def flush(self) -> None:
        """Nothing is kept back."""


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt what the main thread does, instead of ending the graph; other threads cannot be interrupted."""
    if current_thread() is not main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
