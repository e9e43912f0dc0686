"""Artifacts as evidence for the rules, where the sources that they were made from are not at hand.

What only the text of a handler can show is not known then; no rule takes that for a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import BuildConfig, Settings
from graphbus_core.model.findings import Finding

_NEEDS_ALL_FILES = frozenset({"GB001", "GB002", "GB005"})


class _NoText(NamedTuple):
    """A file of which nothing is known."""

    path: str
    data: bytes = b""
    text: str = ""
    utf8: bytes = b""
    line_starts: tuple[int, ...] = (0,)
    newline: str = "\n"


class _NoFiles(NamedTuple):
    files: tuple[_NoText, ...] = ()


class Recorded:
    """The facts that artifacts hold of a project."""

    def __init__(self, artifacts: BuildArtifacts) -> None:
        external = tuple(topic.name for topic in artifacts.topics.topics if topic.is_external)
        self.config = BuildConfig(root="", paths=(), settings=Settings(external_topics=external))
        self.index = _NoFiles()
        self.definitions: tuple[AgentDefinition, ...] = artifacts.agents.agents
        self.errors: tuple[BuildError, ...] = ()
        self.local_findings: tuple[Finding, ...] = ()

    def source(self, path: str) -> _NoText:
        """Give a file without its text."""
        return _NoText(path)

    def ignores(self, path: str) -> Sequence[tuple[int, tuple[str, ...]]]:
        """Give no comments: they are in the text."""
        return ()


def surely(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Leave out what rests on the absence of something that a file without agents may hold, e.g. `main.py`."""
    return tuple(finding for finding in findings if finding.code not in _NEEDS_ALL_FILES or _is_seen(finding))


def _is_seen(finding: Finding) -> bool:
    """A request with several answers, or a topic that is none, needs no other file."""
    return finding.severity == "error" and (finding.code == "GB001" or bool(finding.related))
