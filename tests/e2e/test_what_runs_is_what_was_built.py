"""A built project in which one thing is changed: run, build, validate and build --frozen say the same of it."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core import store
from graphbus_core.build import run_build_pipeline
from graphbus_core.errors import GraphBusError
from graphbus_core.model.config import BuildConfig
from graphbus_core.runtime import run_graph
from tests.project_files import write_project

AGENT = """
    from __future__ import annotations
    import json
    import lib
    import importlib
    import requests_of_others.api as api
    from importlib import import_module
    from typing import TYPE_CHECKING
    from graphbus_core import subscribe
    from shop import topics
    from shop.base import Base
    from shop.kinds.order import kind
    from shop.spread import far
    from .near import *
    if TYPE_CHECKING:
        from shop.messages import Placed
    try:
        from shop import fast
    except ImportError:
        fast = None
    try:
        import only_here
    except ImportError:
        only_here = None
    found = import_module("shop.by_name")
    named = importlib.import_module(topics.PLUGIN)

    class Till(Base):
        @subscribe(topics.PLACED)
        def on_placed(self, event: Placed) -> None:
            import shop.late
"""
FILES = {
    "pyproject.toml": "",
    "src/shop/topics.py": 'PLACED = "/Order/Placed"\nPLUGIN = "shop.plugins.plain"\n',
    "src/shop/base.py": "from graphbus_core import GraphBusNode\nfrom shop.deep import VALUE\nclass Base(GraphBusNode): ...\n",
    "src/shop/deep.py": "VALUE = 1\n",
    "src/shop/messages.py": "from dataclasses import dataclass\n@dataclass\nclass Placed:\n    order_id: str\n",
    "src/shop/kinds/__init__.py": "",
    "src/shop/kinds/order.py": "kind = 1\n",
    "src/shop/spread/far.py": "",
    "src/shop/by_name.py": "x = 1\n",
    "src/shop/late.py": "x = 1\n",
    "src/shop/plugins/plain.py": "x = 1\n",
    "src/shop/till/__init__.py": "",
    "src/shop/till/near.py": "y = 1\n",
    "src/shop/till/till.py": AGENT,
    "src/lib.py": "",
    "desk/desk.py": "from graphbus_core import GraphBusNode\nclass Desk(GraphBusNode): ...\n",
    "src/requests_of_others/api.py": "",
}
NATIVE = importlib.machinery.EXTENSION_SUFFIXES[0]
TAG = sys.implementation.cache_tag
Change = Callable[[Path], object]


def write(path: str, text: str = "x = 2\n") -> Change:
    return lambda root: write_project(root, {path: text})


def remove(path: str) -> Change:
    return lambda root: (root / path).unlink()


def link(path: str, target: str) -> Change:
    """Put the file somewhere else, and a link in its place."""

    def change(root: Path) -> None:
        place = (root / target).resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(root / path, place)
        (root / path).symlink_to(place)

    return change


def compile_to(path: str, *, mode: str, source: str = "x = 3\n") -> Change:
    import py_compile

    def change(root: Path) -> None:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        (root / "elsewhere.txt").write_text(source)
        py_compile.compile(
            str(root / "elsewhere.txt"),
            str(place),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode[mode],
        )

    return change


def move(path: str, to: str) -> Change:
    return lambda root: ((root / to).parent.mkdir(parents=True, exist_ok=True), shutil.move(root / path, root / to))


CHANGES: dict[str, Change] = {
    "the agent": lambda root: (root / "src/shop/till/till.py").write_text("x = 1"),
    "topic constants": write("src/shop/topics.py", 'PLACED = "/Order/Other"\nPLUGIN = "shop.plugins.plain"\n'),
    "a base class": write("src/shop/base.py", "from graphbus_core import GraphBusNode as Base\n"),
    "a base of a base": write("src/shop/deep.py"),
    "a message type that only a type checker imports": write("src/shop/messages.py"),
    "the __init__ of a package on the way": write("src/shop/kinds/__init__.py"),
    "a module in a package": write("src/shop/kinds/order.py", "kind = 2\n"),
    "a module in a namespace package": write("src/shop/spread/far.py"),
    "a star import": write("src/shop/till/near.py"),
    "an import in a function": write("src/shop/late.py"),
    "a module imported by name": write("src/shop/by_name.py"),
    "a module imported by a computed name": write("src/shop/plugins/plain.py"),
    "a module at the top": write("src/lib.py"),
    "a removed module": remove("src/shop/deep.py"),
    "a removed agent": remove("src/shop/till/till.py"),
    "a removed __init__": remove("src/shop/till/__init__.py"),
    "a folder moved away": move("src/shop/kinds", "src/shop/old_kinds"),
    "a new __init__ in a namespace package": write("src/shop/spread/__init__.py"),
    "a new __init__ at the top of a namespace package": write("src/shop/__init__.py"),
    "a new module beside a namespace package": write("src/shop/spread.py"),
    "a new module beside the top package": write("src/shop.py"),
    "a new package beside a module": write("src/shop/deep/__init__.py"),
    "a new package beside an agent": write("src/shop/till/till/__init__.py"),
    "a native module beside a module": write(f"src/shop/deep{NATIVE}"),
    "a native module of any Python": write("src/shop/deep.abi3.so"),
    "a plain native module": write("src/shop/deep.so"),
    "a native __init__": write(f"src/shop/kinds/__init__{NATIVE}"),
    "a module in an earlier import root": write("lib.py"),
    "a package in an earlier import root": write("shop/__init__.py"),
    "a part of a namespace package in an earlier import root": write("shop/deep.py"),
    "a native module in an earlier import root": write(f"lib{NATIVE}"),
    "an __init__ in the other import root": write("desk/__init__.py"),
    "a module that was missing": write("src/shop/fast.py"),
    "a package that was missing": write("src/shop/fast/__init__.py"),
    "a native module that was missing": write(f"src/shop/fast{NATIVE}"),
    "bytecode for a module that was missing": compile_to("src/shop/fast.pyc", mode="TIMESTAMP"),
    "a missing module at the top": write("src/only_here.py"),
    "a module of Python's name": write("src/random.py"),
    "a package of Python's name": write("src/decimal/__init__.py"),
    "sitecustomize": write("src/sitecustomize.py"),
    "usercustomize": write("src/usercustomize.py"),
    "a module of GraphBus's name": write("src/graphbus_core.py"),
    "a module of what GraphBus stands on": write("src/uvicorn/__init__.py"),
    "bytecode in the place of a source": lambda root: (
        compile_to("src/shop/deep.pyc", mode="TIMESTAMP")(root),
        remove("src/shop/deep.py")(root),
    ),
    "bytecode that is never compared": compile_to(f"src/shop/__pycache__/deep.{TAG}.pyc", mode="UNCHECKED_HASH"),
    "bytecode that names a hash": compile_to(
        f"src/shop/__pycache__/deep.{TAG}.pyc", mode="CHECKED_HASH", source="VALUE = 1\n"
    ),
    "bytecode of an agent": compile_to(f"src/shop/till/__pycache__/till.{TAG}.pyc", mode="UNCHECKED_HASH"),
    "optimised bytecode": compile_to(f"src/shop/__pycache__/deep.{TAG}.opt-1.pyc", mode="UNCHECKED_HASH"),
    "a link to the same text in the project": link("src/shop/deep.py", "src/shop/moved_deep.py"),
    "a link to the same text outside": link("src/shop/topics.py", "../outside/topics.py"),
    "a folder that is a link": lambda root: (
        shutil.move(root / "src/shop/kinds", root / "kinds_of_old"),
        (root / "src/shop/kinds").symlink_to(root / "kinds_of_old"),
    ),
    "a folder that is a link outside": lambda root: (
        shutil.move(root / "src/shop/kinds", root.parent / "kinds_outside"),
        (root / "src/shop/kinds").symlink_to(root.parent / "kinds_outside"),
    ),
    "a pipe": lambda root: ((root / "src/shop/deep.py").unlink(), os.mkfifo(root / "src/shop/deep.py")),
    "a folder in the place of a module": lambda root: (
        (root / "src/shop/deep.py").unlink(),
        (root / "src/shop/deep.py").mkdir(),
    ),
}
HARMLESS: dict[str, Change] = {
    "nothing": lambda _root: None,
    "a README": write("README.md", "text"),
    "a module that nobody imports": write("scripts/unused.py"),
    "a test": write("tests/test_till.py"),
    "a touched file": lambda root: os.utime(root / "src/shop/deep.py", (1, 1)),
    "ordinary bytecode": lambda root: subprocess.run(
        [sys.executable, "-m", "compileall", "-q", root / "src"], check=True, env={"PATH": os.environ["PATH"]}
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose agents have settled, and whose artifacts are those of its sources."""
    root = write_project(tmp_path_factory.mktemp("built") / "shop", FILES)
    run_build_pipeline(BuildConfig(paths=(str(root),), enable_agents=True))
    assert answers(root) == dict.fromkeys(("validate", "run", "frozen", "build"), True)
    return root


