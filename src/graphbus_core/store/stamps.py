"""Stamps of files, which tell what has changed since they were taken."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from graphbus_core.store.reading import digest_of

_Status = tuple[int, int, int, int]
"""Size, modification time in nanoseconds, inode, time of the last change of any of these.

The last one cannot be set: an archive may bring a file with the size and the time of another one, and find its inode free.
"""

ABSENT: _Status = (-1, 0, 0, 0)
_RACY_NS = 50_000_000
"""A file written so shortly before it was looked at may have been written again within the clock's resolution."""


class FileStatuses(NamedTuple):
    """The status of files at one moment, without their content."""

    taken_ns: int
    files: dict[str, _Status]


def take_statuses(root: str, paths: Iterable[str]) -> FileStatuses:
    """FileStatuses at the files at these paths below `root`."""
    taken_ns = time.time_ns()
    return FileStatuses(taken_ns, {path: _status(f"{root}/{path}") for path in paths})


def _status(path: str) -> _Status:
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def _newest(status: _Status) -> int:
    return max(status[1], status[3])


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """Files as they were at one moment. The digests decide; the status only saves reading a file again.

    Attributes:
        key: What else the result rests on: settings, version, what was asked for.
        taken_ns: When it was taken.
        files: Path -> status and sha256, `""` for a file that cannot be read.
    """

    key: str
    taken_ns: int
    files: dict[str, tuple[_Status, str]]

    @classmethod
    def take(cls, root: str, paths: Iterable[str], key: str = "") -> Fingerprint:
        """Read the files at these paths below `root`."""
        look = take_statuses(root, paths)
        return cls.of(look, {path: digest_of(os.path.join(root, path)) for path in look.files}, key)

    @classmethod
    def of(cls, look: FileStatuses, digests: Mapping[str, str], key: str = "") -> Fingerprint:
        """Join the status of files with their digests; the look must have come first."""
        files = {path: (status, digests[path]) for path, status in look.files.items() if path in digests}
        return cls(key, look.taken_ns, files)

    @property
    def is_racy(self) -> bool:
        """True when a file had been written so shortly before that its status cannot vouch for it."""
        return any(_newest(status) >= self.taken_ns - _RACY_NS for status, _ in self.files.values())

    def unchanged_digests(self, look: FileStatuses) -> dict[str, str]:
        """Give path -> sha256 of the files that surely did not change between the fingerprint and the look."""
        latest_ns = self.taken_ns - _RACY_NS
        known: dict[str, str] = {}
        for path, status in look.files.items():
            entry = self.files.get(path)
            if entry is not None and entry[0] == status and _newest(status) < latest_ns:
                known[path] = entry[1]
        return known

    def is_current(self, root: str, paths: Iterable[str], key: str = "") -> bool:
        """True when the key and all files are what they were, and `paths` names none that was not looked at."""
        if key != self.key or any(path not in self.files for path in paths):
            return False
        look = take_statuses(root, self.files)
        known = self.unchanged_digests(look)
        return all(path in known or digest_of(os.path.join(root, path)) == self.files[path][1] for path in look.files)
