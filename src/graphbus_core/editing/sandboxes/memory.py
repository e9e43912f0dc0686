"""How much memory a command and all that it has started hold together, weighed from outside of its jail.

The kernel limits each process by itself. Together they may hold no more than one: what is theirs alone, their part of what they
share, what is swapped out, and what lies in folders that are kept in memory. The buffers of their sockets and pipes cannot be
weighed; how many files are open bounds them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

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
