"""Reports saved source files. The only module that imports watchfiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from errno import EMFILE, ENOSPC
from fnmatch import fnmatch
from threading import Event, Thread

from graphbus_core.compiler.discover import SKIPPED_FOLDERS
from graphbus_core.errors import Place, UsageError
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.settings import PROJECT_FILE

_STEP_MS = 12
"""A save is reported after this pause without further changes."""
_DEBOUNCE_MS = 250
"""Changes that go on longer than this are reported without waiting for a pause."""
_POLL_MS = 100
_THREAD_WAIT_S = 2.0


def require_watchfiles(option: str) -> None:
    """Raise an error if watchfiles is not installed; `option` names the option or command that needs it.

    Raises:
        UsageError: GBE163, watchfiles is not installed.
    """
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise UsageError("GBE163", option=option) from None


class Watcher:
    """Reports saved source files from a thread of its own during its `with` block.

    watchfiles only reports that something changed; the saved files are found by comparing the tree with its last state.

    Args:
        root: The project root, absolute.
        report: Called with paths relative to the root, or with UsageError GBE164 if watching fails.
        excluded: Returns the globs of files that are not watched; called for each comparison, because settings may change.
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
        self._must_stop = Event()
        self._thread = Thread(target=self._run_watch, name="graphbus-watch", daemon=True)

    def __enter__(self) -> Watcher:
        self._known = dict(self._list_source_files())
        self._thread.start()
        self._is_watching.wait(_THREAD_WAIT_S)  # saves from now on are reported
        return self

    def __exit__(self, *_raised: object) -> None:
        self._must_stop.set()
        self._thread.join(_THREAD_WAIT_S)

    def _run_watch(self) -> None:
        """Report saves until the `with` block ends; if watching fails, report GBE164."""
        try:
            while not self._must_stop.is_set():
                try:
                    self._report_saves()
                except FileNotFoundError:  # a folder disappeared while watchfiles read the tree: try again
                    if not os.path.isdir(self._root):
                        raise
        except OSError as error:
            reason, advice = reason_of(error), advise_on(error, self._root)
            if error.errno in (EMFILE, ENOSPC):  # what inotify reports at its limits
                reason = "the system's limit on watched files is reached"
                advice = "Leave large folders out with `exclude` in [tool.graphbus], or raise the limit (on Linux, "
                advice += "`fs.inotify.max_user_watches`)."
            self._report(UsageError("GBE164", where=Place(str(self._root)), reason=reason, advice=advice))
        finally:
            self._is_watching.set()

    def _report_saves(self) -> None:
        """Compare the tree with its last state after each change, and report the files that differ.

        The tree is also compared once when watchfiles is ready, because files may have been saved before.
        """
        from watchfiles import watch

        for changes in watch(
            self._root,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            stop_event=self._must_stop,
            rust_timeout=_POLL_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            if changes or not self._is_watching.is_set():
                before, self._known = self._known, dict(self._list_source_files())
                saved = {path for path, _ in before.items() ^ self._known.items()}
                if saved:
                    self._report(tuple(sorted(saved)))
            self._is_watching.set()

    def _list_source_files(self) -> Iterator[tuple[str, tuple[int, ...]]]:
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
