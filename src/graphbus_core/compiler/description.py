"""A project as its artifacts describe it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import PurePath

import msgspec

from graphbus_core import __version__
from graphbus_core.compiler.project import Project
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


def describe(project: Project, negotiations: NegotiationsArtifact, modified: ModifiedFilesArtifact) -> BuildArtifacts:
    """Give everything that `.graphbus/` says of a project; the digests of the artifacts come when they are saved."""
    return BuildArtifacts(
        graph=GraphArtifact(
            nodes=project.graph.nodes,
            edges=project.graph.edges,
            activation_order=project.order.order,
            generations=project.order.generations,
            topic_cycles=project.order.topic_cycles,
        ),
        agents=AgentsArtifact(project.definitions),
        topics=TopicsArtifact(project.graph.topics),
        negotiations=negotiations,
        modified_files=modified,
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
        sources={path: project.source(path).sha256 for path in project.agent_files},
        settings_digest=sha256(msgspec.json.encode(decisive)).hexdigest(),
    )
