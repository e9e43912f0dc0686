"""Folders of a project, opened without following a link: what is done in one of them stays in it.

A clone may hold links at any place, so that a path is not looked up twice: a folder is opened once, and all names are relative to
it. Each part of a path is opened by itself, relative to the one before it, with O_NOFOLLOW: no part can become a link between a
check and its use.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from errno import EINVAL, EISDIR, ELOOP, EMLINK, ENOSYS, ENOTDIR, EOPNOTSUPP, EPERM
from types import TracebackType

_EXCHANGE = 2
_NO_EXCHANGE = frozenset({ENOSYS, EPERM, EINVAL, EOPNOTSUPP})
"""What a kernel, a jail and a file system say that cannot exchange two names."""


def _exchange(folder: int, one: str, other: str) -> bool:
    """Let two names in a folder change places at once; False where this kernel or this file system cannot do that.

    Raises:
        OSError: One is not there, ...
    """
    try:
        from ctypes import CDLL, get_errno
    except ImportError:  # a Python that was built without
        return False
    rename = getattr(CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    sys.audit("os.rename", one, other, folder, folder)
    if rename(folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE) == 0:
        return True
    error = get_errno()
    if error in _NO_EXCHANGE:
        return False
    raise OSError(error, os.strerror(error), one)


_StrPath = str | os.PathLike[str]
_MOST_BYTES = 256 * 1024 * 1024
"""A larger file below `.graphbus/` is none that GraphBus wrote."""

_HOME = ".graphbus"
_IGNORED = b"# Written by GraphBus: of what is here, only the lock belongs into the repository.\n*\n!negotiation.lock\n"

_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW


def anchored(path: _StrPath) -> str:
    """Give a place that a person has named: links on the way to it are theirs, a link at the place itself is not followed."""
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


class Folder:
    """An open folder. Every name is relative to it; none may be a link, lie behind one or lead out of it.

    Each method raises OSError; a link gives ELOOP.
    """

    def __init__(self, handle: int, path: str) -> None:
        self._handle = handle
        self.path = path

    @classmethod
    def at(cls, path: _StrPath, *, make: bool = False) -> Folder:
        """Open a folder by its whole path, in which no part is a link.

        Args:
            make: Make what is missing of it.
        """
        whole = os.path.abspath(path)
        with cls(os.open(os.sep, _STEP), "") as top:
            return top.folder(whole.strip(os.sep), make=make)

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def folder(self, relative: str, *, make: bool = False) -> Folder:
        """Open a folder below this one."""
        try:
            return Folder(self.open(relative, os.O_RDONLY | os.O_DIRECTORY), self._shown(relative))
        except FileNotFoundError:
            if not make:
                raise
        above, _, name = relative.rpartition("/")
        with self.folder(above or ".", make=True) as parent:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent._handle)
            made = Folder(parent.open(name, os.O_RDONLY | os.O_DIRECTORY), self._shown(relative))
            for each in (parent, made):  # a clone may have the first of them, with the lock in it
                if os.path.basename(each.path) == _HOME:
                    each.ignore()
        return made

    def ignore(self) -> None:
        """Let git leave out what is in this folder, but for the lock; a `.gitignore` that is there stays as it is.

        Where it cannot be written, as by a confined graph, nothing else depends on it.
        """
        with suppress(OSError):
            if self.status(".gitignore") is None:
                self.create(".gitignore", _IGNORED, is_flushed=False)

    def open(self, relative: str, flags: int, mode: int = 0o666) -> int:
        """Open what lies below this folder, and give its descriptor."""
        if ".." in relative.split("/") or relative.startswith("/"):
            raise OSError(EINVAL, "it leads out of its folder", self._shown(relative))
        *above, name = relative.split("/")
        here = os.dup(self._handle)
        try:
            for part in above:
                there = _step(part, _STEP, 0, here)
                os.close(here)
                here = there
            return _step(name, flags | os.O_NOFOLLOW, mode, here)
        except OSError as error:
            why = "it is a link, or lies behind one" if error.errno == ELOOP else error.strerror
            raise OSError(error.errno, why, self._shown(relative)) from None
        finally:
            os.close(here)

    def open_own(self, name: str, mode: int = 0o666) -> int:
        """Open a file of ours for reading and writing, made when it is not there: no pipe, and under no second name elsewhere."""
        handle = self.open(name, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, mode)
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return handle
        os.close(handle)
        raise _odd(self._shown(name))

    def read(self, relative: str, most_bytes: int = _MOST_BYTES) -> bytes:
        """Read a plain file; nothing else is opened for long, and nothing larger is read."""
        handle = self.open(relative, os.O_RDONLY | os.O_NONBLOCK)
        return read_handle(handle, most_bytes, self._shown(relative))

    def write(self, name: str, data: bytes, mode: int = 0o666, *, is_flushed: bool = True) -> None:
        """Write a file in the place of what has this name; it is not there whole at once.

        Args:
            is_flushed: Let it reach the disk before this returns.
        """
        self.remove(name)
        self.create(name, data, mode, is_flushed=is_flushed)

    def create(self, name: str, data: bytes, mode: int = 0o666, *, is_flushed: bool = True) -> None:
        """Write a new file, whole or not at all; FileExistsError when there is something of this name."""
        handle = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        is_whole = False
        try:
            with open(handle, "wb") as file:
                file.write(data)
                if is_flushed:
                    file.flush()
                    os.fsync(handle)
            is_whole = True
        finally:
            if not is_whole:
                self.remove(name)

    def put(self, name: str, data: bytes, *, is_flushed: bool = True) -> None:
        """Replace a file's content so that, whatever happens, it has either the old bytes or the new ones; its mode is kept."""
        known = self.status(name)
        if known and stat.S_ISDIR(known.st_mode):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), self._shown(name))
        if known and not (stat.S_ISREG(known.st_mode) or stat.S_ISLNK(known.st_mode)):
            raise OSError(EINVAL, "it is not a regular file", self._shown(name))
        temporary = f".{name}.{os.getpid()}.tmp"
        try:
            self.write(temporary, data, is_flushed=is_flushed)
            if known and stat.S_ISREG(known.st_mode):
                self.give(temporary, mode=stat.S_IMODE(known.st_mode))
            self.replace(temporary, name)
        finally:
            self.remove(temporary)
        if is_flushed:
            self.flush()

    def give(self, name: str, *, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Give a file its mode, and its owner where that is possible."""
        handle = self.open(name, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if owner:
                with suppress(PermissionError):  # only root may give a file away; otherwise it belongs to who writes
                    os.fchown(handle, *owner)
            os.fchmod(handle, mode)
        finally:
            os.close(handle)

    def status(self, name: str) -> os.stat_result | None:
        """Give what is known of a name in this folder, a link for itself; None when there is nothing."""
        try:
            return os.lstat(name, dir_fd=self._handle)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """Give the names in this folder, sorted."""
        return sorted(os.listdir(self._handle))

    def make(self, name: str) -> None:
        """Make a folder; FileExistsError when there is something of this name."""
        os.mkdir(name, dir_fd=self._handle)

    def replace(self, name: str, other: str) -> None:
        """Rename, in the place of what has the other name."""
        os.replace(name, other, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def exchange(self, name: str, other: str) -> bool:
        """Let two names change places at once; False where the system cannot do that, and nothing has happened."""
        return _exchange(self._handle, name, other)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if there is one."""
        with suppress(FileNotFoundError):
            self.unlink(name)

    def unlink(self, name: str) -> None:
        """Remove a file, or a link itself."""
        os.unlink(name, dir_fd=self._handle)

    def remove_empty(self, name: str) -> None:
        """Remove a folder in which there is nothing."""
        os.rmdir(name, dir_fd=self._handle)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it; a link goes, and what it leads to stays."""
        known = self.status(name)
        if known and stat.S_ISDIR(known.st_mode):
            from shutil import rmtree  # a start without it is faster

            rmtree(name, dir_fd=self._handle)
        elif known:
            self.remove(name)

    def flush(self) -> None:
        """Make the names in this folder survive a crash of the machine."""
        os.fsync(self._handle)

    def _shown(self, relative: str) -> str:
        return os.path.normpath(f"{self.path}/{relative}")


def _step(part: str, flags: int, mode: int, above: int) -> int:
    try:
        return os.open(part, flags, mode, dir_fd=above)
    except OSError as error:
        if error.errno in (ELOOP, ENOTDIR) and stat.S_ISLNK(os.lstat(part, dir_fd=above).st_mode):
            raise OSError(ELOOP, os.strerror(ELOOP)) from None
        raise


def _odd(path: str) -> OSError:
    return OSError(EMLINK, "it is a link, not a regular file, or has another hard link", path)


def read_handle(handle: int, most_bytes: int = _MOST_BYTES, shown: str | None = None) -> bytes:
    """Read and close what was opened, if it is a plain file of at most so many bytes."""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(EINVAL, "it is not a regular file", shown)
    with open(handle, "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(EINVAL, f"it has more than {most_bytes} bytes", shown)
    return data


def read_plain(path: _StrPath, most_bytes: int = _MOST_BYTES) -> bytes:
    """Read a plain file by its whole path; see `Folder.read`."""
    above, name = os.path.split(os.path.abspath(path))
    with Folder.at(above) as folder:
        return folder.read(name, most_bytes)


def make_private(path: _StrPath, companions: tuple[str, ...]) -> None:
    """Make a file that only its owner can read, unless it is there, for a library that then opens it by its name.

    Args:
        companions: What follows on its name in the files that the library makes beside it.

    Raises:
        OSError: It or one of its companions is a link, no plain file, or has another name elsewhere.
    """
    above, name = os.path.split(os.path.abspath(path))
    with Folder.at(above, make=True) as folder:
        for each in (name, *(name + companion for companion in companions)):
            known = folder.status(each)  # not opened: to close it would take SQLite's locks away
            if known and (not stat.S_ISREG(known.st_mode) or known.st_nlink > 1):
                raise _odd(os.path.join(above, each))
        with suppress(FileExistsError):
            os.close(folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
