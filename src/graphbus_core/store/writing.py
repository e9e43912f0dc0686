"""Artifacts written to `.graphbus/`, all or nothing.

Every file is written next to its place and flushed before the first one is renamed; the manifest with the digests of the others
comes last. A build that is killed half way leaves artifacts that do not fit their manifest, and `load` says so.
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
from graphbus_core.model.artifacts import BuildArtifacts, Manifest
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store.beneath import Folder
from graphbus_core.store.reading import ARTIFACTS, MANIFEST, StrPath, reason_of, shown

if TYPE_CHECKING:
    from pathlib import Path


def encode(document: Any) -> bytes:
    """Give an artifact as JSON: sorted keys, indented by two, final newline; equal values give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def save(folder: Path, artifacts: BuildArtifacts) -> Manifest:
    """Write all artifacts and a manifest with their digests, and give the manifest.

    The manifest of `artifacts` says what the result rests on; only the digests of the artifacts are filled in here.

    Raises:
        ArtifactError: GBE510 when the folder cannot be written; the artifacts from before are still whole then.
    """
    if artifacts.manifest is None:
        raise TypeError("artifacts without a manifest cannot be saved")
    parts = {name: encode(getattr(artifacts, name.removesuffix(".json"))) for name in ARTIFACTS}
    digests = {name: sha256_hex(data) for name, data in parts.items()}
    manifest = msgspec.structs.replace(artifacts.manifest, artifacts=digests)
    parts[MANIFEST] = encode(manifest)
    try:
        with Folder.at(folder, make=True) as opened, locked(opened):
            opened.ignore()
            _write_together(opened, parts)
    except OSError as error:
        raise ArtifactError("GBE510", where=Place(shown(folder)), reason=reason_of(error)) from None
    return manifest


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Let one process at a time write to the folder."""
    handle = folder.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write_together(folder: Folder, parts: Mapping[str, bytes]) -> None:
    """Write all files beside their places first, so that a full disk is met before anything is replaced."""
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
    """Replace a file's content so that, whatever happens, it has either the old bytes or the new ones.

    Missing folders are made, and permissions of an existing file are kept. A link at the file is replaced and not followed;
    of one on the way to it nothing is written.

    Raises:
        OSError: The old content is still there.
    """
    above, name = os.path.split(os.path.abspath(path))
    with Folder.at(above, make=True) as folder:
        folder.put(name, data)


def refuse_special(path: Path) -> None:
    """Let nobody put a file in the place of a folder, a pipe or a device: as root, that could be `/dev/stdout`.

    Raises:
        OSError: Something of that kind is there.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(EINVAL, "it is not a regular file")
