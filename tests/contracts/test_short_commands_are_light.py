"""Commands that should be short (`check` and `build` of a small project, a hook without an edit) load nothing heavy unused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import Project
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

AGENTS = {
    "pyproject.toml": "[tool.graphbus]\n",
    "agents/orders.py": """
        from graphbus_core import GraphBusNode, schema_method

        class Orders(GraphBusNode):
            @schema_method(input_schema={"order_id": str}, output_schema={"accepted": bool})
            def place(self, order_id: str) -> dict[str, object]:
                return {"accepted": True}
        """,
}
UNUSED = {
    "compressors, for the width of a terminal": "shutil zlib bz2 lzma",
    "what draws": "rich networkx",
    "what only a negotiation needs": "asyncio subprocess sqlite3 graphbus_core.negotiation.engine graphbus_core.llm",
}
SCRIPT = """
import atexit, sys
atexit.register(lambda: print("LOADED", *sys.modules))
from graphbus_core.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("command", [["check"], ["build", "--force"]], ids=" ".join)
def test_a_short_command_has_not_loaded(command: list[str], project: Project) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, *command, "agents"],
        cwd=project(AGENTS),
        env=kept,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    loaded = set(finished.stdout.partition("LOADED ")[2].split())
    assert "graphbus_core.compiler.project" in loaded
    assert {why: found for why, names in UNUSED.items() if (found := loaded.intersection(names.split()))} == {}


def test_a_hook_that_has_nothing_to_judge_does_not_load_the_gate(project: Project) -> None:
    root = project(AGENTS)
    call = {"hook_event_name": "PreToolUse", "cwd": str(root), "tool_name": "Write"}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, "gate", "--hook", "claude-code"],
        input=json.dumps({**call, "tool_input": {"file_path": "README.md", "content": ""}}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    loaded = set(finished.stdout.partition("LOADED ")[2].split())
    assert "graphbus_core.cli.hook_answer" in loaded
    assert not loaded & {"graphbus_core.editing.gate", "graphbus_core.compiler.project", "subprocess"}
