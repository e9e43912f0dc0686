"""From a saved file to running code: check, build, reload, and what there is to say of it.

Every step may fail; then the old code runs on, and the next save is another chance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import NamedTuple

import msgspec

from graphbus_core import settings
from graphbus_core.build import run_build_pipeline
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.result import BuildResult
from graphbus_core.errors import GraphBusError, SeveralErrors
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.reload import Reloaded, Reloader
from graphbus_core.model.config import BuildConfig, BuildRequest, RuntimeConfig, RuntimeSettings
from graphbus_core.model.findings import Finding

_PATIENCE_S = 2.0
_MOST_LOOKS = 50
"""How often a build is begun anew while files vanish under it; `git checkout` takes away many, one after the other."""
_UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})


class Saved(NamedTuple):
    """What came of one save.

    Attributes:
        paths: What was saved, relative to the project root.
        seconds: From the notice to running code.
        new: What `graphbus check` finds that it did not find after the save before.
        gone: What it found then, and finds no more.
        errors: Why the old code keeps running; empty when the new code runs.
        reloaded: What the graph has taken over; None while there is no graph.
        is_mended: The save before ended in errors.
        notes: What a person should know besides.
    """

    paths: tuple[str, ...]
    seconds: float
    new: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()
    errors: tuple[GraphBusError, ...] = ()
    reloaded: Reloaded | None = None
    is_mended: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_silent(self) -> bool:
        """There is nothing to say: no file of the graph has other bytes."""
        return not (self.new or self.gone or self.errors or self.is_mended or self.notes or any(self.reloaded or ()))


class Development:
    """The builds of a project that is being worked on, one after the other.

    Args:
        paths: What is built.
        tell: Told what came of each save.
    """

    def __init__(self, paths: Sequence[str], tell: Callable[[Saved], None]) -> None:
        self._request = BuildRequest(paths=tuple(paths))
        self._tell = tell
        self._reloader: Reloader | None = None
        self._running: RuntimeConfig | None = None
        self._known = RuntimeSettings()
        self._excluded: tuple[str, ...] = ()
        self._findings: tuple[Finding, ...] = ()
        self._has_failed = False
        self._last_errors: list[tuple[str, str]] = []
        self._one_at_a_time = Lock()

    @property
    def config(self) -> BuildConfig:
        """What is built, by the settings as they are now.

        Raises:
            UsageError: What `settings.resolve_build` raises.
        """
        return settings.resolve_build(self._request)

    @property
    def root(self) -> str:
        """The project root, absolute."""
        return str(settings.find_root([Path(path) for path in self._request.paths] or [Path()]))

    def excluded(self) -> tuple[str, ...]:
        """What is not watched, as globs; what it was before while the settings cannot be read."""
        with suppress(GraphBusError):
            self._excluded = tuple(self.config.settings.exclude)
        return self._excluded

    @property
    def shown_paths(self) -> str:
        """What is built, as it was given."""
        return ", ".join(self._request.paths) or "this folder"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules found in the last build."""
        return self._findings

    def project(self) -> Project:
        """Read the files as they are, e.g. to show lines of them."""
        return Project.read(self.config)

    def build(self) -> BuildResult:
        """Build for the first time.

        Raises:
            GraphBusError: What a build refuses.
        """
        result = self._build_what_stays()
        self._findings = result.findings
        return result

    def remember_findings(self) -> None:
        """Take what the rules find now as known, where nothing is built before the first save."""
        self._findings = rules.check(self.project())

    @contextmanager
    def beside(self, graph: LiveGraph) -> Iterator[None]:
        """While the context is open, what is saved goes to this graph."""
        with self._one_at_a_time:
            self._reloader = Reloader(graph)
            self._running = graph.origin.config if graph.origin else None
            self._known = self.config.settings.runtime
        try:
            yield
        finally:
            is_free = self._one_at_a_time.acquire(
                timeout=_PATIENCE_S
            )  # a handler that never ends keeps a reload waiting
            self._reloader = None
            if is_free:
                self._one_at_a_time.release()

    def on_saved(self, paths: tuple[str, ...]) -> None:
        """Check, build and reload, and tell what came of it, unless there is nothing to tell."""
        with self._one_at_a_time:
            if self._reloader is None:
                return
            saved = self._take(self._reloader, paths)
            if not saved.is_silent:
                self._tell(saved)

    def _take(self, reloader: Reloader, paths: tuple[str, ...]) -> Saved:
        started = perf_counter()
        had_failed, before = self._has_failed, self._findings
        try:
            result = self._build_what_stays()
            self._findings = result.findings
            reloaded = reloader.reload(result.artifacts, self._with_topics(result.config))
        except GraphBusError as error:
            return self._failed(Saved(paths, perf_counter() - started, errors=causes(error)), before)
        self._has_failed = False
        self._last_errors = []
        return Saved(
            paths,
            perf_counter() - started,
            *_difference(before, self._findings),
            reloaded=reloaded,
            is_mended=had_failed,
            notes=(*reloaded.notes, *self._late(result.config)),
        )

    def _build_what_stays(self) -> BuildResult:
        """Build; files that were there when the folder was read and are gone now are no error: without them, once more."""
        for _ in range(_MOST_LOOKS):
            try:
                return run_build_pipeline(self._request)
            except GraphBusError as error:
                if not all(self._has_vanished(each) for each in causes(error)):
                    raise
        return run_build_pipeline(self._request)

    def _has_vanished(self, error: GraphBusError) -> bool:
        where = error.where
        return error.code == "GBE204" and where is not None and not os.path.lexists(os.path.join(self.root, where.path))

    def _failed(self, saved: Saved, before: tuple[Finding, ...]) -> Saved:
        """Errors that were told already are not told again, unless somebody has saved."""
        self._has_failed = True
        told = [(each.code, str(each)) for each in saved.errors]
        if told == self._last_errors and not saved.paths:
            saved = saved._replace(errors=())
        self._last_errors = told
        new, gone = _difference(before, self._findings)
        return saved._replace(new=new, gone=gone)

    def _with_topics(self, config: BuildConfig) -> RuntimeConfig | None:
        if self._running is None:
            return None
        return msgspec.structs.replace(self._running, external_topics=config.settings.external_topics)

    def _late(self, config: BuildConfig) -> Iterator[str]:
        """Settings of the runtime that have changed and take effect at the next start; each is told once."""
        new, known = config.settings.runtime, self._known
        changed = [name for name in RuntimeSettings.__struct_fields__ if getattr(new, name) != getattr(known, name)]
        if changed:
            self._known = new
            yield f"[tool.graphbus.runtime] has changed ({', '.join(changed)}): that counts from the next start."


def causes(error: GraphBusError) -> tuple[GraphBusError, ...]:
    """Give what is to be mended first: files that cannot be read, for what is missing in them makes others wrong."""
    errors = tuple(error.errors) if isinstance(error, SeveralErrors) else (error,)
    return tuple(each for each in errors if each.code in _UNREADABLE) or errors


def _difference(
    before: tuple[Finding, ...], now: tuple[Finding, ...]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """What is new, and what is gone; a finding that only moved is neither."""
    known, present = {each.key for each in before}, {each.key for each in now}
    return (
        tuple(each for each in now if each.key not in known),
        tuple(each for each in before if each.key not in present),
    )


def paths_of(graph: LiveGraph) -> tuple[str, ...]:
    """Give what the artifacts of a running graph were built from."""
    if graph.origin is None or graph.origin.artifacts.manifest is None:
        return ()
    root = graph.origin.modules.root
    return tuple(str(Path(root, each)) for each in graph.origin.artifacts.manifest.roots)
