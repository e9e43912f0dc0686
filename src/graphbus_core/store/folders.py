"""Folders of a project, opened without following symbolic links, so that no operation leads out of them.

Theory of operation. A cloned project may contain links anywhere, and another process may replace a folder by a link between a
check and its use. So a path is never resolved twice: each part is opened relative to the descriptor of the one before it, with
O_NOFOLLOW, and every later operation names a file relative to the open folder (`dir_fd`).
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
"""Errors from a kernel, sandbox or file system without RENAME_EXCHANGE."""


def _exchange_names(folder: int, one: str, other: str) -> bool:
    """Swap two names in an open folder atomically; return False, without a change, if the kernel or file system cannot do that.

    Raises:
        OSError: The swap failed, for instance because one of the names does not exist.
    """
    try:
        from ctypes import CDLL, get_errno
    except ImportError:  # a Python without ctypes
        return False
    # Python has no function for renameat2.
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
"""The limit for files that are read; GraphBus writes none that is larger."""

_HOME = ".graphbus"
_IGNORED = b"# Written by GraphBus: of what is here, only the lock belongs into the repository.\n*\n!negotiation.lock\n"

_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW


def resolve_parent(path: _StrPath) -> str:
    """Return the absolute path without links in its parent folders; its last part may be one. For paths that a user has typed."""
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


class Folder:
    """An open folder; use it in a `with` statement. All names are relative to it and must not lead through a link or out of it.

    Every method may raise OSError, with ELOOP for a link.

    Args:
        handle: The descriptor of the folder, which the object closes.
        path: The path of the folder, for messages.
    """

    def __init__(self, handle: int, path: str) -> None:
        self._handle = handle
        self.path = path

    @classmethod
    def at(cls, path: _StrPath, *, make: bool = False) -> Folder:
        """Open a folder by its absolute path, in which no part may be a link.

        Args:
            path: The path.
            make: Create the folders that do not exist.
        """
        whole = os.path.abspath(path)
        with cls(os.open(os.sep, _FOLDER_FLAGS), "") as top:
            return top.folder(whole.strip(os.sep), make=make)

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def folder(self, relative: str, *, make: bool = False) -> Folder:
        """Open a folder below this one. With `make`, missing folders are created, and a `.graphbus` gets a `.gitignore`."""
        try:
            return Folder(self.open(relative, os.O_RDONLY | os.O_DIRECTORY), self._full_path(relative))
        except FileNotFoundError:
            if not make:
                raise
        above, _, name = relative.rpartition("/")
        with self.folder(above or ".", make=True) as parent:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent._handle)
            made = Folder(parent.open(name, os.O_RDONLY | os.O_DIRECTORY), self._full_path(relative))
            for each in (parent, made):  # the parent too: a clone may contain `.graphbus` with only the lock in it
                if os.path.basename(each.path) == _HOME:
                    each.ignore()
        return made

    def ignore(self) -> None:
        """Write a `.gitignore` that excludes everything but the lock, unless there is one.

        An error is ignored: a confined graph may not write here, and nothing depends on the file.
        """
        with suppress(OSError):
            if self.status(".gitignore") is None:
                self.create(".gitignore", _IGNORED, is_flushed=False)

    def open(self, relative: str, flags: int, mode: int = 0o666) -> int:
        """Open a file or folder below this one, and return its descriptor, which the caller must close.

        `flags` and `mode` are those of `os.open`; a link is never followed.
        """
        if ".." in relative.split("/") or relative.startswith("/"):
            raise OSError(EINVAL, "it leads out of its folder", self._full_path(relative))
        *above, name = relative.split("/")
        folder = os.dup(self._handle)
        try:
            for part in above:
                next_folder = _open_part(part, _FOLDER_FLAGS, 0, folder)
                os.close(folder)
                folder = next_folder
            return _open_part(name, flags | os.O_NOFOLLOW, mode, folder)
        except OSError as error:
            why = "the path is or contains a symbolic link" if error.errno == ELOOP else error.strerror
            raise OSError(error.errno, why, self._full_path(relative)) from None
        finally:
            os.close(folder)

    def open_own(self, name: str, mode: int = 0o666) -> int:
        """Open a file for reading and writing, created if missing; return its descriptor. OSError if it has another hard link."""
        handle = self.open(name, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, mode)
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return handle
        os.close(handle)
        raise _link_error(self._full_path(name))

    def read(self, relative: str, most_bytes: int = _MOST_BYTES) -> bytes:
        """Return the content of a regular file; OSError if it is something else or larger than `most_bytes`."""
        handle = self.open(relative, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would otherwise wait for a writer
        return read_handle(handle, most_bytes, self._full_path(relative))

    def write(self, name: str, data: bytes, mode: int = 0o666, *, is_flushed: bool = True) -> None:
        """Remove the file or link with this name, if there is one, and write a new file. Not atomic; see `write_atomic`.

        Args:
            name: The file.
            data: Its content.
            mode: Its permissions, before the umask.
            is_flushed: Call fsync before returning.
        """
        self.remove(name)
        self.create(name, data, mode, is_flushed=is_flushed)

    def create(self, name: str, data: bytes, mode: int = 0o666, *, is_flushed: bool = True) -> None:
        """Write a new file, and remove it if that fails; FileExistsError if the name is taken. Arguments as for `write`."""
        handle = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        is_complete = False
        try:
            with open(handle, "wb") as file:
                file.write(data)
                if is_flushed:
                    file.flush()
                    os.fsync(handle)
            is_complete = True
        finally:
            if not is_complete:
                self.remove(name)

    def write_atomic(self, name: str, data: bytes, *, is_flushed: bool = True) -> None:
        """Write a file so that it has either the old or the new content after a crash. The mode of an existing file is kept.

        A link is replaced itself, not its target. OSError if the name is that of a folder, pipe or device.
        """
        present = self.status(name)
        if present and stat.S_ISDIR(present.st_mode):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), self._full_path(name))
        if present and not (stat.S_ISREG(present.st_mode) or stat.S_ISLNK(present.st_mode)):
            raise OSError(EINVAL, "it is not a regular file", self._full_path(name))
        temporary = f".{name}.{os.getpid()}.tmp"
        try:
            self.write(temporary, data, is_flushed=is_flushed)
            if present and stat.S_ISREG(present.st_mode):
                self.set_mode(temporary, mode=stat.S_IMODE(present.st_mode))
            self.replace(temporary, name)
        finally:
            self.remove(temporary)
        if is_flushed:
            self.flush()

    def set_mode(self, name: str, *, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Set the mode of a file, and if the system permits its owner `(uid, gid)`; None: the owner stays."""
        handle = self.open(name, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if owner:
                with suppress(PermissionError):  # only root may change the owner
                    os.fchown(handle, *owner)
            os.fchmod(handle, mode)
        finally:
            os.close(handle)

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a file or folder, of a link that of the link itself; None if the name does not exist."""
        try:
            return os.lstat(name, dir_fd=self._handle)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """Return the sorted names in this folder."""
        return sorted(os.listdir(self._handle))

    def make(self, name: str) -> None:
        """Create a folder; FileExistsError if the name is taken."""
        os.mkdir(name, dir_fd=self._handle)

    def replace(self, name: str, other: str) -> None:
        """Rename `name` to `other`, replacing a file of that name."""
        os.replace(name, other, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def exchange(self, name: str, other: str) -> bool:
        """Swap two names atomically; False, and no change, where the system cannot do that."""
        return _exchange_names(self._handle, name, other)

    def remove(self, name: str) -> None:
        """Remove a file or link, if it exists."""
        with suppress(FileNotFoundError):
            self.unlink(name)

    def unlink(self, name: str) -> None:
        """Remove a file or link; FileNotFoundError if it does not exist."""
        os.unlink(name, dir_fd=self._handle)

    def remove_empty(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=self._handle)

    def remove_tree(self, name: str) -> None:
        """Remove a folder with its content, a file, or a link but not its target. Does nothing if the name does not exist."""
        present = self.status(name)
        if present and stat.S_ISDIR(present.st_mode):
            from shutil import rmtree  # imported here because it slows every start

            rmtree(name, dir_fd=self._handle)
        elif present:
            self.remove(name)

    def flush(self) -> None:
        """Call fsync on the folder, so that new names in it survive a crash of the machine."""
        os.fsync(self._handle)

    def _full_path(self, relative: str) -> str:
        """Return the path of a name in this folder, for error messages."""
        return os.path.normpath(f"{self.path}/{relative}")


def _open_part(part: str, flags: int, mode: int, above: int) -> int:
    """Open one part of a path in the open folder `above`, and return its descriptor; raise OSError with ELOOP for a link."""
    try:
        return os.open(part, flags, mode, dir_fd=above)
    except OSError as error:
        # with O_DIRECTORY, a link is reported as ENOTDIR
        if error.errno in (ELOOP, ENOTDIR) and stat.S_ISLNK(os.lstat(part, dir_fd=above).st_mode):
            raise OSError(ELOOP, os.strerror(ELOOP)) from None
        raise


def _link_error(path: str) -> OSError:
    """Return the error for a file that is a link, not a regular file, or has another hard link."""
    return OSError(EMLINK, "it is a link, not a regular file, or has another hard link", path)


def read_handle(handle: int, most_bytes: int = _MOST_BYTES, shown: str | None = None) -> bytes:
    """Return the content of an open file, and close its descriptor; OSError if it is not a regular file or too large.

    `shown` is the path in the error; None: the error has no path.
    """
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(EINVAL, "it is not a regular file", shown)
    with open(handle, "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(EINVAL, f"it has more than {most_bytes} bytes", shown)
    return data


def read_plain(path: _StrPath, most_bytes: int = _MOST_BYTES) -> bytes:
    """Return the content of a regular file by its path, in which no part may be a link; OSError as `Folder.read`."""
    above, name = os.path.split(os.path.abspath(path))
    with Folder.at(above) as folder:
        return folder.read(name, most_bytes)


def make_private(path: _StrPath, companions: tuple[str, ...]) -> None:
    """Create an empty file with permissions for its owner only, unless it exists. A library then opens it by its name.

    Args:
        path: The file.
        companions: Suffixes of the files that the library creates beside it, such as `-wal`.

    Raises:
        OSError: The file or one of its companions is a link, not a regular file, or has another hard link.
    """
    above, name = os.path.split(os.path.abspath(path))
    with Folder.at(above, make=True) as folder:
        for each in (name, *(name + companion for companion in companions)):
            present = folder.status(each)  # not opened: closing any descriptor of a file releases SQLite's locks on it
            if present and (not stat.S_ISREG(present.st_mode) or present.st_nlink > 1):
                raise _link_error(os.path.join(above, each))
        with suppress(FileExistsError):
            os.close(folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
