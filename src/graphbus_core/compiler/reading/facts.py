"""The facts of each file: its agents, findings and errors, and the digests of the files on which they depend.

Facts are plain data: a build keeps them in `.graphbus/cache/`, and a change of one file leaves those of the others valid.
"""

from __future__ import annotations

import ast
import gc
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.discover import ModuleFile, ModuleIndex
from graphbus_core.compiler.reading.classes import Methods, is_abstract, is_node_class, read_agent
from graphbus_core.compiler.reading.imports import imported_names
from graphbus_core.compiler.reading.modules import (
    NODE,
    ClassSite,
    DefinedName,
    External,
    ImportBinding,
    Library,
    Module,
    NameScope,
    absolute_name,
    follow_aliases,
)
from graphbus_core.compiler.reading.syntax import Ignores, ModuleSource
from graphbus_core.compiler.reading.topics import DefinedTopic, defined_topics
from graphbus_core.errors import BuildError, GraphBusError, Place
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding

_WORD = re.compile(rb"[^\W\d]\w*|[\x80-\xff]+")
_NAMING = (ImportBinding, ast.ClassDef, ast.Name, ast.Attribute)
_CLASS_WITH_BASES = re.compile(rb"^[ \t]*class[ \t]+\w+[ \t]*[\[(]", re.MULTILINE)
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+(\.*)[ \t]*([\w.]*)", re.MULTILINE)
_FIRST_WORDS = (b"graphbus_core", b"GraphBusNode")


class FileError(msgspec.Struct, frozen=True, array_like=True):
    """A `BuildError` as data."""

    code: str
    where: tuple[str, int, int]
    data: dict[str, str | int]

    def to_error(self) -> BuildError:
        """Return the exception."""
        return BuildError(self.code, where=Place(*self.where), **self.data)

    @classmethod
    def of(cls, error: GraphBusError) -> FileError:
        """Return the data of an exception."""
        where = error.where or Place("")
        data = {key: value if isinstance(value, int) else str(value) for key, value in error.data.items()}
        return cls(error.code, (where.path, where.line, where.column), data)


class FileFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one file says.

    Attributes:
        sha256: Digest of the bytes that were read.
        is_parsed: False when nothing in the file can be an agent, so that nothing was looked for in it.
        node_names: Names in the file that stand for agent classes or for `GraphBusNode`: others may inherit from them.
        agents: The agents defined here, in the order of the source.
        uses: Modules whose text the facts rest on -> digest of their text, `""` for one that did not exist.
        findings: What the rules that need the syntax tree found.
        ignores: The `# graphbus: ignore` comments.
        error: Why the file could not be read.
        imports: The dotted names that it imports, see `reading.imports`.
        topics: The Topics that it makes.
    """

    sha256: str
    is_parsed: bool = False
    node_names: tuple[str, ...] = ()
    agents: tuple[AgentDefinition, ...] = ()
    uses: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()
    ignores: Ignores = ()
    error: FileError | None = None
    imports: tuple[str, ...] = ()
    topics: tuple[DefinedTopic, ...] = ()


Facts = dict[str, FileFacts]
_Looked = tuple[Facts, dict[str, str], dict[str, bytes]]
"""Facts, digests and bytes by path."""
_FILES_A_WORKER = 30
"""Fewer are read faster than a process is copied and its answer decoded."""
_MOST_WORKERS = 8

Read = Callable[[str], bytes]


class ReadFile(NamedTuple):
    """A file while its syntax tree is there.

    Attributes:
        library: The modules of the project.
        module: The file.
        imports: The dotted names that it imports, see `reading.imports`.
        agents: Each agent class with its definition and its methods.
    """

    library: Library
    module: Module
    imports: tuple[str, ...]
    agents: tuple[tuple[ast.ClassDef, AgentDefinition, Methods], ...]


_CheckFile = Callable[[ReadFile], tuple[Finding, ...]]


class FactsReader:
    """Reads the files of an index, looking closely only at those that can hold an agent.

    Args:
        index: The files.
        read: Gives the bytes of a relative path, or raises BuildError.
        trusted: Path -> sha256 of files that are known not to have changed, so that they need not be read.
        check_file: What the rules say of a file while its syntax tree is there.

    Attributes:
        digests: Path -> sha256 of every file that `read` took into account.
        data: Path -> the bytes of those that it opened.
    """

    def __init__(self, index: ModuleIndex, read: Read, trusted: Mapping[str, str], check_file: _CheckFile) -> None:
        self.digests: dict[str, str] = {}
        self._check_file = check_file
        self._trusted = trusted
        self._index = index
        self._paths = {file.path for file in index.files}
        self._read = read
        self.data: dict[str, bytes] = {}
        self._library = Library(index, self._bytes_or_none)

    def _bytes_or_none(self, path: str) -> bytes | None:
        try:
            return self._bytes(path)
        except BuildError:
            return None

    def _bytes(self, path: str) -> bytes:
        if path not in self.data:
            self.data[path] = self._read(path)
        return self.data[path]

    def _digest(self, path: str) -> str:
        if path not in self.digests:
            data = None if path in self._trusted else self._bytes_or_none(path)
            self.digests[path] = sha256_hex(data) if data is not None else self._trusted.get(path, "")
        return self.digests[path]

    def read(self, known: Mapping[str, FileFacts]) -> Facts:
        """Return the facts of all files; those in `known` are taken over where they still hold."""
        with _bulk():
            facts = {path: entry for path, entry in known.items() if self._still_holds(path, entry)}
            facts |= {} if known else self._look_together()
            fresh = [file for file in self._index.files if file.path not in facts]
            facts |= {file.path: found for file in fresh if (found := self._first_look(file))}
            self._follow_names(facts, [file for file in fresh if file.path not in facts], known)
        return {file.path: facts[file.path] for file in self._index.files}

    def _still_holds(self, path: str, entry: FileFacts) -> bool:
        if path not in self._paths or entry.error is not None or self._digest(path) != entry.sha256:
            return False
        return all(self._module_digest(name) == digest for name, digest in entry.uses.items())

    def _module_digest(self, name: str) -> str:
        path = self._library.path_of(name)
        return self._digest(path) if path else ""

    def _look_together(self) -> Facts:
        """Read the files that mention GraphBus in several processes if that is faster. A file that has to wait has no entry."""
        files = [file for file in self._index.files if self._names_graphbus(file)]
        count = _workers_for(len(files))
        if count == 1:
            return {}
        parts = [files[number::count] for number in range(count)]
        workers = [worker for part in parts[1:] if (worker := _Worker.start(self._look_at, part))]
        try:
            facts, *_ = self._look_at(parts[0])
        finally:
            results = [worker.result() for worker in workers]
        for looked_at, digests, data in filter(None, results):
            facts |= looked_at
            self.digests |= digests
            self.data |= data
        return facts

    def _names_graphbus(self, file: ModuleFile) -> bool:
        data = self._bytes_or_none(file.path)
        return data is not None and any(word in data for word in _FIRST_WORDS)

    def _look_at(self, files: Iterable[ModuleFile]) -> _Looked:
        """Look at some files; give their facts, and what was found out besides."""
        read = set(self.data)
        looked_at = {file.path: found for file in files if (found := self._first_look(file))}
        return looked_at, self.digests, {path: data for path, data in self.data.items() if path not in read}

    def _first_look(self, file: ModuleFile) -> FileFacts | None:
        """Return the facts of a file; None for a file that can be read only when the names of all agent classes are known."""
        try:
            data = self._bytes(file.path)
        except BuildError as error:
            self.digests[file.path] = ""
            return FileFacts("", error=FileError.of(error))
        if any(word in data for word in _FIRST_WORDS):
            return self._extract(file)
        return None

    def _follow_names(self, facts: Facts, waiting: list[ModuleFile], known: Mapping[str, FileFacts]) -> None:
        """Parse every file that mentions an agent class, repeatedly, until no new agent class is found."""
        seen = {name for entry in known.values() for name in entry.node_names}
        names = {name for entry in facts.values() for name in entry.node_names}
        words = {file: self._words(file) for file in waiting}
        if names - seen:
            before = [file for file in self._index.files if file.path in facts and not facts[file.path].is_parsed]
            words |= {file: self._words(file) for file in before if facts[file.path].error is None}
        fresh = {name.encode() for name in names}
        tried: set[bytes] = set()
        while fresh:
            tried |= fresh
            found: set[str] = set()
            for file in [file for file, mentioned in words.items() if mentioned & fresh]:
                del words[file]
                facts[file.path] = self._extract(file)
                found.update(facts[file.path].node_names)
            fresh = {name.encode() for name in found} - tried
        for file in words:
            is_open = self._may_inherit_from_outside(file)
            facts[file.path] = self._extract(file) if is_open else self._prove(file)

    def _prove(self, file: ModuleFile) -> FileFacts:
        """Return the facts of a file without agents: its imports, or the syntax error that would stop a graph that imports it."""
        source = ModuleSource(file.path, file.module, self._bytes(file.path))
        try:
            return FileFacts(self._digest(file.path), imports=imported_names(source, source.parse()))
        except BuildError as error:
            return FileFacts(self._digest(file.path), error=FileError.of(error))

    def _may_inherit_from_outside(self, file: ModuleFile) -> bool:
        """True when a class with bases stands beside an import of a project file that is not built, e.g. a shared base."""
        data = self._bytes(file.path)
        package = file.module if file.path.endswith("__init__.py") else file.module.rpartition(".")[0]
        imports = _IMPORT.findall(data) if _CLASS_WITH_BASES.search(data) else ()
        names = (absolute_name(name.decode("ascii", "replace"), len(dots), package) for dots, name in imports)
        return any(map(self._library.is_outside, names))

    def _words(self, file: ModuleFile) -> frozenset[bytes]:
        data = self._bytes(file.path)
        return frozenset(_WORD.findall(data)) if b"class" in data or b"import" in data else frozenset()

    def _extract(self, file: ModuleFile) -> FileFacts:
        self._library.used = used = set()
        module = self._library.parsed(file.path, self._bytes(file.path))
        if module is None:
            error = self._library.errors[file.path]
            return FileFacts(self._digest(file.path), is_parsed=True, error=FileError.of(error))
        self.digests[file.path] = module.source.sha256
        try:
            imports = imported_names(module.source, module.tree)
            read = ReadFile(self._library, module, imports, self._agents(module))
            findings = self._check_file(read)
            names = self._node_names(module)
            topics = tuple(defined_topics(module.tree, NameScope(self._library, module), imports))
        except RecursionError:
            error = BuildError("GBE206", where=Place(file.path))
            return FileFacts(module.source.sha256, is_parsed=True, error=FileError.of(error))
        finally:
            self._library.forget(file.path)
        used.discard(file.module)
        return FileFacts(
            module.source.sha256,
            is_parsed=True,
            node_names=tuple(sorted(names)),
            agents=tuple({agent.name: agent for _, agent, _ in read.agents}.values()),
            uses={name: self._module_digest(name) for name in sorted(used)},
            findings=findings,
            ignores=module.source.ignores(),
            imports=imports,
            topics=topics,
        )

    def _agents(self, module: Module) -> tuple[tuple[ast.ClassDef, AgentDefinition, Methods], ...]:
        agents: list[tuple[ast.ClassDef, AgentDefinition, Methods]] = []
        names: set[str] = set()
        for node, is_conditional in module.bindings.classes:
            site = ClassSite(module, node)
            if (is_conditional and node.name in names) or not node.bases:
                continue
            if not is_node_class(self._library, site) or is_abstract(self._library, site):
                continue
            names.add(node.name)
            agents.append((node, *read_agent(self._library, module, node)))
        return tuple(agents)

    def _node_names(self, module: Module) -> set[str]:
        """The names under which this module offers agent classes to others."""
        names: set[str] = set()
        scope = NameScope(self._library, module)
        for name, binding in module.bindings.first.items():
            if not isinstance(binding, _NAMING):
                continue
            target = follow_aliases(self._library.lookup(module, name), scope)
            if isinstance(target, DefinedName) and isinstance(target.node, ast.ClassDef):
                if is_node_class(self._library, ClassSite(target.module, target.node)):
                    names.add(name)
            elif target == External(NODE):
                names.add(name)
        return names


# --- other processes ----------------------------------------------------------------------
#
# Reading a thousand agents is work for the processor alone, and each file is a task of its own. A worker is a fork of this
# process, so that it has all code and all bytes already; its answer is the msgpack that the cache holds as well, which costs a
# twentieth of the work. Nothing is shared, and facts are joined by path: the result does not depend on the number of workers.


def _workers_for(count: int) -> int:
    """Return the number of processes that read so many files: one without `fork`, or while other threads may hold locks."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), _MOST_WORKERS, count // _FILES_A_WORKER))


class _Worker(NamedTuple):
    """A process that looks at some files."""

    process: int
    answer: int

    @classmethod
    def start(cls, look_at: Callable[[Sequence[ModuleFile]], _Looked], files: Sequence[ModuleFile]) -> _Worker | None:
        """Start one; None where the system refuses."""
        answer, end = os.pipe()
        try:
            process = os.fork()
        except OSError:
            os.close(answer)
            os.close(end)
            return None
        if process == 0:  # pragma: no cover - the copy is not measured
            status = 1
            try:
                with open(end, "wb") as pipe:
                    pipe.write(msgspec.msgpack.encode(look_at(files)))
                status = 0
            finally:
                os._exit(status)  # nothing of the surroundings runs twice: no handler, no buffer
        os.close(end)
        return cls(process, answer)

    def result(self) -> _Looked | None:
        """Wait for the facts that the process has read; None if it failed."""
        with open(self.answer, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(self.process, 0)
        return msgspec.msgpack.decode(data, type=_Looked) if status == 0 else None


@contextmanager
def _bulk() -> Iterator[None]:
    """Collect no garbage and show no warnings of the parser while many files are read."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if was_enabled:
            gc.enable()
