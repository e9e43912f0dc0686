"""Finds the Python files of a build and the names under which they would be imported. No file is opened or imported."""

from __future__ import annotations

import errno
import os
import stat
from fnmatch import fnmatch
from typing import NamedTuple

from graphbus_core.errors import BuildError, Place
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.config import ResolvedBuild

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "tests", "test"})


class ModuleFile(NamedTuple):
    """A source file: its path relative to the project root, and the dotted name of its module."""

    path: str
    module: str


class ModuleIndex(NamedTuple):
    """All files of a build.

    Attributes:
        root: The project root, absolute.
        import_roots: The folders below the root that must be on `sys.path`, usually `"."` or `"src"`.
        roots: The paths that the build was started for, relative to the root.
        errors: The files, folders and links that cannot be read.
        skipped: The test files, which are left out because of their names.
    """

    root: str
    files: tuple[ModuleFile, ...]
    import_roots: tuple[str, ...]
    roots: tuple[str, ...]
    errors: tuple[BuildError, ...] = ()
    skipped: tuple[str, ...] = ()


def discover_modules(config: ResolvedBuild) -> ModuleIndex:
    """Find the Python files below the paths of a build.

    Hidden folders, caches, virtual environments, tests (folders `tests` and `test`, `test_*.py`, `*_test.py`, `conftest.py`) and
    paths in `exclude` are skipped, unless such a path is itself one of the paths of the build. Links are followed inside the
    project only, and each file is found once.
    """
    finder = _FileFinder(config.root, config.settings.exclude)
    for path in config.paths:
        finder.visit(path)
    files = tuple(ModuleFile(path, module) for path, (module, _) in sorted(finder.found.items()))
    import_roots = sorted({import_root for _, import_root in finder.found.values()})
    roots = tuple(dict.fromkeys(finder.relative(path) for path in config.paths))
    return ModuleIndex(config.root, files, tuple(import_roots), roots, tuple(finder.errors), tuple(finder.skipped))


class _FileFinder:
    """Finds the files of a build in one pass over its folders; errors are collected.

    Attributes:
        found: Relative path of a file -> the name of its module, and its import root.
        errors: The files, folders and links that cannot be read.
        skipped: The relative paths of the test files.
    """

    def __init__(self, root: str, exclude: tuple[str, ...]) -> None:
        self.root = root
        self.found: dict[str, tuple[str, str]] = {}
        self.errors: list[BuildError] = []
        self.skipped: list[str] = []
        self._exclude = exclude
        self._prefix = root.rstrip("/") + "/"
        self._entered: set[str] = set()
        self._import_roots: dict[str, str] = {}

    def relative(self, path: str) -> str:
        """Return a path relative to the project root; a path outside of the project stays absolute."""
        return path[len(self._prefix) :] if path.startswith(self._prefix) else ("." if path == self.root else path)

    def visit(self, path: str) -> None:
        """Add a file, or all files below a folder, even if `exclude` or the name of the path would exclude it."""
        if os.path.isdir(path):
            self._visit_folder(path)
        else:
            self._add_file(path)

    def _visit_folder(self, path: str) -> None:
        """Visit the entries of a folder in the order of their names, unless the folder was visited before.

        A folder that cannot be listed adds GBE204 to `errors`.
        """
        if path in self._entered:
            return
        self._entered.add(path)
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            self._add_error("GBE204", path, reason=reason_of(error), advice=advise_on(error, path))
            return
        for entry in entries:
            if not self._is_excluded(entry.path):
                self._visit_entry(entry)

    def _visit_entry(self, entry: os.DirEntry[str]) -> None:
        """Add or skip one entry of a folder: enter a subfolder, follow a link, add a source file, note a test file."""
        name = entry.name
        is_source = name.endswith(".py")
        if name.startswith("."):
            return
        if entry.is_symlink():
            self._follow_link(entry, is_source)
        elif is_source:
            if name == "conftest.py" or name.startswith("test_") or name.endswith("_test.py"):
                self.skipped.append(self.relative(entry.path))
            else:
                self._add_file(entry.path, is_regular=entry.is_file(follow_symlinks=False))
        elif entry.is_dir(follow_symlinks=False):
            is_environment = os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
            if not is_environment and name not in SKIPPED_FOLDERS:
                self._visit_folder(entry.path)

    def _follow_link(self, entry: os.DirEntry[str], is_source: bool) -> None:
        """Add the file or folder to which a link points, with its real path.

        A circular link, or one that points outside of the project, adds GBE205 to `errors`. So does a broken link, but only if
        its name ends in `.py`. A link to a file that is not a source file is ignored.
        """
        try:
            target = os.path.realpath(entry.path, strict=True)
        except OSError as error:
            if is_source or error.errno == errno.ELOOP:
                problem = "forms a loop" if error.errno == errno.ELOOP else "points to a file that does not exist"
                self._add_error("GBE205", entry.path, problem=problem)
            return
        is_folder = os.path.isdir(target)
        if not is_source and not is_folder:
            return
        if not target.startswith(self._prefix):
            self._add_error("GBE205", entry.path, problem="points outside the project")
        elif entry.path.startswith(f"{target}/"):
            self._add_error("GBE205", entry.path, problem="forms a loop")
        elif is_folder:
            self._visit_folder(target)
        else:
            self._add_file(target)

    def _add_file(self, path: str, is_regular: bool | None = None) -> None:
        """Add a file with the name of its module, or GBE204 to `errors` if it is not a regular file.

        `is_regular` is None if the caller has not tested that.
        """
        if is_regular is None:
            is_regular = os.path.isfile(path)
        if not is_regular:
            reason, advice = "it is not a regular file", "Replace it with a regular file."
            try:
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    reason, advice = "it is a folder", "Rename the folder: only files have names that end in `.py`."
            except OSError as error:
                reason, advice = reason_of(error), advise_on(error, path)
            self._add_error("GBE204", path, reason=reason, advice=advice)
            return
        relative = self.relative(path)
        folder = os.path.dirname(relative)
        import_root = self._import_roots.get(folder)
        if import_root is None:
            import_root = self._import_roots[folder] = find_import_root(self.root, folder)
        self.found[relative] = (module_name(relative, import_root), import_root)

    def _is_excluded(self, path: str) -> bool:
        """True if a pattern in `exclude` matches the relative path, or its last segment alone."""
        if not self._exclude:
            return False
        relative = self.relative(path)
        name = os.path.basename(relative)
        return any(fnmatch(relative, glob.rstrip("/")) or fnmatch(name, glob.rstrip("/")) for glob in self._exclude)

    def _add_error(self, code: str, path: str, **data: object) -> None:
        """Add an error about a path to `errors`."""
        self.errors.append(BuildError(code, where=Place(self.relative(path)), **data))


def find_import_root(root: str, folder: str) -> str:
    """Return the folder, relative to the project root, from which files in `folder` are imported.

    That is `src` for files below a `src` that is not a package, else the project root. A folder whose name cannot be part of a
    dotted name (`my-shop`) is an import root itself.
    """
    parts = folder.split("/") if folder else []
    start = 0
    if parts and parts[0] == "src" and not os.path.exists(os.path.join(root, "src", "__init__.py")):
        start = 1
    for position, part in enumerate(parts, 1):
        if not part.isidentifier():
            start = position
    return "/".join(parts[:start]) or "."


def module_name(path: str, import_root: str) -> str:
    """Return the dotted name of the module at a path below `import_root`; both are relative to the project root.

    An `__init__.py` has the name of its folder.
    """
    below = path if import_root == "." else path[len(import_root) + 1 :]
    parts = below.removesuffix(".py").split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)
