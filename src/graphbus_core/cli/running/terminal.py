"""The terminal of `graphbus run`, shared by the prompt, the debugger and log lines.

One thread reads at a time. A debugger that stops on another thread waits until the person at the prompt has entered the
line; the prompt reads on when the debugger is done. Log lines of other threads appear above the line that is being typed.
"""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import RLock, Thread, current_thread, main_thread
from types import ModuleType
from typing import Any


class Terminal:
    """Gives the terminal to one reader at a time."""

    def __init__(self) -> None:
        self._next = RLock()
        """Held by a debugger as long as it waits and reads, so that the prompt cannot begin another line before it."""
        self._reading = RLock()
        self._reader: Thread | None = None
        self._prompt = ""
        self._modes: list[Any] | None = None

    @cached_property
    def readline(self) -> ModuleType | None:
        """The module of this name, if Python has it and a person types."""
        if not sys.stdin.isatty():
            return None
        try:
            import readline
        except ImportError:
            return None
        return readline

    @contextmanager
    def line(self, prompt: str) -> Iterator[None]:
        """Have the terminal to read one line after this prompt."""
        with self._next:
            self._reading.acquire()
        try:
            with self._read_by_this_thread(prompt):
                yield
        finally:
            self._reading.release()

    @contextmanager
    def taken(self, prompt: str, reason: str) -> Iterator[None]:
        """Have the terminal until the end of the block; Ctrl-C cancels a line of the main thread meanwhile.

        Args:
            prompt: What is written before each line that is read in the block.
            reason: Shown above the line of the prompt, if a person is typing one and must enter it first.
        """
        with self._next:
            if not self._reading.acquire(blocking=False):
                self.say_above(f"{reason}. Press Enter to look at it.\n", _to_stdout)
                self._reading.acquire()
            try:
                with self._read_by_this_thread(prompt), interruptible():
                    yield
            finally:
                self._reading.release()

    @contextmanager
    def _read_by_this_thread(self, prompt: str) -> Iterator[None]:
        if self._modes is None and sys.stdin.isatty():
            self._modes = termios.tcgetattr(sys.stdin.fileno())
        before = self._prompt, self._reader
        self._prompt, self._reader = prompt, current_thread()
        try:
            yield
        finally:
            self._prompt, self._reader = before

    def say_above(self, text: str, write: Callable[[str], None]) -> None:
        """Write text; above the line that another thread is reading, if there is one."""
        if self._reader in (None, current_thread()):
            write(text)
            return
        _to_stdout("\r\x1b[2K")
        write(text)
        typed = "" if self.readline is None else str(self.readline.get_line_buffer())
        _to_stdout(f"{self._prompt}{typed}")

    def restore(self) -> None:
        """Leave the terminal as it was: a thread that still reads when the process ends would leave it without an echo."""
        if self._modes is not None:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._modes)


class LogStream:
    """A stream for log lines: what is written to it appears above the line that is being typed."""

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


def _to_stdout(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


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
