"""What a running command and all that it has started have used: processor time, time in which all of them slept, memory.

Neither grows while others keep the machine busy: who waits for a processor or for a disk does not sleep, and uses none.

`Memory` weighs what they hold together, from outside of the jail: the kernel limits each process only by itself. Counted are
memory that is theirs alone, their part of what they share, what is swapped out, and folders that are kept in memory. The buffers
of sockets and pipes cannot be weighed; the number of open files bounds them.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

_WEIGH_S = 0.05
_INODE = 1024
"""What a file in memory counts beside its content, in bytes."""
_MOST_FILES = 4096
_RESIDENT = re.compile(rb"^Vm(?:RSS|Swap):\s+(\d+) kB", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(?:Pss|SwapPss):\s+(\d+) kB", re.MULTILINE)


class Memory:
    """Weighs a process and its descendants from time to time, never more often than a tenth of the time can be spent on it.

    Args:
        pid: The process.
        allowed_bytes: What all may hold together; 0: no limit.
        folders: Paths at which the process sees folders that are kept in memory and are its own.
    """

    def __init__(self, pid: int, allowed_bytes: int, folders: Sequence[str]) -> None:
        self._pid = pid
        self._allowed = allowed_bytes
        self._folders = folders
        self._next = time.monotonic() + _WEIGH_S
        self.excess = ""

    def weigh(self) -> bool:
        """Tell whether they hold too much, and keep in `excess` of what."""
        begun = time.monotonic()
        if self._allowed and begun >= self._next:
            self.excess = self._excess()
            self._next = time.monotonic() + max(_WEIGH_S, 10 * (time.monotonic() - begun))
        return bool(self.excess)

    def _excess(self) -> str:
        family = list(_family(self._pid))
        if sum(map(_open_files, family)) > _MOST_FILES:
            return f"more than {_MOST_FILES} open files"
        stored = max((_stored(pid, self._folders) for pid in family[-1:]), default=0)
        resident = sum(_kilobytes(pid, "status", _RESIDENT) or 0 for pid in family) << 10
        if stored + resident <= self._allowed:  # a sum in which what is shared counts more than once
            return ""
        is_over = stored + sum(map(_held, family)) > self._allowed
        return f"more than {self._allowed >> 20} MB of memory" if is_over else ""


def _family(pid: int) -> Iterator[int]:
    """Give a process and its descendants; an orphan in a jail is a child of the jail's first process."""
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        with suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError), open(f"/proc/{one}/task/{task}/children", "rb") as children:
                    waiting += map(int, children.read().split())


def _held(pid: int) -> int:
    """Give the bytes that are a process's own, and its part of what it shares; all of both where we may not see the parts."""
    kilobytes = _kilobytes(pid, "smaps_rollup", _PROPORTIONAL)
    return (_kilobytes(pid, "status", _RESIDENT) or 0 if kilobytes is None else kilobytes) << 10


def _kilobytes(pid: int, name: str, wanted: re.Pattern[bytes]) -> int | None:
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return sum(map(int, wanted.findall(file.read())))
    return None


def _open_files(pid: int) -> int:
    """Give how many files a process has open; Linux before 6.2 does not say."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}/fd").st_size
    return 0


def _stored(pid: int, folders: Sequence[str]) -> int:
    """Give the bytes in the folders as a process sees them; none while it still sees those of this machine."""
    total = 0
    for folder in folders:
        with suppress(OSError):
            theirs = f"/proc/{pid}/root{folder}"
            if not os.path.exists(folder) or os.stat(theirs).st_dev != os.stat(folder).st_dev:
                disk = os.statvfs(theirs)
                total += (disk.f_blocks - disk.f_bfree) * disk.f_frsize + (disk.f_files - disk.f_ffree) * _INODE
    return total


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
