"""Fingerprints of files. They detect later changes of the files, and need not read each file again for that."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from graphbus_core.store.reading import digest_of

_Status = tuple[int, int, int, int]
"""Size, modification time in nanoseconds, inode, time of the last change of any of these.

A program can set the modification time but not the last one. So a file unpacked from an archive is noticed even if it has the
size, the time and by chance the inode of the file before.
"""

ABSENT: _Status = (-1, 0, 0, 0)
_RACY_NS = 50_000_000
"""The resolution of file times. A file that is younger when its status is taken may change again without a new status."""


class FileStatuses(NamedTuple):
    """The status of files at one moment, without their content."""

    taken_ns: int
    files: dict[str, _Status]


def take_statuses(root: str, paths: Iterable[str]) -> FileStatuses:
    """Return the present status of the files at these paths below `root`; it is `ABSENT` for a file that cannot be read."""
    taken_ns = time.time_ns()
    return FileStatuses(taken_ns, {path: _read_status(f"{root}/{path}") for path in paths})


def _read_status(path: str) -> _Status:
    """Return the status of a file; ABSENT if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def _latest_change_ns(status: _Status) -> int:
    """Return the later one of the two times in a status: when the content was modified, and when anything was changed."""
    return max(status[1], status[3])


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """The status and digests of files at one moment. Only files whose status has changed need to be read and compared again.

    Attributes:
        key: Identifies the other inputs of a result, such as settings and version.
        taken_ns: When it was taken, in nanoseconds since the epoch.
        files: Path -> (status, sha256); the sha256 is `""` for a file that cannot be read.
    """

    key: str
    taken_ns: int
    files: dict[str, tuple[_Status, str]]

    @classmethod
    def take(cls, root: str, paths: Iterable[str], key: str = "") -> Fingerprint:
        """Read the files at these paths below `root`, and return their fingerprint."""
        statuses = take_statuses(root, paths)
        return cls.of(statuses, {path: digest_of(os.path.join(root, path)) for path in statuses.files}, key)

    @classmethod
    def of(cls, statuses: FileStatuses, digests: Mapping[str, str], key: str = "") -> Fingerprint:
        """Return the fingerprint with this status and these digests; files without a digest are left out.

        The status must be taken before the digests, so that a change in between is noticed.
        """
        files = {path: (status, digests[path]) for path, status in statuses.files.items() if path in digests}
        return cls(key, statuses.taken_ns, files)

    @property
    def is_racy(self) -> bool:
        """True if a file was so young that its status cannot prove it unchanged later; take the fingerprint again then."""
        return any(_latest_change_ns(status) >= self.taken_ns - _RACY_NS for status, _ in self.files.values())

    def unchanged_digests(self, statuses: FileStatuses) -> dict[str, str]:
        """Return path -> sha256 for the files whose present status proves that they have not changed since the fingerprint."""
        latest_ns = self.taken_ns - _RACY_NS
        known: dict[str, str] = {}
        for path, status in statuses.files.items():
            entry = self.files.get(path)
            if entry is not None and entry[0] == status and _latest_change_ns(status) < latest_ns:
                known[path] = entry[1]
        return known

    def is_current(self, root: str, paths: Iterable[str], key: str = "") -> bool:
        """Return whether the key and all files of the fingerprint are unchanged, and it covers all of `paths`.

        Only files whose status does not prove this are read.
        """
        if key != self.key or any(path not in self.files for path in paths):
            return False
        statuses = take_statuses(root, self.files)
        known = self.unchanged_digests(statuses)
        return all(
            path in known or digest_of(os.path.join(root, path)) == self.files[path][1] for path in statuses.files
        )
