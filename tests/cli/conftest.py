"""The project in which commands are tried together."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.commands import FILES
from tests.project_files import write_project


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small project that is built."""
    root = write_project(tmp_path / "shop", FILES)
    build_graph(root / "agents")
    return root


@pytest.fixture
def with_demo(shop: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The same, with one below it for agents to negotiate in."""
    assert main(["-C", str(shop), "init", "demo"]) == 0
    rmtree(shop / "demo" / "tests")  # a negotiation without a suite takes a third of the time
    capsys.readouterr()
    return shop
