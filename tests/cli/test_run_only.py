"""`--only AGENT`: one process runs some agents of a graph, another process the others."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project
from tests.patience import PATIENCE_S

AGENT = """
    from graphbus_core import GraphBusNode, schema_method, subscribe

    class {name}(GraphBusNode):
        def on_start(self):
            print("{name} begins", flush=True)

        @subscribe("/{name}/Asked")
        def on_asked(self):
            print("{name} hears", flush=True)

        @schema_method(input_schema={{}}, output_schema={{"name": str}})
        def who(self):
            return {{"name": "{name}"}}

        @schema_method(input_schema={{}})
        def ask_the_other(self):
            self.call("Stocks", "who")
    """
EXTERNAL = '[tool.graphbus]\nexternal_topics = ["/Weather/Asked", "/Stocks/Asked"]\n'


@pytest.fixture
def root(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder: Path = project(
        {
            "pyproject.toml": EXTERNAL,
            "agents/__init__.py": "",
            "agents/weather.py": AGENT.format(name="Weather"),
            "agents/stocks.py": AGENT.format(name="Stocks"),
        }
    )
    build_graph(folder / "agents")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def begin(root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=root, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def lines_until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if "Ready" in line:
            break
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("command", [("graphbus_core.runtime",), ("graphbus_core", "run")], ids=["pod", "terminal"])
def test_two_processes_run_one_agent_each(
    begin: Callable[..., subprocess.Popen[str]], command: tuple[str, ...]
) -> None:
    processes = {name: begin(*command, "--only", name) for name in ("Weather", "Stocks")}
    for name, process in processes.items():
        lines = lines_until_ready(process)
        assert lines[0] == f"{name} begins"
        assert lines[1] == f"[RUNTIME] Loaded 1 agent, 2 topics, 1 subscription (only {name}, of 2 agents)"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_a_call_of_one_that_runs_elsewhere_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--only", "Weather", "--call", "Stocks.who", "{}"]) == 7
    said = capsys.readouterr().err
    assert "Stocks does not run in this process, which was started with --only Weather. [GBE696]" in said
    assert "--ledger sqlite" in said  # which carries calls between processes


@pytest.mark.parametrize("way", ["run", "runtime"])
def test_an_unknown_name_is_refused_before_anything_is_imported(
    root: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    from graphbus_core import runtime

    (root / "agents/weather.py").write_text("raise RuntimeError\n")
    arguments = ["--allow-drift", "--only", "Wether"]
    assert (main(["run", *arguments]) if way == "run" else runtime.main(arguments)) == 7
    err = capsys.readouterr().err
    assert (
        "There is no agent Wether in this graph, so it cannot be run on its own. Did you mean 'Weather'? [GBE695]"
        in err
    )
    assert "Use one of its agents: Stocks, Weather." in err
