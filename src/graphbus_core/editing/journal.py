"""The write-ahead journal of promotions and undos: one folder per entry, with the bytes of each file before and after.

Theory of operation
===================
The name of the folder is the state of the entry:

    0001-S001.preparing    no target has changed; temporary files may lie beside the targets
    0001-S001.committing   targets are being replaced; all, some or none of them are new
    0001-S001              done: all files are new

The state changes by renaming the folder, which file systems do atomically. All bytes are flushed to the disk before the folder
gets its first state. So after a crash the name alone says what recovery must do; `promotion` does it.

An entry is sealed with this user's key, because the journal is part of the project's folder and may come with a clone. One
that this user's GraphBus has not sealed is never acted on. An interrupted entry must also have been started in this very folder,
because recovery acts on it without being asked.

`Target` is one file of an entry on the disk, and the temporary file beside it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EACCES, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from graphbus_core.editing.rungs.scope import is_protected
from graphbus_core.errors import EditError, Place
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import FileChange
from graphbus_core.store.cache import seal_of
from graphbus_core.store.folders import Folder

_EntryKind = Literal["promote", "undo"]
_Side = Literal["before", "after"]
PREPARING = ".preparing"
COMMITTING = ".committing"
_JOURNAL, _SEAL = "journal.json", "seal"
_PURPOSE = "journal"
_MOST_BYTES = 16 * 1024 * 1024
_NO_FILE = frozenset({ENOENT, ENOTDIR, EISDIR, ELOOP, EINVAL, ENXIO, EACCES})
"""Errors of opening something that GraphBus has not written; any other error is a failure of the disk."""
_FOLDER = re.compile(r"(\d{4,18})-[A-Za-z0-9_-]+(\.preparing|\.committing)?")


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One promotion or undo, as it is written in journal.json.

    Attributes:
        number: From 1, in the order of the entries.
        kind: `"promote"` or `"undo"`.
        files: The changed files. Their bytes lie in `before/` and `after/`, each under its index in this list.
        undoes: For an undo, the number of the entry that it takes back.
    """

    number: int
    session: str
    kind: _EntryKind
    files: tuple[FileChange, ...]
    undoes: int = 0

    @property
    def name(self) -> str:
        """The name of the entry's folder in the state done."""
        return f"{self.number:04d}-{re.sub(r'[^A-Za-z0-9_-]', '_', self.session)}"


