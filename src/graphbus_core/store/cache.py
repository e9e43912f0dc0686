"""What only saves time, in `.graphbus/cache/`: never trusted to be there or whole, and never written through a link.

An entry is its seal and its content. One that this user's GraphBus has not written, for this place, is as good as none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from graphbus_core.store.beneath import Folder, read_handle
from graphbus_core.store.seals import seal_of

if TYPE_CHECKING:
    from pathlib import Path

CACHE = "cache"
MOST_CACHED_BYTES = 64 * 1024 * 1024
"""A larger entry of the cache is none of ours."""
_PURPOSE = "cache"
_SEAL_BYTES = 64

Entry = TypeVar("Entry", bound=msgspec.Struct)


def write_cache(path: Path, value: Any, place: str | None = None) -> None:
    """Write a value to the cache. The cache only saves time, so that one that cannot be written is left out.

    Args:
        place: What the entry belongs to; by default its path: in another place it is worth nothing.
    """
    data = msgspec.msgpack.encode(value)
    seal = seal_of(_PURPOSE, _place_of(path, place), data).encode()
    with suppress(OSError), Folder.at(path.parent, make=True) as folder:
        folder.put(path.name, seal + data, is_flushed=False)


def read_cache(path: Path, kind: type[Entry], place: str | None = None) -> Entry | None:
    """Read a value from the cache; None when it is missing, damaged, of another shape, too large, or not sealed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        data = read_handle(handle, MOST_CACHED_BYTES)
        if data[:_SEAL_BYTES] != seal_of(_PURPOSE, _place_of(path, place), data[_SEAL_BYTES:]).encode():
            return None
        return msgspec.msgpack.decode(memoryview(data)[_SEAL_BYTES:], type=kind)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _place_of(path: Path, place: str | None) -> str:
    return os.path.realpath(path) if place is None else place
