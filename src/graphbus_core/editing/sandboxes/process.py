"""The sandbox without walls: a child process with limits. The jails start, watch and end their commands with the same code.

The command gets a session of its own, an environment from an allow list, no input, bounded output, and limits on time, memory,
disk and processes. When a limit is reached, it is ended with all processes that it has started. It can reach the network and
every file that the user can read.
"""

from __future__ import annotations

import errno
import math
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Protocol

from graphbus_core.errors import NotJudgedError
from graphbus_core.isolation import kill_marked_processes

_LOOK_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = ("R", "D")
"""The states of a thread that runs, or waits for a processor or a disk."""
_WEIGH_S, _WEIGH_MEMORY_S = 0.2, 0.05
_INODE = 1024
"""The bytes that a file in memory counts besides its content."""
_MOST_FILES = 4096
_RESIDENT = re.compile(rb"^Vm(?:RSS|Swap):\s+(\d+) kB", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(?:Pss|SwapPss):\s+(\d+) kB", re.MULTILINE)
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_MARK = "INVOCATION_ID"
"""The variable that marks all processes of a command. Services of systemd have it too, so it does not reveal a trial."""
_MOST_LEFT = 64
"""How often a pipe is read at the end: it may hold a mebibyte, and a process that is left may keep filling it."""
_SMALLEST = 4096
"""The bytes that a file counts at least: empty files use up the disk as well."""
_KEPT_FREE = (2_000_000_000, 50_000)
"""The bytes and files for which room is kept on the disk; half of the present room if that is less."""
_LIMITS = """\
ulimit -c 0
ulimit -t "$1"
ulimit -f "$2"
[ "$3" = 0 ] || ulimit -v "$3" 2>/dev/null
[ "$4" = 0 ] || ulimit -p "$4" 2>/dev/null || ulimit -u "$4" 2>/dev/null
shift 4
exec "$@"
"""


class Limits(NamedTuple):
    """What a command may use.

    Attributes:
        timeout_s: The processor time of all its processes, plus the time in which all of them sleep. So a busy machine does not
            make a command run out of time.
        patience: After this multiple of `timeout_s` in wall time the command is ended without a verdict: the machine is busy.
        memory_mb: The address space of each process, and the memory of all of them together; 0: no limit.
        file_size_mb: The size of each file that it writes.
        processes: The number of processes at a time; 0: no limit. Outside of a jail, root is not bound by it.
        output_bytes: How much is kept of its standard output and of its standard error; the rest is dropped.
        disk_mb: How much the folder that it runs in may grow, and how much its home and temporary folder may hold.
    """

    timeout_s: float = 60.0
    patience: float = 20.0
    memory_mb: int = 2048
    file_size_mb: int = 64
    processes: int = 256
    output_bytes: int = 1_000_000
    disk_mb: int = 512


class FinishedProcess(NamedTuple):
    """The end of a command.

    Attributes:
        returncode: The exit status; negative if a signal ended it.
        timed_out: It used more than `timeout_s`.
        used_s: The time that it used, as `timeout_s` counts it.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False
    used_s: float = 0.0


class Sandbox(Protocol):
    """Runs commands; how well they are confined depends on the tier."""

    @property
    def tier(self) -> str:
        """The kind of sandbox: `"bubblewrap"`, `"landlock"` or `"process"`."""
        ...

    def visible_path(self, cwd: Path) -> Path:
        """Return the path that the folder `cwd` has for a command that runs in it."""
        ...

    def run(
        self,
        command: Sequence[str],
        cwd: Path,
        *,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> FinishedProcess:
        """Run a command to its end.

        Args:
            command: Program and arguments; never a shell line.
            cwd: The folder to run in, a copy that the command may change and the caller removes.
            limits: What it may use.
            environment: Variables beyond the allow list.
            readable: Files or folders that it may read besides `cwd`, the interpreter and the system.

        Raises:
            NotJudgedError: GBE332, the machine is too busy to find out whether the command ends in time.
        """
        ...


class ProcessSandbox:
    """A child process with limits."""

    tier = "process"

    def visible_path(self, cwd: Path) -> Path:
        """Return `cwd`: the command sees the real paths."""
        return cwd

    def run(
        self,
        command: Sequence[str],
        cwd: Path,
        *,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> FinishedProcess:
        """Run a command to its end, then end all processes that it has left behind."""
        home = Path(tempfile.mkdtemp(prefix="graphbus-home-"))
        try:
            (home / "tmp").mkdir()
            variables = environment_of(home, {"TMPDIR": str(home / "tmp"), **(environment or {})})
            return run_watched(_limited(command, limits), cwd, variables, limits, weighed=(cwd, home))
        finally:
            remove_tree(home)


def run_watched(
    command: Sequence[str],
    cwd: Path,
    variables: Mapping[str, str],
    limits: Limits,
    *,
    weighed: Sequence[Path],
    held: Sequence[str] = (),
    passed: Sequence[int] = (),
) -> FinishedProcess:
    """Run a command until it ends or reaches a limit, collect its output, and end all its processes.

    Args:
        variables: Its whole environment, made by `environment_of`.
        limits: What it may use.
        weighed: Folders whose growth counts against `limits.disk_mb`.
        held: Folders in memory, by their paths in the jail, which count against `limits.memory_mb`.
        passed: File descriptors that it inherits.

    Raises:
        NotJudgedError: GBE332, `limits.patience` ran out before the command had used its time.
    """
    deadline = time.monotonic() + limits.patience * limits.timeout_s
    disk = _scale_for_disk(weighed, limits)
    child = None
    try:
        with _interrupted_later():
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=passed,
            )
        usage = _ProcessUsage(child)
        memory = _Scale(_WEIGH_MEMORY_S, partial(_memory_excess, child.pid, limits.memory_mb << 20, held))

        def must_end() -> bool:
            return usage.look() > limits.timeout_s or bool(disk.look() or memory.look()) or time.monotonic() > deadline

        output = _listen(child, lambda: usage.has_ended() or must_end(), limits.output_bytes)
        excess = disk.excess or memory.excess
        is_judged = usage.has_ended() or usage.used_s > limits.timeout_s or bool(excess)
    finally:
        if child is not None:
            _end_all(child, variables[_MARK])
    if not is_judged:
        wall_s = limits.patience * limits.timeout_s
        raise NotJudgedError("GBE332", wall_s=wall_s, used_s=usage.used_s, timeout_s=limits.timeout_s)
    stdout, stderr = (bytes(part).decode(errors="replace") for part in output)
    if excess:
        stderr += f"\nended: {excess}\n"
    return FinishedProcess(child.returncode, stdout, stderr, usage.used_s > limits.timeout_s, usage.used_s)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: in the middle of `Popen` it would leave a process that nobody knows."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # signals are not raised on this thread, or not at all
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *received: held.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(*held[0])


def _limited(command: Sequence[str], limits: Limits) -> list[str]:
    """Return a shell command that sets the limits and then executes the command; `preexec_fn` is not safe with threads."""
    blocks = limits.file_size_mb * 2048
    kilobytes = limits.memory_mb * 1024
    processes = str(process_count() + limits.processes) if limits.processes else "0"
    return ["/bin/sh", "-c", _LIMITS, "sh", str(cpu_seconds(limits)), str(blocks), str(kilobytes), processes, *command]


def cpu_seconds(limits: Limits) -> int:
    """Return the kernel's limit for a single process, slightly above `timeout_s`, which is measured over all processes."""
    return max(1, int(limits.timeout_s) + 1)


def process_count() -> int:
    """Return how many processes and threads the machine has: the kernel's limit counts all of the user, not only ours."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 1024


def remove_tree(folder: Path) -> None:
    """Remove a folder, even if folders in it are unreadable or nested deeper than a path can be long."""
    with suppress(OSError, RecursionError):
        shutil.rmtree(folder)
    if folder.exists():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], capture_output=True, check=False)


def environment_of(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a command: allowed variables, its home, and the mark by which its processes are found."""
    return {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        "HOME": str(home),
        "PYTHONHASHSEED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        _MARK: os.urandom(16).hex(),
        **more,
    }


def _listen(child: subprocess.Popen[bytes], is_over: Callable[[], bool], cap: int) -> tuple[bytearray, bytearray]:
    """Read standard output and error until `is_over`, then the rest of the pipes; keep at most `cap` bytes of each."""
    kept = (bytearray(), bytearray())
    with selectors.DefaultSelector() as selector:
        for stream, part in zip(filter(None, (child.stdout, child.stderr)), kept, strict=True):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, part)
        while not is_over():
            if not _read_ready(selector, _LOOK_S, cap):
                time.sleep(0 if selector.get_map() else _LOOK_S)
        for _ in range(_MOST_LEFT):  # processes that still hold the pipes are ended afterwards
            if not _read_ready(selector, 0, cap):
                break
    return kept


