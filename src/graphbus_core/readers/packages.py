"""Which file a Python import means, and the name that a module has when it is imported: from the paths of a repository alone."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property, lru_cache
from posixpath import dirname

_INIT = "/__init__"


class Packages:
    """The modules of a repository.

    A module is named by its stem: its path without `.py`, for a package the path of the folder.
    """

    def __init__(self, paths: Collection[str]) -> None:
        stems = sorted(((path[:-3].removesuffix(_INIT), path) for path in paths), key=lambda each: len(each[1]))
        self._path_of = dict(stems)  # a package is preferred to a module of the same name, as by Python
        self._packages = {stem for stem, path in stems if path.endswith(f"{_INIT}.py")}
        self.find = lru_cache(maxsize=None)(self._find)

    def path_of(self, stem: str) -> str:
        """Return the path of a module; empty for a folder without a file of its own, and for a stem that there is not."""
        return self._path_of.get(stem, "")

    def stem_of(self, path: str) -> str:
        """Return the stem of a file."""
        return path[:-3].removesuffix(_INIT)

    def has(self, stem: str) -> bool:
        """True for a module and for a folder that has modules."""
        return stem in self._path_of or stem in self._folders

    def name_of(self, path: str) -> str:
        """Return the name by which a file is imported: its path below the folder of its topmost package, or below `src`."""
        stem = self.stem_of(path)
        root = self._root_of(path)
        if root == dirname(path) and stem not in self._packages:  # in no package: a folder on the path, or a namespace
            root = "src" if stem.startswith("src/") else ""
        return (stem.removeprefix(f"{root}/") if root else stem).replace("/", ".")

    def _find(self, name: str, importer: str) -> str | None:
        """Return the stem of the module that an absolute import in a file means; None if the repository does not have it."""
        below = name.replace(".", "/")
        for root in dict.fromkeys((self._root_of(importer), *self._roots)):
            stem = f"{root}/{below}" if root else below
            if self.has(stem):
                return stem
        return None

    def relative(self, importer: str, level: int, name: str) -> str | None:
        """Return the stem that a relative import means, `level` dots and a name; None if the repository does not have it."""
        folder = dirname(importer)
        for _ in range(level - 1):
            folder = dirname(folder)
        stem = "/".join(filter(None, (folder, name.replace(".", "/"))))
        return stem if self.has(stem) else None

    def _root_of(self, path: str) -> str:
        """Return the folder from which the topmost package of a file is imported; for a file in no package, its own."""
        folder = root = dirname(path)
        while folder:  # a folder below a package belongs to it, even without a file `__init__.py`
            root = dirname(folder) if folder in self._packages else root
            folder = dirname(folder)
        return root

    @cached_property
    def _folders(self) -> frozenset[str]:
        found: set[str] = set()
        for path in self._path_of.values():
            folder = dirname(path)
            while folder and folder not in found:
                found.add(folder)
                folder = dirname(folder)
        return frozenset(found)

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        """The folders from which modules are imported, the outermost first."""
        roots = {self._root_of(path) for path in self._path_of.values()}
        return ("", "src", *sorted(roots - {"", "src"}, key=lambda root: (root.count("/"), root)))
