"""The collector rests while a process of ours is loaded, and works when code of others runs; what was off stays off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Project
from tests.patience import PATIENCE_S

AGENTS = {
    "pyproject.toml": "[tool.graphbus]\n",
    "agents/orders.py": """
        import gc

        from graphbus_core import GraphBusNode, schema_method

        AT_IMPORT = gc.isenabled()

        class Orders(GraphBusNode):
            @schema_method(input_schema={}, output_schema={"at_import": bool, "at_work": bool, "is_spared": bool})
            def tell(self) -> dict[str, object]:
                return {"at_import": AT_IMPORT, "at_work": gc.isenabled(), "is_spared": gc.get_freeze_count() > 10_000}
        """,
    "main.py": "def run(graph):\n    print(graph.call('Orders', 'tell'))\n",
}
RUNTIME = ["-m", "graphbus_core.runtime", "--entrypoint", "main:run"]
COMMAND = ["-m", "graphbus_core", "run", "--entrypoint", "main:run"]
WITHOUT = (
    "import gc, runpy, sys; gc.disable(); sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
)
WORKS = {"at_import": True, "at_work": True, "is_spared": True}
OFF = {"at_import": False, "at_work": False, "is_spared": False}


def output(command: list[str], cwd: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    finished = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=kept, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture
def built(project: Project) -> Path:
    from graphbus_core import build_graph

    root = project(AGENTS)
    build_graph(str(root / "agents"))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("command", [RUNTIME, COMMAND], ids=["python -m graphbus_core.runtime", "graphbus run"])
def test_it_works_when_the_agents_are_imported_and_spares_what_was_loaded_before(
    command: list[str], built: Path
) -> None:
    assert repr(WORKS) in output(command, built)


@pytest.mark.slow
@pytest.mark.parametrize("command", [RUNTIME, COMMAND], ids=["python -m graphbus_core.runtime", "graphbus run"])
def test_a_process_that_does_without_it_keeps_doing_so(command: list[str], built: Path) -> None:
    assert repr(OFF) in output(["-c", WITHOUT, *command[1:]], built)


@pytest.mark.parametrize(
    "use",
    ["from graphbus_core import run_graph; run_graph", "from graphbus_core.cli import main; main(['check', '-h'])"],
)
def test_a_program_that_uses_the_library_keeps_its_collector_as_it_is(use: str, project: Callable[..., Path]) -> None:
    said = output(
        ["-c", f"import gc; {use}; print('\\nCOLLECTOR', gc.isenabled(), gc.get_freeze_count())"], project({})
    )
    assert said.endswith("COLLECTOR True 0\n")
