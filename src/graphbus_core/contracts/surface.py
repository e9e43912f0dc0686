"""The contracts of the agents of a graph, and the agents that rely on them. `compare` compares two of these surfaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from graphbus_core.compiler.rules.wiring import AgentPublication
from graphbus_core.model.agent import AgentDefinition, Call, MethodSpec, Subscription, TopicDefinition
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.model.topics import is_pattern, matches
from graphbus_core.schema.types import UNKNOWN, Field, Schema, Type, union


class TopicHandler(NamedTuple):
    """A handler of a topic or pattern.

    `needs` has the fields of the payload that it is known to need; with `is_whole` it certainly needs nothing else.
    """

    agent: AgentDefinition
    subscription: Subscription
    needs: Schema
    is_whole: bool

    @property
    def name(self) -> str:
        """`"Agent.method"`."""
        return f"{self.agent.name}.{self.subscription.method}"

    @property
    def wanted(self) -> Type:
        """The type that payloads need to have."""
        return self.subscription.wanted

    @property
    def method(self) -> MethodSpec | None:
        """The method of its class; None if the definition does not have it."""
        return self.agent.method(self.subscription.method)


class Surface:
    """The contracts of one state of a graph.

    Args:
        agents: The definitions of its agents.
        topics: Its topics, as the artifacts list them.
    """

    def __init__(self, agents: Iterable[AgentDefinition], topics: Iterable[TopicDefinition]) -> None:
        self.agents = {agent.name: agent for agent in sorted(agents, key=lambda agent: agent.name)}
        self.topics = tuple(topics)
        self._external = frozenset(topic.name for topic in self.topics if topic.is_external)

    @classmethod
    def of(cls, artifacts: Artifacts) -> Surface:
        """Return the surface that artifacts describe."""
        return cls(artifacts.agents.agents, artifacts.topics.topics)

    def is_external(self, topic: str) -> bool:
        """Return whether the settings list a topic as one that is used outside of the graph."""
        return topic in self._external

    def methods(self, agent: str) -> dict[str, MethodSpec]:
        """Return name -> method for those methods of an agent that have a schema; empty if there is no such agent."""
        found = self.agents.get(agent)
        return {method.name: method for method in found.methods if method.has_schema} if found else {}

    @cached_property
    def publications(self) -> dict[str, tuple[AgentPublication, ...]]:
        """Topic -> its publications, sorted by topic; without those of computed topics."""
        found: dict[str, list[AgentPublication]] = {}
        for agent in self.agents.values():
            for publication in agent.publications:
                if publication.topic:
                    found.setdefault(publication.topic, []).append(AgentPublication(agent, publication))
        return {topic: tuple(each) for topic, each in sorted(found.items())}

    @cached_property
    def handlers(self) -> tuple[TopicHandler, ...]:
        """All handlers, one for each subscription, also those of computed topics."""
        return tuple(
            TopicHandler(agent, subscription, *subscription.find_needs())
            for agent in self.agents.values()
            for subscription in agent.subscriptions
        )

    @property
    def handler_at(self) -> dict[tuple[str, str], TopicHandler]:
        """`(topic or pattern, "Agent.method")` -> the handler, sorted by topic."""
        return {(topic, each.name): each for topic, found in self.handlers_by_topic.items() for each in found}

    @cached_property
    def handlers_by_topic(self) -> dict[str, tuple[TopicHandler, ...]]:
        """Topic or pattern -> its handlers."""
        found: dict[str, list[TopicHandler]] = {}
        for handler in self.handlers:
            if handler.subscription.topic:
                found.setdefault(handler.subscription.topic, []).append(handler)
        return {topic: tuple(each) for topic, each in sorted(found.items())}

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        return tuple(filter(is_pattern, self.handlers_by_topic))

    def handlers_of(self, topic: str) -> tuple[TopicHandler, ...]:
        """Return every handler that an event of the topic reaches, those with a pattern included."""
        names = {topic, *(pattern for pattern in self._patterns if matches(pattern, topic))}
        return tuple(handler for name in sorted(names) for handler in self.handlers_by_topic.get(name, ()))

    def topics_matching(self, topic: str) -> tuple[str, ...]:
        """Return `topic` itself and then, if it is a pattern, the known topics that match it, sorted."""
        names = {each.name for each in self.topics if not is_pattern(each.name)} if is_pattern(topic) else set()
        return (topic, *sorted(name for name in names if matches(topic, name)))

    def may_compute(self, topic: str) -> tuple[AgentPublication, ...]:
        """Return every publication whose topic is computed and may be this one: the constant beginning of the topic fits."""
        computed = [
            AgentPublication(agent, each)
            for agent in self.agents.values()
            for each in agent.publications
            if not each.topic
        ]
        return tuple(each for each in computed if topic.startswith(each.publication.prefix))

    def publications_to(self, topic: str) -> tuple[AgentPublication, ...]:
        """Return every publication that reaches a handler of the topic or pattern."""
        return tuple(each for name, found in self.publications.items() if matches(topic, name) for each in found)

    def payload(self, topic: str) -> Schema | None:
        """Return the schema on which handlers may rely: merged from declared payloads, else published ones; None if unknown."""
        sent = [each.publication for each in self.publications.get(topic, ())]
        declared = [each for each in sent if each.is_declared and each.payload is not None]
        return merge_schemas([each.payload for each in declared or sent])

    def calls(self, agent: str, method: str = "") -> Iterator[tuple[AgentDefinition, Call]]:
        """Yield `(caller, call)` for each call of an agent, or of one of its methods; an inherited call only once."""
        seen = set()
        for caller in self.agents.values():
            for call in caller.calls:
                is_match = call.agent == agent and (not method or call.method == method)
                if is_match and call.span not in seen:
                    seen.add(call.span)
                    yield caller, call

    def requests_to(self, topic: str) -> tuple[AgentPublication, ...]:
        """Return every request on the topic."""
        return tuple(each for each in self.publications.get(topic, ()) if each.publication.is_request)

    def has_publisher(self, topic: str) -> bool:
        """Return whether an agent publishes to the topic or pattern, or code outside of the graph may do so."""
        return bool(self.publications_to(topic)) or any(map(self.is_external, self.topics_matching(topic)))


def merge_schemas(payloads: list[Schema | None]) -> Schema | None:
    """Return a schema that all payloads fit, with the fields of all of them; None if one is unknown, or if there are none."""
    known = [payload for payload in payloads if payload is not None]
    if not known or len(known) != len(payloads):
        return None
    names = dict.fromkeys(field.name for payload in known for field in payload.fields)
    return Schema(tuple(_merge_field(name, known) for name in names), any(payload.is_open for payload in known))


def _merge_field(name: str, payloads: list[Schema]) -> Field:
    """Return a field that at least one payload has, with the union of its types; required if every payload requires it."""
    found = [payload.get(name) for payload in payloads]
    there = [field for field in found if field is not None]
    is_always = len(there) == len(payloads) and all(field.required for field in there)
    return Field(name, union(*(field.type for field in there)), is_always)


def answer_of(handler: TopicHandler) -> Type:
    """Return the annotated return type of a handler of requests; `UNKNOWN` if it has none."""
    return handler.method.returns if handler.method else UNKNOWN
