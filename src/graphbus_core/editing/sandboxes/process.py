"""The tier without walls: a child process with limits. The jails are started, heard and ended by the same code.

A session of its own, an environment made from an allow list, limits on processor, memory, files and processes, no input,
bounded output, and a limit of the time that it uses, at which it ends with all that it has started. The network and the
files that the user may read are within its reach.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType

from graphbus_core.editing.sandboxes.limits import Finished, Limits
from graphbus_core.editing.sandboxes.usage import LOOK_S, Memory, Usage
from graphbus_core.errors import NotJudgedError
from graphbus_core.isolation import end_marked

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_MARK = "INVOCATION_ID"
"""As services of systemd have it: code cannot tell from it that it is tried."""
_WEIGH_S = 0.2
_MOST_LEFT = 64
"""How often is read what a pipe holds at the end: it may be a mebibyte, and somebody may fill it again."""
_SMALLEST = 4096
"""What a file counts at least, in bytes: empty ones, too, use up the disk."""
_KEPT_FREE = (2_000_000_000, 50_000)
"""Bytes and files for which the disk keeps room, or half of what it had where that is less."""
_LIMITS = """\
ulimit -c 0
ulimit -t "$1"
ulimit -f "$2"
[ "$3" = 0 ] || ulimit -v "$3" 2>/dev/null
[ "$4" = 0 ] || ulimit -p "$4" 2>/dev/null || ulimit -u "$4" 2>/dev/null
shift 4
exec "$@"
"""


class ProcessSandbox:
    """A child process with limits."""

    tier = "process"

    def seen(self, cwd: Path) -> Path:
        """Give the folder itself."""
        return cwd

    def run(
        self,
        command: Sequence[str],
        cwd: Path,
        *,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> Finished:
        """Run a command to its end, then end whatever it has left behind."""
        with private_home() as home:
            variables = environment_of(home, {"TMPDIR": str(home / "tmp"), **(environment or {})})
            return run_watched(_limited(command, limits), cwd, variables, limits, weighed=(cwd, home))


def run_watched(
    command: Sequence[str],
    cwd: Path,
    variables: Mapping[str, str],
    limits: Limits,
    *,
    weighed: Sequence[Path],
    held: Sequence[str] = (),
    passed: Sequence[int] = (),
) -> Finished:
    """Start a command, listen until it ends, its time is up or it holds too much of the disk or the memory, and end what is left.

    Args:
        variables: Its whole environment, made by `environment_of`.
        weighed: Folders whose growth counts against `limits.disk_mb`.
        held: Folders of its own as it sees them, which count against `limits.memory_mb`.
        passed: File descriptors that it inherits.

    Raises:
        NotJudgedError: GBE332, its wall time is over before it has used its time.
    """
    deadline = time.monotonic() + limits.patience * limits.timeout_s
    scale = _Scale(weighed, limits.disk_mb * 1_000_000)
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
        usage = Usage(child)
        memory = Memory(child.pid, limits.memory_mb << 20, held)

        def must_end() -> bool:
            return usage.look() > limits.timeout_s or scale.weigh() or memory.weigh() or time.monotonic() > deadline

        output = _listen(child, lambda: usage.has_ended() or must_end(), limits.output_bytes)
        is_full = scale.is_over or bool(memory.excess)
        is_judged = usage.has_ended() or usage.used_s > limits.timeout_s or is_full
    finally:
        if child is not None:
            _end_all(child, variables[_MARK])
    if not is_judged:
        wall_s = limits.patience * limits.timeout_s
        raise NotJudgedError("GBE332", wall_s=wall_s, used_s=usage.used_s, timeout_s=limits.timeout_s)
    stdout, stderr = (bytes(part).decode(errors="replace") for part in output)
    if scale.is_over:
        stderr += f"\nended: it wrote more than {limits.disk_mb} MB\n"
    elif memory.excess:
        stderr += f"\nended: it held {memory.excess}\n"
    return Finished(child.returncode, stdout, stderr, usage.used_s > limits.timeout_s, usage.used_s)


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Let Ctrl-C wait until the end of this block: what it starts would run on, unknown to anybody."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # nothing is raised here
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *received: held.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(*held[0])


class _Scale:
    """Weighs folders from time to time, never more often than a tenth of the time can be spent on it.

    What cannot be weighed (files that are open and have no name any more) may fill the disk only as far as some of it is left.
    """

    def __init__(self, folders: Sequence[Path], allowed_bytes: int) -> None:
        self._folders = folders
        self._allowed = allowed_bytes
        self._start = _size(folders)
        self._left = _room(folders)
        self._next = time.monotonic() + _WEIGH_S
        self.is_over = False

    def weigh(self) -> bool:
        """Tell whether the folders have grown too much."""
        begun = time.monotonic()
        if begun >= self._next:
            self.is_over = _size(self._folders) - self._start > self._allowed or self._is_full()
            self._next = time.monotonic() + max(_WEIGH_S, 10 * (time.monotonic() - begun))
        return self.is_over

    def _is_full(self) -> bool:
        floors = (min(left // 2, floor) for left, floor in zip(self._left, _KEPT_FREE, strict=True))
        return any(now < floor for now, floor in zip(_room(self._folders), floors, strict=True))


def _room(folders: Sequence[Path]) -> tuple[int, int]:
    """Give the bytes and the files for which the disk of the first folder has room."""
    disk = os.statvfs(folders[0])
    return disk.f_bavail * disk.f_frsize, disk.f_favail


def _size(folders: Sequence[Path]) -> float:
    """Give the bytes that the files in folders take up on the disk; folders too deep to be looked into are endless."""
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


def _limited(command: Sequence[str], limits: Limits) -> list[str]:
    """Let a shell set the limits and become the command: no thread of ours is in between, unlike with preexec_fn."""
    blocks = limits.file_size_mb * 2048
    kilobytes = limits.memory_mb * 1024
    processes = str(process_count() + limits.processes) if limits.processes else "0"
    return ["/bin/sh", "-c", _LIMITS, "sh", str(cpu_seconds(limits)), str(blocks), str(kilobytes), processes, *command]


def cpu_seconds(limits: Limits) -> int:
    """The processor time of one process: a little more than that of all, which is what is looked at."""
    return max(1, int(limits.timeout_s) + 1)


def process_count() -> int:
    """How many processes and threads there are; where the limit counts those of the user, it counts whoever started them."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 1024


