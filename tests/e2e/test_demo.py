"""`make demo` leaves nothing behind. That every step does what it says, CI sees by running it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


def demo(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, DEMO, *arguments],
        env=os.environ | {"TMPDIR": str(folder), "PYTHONUTF8": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """Give a PYTHONPATH with which every graphbus command fails at once."""
    package = tmp_path / "broken" / "graphbus_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit(9)\n")
    return str(package.parent)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_the_demo_fails_and_cleans_up_when_a_step_fails(scratch: Path, broken: str) -> None:
    finished = demo(scratch, PYTHONPATH=broken)
    assert finished.returncode == 1
    assert finished.stdout.splitlines()[-1] == "✗ Make a shop: exit status 9"
    assert list(scratch.iterdir()) == []


def test_the_demo_keeps_its_folder_when_it_is_told_to(scratch: Path, broken: str) -> None:
    finished = demo(scratch, "--keep", PYTHONPATH=broken)
    (folder,) = scratch.iterdir()
    assert finished.stdout.splitlines()[-1] == f"Kept: {folder / 'my-shop'}"
