"""What a command writes is measured also when it has deleted its folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from graphbus_core.editing.sandboxes.process import StartedProgram, remove_tree
from graphbus_core.editing.sandboxes.usage import Meter, make_disk_meter
from tests.patience import PATIENCE_S


def test_a_folder_that_is_gone_ends_no_measurement(tmp_path: Path) -> None:
    home, work = tmp_path / "home" / "tmp", tmp_path / "work"
    home.mkdir(parents=True)
    work.mkdir()
    meter = make_disk_meter((home, work), disk_mb=1)
    remove_tree(tmp_path / "home")
    assert meter._find_excess() == ""
    (work / "large").write_bytes(b"x" * 2_000_000)
    assert meter._find_excess() == "it wrote more than 1 MB"


def test_a_program_whose_limits_cannot_be_measured_is_ended() -> None:
    def fail() -> str:
        raise PermissionError("/proc")

    words = [sys.executable, "-c", f"import time; time.sleep({PATIENCE_S})"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as process:
        program = StartedProgram(process, "", [Meter(0.0, fail)], None)
        assert process.wait(PATIENCE_S) != 0
        assert program.excess == "its limits could not be measured"
