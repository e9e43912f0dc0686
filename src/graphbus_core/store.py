"""`.graphbus/` on disk: artifacts written all or nothing and verified when they are read, and stamps that tell what changed.

Every artifact is written next to its place and flushed before the first one is renamed; the manifest with the digests of the
others comes last. A build that is killed half way leaves artifacts that do not fit their manifest, and `load` says so.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from stat import S_ISREG
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

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
CACHE = "cache"
MOST_CACHED_BYTES = 64 * 1024 * 1024
"""A larger entry of the cache is none of ours."""

StrPath = str | os.PathLike[str]
"""What a graph reads when it starts is named by text: `pathlib` alone would take a tenth of that time."""

Artifact = TypeVar("Artifact", bound=msgspec.Struct)


def encode(artifact: msgspec.Struct) -> bytes:
    """Give an artifact as JSON: sorted keys, indented by two, final newline; equal values give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(artifact, order="sorted"), indent=2) + b"\n"


# --- reading ------------------------------------------------------------------------------


def load(folder: StrPath, *, without: Collection[str] = ()) -> BuildArtifacts:
    """Read and verify the artifacts of a build.

    Args:
        folder: Where they are.
        without: `negotiations.json`, `modified_files.json`: verified by their digests, but not decoded; their parts stay empty.

    Raises:
        ArtifactError: GBE501 nothing there, GBE502 not readable as an artifact, GBE503 and GBE504 written by an older or newer
            GraphBus, GBE505 an artifact is missing, GBE506 an artifact does not fit the manifest, GBE507 no permission.
    """
    manifest = load_manifest(folder)
    data = {name: _read_part(folder, manifest, name) for name in ARTIFACTS}
    parts = {
        name: _decode(data[name], kind, os.path.join(folder, name))
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
    return _decode(_read_part(folder, load_manifest(folder), name), kind, os.path.join(folder, name))


def load_manifest(folder: StrPath) -> Manifest:
    """Read the manifest alone.

    Raises:
        ArtifactError: GBE501-504, GBE507.
    """
    path = os.path.join(folder, MANIFEST)
    try:
        data = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError("GBE501", where=Place(_shown(folder))) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    version = _decode(data, _Versioned, path).schema_version
    if version != SCHEMA_VERSION:
        code = "GBE503" if version < SCHEMA_VERSION else "GBE504"
        raise ArtifactError(code, where=Place(_shown(path)), version=version, wanted=SCHEMA_VERSION)
    return _decode(data, Manifest, path)


class _Versioned(msgspec.Struct):
    schema_version: int


def _read_part(folder: StrPath, manifest: Manifest, name: str) -> bytes:
    path = os.path.join(folder, name)
    try:
        data = _read(path)
    except FileNotFoundError:
        raise ArtifactError("GBE505", where=Place(_shown(path)), name=name) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if sha256_hex(data) != manifest.artifacts.get(name):
        raise ArtifactError("GBE506", where=Place(_shown(path)), name=name)
    return data


def _read(path: StrPath) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _decode(data: bytes, kind: type[Artifact], path: str) -> Artifact:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(
            "GBE502", where=Place(_shown(path)), name=os.path.basename(path), reason=_reason(error)
        ) from None


def _unreadable(path: str, error: OSError) -> ArtifactError:
    return ArtifactError("GBE507", where=Place(_shown(path)), name=os.path.basename(path), reason=_reason(error))


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def _shown(path: StrPath) -> str:
    """The path as a person would write it from the working directory."""
    below = os.path.relpath(path)
    return str(path) if below.startswith("..") else below


def find_problems(folder: Path) -> tuple[ArtifactError, ...]:
    """Give everything that is wrong with the artifacts, and each source file that is not what it was when they were built."""
    try:
        manifest = load_manifest(folder)
    except ArtifactError as error:
        return (error,)
    problems: list[ArtifactError] = []
    for name in ARTIFACTS:
        try:
            _decode(_read_part(folder, manifest, name), ARTIFACTS[name], os.path.join(folder, name))
        except ArtifactError as error:
            problems.append(error)
    drifted = sorted((*verify_sources(folder, manifest), *verify_imports(folder, manifest)))
    problems += [ArtifactError("GBE508", where=Place(path)) for path in drifted]
    return tuple(problems)


def project_root(folder: StrPath, manifest: Manifest) -> str:
    """Give the project that the artifacts belong to."""
    return os.path.normpath(os.path.join(os.path.realpath(folder), manifest.project_root))


def verify_sources(folder: StrPath, manifest: Manifest) -> tuple[str, ...]:
    """Give the source files that are not what they were when the artifacts were built, missing ones included, by path."""
    return _drifted(folder, manifest, manifest.sources)


def verify_imports(folder: StrPath, manifest: Manifest) -> tuple[str, ...]:
    """Give the files that the agents import, and that are not what they were when the artifacts were built, by path."""
    return _drifted(folder, manifest, manifest.imports)


def _drifted(folder: StrPath, manifest: Manifest, files: Mapping[str, str]) -> tuple[str, ...]:
    root = project_root(folder, manifest)
    return tuple(path for path, digest in sorted(files.items()) if digest_of(os.path.join(root, path)) != digest)


def digest_of(path: StrPath) -> str:
    """Give the sha256 of a file, `""` when it cannot be read."""
    try:
        return sha256_hex(_read(path))
    except OSError:
        return ""


# --- writing ------------------------------------------------------------------------------


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
        with _locked(folder):
            _write_together(folder, parts)
    except OSError as error:
        raise ArtifactError("GBE510", where=Place(_shown(folder)), reason=_reason(error)) from None
    return manifest


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write to the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write_together(folder: Path, parts: Mapping[str, bytes]) -> None:
    """Write all files beside their places first, so that a full disk is met before anything is replaced."""
    for left_over in folder.glob(".*.json.tmp"):
        left_over.unlink()
    temporary = {name: folder / f".{name}.tmp" for name in parts}
    try:
        for name, data in parts.items():
            _write_flushed(temporary[name], data)
        for name, path in temporary.items():
            path.replace(folder / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)
    _flush_folder(folder)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file's content so that, whatever happens, it has either the old bytes or the new ones.

    Permissions of an existing file are kept.

    Raises:
        OSError: The old content is still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write_flushed(temporary, data)
        with suppress(FileNotFoundError):
            temporary.chmod(path.stat().st_mode & 0o7777)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)


