"""Which files are read, under which names, and what happens to those that cannot be."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphbus_core.compiler.discover import ModuleIndex, discover_modules
from graphbus_core.model.config import ResolvedBuild, Settings
from tests.project_files import write_project


def _discover(root: Path, *paths: str, exclude: tuple[str, ...] = ()) -> ModuleIndex:
    wanted = tuple(str(root / path) for path in paths) or (str(root),)
    return discover_modules(ResolvedBuild(root=str(root), paths=wanted, settings=Settings(exclude=exclude)))


def _paths(index: ModuleIndex) -> list[str]:
    return [file.path for file in index.files]


@pytest.mark.parametrize(
    ("path", "module", "import_root"),
    [
        ("a.py", "a", "."),
        ("agents/a.py", "agents.a", "."),
        ("agents/deep/a.py", "agents.deep.a", "."),
        ("agents/__init__.py", "agents", "."),
        ("src/shop/agents/a.py", "shop.agents.a", "src"),
        ("src/a.py", "a", "src"),
        ("my-shop/agents/a.py", "agents.a", "my-shop"),
        ("my-shop/a.py", "a", "my-shop"),
        ("__init__.py", "__init__", "."),
    ],
)
def test_the_name_of_a_module_follows_from_its_place(tmp_path: Path, path: str, module: str, import_root: str) -> None:
    index = _discover(write_project(tmp_path, {path: ""}))
    assert [tuple(file) for file in index.files] == [(path, module)]
    assert index.import_roots == (import_root,)


def test_a_src_that_is_a_package_is_part_of_the_name(tmp_path: Path) -> None:
    index = _discover(write_project(tmp_path, {"src/__init__.py": "", "src/a.py": ""}))
    assert [file.module for file in index.files] == ["src", "src.a"]


def test_caches_hidden_folders_environments_and_tests_are_left_out(tmp_path: Path) -> None:
    files = ["__pycache__/a.py", ".git/a.py", ".graphbus/a.py", "node_modules/a.py", "env/pyvenv.cfg", "env/lib/a.py"]
    files += [
        "venv/a.py",
        "tests/a.py",
        "agents/test/a.py",
        "test_a.py",
        "a_test.py",
        "conftest.py",
        ".hidden.py",
        "a.txt",
    ]
    index = _discover(write_project(tmp_path, dict.fromkeys([*files, "agents/a.py"], "")))
    assert _paths(index) == ["agents/a.py"]
    assert index.errors == ()


def test_what_is_asked_for_itself_is_never_left_out(tmp_path: Path) -> None:
    root = write_project(tmp_path, dict.fromkeys(["tests/shop/a.py", "tests/shop/tests/b.py", "test_c.py"], ""))
    index = _discover(root, "tests/shop", "test_c.py")
    assert _paths(index) == ["test_c.py", "tests/shop/a.py"]
    assert index.roots == ("tests/shop", "test_c.py")


@pytest.mark.parametrize(
    ("glob", "left"),
    [
        ("agents/old", ["a.py", "agents/b.py"]),
        ("agents/old/", ["a.py", "agents/b.py"]),
        ("*.py", []),
        ("agents/*", ["a.py"]),
        ("b.py", ["a.py", "agents/old/c.py"]),
        ("old", ["a.py", "agents/b.py"]),
        ("none", ["a.py", "agents/b.py", "agents/old/c.py"]),
    ],
)
def test_globs_exclude_files_and_folders(tmp_path: Path, glob: str, left: list[str]) -> None:
    root = write_project(tmp_path, dict.fromkeys(["a.py", "agents/b.py", "agents/old/c.py"], ""))
    assert _paths(_discover(root, exclude=(glob,))) == left


def test_the_order_of_files_does_not_depend_on_the_disk(tmp_path: Path) -> None:
    names = ["z.py", "a/z.py", "a.py", "b/a.py", "B.py"]
    assert _paths(_discover(write_project(tmp_path, dict.fromkeys(names, "")))) == sorted(names)


# --- links --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("agents/loop", "."),
        ("agents/loop", ".."),
        ("agents/loop", "loop"),
        ("agents/self.py", "self.py"),
        ("agents/gone.py", "missing.py"),
        ("agents/outside", "/usr"),
        ("agents/outside.py", "/etc/hostname"),
    ],
)
def test_a_link_that_loops_or_leaves_the_project_is_refused(tmp_path: Path, link: str, target: str) -> None:
    root = write_project(tmp_path / "project", {"agents/a.py": ""})
    (root / link).symlink_to(target)
    index = _discover(root)
    assert _paths(index) == ["agents/a.py"]
    assert [(error.code, str(error.where)) for error in index.errors] == [("GBE205", link)]


def test_links_within_the_project_lead_to_each_file_once(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"agents/a.py": "", "shared/b.py": ""})
    (root / "agents/b.py").symlink_to("../shared/b.py")
    (root / "agents/shared").symlink_to("../shared")
    (root / "agents/note.txt").symlink_to("nowhere")
    (root / "agents/other.txt").symlink_to("a.py")
    index = _discover(root, "agents")
    assert _paths(index) == ["agents/a.py", "shared/b.py"]
    assert index.errors == ()


@contextmanager
def _unreadable(folder: Path) -> Iterator[None]:
    """Nobody may list the folder: not even this process, which is not root meanwhile."""
    folder.chmod(0)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o755)


def test_a_folder_that_may_not_be_listed_is_an_error_of_its_own() -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        root = write_project(Path(place), {"agents/a.py": "", "secret/b.py": ""})
        with _unreadable(root / "secret"):
            index = _discover(root)
    assert _paths(index) == ["agents/a.py"]
    assert [(error.code, str(error.where), error.data["reason"]) for error in index.errors] == [
        ("GBE204", "secret", "permission denied")
    ]


def test_what_is_no_regular_file_is_refused_without_opening_it(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"agents/a.py": "", "agents/folder.py/b.py": ""})
    os.mkfifo(root / "agents/pipe.py")
    index = _discover(root)
    assert _paths(index) == ["agents/a.py"]
    assert [(error.code, str(error.where), error.data["reason"]) for error in index.errors] == [
        ("GBE204", "agents/folder.py", "it is a folder"),
        ("GBE204", "agents/pipe.py", "it is not a regular file"),
    ]
