"""Notices saved source files. The only module that knows watchfiles.

Every folder of the project is watched by itself, so that nothing is spent on virtual environments, caches and hidden folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatch
from pathlib import Path
from threading import Event, Thread

from graphbus_core.compiler.discover import SKIPPED_FOLDERS
from graphbus_core.errors import UsageError
from graphbus_core.settings import PROJECT_FILE

_STEP_MS = 12
"""A save is told when nothing has come after it for so long."""
_DEBOUNCE_MS = 250
_PAUSE_MS = 400
_PATIENCE_S = 2.0


def need(option: str) -> None:
    """Refuse an option or command that cannot work without watchfiles.

    Raises:
        UsageError: GBE163 when it is not installed.
    """
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise UsageError("GBE163", option=option) from None


class Watcher:
    """Tells which source files were saved, in a thread of its own, from `start` to `stop`.

    Args:
        root: The project root.
        saved: Called with paths relative to the root, in order; with none when files may have been saved unnoticed.
        failed: Called with a UsageError GBE164 when the machine refuses to watch; then nothing is told any more.
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
        self._is_over = Event()
        self._thread = Thread(target=self._watch, name="graphbus-watch", daemon=True)

    def __enter__(self) -> Watcher:
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
            folders = self._folders()
            for paths in self._changes(folders):
                self._saved(paths)
                if self._folders() != folders:
                    break

    def _changes(self, folders: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """What is saved below these folders; first nothing, once, as soon as they are watched."""
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
                    yield self._paths_of(each)
                if any(path in known for _, path in each):  # it may be another folder of the same name
                    return
        except FileNotFoundError:  # a folder has gone since it was seen; the next look does not see it
            if not os.path.isdir(self._root):
                raise

    def _paths_of(self, changes: Collection[tuple[object, str]]) -> tuple[str, ...]:
        return tuple(sorted({os.path.relpath(path, self._root) for _, path in changes if not os.path.isdir(path)}))

    def _is_wanted(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if name == PROJECT_FILE:
            return folder == self._root
        if name.endswith(".py"):
            return not name.startswith((".", "#")) and not self._is_excluded(path)
        return os.path.isdir(path) and self._is_watched(path)

    def _folders(self) -> tuple[str, ...]:
        self._excluded = self._ask_excluded()
        found = []
        waiting = [self._root]
        while waiting:
            folder = waiting.pop()
            found.append(folder)
            try:
                entries = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
            except OSError:  # it has just gone
                continue
            waiting += filter(self._is_watched, entries)
        return tuple(sorted(found))

    def _is_watched(self, folder: str) -> bool:
        name = os.path.basename(folder)
        if name.startswith(".") or name in SKIPPED_FOLDERS or self._is_excluded(folder):
            return False
        return not os.path.exists(os.path.join(folder, "pyvenv.cfg"))

    def _is_excluded(self, path: str) -> bool:
        relative, name = os.path.relpath(path, self._root), os.path.basename(path)
        return any(fnmatch(relative, glob.rstrip("/")) or fnmatch(name, glob.rstrip("/")) for glob in self._excluded)
