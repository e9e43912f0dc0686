"""A handler that ends the process while the graph stays up: the agents are stopped, and the exit status is the one it gave."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphbus_core import build_graph, runtime
from graphbus_core.model.config import RuntimeConfig
from tests.patience import PATIENCE_S
from tests.project_files import write_project

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
@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(("way", "status"), [("exit", 5), ("interrupt", 130)])
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


def test_one_dispatcher_delivers_in_a_graph_that_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(
        tmp_path,
        {
            "pyproject.toml": "[tool.graphbus]\n",
            "agents/a.py": "from graphbus_core import GraphBusNode\nclass A(GraphBusNode): pass\n",
        },
    )
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    names: list[str] = []
    work = lambda _graph: names.extend(thread.name for thread in threading.enumerate())  # noqa: E731
    runtime.run_runtime_pipeline(RuntimeConfig(is_serving=True), work=work)
    assert names.count("graphbus-dispatcher") == 1
