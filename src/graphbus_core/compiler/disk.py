"""The disk behind a project: the bytes of its files, and the facts that are kept between builds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from graphbus_core import __version__
from graphbus_core.compiler.discover import ModuleIndex, find_import_root, module_name
from graphbus_core.compiler.reading.facts import Facts, FileFacts
from graphbus_core.compiler.reading.imports import Needed, imported_names
from graphbus_core.compiler.reading.source import SourceFile
from graphbus_core.errors import BuildError, Place
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store import digest_of
from graphbus_core.store.cache import CACHE, read_cache, write_cache
from graphbus_core.store.stamps import Fingerprint, look_at


class DiskReader:
    """Gives the bytes of a relative path, from the overlay or from disk."""

    def __init__(self, config: ResolvedBuild, overlay: Mapping[str, bytes] | None = None) -> None:
        self._root = config.root
        self._limit = config.settings.max_source_bytes
        self._overlay = overlay or {}

    def __call__(self, path: str) -> bytes:
        """Read a file.

        Raises:
            BuildError: GBE203 when it is too large, GBE204 when it cannot be read.
        """
        data = self._overlay.get(path)
        return data if data is not None else self._from_disk(path)

    def _from_disk(self, path: str) -> bytes:
        try:
            with open(os.path.join(self._root, path), "rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                if size_bytes > self._limit:
                    raise BuildError("GBE203", where=Place(path), size_bytes=size_bytes, limit_bytes=self._limit)
                return file.read()
        except OSError as error:
            raise BuildError("GBE204", where=Place(path), reason=(error.strerror or str(error)).lower()) from None


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What the cache holds."""

    fingerprint: Fingerprint
    facts: dict[str, FileFacts]


class FactsCache:
    """The facts of the last reading, in `.graphbus/cache/`, valid for the files that did not change since."""

    def __init__(self, config: ResolvedBuild, index: ModuleIndex) -> None:
        self._root = config.root
        self._path = Path(config.artifacts_dir, CACHE, "facts")
        self._key = f"{__version__}:{config.settings.max_source_bytes}:{_code_stamp()}"
        self.look = look_at(config.root, [file.path for file in index.files])

    def recall(self) -> tuple[Facts, dict[str, str]]:
        """Give the facts of before and the digests of the files that surely have not changed."""
        kept = read_cache(self._path, _Kept)
        if kept is None or kept.fingerprint.key != self._key:
            return {}, {}
        further = [path for path in kept.fingerprint.files if path not in self.look.files]
        self.look.files.update(look_at(self._root, further).files)
        return kept.facts, kept.fingerprint.trusted(self.look)

    def keep(self, facts: Facts, digests: Mapping[str, str]) -> None:
        """Keep facts for the next reading."""
        further = [path for path in digests if path not in self.look.files]
        self.look.files.update(look_at(self._root, further).files)
        write_cache(self._path, _Kept(Fingerprint.of(self.look, digests, self._key), facts))


class _Named(msgspec.Struct, frozen=True, array_like=True):
    """What a file outside of the index imports, and the digest of the bytes that say so."""

    sha256: str
    names: tuple[str, ...]


class _KeptNames(msgspec.Struct, frozen=True, array_like=True):
    key: str
    files: dict[str, _Named]


class ImportsOutside:
    """What the files of a project import that are not built themselves; parsed again only after a change."""

    def __init__(self, config: ResolvedBuild, read: DiskReader) -> None:
        self._root = config.root
        self._path = Path(config.artifacts_dir, CACHE, "imports")
        self._key = f"{__version__}:{_code_stamp()}"
        self._read = read
        kept = read_cache(self._path, _KeptNames)
        self._known = kept.files if kept and kept.key == self._key else {}
        self._found: dict[str, _Named] = {}

    def names_in(self, path: str) -> tuple[str, ...]:
        """Give the names that a file imports; none for one that cannot be read as Python."""
        try:
            data = self._read(path)
        except BuildError:  # too large to be looked into, or gone
            self._found[path] = _Named(digest_of(os.path.join(self._root, path)), ())
            return ()
        digest = sha256_hex(data)
        found = self._known.get(path)
        if found is None or found.sha256 != digest:
            found = _Named(digest, self._parse(path, data))
        self._found[path] = found
        return found.names

    def _parse(self, path: str, data: bytes) -> tuple[str, ...]:
        module = module_name(path, find_import_root(self._root, os.path.dirname(path)))
        try:
            source = SourceFile(path, module, data)
            return imported_names(source, source.parse())
        except BuildError:
            return ()

    def digests_of(self, needed: Needed, known: Mapping[str, str]) -> dict[str, str]:
        """Give path -> sha256 of each file that is needed, `""` for what an import that may fail did not find, by path."""
        digests = {**known, **{path: found.sha256 for path, found in self._found.items()}}
        present = {path: digests.get(path) or digest_of(os.path.join(self._root, path)) for path in needed.files}
        return dict(sorted({**present, **dict.fromkeys(needed.absent, "")}.items()))

    def keep(self) -> None:
        """Keep what was found for the next build."""
        if self._found != self._known:
            write_cache(self._path, _KeptNames(self._key, self._found))


def _code_stamp() -> str:
    return _stamp_of(os.path.dirname(__file__), sys.version_info[:2])


@cache
def _stamp_of(folder: str, python: tuple[int, int]) -> str:
    """Changes with the code that makes facts and with the Python that reads the sources: then they are made anew.

    Taken once: a process goes on with the code that it has loaded, and looking at its files costs more than reading an agent.
    """
    stamps = [
        (os.path.relpath(place, folder), name, status.st_mtime_ns, status.st_size)
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(".py") and (status := os.stat(os.path.join(place, name)))
    ]
    return sha256_hex(repr((python, sorted(stamps))).encode())
