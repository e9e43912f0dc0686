"""Measures the time, the disk and the memory that a child process and its descendants use; reads `/proc`."""

from __future__ import annotations

import errno
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_POLL_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY_STATES = ("R", "D")
"""The states of a thread that runs, or waits for a processor or a disk."""
_DISK_PAUSE_S, MEMORY_PAUSE_S = 0.2, 0.05
"""The shortest pauses between two measurements."""
_INODE_BYTES = 1024
"""The bytes that each file in memory counts, besides its content."""
_MAX_OPEN_FILES = 4096
_RESIDENT = re.compile(rb"^Vm(?:RSS|Swap):\s+(\d+) kB", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(?:Pss|SwapPss):\s+(\d+) kB", re.MULTILINE)
_MIN_FILE_BYTES = 4096
"""The bytes that a file counts at least: empty files use up the disk as well."""
_KEPT_FREE = (2_000_000_000, 50_000)
"""The bytes and the number of files that must stay free on the disk; half of what is free now if that is less."""

# --- time --------------------------------------------------------------------------------------------
#
# Processor time plus sleep does not grow while other programs keep the machine busy: a process that waits for a processor or the
# disk uses no processor time and is not asleep.


class ProcessUsage:
    """The time that a child process and its descendants use, measured by polling `/proc`.

    Where there is no `/proc`, only the child's own time is known, after its end.

    Attributes:
        cpu_s: The processor time of all of them together.
        asleep_s: The time in which all of them slept.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.cpu_s = self.asleep_s = 0.0
        self._child = child
        self._measured_s = time.monotonic()
        self._pause_s = _POLL_S

    @property
    def used_s(self) -> float:
        """The time that counts against the limit."""
        return self.cpu_s + self.asleep_s

    def has_ended(self) -> bool:
        """True once the child has ended; its processor time then includes the descendants that it waited for."""
        if self._child.returncode is None:
            try:
                pid, status, spent = os.wait4(self._child.pid, os.WNOHANG)  # unlike `poll`, it returns the time used
            except ChildProcessError:  # this process ignores SIGCHLD, or other code waits for its children
                return self._child.poll() is not None
            if pid:
                self._child.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = max(self.cpu_s, spent.ru_utime + spent.ru_stime)
        return self._child.returncode is not None

    def poll(self) -> float:
        """Measure again unless the last measurement is too recent, and return `used_s`."""
        start_s = time.monotonic()
        passed_s = start_s - self._measured_s
        if passed_s < self._pause_s or self.has_ended():
            return self.used_s
        found = list(_measure_processes(self._child.pid))
        self.cpu_s = max(self.cpu_s, sum(cpu_s for cpu_s, _ in found))  # the sum drops when an orphan ends
        if found and all(is_asleep for _, is_asleep in found):
            self.asleep_s += min(passed_s, 2 * self._pause_s)  # a longer gap means that this process was delayed
        self._measured_s = start_s
        self._pause_s = max(_POLL_S, 10 * (time.monotonic() - start_s))
        return self.used_s


def _measure_processes(pid: int) -> Iterator[tuple[float, bool]]:
    """Yield (processor time in seconds, whether it sleeps) for a process and each of its descendants.

    The time includes that of children which have ended.
    """
    for one in _process_tree(pid):
        with suppress(OSError, ValueError, IndexError):  # the process has ended meanwhile
            fields, threads = _read_stat(f"/proc/{one}"), os.listdir(f"/proc/{one}/task")
            states = (
                {fields[0]} if len(threads) == 1 else {_read_stat(f"/proc/{one}/task/{name}")[0] for name in threads}
            )
            yield sum(map(int, fields[11:15])) / _TICKS, states.isdisjoint(_BUSY_STATES)


def _process_tree(pid: int) -> Iterator[int]:
    """Yield the ids of a process and of its descendants.

    Without isolation, orphans are not among them; with isolation they become children of the sandbox's first process.
    """
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        with suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError), open(f"/proc/{one}/task/{task}/children", "rb") as children:
                    waiting += map(int, children.read().split())


def _read_stat(folder: str) -> list[str]:
    """Return the fields of a `stat` file of `/proc` from the state on; the name before it may contain spaces."""
    with open(f"{folder}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


# --- disk and memory -----------------------------------------------------------------------------------


class Meter:
    """Measures from time to time whether a limit is exceeded, so rarely that measuring takes at most a tenth of the time.

    Args:
        pause_s: The shortest pause between two measurements.
        find_excess: Measures, and returns a sentence if a limit is exceeded, else `""`.
    """

    def __init__(self, pause_s: float, find_excess: Callable[[], str]) -> None:
        self._pause_s = pause_s
        self._find_excess = find_excess
        self._next = time.monotonic() + pause_s
        self.excess = ""

    def poll(self) -> str:
        """Measure if the pause is over, and return the sentence of the last measurement; `""` if no limit is exceeded."""
        if time.monotonic() >= self._next:
            start_s = time.thread_time()  # wall time is longer on a busy machine, and would make measuring rarer
            # A sum over moving parts may be wrong once: only two measurements in a row count.
            self.excess = self._find_excess() and self._find_excess()
            self._next = time.monotonic() + max(self._pause_s, 10 * (time.thread_time() - start_s))
        return self.excess


def make_disk_meter(folders: Sequence[Path], disk_mb: int) -> Meter:
    """Return a meter for the growth of folders from now on.

    A deleted file that is still open is in no folder; it shows when the free space on the disk falls below a floor.
    """
    start, allowed = _disk_usage(folders), disk_mb * 1_000_000
    floors = [min(left // 2, floor) for left, floor in zip(_free_space(folders), _KEPT_FREE, strict=True)]

    def describe_excess() -> str:
        is_over = _disk_usage(folders) - start > allowed
        is_full = is_over or any(now < floor for now, floor in zip(_free_space(folders), floors, strict=True))
        return f"it wrote more than {disk_mb} MB" if is_full else ""

    return Meter(_DISK_PAUSE_S, describe_excess)


def _free_space(folders: Sequence[Path]) -> tuple[int, int]:
    """Return the bytes and the number of files that the disk of the first folder still has room for.

    The command may have deleted the folder; then the one above it counts.
    """
    folder = folders[0]
    while True:
        try:
            disk = os.statvfs(folder)
        except FileNotFoundError:
            folder = folder.parent
        else:
            return disk.f_bavail * disk.f_frsize, disk.f_favail


def _disk_usage(folders: Sequence[Path]) -> float:
    """Return the bytes that the files in folders take up on the disk; infinite if folders are nested too deeply to read."""
    total = 0
    waiting = [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    with suppress(OSError):  # it is gone again
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        total += max(entry.stat(follow_symlinks=False).st_blocks * 512, _MIN_FILE_BYTES)
        except OSError as reason:
            if reason.errno == errno.ENAMETOOLONG:
                return math.inf
    return total


def describe_memory_excess(pid: int, allowed_bytes: int, folders: Sequence[str]) -> str:
    """Return a sentence if a process and its descendants together hold too much memory, or too many open files; else `""`.

    The kernel limits only each process by itself. Private memory counts, and a share of shared memory, swap, and `folders` in
    memory. Buffers of sockets and pipes cannot be measured; the limit on open files bounds them.
    """
    family = list(_process_tree(pid)) if allowed_bytes else []
    if sum(map(_count_open_files, family)) > _MAX_OPEN_FILES:
        return f"it held more than {_MAX_OPEN_FILES} open files"
    # One process is enough to read them: all in the sandbox see the same folders.
    stored = max((_bytes_in_memory_folders(each, folders) for each in family[-1:]), default=0)
    resident = [_sum_proc_values(each, "status", _RESIDENT) or 0 for each in family]
    if stored + sum(resident) <= allowed_bytes:  # cheap, but counts shared memory more than once
        return ""
    parts = (_sum_proc_values(each, "smaps_rollup", _PROPORTIONAL) for each in family)  # None without permission
    held = stored + sum(whole if part is None else part for whole, part in zip(resident, parts, strict=True))
    return f"it held more than {allowed_bytes >> 20} MB of memory" if held > allowed_bytes else ""


def _sum_proc_values(pid: int, name: str, wanted: re.Pattern[bytes]) -> int | None:
    """Return the sum of the matching kB values in a file of `/proc/PID`, in bytes; None if it cannot be read."""
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return sum(map(int, wanted.findall(file.read()))) << 10
    return None


def _count_open_files(pid: int) -> int:
    """Return how many files a process has open; 0 on Linux before 6.2, which does not say."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}/fd").st_size
    return 0


def _bytes_in_memory_folders(pid: int, folders: Sequence[str]) -> int:
    """Return the bytes in memory folders of a sandbox, read through one of its processes; 0 before they are mounted."""
    total = 0
    for folder in folders:
        with suppress(OSError):
            inside = f"/proc/{pid}/root{folder}"
            if not os.path.exists(folder) or os.stat(inside).st_dev != os.stat(folder).st_dev:
                disk = os.statvfs(inside)
                total += (disk.f_blocks - disk.f_bfree) * disk.f_frsize + (disk.f_files - disk.f_ffree) * _INODE_BYTES
    return total