def _read_ready(selector: selectors.BaseSelector, timeout_s: float, cap: int) -> bool:
    """Read once from each stream that has data; False if none has within the time."""
    ready = selector.select(timeout_s) if selector.get_map() else []
    for key, _ in ready:
        piece = os.read(key.fd, 65536)
        if piece:
            key.data.extend(piece[: max(0, cap - len(key.data))])
        else:
            selector.unregister(key.fileobj)
    return bool(ready)


def _end_all(child: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the process group, then every process that left the group and still has the mark in its environment."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    kill_marked_processes(_MARK, mark)
    for stream in filter(None, (child.stdout, child.stderr)):
        stream.close()


# --- time --------------------------------------------------------------------------------------------
#
# Processor time plus sleep does not grow while other programs keep the machine busy: a process that waits for a processor or the
# disk uses no processor time and is not asleep.


class _ProcessUsage:
    """The time that a child process and its descendants use, measured by polling `/proc`.

    Where there is no `/proc`, only the child's own time is known, after its end.

    Attributes:
        cpu_s: The processor time of all of them together.
        asleep_s: The time in which all of them slept.
    """

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.cpu_s = self.asleep_s = 0.0
        self._child = child
        self._looked_s = time.monotonic()
        self._pause_s = _LOOK_S

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

    def look(self) -> float:
        """Measure again unless the last time was too recent, and return `used_s`."""
        begun = time.monotonic()
        passed_s = begun - self._looked_s
        if passed_s < self._pause_s or self.has_ended():
            return self.used_s
        found = list(_tree(self._child.pid))
        self.cpu_s = max(self.cpu_s, sum(cpu_s for cpu_s, _ in found))
        if found and all(is_asleep for _, is_asleep in found):
            self.asleep_s += min(passed_s, 2 * self._pause_s)  # a longer gap means that this process was delayed
        self._looked_s = begun
        self._pause_s = max(_LOOK_S, 10 * (time.monotonic() - begun))
        return self.used_s


def _tree(pid: int) -> Iterator[tuple[float, bool]]:
    """Yield for a process and each descendant its processor time, with that of ended children, and whether it sleeps."""
    for one in _family(pid):
        with suppress(OSError, ValueError, IndexError):  # the process has ended meanwhile
            fields, threads = _stat(f"/proc/{one}"), os.listdir(f"/proc/{one}/task")
            states = {fields[0]} if len(threads) == 1 else {_stat(f"/proc/{one}/task/{name}")[0] for name in threads}
            yield sum(map(int, fields[11:15])) / _TICKS, states.isdisjoint(_BUSY)


def _family(pid: int) -> Iterator[int]:
    """Yield a process and its descendants; in a jail, orphans become children of the jail's first process."""
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        with suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError), open(f"/proc/{one}/task/{task}/children", "rb") as children:
                    waiting += map(int, children.read().split())


