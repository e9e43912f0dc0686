"""`graphbus contract` in repositories as they are: shallow, without a common past, below a folder, with odd names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from graphbus_core.cli import main

AGENT = """
from graphbus_core import GraphBusNode, schema_method

class Stock(GraphBusNode):
    @schema_method({"sku": str}, {"left": int})
    def take(self, sku: str) -> dict[str, int]:
        return {"left": 3}
"""
WIDER = AGENT.replace('"left": int', '"left": int, "sku": str').replace('"left": 3', '"left": 3, "sku": sku')


def git(*arguments: str) -> str:
    person = ("-c", "user.name=A Person", "-c", "user.email=person@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *person, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project below the top of a repository, on main; the working directory is the project."""
    project = tmp_path / "repo" / "service"
    (project / "agents").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "service"\nversion = "1.0.0"\n', encoding="utf-8")
    monkeypatch.chdir(project)
    git("init", "-q", "-b", "main", "..")
    git("add", "-A")
    git("commit", "-qm", "No agents yet", "--allow-empty")
    (project / "agents" / "stock.py").write_text(AGENT, encoding="utf-8")
    git("add", "-A")
    git("commit", "-qm", "Agents")
    return project


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, list[str]]:
    """What it calls the old state, and the kinds of changes."""
    main(["contract", "diff", *arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    return found["old"], [each["kind"] for each in found["changes"]]


def test_a_project_below_the_top_is_compared_with_itself(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(capsys, "main")[1] == []
    (repository / "agents" / "stock.py").write_text(WIDER, encoding="utf-8")
    assert compared(capsys, "main")[1] == ["field-added"]
    assert compared(capsys, "main~1")[1] == ["agent-added"]


def test_what_looks_like_an_option_or_names_no_commit_is_refused(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("rev:-x", "rev:--help", "main^{tree}", "HEAD:service", "HEAD@{99}", "nowhere"):
        assert main(["contract", "diff", name]) == 2
        assert "GBE171" in capsys.readouterr().err
    assert main(["contract", "agents", "--against", "nowhere"]) == 2
    shown = capsys.readouterr().err
    assert "'nowhere' is neither" in shown
    assert "origin/" not in shown


def test_without_a_common_past_the_tip_is_compared_and_that_is_said(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git("switch", "-q", "--orphan", "lone")
    git("checkout", "-q", "main", "--", ".")
    git("commit", "-qm", "Alone")
    assert main(["contract", "agents", "--against", "main"]) == 0
    assert "main, which has no commit in common with HEAD (" in capsys.readouterr().out


def test_a_shallow_clone_has_the_revisions_that_it_has(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git("clone", "-q", "--depth", "1", (tmp_path / "repo").as_uri(), str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow" / "service")
    assert compared(capsys, "main")[1] == []
    assert main(["contract", "diff", "HEAD~1"]) == 2
    assert "has no such commit" in capsys.readouterr().err
