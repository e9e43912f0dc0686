"""The machine that decides knows nothing of models, files, the bus, clocks, chance or event loops."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import graphbus_core.negotiation

PURE = ("engine", "transitions", "votes", "protocol")
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


@pytest.mark.parametrize("name", PURE)
def test_the_deciding_modules_import_only_data_and_each_other(name: str) -> None:
    folder = Path(next(iter(graphbus_core.negotiation.__path__)))
    nodes = list(ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {one for one in imported if not one.startswith(("graphbus_core.model.", "graphbus_core.schema."))} <= ALLOWED
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input", "exec", "eval", "__import__", "id", "hash"}
