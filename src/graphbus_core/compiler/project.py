"""A project at one moment: its agents, their graph and activation order, its errors, and the sources of all this.

A `Project` is immutable. `with_files` returns another one in which some files have other bytes; nothing is written. What is read
from each file, and the imports of files outside of the build, are cached in `.graphbus/cache/`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphbus_core import __version__, settings, store
from graphbus_core.compiler.discover import ModuleFile, ModuleIndex, discover_modules, find_import_root, module_name
from graphbus_core.compiler.graph import ActivationOrder, AgentGraph, build_graph, compute_order, find_wrong_ends
from graphbus_core.compiler.reading.facts import Facts, FactsReader, FileFacts
from graphbus_core.compiler.reading.imports import Needed, imported_names, needed_by
from graphbus_core.compiler.reading.syntax import Ignores, ModuleSource
from graphbus_core.compiler.reading.topics import DefinedTopic
from graphbus_core.compiler.rules.misuse import check_file
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.errors import ArtifactError, BuildError, Place, raise_all
from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding
from graphbus_core.store import BuildArtifacts, digest_of
from graphbus_core.store.cache import CACHE, read_cache, write_cache
from graphbus_core.store.migration import SourceFacts
from graphbus_core.store.stamps import FileStatuses, Fingerprint, take_statuses


def learn_imports(folder: Path, artifacts: BuildArtifacts) -> SourceFacts:
    """Find the imports of the agents that old artifacts describe, for their migration; nothing is imported or written.

    Raises:
        ArtifactError: GBE512 for a source file that has changed since; SeveralErrors for more than one.
        UsageError: The settings of the project cannot be read.
    """
    manifest = artifacts.manifest
    if manifest is None:
        return SourceFacts()
    drifted = store.find_changed_sources(folder, manifest)
    raise_all(ArtifactError("GBE512", where=Place(path), wanted=SCHEMA_VERSION) for path in drifted)
    root = Path(store.project_root(folder, manifest))
    config = ResolvedBuild(root=str(root), paths=(), settings=settings.load(root), dry_run=True)
    agents = tuple(sorted({ModuleFile(agent.path, agent.module) for agent in artifacts.agents.agents}))
    index = ModuleIndex(str(root), agents, manifest.import_roots, manifest.roots)
    outside = _ImportsOutside(config, DiskReader(config))
    modules = [*(agent.module for agent in agents), *config.named_modules]
    needed = needed_by(modules, index, outside.names_in, manifest.sources)
    return SourceFacts(outside.digests_of(needed, {}), needed.third_party)


class DiskReader:
    """Reads files by their relative paths, from an overlay of bytes in memory or from disk."""

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


class _CachedFacts(msgspec.Struct, frozen=True, array_like=True):
    """The content of the facts cache."""

    fingerprint: Fingerprint
    facts: dict[str, FileFacts]


class _FactsCache:
    """The facts of the last build in `.graphbus/cache/`, valid for files that have not changed since."""

    def __init__(self, config: ResolvedBuild, index: ModuleIndex) -> None:
        self._root = config.root
        self._path = Path(config.artifacts_dir, CACHE, "facts")
        self._key = f"{__version__}:{config.settings.max_source_bytes}:{_code_stamp()}"
        self.look = take_statuses(config.root, [file.path for file in index.files])

    def recall(self) -> tuple[Facts, dict[str, str]]:
        """Return the cached facts, and the digests of the files that certainly have not changed."""
        kept = read_cache(self._path, _CachedFacts)
        if kept is None or kept.fingerprint.key != self._key:
            return {}, {}
        further = [path for path in kept.fingerprint.files if path not in self.look.files]
        self.look.files.update(take_statuses(self._root, further).files)
        return kept.facts, kept.fingerprint.unchanged_digests(self.look)

    def keep(self, facts: Facts, digests: Mapping[str, str]) -> None:
        """Write facts to the cache."""
        further = [path for path in digests if path not in self.look.files]
        self.look.files.update(take_statuses(self._root, further).files)
        write_cache(self._path, _CachedFacts(Fingerprint.of(self.look, digests, self._key), facts))


class _FileImports(NamedTuple):
    """The names that a file outside of the index imports, and the digest of that file."""

    sha256: str
    names: tuple[str, ...]


class _CachedImports(msgspec.Struct, frozen=True, array_like=True):
    key: str
    files: dict[str, _FileImports]


class _ImportsOutside:
    """The imports of files of the project that are not part of the build; cached, and parsed again only after a change."""

    def __init__(self, config: ResolvedBuild, read: DiskReader) -> None:
        self._root = config.root
        self._path = Path(config.artifacts_dir, CACHE, "imports")
        self._key = f"{__version__}:{_code_stamp()}"
        self._read = read
        kept = read_cache(self._path, _CachedImports)
        self._known = kept.files if kept and kept.key == self._key else {}
        self._found: dict[str, _FileImports] = {}

    def names_in(self, path: str) -> tuple[str, ...]:
        """Return the names that a file imports; none for one that cannot be read or parsed."""
        try:
            data = self._read(path)
        except BuildError:  # too large, or removed
            self._found[path] = _FileImports(digest_of(os.path.join(self._root, path)), ())
            return ()
        digest = sha256_hex(data)
        found = self._known.get(path)
        if found is None or found.sha256 != digest:
            found = _FileImports(digest, self._parse(path, data))
        self._found[path] = found
        return found.names

    def _parse(self, path: str, data: bytes) -> tuple[str, ...]:
        module = module_name(path, find_import_root(self._root, os.path.dirname(path)))
        try:
            source = ModuleSource(path, module, data)
            return imported_names(source, source.parse())
        except BuildError:
            return ()

    def digests_of(self, needed: Needed, known: Mapping[str, str]) -> dict[str, str]:
        """Return path -> sha256 of each needed file, sorted; `""` for a file that an optional import did not find."""
        digests = {**known, **{path: found.sha256 for path, found in self._found.items()}}
        present = {path: digests.get(path) or digest_of(os.path.join(self._root, path)) for path in needed.files}
        return dict(sorted({**present, **dict.fromkeys(needed.absent, "")}.items()))

    def keep(self) -> None:
        """Write the imports to the cache."""
        if self._found != self._known:
            write_cache(self._path, _CachedImports(self._key, self._found))


def _code_stamp() -> str:
    return _stamp_of(os.path.dirname(__file__), sys.version_info[:2])


@cache
def _stamp_of(folder: str, python: tuple[int, int]) -> str:
    """Return a digest that changes with the code of the compiler and the version of Python, so that cached facts expire.

    Computed once: a process keeps the code that it has loaded, and listing its files takes longer than reading an agent.
    """
    stamps = [
        (os.path.relpath(place, folder), name, status.st_mtime_ns, status.st_size)
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(".py") and (status := os.stat(os.path.join(place, name)))
    ]
    return sha256_hex(repr((python, sorted(stamps))).encode())


class _ReadFiles(NamedTuple):
    """The result of reading the files: facts, path -> sha256, path -> bytes, and the status of the files before."""

    facts: Facts
    digests: Mapping[str, str]
    data: Mapping[str, bytes]
    look: FileStatuses


class Imports(msgspec.Struct, frozen=True):
    """What the agents of a project import besides their own files.

    Attributes:
        files: Path -> sha256 of other files of the project that they import, directly or indirectly; `""` for a file that an
            optional import did not find.
        third_party: The top-level names of third-party modules.
    """

    files: Mapping[str, str]
    third_party: tuple[str, ...]


class Project:
    """A project at one moment, immutable. Made by `Project.read`, `Project.of_index` and `with_files`.

    Attributes:
        graph: The agents, their edges and topics.
        order: The activation order.
        definitions: The agents in activation order.
        errors: The files that cannot be read, and the errors in the graph, its handlers and topics, sorted by place.
    """

    def __init__(
        self,
        config: ResolvedBuild,
        index: ModuleIndex,
        reading: _ReadFiles,
        overlay: Mapping[str, bytes],
    ) -> None:
        facts, digests, data, look = reading
        self.config = config
        self.index = index
        self._facts = facts
        self._digests = digests
        self._overlay = overlay
        self._data = data
        self._look = look
        self._sources: dict[str, ModuleSource] = {}
        found = [agent for entry in facts.values() for agent in entry.agents]
        self.graph: AgentGraph = build_graph(found, config.settings.external_topics)
        self.order: ActivationOrder = compute_order(self.graph)
        self._last_made: tuple[dict[str, bytes], Project] | None = None
        self._by_name: dict[str, AgentDefinition] = {}
        for agent in found:
            self._by_name.setdefault(agent.name, agent)
        self.definitions: tuple[AgentDefinition, ...] = tuple(self._by_name[name] for name in self.order.order)
        unreadable = [entry.error.to_error() for entry in facts.values() if entry.error]
        wrong = (*self.graph.errors, *find_wrong_ends(self.definitions))
        errors = sorted([*index.errors, *unreadable, *wrong], key=lambda error: (error.where or Place(""), error.code))
        self.errors: tuple[BuildError, ...] = tuple(errors)

    @classmethod
    def read(cls, config: ResolvedBuild, *, cache: bool = True) -> Project:
        """Find and read all files of a build.

        Args:
            cache: Use and update `.graphbus/cache/`, so that unchanged files are not parsed again.
        """
        return cls.of_index(config, discover_modules(config), cache=cache)

    @classmethod
    def of_index(cls, config: ResolvedBuild, index: ModuleIndex, *, cache: bool = True) -> Project:
        """Read the files of an index. A dry run does not update the cache."""
        kept = _FactsCache(config, index)
        known, trusted = kept.recall() if cache else ({}, {})
        reader = FactsReader(index, DiskReader(config), trusted, check_file)
        facts = reader.read(known)
        if cache and facts != known and not config.dry_run:
            kept.keep(facts, reader.digests)
        return cls(config, index, _ReadFiles(facts, reader.digests, reader.data, kept.look), {})

    def with_files(self, changed: Mapping[str, bytes]) -> Project:
        """Return the project in which these files, by relative path, have other bytes. Only they are read again.

        The last result is cached, because the gate, the evaluators and the commit ask for the same one.
        """
        if self._last_made is None or self._last_made[0] != changed:
            self._last_made = dict(changed), self._made_with(changed)
        return self._last_made[1]

    def _made_with(self, changed: Mapping[str, bytes]) -> Project:
        overlay = {**self._overlay, **changed}
        index = self._index_with(changed)
        trusted = {path: digest for path, digest in self._digests.items() if path not in changed}
        reader = FactsReader(index, DiskReader(self.config, overlay), trusted, check_file)
        facts = reader.read(self._facts)
        reading = _ReadFiles(facts, reader.digests, {**self._data, **reader.data}, self._look)
        return Project(self.config, index, reading, overlay)

    def _index_with(self, changed: Mapping[str, bytes]) -> ModuleIndex:
        """Return the index with those of the changed files that are new and lie below the roots."""
        known = {file.path for file in self.index.files}
        fresh: list[ModuleFile] = []
        for path in changed:
            is_below_roots = any(root in (".", path) or path.startswith(f"{root}/") for root in self.index.roots)
            if path not in known and path.endswith(".py") and is_below_roots:
                import_root = find_import_root(self.index.root, os.path.dirname(path))
                fresh.append(ModuleFile(path, module_name(path, import_root)))
        return self.index._replace(files=tuple(sorted([*self.index.files, *fresh]))) if fresh else self.index

    # --- agents -------------------------------------------------------------------------

    def agent(self, name: str) -> AgentDefinition | None:
        """Return the agent with this name, or None."""
        return self._by_name.get(name)

    def owners(self, path: str) -> tuple[str, ...]:
        """Return the names of the agents that a file defines, in the order of the source."""
        entry = self._facts.get(path)
        return tuple(agent.name for agent in entry.agents) if entry else ()

    @cached_property
    def agent_files(self) -> tuple[str, ...]:
        """The paths of the files that define agents, sorted."""
        return tuple(path for path, entry in self._facts.items() if entry.agents)

    @cached_property
    def editable(self) -> Mapping[str, tuple[str, ...]]:
        """The files that a proposal may change -> their agents: those defined in the file, else those with a base class there."""
        found: dict[str, tuple[str, ...]] = {}
        for agent in self.definitions:
            for path in {method.span.path for method in agent.methods} & self._facts.keys():
                found[path] = (*found.get(path, ()), agent.name)
        return {**found, **{path: self.owners(path) for path in self.agent_files}}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The paths of all files that the facts depend on, sorted: those of the index and modules of the project they import."""
        return tuple(sorted(self._digests))

    @property
    def digests(self) -> Mapping[str, str]:
        """Path -> sha256 of each of `inputs`; `""` for one that could not be read."""
        return self._digests

    def fingerprint(self, key: str = "") -> Fingerprint:
        """Return a fingerprint that tells later whether the files on disk are still the same."""
        digests = {**self._digests, **self.imports.files}
        further = [path for path in digests if path not in self._look.files]
        files = {**self._look.files, **take_statuses(self.config.root, further).files}
        return Fingerprint.of(self._look._replace(files=files), digests, key)

    @cached_property
    def imports(self) -> Imports:
        """What the agents, the middleware and the factory import; files outside of the index are read to find it."""
        outside = _ImportsOutside(self.config, DiskReader(self.config, self._overlay))

        def names_in(path: str) -> tuple[str, ...]:
            entry = self._facts.get(path)
            return entry.imports if entry else outside.names_in(path)

        modules = [*(agent.module for agent in self.definitions), *self.config.named_modules]
        agents = self.agent_files
        told_by = {name for path in agents for name in self._facts[path].uses}
        needed = needed_by(modules, self.index, names_in, agents, told_by)
        if not (self.config.dry_run or self._overlay):
            outside.keep()
        return Imports(outside.digests_of(needed, self._digests), needed.third_party)

    @cached_property
    def wiring(self) -> Wiring:
        """The edges between the agents, with what the rules have found in them so far."""
        return Wiring(self)

    @property
    def topics(self) -> tuple[DefinedTopic, ...]:
        """The Topics that the files make, used or not."""
        return tuple(each for path in sorted(self._facts) for each in self._facts[path].topics)

    @cached_property
    def local_findings(self) -> tuple[Finding, ...]:
        """The findings of rules that need the syntax tree, sorted by place."""
        return tuple(finding for entry in self._facts.values() for finding in entry.findings)

    def ignores(self, path: str) -> Ignores:
        """Return the `# graphbus: ignore[...]` comments of a file: line (0: the whole file) and codes (none: all)."""
        entry = self._facts.get(path)
        return entry.ignores if entry else self.source(path).ignores() if path in self.index.skipped else ()

    # --- text ---------------------------------------------------------------------------

    @property
    def reader(self) -> DiskReader:
        """A function that returns the bytes of a file of this project by its path, part of the index or not."""
        return DiskReader(self.config, {**self._data, **self._overlay})

    def source(self, path: str) -> ModuleSource:
        """Return a file of the project.

        Raises:
            BuildError: GBE203 to GBE205, the file cannot be read.
        """
        found = self._sources.get(path)
        if found is None:
            data = self._overlay.get(path, self._data.get(path))
            if data is None:
                data = DiskReader(self.config, self._overlay)(path)
            import_root = find_import_root(self.index.root, os.path.dirname(path))
            found = self._sources[path] = ModuleSource(path, module_name(path, import_root), data)
        return found

    def span_text(self, span: SourceSpan) -> str:
        """Return the text that a span covers."""
        return self.source(span.path).span_bytes(span).decode()
