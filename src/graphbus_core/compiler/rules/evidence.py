"""What the rules need to know about a project. `compiler.project.Project` provides it; this module imports neither of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Protocol

from graphbus_core.compiler.reading import syntax
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding

UNREADABLE = frozenset({"GBE201", "GBE202", "GBE203", "GBE204", "GBE205", "GBE206"})
"""A file that could not be read may hold the missing end of any edge."""


class Source(Protocol):
    """A file of the project."""

    @property
    def path(self) -> str:
        """Relative posix path."""

    @property
    def data(self) -> bytes:
        """The bytes of the file."""

    @property
    def text(self) -> str:
        """The decoded text, line ends untouched."""

    @property
    def utf8(self) -> bytes:
        """The text in UTF-8: what the columns of spans count in."""

    @property
    def line_starts(self) -> tuple[int, ...]:
        """The offset in `utf8` at which each line begins."""

    @property
    def newline(self) -> str:
        """The first line end in the file."""


class Module(Protocol):
    """A file of the index."""

    @property
    def path(self) -> str:
        """Relative posix path."""


class Index(Protocol):
    """The files of the build."""

    @property
    def files(self) -> Sequence[Module]:
        """By path."""


class Evidence(Protocol):
    """The facts of a project."""

    @property
    def config(self) -> ResolvedBuild:
        """What is built."""

    @property
    def index(self) -> Index:
        """The files."""

    @property
    def definitions(self) -> tuple[AgentDefinition, ...]:
        """The agents in the order of activation."""

    @property
    def errors(self) -> tuple[BuildError, ...]:
        """What could not be read or connected."""

    @property
    def local_findings(self) -> tuple[Finding, ...]:
        """What the rules that need the syntax tree found."""

    def source(self, path: str) -> Source:
        """Give a file."""

    def ignores(self, path: str) -> Sequence[tuple[int, tuple[str, ...]]]:
        """Give the ignore comments of a file: line (0: the whole file) and codes (none: all)."""


def trees_with(words: Sequence[str], evidence: Evidence) -> Iterator[ast.Module | None]:
    """Give the tree of each file whose bytes hold all these words, None for one that holds them but cannot be read."""
    needles = [word.encode() for word in words]
    for module in evidence.index.files:
        try:
            source = evidence.source(module.path)
        except BuildError:
            yield None
            continue
        if all(needle in source.data for needle in needles):
            yield _tree(source)


def _tree(source: Source) -> ast.Module | None:
    try:
        return syntax.parse(source.text)
    except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
        return None
