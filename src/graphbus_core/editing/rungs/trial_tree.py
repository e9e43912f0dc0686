"""Copies of the project in which changes can be tried: fresh ones each time, because what is tried may write where it likes."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from graphbus_core.editing.sandboxes.process import remove_tree
from graphbus_core.store.beneath import Folder

MAX_BYTES = 200_000_000
MAX_FILES = 20_000
SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".graphbus", ".venv", "venv", "node_modules", "__pycache__", "site-packages", ".hypothesis"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".idea", ".vscode", ".import_linter_cache"}
)
SKIPPED_FILES = (".env", ".env.*", "*.pyc", "*.pem", "*.key", ".netrc", ".coverage*")


class NotCopied(Exception):  # noqa: N818 - it is an answer, not a failure
    """The project cannot be copied, or is larger than what may be copied."""


class TrialTree:
    """A copy of the project as it was when it was first needed, and copies of that copy. Removed with this object."""

    def __init__(self, root: str, artifacts_dir: str) -> None:
        self._root = Path(root)
        self._artifacts = Path(artifacts_dir)
        self._home = Path(tempfile.mkdtemp(prefix="graphbus-trial-"))
        self._count = 0
        weakref.finalize(self, remove_tree, self._home)

    @contextmanager
    def copy(self, changed: Mapping[str, bytes | None]) -> Iterator[Path]:
        """Give a folder with the project and these files in it, or without those that are None; it is gone afterwards.

        Raises:
            NotCopied: There is too much to copy, or a file cannot be read or written.
        """
        self._count += 1
        folder = self._home / f"trial{self._count}"
        try:
            self._fill(folder, changed)
            yield folder
        finally:
            remove_tree(folder)

    def _fill(self, folder: Path, changed: Mapping[str, bytes | None]) -> None:
        base = self._home / "base"
        try:
            if not base.exists():
                self._copy_base(base)
            shutil.copytree(base, folder, symlinks=True, copy_function=shutil.copyfile)
            with Folder.at(
                os.path.realpath(folder)
            ) as copy:  # a link that stays in the project may lead out of a copy of it
                for path, data in changed.items():
                    above, _, name = path.rpartition("/")
                    with copy.folder(above or ".", make=data is not None) as place:
                        place.write(name, data, is_flushed=False) if data is not None else place.unlink(name)
        except OSError as reason:
            raise NotCopied(str(reason)) from None

    def _copy_base(self, base: Path) -> None:
        fresh = base.with_name("base.part")
        remove_tree(fresh)
        files = size_bytes = 0
        for folder, names, paths in self._walk():
            target = fresh / folder
            target.mkdir(parents=True)
            for name in paths:
                source = self._root / folder / name
                information = source.lstat()
                if stat.S_ISREG(information.st_mode):
                    files, size_bytes = files + 1, size_bytes + information.st_size
                    if files > MAX_FILES or size_bytes > MAX_BYTES:
                        raise NotCopied(f"it has more than {MAX_FILES} files or {MAX_BYTES} bytes")
                    shutil.copyfile(source, target / name)
                elif stat.S_ISLNK(information.st_mode):
                    self._copy_link(source, target / name)
            for name in names:
                if (self._root / folder / name).is_symlink():
                    self._copy_link(self._root / folder / name, target / name)
        fresh.rename(base)

    def _walk(self) -> Iterator[tuple[Path, list[str], list[str]]]:
        for folder, names, paths in os.walk(self._root):
            names[:] = sorted(name for name in names if self._is_wanted(Path(folder, name)))
            wanted = [name for name in sorted(paths) if not any(fnmatch(name, glob) for glob in SKIPPED_FILES)]
            yield Path(folder).relative_to(self._root), names, wanted

    def _is_wanted(self, folder: Path) -> bool:
        is_ours = folder.name.startswith("graphbus-") and folder.parent == self._home.parent  # TMPDIR is in the project
        is_skipped = folder.name in SKIPPED_FOLDERS or folder == self._artifacts or is_ours
        return not is_skipped and not (folder / "pyvenv.cfg").exists()

    def _copy_link(self, source: Path, target: Path) -> None:
        """Keep a relative link inside the project; others would lead back to the real files."""
        aim = os.readlink(source)
        inside = Path(os.path.realpath(source)).is_relative_to(os.path.realpath(self._root))
        if inside and not os.path.isabs(aim):
            target.symlink_to(aim)
