"""The imports of a file, and the files and packages that a graph needs because of them. Nothing is imported.

    import a.b          a, a.b
    from a import b     a, and a.b where that is a module
    from . import b     the same, named from the top

Statements inside functions count, because they may run; those under `TYPE_CHECKING` do not. A module that is named by a constant
in `importlib.import_module("a.b")` is imported as well. Where the name is computed, it may be any module that is built.
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
"""Stands for every module that is built, where the imported name is computed."""
_MAY_FAIL = "?"
"""Stands before a name whose import may fail, because the code catches the failure."""
_BY_NAME = frozenset({"import_module", "__import__"})
"""Functions that import the module with a given name."""
_BY_VALUE = _BY_NAME | {
    *("run_module", "run_path", "iter_modules", "walk_packages"),
    *("spec_from_file_location", "exec_module", "load_module"),
    *("SourceFileLoader", "SourcelessFileLoader", "ExtensionFileLoader", "zipimporter"),
}
"""These and further functions and classes by which any module may be imported."""
_NESTING = frozenset(
    {
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While, ast.If),
        *(ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
    }
)


class Needed(msgspec.Struct, frozen=True):
    """What a running graph needs beside the files of its agents.

    Attributes:
        files: The paths of the project's own files that the agents import, directly or indirectly, and of files that Python
            would import in place of one of these or of a third-party module.
        absent: The paths at which an optional import would look for modules of the project that do not exist.
        third_party: The top-level names of all modules that are neither the project's, nor of Python, nor GraphBus itself.
    """

    files: tuple[str, ...]
    absent: tuple[str, ...]
    third_party: tuple[str, ...]


def imported_names(source: ModuleSource, tree: ast.Module) -> tuple[str, ...]:
    """Return the dotted names of everything that a module imports, sorted; the last part may be a name in a module.

    A name begins with `?` if the code catches a failure of its import. `*` stands for any module that is built.
    """
    package = source.module if source.path.endswith("__init__.py") else source.module.rpartition(".")[0]
    found: set[str] = set()
    imports_left = source.utf8.count(b"import")  # every import statement contains this word: stop after the last one
    statements = _walk_statements(tree.body)
    while imports_left and (each := next(statements, None)):
        statement, mark = each
        if isinstance(statement, ast.Import):
            found.update(mark + alias.name for alias in statement.names)
            imports_left -= 1
        elif isinstance(statement, ast.ImportFrom):
            home = absolute_name(statement.module or "", statement.level, package)
            names = (home if alias.name == "*" else f"{home}.{alias.name}".lstrip(".") for alias in statement.names)
            found.update(mark + name for name in names)
            imports_left -= 1
    if any(word.encode() in source.utf8 for word in _BY_VALUE):
        found.update(_find_names_in_calls(tree, package))
    return tuple(sorted(found - {"", _MAY_FAIL}))


def _find_names_in_calls(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the constant names with which importing functions are called; `*` for any other use of such a function."""
    named: set[int] = set()  # the `id()` of each function that is called with a constant name
    for node in ast.walk(tree):  # which yields a call before its function
        if (
            isinstance(node, ast.Call)
            and _last_name_of(node.func) in _BY_NAME
            and (name := _read_constant_name(node, package))
        ):
            named.add(id(node.func))
            yield name
        elif isinstance(node, ast.ImportFrom):
            if any(alias.asname and alias.name in _BY_VALUE for alias in node.names):
                yield _ANY
        elif isinstance(node, ast.Name | ast.Attribute) and _last_name_of(node) in _BY_VALUE and id(node) not in named:
            yield _ANY


