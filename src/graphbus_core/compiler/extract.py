"""The reading stages of a build one by one: classes, sources, definitions. `Project.read` runs them all at once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading.source import SourceFile
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import ResolvedBuild


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

    files: Mapping[str, SourceFile]


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
