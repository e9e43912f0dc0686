"""The values that pass between the stages of a build, and the functions that make them from a `Project`.

`Project.of_index` reads everything at once; the stages only pick their part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath

import msgspec

from graphbus_core import __version__, store
from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading.classes import without_known_constants
from graphbus_core.compiler.reading.syntax import ModuleSource
from graphbus_core.compiler.rules import check
from graphbus_core.errors import ArtifactError, BuildError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import (
    SCHEMA_VERSION,
    AgentsArtifact,
    GraphArtifact,
    Manifest,
    ModifiedFilesArtifact,
    NegotiationsArtifact,
    TopicsArtifact,
)
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import FileChange, Negotiations
from graphbus_core.store import BuildArtifacts


class History(msgspec.Struct, frozen=True):
    """The last negotiation of a project and the files that it changed; empty if there was none."""

    negotiations: NegotiationsArtifact = NegotiationsArtifact()
    modified: ModifiedFilesArtifact = ModifiedFilesArtifact()


def history_of(negotiations: Negotiations, files: tuple[FileChange, ...]) -> History:
    """Return the history after a negotiation that has just ended; `files` are the source files that it changed."""
    return History(NegotiationsArtifact(negotiations), ModifiedFilesArtifact(session=negotiations.session, files=files))


def last_history(config: ResolvedBuild) -> History:
    """Return the history in the artifacts on disk.

    It is empty if the artifacts cannot be read, or if all files that it lists have again the content from before the changes.
    """
    try:
        history = _read_history(Path(config.artifacts_dir))
    except ArtifactError:
        return History()
    files = history.modified.files
    if files and all(store.digest_of(Path(config.root, file.path)) == file.sha256_before for file in files):
        return History()
    return history


def _read_history(folder: Path) -> History:
    """Read the history from artifacts of this format or an older one; ArtifactError if they cannot be read."""
    if store.read_version(folder) < SCHEMA_VERSION:
        from graphbus_core.store.migration import load_any

        old = load_any(folder)[0]
        return History(old.negotiations, old.modified_files)
    modified = store.load_artifact(folder, ModifiedFilesArtifact)
    return History(store.load_artifact(folder, NegotiationsArtifact), modified)


def describe_project(project: Project, history: History) -> BuildArtifacts:
    """Return the artifacts of a project; the digests in the manifest are filled in when they are saved."""
    return BuildArtifacts(
        graph=GraphArtifact(
            nodes=project.graph.nodes,
            edges=project.graph.edges,
            activation_order=project.order.order,
            generations=project.order.generations,
            topic_cycles=project.order.topic_cycles,
        ),
        agents=AgentsArtifact(tuple(map(without_known_constants, project.definitions))),
        topics=TopicsArtifact(project.graph.topics),
        negotiations=history.negotiations,
        modified_files=history.modified,
        manifest=_make_manifest(project),
    )


def _make_manifest(project: Project) -> Manifest:
    """Return the manifest of a project, with an empty `artifacts`: their digests are known when they are saved."""
    settings = project.config.settings
    decisive = [settings.exclude, settings.external_topics, settings.max_source_bytes]
    return Manifest(
        schema_version=SCHEMA_VERSION,
        graphbus_version=__version__,
        project_root="/".join(".." for _ in PurePath(settings.artifacts).parts),
        import_roots=project.index.import_roots,
        roots=project.index.roots,
        artifacts={},
        sources={path: project.digests[path] for path in project.agent_files},
        imports=dict(project.imports.files),
        third_party=project.imports.third_party,
        settings_digest=sha256_hex(msgspec.json.encode(decisive)),
    )


_BETWEEN_AGENTS = ("GB001", "GB003", "GB004", "GB110", "GB120")
"""The rules that compare what one agent sends with what another one expects."""


class SchemaConflict(msgspec.Struct, frozen=True):
    """A conflict between two agents: what one sends does not fit what the other expects.

    Attributes:
        producer: The agent that sends; empty if none does.
        consumer: The agent that expects.
        issue: What does not fit, one sentence.
        suggested_fix: How to fix it.
        code: The rule that found it.
        finding: The finding that this conflict was made from.
    """

    producer: str
    consumer: str
    issue: str
    suggested_fix: str
    code: str
    finding: Finding


class SchemaConflicts(tuple[SchemaConflict, ...]):
    """All conflicts of a project, sorted by place."""

    __slots__ = ()


def detect_conflicts(project: Project) -> SchemaConflicts:
    """Return the conflicts that the rules in `_BETWEEN_AGENTS` find at the edges of the graph."""
    found = check(project, select=_BETWEEN_AGENTS, wiring=project.wiring)
    return SchemaConflicts(_make_conflict(finding, project) for finding in found)


def _make_conflict(finding: Finding, project: Project) -> SchemaConflict:
    """Turn a finding into a conflict between its agent and the first other agent that it names as related.

    The agent of the finding is the producer if edges of the graph lead only from it to the other agent; else the other agent is.
    """
    other = next((related.agent for related in finding.related if related.agent != finding.agent), "")
    gives = bool(other) and other in project.graph.consumers(finding.agent)
    takes = bool(other) and other in project.graph.providers(finding.agent)
    producer, consumer = (finding.agent, other) if gives and not takes else (other, finding.agent)
    return SchemaConflict(producer, consumer, finding.message, finding.hint, finding.code, finding)


def no_agent_error(project: Project) -> BuildError:
    """Return GBE213, the error for a project without agents.

    Its reason says why the first class that looks like an agent is not one; it is empty if no class does.
    """
    roots = ", ".join("this folder" if root == "." else root for root in project.index.roots)
    for found in check(project, select=("GB319", "GB320")):
        reason, advice = f": {found.message.rstrip('.')}", found.hint
        return BuildError("GBE213", paths=roots, reason=reason, where=found.span.place, advice=advice)
    advice = "Add a class that derives from GraphBusNode; `graphbus generate agent NAME` writes one."
    return BuildError("GBE213", paths=roots, reason="", advice=advice)


class NodeClass(msgspec.Struct, frozen=True):
    """A `GraphBusNode` subclass: its name, its module and the relative path of its file."""

    name: str
    module: str
    path: str


class NodeClasses(msgspec.Struct, frozen=True):
    """All agent classes sorted by place, and the project that they were found in."""

    classes: tuple[NodeClass, ...]
    project: Project


class Sources(msgspec.Struct, frozen=True):
    """The sources of the files that define agents, by relative path."""

    files: Mapping[str, ModuleSource]


class AgentDefinitions(msgspec.Struct, frozen=True):
    """All agents in the order of activation."""

    definitions: tuple[AgentDefinition, ...]


def discover_classes(index: ModuleIndex, config: ResolvedBuild) -> NodeClasses:
    """Read the files of an index and find the agent classes. No user code is imported."""
    project = Project.of_index(config, index)
    found = sorted(project.definitions, key=lambda agent: agent.span.place)
    return NodeClasses(tuple(NodeClass(agent.name, agent.module, agent.path) for agent in found), project)


def read_sources(classes: NodeClasses) -> Sources:
    """Return the source of each file that defines an agent."""
    project = classes.project
    return Sources({path: project.source(path) for path in project.agent_files})


def extract_agents(classes: NodeClasses, sources: Sources) -> AgentDefinitions:
    """Return the definitions of the agents whose sources were read."""
    return AgentDefinitions(tuple(agent for agent in classes.project.definitions if agent.path in sources.files))
