"""sha256 of small things without OpenSSL: loading that costs 4 MB and 4 ms, more than all that a small graph verifies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_SMALL_BYTES = 200_000
"""Above this OpenSSL's speed is worth its loading, in one piece or in many."""


def sha256_hex(data: bytes) -> str:
    """Give the sha256 as 64 hexadecimal digits."""
    if len(data) > _SMALL_BYTES:
        return _openssl()(data).hexdigest()  # type: ignore[no-any-return]
    return _small(data).hexdigest()  # type: ignore[no-any-return]


def source_sha256_hex(data: bytes) -> str:
    """The same for a build, which may read thousands of files: OpenSSL takes over when enough has come together.

    A running graph does not use it: there is no good moment to load something while events are delivered.
    """
    global _source_bytes  # noqa: PLW0603 - the sum of a process
    _source_bytes += len(data)
    if _source_bytes > _SMALL_BYTES:
        return _openssl()(data).hexdigest()  # type: ignore[no-any-return]
    return _small(data).hexdigest()  # type: ignore[no-any-return]


def _openssl() -> Callable[[bytes], Any]:
    from hashlib import sha256

    return sha256


def _built_in() -> Callable[[bytes], Any]:
    """The interpreter's own implementation, by its name in this version; OpenSSL's where there is none."""
    try:
        found: Callable[[bytes], Any] = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256").sha256
    except ImportError:
        return _openssl()
    return found


_small = _built_in()
_source_bytes = 0