class Journal:
    """The journal of one project, in `.graphbus/journal`."""

    def __init__(self, config: ResolvedBuild) -> None:
        self.home = Path(config.artifacts_dir)
        self.folder = self.home / "journal"
        self._place = os.path.realpath(config.root)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the journal against other processes that promote, undo or recover in this project.

        Raises:
            EditError: GBE324, another process holds the lock.
        """
        import fcntl

        with Folder.at(self.home, make=True) as home:
            lock = home.open_own("lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise EditError("GBE324", where=Place(str(self.home))) from None
        finally:
            os.close(lock)

    def unfinished(self) -> list[Path]:
        """Return the folders of interrupted entries that were sealed here by this user."""
        return [path for path in self._folders(is_done=False) if self._read(path)]

    def foreign(self) -> list[Path]:
        """Return the folders that look like interrupted entries but were not sealed here by this user."""
        return [path for path in self._folders(is_done=False) if not self._read(path) and path.exists()]

    def done(self, *, is_own: bool = True) -> list[JournalEntry]:
        """Return the entries that are done, oldest first.

        Args:
            is_own: Only those that this user's GraphBus has sealed. Others may be read, but must never be acted on.
        """
        return [entry for path in self._folders(is_done=True) if (entry := self._read(path, is_own=is_own))]

    def _folders(self, *, is_done: bool | None = None) -> list[Path]:
        """Return the folders of entries that are done, of interrupted ones, or of all (None)."""
        try:
            with Folder.at(self.folder) as folder:
                names = folder.names()
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [match for match in map(_FOLDER.fullmatch, names) if match]
        return [self.folder / match[0] for match in found if is_done in (None, match[2] is None)]

    def next_number(self) -> int:
        """Return the number of the next entry."""
        return max((int(path.name.partition("-")[0]) for path in self._folders()), default=0) + 1

    def read(self, folder: Path) -> JournalEntry:
        """Read an entry.

        Raises:
            EditError: GBE328, it was not sealed here by this user, or has changed since.
        """
        entry = self._read(folder)
        if entry is None:
            raise foreign_entry_error(folder)
        return entry

    def content(self, folder: Path, file: FileChange, number: int, side: _Side) -> bytes:
        """Return the bytes of a file before or after an entry.

        Args:
            number: Its index in the entry.
            side: `"before"` or `"after"`.

        Raises:
            EditError: GBE328, the bytes do not have the digest that the entry says.
        """
        with Folder.at(folder / side) as opened:
            data = opened.read(str(number))
        if sha256(data).hexdigest() != (file.sha256_before if side == "before" else file.sha256_after):
            raise foreign_entry_error(folder)
        return data

    def _read(self, folder: Path, *, is_own: bool = True) -> JournalEntry | None:
        """Read an entry; None if its seal is not valid here, or if it names a file that no promotion may change."""
        try:
            with Folder.at(folder) as opened:
                data = opened.read(_JOURNAL, _MOST_BYTES)
                if is_own and not self._is_sealed(folder, data, opened.read(_SEAL, _MOST_BYTES)):
                    return None
            entry = msgspec.json.decode(data, type=JournalEntry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
        is_whole = entry.name == folder.name.partition(".")[0] and all(is_changeable(file.path) for file in entry.files)
        return entry if is_whole else None

    def _seal(self, data: bytes) -> bytes:
        """Return two seals, one per line: one is valid in this folder only, the other wherever the project is moved to."""
        return f"{seal_of(_PURPOSE, self._place, data)}\n{seal_of(_PURPOSE, '', data)}\n".encode()

    def _is_sealed(self, folder: Path, data: bytes, seal: bytes) -> bool:
        """True if an entry has a valid seal. An interrupted one needs that of this folder: recovery acts without being asked."""
        is_here, is_ours = (a == b for a, b in zip_longest(seal.split(b"\n")[:2], self._seal(data).split(b"\n")[:2]))
        return is_ours and (is_here or not folder.suffix)

    def begin(self, entry: JournalEntry, contents: Mapping[str, tuple[bytes, bytes]]) -> Path:
        """Write an entry in the state PREPARING, with the bytes of its files, and flush it to the disk."""
        making, ready = f".{entry.name}.new", f"{entry.name}{PREPARING}"
        with Folder.at(self.folder, make=True) as journal:
            for name in journal.names():
                if name.startswith("."):  # left by a killed process: an entry without a state
                    journal.remove_tree(name)
            try:
                with journal.folder(making, make=True) as folder:
                    self._fill(folder, entry, contents)
                journal.replace(making, ready)
            finally:
                journal.remove_tree(making)
            journal.flush()
        with Folder.at(self.home) as home:
            home.flush()
        return self.folder / ready

    def _fill(self, folder: Folder, entry: JournalEntry, contents: Mapping[str, tuple[bytes, bytes]]) -> None:
        for side, name in enumerate(("before", "after")):
            with folder.folder(name, make=True) as copies:
                for number, file in enumerate(entry.files):
                    copies.write(str(number), contents[file.path][side])
                copies.flush()
        data = msgspec.json.format(msgspec.json.encode(entry), indent=2)
        folder.write(_JOURNAL, data)
        folder.write(_SEAL, self._seal(data))  # `data` holds the digests of all bytes, so that these are sealed too
        folder.flush()

    def set_state(self, folder: Path, state: str) -> Path:
        """Change the state of an entry to `COMMITTING`, `PREPARING` or `""` (done); return its new folder."""
        renamed = folder.with_suffix(state)
        with Folder.at(self.folder) as journal:
            journal.replace(folder.name, renamed.name)
            journal.flush()
        return renamed

    def remove(self, folder: Path) -> None:
        """Remove an entry that was taken back."""
        gone = f".{folder.stem}.old"
        with Folder.at(self.folder) as journal:
            journal.replace(folder.name, gone)  # renamed first: no other process sees a half-removed entry
            journal.remove_tree(gone)
            journal.flush()


def foreign_entry_error(folder: Path) -> EditError:
    """Return the error for an entry that this user's GraphBus has not written here, or that was changed since."""
    return EditError("GBE328", where=Place(str(folder)), folder=folder)


