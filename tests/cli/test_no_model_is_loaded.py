"""What is not asked for is not loaded: no wing of models in commands that need none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow
AGENT = """\
from graphbus_core import GraphBusNode


class Shop(GraphBusNode):
    def open(self) -> bool:
        return True
"""
CODE = """\
import sys
from graphbus_core.cli import main
status = main(sys.argv[1:])
wings = ("graphbus_core.llm", "pydantic_ai", "anthropic", "openai", "httpx2", "genai_prices", "asyncio")
print(status, sorted(name for name in sys.modules if name.startswith(wings)))
"""


@pytest.mark.parametrize("command", ["--help", "check .", "build .", "negotiate --help", "inspect .graphbus"])
def test_a_command_without_agents_loads_no_wing_of_models(command: str, project: Project) -> None:
    root: Path = project({"shop.py": AGENT, "pyproject.toml": "[project]\nname='x'\n"})
    if command.startswith("inspect"):
        subprocess.run(
            [sys.executable, "-c", CODE, "build", "."], cwd=root, capture_output=True, check=True, timeout=PATIENCE_S
        )
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command.split()],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
