"""The files of a project, and the powers of what they define: a function that starts programs is as sharp as `subprocess`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from graphbus_core.compiler.reading.modules import Library
from graphbus_core.editing.rungs.capability import table
from graphbus_core.editing.rungs.capability.allowed import Allowed

if TYPE_CHECKING:
    from graphbus_core.compiler.discover import ModuleIndex
    from graphbus_core.editing.rungs.capability.uses import FileUses, Reference, Sign

POWERS = frozenset(
    "G3.exec G3.reflection G3.process G3.network G3.native G3.files G3.read G3.environment G3.patch G3.unknown G3.node".split()
)
"""The codes of what code can do, as opposed to what it looks like."""


class Power(NamedTuple):
    """What something of the project does in the end, and where."""

    sign: Sign
    path: str


class ProjectFiles:
    """Reads the files of a project when they are first asked for.

    Args:
        index: The files.
        read: Gives the bytes of a relative path.
        allowed: What may be imported.
        loaded: The files that agents import without the change.
    """

    def __init__(
        self,
        index: ModuleIndex,
        read: Callable[[str], bytes | None],
        allowed: Allowed,
        loaded: frozenset[str] = frozenset(),
    ) -> None:
        self.allowed = allowed
        self._index = index
        self._library = Library(index, read)
        self._loaded = loaded
        self._files: dict[str, FileUses] = {}
        self._fields: Mapping[str, list[tuple[FileUses, ast.ClassDef, ast.AST | None]]] | None = None
        self._powers: dict[tuple[str, int], Power | None] = {}

    def module(self, name: str) -> FileUses | None:
        """Give a module of the project by its dotted name."""
        path = self._library.path_of(name) if name else ""
        return self.file(path, name) if path else None

    def file(self, path: str, name: str = "", tree: ast.Module | None = None) -> FileUses | None:
        """Give a file of the project; None when it cannot be read. `tree` is that of a file that is being judged."""
        from graphbus_core.editing.rungs.capability.uses import FileUses

        if path not in self._files:
            if tree is None:
                module = self._library.parsed(path)
                if module is None:
                    return None
                tree, name = module.tree, name or module.name
            self._files[path] = FileUses(path, name or self._library.module_name(path), tree, self)
        return self._files[path]

    def fields(self, name: str) -> list[tuple[FileUses, ast.ClassDef, ast.AST | None]]:
        """Give the classes of the project that have an attribute of this name, with the method if it is one."""
        if self._fields is None:
            found: dict[str, list[tuple[FileUses, ast.ClassDef, ast.AST | None]]] = {}
            paths = dict.fromkeys([*self._files, *(file.path for file in self._index.files)])
            for path in list(paths):
                file = self.file(path)
                for field, owners in file.fields.items() if file else ():
                    found.setdefault(field, []).extend((file, owner, method) for owner, method in owners if file)
            self._fields = found
        return self._fields.get(name, [])

    def defines(self, name: str) -> bool:
        """Tell whether a class of the project has an attribute of this name."""
        return bool(self.fields(name))

    def is_below_agents(self, file: FileUses, node: ast.ClassDef) -> bool:
        """Tell whether a class is an agent or one of those that agents of its file are made of."""
        if file.is_agent(node):
            return True
        agents = [step for step in ast.walk(file.tree) if isinstance(step, ast.ClassDef) and file.is_agent(step)]
        return any(known is node for agent in agents for _, known in file.lineage(agent))

    # --- powers -----------------------------------------------------------------------------

    def power_of(self, reference: Reference) -> Power | None:
        """Give the first power that something of the project has, its own or that of what it uses; None: it has none."""
        seen: set[tuple[str, int]] = set()
        return next((power for power in self._powers_of(reference, seen)), None)

    def _powers_of(self, reference: Reference, seen: set[tuple[str, int]]) -> Iterator[Power]:
        if reference.home is None:
            for home, _, method in self.fields(reference.name):
                if method is not None:
                    yield from self._within(home, method, seen)
        elif reference.node is None:
            yield from self._at_import(reference.home, seen)
        else:
            yield from self._within(reference.home, reference.node, seen)

    def _at_import(self, home: FileUses, seen: set[tuple[str, int]]) -> Iterator[Power]:
        """What importing a module does, unless the agents import it anyway."""
        key = (home.path, 0)
        if key in seen or home.path in self._loaded:
            return
        seen.add(key)
        for sign in home.signs:
            if sign.runs_at_import and _is_power(sign) and not sign.what.startswith("the import of"):
                yield Power(sign, home.path)
        for inner in home.references:
            if inner.runs_at_import:
                yield from self._powers_of(inner, seen)

    def _within(self, home: FileUses, node: ast.AST, seen: set[tuple[str, int]]) -> Iterator[Power]:
        """What a function or class does, and everything that it uses."""
        key = (home.path, id(node))
        if key in seen:
            return
        seen.add(key)
        first, last = _lines(node)
        for sign in home.signs:
            if first <= sign.line <= last and _is_power(sign):
                yield Power(sign, home.path)
        for inner in home.references:
            if first <= inner.line <= last:
                yield from self._powers_of(inner, seen)
        if isinstance(node, ast.ClassDef):
            for step_home, step in home.lineage(node, skip_first=True):
                yield from self._within(step_home, step, seen)


def _is_power(sign: Sign) -> bool:
    """Tell whether a sign is one of what code can do; what is merely unknown of an object is none."""
    return sign.code in POWERS and not sign.what.endswith("of something unknown")


def _lines(node: ast.AST) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", ())
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])  # type: ignore[attr-defined]
    return first, node.end_lineno or node.lineno  # type: ignore[attr-defined]


__all__ = ["POWERS", "Power", "ProjectFiles", "table"]