def _stat(folder: str) -> list[str]:
    """Return the fields of a stat file after the process name, which may contain spaces; the first is the state."""
    with open(f"{folder}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


# --- disk and memory -----------------------------------------------------------------------------------


class _Scale:
    """Measures something from time to time, so that measuring takes at most a tenth of the time.

    Args:
        pause_s: The shortest pause between two measurements.
        weigh: Measures, and returns a sentence if there is too much, else `""`.
    """

    def __init__(self, pause_s: float, weigh: Callable[[], str]) -> None:
        self._pause_s = pause_s
        self._weigh = weigh
        self._next = time.monotonic() + pause_s
        self.excess = ""

    def look(self) -> str:
        """Measure if it is time to, and return the sentence of the last measurement."""
        if time.monotonic() >= self._next:
            begun = time.thread_time()  # wall time is longer on a busy machine, and would make measuring rarer
            self.excess = self._weigh() and self._weigh()  # twice: the parts of a sum are not read at the same moment
            self._next = time.monotonic() + max(self._pause_s, 10 * (time.thread_time() - begun))
        return self.excess


def _scale_for_disk(folders: Sequence[Path], limits: Limits) -> _Scale:
    """Return a scale for the growth of folders from now on.

    Open files without a name are not in any folder. They are caught when the free room on the disk falls below a floor.
    """
    start, allowed = _size(folders), limits.disk_mb * 1_000_000
    floors = [min(left // 2, floor) for left, floor in zip(_room(folders), _KEPT_FREE, strict=True)]

    def excess() -> str:
        is_over = _size(folders) - start > allowed
        is_full = is_over or any(now < floor for now, floor in zip(_room(folders), floors, strict=True))
        return f"it wrote more than {limits.disk_mb} MB" if is_full else ""

    return _Scale(_WEIGH_S, excess)


def _room(folders: Sequence[Path]) -> tuple[int, int]:
    """Return the bytes and the number of files for which the disk of the first folder has room."""
    disk = os.statvfs(folders[0])
    return disk.f_bavail * disk.f_frsize, disk.f_favail


def _size(folders: Sequence[Path]) -> float:
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
                        total += max(entry.stat(follow_symlinks=False).st_blocks * 512, _SMALLEST)
        except OSError as reason:
            if reason.errno == errno.ENAMETOOLONG:
                return math.inf
    return total


def _memory_excess(pid: int, allowed_bytes: int, folders: Sequence[str]) -> str:
    """Return a sentence if a process and its descendants hold too much memory together; the kernel only limits each by itself.

    Counted are private memory, a share of shared memory, swap, and folders in memory. Buffers of sockets and pipes cannot be
    measured; the limit on open files bounds them.
    """
    family = list(_family(pid)) if allowed_bytes else []
    if sum(map(_open_files, family)) > _MOST_FILES:
        return f"it held more than {_MOST_FILES} open files"
    stored = max((_stored(each, folders) for each in family[-1:]), default=0)
    resident = [_bytes(each, "status", _RESIDENT) or 0 for each in family]
    if stored + sum(resident) <= allowed_bytes:  # cheap, but counts shared memory more than once
        return ""
    parts = (_bytes(each, "smaps_rollup", _PROPORTIONAL) for each in family)  # None without permission
    held = stored + sum(whole if part is None else part for whole, part in zip(resident, parts, strict=True))
    return f"it held more than {allowed_bytes >> 20} MB of memory" if held > allowed_bytes else ""


def _bytes(pid: int, name: str, wanted: re.Pattern[bytes]) -> int | None:
    """Return the sum of the matching kB values in a file of `/proc/PID`, in bytes; None if it cannot be read."""
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return sum(map(int, wanted.findall(file.read()))) << 10
    return None


def _open_files(pid: int) -> int:
    """Return how many files a process has open; 0 on Linux before 6.2, which does not say."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}/fd").st_size
    return 0


def _stored(pid: int, folders: Sequence[str]) -> int:
    """Return the bytes in folders of a jail, seen through one of its processes; 0 before the jail has its own folders."""
    total = 0
    for folder in folders:
        with suppress(OSError):
            theirs = f"/proc/{pid}/root{folder}"
            if not os.path.exists(folder) or os.stat(theirs).st_dev != os.stat(folder).st_dev:
                disk = os.statvfs(theirs)
                total += (disk.f_blocks - disk.f_bfree) * disk.f_frsize + (disk.f_files - disk.f_ffree) * _INODE
    return total