def _write_flushed(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- what changed since -----------------------------------------------------------------


Status = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""

ABSENT: Status = (-1, 0, 0)
_RACY_NS = 50_000_000
"""A file written so shortly before it was looked at may have been written again within the clock's resolution."""


class Look(NamedTuple):
    """The status of files at one moment, without their content."""

    taken_ns: int
    files: dict[str, Status]


def look_at(root: str, paths: Iterable[str]) -> Look:
    """Look at the files at these paths below `root`."""
    taken_ns = time.time_ns()
    return Look(taken_ns, {path: _status(f"{root}/{path}") for path in paths})


def _status(path: str) -> Status:
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return found.st_size, found.st_mtime_ns, found.st_ino


class Fingerprint(msgspec.Struct, frozen=True, array_like=True):
    """Files as they were at one moment. The digests decide; the status only saves reading a file again.

    Attributes:
        key: What else the result rests on: settings, version, what was asked for.
        taken_ns: When it was taken.
        files: Path -> status and sha256, `""` for a file that cannot be read.
    """

    key: str
    taken_ns: int
    files: dict[str, tuple[Status, str]]

    @classmethod
    def take(cls, root: str, paths: Iterable[str], key: str = "") -> Fingerprint:
        """Read the files at these paths below `root`."""
        look = look_at(root, paths)
        return cls.of(look, {path: digest_of(os.path.join(root, path)) for path in look.files}, key)

    @classmethod
    def of(cls, look: Look, digests: Mapping[str, str], key: str = "") -> Fingerprint:
        """Join the status of files with their digests; the look must have come first."""
        files = {path: (status, digests[path]) for path, status in look.files.items() if path in digests}
        return cls(key, look.taken_ns, files)

    @property
    def is_fresh(self) -> bool:
        """True when a file had been written so shortly before that its status cannot vouch for it."""
        return any(status[1] >= self.taken_ns - _RACY_NS for status, _ in self.files.values())

    def trusted(self, look: Look) -> dict[str, str]:
        """Give path -> sha256 of the files that surely did not change between the fingerprint and the look."""
        latest_ns = self.taken_ns - _RACY_NS
        known: dict[str, str] = {}
        for path, status in look.files.items():
            entry = self.files.get(path)
            if entry is not None and entry[0] == status and status[1] < latest_ns:
                known[path] = entry[1]
        return known

    def holds(self, root: str, paths: Iterable[str], key: str = "") -> bool:
        """True when the key and all files are what they were, and `paths` names none that was not looked at."""
        if key != self.key or any(path not in self.files for path in paths):
            return False
        look = look_at(root, self.files)
        known = self.trusted(look)
        return all(path in known or digest_of(os.path.join(root, path)) == self.files[path][1] for path in look.files)

    def save(self, path: Path) -> None:
        """Write it to the cache."""
        write_cache(path, self)

    @classmethod
    def load(cls, path: Path) -> Fingerprint | None:
        """Read it; None when there is none or it is damaged."""
        return read_cache(path, cls)


def write_cache(path: Path, value: Any) -> None:
    """Write a value to the cache. The cache only saves time, so that one that cannot be written is left out."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:  # never through a link
            file.write(msgspec.msgpack.encode(value))
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading, but follow no link and wait for no pipe.

    Raises:
        OSError: It is not there, a link or a folder.
    """
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK))


def read_cache(path: Path, kind: type[Artifact]) -> Artifact | None:
    """Read a value from the cache; None when it is missing, damaged, of another shape, too large, or no plain file."""
    try:
        with open_plain(path) as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode) or status.st_size > MOST_CACHED_BYTES:
                return None
            return msgspec.msgpack.decode(file.read(), type=kind)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
