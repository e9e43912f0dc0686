"""`--commit`, killed with SIGKILL before, at and after each move: the files are new, and HEAD has all commits or none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.cli import main
from graphbus_core.editing import commits
from graphbus_core.errors import GraphBusError
from graphbus_core.negotiation.apply import load_commits
from tests.fakes.landed_sessions import FILES, PRICE, Agreed
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S
from tests.unit.editing.git_project import git, make_repository

pytestmark = pytest.mark.slow
CHECKOUT = Path(__file__).parents[2]
KILLER = """#!/bin/sh
case " $* " in *" {command} "*)
    echo x >> "{counter}"
    if [ "$(wc -l < "{counter}")" -eq {number} ]; then
        kill -9 $PPID
        {then}
    fi
esac
exec "{git}" "$@"
"""


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path_factory.mktemp("home") / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setattr(commits, "LOCK_WAIT_S", 0.2)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = make_repository(tmp_path / "shop", {**FILES, "other.txt": "other\n"})
    (root / "other.txt").write_text("staged\n")
    git(root, "add", "other.txt")
    (root / "notes.txt").write_text("mine\n")
    return root


def land_and_be_killed(shop: Path, command: str, number: int, *, goes_on: bool) -> None:
    """Land in a child whose git kills it at the n-th run of a command, and then does that command or does not."""
    folder = shop.parent / "bin"
    folder.mkdir()
    git_path = shutil.which("git")
    then = "" if goes_on else "exit 1"
    script = KILLER.format(command=command, counter=folder / "count", number=number, git=git_path, then=then)
    (folder / "git").write_text(script)
    (folder / "git").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.commit_driver", str(shop)],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def subjects(shop: Path) -> list[str]:
    return git(shop, "log", "--reverse", "--format=%s").splitlines()


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize(
    ("command", "number"), [("commit-tree", 1), ("commit-tree", 2), ("--index-info", 1), ("update-ref", 1)]
)
def test_a_kill_leaves_all_commits_or_none(
    *,
    shop: Path,
    command: str,
    number: int,
    goes_on: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    land_and_be_killed(shop, command, number, goes_on=goes_on)
    lock = shop / ".git" / "index.lock"
    has_moved = command == "update-ref" and goes_on
    if has_moved:  # git has moved HEAD after the death of its parent
        wait_for_git(shop)
    assert "max(price, 0)" in (shop / "agents/order.py").read_text()
    assert "sold" in (shop / "agents/stock.py").read_text()
    made = ["fix(Order): refuse negative prices", "fix(Order): log what was sold"]
    assert subjects(shop) == ["begin", *(made if has_moved else [])]
    assert "error" not in git(shop, "fsck", "--strict")

    # a lock that is left behind is said before anybody is asked, and nothing else is in the way
    if lock.exists():
        with pytest.raises(GraphBusError, match="another git process has locked the index"):
            commits.open_for_commits(shop)
        lock.unlink()
    commits.open_for_commits(shop)
    assert git(shop, "show", ":other.txt") == "staged\n"
    assert (shop / "notes.txt").read_text() == "mine\n"

    # what is told of the commits is true
    monkeypatch.chdir(shop)
    main(["inspect-negotiation"])
    listed = capsys.readouterr().out
    main(["inspect-negotiation", "P001"])
    shown = capsys.readouterr().out
    known = load_commits(shop / ".graphbus", "S001")
    assert ("2 git commits" in listed) == (known is not None)
    assert ("not in the history of HEAD" in shown) == (known is not None and not has_moved)
    assert ("not in the history of HEAD" in listed) == (known is not None and not has_moved)

    # and a person is done with one command
    if has_moved:
        git(shop, "reset", "-q", "--", "agents")
    else:
        git(shop, "commit", "-q", "-m", "by hand", "--", "agents")
    assert git(shop, "status", "--porcelain").splitlines() == [" M notes.txt", "M  other.txt"]


def wait_for_git(shop: Path) -> None:
    assert comes_true(lambda: len(subjects(shop)) > 1)


def test_commits_in_a_partial_and_sparse_clone_fetch_nothing(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {**FILES, "agents/data.txt": "data\n", "big/more.txt": "more\n"})
    git(origin, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{origin}", "shop")
    shop = tmp_path / "shop"
    git(shop, "sparse-checkout", "set", "--no-cone", "/agents/*.py", "/pyproject.toml")
    git(shop, "checkout", "-q", "main")
    for key, value in (("user.name", "A Person"), ("user.email", "person@example.com")):
        git(shop, "config", key, value)
    missing = git(shop, "rev-list", "--objects", "--all", "--missing=print").count("?")
    Agreed(shop).accept(PRICE).land()
    assert len(subjects(shop)) == 2
    assert missing > 0
    assert git(shop, "rev-list", "--objects", "--all", "--missing=print").count("?") == missing
    assert [line for line in git(shop, "status", "--porcelain").splitlines() if ".graphbus" not in line] == []


def test_commits_that_head_has_are_not_denied(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index cannot be renewed any more when HEAD has moved already."""
    really_replace = os.replace

    def refuse(source: str, target: str, **folders: int) -> None:
        if Path(target).name == "index":
            raise OSError(28, "No space left on device")
        really_replace(source, target, **folders)

    monkeypatch.setattr(commits.os, "replace", refuse)
    session = Agreed(shop).accept(PRICE)
    session.land()
    made = load_commits(session.config.artifacts_dir, "S001")
    assert made is not None
    assert list(made.commits.values()) == [git(shop, "rev-parse", "HEAD").strip()]
    assert not (shop / ".git" / "index.lock").exists()
