"""A handler that ends the process while the graph stays up: the agents are stopped, and the exit status is the one it gave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core import build_graph
from tests.patience import PATIENCE_S
from tests.project_files import write_project

pytestmark = pytest.mark.measures_children

FILES = {
    "pyproject.toml": "[tool.graphbus]\n",
    "agents/__init__.py": "",
    "agents/clock.py": """
        import threading
        from graphbus_core import GraphBusNode, subscribe

        class Clock(GraphBusNode):
            def on_start(self):
                threading.Timer(0.5, self.publish, ["/Clock/Struck", {"way": "WAY"}]).start()

            def on_stop(self):
                self.log("closed")

            @subscribe("/Clock/Struck")
            KIND on_struck(self, way):
                if way == "exit":
                    raise SystemExit(5)
                raise KeyboardInterrupt
        """,
}


def clock(root: Path, way: str, kind: str) -> Path:
    files = {name: text.replace("WAY", way).replace("KIND", kind) for name, text in FILES.items()}
    write_project(root, files)
    build_graph(root / "agents")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(("way", "status", "kind"), [("exit", 5, "def"), ("interrupt", 130, "async def")])
def test_a_graph_that_stays_up_ends_in_good_order(tmp_path: Path, way: str, status: int, kind: str) -> None:
    command = [sys.executable, "-m", "graphbus_core", "run"]
    done = subprocess.run(
        command,
        cwd=clock(tmp_path, way, kind),
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "[Clock] closed" in done.stderr
    assert done.stderr.count("Traceback") == 1  # that of the handler, in the log
    assert "in on_struck" in done.stderr
    assert "graphbus_core" not in done.stderr


@pytest.mark.slow
def test_work_that_ends_the_process_leaves_one_document(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "graphbus_core", "run", "--publish", "/Clock/Struck", '{"way": "exit"}', "--json"]
    done = subprocess.run(
        command, cwd=clock(tmp_path, "exit", "def"), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 5
    assert json.loads(done.stdout)["errors"][0]["message"] == "The code of an agent ended the process."
