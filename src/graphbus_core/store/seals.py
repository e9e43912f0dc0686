"""Seals of files that this user's GraphBus has written: whoever can put a file into a project cannot make one.

The secret lies outside of every project. A seal is an HMAC-SHA256 of what a file is for, where it belongs and what it says.
"""

from __future__ import annotations

import hmac
import os
import stat
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

KEY_FILE = "cache.key"
_SECRET_BYTES = 32


def seal_of(purpose: str, place: str, data: bytes) -> str:
    """Give the seal of data that is for a purpose and belongs to a place, as 64 hexadecimal digits."""
    return hmac.new(_user_secret(), msgspec.msgpack.encode((purpose, place, data)), sha256).hexdigest()


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
    return folder / "graphbus" / KEY_FILE


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
