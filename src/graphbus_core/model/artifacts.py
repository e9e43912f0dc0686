"""The artifacts in `.graphbus/`: the public, versioned result of a build.

They have relative posix paths, sorted keys, no times and no source code, so the same sources give the same bytes anywhere. Each
file has a JSON Schema in `graphbus_core/schemas/`. A change of their structure raises `SCHEMA_VERSION` and needs a migration.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from graphbus_core.model.agent import AgentDefinition, TopicDefinition
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.proposals import Ending, FileChange, Negotiations


class ProjectInfo(NamedTuple):
    """Name, version and description of a project, from `[project]` in pyproject.toml."""

    title: str = "GraphBus"
    version: str = "0"
    description: str = ""


SCHEMA_VERSION = 5

EdgeKind = Literal["depends_on", "topic", "call"]


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge from provider to consumer. `depends_on` edges have no cycles; `topic` and `call` edges may."""

    source: str
    target: str
    kind: EdgeKind
    label: str = ""


class GraphArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """graph.json: the agents, their edges, and the order of activation.

    Attributes:
        generations: The order of activation in groups: an agent depends only on agents of earlier groups.
        topic_cycles: Groups of agents whose events can cause each other in a circle.
    """

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    activation_order: tuple[str, ...]
    generations: tuple[tuple[str, ...], ...]
    topic_cycles: tuple[tuple[str, ...], ...] = ()


class AgentsArtifact(msgspec.Struct, frozen=True):
    """agents.json: every agent's definition, in the order of activation."""

    agents: tuple[AgentDefinition, ...]


class TopicsArtifact(msgspec.Struct, frozen=True):
    """topics.json: every topic with its publishers and subscribers, by name."""

    topics: tuple[TopicDefinition, ...]


class NegotiationsArtifact(msgspec.Struct, frozen=True):
    """negotiations.json: the last session; None if no session has changed the sources."""

    last: Negotiations | None = None


class ModifiedFilesArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """modified_files.json: the files that the last session changed."""

    session: str = ""
    files: tuple[FileChange, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """manifest.json: the digests of all artifacts and of the source files that they describe.

    Attributes:
        project_root: The project relative to the artifact folder, usually `".."`.
        import_roots: Folders that a run adds to `sys.path`, relative to the project root, such as `"."` or `"src"`.
        artifacts: File name -> sha256 of the other artifacts.
        sources: Relative path -> sha256 of each source file with an agent in it.
        imports: Relative path -> sha256 of the other files of the project that agents and middleware import, directly or
            indirectly; `""` for a file that does not exist and whose import may fail.
        third_party: The top-level modules that these files import, sorted, without those of the project, the standard library and
            GraphBus.
        settings_digest: sha256 of the settings on which the artifacts depend.
    """

    schema_version: int
    graphbus_version: str
    project_root: str
    import_roots: tuple[str, ...]
    roots: tuple[str, ...]
    artifacts: dict[str, str]
    sources: dict[str, str]
    imports: dict[str, str]
    third_party: tuple[str, ...]
    settings_digest: str = ""

    @property
    def build_digest(self) -> str:
        """The digest of the build, which its events carry; it differs for builds of different sources."""
        digests = sorted(self.artifacts.items())
        return sha256_hex("".join(f"{name} {digest}\n" for name, digest in digests).encode())


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """The content of all artifacts of one build; `store.BuildArtifacts` reads them from a folder."""

    graph: GraphArtifact
    agents: AgentsArtifact
    topics: TopicsArtifact
    negotiations: NegotiationsArtifact = NegotiationsArtifact()
    modified_files: ModifiedFilesArtifact = ModifiedFilesArtifact()
    manifest: Manifest | None = None

    @property
    def ending(self) -> Ending | None:
        """How the last negotiation ended; None if there was none."""
        return self.negotiations.last.ending if self.negotiations.last else None
