"""`graphbus validate`: artifacts and sources that fit, and everything that does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core.build import build_graph
from graphbus_core.cli import main
from tests.project_files import write_project
from tests.reading import HEAD


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built project, entered."""
    files = {f"agents/{name}.py": f"{HEAD}class {name.title()}(GraphBusNode): pass\n" for name in ("one", "two")}
    monkeypatch.chdir(write_project(tmp_path, {"pyproject.toml": "", **files}))
    build_graph("agents")
    return tmp_path


def test_whole_artifacts_are_valid(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == 0
    streams = capsys.readouterr()
    assert streams.out == "✓ .graphbus: 5 artifacts are intact and match 2 source files.\n"
    assert streams.err == ""


def test_every_problem_is_shown(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (built / "agents/one.py").write_text("# changed\n")
    (built / "agents/two.py").unlink()
    (built / ".graphbus/graph.json").write_text("{}")
    assert main(["validate", ".graphbus"]) == 6
    streams = capsys.readouterr()
    assert streams.out == ""
    lines = [line for line in streams.err.splitlines() if "error:" in line]
    assert [(line.split(":")[0], line[line.rindex("[") :]) for line in lines] == [
        (".graphbus/graph.json", "[GBE506]"),
        ("agents/one.py", "[GBE508]"),
        ("agents/two.py", "[GBE508]"),
    ]


@pytest.mark.parametrize("is_valid", [True, False])
def test_json_is_one_document(built: Path, capsys: pytest.CaptureFixture[str], is_valid: bool) -> None:
    if not is_valid:
        (built / "agents/one.py").write_text("# changed\n")
    assert main(["validate", "--json"]) == (0 if is_valid else 6)
    streams = capsys.readouterr()
    found = json.loads(streams.out)
    assert (found["artifacts"], found["is_valid"]) == (".graphbus", is_valid)
    assert [(problem["code"], problem["where"]["path"]) for problem in found["problems"]] == (
        [] if is_valid else [("GBE508", "agents/one.py")]
    )
    assert streams.err == ""


def test_without_artifacts_there_is_nothing_to_validate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["validate"]) == 6
    assert "There are no build artifacts here. [GBE501]" in capsys.readouterr().err
