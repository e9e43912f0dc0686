"""Digests of files and of data.

Every command that reads or runs a build needs SHA-256. Importing `hashlib` loads OpenSSL, which costs 4 ms and 4 MB at each
start. Therefore CPython's own modules are used where they exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b, sha256
else:
    try:
        from _blake2 import blake2b

        from _sha2 import sha256
    except ImportError:
        try:
            from _blake2 import blake2b
            from _sha256 import sha256  # before Python 3.12
        except ImportError:
            from hashlib import blake2b, sha256

_KEYED_BYTES = 32


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 digest of data as 64 hexadecimal digits."""
    return sha256(data).hexdigest()


def keyed_hex(key: bytes, data: bytes) -> str:
    """Return the keyed BLAKE2b digest of data as 64 hexadecimal digits; the key may have at most 64 bytes."""
    return blake2b(data, key=key, digest_size=_KEYED_BYTES).hexdigest()
