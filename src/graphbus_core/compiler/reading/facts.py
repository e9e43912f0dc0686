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
_NAME_BINDINGS = (ImportBinding, ast.ClassDef, ast.Name, ast.Attribute)
_CLASS_WITH_BASES = re.compile(rb"^[ \t]*class[ \t]+\w+[ \t]*[\[(]", re.MULTILINE)
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+(\.*)[ \t]*([\w.]*)", re.MULTILINE)
_FIRST_WORDS = (b"graphbus_core", b"GraphBusNode")


class FileError(msgspec.Struct, frozen=True, array_like=True):
    """A `BuildError` as plain data, for the cache: its code, the `(path, line, column)` of its place, and its data."""

    code: str
    where: tuple[str, int, int]
    data: dict[str, str | int]

    def to_error(self) -> BuildError:
        """Return this error as an exception again."""
        return BuildError(self.code, where=Place(*self.where), **self.data)

    @classmethod
    def of(cls, error: GraphBusError) -> FileError:
        """Return an error as data; values that are not numbers become text."""
        where = error.where or Place("")
        data = {key: value if isinstance(value, int) else str(value) for key, value in error.data.items()}
        return cls(error.code, (where.path, where.line, where.column), data)


class FileFacts(msgspec.Struct, frozen=True, array_like=True):
    """The facts of one file.

    Attributes:
        sha256: Digest of the bytes that were read.
        is_parsed: False when nothing in the file can be an agent, so that no agents were looked for.
        node_names: Names in the file that stand for agent classes or for `GraphBusNode`: others may inherit from them.
        agents: The agents defined here, in the order of the source.
        uses: Module that the facts depend on -> digest of its text, `""` for one that did not exist.
        findings: The findings of the rules that need the syntax tree.
        ignores: The `# graphbus: ignore` comments.
        error: Why the file could not be read.
        imports: The dotted names that it imports, see `reading.imports`.
        topics: The `Topic(...)` objects that it creates.
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
_PartialFacts = tuple[Facts, dict[str, str], dict[str, bytes]]
"""The result of one process: facts, digests and bytes, each by path."""
_FILES_PER_WORKER = 30
"""Fewer files are read faster than a process is forked and its answer decoded."""
_MAX_WORKERS = 8

Read = Callable[[str], bytes]


class ReadFile(NamedTuple):
    """A file whose syntax tree is in memory.

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
    """Reads the files of an index; only files that can hold an agent are searched for agents.

    Args:
        index: The files.
        read: Returns the bytes of the file at a relative path, or raises BuildError.
        trusted: Path -> sha256 of files that are known not to have changed, so that they need not be read.
        check_file: Returns the findings of the rules that need the syntax tree of a file.

    Attributes:
        digests: Path -> sha256 of every file that the facts depend on; `""` for one that cannot be read.
        data: Path -> the bytes of the files that were opened.
    """

    def __init__(self, index: ModuleIndex, read: Read, trusted: Mapping[str, str], check_file: _CheckFile) -> None:
        self.digests: dict[str, str] = {}
        self._check_file = check_file
        self._trusted = trusted
        self._index = index
        self._paths = {file.path for file in index.files}
        self._read = read
        self.data: dict[str, bytes] = {}
        self._library = Library(index, self._read_or_none)

    def _read_or_none(self, path: str) -> bytes | None:
        """Return the bytes of a file; None if it cannot be read."""
        try:
            return self._read_once(path)
        except BuildError:
            return None

    def _read_once(self, path: str) -> bytes:
        """Return the bytes of a file, which is opened only once; BuildError if it cannot be read."""
        if path not in self.data:
            self.data[path] = self._read(path)
        return self.data[path]

    def _digest_of(self, path: str) -> str:
        """Return the digest of a file and note it in `digests`; `""` if it cannot be read. A trusted file is not opened."""
        if path not in self.digests:
            data = None if path in self._trusted else self._read_or_none(path)
            self.digests[path] = sha256_hex(data) if data is not None else self._trusted.get(path, "")
        return self.digests[path]

    def read(self, known: Mapping[str, FileFacts]) -> Facts:
        """Return the facts of all files, in the order of the index; those in `known` are reused where they are still valid."""
        with _without_gc_and_warnings():
            facts = {path: entry for path, entry in known.items() if self._is_still_valid(path, entry)}
            facts |= {} if known else self._read_in_processes()
            fresh = [file for file in self._index.files if file.path not in facts]
            facts |= {file.path: found for file in fresh if (found := self._read_if_independent(file))}
            self._read_dependent_files(facts, [file for file in fresh if file.path not in facts], known)
        return {file.path: facts[file.path] for file in self._index.files}

    def _is_still_valid(self, path: str, entry: FileFacts) -> bool:
        """True if neither the file nor a module that its facts depend on has changed; False for facts with an error."""
        if path not in self._paths or entry.error is not None or self._digest_of(path) != entry.sha256:
            return False
        return all(self._digest_of_module(name) == digest for name, digest in entry.uses.items())

    def _digest_of_module(self, name: str) -> str:
        """Return the digest of the file of a module; `""` if the project has no such module."""
        path = self._library.path_of(name)
        return self._digest_of(path) if path else ""

    def _read_in_processes(self) -> Facts:
        """Read the files that mention GraphBus in several processes; return no facts if a single process is faster.

        A file whose process failed has no facts in the result.
        """
        files = [file for file in self._index.files if self._mentions_graphbus(file)]
        count = _count_workers(len(files))
        if count == 1:
            return {}
        parts = [files[number::count] for number in range(count)]
        workers = [worker for part in parts[1:] if (worker := _Worker.start(self._read_part, part))]
        try:
            facts, *_ = self._read_part(parts[0])
        finally:
            results = [worker.result() for worker in workers]
        for read, digests, data in filter(None, results):
            facts |= read
            self.digests |= digests
            self.data |= data
        return facts

    def _mentions_graphbus(self, file: ModuleFile) -> bool:
        """True if the file contains one of `_FIRST_WORDS`, so that it uses GraphBus itself; False if it cannot be read."""
        data = self._read_or_none(file.path)
        return data is not None and any(word in data for word in _FIRST_WORDS)

    def _read_part(self, files: Iterable[ModuleFile]) -> _PartialFacts:
        """Read some files; return their facts, all digests noted so far, and the bytes of the files that were opened for it."""
        before = set(self.data)
        facts = {file.path: found for file in files if (found := self._read_if_independent(file))}
        return facts, self.digests, {path: data for path, data in self.data.items() if path not in before}

    def _read_if_independent(self, file: ModuleFile) -> FileFacts | None:
        """Return the facts of a file that mentions GraphBus, or that cannot be read.

        None for any other file: whether it defines agents depends on the names of all agent classes.
        """
        try:
            data = self._read_once(file.path)
        except BuildError as error:
            self.digests[file.path] = ""
            return FileFacts("", error=FileError.of(error))
        if any(word in data for word in _FIRST_WORDS):
            return self._extract_facts(file)
        return None

    def _read_dependent_files(self, facts: Facts, waiting: list[ModuleFile], known: Mapping[str, FileFacts]) -> None:
        """Add to `facts` those of the `waiting` files, which do not mention GraphBus.

        A file that mentions an agent class is searched for agents. That is repeated until no new agent class is found.
        """
        seen = {name for entry in known.values() for name in entry.node_names}
        names = {name for entry in facts.values() for name in entry.node_names}
        words = {file: self._find_words(file) for file in waiting}
        if names - seen:  # a file that seemed to hold no agents may mention a new agent class
            before = [file for file in self._index.files if file.path in facts and not facts[file.path].is_parsed]
            words |= {file: self._find_words(file) for file in before if facts[file.path].error is None}
        fresh = {name.encode() for name in names}
        tried: set[bytes] = set()
        while fresh:
            tried |= fresh
            found: set[str] = set()
            for file in [file for file, mentioned in words.items() if mentioned & fresh]:
                del words[file]
                facts[file.path] = self._extract_facts(file)
                found.update(facts[file.path].node_names)
            fresh = {name.encode() for name in found} - tried
        for file in words:
            may_hold_agents = self._may_inherit_from_outside(file)
            facts[file.path] = self._extract_facts(file) if may_hold_agents else self._read_without_agents(file)

    def _read_without_agents(self, file: ModuleFile) -> FileFacts:
        """Return the facts of a file without agents: its imports, or the syntax error for which a run could not import it."""
        source = ModuleSource(file.path, file.module, self._read_once(file.path))
        try:
            return FileFacts(self._digest_of(file.path), imports=imported_names(source, source.parse()))
        except BuildError as error:
            return FileFacts(self._digest_of(file.path), error=FileError.of(error))

    def _may_inherit_from_outside(self, file: ModuleFile) -> bool:
        """True if the file has a class with bases, and imports a file of the project that is not part of the build.

        The imported file may define a base class of agents.
        """
        data = self._read_once(file.path)
        package = file.module if file.path.endswith("__init__.py") else file.module.rpartition(".")[0]
        imports = _IMPORT.findall(data) if _CLASS_WITH_BASES.search(data) else ()
        names = (absolute_name(name.decode("ascii", "replace"), len(dots), package) for dots, name in imports)
        return any(map(self._library.is_outside, names))

    def _find_words(self, file: ModuleFile) -> frozenset[bytes]:
        """Return the words in a file; none for a file that neither defines classes nor imports."""
        data = self._read_once(file.path)
        return frozenset(_WORD.findall(data)) if b"class" in data or b"import" in data else frozenset()

    def _extract_facts(self, file: ModuleFile) -> FileFacts:
        """Parse a file and return its facts, or its error; its digest is noted in `digests`, and its syntax tree is released."""
        self._library.used = used = set()  # collects the modules on which the facts of this file depend
        module = self._library.parsed(file.path, self._read_once(file.path))
        if module is None:
            error = self._library.errors[file.path]
            return FileFacts(self._digest_of(file.path), is_parsed=True, error=FileError.of(error))
        self.digests[file.path] = module.source.sha256
        try:
            imports = imported_names(module.source, module.tree)
            read = ReadFile(self._library, module, imports, self._read_agents(module))
            findings = self._check_file(read)
            names = self._find_node_names(module)
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
            uses={name: self._digest_of_module(name) for name in sorted(used)},
            findings=findings,
            ignores=module.source.ignores(),
            imports=imports,
            topics=topics,
        )

    def _read_agents(self, module: Module) -> tuple[tuple[ast.ClassDef, AgentDefinition, Methods], ...]:
        """Read the agent classes of a module, without a class in a conditional block whose name an earlier agent class has."""
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

    def _find_node_names(self, module: Module) -> set[str]:
        """Return the names by which other files can import agent classes, or `GraphBusNode`, from this module."""
        names: set[str] = set()
        scope = NameScope(self._library, module)
        for name, binding in module.bindings.first.items():
            if not isinstance(binding, _NAME_BINDINGS):
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
# Reading files is limited by the processor, and each file is a task of its own. A worker is a fork of this process, so it has
# all code and all bytes already. Its answer is msgpack, as in the cache, which costs a twentieth of the reading. Nothing is
# shared, and facts are joined by path: the result does not depend on the number of workers.


