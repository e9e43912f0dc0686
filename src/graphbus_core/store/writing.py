"""Writes artifacts to `.graphbus/` so that a failure leaves the old ones whole.

All files are written under temporary names and flushed, then renamed; the manifest with the digests of the others comes last.
A build that is killed between two renames leaves artifacts that do not match their manifest, which `load` reports.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EINVAL, EISDIR
from typing import TYPE_CHECKING, Any

import msgspec

from graphbus_core.errors import ArtifactError, Place
from graphbus_core.model.artifacts import Manifest
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store.folders import Folder
from graphbus_core.store.reading import ARTIFACTS, MANIFEST, BuildArtifacts, StrPath, format_path, reason_of

if TYPE_CHECKING:
    from pathlib import Path


def encode_artifact(document: Any) -> bytes:
    """Return an artifact as JSON with sorted keys, an indentation of two and a final newline; equal values give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def save_artifacts(folder: Path, artifacts: BuildArtifacts) -> Manifest:
    """Write all artifacts, and the manifest of `artifacts` completed with their digests; return that manifest.

    Raises:
        ArtifactError: GBE510 when the folder cannot be written; the previous artifacts are unchanged then.
    """
    if artifacts.manifest is None:
        raise TypeError("artifacts without a manifest cannot be saved")
    parts = {name: encode_artifact(getattr(artifacts, name.removesuffix(".json"))) for name in ARTIFACTS}
    digests = {name: sha256_hex(data) for name, data in parts.items()}
    manifest = msgspec.structs.replace(artifacts.manifest, artifacts=digests)
    parts[MANIFEST] = encode_artifact(manifest)
    try:
        with Folder.at(folder, make=True) as opened, lock_folder(opened):
            opened.ignore()
            _write_together(opened, parts)
    except OSError as error:
        raise ArtifactError("GBE510", where=Place(format_path(folder)), reason=reason_of(error)) from None
    return manifest


@contextmanager
def lock_folder(folder: Folder) -> Iterator[None]:
    """Within the block, hold the lock of the folder; other processes wait for it."""
    handle = folder.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write_together(folder: Folder, parts: Mapping[str, bytes]) -> None:
    """Write all files under temporary names, then rename them, so that a full disk is noticed before anything is replaced."""
    for left_over in folder.names():
        if left_over.startswith(".") and left_over.endswith(".json.tmp"):
            folder.remove(left_over)
    temporary = {name: f".{name}.tmp" for name in parts}
    try:
        for name, data in parts.items():
            folder.write(temporary[name], data)
        for name, fresh in temporary.items():
            folder.replace(fresh, name)
    finally:
        for fresh in temporary.values():
            folder.remove(fresh)
    folder.flush()


def write_atomic(path: StrPath, data: bytes) -> None:
    """Replace the content of a file so that it has either the old or the new content after a crash.

    Missing folders are created, and the mode of an existing file is kept. If the file is a link, the link is replaced.

    Raises:
        OSError: The file cannot be written, or its path leads through a link; the old content is unchanged.
    """
    above, name = os.path.split(os.path.abspath(path))
    with Folder.at(above, make=True) as folder:
        folder.write_atomic(name, data)


def refuse_special(path: Path) -> None:
    """Check that a file may be written at this path: as root, `/dev/stdout` could be replaced by accident.

    Raises:
        OSError: There is a folder, a pipe or a device.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(EINVAL, "it is not a regular file")
