"""Where code that nobody has agreed to yet may run: in a jail if there is one here, else nowhere, unless the settings say so."""

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
"""The jails, best known first."""


def choose_sandbox(isolation: Isolation, project: Path | None = None) -> Sandbox | None:
    """Give the best sandbox that works here; None: there is no jail, and nothing may run.

    Args:
        isolation: `"process"` asks for a plain child process with limits.
        project: The real project, of which jailed code sees nothing but a copy.
    """
    if isolation == "process":
        return ProcessSandbox()
    tier = next((tier for tier in TIERS if not why_unavailable(tier)), None)
    return Jail(tier, project) if tier else None


def describe_isolation() -> str:
    """Say in one line where changed code runs here, and if nowhere, why."""
    for tier in TIERS:
        if not why_unavailable(tier):
            return f"changed code runs in a jail ({tier})"
    reasons = "; ".join(f"{tier}: {why_unavailable(tier)}" for tier in TIERS)
    return f"there is no jail for changed code here, so it does not run ({reasons}). Install bubblewrap."


@cache
def why_unavailable(tier: Tier) -> str:
    """Say why a jail does not work here; empty when it does. Tried once in a process, by running this Python in it."""
    if sys.platform != "linux":
        return "it needs Linux"
    if tier == "bubblewrap" and not shutil.which("bwrap"):
        return "the program bwrap is not installed"
    with tempfile.TemporaryDirectory(prefix="graphbus-probe-") as folder:
        try:
            command = [sys.executable, "-I", "-S", "-c", "pass"]
            done = Jail(tier).run(command, Path(folder), limits=Limits(memory_mb=512))
        except NotJudgedError:
            raise  # it says nothing of the jail, and is not to be remembered
        except (GraphBusError, OSError) as reason:
            return str(reason).splitlines()[0]
    return "" if done.returncode == 0 else (done.stderr.strip().rpartition("\n")[2] or "this Python does not run in it")
