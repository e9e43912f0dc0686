"""git is read by plumbing, wherever the project lies in it, and nothing that a repository names is run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from graphbus_core.editing.git import STAGED, Git, Repository, difference_from
from graphbus_core.errors import NegotiationError
from tests.unit.editing.git_project import commit_files, git, make_repository

ODD = ("with space.py", "äöü.py", "tab\there.py", "new\nline.py", 'quo"te.py', "-dash.py", ":(top)magic.py", "[a]*.py")


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path_factory.mktemp("home") / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def found(folder: Path) -> Repository:
    repository = Repository.find(folder)
    assert repository is not None
    return repository


def code_of(action: object) -> str:
    with pytest.raises(NegotiationError) as refused:
        action()  # type: ignore[operator]
    return refused.value.code


def test_a_folder_without_a_work_tree_has_none_to_work_on(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "store.git")
    make_repository(tmp_path / "shop")
    for folder in (tmp_path, tmp_path / "store.git", tmp_path / "shop" / ".git"):
        assert Repository.find(folder) is None


def test_a_damaged_repository_is_told_from_none(tmp_path: Path) -> None:
    make_repository(tmp_path)
    (tmp_path / ".git" / "HEAD").unlink()
    assert code_of(lambda: Repository.find(tmp_path)) == "GBE431"


def test_without_git_that_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_of(lambda: Repository.find(tmp_path)) == "GBE430"


def test_a_git_that_would_run_hooks_all_the_same_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository(tmp_path / "shop", {"a.py": "A\n"})
    old = tmp_path / "bin" / "git"
    old.parent.mkdir()
    old.write_text(f'#!/bin/sh\nunset GIT_CONFIG_COUNT\nexec {shutil.which("git")} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    with pytest.raises(NegotiationError, match=r"older than version 2\.31"):
        Repository.find(tmp_path / "shop")


def test_git_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    make_repository(tmp_path)
    started = "alias.wait=!sleep 60"
    with pytest.raises(NegotiationError, match=r"no answer within 0\.2 s"):
        Git(tmp_path).run("-c", started, "wait", timeout_s=0.2)


def read(repository: Repository, revision: str, path: str) -> bytes:
    return dict(repository.contents(repository.entries(revision, path)))[path]


def test_paths_are_relative_to_the_project_in_a_monorepo(tmp_path: Path) -> None:
    make_repository(tmp_path, {"services/shop/agents/a.py": "A = 1\n", "services/shop_old/b.py": "B = 1\n"})
    shop = found(tmp_path / "services" / "shop")
    assert shop.prefix == "services/shop/"
    for revision in ("HEAD", STAGED):
        assert list(shop.entries(revision)) == ["agents/a.py"]
        assert read(shop, revision, "agents/a.py") == b"A = 1\n"
    (tmp_path / "services/shop_old/b.py").write_text("B = 2\n")
    assert shop.changed() == ()
    (tmp_path / "services/shop/agents/a.py").write_text("A = 2\n")
    assert shop.changed() == ("agents/a.py",)


def test_a_worktree_and_a_detached_head_are_as_good(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main", {"a.py": "A = 1\n"})
    git(main, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    tree, here = found(tmp_path / "tree"), found(main)
    assert here.branch() == "refs/heads/main"
    assert tree.branch() == ""
    assert tree.head() == here.head() == here.resolve("main")
    commit_files(tmp_path / "tree", {"a.py": "A = 2\n"})
    assert read(tree, "HEAD", "a.py") == b"A = 2\n"
    assert read(here, "HEAD", "a.py") == b"A = 1\n"


def test_before_the_first_commit_everything_staged_is_added(tmp_path: Path) -> None:
    repository = found(make_repository(tmp_path))
    (tmp_path / "a.py").write_text("A = 1\n")
    git(tmp_path, "add", "a.py")
    assert repository.head() == ""
    assert repository.staged() == ("a.py",)
    assert read(repository, STAGED, "a.py") == b"A = 1\n"
    assert code_of(repository.changed) == "GBE432"


def test_what_changed_is_named(tmp_path: Path) -> None:
    make_repository(tmp_path, {".gitignore": "*.log\n", "a.py": "A\n", "b.py": "B\n", "c.py": "C\n", "d.py": "D\n"})
    (tmp_path / "a.py").write_text("A2\n")
    (tmp_path / "b.py").unlink()
    (tmp_path / "new.py").write_text("")
    (tmp_path / "x.log").write_text("")
    os.utime(tmp_path / "c.py", (1, 1))
    git(tmp_path, "rm", "-q", "--cached", "d.py")
    assert found(tmp_path).changed() == ("a.py", "b.py", "d.py", "new.py")
    assert found(tmp_path).staged() == ("d.py",)


def test_odd_names_are_names(tmp_path: Path) -> None:
    make_repository(tmp_path, {f"odd/{name}": f"# {name!r}\n" for name in ODD})
    repository = found(tmp_path / "odd")
    assert dict(repository.contents(repository.entries("HEAD"))) == {name: f"# {name!r}\n".encode() for name in ODD}
    for name in ODD:
        (tmp_path / "odd" / name).write_text("changed\n")
    assert repository.changed() == tuple(sorted(ODD))
    git(tmp_path, "add", "-A")
    found_here = difference_from(repository, "HEAD", is_staged=True, is_judged=lambda _path: True)
    assert found_here.files == {name: (f"# {name!r}\n".encode(), b"changed\n") for name in ODD}


@pytest.mark.parametrize("revision", ["nope", "", "--all", "-h", "HEAD~7", "HEAD:a.py", "a\0b"])
def test_what_is_no_commit_is_refused(tmp_path: Path, revision: str) -> None:
    repository = found(make_repository(tmp_path, {"a.py": "A\n"}))
    assert code_of(lambda: repository.resolve(revision)) == "GBE432"


def test_links_and_submodules_are_no_files(tmp_path: Path) -> None:
    inner = make_repository(tmp_path / "outer" / "inner", {"agent.py": "A\n"})
    outer = make_repository(tmp_path / "outer", {"a.py": "A\n"})
    (outer / "link.py").symlink_to("a.py")
    git(outer, "add", "-A")
    git(outer, "commit", "-q", "-m", "with both")
    assert list(found(outer).entries("HEAD")) == list(found(outer).entries(STAGED)) == ["a.py"]
    assert list(found(inner).entries("HEAD")) == ["agent.py"]


def test_line_ends_are_those_of_a_checkout(tmp_path: Path) -> None:
    make_repository(tmp_path, {".gitattributes": "*.py text\n", "a.py": "A = 1\nB = 2\n"})
    git(tmp_path, "config", "core.autocrlf", "true")
    repository = found(tmp_path)
    assert read(repository, "HEAD", "a.py") == b"A = 1\r\nB = 2\r\n"
    (tmp_path / "a.py").write_bytes(b"A = 1\r\nB = 2\r\n")
    assert repository.changed() == ()


def test_nothing_that_a_repository_names_is_run(tmp_path: Path) -> None:
    make_repository(tmp_path, {".gitattributes": "*.py filter=evil diff=evil\n", "a.py": "A = 1\n"})
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho run >> {tmp_path}/ran\ncat\n")
    trap.chmod(0o755)
    for key in (
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "diff.external",
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.askPass",
        "core.sshCommand",
    ):
        git(tmp_path, "config", key, str(trap))
    git(tmp_path, "config", "filter.evil.required", "true")
    (tmp_path / "a.py").write_text("A = 2\n")
    (tmp_path / "ran").unlink(missing_ok=True)
    repository = found(tmp_path)
    assert repository.filters == {"filter.evil"}
    assert read(repository, "HEAD", "a.py") == b"A = 1\n"
    assert "a.py" in repository.changed()
    assert repository.staged() == ()
    assert not (tmp_path / "ran").exists()


def test_no_key_and_no_other_repository_reaches_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository(tmp_path, {"a.py": "A\n"})
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-value")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    seen = Git(tmp_path).run("-c", "alias.look=!env", "look").decode()
    assert "secret-value" not in seen
    assert "/nowhere" not in seen
    assert list(found(tmp_path).entries(STAGED)) == ["a.py"]


def test_reading_leaves_the_index_and_the_objects_alone(tmp_path: Path) -> None:
    make_repository(tmp_path, {"a.py": "A = 1\n", "b.py": "B = 1\n"})
    os.utime(tmp_path / "a.py", (1, 1))
    (tmp_path / "b.py").write_text("B = 2\n")
    before = {path: path.read_bytes() for path in (tmp_path / ".git").rglob("*") if path.is_file()}
    repository = found(tmp_path)
    repository.changed()
    repository.staged()
    read(repository, "HEAD", "a.py")
    assert {path: path.read_bytes() for path in (tmp_path / ".git").rglob("*") if path.is_file()} == before
