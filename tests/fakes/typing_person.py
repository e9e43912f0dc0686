"""A person at a real pseudo terminal: starts a command there, types, and reads what the screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.patience import PATIENCE_S

CTRL_C, CTRL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"
_MOMENT_S = 0.2
_PAINT = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Person:
    """Use it in a `with` statement; a command that still runs at its end is killed."""

    def __init__(self, arguments: Sequence[str], cwd: Path, columns: int = 120) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, os.ttyname(slave), *arguments],
            cwd=cwd,
            env={**kept, "TERM": "xterm", "NO_COLOR": "1", "INPUTRC": "/dev/null"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""
        self._read_to = 0

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def types(self, text: str) -> None:
        """Type a line."""
        os.write(self._master, f"{text}\n".encode())

    def keys(self, text: str) -> None:
        """Type without the return key."""
        with suppress(OSError):  # the command has ended
            os.write(self._master, text.encode())

    def presses(self, key: str, until: str) -> None:
        """Press a key until the text is shown: one that comes before the command waits again is lost, as at any terminal."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.keys(key)
            if self._is_seen(until, _MOMENT_S * 5) or time.monotonic() > deadline:
                break
        self.sees(until)

    def sees(self, text: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait until the text is shown, after what was seen before, and give what was shown up to its end."""
        assert self._is_seen(text, timeout_s), f"no {text!r} in:\n{self.seen}"
        begin = self._read_to
        self._read_to = self.seen.index(text, begin) + len(text)
        return self.seen[begin : self._read_to]

    def is_asked(self, text: str, timeout_s: float = PATIENCE_S) -> bool:
        """Wait until the text is shown once more, or the command has ended, which is False; that it hangs is shown."""
        deadline = time.monotonic() + timeout_s
        while text not in self.seen[self._read_to :]:
            if self._process.poll() is not None and not self._is_seen(text, _MOMENT_S):
                return False
            assert time.monotonic() < deadline, f"it neither asks nor ends:\n{self.seen}\n{self._stacks()}"
            self._look(0.1)
        self.sees(text)
        return True

    def leaves(self, key: str = "", timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end of the command, pressing a key if there is one, and give its exit status."""
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.seen}\n{self._stacks()}"
            if key:
                self.keys(key)
            self._look(_MOMENT_S)
        self._look(0.05)
        return self._process.returncode

    @property
    def has_echo(self) -> bool:
        """The terminal shows what is typed."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def kill(self, number: int) -> None:
        """Send the command a signal, when it waits again."""
        time.sleep(_MOMENT_S)
        self._process.send_signal(number)

    def _stacks(self) -> str:
        """Where each thread of the command is, which alone tells why it does not end."""
        before = len(self.seen)
        self._process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            self._look(_MOMENT_S)
        return self.seen[before:]

    def _is_seen(self, text: str, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while text not in self.seen[self._read_to :]:
            if time.monotonic() > deadline:
                return False
            self._look(0.1)
        return True

    def _look(self, timeout_s: float) -> None:
        ready, _, _ = select.select([self._master], [], [], timeout_s)
        if not ready:
            return
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return
        self.seen += _PAINT.sub("", data.decode(errors="replace")).replace("\r\n", "\n").replace("\x07", "")


_COMMAND = """
import faulthandler, fcntl, os, signal, sys, termios
faulthandler.register(signal.SIGUSR2)
terminal = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.close(terminal)
sys.argv = ["graphbus", *sys.argv[2:]]
from graphbus_core.cli import main
sys.exit(main())
"""
