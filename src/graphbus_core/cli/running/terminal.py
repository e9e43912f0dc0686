"""The terminal of `graphbus run`, shared by the prompt, the debugger and log lines.

Only one thread reads at a time. A debugger that stops on another thread waits until the current line of the prompt is entered.
Output of other threads appears above the line that is being typed.
"""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread, current_thread, main_thread
from typing import Any

from graphbus_core.cli import console
from graphbus_core.hosting.signals import reading_with_signals


class Terminal:
    """The terminal of a run. One thread reads at a time; `write` and `flush` make it a stream for log lines."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._reading = Lock()
        self._reader: Thread | None = None
        self._prompt = ""
        self._modes = termios.tcgetattr(sys.stdin.fileno()) if sys.stdin.isatty() else None

    @contextmanager
    def reading(self, prompt: str, reason: str = "") -> Iterator[None]:
        """Reserve the terminal for a `with` block that reads lines. On the main thread, Ctrl-C raises KeyboardInterrupt in it.

        Args:
            prompt: The text before each line.
            reason: If another thread is reading, this is printed, and the person must enter the current line first.
        """
        with self._turn:  # a waiting debugger gets the terminal before the next line of the prompt
            if not self._reading.acquire(blocking=False):
                if reason:
                    self.write(f"{reason}. Press Enter to go there.")
                self._reading.acquire()
        self._prompt, self._reader = prompt, current_thread()
        try:
            with interruptible(), reading_with_signals():
                yield
        finally:
            self._reader = None
            self._reading.release()

    def write(self, text: str) -> None:
        """Write a text to stderr. If another thread is reading a line, write above it, and show the typed part again."""
        if self._reader in (None, current_thread()):
            console.print_note(text.removesuffix("\n"))
            return
        console.print_line("\r\x1b[2K", end="")
        console.print_note(text.removesuffix("\n"))
        import readline  # loaded only where a person types

        console.print_line(f"{self._prompt}{readline.get_line_buffer()}", end="")
        console.flush()

    def flush(self) -> None:
        """Do nothing: output is never buffered."""

    def restore(self) -> None:
        """Restore the terminal modes, because a thread that still reads when the process ends leaves the echo off."""
        if self._modes:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._modes)


@contextmanager
def interruptible() -> Iterator[None]:
    """In a `with` block on the main thread, let Ctrl-C raise KeyboardInterrupt instead of ending the graph."""
    if current_thread() is not main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
