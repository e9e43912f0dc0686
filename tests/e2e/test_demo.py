"""`make demo`: every step does what it says, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"

pytestmark = pytest.mark.slow


def demo(folder: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, DEMO, *arguments],
        env=os.environ | {"TMPDIR": str(folder), "PYTHONUTF8": "1"} | ({"PATH": path} if path else {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_demo_runs_to_its_end_and_cleans_up(tmp_path: Path) -> None:
    finished = demo(tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "\x1b[" not in finished.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_demo_keeps_its_shop_when_it_is_told_to(tmp_path: Path) -> None:
    finished = demo(tmp_path, "--keep")
    (folder,) = tmp_path.iterdir()
    assert f"Kept: {folder / 'my-shop'}" in finished.stdout
    assert (folder / "my-shop" / ".graphbus" / "graph.json").is_file()
