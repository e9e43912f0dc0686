"""Artifacts written to `.graphbus/`, all or nothing.

Every file is written next to its place and flushed before the first one is renamed; the manifest with the digests of the others
comes last. A build that is killed half way leaves artifacts that do not fit their manifest, and `load` says so.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EINVAL, EISDIR
from typing import TYPE_CHECKING, Any

import msgspec

from graphbus_core.errors import ArtifactError, Place
from graphbus_core.model.artifacts import BuildArtifacts, Manifest
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store.reading import ARTIFACTS, MANIFEST, reason_of, shown

if TYPE_CHECKING:
    from pathlib import Path


def encode(artifact: msgspec.Struct) -> bytes:
    """Give an artifact as JSON: sorted keys, indented by two, final newline; equal values give equal bytes."""
    return format_json(artifact)


def format_json(document: Any) -> bytes:
    """Give JSON data as `encode` does."""
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


def save(folder: Path, artifacts: BuildArtifacts) -> Manifest:
    """Write all artifacts and a manifest with their digests, and give the manifest.

    The manifest of `artifacts` says what the result rests on; only the digests of the artifacts are filled in here.

    Raises:
        ArtifactError: GBE510 when the folder cannot be written; the artifacts from before are still whole then.
    """
    if artifacts.manifest is None:
        raise TypeError("artifacts without a manifest cannot be saved")
    parts: dict[str, bytes] = {}
    for name in ARTIFACTS:
        part: msgspec.Struct = getattr(artifacts, name.removesuffix(".json"))
        parts[name] = encode(part)
    digests = {name: sha256_hex(data) for name, data in parts.items()}
    manifest = msgspec.structs.replace(artifacts.manifest, artifacts=digests)
    parts[MANIFEST] = encode(manifest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            write_together(folder, parts)
    except OSError as error:
        raise ArtifactError("GBE510", where=Place(shown(folder)), reason=reason_of(error)) from None
    return manifest


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write to the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_together(folder: Path, parts: Mapping[str, bytes]) -> None:
    """Write all files beside their places first, so that a full disk is met before anything is replaced."""
    for left_over in folder.glob(".*.json.tmp"):
        left_over.unlink()
    temporary = {name: folder / f".{name}.tmp" for name in parts}
    try:
        for name, data in parts.items():
            write_flushed(temporary[name], data)
        for name, path in temporary.items():
            path.replace(folder / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)
    flush_folder(folder)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file's content so that, whatever happens, it has either the old bytes or the new ones.

    Permissions of an existing file are kept.

    Raises:
        OSError: The old content is still there.
    """
    refuse_special(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_flushed(temporary, data)
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


def refuse_special(path: Path) -> None:
    """Let nobody put a file in the place of a folder, a pipe or a device: as root, that could be `/dev/stdout`.

    Raises:
        OSError: Something of that kind is there.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(EINVAL, "what is there is no plain file")


def write_flushed(path: Path, data: bytes) -> None:
    """Write a file, and let it reach the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Let the names of a folder reach the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
