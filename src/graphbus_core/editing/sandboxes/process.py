"""The sandbox without isolation: a child process with limits. Isolated sandboxes run their commands with the same code.

The command gets a session of its own, an environment from an allow list, no input, bounded output, and limits on time, memory,
disk and processes. When a limit is reached, it is ended with all processes that it has started. It can reach the network and
every file that the user can read.
"""

from __future__ import annotations

import os
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

from graphbus_core.editing.sandboxes.usage import (
    MEMORY_PAUSE_S,
    Meter,
    ProcessUsage,
    describe_memory_excess,
    make_disk_meter,
)
from graphbus_core.errors import NotJudgedError
from graphbus_core.isolation import attempt, kill_marked_processes

_POLL_S = 0.05
_PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_MARK = "INVOCATION_ID"
"""The variable that marks all processes of a command. Services of systemd have it too, so it does not reveal a test."""
_MAX_FINAL_READS = 64
"""How often pipes are read at the end: one may hold a mebibyte, and a process that still runs may keep filling it."""
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

        A thread measures memory and disk until `StartedProgram.kill`; `limits.memory_mb` is for all processes together, and the
        address space of each is free: interpreters such as Node reserve far more than they use.

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
    """A running program with a pipe to its standard input and one from its standard output.

    Attributes:
        process: The program.
        excess: Why it was killed, because a limit on disk or memory was reached; else empty.
    """

    def __init__(self, process: subprocess.Popen[bytes], mark: str, meters: Sequence[Meter], home: Path | None) -> None:
        self.process = process
        self.excess = ""
        self._mark = mark
        self._meters = meters
        self._home = home
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, name="graphbus-limits", daemon=True).start()

    def _watch(self) -> None:
        """Measure until it has ended or was killed, and kill it if a limit is reached."""
        while self.process.poll() is None and not self._is_over.wait(MEMORY_PAUSE_S):
            excess, error = attempt(lambda: next(filter(None, (meter.poll() for meter in self._meters)), ""))
            self.excess = (excess or "") if error is None else "its limits could not be measured"
            if self.excess:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill it with all processes that it has started, and close the pipes."""
        self._is_over.set()
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
        command = _make_limited_command(command, limits._replace(memory_mb=0))
        try:
            return start_program(command, cwd, variables, limits, log, measured=(cwd, home), home=home)
        except OSError:
            remove_tree(home)
            raise


def start_program(
    command: Sequence[str],
    cwd: Path,
    variables: Mapping[str, str],
    limits: Limits,
    log: IO[bytes],
    *,
    measured: Sequence[Path],
    in_memory: Sequence[str] = (),
    fds: Sequence[int] = (),
    home: Path | None = None,
) -> StartedProgram:
    """Start a command with pipes; raise OSError if that is not possible.

    Args:
        command: Program and arguments.
        cwd: The folder to run in.
        variables: Its whole environment, made by `environment_of`.
        limits: What it may use.
        log: Gets its standard error.
        measured: As in `run_watched`, and so are `in_memory` and `fds`.
        home: A folder that is removed when the program is killed.
    """
    disk = make_disk_meter(measured, limits.disk_mb)
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
    return StartedProgram(process, variables[_MARK], (disk, _memory_meter(process, limits, in_memory)), home)


def _memory_meter(process: subprocess.Popen[bytes], limits: Limits, folders: Sequence[str]) -> Meter:
    """Return a meter for the memory of a process with its descendants, and of folders in memory."""
    return Meter(MEMORY_PAUSE_S, partial(describe_memory_excess, process.pid, limits.memory_mb << 20, folders))


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
    disk = make_disk_meter(measured, limits.disk_mb)
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
        usage = ProcessUsage(child)
        memory = _memory_meter(child, limits, in_memory)

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
