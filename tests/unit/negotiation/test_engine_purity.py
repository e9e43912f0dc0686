"""The machine that decides knows nothing of models, files, the bus, clocks, chance or event loops."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import graphbus_core.negotiation

PHASES = ("proposing", "gating", "voting", "arbitrating", "committing", "reviewing")
MESSAGES = ("questions", "replies", "keys", "announcements", "state")
PURE = (
    "engine",
    "turn",
    "votes",
    "admission",
    "protocol",
    "phases",
    *(f"protocol.{name}" for name in MESSAGES),
    *(f"phases.{name}" for name in PHASES),
)
ALLOWED = {
    "__future__",
    "collections",
    "collections.abc",
    "fnmatch",
    "operator",
    "posixpath",
    "typing",
    "msgspec",
    "msgspec.structs",
    "graphbus_core.negotiation",
    *(f"graphbus_core.negotiation.{name}" for name in PURE),
}


def source_of(folder: Path, name: str) -> Path:
    path = folder.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_no_deciding_module_is_left_out() -> None:
    folder = Path(next(iter(graphbus_core.negotiation.__path__)))
    rooms = [path for room in ("protocol", "phases") for path in (folder / room).glob("*.py")]
    assert {path.stem for path in rooms} == {"__init__", *PHASES, *MESSAGES}


@pytest.mark.parametrize("name", PURE)
def test_the_deciding_modules_import_only_data_and_each_other(name: str) -> None:
    folder = Path(next(iter(graphbus_core.negotiation.__path__)))
    tree = ast.parse(source_of(folder, name).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {one for one in imported if not one.startswith(("graphbus_core.model.", "graphbus_core.schema."))} <= ALLOWED


@pytest.mark.parametrize("name", PURE)
def test_the_deciding_modules_open_nothing_and_print_nothing(name: str) -> None:
    folder = Path(next(iter(graphbus_core.negotiation.__path__)))
    tree = ast.parse(source_of(folder, name).read_text(encoding="utf-8"))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval", "__import__", "id", "hash"}
