"""The builds of a project that is being worked on: one for each save, with what has changed since the one before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import msgspec

from graphbus_core import settings
from graphbus_core.build import run_build_pipeline
from graphbus_core.compiler import rules
from graphbus_core.compiler.memory import BuildResult
from graphbus_core.compiler.project import Project
from graphbus_core.errors import GraphBusError, SeveralErrors
from graphbus_core.model.config import BuildConfig, ResolvedBuild
from graphbus_core.model.findings import Finding

_MOST_LOOKS = 50
"""How often a build is begun anew while files vanish under it; `git checkout` takes away many, one after the other."""
_UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one save.

    Attributes:
        paths: What was saved, relative to the project root; empty for the first start.
        seconds: From the notice to running code, or to the error that prevents it.
        new: What `graphbus check` finds that it did not find after the save before.
        gone: What it found then, and does not find any more.
        errors: Why the new code does not run.
        agents: The agents of the build.
        added: Agents that the build before did not have.
        removed: Agents that only the build before had.
        is_mended: The save before ended in errors.
    """

    paths: tuple[str, ...]
    seconds: float = 0.0
    new: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()
    errors: tuple[GraphBusError, ...] = ()
    agents: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_mended: bool = False


class Development:
    """The builds of a project, one after the other.

    Args:
        paths: What is built.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._request = BuildConfig(paths=tuple(paths))
        self._excluded: tuple[str, ...] = ()
        self._agents: tuple[str, ...] | None = None
        self._findings: tuple[Finding, ...] = ()
        self.has_failed = False

    @property
    def config(self) -> ResolvedBuild:
        """What is built, by the settings as they are now.

        Raises:
            UsageError: What `settings.resolve_build` raises.
        """
        return settings.resolve_build(self._request)

    @property
    def root(self) -> str:
        """The project root, absolute."""
        return str(settings.find_root([Path(path) for path in self._request.paths] or [Path()]))

    @property
    def shown_paths(self) -> str:
        """What is built, as it was given."""
        return ", ".join(map(os.path.relpath, self._request.paths)) or "this folder"

    def excluded(self) -> tuple[str, ...]:
        """Give the globs of what is not watched; those of before while the settings cannot be read."""
        with suppress(GraphBusError):
            self._excluded = tuple(self.config.settings.exclude)
        return self._excluded

    def project(self) -> Project:
        """Read the files as they are, e.g. to show lines of them."""
        return Project.read(self.config)

    def know(self, agents: Sequence[str]) -> None:
        """Take the agents of earlier artifacts, and what the rules find now, as known: nothing is built before the first save."""
        self._agents = tuple(agents)
        self._findings = rules.check(self.project())

    def build(self, paths: tuple[str, ...] = ()) -> Saved:
        """Check and build after these files were saved; the errors of the build are part of what is given."""
        started = perf_counter()
        findings, before = self._findings, self._agents
        errors: tuple[GraphBusError, ...] = ()
        was_mended = self.has_failed
        try:
            built = self._build_what_stays()
            self._findings = built.findings
            self._agents = tuple(each.name for each in built.artifacts.agents.agents)
        except GraphBusError as error:
            errors = _causes(error)
        self.has_failed = bool(errors)
        now = self._agents or ()
        return Saved(
            paths=paths,
            seconds=perf_counter() - started,
            new=_without(self._findings, findings),
            gone=_without(findings, self._findings),
            errors=errors,
            agents=now,
            added=tuple(each for each in now if before is not None and each not in before),
            removed=tuple(each for each in before or () if each not in now),
            is_mended=was_mended,
        )

    def _build_what_stays(self) -> BuildResult:
        """Build; files that were there when the folder was read and are gone now are no error: without them, once more."""
        for _ in range(_MOST_LOOKS):
            try:
                return run_build_pipeline(self._request)
            except GraphBusError as error:
                if not all(self._has_vanished(each) for each in _causes(error)):
                    raise
        return run_build_pipeline(self._request)

    def _has_vanished(self, error: GraphBusError) -> bool:
        where = error.where
        return error.code == "GBE204" and where is not None and not os.path.lexists(os.path.join(self.root, where.path))


def _causes(error: GraphBusError) -> tuple[GraphBusError, ...]:
    """What to correct first: files that cannot be read, for what is missing in them makes others wrong."""
    errors = tuple(error.errors) if isinstance(error, SeveralErrors) else (error,)
    return tuple(each for each in errors if each.code in _UNREADABLE) or errors


def _without(findings: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings that the others do not have; one that only moved is the same."""
    known = {each.key for each in others}
    return tuple(each for each in findings if each.key not in known)
