"""Chooses the sandbox for code that nobody has approved yet: an isolated one, or a plain child process if the settings say so.

Theory of operation
===================
    bubblewrap   isolated by the program `bwrap`                                                  jails.py, jail_init.py
    landlock     isolated by GraphBus itself, with namespaces and Landlock                        jails.py, jail_init.py
    process      not isolated: a child process with limits, if `isolation = "process"` is set     process.py

Both isolated sandboxes (class `Jail`) give the code the same view: a root of its own with the system and Python read-only, a copy
of the project to write to, an empty home and /tmp, its own process ids, and a network without other hosts. A seccomp filter
refuses system calls that would get around this. All three start, watch and end the command with the code in `process.py`, which
enforces the limits on time, memory, disk and processes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from graphbus_core.editing.sandboxes.jails import Jail, Tier
from graphbus_core.editing.sandboxes.process import Limits, ProcessSandbox, Sandbox
from graphbus_core.errors import GraphBusError, NotJudgedError
from graphbus_core.model.config import Isolation

TIERS: tuple[Tier, ...] = ("bubblewrap", "landlock")
"""The isolated sandboxes, in the order of preference."""


def choose_sandbox(isolation: Isolation, project: Path | None = None) -> Sandbox | None:
    """Return the sandbox for project code; None if no isolated one works here, so that no project code may run.

    Args:
        isolation: The setting. `"process"` asks for a plain child process with limits; otherwise it is the first of `TIERS`.
        project: The real project; isolated code sees only a copy of it.

    Raises:
        NotJudgedError: GBE332, the machine is too busy to test the sandboxes.
    """
    if isolation == "process":
        return ProcessSandbox()
    tier = next((tier for tier in TIERS if not why_unavailable(tier)), None)
    return Jail(tier, project) if tier else None


def describe_isolation() -> str:
    """Return one line for `graphbus doctor`: where changed code runs on this machine, or why it cannot run."""
    for tier in TIERS:
        if not why_unavailable(tier):
            return f"changed code runs in an isolated sandbox ({tier})"
    reasons = "; ".join(f"{tier}: {why_unavailable(tier)}" for tier in TIERS)
    return f"no isolated sandbox works here, so changed code does not run ({reasons}). Install bubblewrap."


@cache
def why_unavailable(tier: Tier) -> str:
    """Return why an isolated sandbox does not work on this machine; empty if it does. It is tested once, by running Python in it.

    Raises:
        NotJudgedError: GBE332, the machine is too busy for the test.
    """
    if sys.platform != "linux":
        return "it needs Linux"
    if tier == "bubblewrap" and not shutil.which("bwrap"):
        return "the program bwrap is not installed"
    with tempfile.TemporaryDirectory(prefix="graphbus-probe-") as folder:
        try:
            command = [sys.executable, "-I", "-S", "-c", "pass"]
            done = Jail(tier).run(command, Path(folder), limits=Limits(memory_mb=512))
        except NotJudgedError:
            raise  # the machine is busy: that says nothing about the sandbox, and must not be cached
        except (GraphBusError, OSError) as reason:
            return str(reason).splitlines()[0]
    return "" if done.returncode == 0 else (done.stderr.strip().rpartition("\n")[2] or "this Python does not run in it")
