"""Artifacts read from `.graphbus/`, and proved to be whole and to describe the source files as they are."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from errno import EINVAL
from stat import S_ISFIFO, S_ISREG
from typing import IO, TYPE_CHECKING, TypeVar

import msgspec

from graphbus_core.errors import ArtifactError, Place
from graphbus_core.model.artifacts import (
    SCHEMA_VERSION,
    AgentsArtifact,
    BuildArtifacts,
    GraphArtifact,
    Manifest,
    ModifiedFilesArtifact,
    NegotiationsArtifact,
    TopicsArtifact,
)
from graphbus_core.model.digests import sha256_hex

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "manifest.json"
ARTIFACTS: Mapping[str, type[msgspec.Struct]] = {
    "graph.json": GraphArtifact,
    "agents.json": AgentsArtifact,
    "topics.json": TopicsArtifact,
    "negotiations.json": NegotiationsArtifact,
    "modified_files.json": ModifiedFilesArtifact,
}

MOST_ARTIFACT_BYTES = 256 * 1024 * 1024
"""A larger file is none that a build wrote."""

StrPath = str | os.PathLike[str]
"""What a graph reads when it starts is named by text: `pathlib` alone would take a tenth of that time."""

Artifact = TypeVar("Artifact", bound=msgspec.Struct)
Decoded = TypeVar("Decoded")


def load(folder: StrPath, *, without: Collection[str] = ()) -> BuildArtifacts:
    """Read and verify the artifacts of a build.

    Args:
        folder: Where they are.
        without: `negotiations.json`, `modified_files.json`: verified by their digests, but not decoded; their parts stay empty.

    Raises:
        ArtifactError: GBE501 nothing there, GBE502 not readable as an artifact, GBE503 and GBE504 written by an older or newer
            GraphBus, GBE505 an artifact is missing, GBE506 an artifact does not fit the manifest, GBE507 no permission, GBE514 a
            file is too large.
    """
    manifest = load_manifest(folder)
    data = {name: _read_part(folder, manifest, name) for name in ARTIFACTS}
    parts = {
        name: decode(data[name], kind, os.path.join(folder, name))
        for name, kind in ARTIFACTS.items()
        if name not in without
    }
    return BuildArtifacts(
        manifest=manifest,
        **{name.removesuffix(".json"): part for name, part in parts.items()},  # type: ignore[arg-type]
    )


def load_artifact(folder: Path, kind: type[Artifact]) -> Artifact:
    """Read and verify one artifact of a build, whatever the others are like.

    Raises:
        ArtifactError: As `load` does.
    """
    name = next(name for name, each in ARTIFACTS.items() if each is kind)
    return decode(_read_part(folder, load_manifest(folder), name), kind, os.path.join(folder, name))


def load_manifest(folder: StrPath) -> Manifest:
    """Read the manifest alone.

    Raises:
        ArtifactError: GBE501-504, GBE507.
    """
    data, version, path = _read_manifest(folder)
    if version < SCHEMA_VERSION:
        raise ArtifactError("GBE503", where=Place(shown(path)), version=version, wanted=SCHEMA_VERSION)
    return decode(data, Manifest, path)


def read_version(folder: StrPath) -> int:
    """Give the format of artifacts, which may be an older one.

    Raises:
        ArtifactError: GBE501, GBE502, GBE504, GBE507.
    """
    return _read_manifest(folder)[1]


def _read_manifest(folder: StrPath) -> tuple[bytes, int, str]:
    path = os.path.join(folder, MANIFEST)
    try:
        data = _read_limited(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError("GBE501", where=Place(shown(folder))) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    version = decode(data, _Versioned, path).schema_version
    if version > SCHEMA_VERSION:
        raise ArtifactError("GBE504", where=Place(shown(path)), version=version, wanted=SCHEMA_VERSION)
    return data, version, path


class _Versioned(msgspec.Struct):
    schema_version: int


def _read_part(folder: StrPath, manifest: Manifest, name: str) -> bytes:
    path = os.path.join(folder, name)
    data = read_file(path)
    if sha256_hex(data) != manifest.artifacts.get(name):
        raise ArtifactError("GBE506", where=Place(shown(path)), name=name)
    return data


def read_file(path: str) -> bytes:
    """Read an artifact.

    Raises:
        ArtifactError: GBE505 it is missing, GBE507 it cannot be opened, GBE514 it is too large.
    """
    try:
        return _read_limited(path)
    except FileNotFoundError:
        raise ArtifactError("GBE505", where=Place(shown(path)), name=os.path.basename(path)) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _read_limited(path: str) -> bytes:
    with _open(path) as file:
        size_bytes, limit = os.fstat(file.fileno()).st_size, MOST_ARTIFACT_BYTES
        if size_bytes > limit:
            name = os.path.basename(path)
            raise ArtifactError("GBE514", where=Place(shown(path)), name=name, size_bytes=size_bytes, limit_bytes=limit)
        if not _is_finite(file):
            raise OSError(EINVAL, "it is no plain file")
        return file.read()


def _is_finite(file: IO[bytes]) -> bool:
    """False for a device, which may be a link away and never end."""
    mode = os.fstat(file.fileno()).st_mode
    return S_ISREG(mode) or S_ISFIFO(mode)


def _open(path: StrPath) -> IO[bytes]:
    """Open a file for reading; a pipe that nobody writes to is an empty file, and not waited for."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def decode(data: bytes, kind: type[Decoded], path: str) -> Decoded:
    """Give what the bytes of an artifact say.

    Raises:
        ArtifactError: GBE502.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(
            "GBE502", where=Place(shown(path)), name=os.path.basename(path), reason=reason_of(error)
        ) from None


def _unreadable(path: str, error: OSError) -> ArtifactError:
    return ArtifactError("GBE507", where=Place(shown(path)), name=os.path.basename(path), reason=reason_of(error))


def reason_of(error: Exception) -> str:
    """Give what went wrong as the end of a sentence."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def shown(path: StrPath) -> str:
    """Give the path as a person would write it from the working directory."""
    below = os.path.relpath(path)
    return str(path) if below.startswith("..") else below


def project_root(folder: StrPath, manifest: Manifest) -> str:
    """Give the project that the artifacts belong to; if their folder is a link, that in which the link stands."""
    return os.path.normpath(os.path.join(os.path.abspath(folder), manifest.project_root))


def files_of(manifest: Manifest) -> tuple[str, ...]:
    """Give the files of the project that a run needs, by path."""
    return tuple(sorted(path for path, digest in {**manifest.imports, **manifest.sources}.items() if digest))


def verify_sources(folder: StrPath, manifest: Manifest) -> tuple[str, ...]:
    """Give the files with agents in them that are not what they were when the artifacts were built, by path.

    Only artifacts of an old format, which know of no other files, are judged by these alone; `drift` judges those of today.
    """
    root = project_root(folder, manifest)
    return tuple(path for path, digest in sorted(manifest.sources.items()) if digest_of(f"{root}/{path}") != digest)


def digest_of(path: StrPath) -> str:
    """Give the sha256 of a file, `""` when it cannot be read, is no file, or is larger than any that a build reads."""
    try:
        with _open(path) as file:
            is_file = (
                S_ISREG(os.fstat(file.fileno()).st_mode) and os.fstat(file.fileno()).st_size <= MOST_ARTIFACT_BYTES
            )
            return sha256_hex(file.read()) if is_file else ""
    except (OSError, ValueError):
        return ""
