"""From the virtual workspace to the disk and back: all files or none, whatever interrupts it.

preflight -> journal -> new files beside the targets -> COMMITTING -> exchange, look at what was displaced -> done

A new file and its target change places, where the system can do that. What was there, and may be what a person has saved at that
very moment, is beside the target then, and goes back if it is not what the session started from. What lies beside a target, as
`.NAME.graphbus-new`, is always a whole file: the new one, the old one, or a person's; only the first two are ever removed.
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

from graphbus_core.editing.journal import COMMITTING, PREPARING, Entry, Journal, Target, is_changeable, not_ours
from graphbus_core.errors import EditError, Place
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange, Proposal
from graphbus_core.store.beneath import Folder

Contents = Mapping[str, tuple[bytes, bytes]]
_Fate = Literal["", "written", "undone"]
_WAIT_S = 5.0
"""How long `recover` waits for another process that is promoting."""


class Recovered(NamedTuple):
    """An interrupted promotion or undo brought to its end: `is_completed` if its files are new, else they are as before."""

    entry: Entry
    is_completed: bool

    @property
    def told(self) -> str:
        """What to tell a person."""
        state = "completed" if self.is_completed else "taken back"
        return f"An interrupted {self.entry.kind} of {self.entry.session} was {state}."


def promote(
    config: ResolvedBuild, changed: Contents, session: str, proposals: Iterable[Proposal] = ()
) -> tuple[FileChange, ...]:
    """Write files that a session has changed, all or none, and keep what is needed to undo it.

    Args:
        changed: Relative path -> the bytes that the session started from, and the new ones.
        session: Its name, for the journal.
        proposals: The accepted ones; each file is marked with those that touch it.

    Raises:
        EditError: A file is no longer what the session started from, is a link, or cannot be written; nothing was changed.
    """
    if not changed:
        return ()
    authors = list(proposals)
    files = tuple(
        FileChange(path, _digest(old), _digest(new), tuple(one.proposal_id for one in authors if path in one.files))
        for path, (old, new) in sorted(changed.items())
    )
    journal = Journal(config)
    with _refusing(config), journal.locked():
        _recover(config, journal)
        entry = Entry(number=journal.next_number(), session=session, kind="promote", files=files)
        _write(config, journal, entry, changed)
    return entry.files


def recover(config: ResolvedBuild) -> tuple[Recovered, ...]:
    """End what an earlier process left unfinished: complete it if all its files are new, else take it back.

    Cheap when there is nothing to do. While another process is at work on it, wait: files in between are nobody's to read.

    Raises:
        EditError: A file is neither as before nor as after; it is left alone. Or the other process takes too long. GBE328, there
            is what looks like an interrupted change, and this user's GraphBus has not written it here: nothing is done.
    """
    journal = Journal(config)
    deadline = time.monotonic() + _WAIT_S
    with _refusing(config):
        while journal.unfinished():
            try:
                with journal.locked():
                    return _recover(config, journal)
            except EditError as error:
                if error.code != "GBE324" or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        _refuse_foreign(journal)
    return ()


def undo(config: ResolvedBuild, session: str = "", *, dry_run: bool = False) -> tuple[FileChange, ...]:
    """Give the files of a session the bytes that they had before it, all or none.

    Args:
        session: Its name; empty: the last one that was not undone.
        dry_run: Say what would be done, and do nothing.

    Returns:
        The files, each from the session's bytes back to those before it.

    Raises:
        EditError: There is no such session, or one of its files was changed since.
    """
    journal = Journal(config)
    last_session(config, session)  # refused before anything is written, the lock file included
    with _refusing(config), journal.locked():
        if not dry_run:
            _recover(config, journal)
        undone = _to_undo(journal, session)
        contents = _reversed_contents(config, journal, undone)
        files = tuple(FileChange(one.path, one.sha256_after, one.sha256_before, one.proposals) for one in undone.files)
        number = journal.next_number()
        entry = Entry(number=number, session=undone.session, kind="undo", files=files, undoes=undone.number)
        if not dry_run:
            _write(config, journal, entry, contents)
    return files


def fate_of(config: ResolvedBuild, session: str) -> _Fate:
    """Say whether the changes of a session were written, and whether they were undone since.

    Raises:
        EditError: The journal cannot be read.
    """
    with _refusing(config):
        entries = Journal(config).done()
    undone = {entry.undoes for entry in entries}
    numbers = [entry.number for entry in entries if entry.kind == "promote" and entry.session == session]
    if not numbers:
        return ""
    return "undone" if numbers[-1] in undone else "written"


def last_session(config: ResolvedBuild, session: str = "") -> str:
    """Give the session that `undo` would undo.

    Raises:
        EditError: There is none.
    """
    with _refusing(config):
        return _to_undo(Journal(config), session).session


def _to_undo(journal: Journal, session: str) -> Entry:
    """Give the last entry of the session, or of all sessions, that was not undone."""
    entries = journal.done()
    undone = {entry.undoes for entry in entries}
    open_ones = [entry for entry in entries if entry.kind == "promote" and entry.number not in undone]
    found = [entry for entry in open_ones if session in ("", entry.session)]
    if found:
        return found[-1]
    of_session = f" in session {session}" if session else ""
    raise EditError("GBE327", of_session=of_session, known=", ".join(entry.session for entry in open_ones) or "none")


def _reversed_contents(config: ResolvedBuild, journal: Journal, entry: Entry) -> dict[str, tuple[bytes, bytes]]:
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


def _write(config: ResolvedBuild, journal: Journal, entry: Entry, contents: Contents) -> None:
    """Bring the files of an entry to the disk; on any failure everything is as before."""
    for path, (before, _) in contents.items():
        _check_target(config, path, before)
    has_landed = False
    try:
        folder = journal.begin(entry, contents)
        for file in entry.files:
            with _opened(config, file) as target:
                target.put_beside(contents[file.path][1])
        folder = journal.enter(folder, COMMITTING)
        for file in entry.files:
            _check_target(config, file.path, contents[file.path][0])
            with _opened(config, file) as target:
                target.take_new()
        for file in entry.files:
            with _opened(config, file) as target:
                target.clear()
        has_landed = True
    finally:
        if not has_landed:  # a failure, or Ctrl-C
            _take_back(config, journal, entry)
    try:
        journal.enter(folder, "")
    except OSError as reason:
        raise _unfinished(folder, str(reason)) from None


def _take_back(config: ResolvedBuild, journal: Journal, entry: Entry) -> None:
    """Undo what an entry has done so far."""
    folder = journal.folder / f"{entry.name}{COMMITTING}"
    try:
        if folder.exists():
            _roll_back(config, journal, folder)
        if folder.with_suffix(PREPARING).exists():
            _clean_up(config, journal, folder.with_suffix(PREPARING))
    except OSError as reason:
        raise _unfinished(folder, str(reason)) from None


def _unfinished(folder: Path, reason: str) -> EditError:
    return EditError("GBE325", where=Place(str(folder)), reason=reason, folder=folder)


def _recover(config: ResolvedBuild, journal: Journal) -> tuple[Recovered, ...]:
    ended = tuple(_finish(config, journal, folder) for folder in journal.unfinished())
    _refuse_foreign(journal)
    return ended


def _refuse_foreign(journal: Journal) -> None:
    for folder in journal.foreign():
        raise not_ours(folder)


def _finish(config: ResolvedBuild, journal: Journal, folder: Path) -> Recovered:
    entry = journal.read(folder)
    if folder.suffix == COMMITTING:
        _return_displaced(config, entry, folder)
        if all(_is_new(config, file) for file in entry.files):
            for file in entry.files:
                with _opened(config, file) as target:
                    target.clear()
            journal.enter(folder, "")
            return Recovered(entry, True)
        folder = _roll_back(config, journal, folder)
    _clean_up(config, journal, folder)
    return Recovered(entry, False)


def _roll_back(config: ResolvedBuild, journal: Journal, folder: Path) -> Path:
    """Give every file that this entry has replaced its old bytes; one that somebody has changed since then stops it."""
    entry = journal.read(folder)
    _return_displaced(config, entry, folder)
    for file in entry.files:
        with _opened(config, file) as target:
            if target.state() == "other" and target.state(target.beside) != "after":
                raise _unfinished(folder, f"{file.path} was changed after the interruption")
    for number, file in enumerate(entry.files):
        with _opened(config, file) as target:
            if target.state() == "after" and not target.take_old(journal.content(folder, file, number, "before")):
                raise _unfinished(folder, f"{file.path} was changed after the interruption")
    return journal.enter(folder, PREPARING)


def _return_displaced(config: ResolvedBuild, entry: Entry, folder: Path) -> None:
    for file in entry.files:
        with _opened(config, file) as target:
            if not target.return_displaced():
                where = f"{PurePosixPath(file.path).parent}/{target.beside}"
                raise _unfinished(folder, f"{where} holds what was saved while {file.path} was replaced")


def _clean_up(config: ResolvedBuild, journal: Journal, folder: Path) -> None:
    """Remove an entry that has changed nothing, with its temporary files."""
    for file in journal.read(folder).files:
        with suppress(FileNotFoundError), _opened(config, file) as target:  # its folder may have gone meanwhile
            target.remove_temporary()
    journal.forget(folder)


def _check_target(config: ResolvedBuild, path: str, before: bytes) -> None:
    """Refuse a target that is a link, is read-only or is not what the session started from."""
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
def _opened(config: ResolvedBuild, file: FileChange) -> Iterator[Target]:
    above, _, name = file.path.rpartition("/")
    with Folder.at(os.path.realpath(config.root)) as root, root.folder(above or ".") as folder:
        yield Target(folder, name, file)


def _is_new(config: ResolvedBuild, file: FileChange) -> bool:
    with suppress(FileNotFoundError), _opened(config, file) as target:
        return target.state() == "after"
    return False


@contextmanager
def _refusing(config: ResolvedBuild) -> Iterator[None]:
    """Turn a failure of the file system into a refusal."""
    try:
        yield
    except OSError as failure:
        place = str(failure.filename) if failure.filename else config.artifacts_dir
        if failure.errno == ELOOP:
            raise EditError("GBE322", where=Place(place)) from None
        raise EditError("GBE321", where=Place(place), reason=failure.strerror or str(failure)) from None


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
