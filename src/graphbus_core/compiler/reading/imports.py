"""The imports of a file, and the files and packages that a graph needs because of them. Nothing is imported.

    import a.b          a, a.b
    from a import b     a, and a.b where that is a module
    from . import b     the same, named from the top

Statements inside functions count, as they run some day; of what only a type checker sees, what the facts of an agent rest on. A
module that is named by a constant in `importlib.import_module("a.b")` is imported as well. Where the name is computed, it may
be any module that is built.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading.modules import Library, absolute_name
from graphbus_core.compiler.reading.syntax import ModuleSource
from graphbus_core.store.reading import ImportFinder

_OWN = "graphbus_core"
_CODE = (".py", ".so")
_ANY = "*"
"""Stands for every module that is built: a name is computed."""
_MAY_FAIL = "?"
"""Stands before a name whose import may fail, since somebody catches that."""
_BY_NAME = frozenset({"import_module", "__import__"})
_BY_VALUE = _BY_NAME | {
    *(
        "run_module",
        "run_path",
        "iter_modules",
        "walk_packages",
        "spec_from_file_location",
        "exec_module",
        "load_module",
    ),
    *("SourceFileLoader", "SourcelessFileLoader", "ExtensionFileLoader", "zipimporter"),
}
_NESTING = frozenset(
    {
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While, ast.If),
        *(ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
    }
)


class Needed(msgspec.Struct, frozen=True):
    """What a running graph needs beside the files of its agents.

    Attributes:
        files: The project's own files that the agents import, directly or by others, by path; and those that Python would import
            in the place of one, or of a module of others.
        absent: Where an import that may fail would look for a module of the project, and there is none.
        third_party: The top-level names of all modules that are neither the project's, nor of Python, nor GraphBus itself.
    """

    files: tuple[str, ...]
    absent: tuple[str, ...]
    third_party: tuple[str, ...]


def imported_names(source: ModuleSource, tree: ast.Module) -> tuple[str, ...]:
    """Return the dotted name of everything that a module imports, sorted; the last part may be a name in a module.

    `?` before a name: its import may fail. `*`: any module that is built.
    """
    package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
    found: set[str] = set()
    left = source.utf8.count(
        b"import"
    )  # no statement imports without that word: behind the last one nothing is looked into
    statements = _statements(tree.body)
    while left and (each := next(statements, None)):
        statement, mark = each
        if isinstance(statement, ast.Import):
            found.update(mark + alias.name for alias in statement.names)
            left -= 1
        elif isinstance(statement, ast.ImportFrom):
            home = absolute_name(statement.module or "", statement.level, package)
            names = (home if alias.name == "*" else f"{home}.{alias.name}".lstrip(".") for alias in statement.names)
            found.update(mark + name for name in names)
            left -= 1
    if any(word.encode() in source.utf8 for word in _BY_VALUE):
        found.update(_names_in_calls(tree, package))
    return tuple(sorted(found - {"", _MAY_FAIL}))


def _names_in_calls(tree: ast.Module, package: str) -> Iterator[str]:
    """Return the names with which functions that import are called; `*` for any other use of such a function."""
    plain: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name_of(node.func) in _BY_NAME and (name := _constant_name(node, package)):
            plain.add(id(node.func))
            yield name
        elif isinstance(node, ast.ImportFrom):
            if any(alias.asname and alias.name in _BY_VALUE for alias in node.names):
                yield _ANY
        elif isinstance(node, ast.Name | ast.Attribute) and _name_of(node) in _BY_VALUE and id(node) not in plain:
            yield _ANY


def _name_of(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _constant_name(call: ast.Call, package: str) -> str:
    """Return the module in `import_module("a.b")` or `import_module(".b", __package__)`; `""` if its name is computed."""
    first = call.args[0] if call.args and len(call.args) + len(call.keywords) <= 2 else None
    name = first.value if isinstance(first, ast.Constant) else ""
    if not isinstance(name, str) or not name.startswith("."):
        return name if isinstance(name, str) else ""
    given = call.args[1] if len(call.args) > 1 else call.keywords[0].value if call.keywords else None
    dots = len(name) - len(name.lstrip("."))
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        return absolute_name(name[dots:], dots, given.value)
    is_own = isinstance(given, ast.Name) and given.id == "__package__"
    return absolute_name(name[dots:], dots, package) if is_own else ""


def _statements(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Return every statement that may run, with `?` if its failure is caught; expressions hold none, and are not looked into."""
    waiting = [(body, "")]
    while waiting:
        block, mark = waiting.pop()
        for statement in block:
            if statement.__class__ in _NESTING:
                waiting += _blocks(statement, mark)
            else:
                yield statement, mark


