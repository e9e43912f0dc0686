"""Notices saved source files. The only module that knows watchfiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from errno import ENOENT
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread

from graphbus_core.compiler.discover import SKIPPED_FOLDERS
from graphbus_core.errors import UsageError
from graphbus_core.settings import PROJECT_FILE

_STEP_MS = 12
"""A save is reported when nothing has come after it for so long."""
_DEBOUNCE_MS = 250
_PAUSE_MS = 100
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
    """Reports which source files were saved, from a thread of its own, as long as its `with` block lasts.

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
        self._exclude = exclude
        self._known: dict[str, bytes] = {}
        self._is_watching = Event()
        self._is_over = Event()
        self._thread = Thread(target=self._watch, name="graphbus-watch", daemon=True)

    def __enter__(self) -> Watcher:
        for path in self._files_in(self._root):
            self._is_new(path)
        self._thread.start()
        self._is_watching.wait(_PATIENCE_S)  # what is saved from now on is reported
        return self

    def __exit__(self, *_raised: object) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)

    def _watch(self) -> None:
        try:
            self._watch_to_end()
        except OSError as error:
            self._failed(UsageError("GBE164", reason=(error.strerror or str(error)).rstrip(".").lower()))
        finally:
            self._is_watching.set()

    def _watch_to_end(self) -> None:
        while not self._is_over.is_set():
            try:
                for paths in self._batches():
                    self._report({file for path in paths for file in self._files_of(path)})
            except FileNotFoundError:  # a folder has gone while watchfiles went through the tree: once more
                if not os.path.isdir(self._root):
                    raise

    def _batches(self) -> Iterator[set[str]]:
        """The absolute paths that have changed; the root when the tree is watched, for what was saved until then."""
        from watchfiles import watch

        is_first = True
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
            if not os.path.isdir(self._root):
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
            if is_first or changes:
                yield {self._root} if is_first else {path for _, path in changes}
            is_first = False
            self._is_watching.set()

    def _files_of(self, path: str) -> Iterator[str]:
        """A file, or the files that a folder has or had; relative to the root."""
        if os.path.isdir(path):
            yield from self._files_in(path)
        relative = os.path.relpath(path, self._root)
        yield relative
        yield from [each for each in self._known if each.startswith(f"{relative}{os.sep}")]

    def _files_in(self, folder: str) -> Iterator[str]:
        for above, inner, names in os.walk(folder):
            inner[:] = [each for each in inner if not each.startswith(".") and each not in SKIPPED_FOLDERS]
            for name in names:
                if name.endswith((".py", PROJECT_FILE)):
                    yield os.path.relpath(os.path.join(above, name), self._root)

    def _report(self, paths: set[str]) -> None:
        excluded = [glob.rstrip("/") for glob in self._exclude()] if paths else []
        saved = sorted(path for path in paths if self._is_source(path, excluded) and self._is_new(path))
        if saved:
            self._saved(tuple(saved))

    def _is_source(self, path: str, excluded: Collection[str]) -> bool:
        *folders, name = path.split(os.sep)
        if path == PROJECT_FILE:
            return True
        is_python = name.endswith(".py") and not name.startswith((".", "#"))
        return is_python and not self._is_left_out(path, folders, excluded)

    def _is_new(self, path: str) -> bool:
        """False for the bytes that are known: one save may be several events, and a file may be touched."""
        try:
            digest = sha256(Path(self._root, path).read_bytes()).digest()
        except OSError:
            digest = b""
        before, self._known[path] = self._known.get(path, b""), digest
        return digest != before

    def _is_left_out(self, path: str, folders: list[str], excluded: Collection[str]) -> bool:
        """Hidden folders, caches, virtual environments, and what the settings exclude."""
        if any(name.startswith(".") or name in SKIPPED_FOLDERS for name in folders):
            return True
        above = [os.path.join(*folders[: depth + 1]) for depth in range(len(folders))]
        if any(os.path.exists(os.path.join(self._root, each, "pyvenv.cfg")) for each in above):
            return True
        return any(
            fnmatch(each, glob) or fnmatch(os.path.basename(each), glob) for each in (*above, path) for glob in excluded
        )
