"""Promotion: the accepted changes of a session are written to the project's files, all or none, and can be undone.

Theory of operation
===================
    check targets -> journal entry (PREPARING) -> new files beside the targets -> COMMITTING -> exchange files -> done

The journal holds the bytes of every file before and after, so that `recover` can finish or take back a promotion that a crash,
Ctrl-C or a full disk has interrupted. While an entry is PREPARING no target has changed, and recovery removes the entry. While it
is COMMITTING some targets may be new: if all are, recovery completes the entry; else it gives each target its old bytes back. A
target that is neither as before nor as after was changed by a person; then recovery stops with an error and touches nothing.

Each new file is first written completely to `.NAME.graphbus-new` beside its target. Then the two change places in one system
call (`renameat2` with RENAME_EXCHANGE), where the file system has it. Afterwards the file that was displaced is read: if it is
not what the session started from, a person saved it at that very moment, and the two change places again. So the file beside a
target is always a complete file: the new version, the old one, or one that a person saved. The last is never removed.

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
    unchangeable_error,
)
from graphbus_core.errors import EditError, Place
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange, Proposal
from graphbus_core.store.folders import Folder

Contents = Mapping[str, tuple[bytes, bytes]]
_Fate = Literal["", "written", "undone"]
_WAIT_S = 5.0
"""How long `recover` waits for another process that is promoting."""
_LIST_SESSIONS = "`graphbus inspect-negotiation --sessions` lists all sessions."


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
    """Write the files that a session has changed, all or none, and journal them, so that `undo` can restore them.

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
    with _convert_os_errors(config), journal.locked():
        _recover_locked(config, journal)
        entry = JournalEntry(number=journal.next_number(), session=session, kind="promote", files=files)
        _perform_entry(config, journal, entry, changed)
    return entry.files


def recover(config: ResolvedBuild) -> tuple[Recovered, ...]:
    """Complete or take back promotions and undos that were interrupted, and return them; this is cheap if there are none.

    If another process is promoting just now, wait up to `_WAIT_S` seconds for it: its files must not be read before all are
    written.

    Raises:
        EditError: GBE325, a file is neither as before nor as after the change, and is left alone. GBE324, the other process takes
            too long. GBE328, the seal of an unfinished entry is not valid here; that entry is left alone.
    """
    journal = Journal(config)
    deadline = time.monotonic() + _WAIT_S
    with _convert_os_errors(config):
        while journal.unfinished():
            try:
                with journal.locked():
                    return _recover_locked(config, journal)
            except EditError as error:
                if error.code != "GBE324" or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        _refuse_foreign_entries(journal)
    return ()


def undo(config: ResolvedBuild, session: str = "", *, dry_run: bool = False) -> tuple[FileChange, ...]:
    """Give the files of a session the bytes that they had before it, all or none.

    Args:
        session: The session's name; empty for the last one that was not undone.
        dry_run: Only report what would be done.

    Returns:
        The files, each with its digest now (`before`) and after the undo (`after`).

    Raises:
        EditError: GBE327, there is no such session; GBE326, one of its files was changed since.
    """
    journal = Journal(config)
    last_session(config, session)  # fails before anything is written, even the lock file
    with _convert_os_errors(config), journal.locked():
        if not dry_run:
            _recover_locked(config, journal)
        undone = _find_entry_to_undo(journal, session)
        contents = _contents_for_undo(config, journal, undone)
        files = tuple(FileChange(one.path, one.sha256_after, one.sha256_before, one.proposals) for one in undone.files)
        number = journal.next_number()
        entry = JournalEntry(number=number, session=undone.session, kind="undo", files=files, undoes=undone.number)
        if not dry_run:
            _perform_entry(config, journal, entry, contents)
    return files


def fate_of(config: ResolvedBuild, session: str) -> _Fate:
    """Return `"written"` or `"undone"` for the changes of a session, or `""` if none were written.

    Raises:
        EditError: The journal cannot be read.
    """
    with _convert_os_errors(config):
        entries = Journal(config).done()
    undone = {entry.undoes for entry in entries}
    numbers = [entry.number for entry in entries if entry.kind == "promote" and entry.session == session]
    if not numbers:
        return ""
    return "undone" if numbers[-1] in undone else "written"


