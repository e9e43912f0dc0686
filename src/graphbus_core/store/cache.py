"""What only saves time, in `.graphbus/cache/`: never trusted to be there or whole, and never written through a link."""

from __future__ import annotations

import os
from contextlib import suppress
from stat import S_ISREG
from typing import IO, TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

CACHE = "cache"
MOST_CACHED_BYTES = 64 * 1024 * 1024
"""A larger entry of the cache is none of ours."""

Entry = TypeVar("Entry", bound=msgspec.Struct)


def write_cache(path: Path, value: Any) -> None:
    """Write a value to the cache. The cache only saves time, so that one that cannot be written is left out."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # never through a link
            file.write(msgspec.msgpack.encode(value))
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading, but follow no link and wait for no pipe.

    Raises:
        OSError: It is not there, a link or a folder.
    """
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK))


def read_cache(path: Path, kind: type[Entry]) -> Entry | None:
    """Read a value from the cache; None when it is missing, damaged, of another shape, too large, or no plain file."""
    try:
        with open_plain(path) as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode) or status.st_size > MOST_CACHED_BYTES:
                return None
            return msgspec.msgpack.decode(file.read(), type=kind)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
