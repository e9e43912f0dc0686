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
from graphbus_core.errors.system import advise_on, reason_of
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
    """Find what the agents in old artifacts import, so that the artifacts can be migrated; nothing is imported or written.

    The result is empty for artifacts without a manifest.

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
    outside = _OutsideImports(config, DiskReader(config))
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
        return data if data is not None else self._read_from_disk(path)

    def _read_from_disk(self, path: str) -> bytes:
        """Read a file without the overlay; raises what `__call__` raises."""
        try:
            with open(os.path.join(self._root, path), "rb") as file:
                size_bytes = os.fstat(file.fileno()).st_size
                if size_bytes > self._limit:
                    raise BuildError("GBE203", where=Place(path), size_bytes=size_bytes, limit_bytes=self._limit)
                return file.read()
        except OSError as error:
            advice = advise_on(error, path)
            raise BuildError("GBE204", where=Place(path), reason=reason_of(error), advice=advice) from None


class _CachedFacts(msgspec.Struct, frozen=True, array_like=True):
    """The content of the facts cache."""

    fingerprint: Fingerprint
    facts: dict[str, FileFacts]


class _FactsCache:
    """The facts of the last build in `.graphbus/cache/`, valid for files that have not changed since."""

    def __init__(self, config: ResolvedBuild, index: ModuleIndex) -> None:
        self._root = config.root
        self._path = Path(config.artifacts_dir, CACHE, "facts")
        self._key = f"{__version__}:{config.settings.max_source_bytes}:{_stamp_of_compiler()}"
        self.statuses = take_statuses(config.root, [file.path for file in index.files])

    def recall(self) -> tuple[Facts, dict[str, str]]:
        """Return `(facts, digests)`: path -> facts, and path -> sha256 of the files that certainly have not changed.

        Both are empty without a valid cache.
        """
        kept = read_cache(self._path, _CachedFacts)
        if kept is None or kept.fingerprint.key != self._key:
            return {}, {}
        further = [path for path in kept.fingerprint.files if path not in self.statuses.files]
        self.statuses.files.update(take_statuses(self._root, further).files)
        return kept.facts, kept.fingerprint.unchanged_digests(self.statuses)

    def keep(self, facts: Facts, digests: Mapping[str, str]) -> None:
        """Write facts to the cache."""
        further = [path for path in digests if path not in self.statuses.files]
        self.statuses.files.update(take_statuses(self._root, further).files)
        write_cache(self._path, _CachedFacts(Fingerprint.of(self.statuses, digests, self._key), facts))


class _FileImports(NamedTuple):
    """The names that a file outside of the index imports, and the digest of that file."""

    sha256: str
    names: tuple[str, ...]


class _CachedImports(msgspec.Struct, frozen=True, array_like=True):
    """The content of the imports cache."""

    key: str
    files: dict[str, _FileImports]


class _OutsideImports:
    """Reads the imports of project files that are not part of the build; a cached file is parsed again only after a change."""

    def __init__(self, config: ResolvedBuild, read: DiskReader) -> None:
        self._root = config.root
        self._path = Path(config.artifacts_dir, CACHE, "imports")
        self._key = f"{__version__}:{_stamp_of_compiler()}"
        self._read = read
        kept = read_cache(self._path, _CachedImports)
        self._known = kept.files if kept and kept.key == self._key else {}
        self._found: dict[str, _FileImports] = {}

    def names_in(self, path: str) -> tuple[str, ...]:
        """Return the names that a file imports; none for a file that cannot be read or parsed. `keep` stores the result."""
        try:
            data = self._read(path)
        except BuildError:  # too large, or removed
            self._found[path] = _FileImports(digest_of(os.path.join(self._root, path)), ())
            return ()
        digest = sha256_hex(data)
        found = self._known.get(path)
        if found is None or found.sha256 != digest:
            found = _FileImports(digest, self._parse_imports(path, data))
        self._found[path] = found
        return found.names

    def _parse_imports(self, path: str, data: bytes) -> tuple[str, ...]:
        """Return the names that a file imports; none if it cannot be parsed."""
        module = module_name(path, find_import_root(self._root, os.path.dirname(path)))
        try:
            source = ModuleSource(path, module, data)
            return imported_names(source, source.parse())
        except BuildError:
            return ()

    def digests_of(self, needed: Needed, known: Mapping[str, str]) -> dict[str, str]:
        """Return path -> sha256 of each needed file, sorted; `""` for a file that an optional import did not find.

        `known` holds digests that need not be computed.
        """
        digests = {**known, **{path: found.sha256 for path, found in self._found.items()}}
        present = {path: digests.get(path) or digest_of(os.path.join(self._root, path)) for path in needed.files}
        return dict(sorted({**present, **dict.fromkeys(needed.absent, "")}.items()))

    def keep(self) -> None:
        """Write the imports that were asked for to the cache, unless it has exactly these."""
        if self._found != self._known:
            write_cache(self._path, _CachedImports(self._key, self._found))


def _stamp_of_compiler() -> str:
    """Return a digest of the code of this compiler and the version of Python: cached facts are valid only for these."""
    return _stamp_of(os.path.dirname(__file__), sys.version_info[:2])


@cache
def _stamp_of(folder: str, python: tuple[int, int]) -> str:
    """Return a digest of a version of Python, and of the paths, times and sizes of the Python files below a folder.

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
    """The result of reading the files: facts, path -> sha256, path -> bytes, and the file statuses taken before reading."""

    facts: Facts
    digests: Mapping[str, str]
    data: Mapping[str, bytes]
    statuses: FileStatuses


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
        facts, digests, data, statuses = reading
        self.config = config
        self.index = index
        self._facts = facts
        self._digests = digests
        self._overlay = overlay
        self._data = data
        self._statuses = statuses
        self._sources: dict[str, ModuleSource] = {}
        found = [agent for entry in facts.values() for agent in entry.agents]
        self.graph: AgentGraph = build_graph(found, config.settings.external_topics)
        self.order: ActivationOrder = compute_order(self.graph)
        self._last_result: tuple[dict[str, bytes], Project] | None = None
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
        facts_cache = _FactsCache(config, index)
        known, trusted = facts_cache.recall() if cache else ({}, {})
        reader = FactsReader(index, DiskReader(config), trusted, check_file)
        facts = reader.read(known)
        if cache and facts != known and not config.dry_run:
            facts_cache.keep(facts, reader.digests)
        return cls(config, index, _ReadFiles(facts, reader.digests, reader.data, facts_cache.statuses), {})

    def with_files(self, changed: Mapping[str, bytes]) -> Project:
        """Return the project in which some files have other bytes; only what depends on these files is read again.

        `changed` maps relative paths to bytes; a new Python file below the roots is added. The last result is cached, because the
        gate, the evaluators and the commit ask for the same one.
        """
        if self._last_result is None or self._last_result[0] != changed:
            self._last_result = dict(changed), self._read_with(changed)
        return self._last_result[1]

    def _read_with(self, changed: Mapping[str, bytes]) -> Project:
        """Read the changed files; the facts of other files are reused while they are valid."""
        overlay = {**self._overlay, **changed}
        index = self._add_new_files(changed)
        trusted = {path: digest for path, digest in self._digests.items() if path not in changed}
        reader = FactsReader(index, DiskReader(self.config, overlay), trusted, check_file)
        facts = reader.read(self._facts)
        reading = _ReadFiles(facts, reader.digests, {**self._data, **reader.data}, self._statuses)
        return Project(self.config, index, reading, overlay)

    def _add_new_files(self, changed: Mapping[str, bytes]) -> ModuleIndex:
        """Return the index, extended by those changed files that are new Python files below the roots."""
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
        """Path of a file that a proposal may change -> names of agents: those defined in it, else those that inherit from it."""
        found: dict[str, tuple[str, ...]] = {}
        for agent in self.definitions:
            for path in {method.span.path for method in agent.methods} & self._facts.keys():
                found[path] = (*found.get(path, ()), agent.name)
        return {**found, **{path: self.owners(path) for path in self.agent_files}}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The paths of all files on which the facts depend, sorted: files of the index, and project files that these import."""
        return tuple(sorted(self._digests))

    @property
    def digests(self) -> Mapping[str, str]:
        """Path -> sha256 of each of `inputs`; `""` for one that could not be read."""
        return self._digests

    def fingerprint(self, key: str = "") -> Fingerprint:
        """Return a fingerprint of the inputs, the imports and `key`, by which a later process can see whether they changed."""
        digests = {**self._digests, **self.imports.files}
        further = [path for path in digests if path not in self._statuses.files]
        files = {**self._statuses.files, **take_statuses(self.config.root, further).files}
        return Fingerprint.of(self._statuses._replace(files=files), digests, key)

    @cached_property
    def imports(self) -> Imports:
        """What the agents, the middleware and the factory import.

        Reads files outside of the index, and updates the cache of their imports except in a dry run or with changed files.
        """
        outside = _OutsideImports(self.config, DiskReader(self.config, self._overlay))

        def names_in(path: str) -> tuple[str, ...]:  # of a file that is part of the build, or outside of it
            entry = self._facts.get(path)
            return entry.imports if entry else outside.names_in(path)

        modules = [*(agent.module for agent in self.definitions), *self.config.named_modules]
        agents = self.agent_files
        fact_modules = {name for path in agents for name in self._facts[path].uses}
        needed = needed_by(modules, self.index, names_in, agents, fact_modules)
        if not (self.config.dry_run or self._overlay):
            outside.keep()
        return Imports(outside.digests_of(needed, self._digests), needed.third_party)

    @cached_property
    def wiring(self) -> Wiring:
        """The edges between the agents, with a cache of what the rules have found in them."""
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
        """Return `(line, codes)` of each `# graphbus: ignore[...]` in a file. Line 0: the whole file; no codes: all codes."""
        entry = self._facts.get(path)
        return entry.ignores if entry else self.source(path).ignores() if path in self.index.skipped else ()

    # --- text ---------------------------------------------------------------------------

    @property
    def reader(self) -> DiskReader:
        """Reads files as this project has them: changed bytes if there are any, else those that were read, else from disk."""
        return DiskReader(self.config, {**self._data, **self._overlay})

    def source(self, path: str) -> ModuleSource:
        """Return a file of the project.

        Raises:
            BuildError: GBE203 or GBE204, the file cannot be read.
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
        """Return the text that a span covers; raises what `source` raises."""
        return self.source(span.path).span_bytes(span).decode()
