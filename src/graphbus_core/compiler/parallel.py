"""Work that is shared out to child processes, for projects of hundreds of files. The result is the same as without."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
LEAST_SHARE = 40
"""So many items are worth a process of their own."""
MOST_WORKERS = 8


def count_workers(items: int) -> int:
    """Say how many processes shall share so many items: 1 where a fork would not pay or would not be safe."""
    wanted = min(MOST_WORKERS, items // LEAST_SHARE)
    if wanted < 2 or not _is_alone():
        return 1
    return min(wanted, len(os.sched_getaffinity(0)))


def _is_alone() -> bool:
    """True when this process surely has one thread, those of libraries counted: only then a fork holds no foreign lock."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # not Linux
        return False


class Share(NamedTuple):
    """Items that a child process works on; what it makes comes through the pipe."""

    items: Sequence[object]
    process: int
    pipe: int


def start_share(items: Sequence[Item], work: Callable[[Sequence[Item]], bytes]) -> Share:
    """Let a child process do this work."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return Share(items, process, reading)
    status = 1  # pragma: no cover - from here on in the child, which cannot report coverage
    try:  # pragma: no cover - it never returns, and its failures show in its status alone
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(work(items))
        status = 0
    finally:  # pragma: no cover
        os._exit(status)


def finish_share(share: Share) -> bytes | None:
    """Wait for a child process and give what it made; None when it failed."""
    with os.fdopen(share.pipe, "rb") as pipe:
        made = pipe.read()
    _, status = os.waitpid(share.process, 0)
    return made if status == 0 else None


def drop_share(share: Share) -> None:
    """End a child process whose work nobody wants any more."""
    os.close(share.pipe)
    os.kill(share.process, signal.SIGKILL)
    os.waitpid(share.process, 0)
