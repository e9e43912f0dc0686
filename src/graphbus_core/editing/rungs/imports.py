"""Which dotted name of which module a name in a file stands for."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from typing import NamedTuple

from graphbus_core.editing.rungs.capability_table import REACHED_THROUGH_OTHERS, USES


class Allowed(NamedTuple):
    """What may be imported beside the standard library: the packages that the project uses, or everything."""

    packages: frozenset[str]
    is_everything: bool = False

    def has(self, package: str) -> bool:
        """Tell whether a package may be imported."""
        return self.is_everything or package in self.packages or package in sys.stdlib_module_names


class Imports:
    """The imports of a file, wherever in it they stand; a name that is bound twice stands for what is bound last."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.names[name] = alias.name if alias.asname else name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.names[alias.asname or alias.name] = f"{stem(node)}.{alias.name}"

    def dotted(self, node: ast.expr) -> str | None:
        """Give the full name of `a.b.c` if `a` is imported, else None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        return ".".join([self.names[node.id], *reversed(parts)])

    def shown(self, node: ast.expr) -> str:
        """Give the full name of an imported thing, else the text."""
        return self.dotted(node) or ast.unparse(node)


def stem(node: ast.ImportFrom) -> str:
    """The module of `from module import ...`, with its leading dots."""
    return "." * node.level + (node.module or "")


def imported(node: ast.AST) -> Iterator[str]:
    """Give the full names that an import statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{stem(node)}.{alias.name}" for alias in node.names)


def use_of(dotted: str) -> str:
    """Look up what a full name can do, by its longest known prefix; empty: nothing that matters.

    A module that another one holds counts by its own name: `random._os.remove` as `os.remove`.
    """
    parts = dotted.split(".")
    held = [at for at in range(1, len(parts)) if parts[at].lstrip("_") in REACHED_THROUGH_OTHERS]
    for first in (*reversed(held), 0):
        found = _use([parts[first].lstrip("_") if first else parts[0], *parts[first + 1 :]])
        if found or (first and first < len(parts) - 1):
            return found
    return ""


def _use(parts: list[str]) -> str:
    for count in range(len(parts), 0, -1):
        prefix = ".".join(parts[:count])
        found = USES.get(prefix, USES.get(f"{prefix}.*") if count < len(parts) else None)
        if found is not None:
            return found
    return ""