def _last_name_of(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _read_constant_name(call: ast.Call, package: str) -> str:
    """Return the module in `import_module("a.b")` or `import_module(".b", __package__)`; `""` if its name is computed."""
    first = call.args[0] if call.args and len(call.args) + len(call.keywords) <= 2 else None
    name = first.value if isinstance(first, ast.Constant) else ""
    if not isinstance(name, str) or not name.startswith("."):
        return name if isinstance(name, str) else ""
    anchor = call.args[1] if len(call.args) > 1 else call.keywords[0].value if call.keywords else None
    dots = len(name) - len(name.lstrip("."))
    if isinstance(anchor, ast.Constant) and isinstance(anchor.value, str):
        return absolute_name(name[dots:], dots, anchor.value)
    is_own = isinstance(anchor, ast.Name) and anchor.id == "__package__"
    return absolute_name(name[dots:], dots, package) if is_own else ""


def _walk_statements(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield every simple statement that may run, with `?` if a failure of it is caught, else with `""`."""
    waiting = [(body, "")]
    while waiting:
        block, mark = waiting.pop()
        for statement in block:
            if statement.__class__ in _NESTING:
                waiting += _blocks_to_read(statement, mark)
            else:
                yield statement, mark


def _blocks_to_read(statement: ast.stmt, mark: str) -> Iterator[tuple[list[ast.stmt], str]]:
    """Yield the blocks of a compound statement with their marks, without the block that runs only for type checkers.

    The mark of a block is `?` if a failure in it may be caught: in a `try` with handlers, or in a `with`. Other blocks inherit
    `mark`, that of the statement.
    """
    test = getattr(statement, "test", None)
    is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    is_for_checkers = _last_name_of(test.operand if isinstance(test, ast.UnaryOp) else test) == "TYPE_CHECKING"
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
    fact_modules: Iterable[str] = (),
) -> Needed:
    """Follow imports from file to file, and return the files and packages that they lead to.

    Args:
        modules: The modules to start from. The packages around a module are imported with it.
        index: The project.
        names_in: A function that returns what the file at a relative path imports, as `imported_names` does.
        agent_files: The files of the agents, which are left out of the result.
        fact_modules: Modules on which the facts of the agents depend, even if they are imported only for type checkers.
    """
    closure = _Closure(index, names_in)
    closure.follow(modules)
    third_party = closure.third_party()
    # a file that Python would import instead of a reached one is needed, too, and may import further files
    while (
        newcomers := closure.names.find_shadowing_files(closure.files.union(agent_files), third_party) - closure.files
    ):
        closure.add(newcomers)
        third_party = closure.third_party()
    fact_files = {path for name in fact_modules if (path := closure.library.path_of(name))}
    files = closure.files | fact_files
    files |= {target for path in files if (target := closure.names.link_target_of(path))}
    absent = {path for name in closure.optional if (path := closure.place_of(name))}
    return Needed(tuple(sorted(files - set(agent_files))), tuple(sorted(absent - files)), third_party)


class _Closure:
    """The files that imports have reached so far. Names are those that `imported_names` returns.

    Attributes:
        library: The modules of the project, without their syntax trees.
        names: Finds the files that Python would import for a name.
        files: The paths of the files that were reached.
        optional: The names whose import may fail.
    """

    def __init__(self, index: ModuleIndex, names_in: Callable[[str], tuple[str, ...]]) -> None:
        self.library = Library(index, lambda _path: None)
        self.names = ImportFinder(index.root, index.import_roots)
        self.files: set[str] = set()
        self.optional: set[str] = set()
        self._index = index
        self._names_in = names_in
        self._outside_names: set[str] = set()
        self._seen: set[str] = set()

    def follow(self, modules: Iterable[str]) -> None:
        """Add the files of these modules, which may be marked with `?`, and of everything that they import."""
        waiting = list(modules)
        self._seen.update(waiting)
        while waiting:
            marked_name = waiting.pop()
            name = marked_name.removeprefix(_MAY_FAIL)
            if name == _ANY:
                waiting += self._add_files(file.path for file in self._index.files)
                continue
            paths = _files_imported_with(name, self.library) or [path for path in (self.names.locate(name)[0],) if path]
            if not paths:
                self._outside_names.add(name.partition(".")[0])
            if marked_name != name:
                self.optional.add(name)
            waiting += self._add_files(paths)

    def add(self, paths: Iterable[str]) -> None:
        """Add these files, and the files of everything that they import, directly or indirectly."""
        self.follow(self._add_files(paths))

    def _add_files(self, paths: Iterable[str]) -> list[str]:
        """Add the files that are new; return the names that these import and that were not seen before."""
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
        return tuple(
            sorted(name for name in self._outside_names - known if not _is_folder_with_modules(name, self._index))
        )

    def place_of(self, name: str) -> str:
        """Return the path at which a missing module would be found; `""` if it exists, or if the project lacks its package."""
        parent, _, last = name.rpartition(".")
        folders = self.names.locate(parent)[1] if parent else ()
        return f"{folders[0]}{last}.py" if folders and not self.names.locate(name)[0] else ""


def _files_imported_with(name: str, library: Library) -> list[str]:
    """Return the files of the project that run when a dotted name is imported, the outermost package first."""
    found: list[str] = []
    end = 0
    while end >= 0:
        end = name.find(".", end + 1)
        path = library.path_of(name if end < 0 else name[:end])
        if path:
            found.append(path)
            if not path.endswith("__init__.py"):
                break  # not a package: the rest is a name in this module
    return found


def _is_folder_with_modules(name: str, index: ModuleIndex) -> bool:
    """True for a folder of the project with modules in it: its name is not that of an installed package."""
    for import_root in index.import_roots:
        try:
            entries = os.listdir(os.path.join(index.root, import_root, name))
        except OSError:
            continue
        if any(entry.endswith(_CODE) for entry in entries):
            return True
    return False
