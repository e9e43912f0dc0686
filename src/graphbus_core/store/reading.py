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
from graphbus_core.errors.system import advise_on, reason_of
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
        without: File names of artifacts with a default value that are only verified, to save time; they have it in the result.

    Raises:
        ArtifactError: GBE501 when there are no artifacts, GBE502 for one that cannot be decoded, GBE503 and GBE504 for an
            older or newer format, GBE505 for a missing artifact, GBE506 for one with another digest than the manifest says,
            GBE507 for one that cannot be opened, GBE514 for one that is too large.
    """
    return load_parts(folder, load_manifest(folder), without)


def load_parts(folder: StrPath, manifest: Manifest, without: Collection[str] = ()) -> BuildArtifacts:
    """Read and verify the artifacts that a manifest names; arguments and errors as for `load`."""
    data = {name: _read_verified_part(folder, manifest, name) for name in ARTIFACTS}
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
    """Read and verify the artifact with this class, and no other one.

    Raises:
        ArtifactError: As `load` does.
    """
    name = next(name for name, each in ARTIFACTS.items() if each is kind)
    return decode_artifact(_read_verified_part(folder, load_manifest(folder), name), kind, os.path.join(folder, name))


def load_manifest(folder: StrPath) -> Manifest:
    """Read the manifest only.

    Raises:
        ArtifactError: GBE501-504, GBE507 and GBE514 as `load`.
    """
    data, version, path = _read_manifest(folder)
    if version < SCHEMA_VERSION:
        raise ArtifactError("GBE503", where=Place(format_path(path)), version=version, wanted=SCHEMA_VERSION)
    return decode_artifact(data, Manifest, path)


def read_version(folder: StrPath) -> int:
    """Return the format number of the artifacts, which may be an older one.

    Raises:
        ArtifactError: GBE501, GBE502, GBE504, GBE507 and GBE514 as `load`.
    """
    return _read_manifest(folder)[1]


def _read_manifest(folder: StrPath) -> tuple[bytes, int, str]:
    """Return the bytes of the manifest, its format number and its path; raise the errors of `read_version`."""
    path = os.path.join(folder, MANIFEST)
    try:
        data = _read_limited(path)
    except (FileNotFoundError, NotADirectoryError):
        missing = f": {MANIFEST} is missing" if has_artifacts(folder) else ""
        raise ArtifactError("GBE501", where=Place(format_path(folder)), missing=missing) from None
    except OSError as error:
        raise _unreadable_error(path, error) from None
    version = decode_artifact(data, _Versioned, path).schema_version
    if version > SCHEMA_VERSION:
        raise ArtifactError("GBE504", where=Place(format_path(path)), version=version, wanted=SCHEMA_VERSION)
    return data, version, path


def has_artifacts(folder: StrPath) -> bool:
    """Return whether the folder contains any artifact other than the manifest."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in ARTIFACTS)


class _Versioned(msgspec.Struct):
    """The part of a manifest that is read first, to learn its format."""

    schema_version: int


def _read_verified_part(folder: StrPath, manifest: Manifest, name: str) -> bytes:
    """Return the bytes of an artifact; ArtifactError if it cannot be read, or GBE506 if the manifest has another digest of it."""
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
        raise _unreadable_error(path, error) from None


def _read_limited(path: str) -> bytes:
    """Return the content of a file; ArtifactError (GBE514) if it is too large, OSError if it cannot be read."""
    with _open_for_reading(path) as file:
        size_bytes, limit = os.fstat(file.fileno()).st_size, MOST_ARTIFACT_BYTES
        if size_bytes > limit:
            name = os.path.basename(path)
            raise ArtifactError(
                "GBE514", where=Place(format_path(path)), name=name, size_bytes=size_bytes, limit_bytes=limit
            )
        if not _is_regular_or_pipe(file):
            raise OSError(EINVAL, "it is not a regular file")
        return file.read()


