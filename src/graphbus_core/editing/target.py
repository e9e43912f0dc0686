"""One file of a promotion on the disk, and what lies beside it while it is replaced."""

from __future__ import annotations

import stat
from errno import ELOOP
from hashlib import sha256
from typing import Literal

from graphbus_core.editing.journal import JournalFile
from graphbus_core.errors import EditError, Place
from graphbus_core.store.beneath import Folder

State = Literal["before", "after", "other", "missing"]


class Target:
    """A file that is replaced, in its open folder.

    Attributes:
        beside: The name of the file that changes places with it: the new one before, the old one after.
    """

    def __init__(self, folder: Folder, name: str, file: JournalFile) -> None:
        self._folder = folder
        self._name = name
        self._file = file
        self.beside = f".{name}.graphbus-new"
        self._unfinished = f".{name}.graphbus-tmp"

    def state(self, name: str = "") -> State:
        """Say which version of the file is there, or beside it."""
        try:
            digest = sha256(self._folder.read(name or self._name)).hexdigest()
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            if error.errno != ELOOP:
                raise
            return "other"
        known: dict[str, State] = {self._file.sha256_before: "before", self._file.sha256_after: "after"}
        return known.get(digest, "other")

    def put_beside(self, data: bytes) -> None:
        """Put a whole file beside this one, with its owner and permissions.

        Raises:
            EditError: Something is there that GraphBus would not know how to make again.
        """
        if self.state(self.beside) == "other":
            place = Place(f"{self._folder.path}/{self.beside}")
            raise EditError("GBE321", where=place, reason="What is here may be what somebody has saved")
        was = self._folder.status(self._name)
        if was is None:
            raise FileNotFoundError(2, "No such file or directory", f"{self._folder.path}/{self._name}")
        self._folder.write(self._unfinished, data)
        self._folder.give(self._unfinished, mode=stat.S_IMODE(was.st_mode), owner=(was.st_uid, was.st_gid))
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
