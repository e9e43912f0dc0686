"""Builds wheels of GraphBus from its installed files, for images and pipelines that cannot install it from an index."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from graphbus_core import __version__

_WHEEL = "Wheel-Version: 1.0\nGenerator: graphbus\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_name(distribution: str) -> str:
    """Return the file name of the wheel of a distribution in this version."""
    return f"{distribution}-{__version__}-py3-none-any.whl"


def pack_wheel(distribution: str, files: Mapping[str, bytes], about: Mapping[str, str]) -> bytes:
    """Return a wheel as bytes. It is not compressed, so that its hash is the same on every machine.

    Args:
        distribution: The name of the distribution, with `_` for `-`.
        files: Path below `site-packages` -> content.
        about: File name of the metadata -> text: `METADATA`, and `entry_points.txt` if there are commands.
    """
    info = f"{distribution}-{__version__}.dist-info"
    packed = {**files, **{f"{info}/{name}": text.encode() for name, text in {**about, "WHEEL": _WHEEL}.items()}}
    packed[f"{info}/RECORD"] = _make_record(packed, f"{info}/RECORD")
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_STORED) as archive:
        for path, data in sorted(packed.items()):
            entry = ZipInfo(path)  # dated 1980, so that the bytes are always the same
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # as if made on POSIX, on every machine
            archive.writestr(entry, data)
    return buffer.getvalue()


def _make_record(files: Mapping[str, bytes], own: str) -> bytes:
    """Return the file `RECORD` of a wheel, whose own path is `own`: path, digest and size of each file."""
    lines = [
        f"{path},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in sorted(files.items())
    ]
    return "".join([*lines, f"{own},,\n"]).encode()