def _is_regular_or_pipe(file: IO[bytes]) -> bool:
    """Return whether a file is regular or a pipe. Reading a device, to which a link may lead, could never end."""
    mode = os.fstat(file.fileno()).st_mode
    return S_ISREG(mode) or S_ISFIFO(mode)


def _open_for_reading(path: StrPath) -> IO[bytes]:
    """Open a file for reading. A pipe that nobody writes to reads as an empty file, because of O_NONBLOCK, and does not block."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def decode_artifact(data: bytes, kind: type[_Decoded], path: str) -> _Decoded:
    """Decode the bytes of an artifact into its class; `path` is named in the error.

    Raises:
        ArtifactError: GBE502, the bytes are not JSON or do not fit the class.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError("GBE502", where=Place(format_path(path)), reason=reason_of(error)) from None


def _unreadable_error(path: str, error: OSError) -> ArtifactError:
    """Return the error GBE507 for an artifact that cannot be opened."""
    where, advice = Place(format_path(path)), advise_on(error, path)
    return ArtifactError("GBE507", where=where, reason=reason_of(error), advice=advice)


def format_path(path: StrPath) -> str:
    """Return a path for messages: relative to the working directory if it is below it, else unchanged."""
    below = os.path.relpath(path)
    return str(path) if below.startswith("..") else below


def project_root(folder: StrPath, manifest: Manifest) -> str:
    """Return the folder of the project to which artifacts belong. If their folder is a link, it is the project with the link."""
    return os.path.normpath(os.path.join(os.path.abspath(folder), manifest.project_root))


def needed_files(manifest: Manifest) -> tuple[str, ...]:
    """Return the sorted paths of the project's files that a run imports; files that need not exist are left out."""
    return tuple(sorted(path for path, digest in {**manifest.imports, **manifest.sources}.items() if digest))


def find_changed_sources(folder: StrPath, manifest: Manifest) -> tuple[str, ...]:
    """Return the sorted paths of files with agents that have changed since the build.

    Only for artifacts of format 1, which record no other files; for later formats use `find_drift`.
    """
    root = project_root(folder, manifest)
    return tuple(path for path, digest in sorted(manifest.sources.items()) if digest_of(f"{root}/{path}") != digest)


def digest_of(path: StrPath) -> str:
    """Return the sha256 of a file; `""` when it cannot be read, is not a regular file, or is too large."""
    try:
        with _open_for_reading(path) as file:
            is_file = (
                S_ISREG(os.fstat(file.fileno()).st_mode) and os.fstat(file.fileno()).st_size <= MOST_ARTIFACT_BYTES
            )
            return sha256_hex(file.read()) if is_file else ""
    except (OSError, ValueError):
        return ""


