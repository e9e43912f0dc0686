"""The write-ahead journal of promotions and undos: one folder per entry, with the bytes of each file before and after.

Theory of operation
===================
The name of the folder is the state of the entry:

    0001-S001.preparing    no target has changed; temporary files may lie beside the targets
    0001-S001.committing   targets are being replaced; all, some or none of them are new
    0001-S001              done: all files are new

The state changes by renaming the folder, which file systems do atomically. All bytes are flushed to the disk before the folder
gets its first state. So after a crash the name alone says what recovery must do; `promotion` does it.

An entry is sealed with this user's key, because the journal is part of the project's folder and may come with a clone. An entry
without a valid seal is never acted on. The seal of an interrupted entry must also be for this very folder, because recovery
starts without a request by the user.

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
_MAX_BYTES = 16 * 1024 * 1024
_NOT_READABLE = frozenset({ENOENT, ENOTDIR, EISDIR, ELOOP, EINVAL, ENXIO, EACCES})
"""Errors of opening a path that is no file of GraphBus; any other error is a failure of the disk."""
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
        self._project_path = os.path.realpath(config.root)

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
        return [path for path in self._list_folders(is_done=False) if self._read_entry(path)]

    def foreign(self) -> list[Path]:
        """Return the folders that look like interrupted entries but have no seal of this user for this folder."""
        return [path for path in self._list_folders(is_done=False) if not self._read_entry(path) and path.exists()]

    def done(self, *, is_own: bool = True) -> list[JournalEntry]:
        """Return the entries that are done, oldest first.

        Args:
            is_own: Only those with a valid seal of this user. Others may be read, but must never be acted on.
        """
        return [entry for path in self._list_folders(is_done=True) if (entry := self._read_entry(path, is_own=is_own))]

    def _list_folders(self, *, is_done: bool | None = None) -> list[Path]:
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
        return max((int(path.name.partition("-")[0]) for path in self._list_folders()), default=0) + 1

    def read(self, folder: Path) -> JournalEntry:
        """Read an entry and check its seal.

        Raises:
            EditError: GBE328, it was not sealed here by this user, or has changed since.
        """
        entry = self._read_entry(folder)
        if entry is None:
            raise foreign_entry_error(folder)
        return entry

    def content(self, folder: Path, file: FileChange, number: int, side: _Side) -> bytes:
        """Return the bytes of a file before or after an entry.

        Args:
            folder: The folder of the entry.
            file: The file, as the entry lists it.
            number: The index of the file in the entry.
            side: `"before"` or `"after"`.

        Raises:
            EditError: GBE328, the bytes do not have the digest that the entry records.
        """
        with Folder.at(folder / side) as opened:
            data = opened.read(str(number))
        if sha256(data).hexdigest() != (file.sha256_before if side == "before" else file.sha256_after):
            raise foreign_entry_error(folder)
        return data

    def _read_entry(self, folder: Path, *, is_own: bool = True) -> JournalEntry | None:
        """Return an entry; None if it cannot be decoded, has no valid seal, or names a file that no promotion may change.

        With `is_own` false, any seal is accepted.
        """
        try:
            with Folder.at(folder) as opened:
                data = opened.read(_JOURNAL, _MAX_BYTES)
                if is_own and not self._is_sealed(folder, data, opened.read(_SEAL, _MAX_BYTES)):
                    return None
            entry = msgspec.json.decode(data, type=JournalEntry)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        except OSError as error:
            if error.errno in _NOT_READABLE:
                return None
            raise
        is_valid = entry.name == folder.name.partition(".")[0] and all(is_changeable(file.path) for file in entry.files)
        return entry if is_valid else None

    def _make_seals(self, data: bytes) -> bytes:
        """Return two seals, one per line: one for the project at this path only, one for the project at any path."""
        return f"{seal_of(_PURPOSE, self._project_path, data)}\n{seal_of(_PURPOSE, '', data)}\n".encode()

    def _is_sealed(self, folder: Path, data: bytes, seal: bytes) -> bool:
        """True if an entry has a valid seal: an interrupted one needs both seals of `_make_seals`, others only the second."""
        is_here, is_ours = (
            a == b for a, b in zip_longest(seal.split(b"\n")[:2], self._make_seals(data).split(b"\n")[:2])
        )
        return is_ours and (is_here or not folder.suffix)

    def begin(self, entry: JournalEntry, contents: Mapping[str, tuple[bytes, bytes]]) -> Path:
        """Write an entry in the state PREPARING with the bytes of its files, flush it to the disk, and return its folder.

        Args:
            contents: Path -> bytes before and after.
        """
        making, ready = f".{entry.name}.new", f"{entry.name}{PREPARING}"
        with Folder.at(self.folder, make=True) as journal:
            for name in journal.names():
                if name.startswith("."):  # an entry without a state, which a killed process left
                    journal.remove_tree(name)
            try:
                with journal.folder(making, make=True) as folder:
                    self._write_entry(folder, entry, contents)
                journal.replace(making, ready)
            finally:
                journal.remove_tree(making)
            journal.flush()
        with Folder.at(self.home) as home:
            home.flush()
        return self.folder / ready

    def _write_entry(self, folder: Folder, entry: JournalEntry, contents: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Write the files of an entry into its new folder: the bytes before and after, journal.json and the seal."""
        for side, name in enumerate(("before", "after")):
            with folder.folder(name, make=True) as copies:
                for number, file in enumerate(entry.files):
                    copies.write(str(number), contents[file.path][side])
                copies.flush()
        data = msgspec.json.format(msgspec.json.encode(entry), indent=2)
        folder.write(_JOURNAL, data)
        folder.write(_SEAL, self._make_seals(data))  # this seals all bytes: `data` holds their digests
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
        removed = f".{folder.stem}.old"
        with Folder.at(self.folder) as journal:
            journal.replace(folder.name, removed)  # renamed first: no other process sees a half-removed entry
            journal.remove_tree(removed)
            journal.flush()


