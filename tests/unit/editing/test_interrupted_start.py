"""Ctrl-C at the moment at which a command is started: it ends, and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.editing.sandboxes import process
from graphbus_core.editing.sandboxes.jails import Jail
from graphbus_core.editing.sandboxes.process import Limits, ProcessSandbox, Sandbox
from tests.fakes.pausing import comes_true

pytestmark = [pytest.mark.slow, pytest.mark.measures_children]


class Interrupted(subprocess.Popen[bytes]):
    """Ctrl-C comes when the child runs and nobody knows it yet."""

    def __init__(self, *command: Any, **how: Any) -> None:
        super().__init__(*command, **how)
        os.kill(os.getpid(), signal.SIGINT)


def runs(mark: str) -> bool:
    """A dead one that nobody has waited for has no command line."""
    found = (path for path in Path("/proc").iterdir() if path.name.isdigit())
    for path in found:
        try:
            if mark.encode() in (path / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("tier", ["process", "landlock", "bubblewrap"])
def test_ctrl_c_while_a_command_starts_leaves_nothing_behind(
    tier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox: Sandbox = ProcessSandbox() if tier == "process" else Jail(tier)
    mark = f"graphbus-start-{tmp_path.name}-{tier}"
    sandbox.run([sys.executable, "-c", "pass"], tmp_path, limits=Limits())  # it asks programs about this machine, once
    monkeypatch.setattr(process.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        sandbox.run([sys.executable, "-c", "import time; time.sleep(1000)", mark], tmp_path, limits=Limits())
    assert comes_true(lambda: not runs(mark))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
