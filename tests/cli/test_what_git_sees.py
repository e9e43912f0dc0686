"""`.graphbus/` in a repository: git leaves out what is in it, but for the lock, and what a user has written there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.project_files import write_project
from tests.unit.editing.git_project import git, make_repository

AGENT = """
    from graphbus_core import GraphBusNode


    class Greeter(GraphBusNode):
        def on_ready(self) -> None:
            self.publish("/Greeted", {"name": "Ada"})
"""
IGNORE = Path(".graphbus/.gitignore")
LOCK = "?? .graphbus/negotiation.lock"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_repository(tmp_path / "project", {"pyproject.toml": "", "agents/greeter.py": AGENT})
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def seen(project: Path) -> list[str]:
    """What git would take into the next commit with `git add --all`."""
    return git(project, "status", "--porcelain", "--untracked-files=all").splitlines()


@pytest.mark.parametrize(
    ("command", "lock"),
    [(["check"], []), (["build", "agents"], []), (["negotiate", "agents", "--model", "rules"], [LOCK])],
)
def test_what_a_command_keeps_is_left_out_from_the_first_one_on(
    command: list[str], lock: list[str], project: Path
) -> None:
    assert main(command) == 0
    assert (project / ".graphbus").is_dir()
    assert seen(project) == lock


def test_the_lock_is_let_in_also_where_the_project_leaves_out_the_rest(project: Path) -> None:
    assert main(["build", "agents"]) == 0
    (project / ".graphbus" / "negotiation.lock").write_text("{}")
    assert seen(project) == [LOCK]
    (project / ".gitignore").write_text(".graphbus/*\n")
    assert LOCK in seen(project)


@pytest.mark.parametrize("text", ["", "cache/\n"])
def test_a_file_that_a_user_has_changed_stays(text: str, project: Path) -> None:
    assert main(["build", "agents"]) == 0
    IGNORE.write_text(text)
    write_project(project, {"agents/second.py": AGENT.replace("Greeter", "Second")})
    for command in (["check"], ["build", "agents"], ["negotiate", "agents", "--model", "rules"]):
        assert main(command) == 0
    assert IGNORE.read_text() == text


@pytest.mark.parametrize("command", [["check"], ["build", "agents"], ["negotiate", "agents", "--model", "rules"]])
def test_a_clone_that_has_the_lock_alone_gets_it_with_the_first_command(command: list[str], project: Path) -> None:
    assert main(["negotiate", "agents", "--model", "rules"]) == 0
    git(project, "add", "--all")
    git(project, "commit", "-q", "-m", "lock")
    git(project, "clean", "-q", "-dfx")
    assert [path.name for path in (project / ".graphbus").iterdir()] == ["negotiation.lock"]
    assert main(command) == 0
    assert [line for line in seen(project) if not line.endswith(LOCK[3:])] == []


def test_artifacts_in_another_folder_are_left_out_as_well(project: Path) -> None:
    write_project(project, {"pyproject.toml": '[tool.graphbus]\nartifacts = "out"\n'})
    git(project, "commit", "-q", "-a", "-m", "elsewhere")
    assert main(["build", "agents"]) == 0
    assert (project / "out" / "manifest.json").is_file()
    assert seen(project) == []
