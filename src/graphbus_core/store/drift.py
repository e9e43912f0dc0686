"""Whether Python would import from a project what a build has read there: `run`, `build`, `validate` and the others ask here.

A file counts as changed when its bytes differ, when it has become a link, when it stands where there was none, and when another
file now answers the name under which it is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from typing import TYPE_CHECKING

from graphbus_core.errors import ArtifactError, Place
from graphbus_core.model.artifacts import Manifest
from graphbus_core.store.reading import ARTIFACTS, StrPath, digest_of, load_artifact, load_manifest, project_root

if TYPE_CHECKING:
    from pathlib import Path

_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
"""In the order in which Python looks for them."""
_CACHE = "__pycache__"
_HEAD = 16
_IS_HASHED = 0b1
_OUTSIDE = (sys.stdlib_module_names - {"test"}) | {
    *("sitecustomize", "usercustomize", "graphbus_core", "msgspec", "click"),
    *("uvicorn", "starlette", "h11", "anyio", "opentelemetry"),
}
"""Names that Python, GraphBus and what it stands on import; a project that answers one of them is asked first."""


class Names:
    """Which file Python would import by which name from the import roots of a project. Each folder is listed once.

    Args:
        root: The project.
        import_roots: Folders below it, in the order of `sys.path`.
    """

    def __init__(self, root: StrPath, import_roots: Collection[str]) -> None:
        self._root = os.fspath(root)
        self._homes = tuple("" if each == "." else f"{each}/" for each in import_roots)
        self._listings: dict[str, dict[str, os.DirEntry[str]]] = {}
        self._compiled: dict[str, dict[str, list[os.DirEntry[str]]]] = {}
        self._located: dict[str, tuple[str, tuple[str, ...]]] = {}

    def locate(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Give the path of the file that answers a dotted name, `""` for none, and the folders with the modules below it."""
        found = self._located.get(name)
        if found is None:
            found = self._located[name] = self._find(name)
        return found

    def _find(self, name: str) -> tuple[str, tuple[str, ...]]:
        parent, _, last = name.rpartition(".")
        homes = self.locate(parent)[1] if parent else self._homes
        portions: list[str] = []
        for home in homes:
            inner = f"{home}{last}/"
            is_folder = last in self._listing(home) and bool(self._listing(inner))
            path = self._first(inner, "__init__") if is_folder else ""
            if path:
                return path, (inner,)
            path = self._first(home, last)
            if path:
                return path, ()
            if is_folder:
                portions.append(inner)
        return "", tuple(portions)

    def _first(self, folder: str, stem: str) -> str:
        listing = self._listing(folder)
        for suffix in _SUFFIXES:
            entry = listing.get(stem + suffix)
            if entry is not None and entry.is_file():
                return f"{folder}{stem}{suffix}"
        return ""

    def _listing(self, folder: str) -> dict[str, os.DirEntry[str]]:
        found = self._listings.get(folder)
        if found is None:
            try:
                with os.scandir(os.path.join(self._root, folder)) as entries:
                    found = {entry.name: entry for entry in entries}
            except OSError:
                found = {}
            self._listings[folder] = found
        return found

    def newcomers(self, files: Collection[str], third_party: Collection[str]) -> set[str]:
        """Give the files that Python would import in the place of, or on the way to, one of these or a module of others."""
        outside = _OUTSIDE.union(third_party)
        tops = {name.partition(".")[0] for home in self._homes for name in self._listing(home)}
        names = {part for path in files for part in _with_packages(self._name_of(path))} | (tops & outside)
        return {path for name in names if (path := self.locate(name)[0]) and path not in files}

    def _name_of(self, path: str) -> str:
        home = max((each for each in self._homes if path.startswith(each)), key=len, default="")
        folder, _, file = path[len(home) :].rpartition("/")
        stem = file.partition(".")[0]
        parts = [*folder.split("/"), stem] if folder else [stem]
        return ".".join(parts[:-1] if stem == "__init__" and folder else parts)

    def target_of(self, path: str) -> str | None:
        """Give where a file really is, if it is a link or lies behind one; else None. `""`: outside of the project."""
        parts = path.split("/")
        folder = ""
        for part in parts:
            entry = self._listing(folder).get(part)
            if entry is not None and entry.is_symlink():
                return self._real(path)
            folder += f"{part}/"
        return None

    def _real(self, path: str) -> str:
        root = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(self._root, path))
        return os.path.relpath(real, root) if real.startswith(os.path.join(root, "")) else ""

    def unproven_bytecode(self, path: str) -> Iterator[str]:
        """Give the bytecode beside a source file that names no time of it: Python runs it whatever the source says."""
        if sys.pycache_prefix is not None or not path.endswith(".py"):
            return
        folder, slash, file = path.rpartition("/")
        for entry in self._bytecode(folder + slash).get(file.removesuffix(".py"), ()):
            if _is_hashed(entry.path):
                yield f"{folder}{slash}{_CACHE}/{entry.name}"

    def _bytecode(self, folder: str) -> dict[str, list[os.DirEntry[str]]]:
        """The bytecode of the modules in a folder, by the first part of their names."""
        found = self._compiled.get(folder)
        if found is None:
            found = self._compiled[folder] = {}
            is_there = _CACHE in self._listing(folder)
            for name, entry in self._listing(f"{folder}{_CACHE}/").items() if is_there else ():
                found.setdefault(name.partition(".")[0], []).append(entry)
        return found


def _is_hashed(path: str) -> bool:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        head = os.read(file, _HEAD)
    except OSError:
        return False
    finally:
        os.close(file)
    return len(head) == _HEAD and bool(head[4] & _IS_HASHED)


def _with_packages(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def find_drift(folder: StrPath, manifest: Manifest) -> tuple[ArtifactError, ...]:
    """Give every way in which the files that agents import are not those that the artifacts describe.

    Returns:
        By path: GBE508 for each file that changed, appeared, is gone or has become a link; GBE515 for bytecode that would run
        whatever its source says; GBE516 for a link that leaves the project.
    """
    files = {**manifest.sources, **manifest.imports}
    root = project_root(folder, manifest)
    names = Names(root, manifest.import_roots)
    problems = dict.fromkeys(names.newcomers(files, manifest.third_party), "GBE508")
    for path, digest in files.items():
        target = names.target_of(path)
        if target == "":
            problems[path] = "GBE516"
        elif digest_of(os.path.join(root, path)) != digest or (target is not None and target not in files):
            problems[path] = "GBE508"
        problems |= dict.fromkeys(names.unproven_bytecode(path), "GBE515")
    return tuple(ArtifactError(code, where=Place(path)) for path, code in sorted(problems.items()))


def find_problems(folder: Path) -> tuple[ArtifactError, ...]:
    """Give everything that is wrong with the artifacts, and each file that is not what it was when they were built."""
    try:
        manifest = load_manifest(folder)
    except ArtifactError as error:
        return (error,)
    problems: list[ArtifactError] = []
    for kind in ARTIFACTS.values():
        try:
            load_artifact(folder, kind)
        except ArtifactError as error:
            problems.append(error)
    return (*problems, *find_drift(folder, manifest))
