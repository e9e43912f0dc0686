"""The sandbox without isolation: a child process with limits. Isolated sandboxes run their commands with the same code.

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
from typing import IO, NamedTuple, Protocol

from graphbus_core.errors import NotJudgedError
from graphbus_core.isolation import kill_marked_processes

_POLL_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY_STATES = ("R", "D")
"""The states of a thread that runs, or waits for a processor or a disk."""
_DISK_PAUSE_S, _MEMORY_PAUSE_S = 0.2, 0.05
"""The shortest pauses between two measurements."""
_INODE_BYTES = 1024
"""The bytes that each file in memory counts, besides its content."""
_MAX_OPEN_FILES = 4096
_RESIDENT = re.compile(rb"^Vm(?:RSS|Swap):\s+(\d+) kB", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^(?:Pss|SwapPss):\s+(\d+) kB", re.MULTILINE)
_PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_MARK = "INVOCATION_ID"
"""The variable that marks all processes of a command. Services of systemd have it too, so it does not reveal a test."""
_MAX_FINAL_READS = 64
"""How often pipes are read at the end: one may hold a mebibyte, and a process that still runs may keep filling it."""
_MIN_FILE_BYTES = 4096
"""The bytes that a file counts at least: empty files use up the disk as well."""
_KEPT_FREE = (2_000_000_000, 50_000)
"""The bytes and the number of files that must stay free on the disk; half of what is free now if that is less."""
_LIMIT_SCRIPT = """\
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
        processes: The number of processes at a time; 0: no limit. Without isolation, it does not bind root.
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
    """How a command ended, and its output.

    Attributes:
        returncode: The exit status; negative if a signal ended it.
        stderr: Its standard error, and at the end the reason if the limit on disk or memory ended it.
        timed_out: It used more than `timeout_s`.
        used_s: The time that it used, as `timeout_s` counts it.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False
    used_s: float = 0.0


class Sandbox(Protocol):
    """Runs commands; how far they are isolated depends on the tier."""

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

    def start(
        self,
        command: Sequence[str],
        cwd: Path,
        log: IO[bytes],
        *,
        limits: Limits,
        environment: Mapping[str, str],
        readable: Sequence[Path],
        has_network: bool,
    ) -> StartedProgram:
        """Start a program that answers lines on its standard input with lines on its standard output.

        Time, memory and disk are limited by the kernel only.

        Args:
            command: Program and arguments; never a shell line.
            cwd: An empty folder to run in, which the caller removes.
            log: Gets its standard error.
            limits: What it may use.
            environment: Variables beyond the allow list.
            readable: Files or folders that it may read besides `cwd`, the interpreter and the system.
            has_network: It may connect to other machines.

        Raises:
            OSError: It cannot be started.
        """
        ...


class StartedProgram:
    """A running program with a pipe to its standard input and one from its standard output."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str, home: Path | None = None) -> None:
        self.process = process
        self._mark = mark
        self._home = home

    def kill(self) -> None:
        """Kill it with all processes that it has started, and close the pipes."""
        if self.process.stdin:
            with suppress(OSError):  # what was not written yet
                self.process.stdin.close()
        _kill_command(self.process, self._mark)
        if self._home:
            remove_tree(self._home)


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
        """Run a command to its end with an empty home, then kill all processes that it has left behind; see `Sandbox.run`."""
        home = Path(tempfile.mkdtemp(prefix="graphbus-home-"))
        try:
            (home / "tmp").mkdir()
            variables = environment_of(home, {"TMPDIR": str(home / "tmp"), **(environment or {})})
            return run_watched(_make_limited_command(command, limits), cwd, variables, limits, measured=(cwd, home))
        finally:
            remove_tree(home)

    def start(
        self,
        command: Sequence[str],
        cwd: Path,
        log: IO[bytes],
        *,
        limits: Limits,
        environment: Mapping[str, str],
        readable: Sequence[Path],
        has_network: bool,
    ) -> StartedProgram:
        """Start a program with an empty home, which it may leave: it can read all files and use the network."""
        home = Path(tempfile.mkdtemp(prefix="graphbus-home-"))
        variables = environment_of(home, {"TMPDIR": str(home), **environment})
        try:
            return start_program(_make_limited_command(command, limits), cwd, variables, log, home=home)
        except OSError:
            remove_tree(home)
            raise


def start_program(
    command: Sequence[str],
    cwd: Path,
    variables: Mapping[str, str],
    log: IO[bytes],
    *,
    fds: Sequence[int] = (),
    home: Path | None = None,
) -> StartedProgram:
    """Start a command with pipes; raise OSError if that is not possible. `home` is removed when it is killed."""
    with _delay_interrupts():
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            start_new_session=True,
            pass_fds=fds,
        )
    return StartedProgram(process, variables[_MARK], home)


