"""What the stages of a build make: classes, sources, definitions, conflicts, and the artifacts that describe a project.

`Project.read` does all of the reading at once; the stages only take it apart.
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
    BuildArtifacts,
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


class History(msgspec.Struct, frozen=True):
    """The last negotiation of a project, and the files that it changed; empty if there was none."""

    negotiations: NegotiationsArtifact = NegotiationsArtifact()
    modified: ModifiedFilesArtifact = ModifiedFilesArtifact()


def history_of(negotiations: Negotiations, files: tuple[FileChange, ...]) -> History:
    """Give the history that a negotiation has just made."""
    return History(NegotiationsArtifact(negotiations), ModifiedFilesArtifact(session=negotiations.session, files=files))


def last_history(config: ResolvedBuild) -> History:
    """Give what the artifacts on disk remember; nothing where they cannot be read, or where it was taken back since."""
    try:
        history = _recorded(Path(config.artifacts_dir))
    except ArtifactError:
        return History()
    files = history.modified.files
    if files and all(store.digest_of(Path(config.root, file.path)) == file.sha256_before for file in files):
        return History()
    return history


def _recorded(folder: Path) -> History:
    if store.read_version(folder) < SCHEMA_VERSION:
        from graphbus_core.store.migration import load_any

        old = load_any(folder)[0]
        return History(old.negotiations, old.modified_files)
    modified = store.load_artifact(folder, ModifiedFilesArtifact)
    return History(store.load_artifact(folder, NegotiationsArtifact), modified)


def describe(project: Project, history: History) -> BuildArtifacts:
    """Give everything that `.graphbus/` says of a project; the digests of the artifacts come when they are saved."""
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
        manifest=_manifest(project),
    )


def _manifest(project: Project) -> Manifest:
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
"""The rules that compare what one agent gives with what another one takes."""


class SchemaConflict(msgspec.Struct, frozen=True):
    """What one agent gives does not fit what another one takes.

    Attributes:
        producer: Who gives; empty when nobody does.
        consumer: Who takes.
        issue: What does not fit, one sentence.
        suggested_fix: What to do about it.
        code: The rule that found it.
    """

    producer: str
    consumer: str
    issue: str
    suggested_fix: str
    code: str
    finding: Finding


class SchemaConflicts(tuple[SchemaConflict, ...]):
    """All conflicts of a project, by place."""

    __slots__ = ()


def detect_conflicts(project: Project) -> SchemaConflicts:
    """Compare the ends of every edge of the graph."""
    found = check(project, select=_BETWEEN_AGENTS, wiring=project.wiring)
    return SchemaConflicts(_conflict(finding, project) for finding in found)


def _conflict(finding: Finding, project: Project) -> SchemaConflict:
    """Each end of the edge by its role: who publishes or is depended on is the producer."""
    other = next((related.agent for related in finding.related if related.agent != finding.agent), "")
    gives = bool(other) and other in project.graph.consumers(finding.agent)
    takes = bool(other) and other in project.graph.providers(finding.agent)
    producer, consumer = (finding.agent, other) if gives and not takes else (other, finding.agent)
    return SchemaConflict(producer, consumer, finding.message, finding.hint, finding.code, finding)


def no_agent(project: Project) -> BuildError:
    """Say that a project has no agent, and of the first class that was meant as one why it is none."""
    roots = ", ".join("this folder" if root == "." else root for root in project.index.roots)
    for meant in check(project, select=("GB319", "GB320")):
        return BuildError("GBE213", paths=roots, reason=f": {meant.message}", where=meant.span.place)
    return BuildError("GBE213", paths=roots, reason="")


class NodeClass(msgspec.Struct, frozen=True):
    """A `GraphBusNode` subclass: its name, its module and the relative path of its file."""

    name: str
    module: str
    path: str


class NodeClasses(msgspec.Struct, frozen=True):
    """All agent classes by place, and the project that they were found in."""

    classes: tuple[NodeClass, ...]
    project: Project


class Sources(msgspec.Struct, frozen=True):
    """Relative path -> source of each file with an agent in it."""

    files: Mapping[str, ModuleSource]


class AgentDefinitions(msgspec.Struct, frozen=True):
    """All agents in the order of activation."""

    definitions: tuple[AgentDefinition, ...]


def discover_classes(index: ModuleIndex, config: ResolvedBuild) -> NodeClasses:
    """Find the agent classes of an index. No user code is imported."""
    project = Project.of_index(config, index)
    found = sorted(project.definitions, key=lambda agent: agent.span.place)
    return NodeClasses(tuple(NodeClass(agent.name, agent.module, agent.path) for agent in found), project)


def read_sources(classes: NodeClasses) -> Sources:
    """Give the text of each file with an agent in it."""
    project = classes.project
    return Sources({path: project.source(path) for path in project.agent_files})


def extract_agents(classes: NodeClasses, sources: Sources) -> AgentDefinitions:
    """Give the definitions of the agents whose sources were read."""
    return AgentDefinitions(tuple(agent for agent in classes.project.definitions if agent.path in sources.files))
