"""The graph of the agents: dependencies, topics and calls between them, and the order in which they are activated.

    provider ──depends_on──▶ consumer        publisher ──topic──▶ subscriber        callee ──call──▶ caller

Dependencies must not form a cycle; topics and calls may. Handlers and topics that a run would refuse are found here too.
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
    """Return an error for each handler that cannot be called (GBE214) and each invalid topic (GBE215, GBE216).

    A declaration that several agents inherit is reported once.
    """
    found: dict[tuple[str, str], BuildError] = {}
    for agent in definitions:
        for error in _find_wrong_ends_of(agent):
            found.setdefault((error.code, str(error.where)), error)
    return tuple(found.values())


def _find_wrong_ends_of(agent: AgentDefinition) -> Iterator[BuildError]:
    """Yield the errors in the subscriptions and publications of one agent."""
    uncallable: set[str] = set()
    for subscription in agent.subscriptions:
        handler = f"{agent.name}.{subscription.method}"
        if subscription.shape == "invalid" and subscription.method not in uncallable:
            uncallable.add(subscription.method)
            yield BuildError("GBE214", where=subscription.span.place, handler=handler)
        if subscription.topic and not is_topic_or_pattern(subscription.topic):
            yield BuildError("GBE215", where=subscription.span.place, handler=handler, topic=subscription.topic)
    for publication in agent.publications:
        if publication.topic and not is_topic(publication.topic):
            yield BuildError("GBE216", where=publication.span.place, agent=agent.name, topic=publication.topic)


_Neighbours = Mapping[str, Iterable[str]]


class ActivationOrder(msgspec.Struct, frozen=True):
    """The order in which agents are activated.

    Attributes:
        order: Providers before consumers, ties by name, arbiters last.
        generations: The same names in groups; the agents of one group do not depend on each other.
        topic_cycles: The groups of agents that topics connect in a cycle, each sorted by name.
    """

    order: tuple[str, ...]
    generations: tuple[tuple[str, ...], ...]
    topic_cycles: tuple[tuple[str, ...], ...]


class AgentGraph:
    """The agents, the edges between them and the topics.

    Attributes:
        nodes: Names, sorted.
        edges: Each from its provider to its consumer, sorted.
        topics: Sorted by name.
        arbiters: The names of the arbiters.
        errors: GBE210 for a name that two agents have, GBE211 for an unknown dependency, GBE212 for a cycle of dependencies.
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
        """This graph as a networkx graph; `kind` and `label` are attributes of its edges."""
        import networkx as nx

        graph: nx.MultiDiGraph[Any] = nx.MultiDiGraph()
        graph.add_nodes_from(self.nodes)
        for edge in self.edges:
            graph.add_edge(edge.source, edge.target, kind=edge.kind, label=edge.label)
        return graph

    def get_agent_activation_order(self) -> tuple[str, ...]:
        """Return the names of the agents in the order of activation."""
        return compute_order(self).order

    @cached_property
    def _providers_and_consumers(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Name -> the other agents with an edge to it, and name -> those to which it has an edge."""
        providers: dict[str, set[str]] = {name: set() for name in self.nodes}
        consumers: dict[str, set[str]] = {name: set() for name in self.nodes}
        for edge in self.edges:
            if edge.source != edge.target:
                providers[edge.target].add(edge.source)
                consumers[edge.source].add(edge.target)
        return providers, consumers

    def providers(self, name: str) -> tuple[str, ...]:
        """Return the names of the agents with an edge to this agent, sorted."""
        return tuple(sorted(self._providers_and_consumers[0].get(name, ())))

    def consumers(self, name: str) -> tuple[str, ...]:
        """Return the names of the agents to which this agent has an edge, sorted."""
        return tuple(sorted(self._providers_and_consumers[1].get(name, ())))

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Return the names of the agents that share an edge with this agent, sorted."""
        return tuple(sorted({*self.providers(name), *self.consumers(name)}))


def build_graph(definitions: Iterable[AgentDefinition], external_topics: Sequence[str] = ()) -> AgentGraph:
    """Return the graph of these agents. What is wrong is listed in its `errors`; the rest of the graph is valid.

    Args:
        definitions: The agents; of two with the same name the first by place is used.
        external_topics: Topics or patterns that are published or handled outside of the graph.
    """
    errors: list[BuildError] = []
    agents = _agents_by_name(definitions, errors)
    topics = _collect_topics(agents.values(), external_topics)
    needs = {name: _find_known_dependencies(agent, agents, errors) for name, agent in agents.items()}
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
    errors.extend(_find_dependency_cycles(agents, needs))
    arbiters = frozenset(name for name, agent in agents.items() if agent.is_arbiter)
    ordered = sorted(edges, key=lambda edge: (edge.source, edge.target, edge.kind, edge.label))
    return AgentGraph(tuple(sorted(agents)), tuple(ordered), topics, arbiters, tuple(errors))


def _agents_by_name(definitions: Iterable[AgentDefinition], errors: list[BuildError]) -> dict[str, AgentDefinition]:
    """Return name -> agent, sorted by the places of the agents; append GBE210 to `errors` for each further agent of a name."""
    agents: dict[str, AgentDefinition] = {}
    for definition in sorted(definitions, key=lambda item: item.span.place):
        first = agents.setdefault(definition.name, definition)
        if first is not definition:
            place = definition.name_span.place
            errors.append(BuildError("GBE210", where=place, name=definition.name, other=first.name_span.place))
    return agents


def _find_known_dependencies(
    agent: AgentDefinition, agents: Mapping[str, AgentDefinition], errors: list[BuildError]
) -> tuple[str, ...]:
    """Return the dependencies of an agent that exist in `agents`; append GBE211 to `errors` for each of the others."""
    known: list[str] = []
    for dependency in agent.dependencies:
        if dependency.name in agents:
            known.append(dependency.name)
        else:
            data = {"agent": agent.name, "name": dependency.name, "suggestion": did_you_mean(dependency.name, agents)}
            errors.append(BuildError("GBE211", where=dependency.span.place, **data))
    return tuple(known)


def _find_dependency_cycles(agents: Mapping[str, AgentDefinition], needs: _Neighbours) -> Iterator[BuildError]:
    """Yield GBE212 for each group of agents that depend on each other; the error names one shortest cycle of the group."""
    for group in components(needs):
        if len(group) > 1 or group[0] in needs[group[0]]:
            cycle = find_circle(group, needs)
            first = agents[cycle[0]]
            span = next(item.span for item in first.dependencies if item.name == cycle[1])
            yield BuildError("GBE212", where=span.place, cycle=" → ".join(cycle))


# --- topics -------------------------------------------------------------------------------


def _collect_topics(agents: Iterable[AgentDefinition], external_topics: Sequence[str]) -> tuple[TopicDefinition, ...]:
    """Return the topics that agents publish or handle and the external ones, sorted by name.

    A pattern subscribes to every topic that it matches; a pattern that matches none is listed as a topic itself.
    """
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
        matching = (agent for pattern, agent in patterns if matches(pattern, name))
        subscribers.setdefault(name, {}).update(dict.fromkeys(matching))
    return tuple(
        TopicDefinition(
            name=name,
            publishers=tuple(sorted(publishers.get(name, ()))),
            subscribers=tuple(sorted(subscribers.get(name, ()))),
            schema=_choose_schema(sent.get(name, ())),
            is_external=any(matches(pattern, name) for pattern in external_topics),
        )
        for name in sorted(names)
    )


def _choose_schema(sent: Iterable[tuple[bool, Schema | None]]) -> Schema | None:
    """Return the only declared schema of a topic, or if none is declared, the schema that all its publishers send.

    None if several are declared, or if the publishers differ. `sent` holds `(is_declared, payload)` for each publication.
    """
    listed = list(sent)
    declared = {schema for is_declared, schema in listed if is_declared and schema is not None}
    if declared:
        return declared.pop() if len(declared) == 1 else None
    found = {schema and fields_without_constants(schema) for _, schema in listed}
    return found.pop() if len(found) == 1 else None


# --- order ----------------------------------------------------------------------------------


def compute_order(graph: AgentGraph) -> ActivationOrder:
    """Order the agents by dependencies, by topics where these form no cycle, then by name; arbiters come last.

    The agents of a cycle of dependencies, which is an error of the graph, are ordered by name.
    """
    needs: dict[str, set[str]] = {name: set() for name in graph.nodes}
    publishers: dict[str, set[str]] = {name: set() for name in graph.nodes}
    for edge in graph.edges:
        if edge.kind == "depends_on":
            needs[edge.target].add(edge.source)
        elif edge.kind == "topic":
            publishers[edge.target].add(edge.source)
    cycles = tuple(group for group in components(publishers) if len(group) > 1 or group[0] in publishers[group[0]])
    last = _arbiters_to_order_last(graph.arbiters, needs)
    _remove_edges_within(components(needs), needs)  # cycles of dependencies, which are errors
    both = {name: needs[name] | {other for other in publishers[name] if other not in last} for name in graph.nodes}
    groups = components(both)
    _remove_edges_within(groups, both, keep=needs)  # a cycle with topics keeps only its dependencies
    first = _sort_into_generations({name: both[name] for name in graph.nodes if name not in last})
    generations = first + _sort_into_generations({name: needs[name] & last for name in sorted(last)})
    return ActivationOrder(tuple(name for group in generations for name in group), generations, cycles)


def _arbiters_to_order_last(arbiters: frozenset[str], needs: Mapping[str, set[str]]) -> set[str]:
    """Return the arbiters on which no agent that is not an arbiter depends, directly or indirectly."""
    needed: set[str] = set()
    pending = [name for name in needs if name not in arbiters]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(needs[name])
    return set(arbiters) - needed


def _remove_edges_within(
    groups: Iterable[Sequence[str]], needs: Mapping[str, set[str]], keep: Mapping[str, set[str]] | None = None
) -> None:
    """Remove from `needs`, in place, the edges between members of the same group; those in `keep` remain."""
    for group in groups:
        members = set(group)
        for name in group:
            needs[name].difference_update(members - (keep[name] if keep is not None else set()))


def _sort_into_generations(needs: Mapping[str, set[str]]) -> tuple[tuple[str, ...], ...]:
    """Return groups of names in which each name needs only names of earlier groups; `needs` must have no cycle."""
    sorter = TopologicalSorter({name: [other for other in others if other in needs] for name, others in needs.items()})
    sorter.prepare()
    generations: list[tuple[str, ...]] = []
    while sorter.is_active():
        ready = tuple(sorted(sorter.get_ready()))
        generations.append(ready)
        sorter.done(*ready)
    return tuple(generations)


def components(needs: _Neighbours) -> tuple[tuple[str, ...], ...]:
    """Return the strongly connected components of `needs`, each sorted by name, in the order of their first names."""
    back: dict[str, list[str]] = {name: [] for name in needs}
    for name, others in needs.items():
        for other in others:
            back[other].append(name)
    order = [name for reached in _walk_newly_reached(needs, needs) for name in reached]
    return tuple(sorted(tuple(sorted(group)) for group in _walk_newly_reached(reversed(order), back)))


def _walk_newly_reached(names: Iterable[str], edges: _Neighbours) -> Iterator[list[str]]:
    """For each name, yield the nodes that it reaches and no earlier name has reached, in post-order, if there are any.

    `components` calls this twice (Kosaraju's algorithm).

    The stack is explicit, because a chain of thousands of agents would exceed Python's recursion limit.
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
    """Return one shortest cycle through the first name of a group, with that name at both ends.

    The group must be a strongly connected component with a cycle: otherwise the search fails with IndexError.
    """
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