def _blocks(statement: ast.stmt, mark: str) -> Iterator[tuple[list[ast.stmt], str]]:
    """The blocks of a statement, without what only a type checker sees, and with `?` for the body of what may catch."""
    test = getattr(statement, "test", None)
    is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    is_for_checkers = _name_of(test.operand if isinstance(test, ast.UnaryOp) else test) == "TYPE_CHECKING"
    unseen = ("orelse" if is_negated else "body") if is_for_checkers else ""
    is_catching = isinstance(statement, ast.With | ast.AsyncWith) or bool(getattr(statement, "handlers", ()))
    for field in ("body", "orelse", "finalbody"):
        if field != unseen:
            yield getattr(statement, field, []), _MAY_FAIL if is_catching and field == "body" else mark
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body, mark


def needed_by(
    modules: Iterable[str],
    index: ModuleIndex,
    names_in: Callable[[str], tuple[str, ...]],
    agent_files: Iterable[str],
    told_by: Iterable[str] = (),
) -> Needed:
    """Follow imports from file to file.

    Args:
        modules: Where to begin. The packages around a module are imported with it.
        index: The project.
        names_in: What a file, by relative path, imports: `imported_names`.
        agent_files: The files that are not listed, as everybody knows of them.
        told_by: Modules whose text says something of the agents, whether they are imported or not.
    """
    closure = _Closure(index, names_in)
    closure.follow(modules)
    third_party = closure.third_party()
    while (
        newcomers := closure.names.find_shadowing_files(closure.files.union(agent_files), third_party) - closure.files
    ):
        closure.add(newcomers)
        third_party = closure.third_party()
    told = {path for name in told_by if (path := closure.library.path_of(name))}
    files = closure.files | told
    files |= {target for path in files if (target := closure.names.link_target_of(path))}
    absent = {path for name in closure.optional if (path := closure.place_of(name))}
    return Needed(tuple(sorted(files - set(agent_files))), tuple(sorted(absent - files)), third_party)


class _Closure:
    """The files that are reached so far, and the imported names that no file of the project defines."""

    def __init__(self, index: ModuleIndex, names_in: Callable[[str], tuple[str, ...]]) -> None:
        self.library = Library(index, lambda _path: None)
        self.names = ImportFinder(index.root, index.import_roots)
        self.files: set[str] = set()
        self.optional: set[str] = set()
        self._index = index
        self._names_in = names_in
        self._strangers: set[str] = set()
        self._seen: set[str] = set()

    def follow(self, modules: Iterable[str]) -> None:
        """Add the files of these modules and all that they import."""
        waiting = list(modules)
        self._seen.update(waiting)
        while waiting:
            given = waiting.pop()
            name = given.removeprefix(_MAY_FAIL)
            if name == _ANY:
                waiting += self._add(file.path for file in self._index.files)
                continue
            paths = _files_of(name, self.library) or [path for path in (self.names.locate(name)[0],) if path]
            if not paths:
                self._strangers.add(name.partition(".")[0])
            if given != name:
                self.optional.add(name)
            waiting += self._add(paths)

    def add(self, paths: Iterable[str]) -> None:
        """Add these files and all that they import."""
        self.follow(self._add(paths))

    def _add(self, paths: Iterable[str]) -> list[str]:
        fresh: list[str] = []
        for path in paths:
            if path not in self.files:
                self.files.add(path)
                fresh += [name for name in self._names_in(path) if name not in self._seen]
                self._seen.update(fresh)
        return fresh

    def third_party(self) -> tuple[str, ...]:
        """Return the top-level names of imports that neither the project, nor Python, nor GraphBus provides."""
        own = {file.module.partition(".")[0] for file in self._index.files}
        known = own | sys.stdlib_module_names | {_OWN}
        return tuple(sorted(name for name in self._strangers - known if not _has_code(name, self._index)))

    def place_of(self, name: str) -> str:
        """Return where a missing module would be; `""` where it is there, or its package is not the project's."""
        parent, _, last = name.rpartition(".")
        folders = self.names.locate(parent)[1] if parent else ()
        return f"{folders[0]}{last}.py" if folders and not self.names.locate(name)[0] else ""


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
    """True for a folder with modules in it: its name belongs to the project, and is not looked up among installed packages."""
    for import_root in index.import_roots:
        try:
            entries = os.listdir(os.path.join(index.root, import_root, name))
        except OSError:
            continue
        if any(entry.endswith(_CODE) for entry in entries):
            return True
    return False
