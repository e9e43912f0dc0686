"""The cache in `.graphbus/cache/`: files that only save time and may be missing or damaged, protected by seals.

An entry is a seal and its content. A seal is a keyed BLAKE2b digest of the purpose, the place and the content of an entry. Its
key is a secret of the user outside of all projects, so a cache that comes with a cloned project, or was copied from another
place, is ignored, and its files cannot influence GraphBus.
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
    """Return the seal of data as 64 hexadecimal digits.

    Args:
        purpose: What the data is used for, such as `"cache"`. A seal for another purpose or place differs.
        place: Where the data belongs, usually a path.
        data: The content.
    """
    return keyed_hex(_load_user_secret(), msgspec.msgpack.encode((purpose, place, data)))


def _load_user_secret() -> bytes:
    """Return the secret of this user, created at the first use; if it cannot be stored or read, one for this process only."""
    with suppress(OSError, RuntimeError):  # there may be no home
        path = _find_key_path()
        if not os.path.lexists(path):
            _write_secret(path)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                secret = file.read(_SECRET_BYTES + 1)
                if len(secret) == _SECRET_BYTES:
                    return secret
    return _make_process_secret()


def _find_key_path() -> Path:
    """Return the path of the secret, in the user's state folder.

    Raises:
        RuntimeError: The user has no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return folder / "graphbus" / _KEY_FILE


@cache
def _make_process_secret() -> bytes:
    """Return a random secret that is the same until this process ends."""
    return os.urandom(_SECRET_BYTES)


def _write_secret(path: Path) -> None:
    """Write a new secret atomically, unless the file exists; of several processes that do so, the first one wins."""
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
"""The limit for entries that are read."""
_PURPOSE = "cache"
_SEAL_BYTES = 64

_Entry = TypeVar("_Entry", bound=msgspec.Struct)


def write_cache(path: Path, value: Any, place: str | None = None) -> None:
    """Write a value to the cache; errors of the disk are ignored.

    Args:
        path: The file of the entry.
        value: A value that msgspec can encode.
        place: What the entry belongs to; None: its path. Reading the entry for another place finds nothing.
    """
    data = msgspec.msgpack.encode(value)
    seal = seal_of(_PURPOSE, _resolve_place(path, place), data).encode()
    with suppress(OSError), Folder.at(path.parent, make=True) as folder:
        folder.write_atomic(path.name, seal + data, is_flushed=False)


def read_cache(path: Path, kind: type[_Entry], place: str | None = None) -> _Entry | None:
    """Return a value of this type from the cache; None if it is missing, damaged, too large, or not sealed for the place."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        data = read_handle(handle, _MOST_CACHED_BYTES)
        if data[:_SEAL_BYTES] != seal_of(_PURPOSE, _resolve_place(path, place), data[_SEAL_BYTES:]).encode():
            return None
        return msgspec.msgpack.decode(memoryview(data)[_SEAL_BYTES:], type=kind)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _resolve_place(path: Path, place: str | None) -> str:
    """Return the place of an entry: `place`, or the real path of its file if that is None."""
    return os.path.realpath(path) if place is None else place
