"""What only saves time, in `.graphbus/cache/`: never trusted to be there or whole, and never written through a link.

An entry is its seal and its content. One that this user's GraphBus has not written, for this place, is as good as none: whoever
can put a file into a project cannot make a seal, as the secret lies outside of every project. A seal is a keyed BLAKE2b digest of
what a file is for, where it belongs and what it says.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from graphbus_core.model.digests import keyed_hex
from graphbus_core.store.folders import Folder, read_handle

_KEY_FILE = "cache.key"
_SECRET_BYTES = 32


def seal_of(purpose: str, place: str, data: bytes) -> str:
    """Give the seal of data that is for a purpose and belongs to a place, as 64 hexadecimal digits."""
    return keyed_hex(_user_secret(), msgspec.msgpack.encode((purpose, place, data)))


def _user_secret() -> bytes:
    """Give the secret of this user, and make it when there is none; where it cannot be kept, one that this process forgets."""
    with suppress(OSError, RuntimeError):  # there may be no home
        path = _key_path()
        if not os.path.lexists(path):
            _write_secret(path)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                secret = file.read(_SECRET_BYTES + 1)
                if len(secret) == _SECRET_BYTES:
                    return secret
    return _forgotten_secret()


def _key_path() -> Path:
    """Give the place of the secret.

    Raises:
        RuntimeError: This user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return folder / "graphbus" / _KEY_FILE


@cache
def _forgotten_secret() -> bytes:
    return os.urandom(_SECRET_BYTES)


def _write_secret(path: Path) -> None:
    """Write a new secret, whole or not at all; the first one of several processes wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(os.urandom(_SECRET_BYTES))
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


CACHE = "cache"
_MOST_CACHED_BYTES = 64 * 1024 * 1024
"""A larger entry of the cache is none of ours."""
_PURPOSE = "cache"
_SEAL_BYTES = 64

_Entry = TypeVar("_Entry", bound=msgspec.Struct)


def write_cache(path: Path, value: Any, place: str | None = None) -> None:
    """Write a value to the cache. The cache only saves time, so that one that cannot be written is left out.

    Args:
        place: What the entry belongs to; by default its path: in another place it is worth nothing.
    """
    data = msgspec.msgpack.encode(value)
    seal = seal_of(_PURPOSE, _place_of(path, place), data).encode()
    with suppress(OSError), Folder.at(path.parent, make=True) as folder:
        folder.write_atomic(path.name, seal + data, is_flushed=False)


def read_cache(path: Path, kind: type[_Entry], place: str | None = None) -> _Entry | None:
    """Read a value from the cache; None when it is missing, damaged, of another shape, too large, or not sealed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        data = read_handle(handle, _MOST_CACHED_BYTES)
        if data[:_SEAL_BYTES] != seal_of(_PURPOSE, _place_of(path, place), data[_SEAL_BYTES:]).encode():
            return None
        return msgspec.msgpack.decode(memoryview(data)[_SEAL_BYTES:], type=kind)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _place_of(path: Path, place: str | None) -> str:
    return os.path.realpath(path) if place is None else place
