"""A project at one moment: its agents, their graph and order, what is wrong with it, and the text that all this was read from.

A project never changes. `with_files` gives another one in which some files have other bytes; nothing is written. The facts of its
files, and the imports of files outside of it, are kept in `.graphbus/cache/` between builds.
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
from graphbus_core.model.artifacts import SCHEMA_VERSION, BuildArtifacts
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding
from graphbus_core.store import digest_of
from graphbus_core.store.cache import CACHE, read_cache, write_cache
from graphbus_core.store.migration import Learned
from graphbus_core.store.stamps import Fingerprint, Look, look_at


def learn_imports(folder: Path, artifacts: BuildArtifacts) -> Learned:
    """Read what the agents import now; nothing is imported or written.

    Raises:
        ArtifactError: GBE512 for a source file that is not what the artifacts describe; SeveralErrors for more than one.
        UsageError: The settings of the project cannot be read.
    """
    manifest = artifacts.manifest
    if manifest is None:
        return Learned()
    drifted = store.verify_sources(folder, manifest)
    raise_all(ArtifactError("GBE512", where=Place(path), wanted=SCHEMA_VERSION) for path in drifted)
    root = Path(store.project_root(folder, manifest))
    config = ResolvedBuild(root=str(root), paths=(), settings=settings.load(root), dry_run=True)
    agents = tuple(sorted({ModuleFile(agent.path, agent.module) for agent in artifacts.agents.agents}))
    index = ModuleIndex(str(root), agents, manifest.import_roots, manifest.roots)
    outside = _ImportsOutside(config, DiskReader(config))
    modules = [*(agent.module for agent in agents), *config.named_modules]
    needed = needed_by(modules, index, outside.names_in, manifest.sources)
    return Learned(outside.digests_of(needed, {}), needed.third_party)


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


class _FactsCache:
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


class _Named(NamedTuple):
    """What a file outside of the index imports, and the digest of the bytes that say so."""

    sha256: str
    names: tuple[str, ...]


class _KeptNames(msgspec.Struct, frozen=True, array_like=True):
    key: str
    files: dict[str, _Named]


class _ImportsOutside:
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
            source = ModuleSource(path, module, data)
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


class _Reading(NamedTuple):
    """What came of reading the files: facts, path -> sha256, path -> bytes, and the status of the files before."""

    facts: Facts
    digests: Mapping[str, str]
    data: Mapping[str, bytes]
    look: Look


class Imports(msgspec.Struct, frozen=True):
    """What the agents of a project need besides their own files.

    Attributes:
        files: Path -> sha256 of the project's other files that they import, directly or by others; `""` where an import that may
            fail found none.
        third_party: The top-level names of the modules of other people.
    """

    files: Mapping[str, str]
    third_party: tuple[str, ...]


class Project:
    """See the module. Made by `Project.read` and `with_files`.

    Attributes:
        config: What is built.
        index: The files.
        graph: The agents, their edges and topics.
        order: The order of activation.
        definitions: The agents in the order of activation.
        errors: Every file that could not be read and everything that is wrong with the graph, its handlers and topics, by place.
    """

    def __init__(
        self,
        config: ResolvedBuild,
        index: ModuleIndex,
        reading: _Reading,
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
        """Read all files of a build.

        Args:
            config: What to read.
            cache: Use and renew `.graphbus/cache/`, so that files that did not change are not parsed again.
        """
        return cls.of_index(config, discover_modules(config), cache=cache)

    @classmethod
    def of_index(cls, config: ResolvedBuild, index: ModuleIndex, *, cache: bool = True) -> Project:
        """Read the files of an index that is known already. A dry run does not renew the cache."""
        kept = _FactsCache(config, index)
        known, trusted = kept.recall() if cache else ({}, {})
        reader = FactsReader(index, DiskReader(config), trusted, check_file)
        facts = reader.read(known)
        if cache and facts != known and not config.dry_run:
            kept.keep(facts, reader.digests)
        return cls(config, index, _Reading(facts, reader.digests, reader.data, kept.look), {})

    def with_files(self, changed: Mapping[str, bytes]) -> Project:
        """Give the project in which these files, by relative path, have these bytes. Only they are read again.

        What was asked for last is kept: the gate, those who judge a change and its commit all want the same one.
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
        reading = _Reading(facts, reader.digests, {**self._data, **reader.data}, self._look)
        return Project(self.config, index, reading, overlay)

    def _index_with(self, changed: Mapping[str, bytes]) -> ModuleIndex:
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
        """Give the agent of this name, or None."""
        return self._by_name.get(name)

    def owners(self, path: str) -> tuple[str, ...]:
        """Give the names of the agents that are defined in a file, in the order of the source."""
        entry = self._facts.get(path)
        return tuple(agent.name for agent in entry.agents) if entry else ()

    @cached_property
    def agent_files(self) -> tuple[str, ...]:
        """The files with an agent in them, by path."""
        return tuple(path for path, entry in self._facts.items() if entry.agents)

    @cached_property
    def editable(self) -> Mapping[str, tuple[str, ...]]:
        """Path -> the agents whose class is written there, else those with a base there: the files that a proposal may change."""
        found: dict[str, tuple[str, ...]] = {}
        for agent in self.definitions:
            for path in {method.span.path for method in agent.methods} & self._facts.keys():
                found[path] = (*found.get(path, ()), agent.name)
        return {**found, **{path: self.owners(path) for path in self.agent_files}}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Every file that the facts rest on, by path: the index, and modules that it imports from elsewhere in the project."""
        return tuple(sorted(self._digests))

    @property
    def digests(self) -> Mapping[str, str]:
        """Path -> sha256 of each of `inputs` as it was read; `""` for one that could not be."""
        return self._digests

    def fingerprint(self, key: str = "") -> Fingerprint:
        """Give what tells whether the files on disk are still those that this project was read from."""
        digests = {**self._digests, **self.imports.files}
        further = [path for path in digests if path not in self._look.files]
        files = {**self._look.files, **look_at(self.config.root, further).files}
        return Fingerprint.of(self._look._replace(files=files), digests, key)

    @cached_property
    def imports(self) -> Imports:
        """What must be there when the agents and the middleware run; files outside of the index are read for it."""
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
        """Who sends what to whom, and what the rules have found in it so far."""
        return Wiring(self)

    @property
    def topics(self) -> tuple[DefinedTopic, ...]:
        """The Topics that the files make, used or not."""
        return tuple(each for path in sorted(self._facts) for each in self._facts[path].topics)

    @cached_property
    def local_findings(self) -> tuple[Finding, ...]:
        """What the rules that need the syntax tree found, by place."""
        return tuple(finding for entry in self._facts.values() for finding in entry.findings)

    def ignores(self, path: str) -> Ignores:
        """Give the `# graphbus: ignore[...]` comments of a file: line (0: the whole file) and codes (none: all)."""
        entry = self._facts.get(path)
        return entry.ignores if entry else self.source(path).ignores() if path in self.index.skipped else ()

    # --- text ---------------------------------------------------------------------------

    @property
    def reader(self) -> DiskReader:
        """What gives the bytes of a file of this project by its path, whether it is part of the index or not."""
        return DiskReader(self.config, {**self._data, **self._overlay})

    def source(self, path: str) -> ModuleSource:
        """Give a file of the project.

        Raises:
            BuildError: GBE203-205 when it cannot be read.
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
        """Give the text that a span covers."""
        return self.source(span.path).span_bytes(span).decode()