def foreign_entry_error(folder: Path) -> EditError:
    """Return GBE328, the error for an entry whose seal is not valid here, or whose content has changed since."""
    return EditError("GBE328", where=Place(str(folder)), folder=folder)


def is_changeable(path: str) -> bool:
    """True for a file that an accepted proposal can change: Python, inside the project, and not protected."""
    plain = PurePosixPath(path)
    is_inside = not plain.is_absolute() and ".." not in plain.parts and str(plain) == path
    return is_inside and path.endswith(".py") and not is_protected(path)


def unchangeable_error(path: str) -> EditError:
    """Return GBE323 for a file that no proposal can change, with the reason."""
    reason, advice = "the project has no such Python file", "Write the path of a Python file of the project."
    if path.startswith("/") or str(PurePosixPath(path)) != path or ".." in path.split("/"):
        reason = "its path is absolute" if path.startswith("/") else "its path contains `.`, `..` or `//`"
        advice = "Write the path relative to the project root, e.g. `agents/orders.py`."
    elif not path.endswith(".py"):
        reason, advice = "it is not a Python file", "Propose changes only to `.py` files."
    elif is_protected(path):
        reason, advice = "it is protected, as tests and settings are", "Leave this file out of the change."
    return EditError("GBE323", where=Place(path), reason=reason, advice=advice)


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
        self._partial = f".{name}.graphbus-tmp"

    def state(self, name: str = "") -> _TargetVersion:
        """Return which version of the file the target is, or the file `name` in its folder if a name is passed.

        `"other"` stands for any other content and for a link.
        """
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
            FileNotFoundError: The target does not exist.
        """
        if self.state(self.beside) == "other":
            place = Place(f"{self._folder.path}/{self.beside}")
            advice = "Move this file to another folder if you need its content, or delete it."
            raise EditError("GBE321", where=place, reason="another program may have saved this file", advice=advice)
        was = self._folder.status(self._name)
        if was is None:
            raise FileNotFoundError(2, "No such file or directory", f"{self._folder.path}/{self._name}")
        self._folder.write(self._partial, data)
        self._folder.set_mode(self._partial, mode=stat.S_IMODE(was.st_mode), owner=(was.st_uid, was.st_gid))
        self._folder.replace(self._partial, self.beside)

    def take_new(self) -> None:
        """Exchange the target with the new version at `beside`.

        Raises:
            EditError: GBE320, a person saved the target at that moment; their version is back in its place.
        """
        if not self._folder.exchange(self.beside, self._name):
            # this file system has no exchange: a version saved since the check is lost
            self._folder.replace(self.beside, self._name)
        elif self.state(self.beside) == "other":
            self.return_displaced()
            raise EditError("GBE320", where=Place(self._file.path))

    def take_old(self, before: bytes) -> bool:
        """Replace the new version by the old bytes; if a person saved the target meanwhile, leave it so and return False."""
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
            True if no such version is left at `beside`; False if the target was saved once more since, so that the earlier
            version stays at `beside`.
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
        """Remove the temporary files of a change that was taken back, except a version that a person saved."""
        self._folder.remove(self._partial)
        if self.state(self.beside) != "other":
            self._folder.remove(self.beside)