def run_watched(
    command: Sequence[str],
    cwd: Path,
    variables: Mapping[str, str],
    limits: Limits,
    *,
    measured: Sequence[Path],
    in_memory: Sequence[str] = (),
    fds: Sequence[int] = (),
) -> FinishedProcess:
    """Run a command until it ends or reaches a limit, collect its output, and kill all its processes.

    Args:
        command: Program and arguments.
        cwd: The folder to run in.
        variables: Its whole environment, made by `environment_of`.
        limits: What it may use.
        measured: Folders whose growth counts against `limits.disk_mb`.
        in_memory: Folders in memory, by their paths in the sandbox, which count against `limits.memory_mb`.
        fds: File descriptors that it inherits.

    Raises:
        NotJudgedError: GBE332, `limits.patience` ran out before the command had used its time.
    """
    deadline = time.monotonic() + limits.patience * limits.timeout_s
    disk = _make_disk_meter(measured, limits)
    child = None
    try:
        with _delay_interrupts():
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=fds,
            )
        usage = _ProcessUsage(child)
        memory = _Meter(_MEMORY_PAUSE_S, partial(_describe_memory_excess, child.pid, limits.memory_mb << 20, in_memory))

        def must_end() -> bool:
            """Measure if it is time to, and return whether a limit or the deadline was reached."""
            return usage.poll() > limits.timeout_s or bool(disk.poll() or memory.poll()) or time.monotonic() > deadline

        output = _collect_output(child, lambda: usage.has_ended() or must_end(), limits.output_bytes)
        excess = disk.excess or memory.excess
        is_judged = usage.has_ended() or usage.used_s > limits.timeout_s or bool(excess)
    finally:
        if child is not None:
            _kill_command(child, variables[_MARK])
    if not is_judged:
        wall_s = limits.patience * limits.timeout_s
        raise NotJudgedError("GBE332", wall_s=wall_s, used_s=usage.used_s, timeout_s=limits.timeout_s)
    stdout, stderr = (bytes(part).decode(errors="replace") for part in output)
    if excess:
        stderr += f"\nended: {excess}\n"
    return FinishedProcess(child.returncode, stdout, stderr, usage.used_s > limits.timeout_s, usage.used_s)


@contextmanager
def _delay_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block: in the middle of `Popen` it would leave a process that is never ended."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # Ctrl-C raises no exception here: only the main thread gets it, and only from a Python handler
        return
    delayed: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *received: delayed.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if delayed:
            before(*delayed[0])


def _make_limited_command(command: Sequence[str], limits: Limits) -> list[str]:
    """Return a shell command that sets the limits of the kernel and then executes the command.

    The `preexec_fn` of `Popen` could set them too, but it is not safe with threads.
    """
    blocks = limits.file_size_mb * 2048
    kilobytes = limits.memory_mb * 1024
    processes = str(process_count() + limits.processes) if limits.processes else "0"
    return [
        "/bin/sh",
        "-c",
        _LIMIT_SCRIPT,
        "sh",
        str(cpu_seconds(limits)),
        str(blocks),
        str(kilobytes),
        processes,
        *command,
    ]


def cpu_seconds(limits: Limits) -> int:
    """Return the processor seconds that the kernel allows each process: just above `timeout_s`, at which GraphBus ends it."""
    return max(1, int(limits.timeout_s) + 1)


def process_count() -> int:
    """Return how many processes and threads there are on the machine, 1024 if that is not known.

    The kernel's limit counts all processes of the user, so it must be higher than the number of those that exist already.
    """
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 1024


def remove_tree(folder: Path) -> None:
    """Remove a folder, even if folders in it are unreadable or nested too deeply for a path; errors are ignored."""
    with suppress(OSError, RecursionError):
        shutil.rmtree(folder)
    if folder.exists():
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(folder)], capture_output=True, check=False)


def environment_of(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a command: allowed variables, its home, the mark of its processes, and `more`."""
    return {
        **{name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ},
        "HOME": str(home),
        "PYTHONHASHSEED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        _MARK: os.urandom(16).hex(),
        **more,
    }


def _collect_output(
    child: subprocess.Popen[bytes], is_over: Callable[[], bool], cap: int
) -> tuple[bytearray, bytearray]:
    """Read standard output and error until `is_over` returns True, then what the pipes still hold.

    Return at most `cap` bytes of each; the rest is read and dropped.
    """
    kept = (bytearray(), bytearray())
    with selectors.DefaultSelector() as selector:
        for stream, part in zip(filter(None, (child.stdout, child.stderr)), kept, strict=True):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, part)
        while not is_over():
            if not _read_available(selector, _POLL_S, cap):
                time.sleep(0 if selector.get_map() else _POLL_S)
        for _ in range(_MAX_FINAL_READS):  # processes that still hold the pipes are ended afterwards
            if not _read_available(selector, 0, cap):
                break
    return kept


def _read_available(selector: selectors.BaseSelector, timeout_s: float, cap: int) -> bool:
    """Read once from each stream with data, and keep `cap` bytes at most; False if there is none within `timeout_s`."""
    ready = selector.select(timeout_s) if selector.get_map() else []
    for key, _ in ready:
        piece = os.read(key.fd, 65536)
        if piece:
            key.data.extend(piece[: max(0, cap - len(key.data))])
        else:
            selector.unregister(key.fileobj)
    return bool(ready)


def _kill_command(child: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the process group of a child and each process with its mark, wait for the child, and close the pipes."""
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


class _Meter:
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


def _make_disk_meter(folders: Sequence[Path], limits: Limits) -> _Meter:
    """Return a meter for the growth of folders from now on.

    A deleted file that is still open is in no folder; it shows when the free space on the disk falls below a floor.
    """
    start, allowed = _disk_usage(folders), limits.disk_mb * 1_000_000
    floors = [min(left // 2, floor) for left, floor in zip(_free_space(folders), _KEPT_FREE, strict=True)]

    def describe_excess() -> str:
        is_over = _disk_usage(folders) - start > allowed
        is_full = is_over or any(now < floor for now, floor in zip(_free_space(folders), floors, strict=True))
        return f"it wrote more than {limits.disk_mb} MB" if is_full else ""

    return _Meter(_DISK_PAUSE_S, describe_excess)


def _free_space(folders: Sequence[Path]) -> tuple[int, int]:
    """Return the bytes and the number of files that the disk of the first folder still has room for."""
    disk = os.statvfs(folders[0])
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


def _describe_memory_excess(pid: int, allowed_bytes: int, folders: Sequence[str]) -> str:
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
