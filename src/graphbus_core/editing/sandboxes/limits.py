"""What a tried command may use, how it ended, and the seam behind which it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class Limits(NamedTuple):
    """What a child process may use.

    Attributes:
        timeout_s: Processor time of it and all that it starts, together with the time in which all of them sleep.
        patience: Wall time, as a multiple of `timeout_s`, after which it is ended and nothing is said of it: a busy machine has
            not let it use its time.
        memory_mb: Address space of each process, and what all of them hold in memory together; 0: no limit.
        file_size_mb: Of each file that it writes.
        processes: How many processes it may have at a time; 0: no limit. Outside of a jail, root is not bound by it.
        output_bytes: What is kept of its output and of its errors, each; the rest is read and dropped.
        disk_mb: How much the folder that it runs in may grow, and how much its home and temporary folder may hold.
    """

    timeout_s: float = 60.0
    patience: float = 20.0
    memory_mb: int = 2048
    file_size_mb: int = 64
    processes: int = 256
    output_bytes: int = 1_000_000
    disk_mb: int = 512


class Finished(NamedTuple):
    """How a child process ended.

    Attributes:
        returncode: Negative when a signal ended it.
        timed_out: It has used more than `timeout_s`.
        used_s: What it has used of that.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False
    used_s: float = 0.0


class Sandbox(Protocol):
    """Runs a command where it can do no harm, as far as its tier goes."""

    @property
    def tier(self) -> str:
        """What keeps the command in: `"bubblewrap"`, `"landlock"` or `"process"`."""
        ...

    def seen(self, cwd: Path) -> Path:
        """Give the path at which a command sees the folder that it runs in."""
        ...

    def run(
        self,
        command: Sequence[str],
        cwd: Path,
        *,
        limits: Limits,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> Finished:
        """Run a command to its end.

        Args:
            command: Program and arguments; never a shell line.
            cwd: Where it runs, a copy that it may write to; what it leaves there is the caller's to remove.
            limits: What it may use.
            environment: Variables beyond the allow list.
            readable: Files or folders beside `cwd`, the interpreter and the system that it may read.

        Raises:
            NotJudgedError: GBE332, the machine is too busy to say whether it comes to its end.
        """
        ...
