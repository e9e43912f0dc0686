"""Reads artifacts from `.graphbus/`, verifies them, and detects source files that have changed since they were built (drift).

A source file counts as changed when its content differs, when it has become a link, when it is new, and when Python would now
import another file under its name. All commands use `find_drift` for this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from errno import EINVAL
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from stat import S_ISFIFO, S_ISREG
from typing import IO, TYPE_CHECKING, TypeVar

import msgspec

from graphbus_core.errors import ArtifactError, Place
from graphbus_core.model.artifacts import (
    SCHEMA_VERSION,
    AgentsArtifact,
    Artifacts,
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
"""The limit for a file that is read; a build writes none that is larger."""

StrPath = str | os.PathLike[str]
"""Paths here are text, because importing `pathlib` would take a tenth of the start of a graph."""


class BuildArtifacts(Artifacts, frozen=True, kw_only=True):
    """All artifacts of one build, and how they are read."""

    @classmethod
    def load(cls, folder: StrPath) -> BuildArtifacts:
        """Read and verify the artifacts in a folder, as `store.load` does. Source: seed 001, LOAD_BUILD_ARTIFACTS.

        Raises:
            ArtifactError: See `store.load`.
        """
        return load(folder)


_Artifact = TypeVar("_Artifact", bound=msgspec.Struct)
_Decoded = TypeVar("_Decoded")


def load(folder: StrPath, *, without: Collection[str] = ()) -> BuildArtifacts:
    """Read and verify the artifacts of a build.

    Args:
        folder: The artifact folder.
        without: File names of artifacts that are verified but not decoded, to save time; their parts of the result are empty.

    Raises:
        ArtifactError: GBE501 when there are no artifacts, GBE502 for one that cannot be decoded, GBE503 and GBE504 for an
        older or
            newer format, GBE505 for a missing artifact, GBE506 for one with another digest than the manifest says, GBE507 for
            one that cannot be opened, GBE514 for one that is too large.
    """
    return load_parts(folder, load_manifest(folder), without)


def load_parts(folder: StrPath, manifest: Manifest, without: Collection[str] = ()) -> BuildArtifacts:
    """Read and verify the artifacts that a manifest names, as `load` does."""
    data = {name: _read_part(folder, manifest, name) for name in ARTIFACTS}
    parts = {
        name: decode_artifact(data[name], kind, os.path.join(folder, name))
        for name, kind in ARTIFACTS.items()
        if name not in without
    }
    return BuildArtifacts(
        manifest=manifest,
        **{name.removesuffix(".json"): part for name, part in parts.items()},  # type: ignore[arg-type]
    )


def load_artifact(folder: Path, kind: type[_Artifact]) -> _Artifact:
    """Read and verify one artifact, given by its class; the others are not read.

    Raises:
        ArtifactError: As `load` does.
    """
    name = next(name for name, each in ARTIFACTS.items() if each is kind)
    return decode_artifact(_read_part(folder, load_manifest(folder), name), kind, os.path.join(folder, name))


def load_manifest(folder: StrPath) -> Manifest:
    """Read the manifest only.

    Raises:
        ArtifactError: GBE501-504, GBE507.
    """
    data, version, path = _read_manifest(folder)
    if version < SCHEMA_VERSION:
        raise ArtifactError("GBE503", where=Place(format_path(path)), version=version, wanted=SCHEMA_VERSION)
    return decode_artifact(data, Manifest, path)


def read_version(folder: StrPath) -> int:
    """Return the format number of the artifacts, which may be an older one.

    Raises:
        ArtifactError: GBE501, GBE502, GBE504, GBE507.
    """
    return _read_manifest(folder)[1]


def _read_manifest(folder: StrPath) -> tuple[bytes, int, str]:
    """Return the bytes of the manifest, its format number and its path; raise for a format that is too new."""
    path = os.path.join(folder, MANIFEST)
    try:
        data = _read_limited(path)
    except (FileNotFoundError, NotADirectoryError):
        missing = f": {MANIFEST} is missing" if has_artifacts(folder) else ""
        raise ArtifactError("GBE501", where=Place(format_path(folder)), missing=missing) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    version = decode_artifact(data, _Versioned, path).schema_version
    if version > SCHEMA_VERSION:
        raise ArtifactError("GBE504", where=Place(format_path(path)), version=version, wanted=SCHEMA_VERSION)
    return data, version, path


def has_artifacts(folder: StrPath) -> bool:
    """True when the folder contains any artifact, with or without a manifest."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in ARTIFACTS)


