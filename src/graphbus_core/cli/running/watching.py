"""Notices saved source files. The only module that knows watchfiles.

watchfiles says when to look; what was saved is found by comparing contents, so that no save is missed while the list of
folders changes, and none is reported twice. Every folder is watched by itself, so that nothing is spent on virtual environments,
caches and hidden folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from time import time_ns
from typing import NamedTuple

from graphbus_core.compiler.discover import SKIPPED_FOLDERS
from graphbus_core.errors import UsageError
from graphbus_core.isolation import attempt
from graphbus_core.settings import PROJECT_FILE

_STEP_MS = 12
"""A save is reported when nothing has come after it for so long."""
_DEBOUNCE_MS = 250
_PAUSE_MS = 400
_PATIENCE_S = 2.0
_RECENT_NS = 1_000_000_000
"""A file that was written so recently may change again without another modification time."""


def need(option: str) -> None:
    """Refuse an option or command that cannot work without watchfiles.

    Raises:
        UsageError: GBE163 when it is not installed.
    """
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise UsageError("GBE163", option=option) from None


class _File(NamedTuple):
    """A source file when it was last looked at."""

    status: tuple[int, int, int]
    digest: bytes
    is_recent: bool


class Watcher:
    """Reports which source files were saved, from a thread of its own, as long as its `with` block lasts.

    A save after the block was entered is reported, even if the folders are not watched yet.

    Args:
        root: The project root.
        saved: Called with paths relative to the root, in order.
        failed: Called with a UsageError GBE164 when the machine refuses to watch; nothing is reported after that.
        exclude: Gives the globs of what is not watched, as in `[tool.graphbus]`; asked again after each save.
    """

    def __init__(
        self,
        root: Path,
        saved: Callable[[tuple[str, ...]], None],
        failed: Callable[[UsageError], None],
        *,
        exclude: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._root = str(root.resolve())
        self._saved = saved
        self._failed = failed
        self._ask_excluded = exclude
        self._excluded: Collection[str] = ()
        self._folders: tuple[str, ...] = ()
        self._files: dict[str, _File] = {}
        self._is_over = Event()
        self._thread = Thread(target=self._watch, name="graphbus-watch", daemon=True)

    def __enter__(self) -> Watcher:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)

    def _watch(self) -> None:
        try:
            self._watch_to_end()
        except OSError as error:
            self._failed(UsageError("GBE164", reason=(error.strerror or str(error)).rstrip(".").lower()))

    def _watch_to_end(self) -> None:
        while not self._is_over.is_set():
            self._report()
            folders = self._folders
            for _ in self._changes(folders):
                self._report()
                if self._folders != folders:
                    break

    def _report(self) -> None:
        saved = self._look()
        if saved:
            self._saved(saved)

    def _changes(self, folders: tuple[str, ...]) -> Iterator[None]:
        """When to look: as soon as these folders are watched, and whenever something in them changes."""
        from watchfiles import watch

        is_first, known = True, frozenset(folders)
        found = watch(
            *folders,
            watch_filter=lambda _change, path: path in known or self._is_wanted(path),
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            stop_event=self._is_over,
            rust_timeout=_PAUSE_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=False,
        )
        try:
            for each in found:
                if each or is_first:
                    is_first = False
                    yield
                if any(path in known for _, path in each):  # it may be another folder of the same name
                    return
        except FileNotFoundError:  # a folder has gone since it was seen; the next look does not see it
            if not os.path.isdir(self._root):
                raise

    def _look(self) -> tuple[str, ...]:
        """Find the folders and files of now, and give the files that have other bytes than before, are new or are gone."""
        self._excluded = self._ask_excluded()
        before, self._files = self._files, {}
        self._folders = tuple(sorted(self._walk(before)))
        paths = before.keys() | self._files.keys()
        nothing = _File((0, 0, 0), b"", is_recent=False)
        changed = [each for each in paths if before.get(each, nothing).digest != self._files.get(each, nothing).digest]
        return tuple(sorted(os.path.relpath(path, self._root) for path in changed))

    def _walk(self, before: Mapping[str, _File]) -> Iterator[str]:
        """Give every folder that is watched, and put its files into `_files`."""
        waiting = [self._root]
        while waiting:
            folder = waiting.pop()
            yield folder
            entries, _ = attempt(lambda folder=folder: list(os.scandir(folder)))  # type: ignore[misc]
            for entry in entries or ():  # none: it has just gone
                if entry.is_dir(follow_symlinks=False):
                    if self._is_watched(entry.path):
                        waiting.append(entry.path)
                elif self._is_source(entry.path):
                    self._files[entry.path] = _look_at(entry.path, before.get(entry.path))

    def _is_wanted(self, path: str) -> bool:
        return self._is_source(path) or (os.path.isdir(path) and self._is_watched(path))

    def _is_source(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if name == PROJECT_FILE:
            return folder == self._root
        return name.endswith(".py") and not name.startswith((".", "#")) and not self._is_excluded(path)

    def _is_watched(self, folder: str) -> bool:
        name = os.path.basename(folder)
        if name.startswith(".") or name in SKIPPED_FOLDERS or self._is_excluded(folder):
            return False
        return not os.path.exists(os.path.join(folder, "pyvenv.cfg"))

    def _is_excluded(self, path: str) -> bool:
        relative, name = os.path.relpath(path, self._root), os.path.basename(path)
        return any(fnmatch(relative, glob.rstrip("/")) or fnmatch(name, glob.rstrip("/")) for glob in self._excluded)


def _look_at(path: str, known: _File | None) -> _File:
    """Read a file, unless its status proves that it is the same."""
    try:
        found = os.stat(path)
        status = (found.st_mtime_ns, found.st_size, found.st_ino)
        if known and known.status == status and not known.is_recent:
            return known
        digest = sha256(Path(path).read_bytes()).digest()
    except OSError:  # it has just gone, or nobody may read it
        return _File((0, 0, 0), b"", is_recent=False)
    return _File(status, digest, is_recent=abs(time_ns() - found.st_mtime_ns) < _RECENT_NS)
