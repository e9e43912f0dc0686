"""`python -m graphbus_core.build`, as seed 001 shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.build import main
from graphbus_core.editing.journal import COMMITTING
from graphbus_core.editing.promotion import promote
from graphbus_core.model.config import ResolvedBuild
from tests.conftest import Project
from tests.patience import PATIENCE_S

AGENT = """
    from graphbus_core import GraphBusNode, schema_method

    class Hello(GraphBusNode):
        @schema_method(input_schema={"name": str}, output_schema={"text": str})
        def greet(self, name) -> dict[str, str]:
            return {"text": f"Hello {name}"}

    class Printer(GraphBusNode):
        pass
    """


@pytest.fixture
def hello(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = project({"hello/__init__.py": "", "hello/agents/__init__.py": "", "hello/agents/hello.py": AGENT})
    monkeypatch.chdir(root)
    return root


@pytest.mark.slow
def test_a_package_is_built_by_its_name(hello: Path) -> None:
    command = [sys.executable, "-m", "graphbus_core.build", "--root", "hello.agents"]
    done = subprocess.run(command, cwd=hello, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "[BUILD]  1/15 LOAD_BUILD_CONFIG"
    assert lines[-1] == "[BUILD] Built 2 agents"
    assert (hello / ".graphbus/agents.json").is_file()


def test_a_second_time_there_is_nothing_to_do(hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", "hello.agents"]) == 0
    capsys.readouterr()
    assert main(["--root", "hello.agents"]) == 0
    stages = "[BUILD]  1/15 LOAD_BUILD_CONFIG\n[BUILD]  2/15 DISCOVER_MODULES\n"
    assert capsys.readouterr().out == f"{stages}[BUILD] Built 2 agents (nothing has changed)\n"


def test_an_interrupted_promotion_is_ended_and_told(hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "hello/agents/hello.py"
    old = (hello / path).read_bytes()
    promote(ResolvedBuild(root=str(hello), paths=()), {path: (old, old + b"# new\n")}, "S001")
    folder = hello / ".graphbus/journal/0001-S001"
    folder.rename(folder.with_name(folder.name + COMMITTING))
    assert main(["--root", "hello.agents"]) == 0
    assert capsys.readouterr().err == "An interrupted promote of S001 was completed.\n"


def test_agents_improve_the_package_when_asked(hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", "hello.agents", "--enable-agents"]) == 0
    assert "[BUILD] Modified: hello/agents/hello.py\n" in capsys.readouterr().out
    assert "def greet(self, name: str)" in (hello / "hello/agents/hello.py").read_text()


def test_a_dry_run_leaves_the_package_alone(hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (hello / "hello/agents/hello.py").read_bytes()
    assert main(["--root", "hello.agents", "--enable-agents", "--dry-run"]) == 0
    assert (hello / "hello/agents/hello.py").read_bytes() == before
    assert not (hello / ".graphbus").exists()
    assert "Modified" not in capsys.readouterr().out


def test_a_refusal_is_one_message_and_the_status_of_its_family(hello: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (hello / "hello/agents/hello.py").write_text("class Hello(GraphBusNode:\n")
    assert main(["--root", "hello.agents"]) == 3
    said = capsys.readouterr()
    assert said.err.startswith("hello/agents/hello.py:1:")
    assert "Traceback" not in said.err


@pytest.mark.slow
def test_a_build_goes_on_when_nobody_reads_what_it_says(hello: Path) -> None:
    command = f"{sys.executable} -m graphbus_core.build --root hello.agents | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert (hello / ".graphbus" / "graph.json").exists()
