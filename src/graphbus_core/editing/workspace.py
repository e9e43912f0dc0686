"""The workspace of a session: the project's files with all accepted proposals, in memory. Files on disk stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from hashlib import sha256

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change
from graphbus_core.editing.journal import unchangeable_error
from graphbus_core.editing.merge import merge
from graphbus_core.errors import EditError, Place
from graphbus_core.model.proposals import CodeChange, Proposal

_STALE_ERRORS = frozenset({"GBE301", "GBE302", "GBE303", "GBE307", "GBE308", "GBE310", "GBE314"})
"""Errors of an edit that was written for another version of its file."""


class _EditedFiles:
    """The result of applying changes to the present state: new bytes, merged paths, and the project, built on demand."""

    def __init__(self, files: dict[str, bytes], merged: tuple[str, ...]) -> None:
        self.files = files
        self.merged = merged
        self.project: Project | None = None


class Workspace:
    """The project with the proposals that were accepted so far. Only files that define an agent, or a base of one, can change.

    A change that does not fit the present state of its file, but fits an earlier one of this session, is applied to that one and
    merged with what was accepted since.

    Attributes:
        base: The project at the start of the session.
        project: The project with all commits so far.
        steps: Each commit so far: the id of its proposal, and path -> new bytes.
    """

    def __init__(self, project: Project) -> None:
        self.base = project
        self.project = project
        self.steps: list[tuple[str, dict[str, bytes]]] = []
        self._start = {path: project.source(path).data for path in project.editable}
        self._now = dict(self._start)  # path -> bytes, with all commits so far
        self._applied: dict[object, _EditedFiles] = {}  # changes -> their result on the present state
        self._earlier: dict[str, list[bytes]] = {}  # path -> its earlier states, the newest last

    def preview_files(self, changes: Iterable[CodeChange]) -> dict[str, bytes]:
        """Return the new bytes of each file that the changes would change, without changing the workspace.

        Raises:
            EditError: A change does not apply, or its file defines no agent. GBE317 and GBE318: it fits an earlier state of the
                file and conflicts with what was accepted since.
        """
        return dict(self._apply_cached(changes).files)

    def merged_paths(self, changes: Iterable[CodeChange]) -> tuple[str, ...]:
        """Return the paths of the files whose changes were written for an earlier state and are merged into the present one.

        Raises:
            EditError: As `preview_files`.
        """
        return self._apply_cached(changes).merged

    def _apply_cached(self, changes: Iterable[CodeChange]) -> _EditedFiles:
        """Return the result of the changes on the present state, from the cache if they were applied to it before.

        The gate, the evaluators and the commit need the same result. Raises like `preview_files`.
        """
        by_path: dict[str, list[CodeChange]] = {}
        for change in changes:
            by_path.setdefault(change.file_path, []).append(change)
        key = tuple((path, self._now.get(path), *own) for path, own in by_path.items())
        found = self._applied.get(key)
        if found is None:
            edited = {path: self._edit_file(path, own) for path, own in by_path.items()}
            files = {path: data for path, (data, _) in edited.items()}
            merged = tuple(sorted(path for path, (_, is_merged) in edited.items() if is_merged))
            found = self._applied[key] = _EditedFiles(files, merged)
        return found

    def _edit_file(self, path: str, changes: list[CodeChange]) -> tuple[bytes, bool]:
        """Return the new bytes of a file, and whether its changes were merged; raises like `preview_files`.

        They are merged if they do not fit the present state of the file but an earlier one.
        """
        if path not in self._now:
            raise unchangeable_error(path)
        try:
            return _apply_all(self._now[path], changes), False
        except EditError as error:
            fitting = self._find_fitting_state(path, changes) if error.code in _STALE_ERRORS else None
            if fitting is None:
                raise
        return _merge_file(path, fitting[0], self._now[path], fitting[1]), True

    def _find_fitting_state(self, path: str, changes: list[CodeChange]) -> tuple[bytes, bytes] | None:
        """Return the newest earlier state of a file that the changes fit, and that state with the changes; None if none fits."""
        for base in reversed(self._earlier.get(path, ())):
            with suppress(EditError):
                return base, _apply_all(base, changes)
        return None

    def preview_project(self, changes: Iterable[CodeChange]) -> Project:
        """Return the project as it would be after the changes, without changing the workspace; raises like `preview_files`."""
        tried = self._apply_cached(changes)
        tried.project = tried.project or self.project.with_files(tried.files)
        return tried.project

    def commit(self, proposal: Proposal) -> None:
        """Apply an accepted proposal to the workspace, completely or not at all; raises like `preview_files`."""
        fresh = self.preview_files(proposal.code_changes)
        self.project = self.preview_project(proposal.code_changes)
        self._applied = {}
        for path in fresh:
            self._earlier.setdefault(path, []).append(self._now[path])
        self._now.update(fresh)
        self.steps.append((proposal.proposal_id, fresh))

    def look_ahead(self, proposals: Iterable[Proposal]) -> None:
        """Build the projects that committing these proposals in this order would give, so that the commits find them cached.

        The workspace does not change. A proposal that cannot be applied is left out. The session calls this while agents vote.
        """
        ahead = copy(self)
        ahead.steps, ahead._now = [], dict(self._now)
        ahead._earlier = {path: list(states) for path, states in self._earlier.items()}
        for proposal in proposals:
            with suppress(EditError):
                ahead.commit(proposal)

    def can_change(self, path: str) -> bool:
        """True for a file that proposals can change."""
        return path in self._now

    def file_data(self, path: str) -> bytes:
        """Return the present bytes of a file that proposals can change; raise KeyError for any other file."""
        return self._now[path]

    def changed_files(self, trial: Mapping[str, bytes] | None = None) -> dict[str, tuple[bytes, bytes]]:
        """Return the files that differ from the start: path -> bytes at the start and now.

        Args:
            trial: Files of `preview_files` that count as if they were committed.
        """
        now = {**self._now, **(trial or {})}
        return {path: (self._start[path], now[path]) for path in sorted(now) if now[path] != self._start[path]}

    @property
    def digest(self) -> str:
        """A digest of the present state of the files. It does not depend on the order of the commits that led to it."""
        return state_digest(self.changed_files())


def _apply_all(data: bytes, changes: Iterable[CodeChange]) -> bytes:
    """Return the bytes of a file after several changes, applied in order; raises like `apply_change`."""
    for change in changes:
        data = apply_change(data, change)
    return data


def _merge_file(path: str, base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Merge two changes of a file and return its bytes; raise GBE317 for a conflict, GBE318 if the result does not parse.

    Both changes start from `base`, an earlier state. One leads to the present state, `ours`, the other to `theirs`.
    """
    result = merge(base, ours, theirs)
    if result.data is not None:
        return result.data
    if not result.conflicts:
        raise EditError("GBE318", where=Place(path), reason=result.reason)
    symbols = ", ".join(dict.fromkeys(conflict.symbol for conflict in result.conflicts if conflict.symbol))
    current = result.conflicts[0].ours.strip()
    advice = f"Write the change again for the current code: {current}" if current else "Leave this change out."
    raise EditError("GBE317", where=Place(path), target=symbols or "this file", advice=advice)


def state_digest(changed: Mapping[str, tuple[bytes, bytes]]) -> str:
    """Return a digest of files that differ from the start of a session: path -> bytes before and after."""
    lines = (f"{path}\0{sha256(after).hexdigest()}\n" for path, (_, after) in sorted(changed.items()))
    return sha256("".join(lines).encode()).hexdigest()