def last_session(config: ResolvedBuild, session: str = "") -> str:
    """Return the name of the session that `undo` would undo: the given one, or if it is empty the last that was not undone.

    Raises:
        EditError: GBE327, there is no such session.
    """
    with _convert_os_errors(config):
        return _find_entry_to_undo(Journal(config), session).session


def _find_entry_to_undo(journal: Journal, session: str) -> JournalEntry:
    """Return the last entry of a session (empty: of any) that was not undone, or raise GBE327."""
    entries = journal.done()
    undone = {entry.undoes for entry in entries}
    open_ones = [entry for entry in entries if entry.kind == "promote" and entry.number not in undone]
    found = [entry for entry in open_ones if session in ("", entry.session)]
    if found:
        return found[-1]
    of_session = f" in session {session}" if session else ""
    known = ", ".join(entry.session for entry in open_ones)
    advice = (
        f"Choose a session that can be undone: {known}." if known else "No session has written changes to files yet."
    )
    raise EditError("GBE327", of_session=of_session, advice=f"{advice} {_LIST_SESSIONS}")


def _contents_for_undo(config: ResolvedBuild, journal: Journal, entry: JournalEntry) -> dict[str, tuple[bytes, bytes]]:
    """Return path -> (present bytes, bytes before the entry); raise GBE326 if a file has changed since the entry."""
    contents = {}
    changed = []
    for number, file in enumerate(entry.files):
        now = _read_file(config, file.path)
        before = journal.content(journal.folder / entry.name, file, number, "before")
        if now is None or _digest(now) != file.sha256_after:
            changed.append(file.path)
        else:
            contents[file.path] = (now, before)
    if changed:
        raise EditError("GBE326", where=Place(changed[0]), session=entry.session, paths=", ".join(changed))
    return contents


def _perform_entry(config: ResolvedBuild, journal: Journal, entry: JournalEntry, contents: Contents) -> None:
    """Journal an entry and replace its files on the disk; on any failure all files get their old bytes back.

    The caller holds the lock of the journal. `contents` is path -> bytes before and after. Raise GBE325 if recovery is needed.
    """
    for path, (before, _) in contents.items():
        _check_target(config, path, before)
    is_written = False
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
        is_written = True
    finally:
        if not is_written:  # an exception, Ctrl-C included
            _cancel_entry(config, journal, entry)
    try:
        journal.set_state(folder, "")
    except OSError as reason:
        raise _unfinished_error(folder, str(reason)) from None


def _cancel_entry(config: ResolvedBuild, journal: Journal, entry: JournalEntry) -> None:
    """Restore the files of an entry that `_perform_entry` could not complete, and remove it; raise GBE325 if that fails."""
    folder = journal.folder / f"{entry.name}{COMMITTING}"
    try:
        if folder.exists():
            _roll_back(config, journal, folder)
        if folder.with_suffix(PREPARING).exists():
            _remove_entry(config, journal, folder.with_suffix(PREPARING))
    except OSError as reason:
        raise _unfinished_error(folder, str(reason)) from None


def _unfinished_error(folder: Path, reason: str) -> EditError:
    """Return GBE325 for an entry that can be neither completed nor taken back."""
    return EditError("GBE325", where=Place(str(folder)), reason=reason, folder=folder)


def _recover_locked(config: ResolvedBuild, journal: Journal) -> tuple[Recovered, ...]:
    """Complete or take back all interrupted entries; the caller holds the lock of the journal."""
    ended = tuple(_finish_entry(config, journal, folder) for folder in journal.unfinished())
    _refuse_foreign_entries(journal)
    return ended


def _refuse_foreign_entries(journal: Journal) -> None:
    """Raise GBE328 if an interrupted entry was not sealed here by this user."""
    for folder in journal.foreign():
        raise foreign_entry_error(folder)


def _finish_entry(config: ResolvedBuild, journal: Journal, folder: Path) -> Recovered:
    """Complete an interrupted entry if all its files are new, else take it back; raise GBE325 if a person has changed one."""
    entry = journal.read(folder)
    if folder.suffix == COMMITTING:
        _return_displaced(config, entry, folder)
        if all(_has_new_bytes(config, file) for file in entry.files):
            for file in entry.files:
                with _open_target(config, file) as target:
                    target.clear()
            journal.set_state(folder, "")
            return Recovered(entry, True)
        folder = _roll_back(config, journal, folder)
    _remove_entry(config, journal, folder)
    return Recovered(entry, False)


