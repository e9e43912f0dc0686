"""The virtual tree of a session: what every agent sees while files on disk stay as they are; and its way to the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change
from graphbus_core.editing.promotion import Recovered, last_session, promote, recover, undo
from graphbus_core.errors import EditError, Place
from graphbus_core.model.proposals import CodeChange, Proposal

__all__ = ["Recovered", "Workspace", "last_session", "promote", "recover", "state_digest", "undo"]


class Workspace:
    """The project as the accepted proposals have made it so far. Only files with an agent in them can change.

    Attributes:
        base: The project that the session started from.
        project: The project as it is now.
        steps: Each commit so far: the id of its proposal, and the bytes that it gave to files.
    """

    def __init__(self, project: Project) -> None:
        self.base = project
        self.project = project
        self.steps: list[tuple[str, dict[str, bytes]]] = []
        self._start = {path: project.source(path).data for path in project.agent_files}
        self._now = dict(self._start)

    def edited(self, changes: Iterable[CodeChange]) -> dict[str, bytes]:
        """Give the new bytes of each file that the changes touch; nothing else happens.

        Raises:
            EditError: A change does not apply, or its file is none with an agent in it.
        """
        fresh: dict[str, bytes] = {}
        for change in changes:
            path = change.file_path
            if path not in self._now:
                raise EditError("GBE323", where=Place(path), path=path)
            fresh[path] = apply_change(fresh.get(path, self._now[path]), change)
        return fresh

    def applied(self, changes: Iterable[CodeChange]) -> Project:
        """Give the project as it would be after the changes.

        Raises:
            EditError: As `edited`.
        """
        return self.project.with_files(self.edited(changes))

    def commit(self, proposal: Proposal) -> None:
        """Make an accepted proposal part of the workspace, all of it or nothing.

        Raises:
            EditError: As `edited`.
        """
        fresh = self.edited(proposal.code_changes)
        self.project = self.project.with_files(fresh)
        self._now.update(fresh)
        self.steps.append((proposal.proposal_id, fresh))

    def merged(self, changes: Iterable[CodeChange]) -> tuple[str, ...]:
        """Give the files in which the changes were written for an earlier text, and are merged into the present one."""
        return ()

    def has(self, path: str) -> bool:
        """Tell whether a file can change here."""
        return path in self._now

    def data(self, path: str) -> bytes:
        """Give the present bytes of a file with an agent in it."""
        return self._now[path]

    def changed(self, trial: Mapping[str, bytes] | None = None) -> dict[str, tuple[bytes, bytes]]:
        """Give the files that differ from the start: path -> bytes at the start, bytes now (or in a trial of `edited`)."""
        now = {**self._now, **(trial or {})}
        return {path: (self._start[path], now[path]) for path in sorted(now) if now[path] != self._start[path]}

    @property
    def digest(self) -> str:
        """The same for the same state of the files, however it was reached."""
        return state_digest(self.changed())


def state_digest(changed: Mapping[str, tuple[bytes, bytes]]) -> str:
    """Digest what differs from the start of a session."""
    lines = (f"{path}\0{sha256(after).hexdigest()}\n" for path, (_, after) in sorted(changed.items()))
    return sha256("".join(lines).encode()).hexdigest()
