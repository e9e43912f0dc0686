"""What a file imports, and which files and packages a graph needs by that: read, never imported.

    import a.b          a, a.b
    from a import b     a, and a.b where that is a module
    from . import b     the same, named from the top

Statements inside functions count, as they run some day; what only a type checker sees does not. A module that is named by a
value (`importlib.import_module(name)`) is not known.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading.modules import Library, absolute_name
from graphbus_core.compiler.reading.source import SourceFile

_OWN = "graphbus_core"
_CODE = (".py", ".so")
_NESTING = frozenset(
    {
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While),
        *(ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
    }
)


class Needed(msgspec.Struct, frozen=True):
    """What must be at hand when a graph runs, beside the files of its agents.

    Attributes:
        files: The project's own files that the agents import, directly or by others, by path.
        third_party: The top-level names of all modules that are neither the project's, nor of Python, nor GraphBus itself.
    """

    files: tuple[str, ...]
    third_party: tuple[str, ...]


def imported_names(source: SourceFile, tree: ast.Module) -> tuple[str, ...]:
    """Give the dotted name of everything that a module imports, sorted; the last part may be a name in a module."""
    package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
    found: set[str] = set()
    left = source.utf8.count(
        b"import"
    )  # no statement imports without that word: after the last one nothing is looked into
    statements = _statements(tree.body)
    while left and (statement := next(statements, None)):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
            left -= 1
        elif isinstance(statement, ast.ImportFrom):
            home = absolute_name(statement.module or "", statement.level, package)
            found.update(home if alias.name == "*" else f"{home}.{alias.name}".lstrip(".") for alias in statement.names)
            left -= 1
    return tuple(sorted(found - {""}))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Give every statement that may run; expressions hold none, and are not looked into."""
    waiting = [body]
    while waiting:
        for statement in waiting.pop():
            kind = statement.__class__
            if isinstance(statement, ast.If):
                waiting += _branches(statement)
            elif kind in _NESTING:
                waiting += _blocks(statement)
            else:
                yield statement


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _branches(statement: ast.If) -> Iterator[list[ast.stmt]]:
    test = statement.test
    is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    flag = test.operand if isinstance(test, ast.UnaryOp) else test
    is_for_checkers = getattr(flag, "id", getattr(flag, "attr", "")) == "TYPE_CHECKING"
    if not is_for_checkers or is_negated:
        yield statement.body
    if not is_for_checkers or not is_negated:
        yield statement.orelse


def needed_by(
    modules: Iterable[str], index: ModuleIndex, names_in: Callable[[str], tuple[str, ...]], agent_files: Iterable[str]
) -> Needed:
    """Follow imports from file to file.

    Args:
        modules: Where to begin. The packages around a module are imported with it.
        index: The project.
        names_in: What a file, by relative path, imports: `imported_names`.
        agent_files: The files that are not listed, as everybody knows of them.
    """
    library = Library(index, lambda _path: None)
    waiting = list(modules)
    seen = set(waiting)
    files: set[str] = set()
    strangers: set[str] = set()
    while waiting:
        name = waiting.pop()
        paths = _files_of(name, library)
        if not paths:
            strangers.add(name.partition(".")[0])
        for path in paths:
            if path not in files:
                files.add(path)
                fresh = set(names_in(path)) - seen
                seen |= fresh
                waiting += fresh
    own = {file.module.partition(".")[0] for file in index.files}
    third_party = {
        name
        for name in strangers
        if name not in sys.stdlib_module_names and name != _OWN and name not in own and not _has_code(name, index)
    }
    return Needed(tuple(sorted(files - set(agent_files))), tuple(sorted(third_party)))


def _files_of(name: str, library: Library) -> list[str]:
    """The files of the project that are run when a dotted name is imported, the outermost package first."""
    found: list[str] = []
    end = 0
    while end >= 0:
        end = name.find(".", end + 1)
        path = library.path_of(name if end < 0 else name[:end])
        if path:
            found.append(path)
            if not path.endswith("__init__.py"):
                break  # no package: what follows is a name in it
    return found


def _has_code(name: str, index: ModuleIndex) -> bool:
    """True for a folder with modules in it: to look for its name elsewhere would be asking strangers for our own code."""
    for import_root in index.import_roots:
        try:
            entries = os.listdir(os.path.join(index.root, import_root, name))
        except OSError:
            continue
        if any(entry.endswith(_CODE) for entry in entries):
            return True
    return False
