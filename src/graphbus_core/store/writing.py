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
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.artifacts import Manifest
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store.folders import Folder
from graphbus_core.store.reading import ARTIFACTS, MANIFEST, BuildArtifacts, StrPath, format_path

if TYPE_CHECKING:
    from pathlib import Path


def encode_artifact(document: Any) -> bytes:
    """Return an artifact as JSON with sorted keys, an indentation of two and a final newline; equal values give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def save_artifacts(folder: Path, artifacts: BuildArtifacts) -> Manifest:
    """Write all artifacts and a manifest with their digests, and return that manifest. Its other fields are those in `artifacts`.

    Raises:
        ArtifactError: GBE510, the folder cannot be written; the previous artifacts are unchanged then.
        TypeError: `artifacts` has no manifest.
    """
    if artifacts.manifest is None:
        raise TypeError("artifacts without a manifest cannot be saved")
    content_by_name = {name: encode_artifact(getattr(artifacts, name.removesuffix(".json"))) for name in ARTIFACTS}
    digests = {name: sha256_hex(data) for name, data in content_by_name.items()}
    manifest = msgspec.structs.replace(artifacts.manifest, artifacts=digests)
    content_by_name[MANIFEST] = encode_artifact(manifest)
    try:
        with Folder.at(folder, make=True) as opened, lock_folder(opened):
            opened.ignore()
            _write_together(opened, content_by_name)
    except OSError as error:
        where, advice = Place(format_path(folder)), advise_on(error, folder)
        raise ArtifactError("GBE510", where=where, reason=reason_of(error), advice=advice) from None
    return manifest


@contextmanager
def lock_folder(folder: Folder) -> Iterator[None]:
    """Within the block, hold the lock of an open folder, after waiting for other processes that hold it."""
    handle = folder.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write_together(folder: Folder, content_by_name: Mapping[str, bytes]) -> None:
    """Write all files under temporary names, and then rename them: a full disk is noticed before any file is replaced."""
    for old_name in folder.names():  # temporary files of a build that was killed
        if old_name.startswith(".") and old_name.endswith(".json.tmp"):
            folder.remove(old_name)
    temporary = {name: f".{name}.tmp" for name in content_by_name}
    try:
        for name, data in content_by_name.items():
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
    """Raise an error unless the path is free or that of a regular file. Otherwise root could replace `/dev/stdout` by accident.

    Raises:
        OSError: The path is that of a folder, pipe or device.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(EINVAL, "it is not a regular file")