class _Versioned(msgspec.Struct):
    schema_version: int


def _read_part(folder: StrPath, manifest: Manifest, name: str) -> bytes:
    """Return the bytes of an artifact whose digest is as the manifest says."""
    path = os.path.join(folder, name)
    data = read_file(path)
    if sha256_hex(data) != manifest.artifacts.get(name):
        raise ArtifactError("GBE506", where=Place(format_path(path)), name=name)
    return data


def read_file(path: str) -> bytes:
    """Return the bytes of an artifact.

    Raises:
        ArtifactError: GBE505 when it is missing, GBE507 when it cannot be opened, GBE514 when it is too large.
    """
    try:
        return _read_limited(path)
    except FileNotFoundError:
        raise ArtifactError("GBE505", where=Place(format_path(path)), name=os.path.basename(path)) from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _read_limited(path: str) -> bytes:
    """Return the content of a file of at most `MOST_ARTIFACT_BYTES`."""
    with _open(path) as file:
        size_bytes, limit = os.fstat(file.fileno()).st_size, MOST_ARTIFACT_BYTES
        if size_bytes > limit:
            name = os.path.basename(path)
            raise ArtifactError(
                "GBE514", where=Place(format_path(path)), name=name, size_bytes=size_bytes, limit_bytes=limit
            )
        if not _is_finite(file):
            raise OSError(EINVAL, "it is not a regular file")
        return file.read()


def _is_finite(file: IO[bytes]) -> bool:
    """True for a regular file or a pipe; reading a device, to which a link may lead, could never end."""
    mode = os.fstat(file.fileno()).st_mode
    return S_ISREG(mode) or S_ISFIFO(mode)


def _open(path: StrPath) -> IO[bytes]:
    """Open a file for reading. O_NONBLOCK makes a pipe without a writer read as an empty file instead of blocking."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def decode_artifact(data: bytes, kind: type[_Decoded], path: str) -> _Decoded:
    """Decode the bytes of an artifact into its class; `path` is named in the error.

    Raises:
        ArtifactError: GBE502 when they do not fit the class.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(
            "GBE502", where=Place(format_path(path)), name=os.path.basename(path), reason=reason_of(error)
        ) from None


def _unreadable(path: str, error: OSError) -> ArtifactError:
    return ArtifactError("GBE507", where=Place(format_path(path)), name=os.path.basename(path), reason=reason_of(error))


def reason_of(error: Exception) -> str:
    """Return the text of an error in lower case, to end a sentence with."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:]


def format_path(path: StrPath) -> str:
    """Return a path for messages: relative to the working directory if it is below that."""
    below = os.path.relpath(path)
    return str(path) if below.startswith("..") else below


def project_root(folder: StrPath, manifest: Manifest) -> str:
    """Return the folder of the project that the artifacts belong to. If their folder is a link, the link's place counts."""
    return os.path.normpath(os.path.join(os.path.abspath(folder), manifest.project_root))


def needed_files(manifest: Manifest) -> tuple[str, ...]:
    """Return the sorted paths of the project's files that a run needs."""
    return tuple(sorted(path for path, digest in {**manifest.imports, **manifest.sources}.items() if digest))


def find_changed_sources(folder: StrPath, manifest: Manifest) -> tuple[str, ...]:
    """Return the sorted paths of files with agents that have changed since the build.

    Only for artifacts of format 1, which record no other files; use `find_drift` for later ones.
    """
    root = project_root(folder, manifest)
    return tuple(path for path, digest in sorted(manifest.sources.items()) if digest_of(f"{root}/{path}") != digest)


