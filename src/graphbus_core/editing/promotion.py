"""Promotion: the accepted changes of a session are written to the project's files, all or none, and can be undone.

Theory of operation
===================
    check targets -> journal entry (PREPARING) -> new files beside the targets -> COMMITTING -> exchange files -> done

The journal holds the bytes of every file before and after, so that `recover` can finish or take back a promotion that a crash,
Ctrl-C or a full disk has interrupted. While an entry is PREPARING no target has changed, and recovery removes the entry. While it
is COMMITTING some targets may be new: if all are, recovery completes the entry; else it gives each target its old bytes back. A
target that is neither as before nor as after was changed by a person; then recovery stops with an error and touches nothing.

Each new file is first written completely to `.NAME.graphbus-new` beside its target. Then the two change places in one system
call (`renameat2` with RENAME_EXCHANGE), where the file system has it. The exchanged file is looked at afterwards: if it is not
what the session started from, a person saved it at that very moment, and the two change places again. So what lies beside a
target is always a whole file: the new one, the old one or a person's. Only the first two are ever removed.

An undo is a promotion in the other direction, with a journal entry of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import ELOOP
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from graphbus_core.editing.journal import (
    COMMITTING,
    PREPARING,
    Journal,
    JournalEntry,
    Target,
    foreign_entry_error,
    is_changeable,
)
from graphbus_core.errors import EditError, Place
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange, Proposal
from graphbus_core.store.folders import Folder

Contents = Mapping[str, tuple[bytes, bytes]]
_Fate = Literal["", "written", "undone"]
_WAIT_S = 5.0
"""How long `recover` waits for another process that is promoting."""


class Recovered(NamedTuple):
    """An interrupted promotion or undo that was ended: completed (`is_completed`: all its files are new) or taken back."""

    entry: JournalEntry
    is_completed: bool

    @property
    def sentence(self) -> str:
        """What was done, for the user."""
        state = "completed" if self.is_completed else "taken back"
        return f"An interrupted {self.entry.kind} of {self.entry.session} was {state}."


def promote(
    config: ResolvedBuild, changed: Contents, session: str, proposals: Iterable[Proposal] = ()
) -> tuple[FileChange, ...]:
    """Write the files that a session has changed, all or none, and keep what is needed to undo it.

    Args:
        changed: Relative path -> the bytes that the session started from, and the new bytes.
        session: The session's name, for the journal.
        proposals: The accepted proposals; each file is recorded with the ids of those that change it.

    Raises:
        EditError: A file has changed since the session started, is a link, or cannot be written. Nothing was changed.
    """
    if not changed:
        return ()
    authors = list(proposals)
    files = tuple(
        FileChange(path, _digest(old), _digest(new), tuple(one.proposal_id for one in authors if path in one.files))
        for path, (old, new) in sorted(changed.items())
    )
    journal = Journal(config)
    with _as_edit_errors(config), journal.locked():
        _recover_locked(config, journal)
        entry = JournalEntry(number=journal.next_number(), session=session, kind="promote", files=files)
        _write_entry(config, journal, entry, changed)
    return entry.files


def recover(config: ResolvedBuild) -> tuple[Recovered, ...]:
    """Complete or take back what an earlier process left unfinished; cheap if there is nothing to do.

    If another process is promoting just now, wait for it: its files must not be read half-way.

    Raises:
        EditError: A file is neither as before nor as after the change, and is left alone; or the other process takes too long.
            GBE328, an unfinished entry was not written here by this user's GraphBus, and nothing is done.
    """
    journal = Journal(config)
    deadline = time.monotonic() + _WAIT_S
    with _as_edit_errors(config):
        while journal.unfinished():
            try:
                with journal.locked():
                    return _recover_locked(config, journal)
            except EditError as error:
                if error.code != "GBE324" or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        _refuse_foreign(journal)
    return ()


def undo(config: ResolvedBuild, session: str = "", *, dry_run: bool = False) -> tuple[FileChange, ...]:
    """Give the files of a session the bytes that they had before it, all or none.

    Args:
        session: The session's name; empty for the last one that was not undone.
        dry_run: Only report what would be done.

    Returns:
        The files, each with its digest now (`before`) and after the undo (`after`).

    Raises:
        EditError: There is no such session, or one of its files was changed since.
    """
    journal = Journal(config)
    last_session(config, session)  # fails before anything is written, even the lock file
    with _as_edit_errors(config), journal.locked():
        if not dry_run:
            _recover_locked(config, journal)
        undone = _to_undo(journal, session)
        contents = _reversed_contents(config, journal, undone)
        files = tuple(FileChange(one.path, one.sha256_after, one.sha256_before, one.proposals) for one in undone.files)
        number = journal.next_number()
        entry = JournalEntry(number=number, session=undone.session, kind="undo", files=files, undoes=undone.number)
        if not dry_run:
            _write_entry(config, journal, entry, contents)
    return files


def fate_of(config: ResolvedBuild, session: str) -> _Fate:
    """Return `"written"` or `"undone"` for the changes of a session, or `""` if none were written.

    Raises:
        EditError: The journal cannot be read.
    """
    with _as_edit_errors(config):
        entries = Journal(config).done()
    undone = {entry.undoes for entry in entries}
    numbers = [entry.number for entry in entries if entry.kind == "promote" and entry.session == session]
    if not numbers:
        return ""
    return "undone" if numbers[-1] in undone else "written"


def last_session(config: ResolvedBuild, session: str = "") -> str:
    """Return the name of the session that `undo` would undo.

    Raises:
        EditError: There is none.
    """
    with _as_edit_errors(config):
        return _to_undo(Journal(config), session).session


def _to_undo(journal: Journal, session: str) -> JournalEntry:
    """Return the last entry of a session (empty: of any) that was not undone, or raise GBE327."""
    entries = journal.done()
    undone = {entry.undoes for entry in entries}
    open_ones = [entry for entry in entries if entry.kind == "promote" and entry.number not in undone]
    found = [entry for entry in open_ones if session in ("", entry.session)]
    if found:
        return found[-1]
    of_session = f" in session {session}" if session else ""
    raise EditError("GBE327", of_session=of_session, known=", ".join(entry.session for entry in open_ones) or "none")


def _reversed_contents(config: ResolvedBuild, journal: Journal, entry: JournalEntry) -> dict[str, tuple[bytes, bytes]]:
    """Return path -> present bytes and bytes before an entry; GBE326 if a file has changed since."""
    contents = {}
    drifted = []
    for number, file in enumerate(entry.files):
        now = _read(config, file.path)
        before = journal.content(journal.folder / entry.name, file, number, "before")
        if now is None or _digest(now) != file.sha256_after:
            drifted.append(file.path)
        else:
            contents[file.path] = (now, before)
    if drifted:
        raise EditError("GBE326", where=Place(drifted[0]), session=entry.session, paths=", ".join(drifted))
    return contents


def _write_entry(config: ResolvedBuild, journal: Journal, entry: JournalEntry, contents: Contents) -> None:
    """Write the files of an entry to the disk; on any failure all files are as before."""
    for path, (before, _) in contents.items():
        _check_target(config, path, before)
    has_landed = False
    try:
        folder = journal.begin(entry, contents)
        for file in entry.files:
            with _open_target(config, file) as target:
                target.put_beside(contents[file.path][1])
        folder = journal.set_state(folder, COMMITTING)
        for file in entry.files:
            _check_target(config, file.path, contents[file.path][0])
            with _open_target(config, file) as target:
                target.take_new()
        for file in entry.files:
            with _open_target(config, file) as target:
                target.clear()
        has_landed = True
    finally:
        if not has_landed:  # a failure, or Ctrl-C
            _take_back(config, journal, entry)
    try:
        journal.set_state(folder, "")
    except OSError as reason:
        raise _unfinished_error(folder, str(reason)) from None


def _take_back(config: ResolvedBuild, journal: Journal, entry: JournalEntry) -> None:
    """Undo what `_write_entry` has done so far for an entry."""
    folder = journal.folder / f"{entry.name}{COMMITTING}"
    try:
        if folder.exists():
            _roll_back(config, journal, folder)
        if folder.with_suffix(PREPARING).exists():
            _clean_up(config, journal, folder.with_suffix(PREPARING))
    except OSError as reason:
        raise _unfinished_error(folder, str(reason)) from None


def _unfinished_error(folder: Path, reason: str) -> EditError:
    return EditError("GBE325", where=Place(str(folder)), reason=reason, folder=folder)


def _recover_locked(config: ResolvedBuild, journal: Journal) -> tuple[Recovered, ...]:
    """Complete or take back all interrupted entries; the caller holds the lock of the journal."""
    ended = tuple(_finish_entry(config, journal, folder) for folder in journal.unfinished())
    _refuse_foreign(journal)
    return ended


def _refuse_foreign(journal: Journal) -> None:
    """Raise GBE328 if an interrupted entry was not sealed here by this user."""
    for folder in journal.foreign():
        raise foreign_entry_error(folder)


def _finish_entry(config: ResolvedBuild, journal: Journal, folder: Path) -> Recovered:
    """Complete an interrupted entry if all its files are new, else take it back."""
    entry = journal.read(folder)
    if folder.suffix == COMMITTING:
        _return_displaced(config, entry, folder)
        if all(_is_new(config, file) for file in entry.files):
            for file in entry.files:
                with _open_target(config, file) as target:
                    target.clear()
            journal.set_state(folder, "")
            return Recovered(entry, True)
        folder = _roll_back(config, journal, folder)
    _clean_up(config, journal, folder)
    return Recovered(entry, False)


def _roll_back(config: ResolvedBuild, journal: Journal, folder: Path) -> Path:
    """Give every file that an entry has replaced its old bytes; raise GBE325 if a person has changed one since."""
    entry = journal.read(folder)
    _return_displaced(config, entry, folder)
    for file in entry.files:
        with _open_target(config, file) as target:
            if target.state() == "other" and target.state(target.beside) != "after":
                raise _unfinished_error(folder, f"{file.path} was changed after the interruption")
    for number, file in enumerate(entry.files):
        with _open_target(config, file) as target:
            if target.state() == "after" and not target.take_old(journal.content(folder, file, number, "before")):
                raise _unfinished_error(folder, f"{file.path} was changed after the interruption")
    return journal.set_state(folder, PREPARING)


def _return_displaced(config: ResolvedBuild, entry: JournalEntry, folder: Path) -> None:
    """Put back the versions that a person saved while files were exchanged; raise GBE325 if one cannot be."""
    for file in entry.files:
        with _open_target(config, file) as target:
            if not target.return_displaced():
                where = f"{PurePosixPath(file.path).parent}/{target.beside}"
                raise _unfinished_error(
                    folder, f"{where} holds a version that was saved while {file.path} was replaced"
                )


def _clean_up(config: ResolvedBuild, journal: Journal, folder: Path) -> None:
    """Remove an entry that has changed no target, with its temporary files."""
    for file in journal.read(folder).files:
        with suppress(FileNotFoundError), _open_target(config, file) as target:  # its folder may have gone meanwhile
            target.remove_temporary()
    journal.remove(folder)


def _check_target(config: ResolvedBuild, path: str, before: bytes) -> None:
    """Raise EditError for a target that is a link, is read-only or has changed since the session started."""
    if not is_changeable(path):
        raise EditError("GBE323", where=Place(path), path=path)
    try:
        if _read(config, path) != before:
            raise EditError("GBE320", where=Place(path))
    except OSError as error:
        if error.errno == ELOOP:
            raise EditError("GBE322", where=Place(path)) from None
        raise
    if not os.access(Path(config.root, path), os.W_OK):
        raise EditError("GBE321", where=Place(path), reason="it is read-only")


def _read(config: ResolvedBuild, path: str) -> bytes | None:
    try:
        with Folder.at(os.path.realpath(config.root)) as root:
            return root.read(path)
    except FileNotFoundError:
        return None


@contextmanager
def _open_target(config: ResolvedBuild, file: FileChange) -> Iterator[Target]:
    """Open the folder of a file without following links; no other process can then redirect the path."""
    above, _, name = file.path.rpartition("/")
    with Folder.at(os.path.realpath(config.root)) as root, root.folder(above or ".") as folder:
        yield Target(folder, name, file)


def _is_new(config: ResolvedBuild, file: FileChange) -> bool:
    with suppress(FileNotFoundError), _open_target(config, file) as target:
        return target.state() == "after"
    return False


@contextmanager
def _as_edit_errors(config: ResolvedBuild) -> Iterator[None]:
    """Turn an OSError of the block into an EditError with the path."""
    try:
        yield
    except OSError as failure:
        place = str(failure.filename) if failure.filename else config.artifacts_dir
        if failure.errno == ELOOP:
            raise EditError("GBE322", where=Place(place)) from None
        raise EditError("GBE321", where=Place(place), reason=failure.strerror or str(failure)) from None


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