def _roll_back(config: ResolvedBuild, journal: Journal, folder: Path) -> Path:
    """Give all files that an entry has replaced their old bytes, and return its folder with the state PREPARING.

    Raises:
        EditError: GBE325, a person has changed one of the files since.
    """
    entry = journal.read(folder)
    _return_displaced(config, entry, folder)
    for file in entry.files:  # look at all files before any is touched
        with _open_target(config, file) as target:
            if target.state() == "other" and target.state(target.beside) != "after":
                raise _unfinished_error(folder, f"{file.path} was changed after the interruption")
    for number, file in enumerate(entry.files):
        with _open_target(config, file) as target:
            if target.state() == "after" and not target.take_old(journal.content(folder, file, number, "before")):
                raise _unfinished_error(folder, f"{file.path} was changed after the interruption")
    return journal.set_state(folder, PREPARING)


def _return_displaced(config: ResolvedBuild, entry: JournalEntry, folder: Path) -> None:
    """Put back the versions that a person saved while files were exchanged; raise GBE325 if one cannot be put back."""
    for file in entry.files:
        with _open_target(config, file) as target:
            if not target.return_displaced():
                where = f"{PurePosixPath(file.path).parent}/{target.beside}"
                raise _unfinished_error(
                    folder, f"{where} holds a version that was saved while {file.path} was replaced"
                )


def _remove_entry(config: ResolvedBuild, journal: Journal, folder: Path) -> None:
    """Remove an entry and its temporary files; all its targets must have their old bytes."""
    for file in journal.read(folder).files:
        with suppress(FileNotFoundError), _open_target(config, file) as target:  # its folder may have been removed
            target.remove_temporary()
    journal.remove(folder)


def _check_target(config: ResolvedBuild, path: str, before: bytes) -> None:
    """Raise an EditError for a target that is protected, a link, read-only, or has changed since the session started."""
    if not is_changeable(path):
        raise unchangeable_error(path)
    try:
        if _read_file(config, path) != before:
            raise EditError("GBE320", where=Place(path))
    except OSError as error:
        if error.errno == ELOOP:
            raise EditError("GBE322", where=Place(path)) from None
        raise
    if not os.access(Path(config.root, path), os.W_OK):
        advice = "Correct the permissions of this file."
        raise EditError("GBE321", where=Place(path), reason="it is read-only", advice=advice)


def _read_file(config: ResolvedBuild, path: str) -> bytes | None:
    """Return the bytes of a file of the project; None if it does not exist. Links are not followed, but raise OSError (ELOOP)."""
    try:
        with Folder.at(os.path.realpath(config.root)) as root:
            return root.read(path)
    except FileNotFoundError:
        return None


@contextmanager
def _open_target(config: ResolvedBuild, file: FileChange) -> Iterator[Target]:
    """Yield a file of an entry as a `Target`. Its folder is open meanwhile, so that no other process can redirect the path."""
    above, _, name = file.path.rpartition("/")
    with Folder.at(os.path.realpath(config.root)) as root, root.folder(above or ".") as folder:
        yield Target(folder, name, file)


def _has_new_bytes(config: ResolvedBuild, file: FileChange) -> bool:
    """True if a file on the disk has the bytes that its entry gives it."""
    with suppress(FileNotFoundError), _open_target(config, file) as target:
        return target.state() == "after"
    return False


@contextmanager
def _convert_os_errors(config: ResolvedBuild) -> Iterator[None]:
    """Raise an OSError of the block as an EditError with the path: GBE322 for a link, else GBE321."""
    try:
        yield
    except OSError as failure:
        place = str(failure.filename) if failure.filename else config.artifacts_dir
        if failure.errno == ELOOP:
            raise EditError("GBE322", where=Place(place)) from None
        advice = advise_on(failure, place)
        raise EditError("GBE321", where=Place(place), reason=reason_of(failure), advice=advice) from None


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
