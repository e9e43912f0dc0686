"""A project as its artifacts describe it."""

from __future__ import annotations

from pathlib import Path, PurePath

import msgspec

from graphbus_core import __version__, store
from graphbus_core.compiler.project import Project
from graphbus_core.errors import ArtifactError
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
        agents=AgentsArtifact(project.definitions),
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
