"""`graphbus check --fix`: safe changes only, pass after pass until nothing is left to mend."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import apply_change
from graphbus_core.editing.journal import JournalFile, Target
from graphbus_core.errors import EditError, Place, raise_all
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding, Fix
from graphbus_core.model.proposals import CodeChange
from graphbus_core.store.beneath import Folder

_MOST_PASSES = 50


class Choice(NamedTuple):
    """What to look for, from the command line."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


class Mended(NamedTuple):
    """What `--fix` came to.

    Attributes:
        project: The project with all changes.
        fixed: Each finding that was mended, with its change.
        files: Path -> bytes before and after.
    """

    project: Project
    fixed: tuple[tuple[Finding, Fix], ...]
    files: dict[str, tuple[bytes, bytes]]


def mend(project: Project, choice: Choice, only: Collection[str] | None = None) -> Mended:
    """Apply every safe fix to the project in memory; nothing is written.

    Args:
        project: What was read.
        choice: Which rules count.
        only: The paths whose findings are mended; None: all.
    """
    state, fixed = project, list[tuple[Finding, Fix]]()
    for _ in range(_MOST_PASSES):
        found = rules.check(state, select=choice.select, ignore=choice.ignore)
        safe = [each for each in found if each.is_fix_safe and (only is None or each.span.path in only)]
        step = _Pass(state)
        fixed += [(finding, fix) for finding in safe if (fix := step.take(finding)) is not None]
        if not step.files:
            break
        state = state.with_files(step.files)
    changed = sorted({change.file_path for _, fix in fixed for change in fix.changes})
    files = {path: (project.source(path).data, state.source(path).data) for path in changed}
    return Mended(state, tuple(fixed), files)


class _Pass:
    """The fixes of one round, each symbol changed by one of them at most: all were made for the same text."""

    def __init__(self, state: Project) -> None:
        self.files: dict[str, bytes] = {}
        self._state = state
        self._touched: set[tuple[str, str]] = set()

    def take(self, finding: Finding) -> Fix | None:
        """Apply the fix of a finding, unless its place was changed in this round already."""
        fix = rules.fix_for(finding, self._state)
        if fix is None or any(self._is_touched(change) for change in fix.changes):
            return None
        for change in fix.changes:
            if change.operation == "add_import" and (change.file_path, change.new_code) in self._touched:
                continue
            data = self.files.get(change.file_path) or self._state.source(change.file_path).data
            self.files[change.file_path] = apply_change(data, change)
            self._touched.add((change.file_path, change.target or change.new_code))
        return fix

    def _is_touched(self, change: CodeChange) -> bool:
        return bool(change.target) and any(
            path == change.file_path and _is_around(name, change.target) for path, name in self._touched
        )


def _is_around(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def write(mended: Mended) -> None:
    """Write the changed files, each one whole or not at all.

    Raises:
        EditError: A file cannot be written, or has changed since it was read; the others are written.
    """
    root = Path(mended.project.config.root)
    failures: list[EditError] = []
    for path, (before, after) in mended.files.items():
        try:
            _write_one(root, path, before, after)
        except EditError as error:
            failures.append(EditError("GBE330", where=Place(path)) if error.code == "GBE320" else error)
        except OSError as error:
            failures.append(EditError("GBE321", where=Place(path), reason=error.strerror or str(error)))
    raise_all(failures)


def _write_one(root: Path, path: str, before: bytes, after: bytes) -> None:
    """Write a file; of one that a link inside the project leads to, the file itself."""
    place = (root / path).resolve()
    if not place.is_relative_to(root.resolve()):
        raise EditError("GBE322", where=Place(path))
    file = JournalFile(path=path, sha256_before=sha256_hex(before), sha256_after=sha256_hex(after))
    with Folder.at(place.parent) as folder:
        target = Target(folder, place.name, file)
        if folder.read(place.name) != before:
            raise EditError("GBE330", where=Place(path))
        try:
            target.put_beside(after)
            target.take_new()
            target.clear()
        finally:
            target.remove_temporary()