def digest_of(path: StrPath) -> str:
    """Return the sha256 of a file; `""` when it cannot be read, is not a regular file, or is too large."""
    try:
        with _open(path) as file:
            is_file = (
                S_ISREG(os.fstat(file.fileno()).st_mode) and os.fstat(file.fileno()).st_size <= MOST_ARTIFACT_BYTES
            )
            return sha256_hex(file.read()) if is_file else ""
    except (OSError, ValueError):
        return ""


_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
"""Suffixes of modules in the order in which Python looks for them."""
_CACHE = "__pycache__"
_HEAD = 16  # bytes of the header of a .pyc file
_IS_HASHED = 0b1  # its flag for validation by a hash of the source, not by time
_OUTSIDE = (sys.stdlib_module_names - {"test"}) | {
    *("sitecustomize", "usercustomize", "graphbus_core", "msgspec", "click"),
    *("uvicorn", "starlette", "h11", "anyio", "opentelemetry"),
}
"""Modules that Python, GraphBus and its dependencies import; a file of the project with such a name would be imported instead."""


class ImportFinder:
    """Finds the file that Python would import for a module name, without importing it. Reads each folder once.

    Args:
        root: The project.
        import_roots: Folders below it, in the order of `sys.path`.
    """

    def __init__(self, root: StrPath, import_roots: Collection[str]) -> None:
        self._root = os.fspath(root)
        self._homes = tuple("" if each == "." else f"{each}/" for each in import_roots)
        self._listings: dict[str, dict[str, os.DirEntry[str]]] = {}
        self._compiled: dict[str, dict[str, list[os.DirEntry[str]]]] = {}
        self._located: dict[str, tuple[str, tuple[str, ...]]] = {}

    def locate(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return the path of the file for a dotted name (`""`: none), and the folders that contain its submodules."""
        found = self._located.get(name)
        if found is None:
            found = self._located[name] = self._locate_uncached(name)
        return found

    def _locate_uncached(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Do what `locate` does, without its memory: search the packages first, as Python does."""
        parent, _, last = name.rpartition(".")
        homes = self.locate(parent)[1] if parent else self._homes
        portions: list[str] = []
        for home in homes:
            inner = f"{home}{last}/"
            is_folder = last in self._listing(home) and bool(self._listing(inner))
            path = self._find_module_file(inner, "__init__") if is_folder else ""
            if path:
                return path, (inner,)
            path = self._find_module_file(home, last)
            if path:
                return path, ()
            if is_folder:
                portions.append(inner)
        return "", tuple(portions)

    def _find_module_file(self, folder: str, stem: str) -> str:
        """Return the path of the module `stem` in a folder with the first suffix that exists; `""` for none."""
        listing = self._listing(folder)
        for suffix in _SUFFIXES:
            entry = listing.get(stem + suffix)
            if entry is not None and entry.is_file():
                return f"{folder}{stem}{suffix}"
        return ""

    def _listing(self, folder: str) -> dict[str, os.DirEntry[str]]:
        """Return name -> entry of a folder; empty for one that cannot be read."""
        found = self._listings.get(folder)
        if found is None:
            try:
                with os.scandir(os.path.join(self._root, folder)) as entries:
                    found = {entry.name: entry for entry in entries}
            except OSError:
                found = {}
            self._listings[folder] = found
        return found

    def find_shadowing_files(self, files: Collection[str], third_party: Collection[str]) -> set[str]:
        """Return files that are not in `files`, but that Python would import instead of, or as a package of, one of these.

        A module of Python, of GraphBus or of a third-party package may be shadowed in the same way.
        """
        outside = _OUTSIDE.union(third_party)
        tops = {name.partition(".")[0] for home in self._homes for name in self._listing(home)}
        names = {part for path in files for part in _with_packages(self._name_of(path))} | (tops & outside)
        return {path for name in names if (path := self.locate(name)[0]) and path not in files}

    def _name_of(self, path: str) -> str:
        """Return the dotted module name of a path."""
        home = max((each for each in self._homes if path.startswith(each)), key=len, default="")
        folder, _, file = path[len(home) :].rpartition("/")
        stem = file.partition(".")[0]
        parts = [*folder.split("/"), stem] if folder else [stem]
        return ".".join(parts[:-1] if stem == "__init__" and folder else parts)

    def link_target_of(self, path: str) -> str | None:
        """Return None for a path without links, else the path that it leads to; `""` if that is outside of the project."""
        parts = path.split("/")
        folder = ""
        for part in parts:
            entry = self._listing(folder).get(part)
            if entry is not None and entry.is_symlink():
                return self._resolve_link(path)
            folder += f"{part}/"
        return None

    def _resolve_link(self, path: str) -> str:
        root = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(self._root, path))
        return os.path.relpath(real, root) if real.startswith(os.path.join(root, "")) else ""

    def find_unchecked_bytecode(self, path: str) -> Iterator[str]:
        """Yield compiled files of a source file that are not validated by its time: Python may run them after it has changed."""
        if sys.pycache_prefix is not None or not path.endswith(".py"):
            return
        folder, slash, file = path.rpartition("/")
        for entry in self._bytecode(folder + slash).get(file.removesuffix(".py"), ()):
            if _is_hashed(entry.path):
                yield f"{folder}{slash}{_CACHE}/{entry.name}"

    def _bytecode(self, folder: str) -> dict[str, list[os.DirEntry[str]]]:
        """Return module name -> its compiled files in `__pycache__` of the folder."""
        found = self._compiled.get(folder)
        if found is None:
            found = self._compiled[folder] = {}
            is_there = _CACHE in self._listing(folder)
            for name, entry in self._listing(f"{folder}{_CACHE}/").items() if is_there else ():
                found.setdefault(name.partition(".")[0], []).append(entry)
        return found


