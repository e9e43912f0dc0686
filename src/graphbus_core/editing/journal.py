"""What is about to be written, written down first: one folder per promotion or undo, and its name is its state.

    0001-S001.preparing    nothing has happened yet; temporary files may lie beside the targets
    0001-S001.committing   files are being replaced; all, some or none of them are new
    0001-S001              done: all files are new

A state changes by renaming the folder, which a file system does all or not at all. An entry is sealed before it has a state: one
that this user's GraphBus has not written, as in a clone, is never acted on; one that was interrupted elsewhere neither.

`Target` is one file of an entry on the disk, and what lies beside it while it is replaced.
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
"""What opening says of something that GraphBus has not put there; anything else is a failure of the disk."""
_FOLDER = re.compile(r"(\d{4,18})-[A-Za-z0-9_-]+(\.preparing|\.committing)?")


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """journal.json of one promotion or undo.

    Attributes:
        files: The bytes of each before and after lie in `before/` and `after/` under its number in the list.
        undoes: For an undo, the number of the entry that it takes back.
    """

    number: int
    session: str
    kind: _EntryKind
    files: tuple[FileChange, ...]
    undoes: int = 0

    @property
    def name(self) -> str:
        """The name of its folder when it is done."""
        return f"{self.number:04d}-{re.sub(r'[^A-Za-z0-9_-]', '_', self.session)}"


class Journal:
    """The entries of one project, oldest first."""

    def __init__(self, config: ResolvedBuild) -> None:
        self.home = Path(config.artifacts_dir)
        self.folder = self.home / "journal"
        self._place = os.path.realpath(config.root)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process from promoting, undoing and recovering in this project.

        Raises:
            EditError: Another process does so already.
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
        """Give the folders of entries of ours that were interrupted."""
        return [path for path in self._folders(is_done=False) if self._read(path)]

    def foreign(self) -> list[Path]:
        """Give the folders of what looks like an interrupted change, and is none of ours."""
        return [path for path in self._folders(is_done=False) if not self._read(path) and path.exists()]

    def done(self, *, is_own: bool = True) -> list[JournalEntry]:
        """Give the entries of ours that are done; or those of anybody, to read and to compare, never to act on."""
        return [entry for path in self._folders(is_done=True) if (entry := self._read(path, is_own=is_own))]

    def _folders(self, *, is_done: bool | None = None) -> list[Path]:
        try:
            with Folder.at(self.folder) as folder:
                names = folder.names()
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [match for match in map(_FOLDER.fullmatch, names) if match]
        return [self.folder / match[0] for match in found if is_done in (None, match[2] is None)]

    def next_number(self) -> int:
        """Give the number of the next entry."""
        return max((int(path.name.partition("-")[0]) for path in self._folders()), default=0) + 1

    def read(self, folder: Path) -> JournalEntry:
        """Read journal.json of an entry.

        Raises:
            EditError: GBE328, it is not as this user's GraphBus has written it, here.
        """
        entry = self._read(folder)
        if entry is None:
            raise foreign_entry_error(folder)
        return entry

    def content(self, folder: Path, file: FileChange, number: int, side: _Side) -> bytes:
        """Give the bytes of a file before or after an entry.

        Raises:
            EditError: GBE328, they are not those of the entry.
        """
        with Folder.at(folder / side) as opened:
            data = opened.read(str(number))
        if sha256(data).hexdigest() != (file.sha256_before if side == "before" else file.sha256_after):
            raise foreign_entry_error(folder)
        return data

    def _read(self, folder: Path, *, is_own: bool = True) -> JournalEntry | None:
        """Read an entry if its seal is ours, and all that it names may be changed here."""
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
        """Give two lines: the seal for this place, and the one for wherever the project is moved or copied to."""
        return f"{seal_of(_PURPOSE, self._place, data)}\n{seal_of(_PURPOSE, '', data)}\n".encode()

    def _is_sealed(self, folder: Path, data: bytes, seal: bytes) -> bool:
        """Tell whether an entry is ours. What is ended without being asked for must have begun here; an undo is asked for."""
        is_here, is_ours = (a == b for a, b in zip_longest(seal.split(b"\n")[:2], self._seal(data).split(b"\n")[:2]))
        return is_ours and (is_here or not folder.suffix)

    def begin(self, entry: JournalEntry, contents: Mapping[str, tuple[bytes, bytes]]) -> Path:
        """Write an entry with the bytes of its files, to the disk and not only to its cache."""
        making, ready = f".{entry.name}.new", f"{entry.name}{PREPARING}"
        with Folder.at(self.folder, make=True) as journal:
            for name in journal.names():
                if name.startswith("."):  # left by a process that was killed: it has no state, or none any more
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
        folder.write(_SEAL, self._seal(data))  # its digests seal the bytes before and after, too
        folder.flush()

    def enter(self, folder: Path, state: str) -> Path:
        """Give an entry another state: `COMMITTING`, `PREPARING` or, empty, done."""
        renamed = folder.with_suffix(state)
        with Folder.at(self.folder) as journal:
            journal.replace(folder.name, renamed.name)
            journal.flush()
        return renamed

    def forget(self, folder: Path) -> None:
        """Remove an entry that has come to nothing."""
        gone = f".{folder.stem}.old"
        with Folder.at(self.folder) as journal:
            journal.replace(folder.name, gone)  # so that nobody sees a part of it
            journal.remove_tree(gone)
            journal.flush()


def foreign_entry_error(folder: Path) -> EditError:
    """Make the refusal for an entry that this user's GraphBus has not written here, or that was changed since."""
    return EditError("GBE328", where=Place(str(folder)), folder=folder)