def _count_workers(count: int) -> int:
    """Return the number of processes that should read this many files; one if threads or the system make `fork` unsafe."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), _MAX_WORKERS, count // _FILES_PER_WORKER))


class _Worker(NamedTuple):
    """A process that reads some files: its id, and the file descriptor from which its answer is read."""

    process: int
    answer: int

    @classmethod
    def start(
        cls, read_part: Callable[[Sequence[ModuleFile]], _PartialFacts], files: Sequence[ModuleFile]
    ) -> _Worker | None:
        """Start a process that calls `read_part(files)` and sends its result; None if the system refuses a process."""
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
                    pipe.write(msgspec.msgpack.encode(read_part(files)))
                status = 0
            finally:
                os._exit(status)  # exit handlers and buffers of the parent must not run twice
        os.close(end)
        return cls(process, answer)

    def result(self) -> _PartialFacts | None:
        """Wait for the process to end and return what it has read; None if it failed. To be called once."""
        with open(self.answer, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(self.process, 0)
        return msgspec.msgpack.decode(data, type=_PartialFacts) if status == 0 else None


@contextmanager
def _without_gc_and_warnings() -> Iterator[None]:
    """In a `with` block, switch off garbage collection, which slows down the reading of many files, and all warnings."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if was_enabled:
            gc.enable()
