"""`graphbus undo` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.editing.journal import COMMITTING
from graphbus_core.editing.promotion import promote
from graphbus_core.model.config import ResolvedBuild
from tests.fakes.landed_sessions import FILES, LOG, PRICE, Agreed
from tests.unit.editing.git_project import git, make_repository

OLD, NEW = b"a = 1\n", b"a = 2\n"


@pytest.fixture
def promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which S001 changed one file; we stand in a folder of it."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.graphbus]\n")
    (tmp_path / "agents" / "a.py").write_bytes(OLD)
    promote(ResolvedBuild(root=str(tmp_path), paths=()), {"agents/a.py": (OLD, NEW)}, "S001")
    monkeypatch.chdir(tmp_path / "agents")
    return tmp_path


def test_the_last_session_is_undone_and_a_build_is_advised(promoted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo"]) == 0

    said = capsys.readouterr()
    assert said.out == "✓ Restored: agents/a.py\n"
    assert "S001 is undone" in said.err
    assert "graphbus build" in said.err
    assert (promoted / "agents/a.py").read_bytes() == OLD


def test_a_dry_run_says_what_would_happen(promoted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", "S001", "--dry-run"]) == 0

    assert capsys.readouterr().out == "Would restore: agents/a.py\n"
    assert (promoted / "agents/a.py").read_bytes() == NEW


def test_json_is_one_document(promoted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["session"] == "S001"
    assert document["dry_run"] is False
    assert [file["path"] for file in document["files"]] == ["agents/a.py"]


def test_nothing_to_undo_is_told(promoted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["undo"])

    assert main(["undo"]) == 4
    assert main(["undo", "S007"]) == 4
    assert capsys.readouterr().err.count("[GBE327]") == 2


@pytest.mark.parametrize(("content", "state"), [(NEW, "completed"), (OLD, "taken back")])
def test_an_interrupted_promotion_is_ended_first(
    promoted: Path, capsys: pytest.CaptureFixture[str], content: bytes, state: str
) -> None:
    folder = promoted / ".graphbus/journal/0001-S001"
    folder.rename(folder.with_name(folder.name + COMMITTING))
    (promoted / "agents/a.py").write_bytes(content)

    main(["undo"])

    assert f"An interrupted promote of S001 was {state}." in capsys.readouterr().err
    assert (promoted / "agents/a.py").read_bytes() == OLD


def test_the_git_commits_of_a_session_are_named_and_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = make_repository(tmp_path / "shop", FILES)
    Agreed(shop).accept(PRICE).accept(LOG, title="Log what was sold").land()
    ids = git(shop, "log", "-2", "--format=%H").split()
    monkeypatch.chdir(shop)
    assert main(["undo", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["git_commits"] == {"P002": ids[0], "P001": ids[1]}
    assert main(["undo"]) == 0
    assert f"git revert {ids[0][:10]} {ids[1][:10]}" in capsys.readouterr().err
    assert git(shop, "rev-parse", "HEAD").strip() == ids[0]
