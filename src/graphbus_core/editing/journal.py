"""What is about to be written, written down first: one folder per promotion or undo, and its name is its state.

    0001-S001.preparing    nothing has happened yet; temporary files may lie beside the targets
    0001-S001.committing   files are being replaced; all, some or none of them are new
    0001-S001              done: all files are new

A state changes by renaming the folder, which a file system does all or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from graphbus_core.errors import EditError, Place
from graphbus_core.model.config import BuildConfig

Kind = Literal["promote", "undo"]
PREPARING = ".preparing"
COMMITTING = ".committing"


class JournalFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an entry; its bytes before and after lie in `before/` and `after/` under its number in the list."""

    path: str
    sha256_before: str
    sha256_after: str
    proposals: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """journal.json of one promotion or undo.

    Attributes:
        undoes: For an undo, the number of the entry that it takes back.
    """

    number: int
    session: str
    kind: Kind
    files: tuple[JournalFile, ...]
    undoes: int = 0

    @property
    def name(self) -> str:
        """The name of its folder when it is done."""
        return f"{self.number:04d}-{re.sub(r'[^A-Za-z0-9_-]', '_', self.session)}"


class Journal:
    """The entries of one project, oldest first."""

    def __init__(self, config: BuildConfig) -> None:
        self.home = Path(config.artifacts_dir)
        self.folder = self.home / "journal"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process from promoting, undoing and recovering in this project.

        Raises:
            EditError: Another process does so already.
        """
        import fcntl

        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EditError("GBE324", where=Place(str(self.home))) from None
            yield

    def unfinished(self) -> list[Path]:
        """Give the folders of entries that were interrupted."""
        return [path for path in self._folders() if path.suffix in (PREPARING, COMMITTING)]

    def done(self) -> list[Entry]:
        """Give the entries that are done."""
        return [self.read(path) for path in self._folders() if path.suffix not in (PREPARING, COMMITTING)]

    def _folders(self) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.name[:1].isdigit())
        except FileNotFoundError:
            return []

    def next_number(self) -> int:
        """Give the number of the next entry."""
        return max((int(path.name.partition("-")[0]) for path in self._folders()), default=0) + 1

    def read(self, folder: Path) -> Entry:
        """Read journal.json of an entry.

        Raises:
            EditError: It is missing or damaged.
        """
        try:
            return msgspec.json.decode((folder / "journal.json").read_bytes(), type=Entry)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as reason:
            raise EditError("GBE325", where=Place(str(folder)), reason=reason, folder=folder) from None

    def begin(self, entry: Entry, contents: Mapping[str, tuple[bytes, bytes]]) -> Path:
        """Write an entry with the bytes of its files, to the disk and not only to its cache."""
        folder = self.folder / f"{entry.name}{PREPARING}"
        for name in ("before", "after"):
            (folder / name).mkdir(parents=True)
        write_durably(folder / "journal.json", msgspec.json.format(msgspec.json.encode(entry), indent=2))
        for number, file in enumerate(entry.files):
            for name, data in zip(("before", "after"), contents[file.path], strict=True):
                write_durably(folder / name / str(number), data)
        for path in (folder / "before", folder / "after", folder, self.folder, self.home):
            sync_folder(path)
        return folder

    def enter(self, folder: Path, state: str) -> Path:
        """Give an entry another state: `COMMITTING`, `PREPARING` or, empty, done."""
        renamed = folder.with_suffix(state)
        os.rename(folder, renamed)
        sync_folder(self.folder)
        return renamed

    def forget(self, folder: Path) -> None:
        """Remove an entry that has come to nothing."""
        shutil.rmtree(folder)
        sync_folder(self.folder)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file that survives a crash of the machine, once its folder is synchronised too."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