def is_changeable(path: str) -> bool:
    """True for what an accepted proposal can have changed: a Python file inside the project, no test and no settings."""
    plain = PurePosixPath(path)
    is_inside = not plain.is_absolute() and ".." not in plain.parts and str(plain) == path
    return is_inside and path.endswith(".py") and not is_protected(path)


_TargetVersion = Literal["before", "after", "other", "missing"]


class Target:
    """A file that is replaced, in its open folder.

    Attributes:
        beside: The name of the file that changes places with it: the new one before, the old one after.
    """

    def __init__(self, folder: Folder, name: str, file: FileChange) -> None:
        self._folder = folder
        self._name = name
        self._file = file
        self.beside = f".{name}.graphbus-new"
        self._unfinished = f".{name}.graphbus-tmp"

    def state(self, name: str = "") -> _TargetVersion:
        """Say which version of the file is there, or beside it."""
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
        """Put a whole file beside this one, with its owner and permissions.

        Raises:
            EditError: Something is there that GraphBus would not know how to make again.
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
        """Let the new file take the place of the old one.

        Raises:
            EditError: GBE320, something else was there at that moment; it is there again.
        """
        if not self._folder.exchange(self.beside, self._name):
            self._folder.replace(self.beside, self._name)  # what is saved between the last look and now is lost
        elif self.state(self.beside) == "other":
            self.return_displaced()
            raise EditError("GBE320", where=Place(self._file.path))

    def take_old(self, before: bytes) -> bool:
        """Let the old bytes take the place of the new file; False when something else was there at that moment, and is again."""
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
        """Give what a person has saved at the last moment its place again.

        Returns:
            False when there is no place for it, because somebody has saved once more: then it stays beside.
        """
        if self.state(self.beside) != "other":
            return True
        if self.state() != "after":
            return False
        self._folder.exchange(self.beside, self._name)
        if self.state(self.beside) == "other":  # the later one is in its place
            self._folder.exchange(self.beside, self._name)
            return False
        self._folder.flush()
        return True

    def clear(self) -> None:
        """Remove the old file; it is looked at once more, as who had it open may have written to it since.

        Raises:
            EditError: GBE320, it is not what it was.
        """
        if self.state(self.beside) == "other":
            self.return_displaced()
            raise EditError("GBE320", where=Place(self._file.path))
        self._folder.remove(self.beside)
        self._folder.flush()

    def remove_temporary(self) -> None:
        """Remove what was made for a change that came to nothing, and nothing that anybody else has written."""
        self._folder.remove(self._unfinished)
        if self.state(self.beside) != "other":
            self._folder.remove(self.beside)
