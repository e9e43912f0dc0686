"""The project's modules imported anew, beside the old ones, and the old ones back when something goes wrong.

    which files have other bytes -> which modules depend on them -> all of these out of sys.modules and imported again

A module that imports a changed one is imported again as well, so that `isinstance` and `except` mean the same class everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import invalidate_caches
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from time import time_ns
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from graphbus_core.isolation import attempt

_TICK_NS = 50_000_000
"""File systems tell the time less exactly than clocks do."""
_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages"})


class _Seen(NamedTuple):
    """A file as it was when its module was imported."""

    digest: str
    status: tuple[int, int, int]


class Renewed(NamedTuple):
    """What a renewal has done.

    Attributes:
        names: The modules that were imported again or for the first time.
        failed: The module that could not be imported, and
        error: why; then everything is as it was before.
        undo: Brings the modules of before back.
    """

    names: tuple[str, ...]
    failed: str
    error: BaseException | None
    undo: Callable[[], None]


class ProjectModules:
    """The imported modules of a project, and what their files were when they were imported.

    Args:
        root: The project root; what lies below it in hidden folders or `site-packages` is not the project's.
        digests: Path relative to the root -> sha256 of the files that are known to be imported as they were.
    """

    def __init__(self, root: Path, digests: Mapping[str, str]) -> None:
        self._prefix = f"{root}{os.sep}"
        self._seen: dict[str, _Seen] = {}
        self._imports: dict[str, tuple[str, frozenset[str]]] = {}
        self._looked_ns = 0
        self.look()
        for path, digest in digests.items():
            file = self._prefix + path
            if file in self._seen and self._seen[file].digest != digest:
                self._seen[file] = _Seen(digest, (0, 0, 0))

    def imported(self) -> dict[str, ModuleType]:
        """Give the project's modules by name, in the order in which they were imported."""
        return {
            name: module
            for name, module in sys.modules.copy().items()
            if name != "__main__" and self._is_ours(getattr(module, "__file__", None))
        }

    def look(self) -> None:
        """From now on the files as they are count as imported."""
        self._looked_ns = time_ns() - _TICK_NS
        for module in self.imported().values():
            path = str(module.__file__)
            if path not in self._seen:
                self._seen[path] = _look_at(path)

    def changed(self) -> tuple[str, ...]:
        """Give the imported modules whose files have other bytes now, or are gone."""
        return tuple(name for name, module in self.imported().items() if self._is_changed(str(module.__file__)))

    def with_dependants(self, names: Iterable[str]) -> tuple[str, ...]:
        """Add the modules that import one of these, directly or by others."""
        modules = self.imported()
        users: dict[str, set[str]] = {}
        for name, module in modules.items():
            for used in self._imports_of(name, module):
                users.setdefault(used, set()).add(name)
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += users.get(name, ())
        return tuple(name for name in modules if name in found)

    def renew(self, names: Sequence[str], further: Sequence[str] = ()) -> Renewed:
        """Import these modules again, and further ones for the first time; all of them, or none."""
        before = dict(sys.modules)
        bound = [each for name in names if (each := _binding(name, before))]
        seen = dict(self._seen)

        def undo() -> None:
            for name in self.imported():
                if sys.modules[name] is not before.get(name):
                    del sys.modules[name]
            for name in names:
                sys.modules[name] = before[name]
            for parent, child, module in bound:
                setattr(parent, child, module)
            self._seen.clear()
            self._seen.update(seen)

        for name in names:
            sys.modules.pop(name, None)
        finder = _FreshFinder(self._is_ours, self._saw)
        wanted = [name for name in names if os.path.exists(str(before[name].__file__))]
        failed, error = "", None
        is_done = False
        invalidate_caches()
        sys.meta_path.insert(0, finder)
        try:
            failed, error = _import_each([*wanted, *further])
            is_done = error is None
        finally:
            sys.meta_path.remove(finder)
            if not is_done:
                undo()
        if is_done:
            _bind_children(names, before)
        return Renewed((*wanted, *further), failed, error, undo)

    def _saw(self, path: str, data: bytes) -> None:
        self._seen[path] = _Seen(sha256(data).hexdigest(), _status(path))

    def _is_changed(self, path: str) -> bool:
        seen = self._seen.get(path)
        status = _status(path)
        if seen is None:  # imported by a handler, some time after the last look
            return status[0] > self._looked_ns
        return status != seen.status and _look_at(path).digest != seen.digest

    def _is_ours(self, path: str | None) -> bool:
        if not path or not path.startswith(self._prefix) or not path.endswith(".py"):
            return False
        folders = path[len(self._prefix) :].split(os.sep)[:-1]
        return not any(folder.startswith(".") or folder in _NOT_OURS for folder in folders)

    def _imports_of(self, name: str, module: ModuleType) -> frozenset[str]:
        """What the text of a module imports, as far as it was imported from the project."""
        path = str(module.__file__)
        seen = self._seen.get(path)
        digest = seen.digest if seen else ""
        known = self._imports.get(path)
        if known is None or known[0] != digest or not digest:
            known = self._imports[path] = (digest, imports_of(path, name, is_package=hasattr(module, "__path__")))
        return known[1]


