"""Habits from other releases and tools get the right word: folders that are taken for each other, options, commands, classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.project_files import write_project

AGENTS = "from graphbus_core import GraphBusNode\n\nclass A(GraphBusNode): ...\n"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project that was built."""
    write_project(tmp_path, {"agents/orders.py": AGENTS, "pyproject.toml": "[project]\nname = 'a'\nversion = '0'\n"})
    monkeypatch.chdir(tmp_path)
    assert main(["build", "agents"]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("command", ["negotiate", "build", "check", "dev"])
def test_artifacts_are_no_agents(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, ".graphbus"]) == 2
    assert ".graphbus contains build artifacts, not agents. [GBE190]" in capsys.readouterr().err


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("command", ["validate", "inspect", "run", "migrate"])
@pytest.mark.parametrize("place", ["agents", "agents/", "agents/orders.py"])
def test_source_files_are_no_artifacts(command: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, place]) == 2
    told = capsys.readouterr().err
    assert f"{place.rstrip('/')} contains source code, not build artifacts. [GBE191]" in told
    assert f"`graphbus check {place.rstrip('/')}`" in told


@pytest.mark.usefixtures("built")
def test_a_folder_with_neither_is_said_to_have_no_artifacts(capsys: pytest.CaptureFixture[str]) -> None:
    Path("docs").mkdir()
    for place in ("docs", "nowhere"):
        assert main(["inspect", place]) == 6
        assert "[GBE501]" in capsys.readouterr().err


WORDS = [
    ("inspect --format json", "Invalid value for '--format': 'json' is not one of 'tree', 'mermaid'. Use '--json'."),
    ("build agents --format json", "graphbus build has no option --format. Use '--json'."),
    ("negotiate agents --llm-model x", "graphbus negotiate has no option --llm-model. Did you mean '--model'?"),
]


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(("line", "sentence"), WORDS, ids=[line for line, _ in WORDS])
def test_a_word_of_other_tools_gets_ours(line: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


NO_AGENTS = {
    "agents/orders.py": "from graphbus_core import Agent\n\nclass Orders(Agent): ...\n",
    "tests_of_old/test_orders.py": AGENTS,
}


def test_a_folder_of_classes_that_are_no_agents_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(tmp_path, NO_AGENTS)
    monkeypatch.chdir(tmp_path)
    for folder, code, why in (
        ("agents", "GB319", "graphbus_core has no 'Agent', so Orders is not an agent"),
        ("tests_of_old", "GB320", "A is in no graph: tests_of_old/test_orders.py is not read"),
        ("tests_of_old/test_orders.py", "GB320", "A is in no graph: tests_of_old/test_orders.py is not read"),
    ):
        assert main(["check", folder]) == 3
        told = capsys.readouterr().out
        assert code in told
        assert why in " ".join(told.split())
    for folder, why in (("agents", "graphbus_core has no 'Agent'"), ("tests_of_old", "A is in no graph")):
        assert main(["build", folder]) == 3
        assert f"No agent was found in {folder}: {why}" in capsys.readouterr().err


def test_what_an_agent_of_another_release_gets_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
from graphbus_core import GraphBusNode

class Orders(GraphBusNode):
    def __init__(self, bus):
        super().__init__(bus)
"""
    write_project(tmp_path, {"agents/orders.py": text})
    monkeypatch.chdir(tmp_path)
    assert main(["check", "agents"]) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert "Orders needs bus to be created" in told
    assert "Remove the parameter, here and from `super().__init__()`" in told
