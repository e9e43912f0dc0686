"""The virtual tree of a session: what every agent sees while files on disk stay as they are; and its way to the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from hashlib import sha256

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change
from graphbus_core.editing.merge import merge
from graphbus_core.errors import EditError, Place
from graphbus_core.model.proposals import CodeChange, Proposal

_OVERTAKEN = frozenset({"GBE301", "GBE302", "GBE303", "GBE307", "GBE308", "GBE310", "GBE314"})
"""What an edit says when its file is not the one that it was written for."""


class _EditedFiles:
    """What changes make of the present state: the bytes of files, those that are merged, and the project once it is asked for."""

    def __init__(self, files: dict[str, bytes], merged: tuple[str, ...]) -> None:
        self.files = files
        self.merged = merged
        self.project: Project | None = None


class Workspace:
    """The project as the accepted proposals have made it so far. Only files with an agent, or a base of one, can change.

    A change that fits an earlier state of its file in this session and not the present one is applied there and merged.

    Attributes:
        base: The project that the session started from.
        project: The project as it is now.
        steps: Each commit so far: the id of its proposal, and the bytes that it gave to files.
    """

    def __init__(self, project: Project) -> None:
        self.base = project
        self.project = project
        self.steps: list[tuple[str, dict[str, bytes]]] = []
        self._start = {path: project.source(path).data for path in project.editable}
        self._now = dict(self._start)
        self._trials: dict[object, _EditedFiles] = {}  # on the present state
        self._past: dict[str, list[bytes]] = {}  # path -> its earlier states, the newest last

    def preview_files(self, changes: Iterable[CodeChange]) -> dict[str, bytes]:
        """Give the new bytes of each file that the changes touch; nothing else happens.

        Raises:
            EditError: A change does not apply, or its file is none with an agent in it; GBE317 and GBE318, it fits an earlier
                state of the file and contradicts what was accepted since.
        """
        return dict(self._tried(changes).files)

    def merged_paths(self, changes: Iterable[CodeChange]) -> tuple[str, ...]:
        """Give the files in which the changes were written for an earlier text, and are merged into the present one.

        Raises:
            EditError: As `preview_files`.
        """
        return self._tried(changes).merged

    def _tried(self, changes: Iterable[CodeChange]) -> _EditedFiles:
        """Make the changes, once for each state of the workspace: gate, judges and commit ask for the same."""
        by_path: dict[str, list[CodeChange]] = {}
        for change in changes:
            by_path.setdefault(change.file_path, []).append(change)
        key = tuple((path, self._now.get(path), *own) for path, own in by_path.items())
        found = self._trials.get(key)
        if found is None:
            done = {path: self._edited_file(path, own) for path, own in by_path.items()}
            files = {path: data for path, (data, _) in done.items()}
            found = self._trials[key] = _EditedFiles(files, tuple(sorted(path for path in done if done[path][1])))
        return found

    def _edited_file(self, path: str, changes: list[CodeChange]) -> tuple[bytes, bool]:
        """Give the new bytes of a file, and whether they are merged."""
        if path not in self._now:
            raise EditError("GBE323", where=Place(path), path=path)
        try:
            return _with_changes(self._now[path], changes), False
        except EditError as error:
            wished = self._in_the_past(path, changes) if error.code in _OVERTAKEN else None
            if wished is None:
                raise
        return _merged(path, wished[0], self._now[path], wished[1]), True

    def _in_the_past(self, path: str, changes: list[CodeChange]) -> tuple[bytes, bytes] | None:
        """Give the newest earlier state of a file that the changes fit, and what they make of it."""
        for base in reversed(self._past.get(path, ())):
            with suppress(EditError):
                return base, _with_changes(base, changes)
        return None

    def preview_project(self, changes: Iterable[CodeChange]) -> Project:
        """Give the project as it would be after the changes.

        Raises:
            EditError: As `preview_files`.
        """
        tried = self._tried(changes)
        tried.project = tried.project or self.project.with_files(tried.files)
        return tried.project

    def commit(self, proposal: Proposal) -> None:
        """Make an accepted proposal part of the workspace, all of it or nothing.

        Raises:
            EditError: As `preview_files`.
        """
        fresh = self.preview_files(proposal.code_changes)
        self.project = self.preview_project(proposal.code_changes)
        self._trials = {}
        for path in fresh:
            self._past.setdefault(path, []).append(self._now[path])
        self._now.update(fresh)
        self.steps.append((proposal.proposal_id, fresh))

    def look_ahead(self, proposals: Iterable[Proposal]) -> None:
        """Make the projects that come about if these are committed in this order: each keeps the one that follows it.

        Nothing of the workspace changes. It is worth while where time passes anyway until the commits are decided on.
        """
        ahead = copy(self)
        ahead.steps, ahead._now = [], dict(self._now)
        ahead._past = {path: list(states) for path, states in self._past.items()}
        for proposal in proposals:
            with suppress(EditError):
                ahead.commit(proposal)

    def can_change(self, path: str) -> bool:
        """Tell whether a file can change here."""
        return path in self._now

    def file_data(self, path: str) -> bytes:
        """Give the present bytes of a file with an agent in it."""
        return self._now[path]

    def changed_files(self, trial: Mapping[str, bytes] | None = None) -> dict[str, tuple[bytes, bytes]]:
        """Give the files that differ from the start: path -> bytes at the start, bytes now (or in a trial of `preview_files`)."""
        now = {**self._now, **(trial or {})}
        return {path: (self._start[path], now[path]) for path in sorted(now) if now[path] != self._start[path]}

    @property
    def digest(self) -> str:
        """The same for the same state of the files, however it was reached."""
        return state_digest(self.changed_files())


def _with_changes(data: bytes, changes: Iterable[CodeChange]) -> bytes:
    for change in changes:
        data = apply_change(data, change)
    return data


def _merged(path: str, base: bytes, ours: bytes, theirs: bytes) -> bytes:
    result = merge(base, ours, theirs)
    if result.data is not None:
        return result.data
    if not result.conflicts:
        raise EditError("GBE318", where=Place(path), reason=result.reason)
    symbols = ", ".join(dict.fromkeys(conflict.symbol for conflict in result.conflicts if conflict.symbol))
    accepted = result.conflicts[0].ours.strip() or "nothing: it was deleted"
    raise EditError("GBE317", where=Place(path), target=symbols or "this file", accepted=accepted)


def state_digest(changed: Mapping[str, tuple[bytes, bytes]]) -> str:
    """Digest what differs from the start of a session."""
    lines = (f"{path}\0{sha256(after).hexdigest()}\n" for path, (_, after) in sorted(changed.items()))
    return sha256("".join(lines).encode()).hexdigest()