def imports_of(path: str, name: str, *, is_package: bool) -> frozenset[str]:
    """Give the dotted names that a module may import when it is imported; nothing for a file that cannot be read.

    What a function imports when it is called is not among them: it finds the new module by itself.
    """
    import ast

    tree, _ = attempt(lambda: ast.parse(Path(path).read_bytes()))
    package = name if is_package else name.rpartition(".")[0]
    found: set[str] = set()
    waiting: list[ast.AST] = [tree] if tree else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.update(_prefixes(alias.name))
        elif isinstance(node, ast.ImportFrom):
            base = _base(node.module or "", node.level, package)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return frozenset(found - {name})


def _base(module: str, level: int, package: str) -> str:
    """The absolute name of what stands between `from` and `import`."""
    if not level:
        return module
    parts = package.split(".")
    above = parts[: len(parts) - level + 1]
    return ".".join([*above, module] if module else above)


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _import_each(names: Iterable[str]) -> tuple[str, BaseException | None]:
    from graphbus_core.hosting.imports import import_quietly

    for name in names:
        module, error = import_quietly(name)
        if module is None:
            return name, error
    return "", None


def _binding(name: str, modules: Mapping[str, ModuleType]) -> tuple[ModuleType, str, ModuleType] | None:
    """The package of a module, the name that it has there, and the module."""
    package, _, child = name.rpartition(".")
    parent = modules.get(package)
    return (parent, child, modules[name]) if parent is not None and hasattr(parent, child) else None


def _bind_children(packages: Iterable[str], before: Mapping[str, ModuleType]) -> None:
    """A package that was imported again knows those of its modules that were not."""
    renewed = {name for name in packages if name in sys.modules}
    for name in before:
        package, _, child = name.rpartition(".")
        if package in renewed and name in sys.modules and not hasattr(sys.modules[package], child):
            setattr(sys.modules[package], child, sys.modules[name])


def _look_at(path: str) -> _Seen:
    status = _status(path)
    data, _ = attempt(lambda: Path(path).read_bytes())
    return _Seen("" if data is None else sha256(data).hexdigest(), status)


def _status(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


class _FreshFinder:
    """Finds the project's modules as ever, but has them read from their source: bytecode is only told apart by the second."""

    def __init__(self, is_ours: Callable[[str | None], bool], saw: Callable[[str, bytes], None]) -> None:
        self._is_ours = is_ours
        self._saw = saw

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of the project; None for every other one."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not self._is_ours(spec.origin) or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _FreshLoader(name, str(spec.origin), self._saw)
        return spec


class _FreshLoader(SourceFileLoader):
    """Reads the source, whatever bytecode there is."""

    def __init__(self, name: str, path: str, saw: Callable[[str, bytes], None]) -> None:
        super().__init__(name, path)
        self._saw = saw

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file as it is now."""
        path = self.get_filename(fullname)
        data = self.get_data(path)
        self._saw(path, data)
        code: CodeType = self.source_to_code(data, path)
        return code
