"""Agents as a graph: who depends on whom, whose events reach whom, and the order in which agents come to life.

    provider ──depends_on──▶ consumer        publisher ──topic──▶ subscriber        callee ──call──▶ caller

Dependencies must be free of circles; events and calls may go round. Handlers and topics that a run
would refuse are found here too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import msgspec

from graphbus_core.errors import BuildError, did_you_mean
from graphbus_core.model.agent import AgentDefinition, TopicDefinition
from graphbus_core.model.artifacts import Edge
from graphbus_core.model.topics import is_pattern, is_topic, is_topic_or_pattern, matches
from graphbus_core.schema.types import Schema, fields_without_constants

if TYPE_CHECKING:
    import networkx as nx


def find_wrong_ends(definitions: Iterable[AgentDefinition]) -> tuple[BuildError, ...]:
    """Return GBE214 to GBE216, one for each place, though subclasses inherit it."""
    found: dict[tuple[str, str], BuildError] = {}
    for agent in definitions:
        for error in _wrong_ends(agent):
            found.setdefault((error.code, str(error.where)), error)
    return tuple(found.values())


def _wrong_ends(agent: AgentDefinition) -> Iterator[BuildError]:
    uncallable: set[str] = set()
    for heard in agent.subscriptions:
        handler = f"{agent.name}.{heard.method}"
        if heard.shape == "invalid" and heard.method not in uncallable:
            uncallable.add(heard.method)
            yield BuildError("GBE214", where=heard.span.place, handler=handler)
        if heard.topic and not is_topic_or_pattern(heard.topic):
            yield BuildError("GBE215", where=heard.span.place, handler=handler, topic=heard.topic)
    for sent in agent.publications:
        if sent.topic and not is_topic(sent.topic):
            yield BuildError("GBE216", where=sent.span.place, agent=agent.name, topic=sent.topic)


_Neighbours = Mapping[str, Iterable[str]]


class ActivationOrder(msgspec.Struct, frozen=True):
    """The order in which agents are activated.

    Attributes:
        order: Providers before consumers, ties by name, arbiters last.
        generations: The same names in groups that need nothing of each other.
        topic_cycles: The groups of agents whose events go round, each sorted by name.
    """

    order: tuple[str, ...]
    generations: tuple[tuple[str, ...], ...]
    topic_cycles: tuple[tuple[str, ...], ...]


class AgentGraph:
    """The agents, the edges between them and the topics.

    Attributes:
        nodes: Names, sorted.
        edges: From provider to consumer, sorted.
        topics: By name.
        arbiters: The names of the arbiters.
        errors: GBE210 for a name that two agents bear, GBE211 for an unknown dependency, GBE212 for a circle.
    """

    def __init__(
        self,
        nodes: tuple[str, ...],
        edges: tuple[Edge, ...],
        topics: tuple[TopicDefinition, ...],
        arbiters: frozenset[str] = frozenset(),
        errors: tuple[BuildError, ...] = (),
    ) -> None:
        self.nodes = nodes
        self.edges = edges
        self.topics = topics
        self.arbiters = arbiters
        self.errors = errors

    @cached_property
    def graph(self) -> nx.MultiDiGraph[Any]:
        """The same as a networkx graph; `kind` and `label` are attributes of its edges."""
        import networkx as nx

        graph: nx.MultiDiGraph[Any] = nx.MultiDiGraph()
        graph.add_nodes_from(self.nodes)
        for edge in self.edges:
            graph.add_edge(edge.source, edge.target, kind=edge.kind, label=edge.label)
        return graph

    def get_agent_activation_order(self) -> tuple[str, ...]:
        """Return the names in the order of activation (seed 001)."""
        return compute_order(self).order

    @cached_property
    def _ends(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        providers: dict[str, set[str]] = {name: set() for name in self.nodes}
        consumers: dict[str, set[str]] = {name: set() for name in self.nodes}
        for edge in self.edges:
            if edge.source != edge.target:
                providers[edge.target].add(edge.source)
                consumers[edge.source].add(edge.target)
        return providers, consumers

    def providers(self, name: str) -> tuple[str, ...]:
        """Return the agents that an agent receives from, by name."""
        return tuple(sorted(self._ends[0].get(name, ())))

    def consumers(self, name: str) -> tuple[str, ...]:
        """Return the agents that receive from an agent, by name."""
        return tuple(sorted(self._ends[1].get(name, ())))

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the agents that share an edge with an agent, by name."""
        return tuple(sorted({*self.providers(name), *self.consumers(name)}))


