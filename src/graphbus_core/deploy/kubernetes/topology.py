"""What would be cut if each agent ran in a pod of its own: a bus in a process ends where the process ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from graphbus_core.errors import DeployError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import BuildArtifacts


def refuse_cuts(artifacts: BuildArtifacts) -> None:
    """Make sure that no agent needs another one in its process.

    Raises:
        DeployError: GBE722 with every edge that would be cut.
    """
    cuts = sorted(set(find_cuts(artifacts)))
    if cuts:
        raise DeployError(
            "GBE722",
            count=f"{len(cuts)} edge{'' if len(cuts) == 1 else 's'}",
            edges="; ".join(cuts),
        )


def find_cuts(artifacts: BuildArtifacts) -> Iterator[str]:
    """Describe each edge between two agents, and each that there may be: what is not known at build time counts as one."""
    for edge in artifacts.graph.edges:
        if edge.source != edge.target:
            yield f"{edge.source} -> {edge.target} ({_label(edge.kind, edge.label)})"
    for topic in artifacts.topics.topics:
        for first, second in combinations(sorted(set(topic.subscribers)), 2):
            yield f"{first} and {second} both hear {topic.name}"
    agents = artifacts.agents.agents
    for agent in agents:
        for other in agents:
            if agent.name != other.name:
                yield from _uncertain(agent, other)


def _label(kind: str, label: str) -> str:
    return f"call of {label}" if kind == "call" else label or kind


def _uncertain(agent: AgentDefinition, other: AgentDefinition) -> Iterator[str]:
    """A topic that is computed may be any with its beginning."""
    for said in agent.publications:
        for heard in other.subscriptions:
            if not said.topic and _may_meet(said.prefix, heard.topic):
                yield f"{agent.name} -> {other.name} (a computed topic, {said.prefix or '/'}…)"
            elif said.topic and not heard.topic:
                yield f"{agent.name} -> {other.name} (hears a computed topic, perhaps {said.topic})"
    if any(call.has_unknown and not call.agent for call in agent.calls):
        yield f"{agent.name} -> {other.name} (a computed call)"


def _may_meet(prefix: str, heard: str) -> bool:
    certain = heard.partition("*")[0]
    return not heard or certain.startswith(prefix) or (len(certain) < len(heard) and prefix.startswith(certain))
