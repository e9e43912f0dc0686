"""Reports saved source files. The only module that imports watchfiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatch
from threading import Event, Thread

from graphbus_core.compiler.discover import SKIPPED_FOLDERS
from graphbus_core.errors import UsageError
from graphbus_core.settings import PROJECT_FILE

_STEP_MS = 12
"""A save is reported after this pause without further changes."""
_DEBOUNCE_MS = 250
_PAUSE_MS = 100
_PATIENCE_S = 2.0


def require_watchfiles(option: str) -> None:
    """Raise an error if watchfiles, which an option or command needs, is not installed.

    Raises:
        UsageError: GBE163 when it is not installed.
    """
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise UsageError("GBE163", option=option) from None


class Watcher:
    """Reports saved source files from a thread of its own during its `with` block.

    watchfiles only says when to look; the saved files are found by comparing the tree with its last state.

    Args:
        root: The project root, absolute.
        report: Called with paths relative to the root, or with UsageError GBE164 if watching fails.
        excluded: Returns the globs that are not watched, as in `[tool.graphbus]`; called for each comparison.
    """

    def __init__(
        self,
        root: str,
        report: Callable[[tuple[str, ...] | UsageError], None],
        excluded: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._root = root
        self._report = report
        self._excluded = excluded
        self._known: dict[str, tuple[int, ...]] = {}
        self._is_watching = Event()
        self._is_over = Event()
        self._thread = Thread(target=self._watch, name="graphbus-watch", daemon=True)

    def __enter__(self) -> Watcher:
        self._known = dict(self._look())
        self._thread.start()
        self._is_watching.wait(_PATIENCE_S)  # saves from now on are reported
        return self

    def __exit__(self, *_raised: object) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)

    def _watch(self) -> None:
        try:
            while not self._is_over.is_set():
                try:
                    self._watch_tree()
                except FileNotFoundError:  # a folder disappeared while watchfiles read the tree: try again
                    if not os.path.isdir(self._root):
                        raise
        except OSError as error:
            self._report(UsageError("GBE164", reason=(error.strerror or str(error)).rstrip(".").lower()))
        finally:
            self._is_watching.set()

    def _watch_tree(self) -> None:
        from watchfiles import watch

        for changes in watch(
            self._root,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            stop_event=self._is_over,
            rust_timeout=_PAUSE_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            if changes or not self._is_watching.is_set():
                before, self._known = self._known, dict(self._look())
                saved = {path for path, _ in before.items() ^ self._known.items()}
                if saved:
                    self._report(tuple(sorted(saved)))
            self._is_watching.set()

    def _look(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield each source file with the facts that change when it is saved: time, size and inode."""
        excluded = [glob.rstrip("/") for glob in self._excluded()]
        for above, folders, names in os.walk(self._root):
            folders[:] = [name for name in folders if self._is_followed(os.path.join(above, name), excluded)]
            for name in names:
                path = os.path.join(above, name)
                if name.endswith((".py", PROJECT_FILE)) and self._is_followed(path, excluded):
                    try:
                        status = os.stat(path)
                    except OSError:  # deleted in the meantime
                        continue
                    yield os.path.relpath(path, self._root), (status.st_mtime_ns, status.st_size, status.st_ino)

    def _is_followed(self, path: str, excluded: Collection[str]) -> bool:
        """True unless the path is hidden, a cache, a virtual environment or excluded by the settings."""
        relative, name = os.path.relpath(path, self._root), os.path.basename(path)
        if name.startswith((".", "#")) or name in SKIPPED_FOLDERS or os.path.exists(os.path.join(path, "pyvenv.cfg")):
            return False
        return not any(fnmatch(relative, glob) or fnmatch(name, glob) for glob in excluded)