def build_graph(definitions: Iterable[AgentDefinition], external_topics: Sequence[str] = ()) -> AgentGraph:
    """Connect the agents. Errors are collected in `errors`; the rest of the graph is valid.

    Args:
        definitions: Of two agents with one name the first by place is taken.
        external_topics: Topics or patterns that are fed or heard outside of the graph.
    """
    errors: list[BuildError] = []
    agents = _by_name(definitions, errors)
    topics = _topics(agents.values(), external_topics)
    needs = {name: _known_dependencies(agent, agents, errors) for name, agent in agents.items()}
    edges = {Edge(provider, name, "depends_on") for name, providers in needs.items() for provider in providers}
    edges.update(
        Edge(publisher, subscriber, "topic", topic.name)
        for topic in topics
        for publisher in topic.publishers
        for subscriber in topic.subscribers
    )
    edges.update(
        Edge(call.agent, name, "call", call.method)
        for name, agent in agents.items()
        for call in agent.calls
        if call.agent in agents
    )
    errors.extend(_circles(agents, needs))
    arbiters = frozenset(name for name, agent in agents.items() if agent.is_arbiter)
    ordered = sorted(edges, key=lambda edge: (edge.source, edge.target, edge.kind, edge.label))
    return AgentGraph(tuple(sorted(agents)), tuple(ordered), topics, arbiters, tuple(errors))


def _by_name(definitions: Iterable[AgentDefinition], errors: list[BuildError]) -> dict[str, AgentDefinition]:
    agents: dict[str, AgentDefinition] = {}
    for definition in sorted(definitions, key=lambda item: item.span.place):
        first = agents.setdefault(definition.name, definition)
        if first is not definition:
            place = definition.name_span.place
            errors.append(BuildError("GBE210", where=place, name=definition.name, other=first.name_span.place))
    return agents


def _known_dependencies(
    agent: AgentDefinition, agents: Mapping[str, AgentDefinition], errors: list[BuildError]
) -> tuple[str, ...]:
    known: list[str] = []
    for dependency in agent.dependencies:
        if dependency.name in agents:
            known.append(dependency.name)
        else:
            said = {"agent": agent.name, "name": dependency.name, "suggestion": did_you_mean(dependency.name, agents)}
            errors.append(BuildError("GBE211", where=dependency.span.place, **said))
    return tuple(known)


def _circles(agents: Mapping[str, AgentDefinition], needs: _Neighbours) -> Iterator[BuildError]:
    for group in components(needs):
        if len(group) > 1 or group[0] in needs[group[0]]:
            circle = find_circle(group, needs)
            first = agents[circle[0]]
            span = next(item.span for item in first.dependencies if item.name == circle[1])
            yield BuildError("GBE212", where=span.place, cycle=" → ".join(circle))


# --- topics -------------------------------------------------------------------------------


def _topics(agents: Iterable[AgentDefinition], external_topics: Sequence[str]) -> tuple[TopicDefinition, ...]:
    publishers: dict[str, dict[str, None]] = {}
    subscribers: dict[str, dict[str, None]] = {}
    patterns: list[tuple[str, str]] = []
    sent: dict[str, list[tuple[bool, Schema | None]]] = {}
    for agent in agents:
        for publication in agent.publications:
            if publication.topic:
                publishers.setdefault(publication.topic, {})[agent.name] = None
                sent.setdefault(publication.topic, []).append((publication.is_declared, publication.payload))
        for subscription in agent.subscriptions:
            if is_pattern(subscription.topic):
                patterns.append((subscription.topic, agent.name))
            elif subscription.topic:
                subscribers.setdefault(subscription.topic, {})[agent.name] = None
    fixed = {topic for topic in external_topics if not is_pattern(topic)}
    names = {*publishers, *subscribers, *fixed}
    names |= {pattern for pattern, _ in patterns if not any(matches(pattern, name) for name in names)}
    for name in names if patterns else ():
        hearing = (agent for pattern, agent in patterns if matches(pattern, name))
        subscribers.setdefault(name, {}).update(dict.fromkeys(hearing))
    return tuple(
        TopicDefinition(
            name=name,
            publishers=tuple(sorted(publishers.get(name, ()))),
            subscribers=tuple(sorted(subscribers.get(name, ()))),
            schema=_agreed(sent.get(name, ())),
            is_external=any(matches(pattern, name) for pattern in external_topics),
        )
        for name in sorted(names)
    )


