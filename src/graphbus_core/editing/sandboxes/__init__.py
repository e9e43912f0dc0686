"""Sandboxes for code that nobody has approved yet: a jail if the machine has one, else none, unless the settings allow that.

Theory of operation
===================
    bubblewrap   the program `bwrap` builds the walls                    jails.py, jail_init.py
    landlock     GraphBus builds the walls itself, Landlock behind them  jails.py, jail_init.py
    process      no walls: a child process with limits, if `isolation = "process"` is set        process.py

Both jails give the code the same view: a root of its own with the system and Python read-only, a copy of the project to write to,
an empty home and /tmp, its own process ids, and a network with nobody in it. A seccomp filter refuses system calls that lead past
these walls. All three start, watch and end the command with the code in `process.py`, which enforces the limits on time, memory,
disk and processes.
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
"""The jails, in the order of preference."""


def choose_sandbox(isolation: Isolation, project: Path | None = None) -> Sandbox | None:
    """Return the first sandbox that works here; None if there is no jail, so that no project code may run.

    Args:
        isolation: The setting; `"process"` asks for a plain child process with limits.
        project: The real project; jailed code sees only a copy of it.
    """
    if isolation == "process":
        return ProcessSandbox()
    tier = next((tier for tier in TIERS if not why_unavailable(tier)), None)
    return Jail(tier, project) if tier else None


def describe_isolation() -> str:
    """Return one line for `graphbus doctor`: where changed code runs on this machine or, if nowhere, why."""
    for tier in TIERS:
        if not why_unavailable(tier):
            return f"changed code runs in a jail ({tier})"
    reasons = "; ".join(f"{tier}: {why_unavailable(tier)}" for tier in TIERS)
    return f"there is no jail for changed code here, so it does not run ({reasons}). Install bubblewrap."


@cache
def why_unavailable(tier: Tier) -> str:
    """Say why a jail does not work on this machine; empty if it does. Found out once, by running Python in it."""
    if sys.platform != "linux":
        return "it needs Linux"
    if tier == "bubblewrap" and not shutil.which("bwrap"):
        return "the program bwrap is not installed"
    with tempfile.TemporaryDirectory(prefix="graphbus-probe-") as folder:
        try:
            command = [sys.executable, "-I", "-S", "-c", "pass"]
            done = Jail(tier).run(command, Path(folder), limits=Limits(memory_mb=512))
        except NotJudgedError:
            raise  # the machine is busy: that says nothing about the jail, and must not be cached
        except (GraphBusError, OSError) as reason:
            return str(reason).splitlines()[0]
    return "" if done.returncode == 0 else (done.stderr.strip().rpartition("\n")[2] or "this Python does not run in it")
