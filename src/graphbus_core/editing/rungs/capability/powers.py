"""What the functions and classes of a project can do in the end: one that starts programs is as sharp as `subprocess`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from graphbus_core.editing.rungs.capability.signs import UNKNOWN_ATTRIBUTE, Notes, Reference, Sign
from graphbus_core.editing.rungs.capability.sources import SourceFile, SourceFiles
from graphbus_core.editing.rungs.capability.uses import notes_of

POWERS = frozenset(
    {
        *("G3.exec", "G3.reflection", "G3.process", "G3.network", "G3.native", "G3.files", "G3.read", "G3.environment"),
        *("G3.patch", "G3.unknown", "G3.node"),
    }
)
"""The codes of what code can do, as opposed to what it looks like."""


class Power(NamedTuple):
    """What something of the project does in the end, and where."""

    sign: Sign
    path: str


class ProjectPowers:
    """Follows references through the files of a project.

    Args:
        files: The files.
        loaded: The paths of those that agents import without the change: what their import does is done anyway.
    """

    def __init__(self, files: SourceFiles, loaded: frozenset[str] = frozenset()) -> None:
        self.files = files
        self._loaded = loaded
        self._notes: dict[str, Notes] = {}

    def notes(self, file: SourceFile) -> Notes:
        """Give the signs and references of a file; it is read once."""
        if file.path not in self._notes:
            self._notes[file.path] = notes_of(file)
        return self._notes[file.path]

    def powers_of(self, reference: Reference) -> dict[str, Power]:
        """Give each power that something of the project has, its own or that of what it uses: code -> where it is used first."""
        found: dict[str, Power] = {}
        for power in self._powers_of(reference, set()):
            found.setdefault(power.sign.code, power)
        return found

    def _powers_of(self, reference: Reference, seen: set[tuple[str, int]]) -> Iterator[Power]:
        if reference.home is None:
            for home, _, method in self.files.fields(reference.name):
                if method is not None:
                    yield from self._within(home, method, seen)
        elif reference.node is None:
            yield from self._at_import(reference.home, seen)
        else:
            yield from self._within(reference.home, reference.node, seen)

    def _at_import(self, home: SourceFile, seen: set[tuple[str, int]]) -> Iterator[Power]:
        """What importing a module does, unless the agents import it anyway."""
        key = (home.path, 0)
        if key in seen or home.path in self._loaded:
            return
        seen.add(key)
        for sign in self.notes(home).signs:
            if sign.runs_at_import and _is_power(sign) and not sign.what.startswith("the import of"):
                yield Power(sign, home.path)
        for inner in self.notes(home).references:
            if inner.runs_at_import:
                yield from self._powers_of(inner, seen)

    def _within(self, home: SourceFile, node: ast.AST, seen: set[tuple[str, int]]) -> Iterator[Power]:
        """What a function or class does, and everything that it uses."""
        key = (home.path, id(node))
        if key in seen:
            return
        seen.add(key)
        first, last = _lines(node)
        for sign in self.notes(home).signs:
            if first <= sign.line <= last and _is_power(sign):
                yield Power(sign, home.path)
        for inner in self.notes(home).references:
            if first <= inner.line <= last:
                yield from self._powers_of(inner, seen)
        if isinstance(node, ast.ClassDef):
            for step_home, step in home.lineage(node, skip_first=True):
                yield from self._within(step_home, step, seen)


def _is_power(sign: Sign) -> bool:
    """Tell whether a sign is one of what code can do; what is merely unknown of an object is none."""
    return sign.code in POWERS and not sign.what.endswith(UNKNOWN_ATTRIBUTE)


def _lines(node: ast.AST) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", ())
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])  # type: ignore[attr-defined]
    return first, node.end_lineno or node.lineno  # type: ignore[attr-defined]
