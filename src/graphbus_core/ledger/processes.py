"""The identity of a process, by which another one finds out on Linux that it has ended; and that of a file."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def _here() -> str:
    """Return what tells process ids of this boot and container from others; empty where there is no /proc."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return when a process started, in ticks since the boot; empty if it has ended. A number is used again for another one."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]


def own_identity() -> str:
    """Return the identity of this process; empty where it cannot be known."""
    return f"{_here()} {os.getpid()} {_start_of(os.getpid())}" if _here() else ""


def has_ended(identity: str) -> bool:
    """True if this process has certainly ended; False if it runs, or if that cannot be seen from here."""
    here, _, process = identity.rpartition(" ")[0].rpartition(" ")
    if not here or here != _here():
        return False
    return _start_of(int(process)) != identity.rpartition(" ")[2]


def identity_of_file(path: str) -> str:
    """Return what tells a file from those of other machines and containers; equal for two paths to the same file."""
    found = os.stat(path)
    return f"{_here()} {found.st_dev} {found.st_ino}"