@contextmanager
def private_home() -> Iterator[Path]:
    """An empty home and temporary folder, removed afterwards whatever was done to it."""
    folder = Path(tempfile.mkdtemp(prefix="graphbus-home-"))
    try:
        (folder / "tmp").mkdir()
        yield folder
    finally:
        remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder whatever was done to it: folders in it may be unreadable, or nested deeper than a path can be long."""
    waiting, own = [str(folder)], os.urandom(8).hex()
    for number in count():
        if not waiting:
            break
        _empty(waiting[-1], f"{folder}/{own}-{number}-", waiting)
    with suppress(OSError):
        os.rmdir(folder)


def _empty(folder: str, prefix: str, waiting: list[str]) -> None:
    """Remove the files of a folder and move its folders up, to be removed next; once there is none left, remove it."""
    here = len(waiting)
    with suppress(OSError):
        os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            found = list(entries)
        for number, entry in enumerate(found):
            with suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif not _remove_empty(entry.path):
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, f"{prefix}{number}")
                    waiting.append(f"{prefix}{number}")
    if len(waiting) == here:
        waiting.pop()
        _remove_empty(folder)


def _remove_empty(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True


def environment_of(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Give the whole environment of a tried command: an allow list, its home, and the mark by which it is found."""
    return {
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        "HOME": str(home),
        "PYTHONHASHSEED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        _MARK: os.urandom(16).hex(),
        **more,
    }


def _listen(child: subprocess.Popen[bytes], is_over: Callable[[], bool], cap: int) -> tuple[bytearray, bytearray]:
    """Read both streams until it is over, and then what is left in them; keep the first bytes of each."""
    kept = (bytearray(), bytearray())
    with selectors.DefaultSelector() as selector:
        for stream, part in zip(filter(None, (child.stdout, child.stderr)), kept, strict=True):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, part)
        while not is_over():
            if not selector.get_map():
                time.sleep(LOOK_S)
            _read_ready(selector, LOOK_S, cap)
        for _ in range(_MOST_LEFT):  # whoever still holds the pipes will be ended with the rest
            if not _read_ready(selector, 0, cap):
                break
    return kept


def _read_ready(selector: selectors.BaseSelector, timeout_s: float, cap: int) -> bool:
    ready = selector.select(timeout_s) if selector.get_map() else []
    for key, _ in ready:
        _read_some(selector, key, cap)
    return bool(ready)


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
    end_marked(_MARK, mark)
    for stream in filter(None, (child.stdout, child.stderr)):
        stream.close()


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
