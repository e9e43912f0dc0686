"""Where code that nobody has agreed to yet may run. `Sandbox` is the seam; `ProcessSandbox` is its first tier.

A child process of its own session with an environment made from an allow list, limits on processor, memory, files and
processes, no input, bounded output and a time limit at which it ends with all that it has started. It is no jail: the network
and the files that the user may read are within its reach.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_MARK = "GRAPHBUS_SANDBOX"
_POLL_S = 0.05
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
    """What a child process may use.

    Attributes:
        timeout_s: Wall time; the processor time is limited to the same.
        memory_mb: Address space of each process; 0: no limit.
        file_size_mb: Of each file that it writes.
        processes: How many more processes the user may have while it runs; root is not bound by it.
        output_bytes: What is kept of its output and of its errors, each; the rest is read and dropped.
    """

    timeout_s: float = 60.0
    memory_mb: int = 2048
    file_size_mb: int = 64
    processes: int = 256
    output_bytes: int = 1_000_000


class Finished(NamedTuple):
    """How a child process ended; `returncode` is negative when a signal ended it."""

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False


class Sandbox(Protocol):
    """Runs a command where it can do no harm, as far as its tier goes."""

    @property
    def tier(self) -> str:
        """What keeps the command in: `"process"`."""
        ...

    def run(
        self, command: Sequence[str], cwd: Path, *, limits: Limits, environment: Mapping[str, str] | None = None
    ) -> Finished:
        """Run a command to its end.

        Args:
            command: Program and arguments; never a shell line.
            cwd: Where it runs; what it leaves there is the caller's to remove.
            limits: What it may use.
            environment: Variables beyond the allow list.
        """
        ...


class ProcessSandbox:
    """A child process with limits."""

    tier = "process"

    def run(
        self, command: Sequence[str], cwd: Path, *, limits: Limits, environment: Mapping[str, str] | None = None
    ) -> Finished:
        """Run a command to its end, then end whatever it has left behind."""
        deadline = time.monotonic() + limits.timeout_s
        with _home() as home:
            mark = home.name
            child = subprocess.Popen(
                _limited(command, limits),
                cwd=cwd,
                env=_environment(home, mark, environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            try:
                output, timed_out = _listen(child, deadline, limits.output_bytes)
            finally:
                _end_all(child, mark)
        stdout, stderr = (bytes(part).decode(errors="replace") for part in output)
        return Finished(child.returncode, stdout, stderr, timed_out)


def _limited(command: Sequence[str], limits: Limits) -> list[str]:
    """Let a shell set the limits and become the command: no thread of ours is in between, unlike with preexec_fn."""
    cpu_s = max(1, int(limits.timeout_s) + 1)
    blocks = limits.file_size_mb * 2048
    kilobytes = limits.memory_mb * 1024
    processes = str(_process_count() + limits.processes) if limits.processes else "0"
    return ["/bin/sh", "-c", _LIMITS, "sh", str(cpu_s), str(blocks), str(kilobytes), processes, *command]


def _process_count() -> int:
    """How many processes there are; the limit counts those of the user, whoever started them."""
    try:
        return sum(name.isdigit() for name in os.listdir("/proc"))
    except OSError:
        return 1024


@contextmanager
def _home() -> Iterator[Path]:
    """An empty home and temporary folder, removed afterwards whatever was done to it."""
    folder = Path(tempfile.mkdtemp(prefix="graphbus-home-"))
    try:
        (folder / "tmp").mkdir()
        yield folder
    finally:
        remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder even if folders in it were made unreadable."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        folder.chmod(0o700)
        for path, names, _ in os.walk(folder):
            for name in names:
                if not os.path.islink(os.path.join(path, name)):
                    os.chmod(os.path.join(path, name), 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _environment(home: Path, mark: str, more: Mapping[str, str]) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        _MARK: mark,
        **more,
    }


def _listen(child: subprocess.Popen[bytes], deadline: float, cap: int) -> tuple[tuple[bytearray, bytearray], bool]:
    """Read both streams to the end, or until the child has ended or its time is up; keep the first bytes of each."""
    kept = (bytearray(), bytearray())
    with selectors.DefaultSelector() as selector:
        for stream, part in zip(filter(None, (child.stdout, child.stderr)), kept, strict=True):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, part)
        while selector.get_map() or child.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return kept, True
            has_ended = child.poll() is not None
            ready = selector.select(min(left, _POLL_S)) if selector.get_map() else _wait(child, min(left, _POLL_S))
            for key, _ in ready:
                _read_some(selector, key, cap)
            if has_ended and not ready:  # whoever still holds the pipes will be ended with the rest
                break
    return kept, False


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> list[tuple[selectors.SelectorKey, int]]:
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout_s)
    return []


def _read_some(selector: selectors.BaseSelector, key: selectors.SelectorKey, cap: int) -> None:
    piece = os.read(key.fd, 65536)
    if piece:
        key.data.extend(piece[: max(0, cap - len(key.data))])
    else:
        selector.unregister(key.fileobj)


def _end_all(child: subprocess.Popen[bytes], mark: str) -> None:
    """Kill the process group, then whatever has left it and still bears the mark in its environment."""
    _kill_group(child.pid)
    child.wait()
    for _ in range(50):
        left = _marked(mark)
        if not left:
            break
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for stream in filter(None, (child.stdout, child.stderr)):
        stream.close()


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    """Give the processes that bear the mark; none where there is no /proc."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found