def answers(root: Path) -> dict[str, bool]:
    """What the four commands say: are the files what was built?"""
    folder = root / ".graphbus"
    said = {"validate": not store.find_problems(folder)}
    try:
        with run_graph(folder):
            said["run"] = True
    except GraphBusError as refusal:
        several = getattr(refusal, "errors", (refusal,))
        assert {each.code for each in several} <= {"GBE508", "GBE515", "GBE516"}, several
        said["run"] = False
    request = BuildConfig(paths=(str(root),))
    for name, is_frozen in (("frozen", True), ("build", False)):
        try:
            built = run_build_pipeline(BuildConfig(paths=request.paths, is_frozen=is_frozen))
            said[name] = built.is_unchanged
        except GraphBusError:
            said[name] = False
    return said


def _copy(built: Path, tmp_path: Path, change: Change) -> Path:
    root = tmp_path / "work" / "shop"
    shutil.copytree(built, root)
    change(root)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_the_four_commands_agree_that_it_is_not_what_was_built(built: Path, tmp_path: Path, what: str) -> None:
    root = _copy(built, tmp_path, CHANGES[what])
    assert answers(root) == dict.fromkeys(("validate", "run", "frozen", "build"), False)


@pytest.mark.parametrize("what", HARMLESS)
def test_the_four_commands_agree_that_it_is_what_was_built(built: Path, tmp_path: Path, what: str) -> None:
    root = _copy(built, tmp_path, HARMLESS[what])
    said = answers(root)
    said.pop("build" if said["validate"] else "")  # it may be made again, with the same result
    said.pop("frozen")
    assert said == {"validate": True, "run": True}


def test_who_knows_the_change_may_start_all_the_same(built: Path, tmp_path: Path) -> None:
    root = _copy(built, tmp_path, CHANGES["a module at the top"])
    with run_graph(root / ".graphbus", allow_drift=True) as graph:
        assert graph.nodes