_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
"""Suffixes of modules in the order in which Python looks for them."""
_CACHE = "__pycache__"
_HEADER_BYTES = 16  # bytes of the header of a .pyc file
_IS_HASHED = 0b1  # its flag for validation by a hash of the source, not by time
_MODULES_OF_OTHERS = (sys.stdlib_module_names - {"test"}) | {
    *("sitecustomize", "usercustomize", "graphbus_core", "msgspec", "click"),
    *("uvicorn", "starlette", "h11", "anyio", "opentelemetry"),
}
"""Modules that Python, GraphBus and its dependencies import; they would import a file of the project with such a name instead."""


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
        """Return where Python finds the module with a dotted name.

        Returns:
            The path of its file, `""` if it has none; and the folders in which its submodules are, each with a slash at its end.
        """
        found = self._located.get(name)
        if found is None:
            found = self._located[name] = self._locate_uncached(name)
        return found

    def _locate_uncached(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return what `locate` returns, without using its cache for this name.

        As in Python, a package comes before a module in the same folder, and folders without `__init__` are namespace packages.
        """
        parent, _, last = name.rpartition(".")
        folders = self.locate(parent)[1] if parent else self._homes
        namespace_folders: list[str] = []
        for home in folders:
            inner = f"{home}{last}/"
            is_folder = last in self._list_folder(home) and bool(self._list_folder(inner))
            path = self._find_module_file(inner, "__init__") if is_folder else ""
            if path:
                return path, (inner,)
            path = self._find_module_file(home, last)
            if path:
                return path, ()
            if is_folder:
                namespace_folders.append(inner)
        return "", tuple(namespace_folders)

    def _find_module_file(self, folder: str, stem: str) -> str:
        """Return the path of the module `stem` in a folder, with the suffix that Python prefers; `""` if there is none."""
        listing = self._list_folder(folder)
        for suffix in _SUFFIXES:
            entry = listing.get(stem + suffix)
            if entry is not None and entry.is_file():
                return f"{folder}{stem}{suffix}"
        return ""

    def _list_folder(self, folder: str) -> dict[str, os.DirEntry[str]]:
        """Return name -> entry of a folder below the root; empty if it cannot be read. The result is cached."""
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
        """Return the paths of files that are not in `files`, but that Python would import for the name of a module in use.

        Args:
            files: The files that agents import. Their modules and the packages that contain these are in use.
            third_party: The third-party modules in use, besides those of Python, GraphBus and its dependencies.
        """
        modules_of_others = _MODULES_OF_OTHERS.union(third_party)
        tops = {name.partition(".")[0] for home in self._homes for name in self._list_folder(home)}
        names = {part for path in files for part in _list_enclosing_packages(self._module_name(path))} | (
            tops & modules_of_others
        )
        return {path for name in names if (path := self.locate(name)[0]) and path not in files}

    def _module_name(self, path: str) -> str:
        """Return the dotted name of the module at a path, which is that of the package for `__init__.py`."""
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
            entry = self._list_folder(folder).get(part)
            if entry is not None and entry.is_symlink():
                return self._resolve_link(path)
            folder += f"{part}/"
        return None

    def _resolve_link(self, path: str) -> str:
        """Return the real path, relative to the project; `""` if it is outside of the project."""
        root = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(self._root, path))
        return os.path.relpath(real, root) if real.startswith(os.path.join(root, "")) else ""

    def find_unchecked_bytecode(self, path: str) -> Iterator[str]:
        """Yield the paths of compiled files that Python may run although their source file has changed since."""
        if sys.pycache_prefix is not None or not path.endswith(".py"):
            return
        folder, slash, file = path.rpartition("/")
        for entry in self._list_bytecode(folder + slash).get(file.removesuffix(".py"), ()):
            if _is_hashed(entry.path):
                yield f"{folder}{slash}{_CACHE}/{entry.name}"

    def _list_bytecode(self, folder: str) -> dict[str, list[os.DirEntry[str]]]:
        """Return module name -> its compiled files, for the `__pycache__` in a folder. The result is cached."""
        found = self._compiled.get(folder)
        if found is None:
            found = self._compiled[folder] = {}
            is_there = _CACHE in self._list_folder(folder)
            for name, entry in self._list_folder(f"{folder}{_CACHE}/").items() if is_there else ():
                found.setdefault(name.partition(".")[0], []).append(entry)
        return found


def _is_hashed(path: str) -> bool:
    """Return whether Python validates a compiled file by a hash of its source, or not at all; False if it cannot be read."""
    try:
        with _open_for_reading(path) as file:
            head = file.read(_HEADER_BYTES) or b""
    except OSError:
        return False
    return len(head) == _HEADER_BYTES and bool(head[4] & _IS_HASHED)


def _list_enclosing_packages(name: str) -> Iterator[str]:
    """Yield a dotted module name, then the names of the packages that contain it, innermost first."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def find_drift(folder: StrPath, manifest: Manifest) -> tuple[ArtifactError, ...]:
    """Return an error for each file that agents import and that has changed since the artifacts were built.

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
    """Return the errors of the artifacts in a folder, and one for each file that has changed since they were built.

    If the manifest cannot be read, its error is the only one.
    """
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