def is_changeable(path: str) -> bool:
    """True for a file that an accepted proposal can change: Python, inside the project, and not protected."""
    plain = PurePosixPath(path)
    is_inside = not plain.is_absolute() and ".." not in plain.parts and str(plain) == path
    return is_inside and path.endswith(".py") and not is_protected(path)


_TargetVersion = Literal["before", "after", "other", "missing"]


class Target:
    """A file that is being replaced. Its folder is open, so that the path cannot be redirected meanwhile.

    Attributes:
        beside: The name of the temporary file that changes places with the target; it holds the new version before the
            exchange and the old one after.
    """

    def __init__(self, folder: Folder, name: str, file: FileChange) -> None:
        self._folder = folder
        self._name = name
        self._file = file
        self.beside = f".{name}.graphbus-new"
        self._unfinished = f".{name}.graphbus-tmp"

    def state(self, name: str = "") -> _TargetVersion:
        """Return which version the target, or the file `name` in its folder, is; a link counts as `"other"`."""
        try:
            digest = sha256(self._folder.read(name or self._name)).hexdigest()
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            if error.errno != ELOOP:
                raise
            return "other"
        known: dict[str, _TargetVersion] = {self._file.sha256_before: "before", self._file.sha256_after: "after"}
        return known.get(digest, "other")

    def put_beside(self, data: bytes) -> None:
        """Write a version of the file to `beside`, with the owner and permissions of the target.

        Raises:
            EditError: GBE321, a file is there that is neither the old nor the new version.
        """
        if self.state(self.beside) == "other":
            place = Place(f"{self._folder.path}/{self.beside}")
            raise EditError("GBE321", where=place, reason="another program may have saved this file")
        was = self._folder.status(self._name)
        if was is None:
            raise FileNotFoundError(2, "No such file or directory", f"{self._folder.path}/{self._name}")
        self._folder.write(self._unfinished, data)
        self._folder.set_mode(self._unfinished, mode=stat.S_IMODE(was.st_mode), owner=(was.st_uid, was.st_gid))
        self._folder.replace(self._unfinished, self.beside)

    def take_new(self) -> None:
        """Exchange the target with the new version beside it.

        Raises:
            EditError: GBE320, a person saved the target at that moment; their version is back in its place.
        """
        if not self._folder.exchange(self.beside, self._name):
            self._folder.replace(self.beside, self._name)  # no exchange: a version saved since the check is lost
        elif self.state(self.beside) == "other":
            self.return_displaced()
            raise EditError("GBE320", where=Place(self._file.path))

    def take_old(self, before: bytes) -> bool:
        """Replace the new version by the old bytes; False if a person saved the target meanwhile: then it stays as saved."""
        if self.state(self.beside) != "before":
            self.put_beside(before)
        if not self._folder.exchange(self.beside, self._name):
            self._folder.replace(self.beside, self._name)
        elif self.state(self.beside) == "other":
            self._folder.exchange(self.beside, self._name)
            return False
        self._folder.flush()
        return True

    def return_displaced(self) -> bool:
        """Put a version that a person saved during the exchange back into its place.

        Returns:
            False if the target was saved once more since; then the earlier version stays at `beside`.
        """
        if self.state(self.beside) != "other":
            return True
        if self.state() != "after":
            return False
        self._folder.exchange(self.beside, self._name)
        if self.state(self.beside) == "other":  # saved once more just now: exchange again, the latest version stays
            self._folder.exchange(self.beside, self._name)
            return False
        self._folder.flush()
        return True

    def clear(self) -> None:
        """Remove the old version at `beside`, unless a program that still had it open has written to it.

        Raises:
            EditError: GBE320, it was written to; it is back in its place.
        """
        if self.state(self.beside) == "other":
            self.return_displaced()
            raise EditError("GBE320", where=Place(self._file.path))
        self._folder.remove(self.beside)
        self._folder.flush()

    def remove_temporary(self) -> None:
        """Remove the temporary files of a change that was taken back, but no file that a person has written."""
        self._folder.remove(self._unfinished)
        if self.state(self.beside) != "other":
            self._folder.remove(self.beside)