def _is_hashed(path: str) -> bool:
    """True for a compiled file that Python validates by a hash, or not at all."""
    try:
        with _open(path) as file:
            head = file.read(_HEAD) or b""
    except OSError:
        return False
    return len(head) == _HEAD and bool(head[4] & _IS_HASHED)


def _with_packages(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def find_drift(folder: StrPath, manifest: Manifest) -> tuple[ArtifactError, ...]:
    """Return an error for each file that agents import and that is not as the artifacts describe it.

    Returns:
        Sorted by path: GBE508 for a file that has changed, is new or missing, or has become a link; GBE515 for bytecode that
        would run regardless of its source; GBE516 for a link that leaves the project.
    """
    files = {**manifest.sources, **manifest.imports}
    root = project_root(folder, manifest)
    names = ImportFinder(root, manifest.import_roots)
    problems = dict.fromkeys(names.find_shadowing_files(files, manifest.third_party), "GBE508")
    for path, digest in files.items():
        target = names.link_target_of(path)
        if target == "":
            problems[path] = "GBE516"
        elif digest_of(os.path.join(root, path)) != digest or (target is not None and target not in files):
            problems[path] = "GBE508"
        problems |= dict.fromkeys(names.find_unchecked_bytecode(path), "GBE515")
    return tuple(ArtifactError(code, where=Place(path)) for path, code in sorted(problems.items()))


def find_problems(folder: Path) -> tuple[ArtifactError, ...]:
    """Return all errors of the artifacts in a folder, and an error for each file that has changed since they were built."""
    try:
        manifest = load_manifest(folder)
    except ArtifactError as error:
        return (error,)
    problems: list[ArtifactError] = []
    for kind in ARTIFACTS.values():
        try:
            load_artifact(folder, kind)
        except ArtifactError as error:
            problems.append(error)
    return (*problems, *find_drift(folder, manifest))


_Document = TypeVar("_Document", bound=msgspec.Struct)


def decode_versioned(data: bytes, kind: type[_Document], version: int) -> _Document:
    """Decode a JSON document that has a `schema_version`.

    Raises:
        msgspec.DecodeError: The document is damaged, or has another version.
    """
    try:
        found = msgspec.json.decode(data, type=_Versioned).schema_version
        if found != version:
            raise msgspec.ValidationError(f"it has version {found}, this GraphBus reads version {version}")
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
