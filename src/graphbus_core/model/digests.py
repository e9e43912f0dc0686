"""sha256 of small things without OpenSSL: loading that costs 4 MB and 4 ms, more than all that a small graph verifies."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_SMALL_BYTES = 200_000
"""Above this OpenSSL's speed is worth its loading."""


def sha256_hex(data: bytes) -> str:
    """Give the sha256 as 64 hexadecimal digits."""
    if len(data) > _SMALL_BYTES:
        return _openssl()(data).hexdigest()  # type: ignore[no-any-return]
    return _small(data).hexdigest()  # type: ignore[no-any-return]


def _openssl() -> Callable[[bytes], Any]:
    from hashlib import sha256

    return sha256


def _built_in() -> Callable[[bytes], Any]:
    """The interpreter's own implementation, by its name in this version; OpenSSL's where there is none."""
    for name in ("_sha2", "_sha256"):
        try:
            found: Callable[[bytes], Any] = import_module(name).sha256
        except ImportError:
            continue
        return found
    return _openssl()


_small = _built_in()
