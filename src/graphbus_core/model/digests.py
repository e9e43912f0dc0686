"""Digests of files and of data."""

from __future__ import annotations

from hashlib import sha256


def sha256_hex(data: bytes) -> str:
    """Give the sha256 as 64 hexadecimal digits."""
    return sha256(data).hexdigest()
