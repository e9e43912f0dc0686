"""What a running command and all that it has started have used: processor time, and time in which all of them slept.

Neither grows while others keep the machine busy: who waits for a processor or for a disk does not sleep, and uses none.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

LOOK_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = ("R", "D")
"""States in which a thread runs, or waits for a processor or a disk."""


class _Seen(NamedTuple):
    """One process: the processor time of its threads, dead ones included, and of the children that it waited for."""

    cpu_s: float
    is_asleep: bool


class Usage:
    """Measures one child process and its descendants by looking at them from time to time.

    Where there is no `/proc`, only what has ended is counted.

    Attributes:
        cpu_s: Processor time of all of them together.
        asleep_s: Time in which none of them ran or wanted to.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.cpu_s = self.asleep_s = 0.0
        self._child = child
        self._looked_s = time.monotonic()
        self._pause_s = LOOK_S

    @property
    def used_s(self) -> float:
        """What counts against a time limit."""
        return self.cpu_s + self.asleep_s

    def has_ended(self) -> bool:
        """Tell whether the child has ended; then its descendants are counted to the end."""
        if self._child.returncode is None:
            try:
                pid, status, spent = os.wait4(self._child.pid, os.WNOHANG)  # `poll` would not tell what it has spent
            except ChildProcessError:  # this process ignores SIGCHLD, or somebody else waits for its children
                return self._child.poll() is not None
            if pid:
                self._child.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = max(self.cpu_s, spent.ru_utime + spent.ru_stime)
        return self._child.returncode is not None

    def look(self) -> float:
        """Measure, if it is time to, and give `used_s`."""
        begun = time.monotonic()
        passed_s = begun - self._looked_s
        if passed_s < self._pause_s or self.has_ended():
            return self.used_s
        found = list(_tree(self._child.pid))
        self.cpu_s = max(self.cpu_s, sum(each.cpu_s for each in found))
        if found and all(each.is_asleep for each in found):
            self.asleep_s += min(passed_s, 2 * self._pause_s)  # if it was longer, it was we who could not look
        self._looked_s = begun
        self._pause_s = max(LOOK_S, 10 * (time.monotonic() - begun))
        return self.used_s


def _tree(pid: int) -> Iterator[_Seen]:
    """Look at a process and all its descendants; who ends meanwhile is left out."""
    waiting = [pid]
    while waiting:
        with suppress(OSError, ValueError, IndexError):
            folder = f"/proc/{waiting.pop()}"
            fields = _stat(folder)
            threads = [f"{folder}/task/{name}" for name in os.listdir(f"{folder}/task")]
            states = {fields[0]} if len(threads) == 1 else {_stat(thread)[0] for thread in threads}
            for thread in threads:
                with open(f"{thread}/children", "rb") as file:
                    waiting += map(int, file.read().split())
            yield _Seen(sum(map(int, fields[11:15])) / _TICKS, states.isdisjoint(_BUSY))


def _stat(folder: str) -> list[str]:
    """Give the fields of a stat file that follow the name, which may hold anything: the state is the first."""
    with open(f"{folder}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()