def _agreed(sent: Iterable[tuple[bool, Schema | None]]) -> Schema | None:
    """The one declared schema, or the one that all publishers send."""
    listed = list(sent)
    declared = {schema for is_declared, schema in listed if is_declared and schema is not None}
    if declared:
        return declared.pop() if len(declared) == 1 else None
    found = {schema and fields_without_constants(schema) for _, schema in listed}
    return found.pop() if len(found) == 1 else None


# --- order ----------------------------------------------------------------------------------


def compute_order(graph: AgentGraph) -> ActivationOrder:
    """Order the agents: dependencies always, topic edges where they form no circle, ties by name, arbiters last.

    Circles of dependencies, which are errors of the graph, are broken up by name.
    """
    needs: dict[str, set[str]] = {name: set() for name in graph.nodes}
    heard: dict[str, set[str]] = {name: set() for name in graph.nodes}
    for edge in graph.edges:
        if edge.kind == "depends_on":
            needs[edge.target].add(edge.source)
        elif edge.kind == "topic":
            heard[edge.target].add(edge.source)
    cycles = tuple(group for group in components(heard) if len(group) > 1 or group[0] in heard[group[0]])
    last = _last_ones(graph.arbiters, needs)
    _drop_within(components(needs), needs)
    both = {name: needs[name] | {other for other in heard[name] if other not in last} for name in graph.nodes}
    groups = components(both)
    _drop_within(groups, both, keep=needs)
    first = _generations({name: both[name] for name in graph.nodes if name not in last})
    generations = first + _generations({name: needs[name] & last for name in sorted(last)})
    return ActivationOrder(tuple(name for group in generations for name in group), generations, cycles)


def _last_ones(arbiters: frozenset[str], needs: Mapping[str, set[str]]) -> set[str]:
    """The arbiters that no other agent depends on, at whatever distance."""
    wanted: set[str] = set()
    pending = [name for name in needs if name not in arbiters]
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending.extend(needs[name])
    return set(arbiters) - wanted


def _drop_within(
    groups: Iterable[Sequence[str]], needs: Mapping[str, set[str]], keep: Mapping[str, set[str]] | None = None
) -> None:
    """Remove the edges between members of one group, those in `keep` excepted."""
    for group in groups:
        members = set(group)
        for name in group:
            needs[name].difference_update(members - (keep[name] if keep is not None else set()))


def _generations(needs: Mapping[str, set[str]]) -> tuple[tuple[str, ...], ...]:
    sorter = TopologicalSorter({name: [other for other in others if other in needs] for name, others in needs.items()})
    sorter.prepare()
    generations: list[tuple[str, ...]] = []
    while sorter.is_active():
        ready = tuple(sorted(sorter.get_ready()))
        generations.append(ready)
        sorter.done(*ready)
    return tuple(generations)


def components(needs: _Neighbours) -> tuple[tuple[str, ...], ...]:
    """Return the strongly connected components, each sorted by name, in the order of their first names."""
    back: dict[str, list[str]] = {name: [] for name in needs}
    for name, others in needs.items():
        for other in others:
            back[other].append(name)
    order = [name for reached in _reached(needs, needs) for name in reached]
    return tuple(sorted(tuple(sorted(group)) for group in _reached(reversed(order), back)))


def _reached(names: Iterable[str], edges: _Neighbours) -> Iterator[list[str]]:
    """Return the groups of nodes that each name reaches and no earlier name has reached (Kosaraju's algorithm).

    The search has a stack of its own: a chain of thousands of agents must not exhaust Python's.
    """
    seen: set[str] = set()
    for start in names:
        pending = [] if start in seen else [(start, iter(edges[start]))]
        seen.add(start)
        reached: list[str] = []
        while pending:
            others = pending[-1][1]
            following = next((other for other in others if other not in seen), None)
            if following is None:
                reached.append(pending.pop()[0])
            else:
                seen.add(following)
                pending.append((following, iter(edges[following])))
        if reached:
            yield reached


def find_circle(group: Sequence[str], needs: _Neighbours) -> tuple[str, ...]:
    """Return one shortest circle through the first name of a component, that name at both ends."""
    start = group[0]
    members = set(group)
    paths: deque[tuple[str, ...]] = deque([(start,)])
    seen: set[str] = set()
    while True:
        path = paths.popleft()
        for other in sorted(set(needs[path[-1]]) & members - seen):
            if other == start:
                return (*path, start)
            seen.add(other)
            paths.append((*path, other))
