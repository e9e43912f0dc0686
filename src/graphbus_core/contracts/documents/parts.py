"""What a document describes: the payload of each topic, the arguments and result of each method, and their names.

/Order/Created                    ->  Order.Created.Payload
OrderProcessor.process_order      ->  OrderProcessor.process_order.Arguments, OrderProcessor.process_order.Result

Segments of topics have neither dots nor slashes, so that no two names are alike; names of classes have no dot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from graphbus_core.model.agent import AgentDefinition, MethodSpec, Subscription, Topic
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.topics import is_topic, matches
from graphbus_core.schema.json_schema import JsonSchema, Writer
from graphbus_core.schema.types import Field, Schema, Type

UNKNOWN_PAYLOAD = "Neither publishers nor handlers say what the payload looks like."


class Handler(NamedTuple):
    """A subscription and the agent that has it."""

    agent: AgentDefinition
    subscription: Subscription

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.agent.name}.{self.subscription.method}"

    @property
    def method(self) -> MethodSpec | None:
        """The method, where the artifacts have it."""
        return self.agent.method(self.subscription.method)


class Payload(NamedTuple):
    """What the events of a topic carry.

    Attributes:
        topic: Its name.
        schema: What a running graph checks; None: nothing.
        wanted: Without a schema: what the handlers declare that they take, each once.
        by: Their names.
    """

    topic: str
    schema: Schema | None = None
    wanted: tuple[Type, ...] = ()
    by: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its schema."""
        return f"{dotted(self.topic)}.Payload"

    @property
    def title(self) -> str:
        """For people."""
        return self.topic

    @property
    def note(self) -> str:
        """What has to be said of where it is known from; empty: it is what publishers declare."""
        if self.schema is not None:
            return ""
        return f"No publisher declares it: what {_listed(self.by)} can take." if self.wanted else UNKNOWN_PAYLOAD

    @property
    def types(self) -> tuple[Type, ...]:
        """All types in it."""
        return self.wanted if self.schema is None else tuple(field.type for field in self.schema.fields)

    def written(self, writer: Writer) -> JsonSchema:
        """As JSON Schema."""
        if self.schema is not None:
            return writer.payload(self.schema)
        written = [writer.value(each) for each in self.wanted]
        return {"allOf": written} if len(written) > 1 else written[0] if written else {}


class Side(NamedTuple):
    """What a method takes, or what it gives."""

    agent: str
    method: MethodSpec
    is_result: bool

    @property
    def name(self) -> str:
        """The name of its schema."""
        return f"{self.agent}.{self.method.name}.{'Result' if self.is_result else 'Arguments'}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{'Result' if self.is_result else 'Arguments'} of {self.agent}.{self.method.name}"

    @property
    def note(self) -> str:
        """What has to be said of it."""
        return "" if self._schema is not None else "The contract of the method cannot be read."

    @property
    def types(self) -> tuple[Type, ...]:
        """All types in it."""
        return tuple(field.type for field in self._schema.fields) if self._schema else ()

    def written(self, writer: Writer) -> JsonSchema:
        """As JSON Schema."""
        if self._schema is None:
            return {}
        return writer.result(self._schema) if self.is_result else writer.arguments(self._schema)

    @property
    def _schema(self) -> Schema | None:
        return self.method.output_schema if self.is_result else self.method.input_schema


Part = Payload | Side


class Parts:
    """Everything there is to describe of a graph."""

    def __init__(self, artifacts: BuildArtifacts) -> None:
        self.agents = tuple(sorted(artifacts.agents.agents, key=lambda agent: agent.name))
        self._topics = {topic.name: topic for topic in artifacts.topics.topics if is_topic(topic.name)}

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """The topics, by name; patterns are none."""
        return tuple(self._topics[name] for name in sorted(self._topics))

    @cached_property
    def handlers(self) -> tuple[Handler, ...]:
        """All handlers, by agent, method and topic; those of a computed topic are left out."""
        found = [
            Handler(agent, each)
            for agent in self.agents
            for each in sorted(agent.subscriptions, key=_place)
            if each.topic
        ]
        return tuple(found)

    def payload_of(self, topic: str) -> Payload:
        """What the events of a topic carry."""
        known = self._topics.get(topic)
        if known is not None and known.schema is not None:
            return Payload(topic, known.schema)
        wanted = {
            handler: kind
            for handler in self.handlers
            if matches(handler.subscription.topic, topic)
            for kind in _wanted_by(handler.subscription)
        }
        return Payload(topic, None, tuple(dict.fromkeys(wanted.values())), tuple(each.name for each in wanted))

    def sides(self) -> Iterator[Side]:
        """What methods take and give, by agent and method."""
        for agent in self.agents:
            for method in sorted(agent.methods, key=lambda each: each.name):
                if method.has_schema:
                    yield from (Side(agent.name, method, is_result) for is_result in (False, True))


def dotted(topic: str) -> str:
    """A topic or pattern as a name: `/Order/Created` -> `Order.Created`."""
    return topic.strip("/").replace("/", ".")


def _place(subscription: Subscription) -> tuple[str, str]:
    return subscription.method, subscription.topic


def _wanted_by(subscription: Subscription) -> Iterator[Type]:
    if subscription.shape == "fields":
        named = [each for each in subscription.fields if each.kind in ("positional", "keyword_only")]
        if named:
            yield Type("record", fields=tuple(Field(each.name, each.type, not each.has_default) for each in named))
    elif subscription.payload.kind not in ("unknown", "any"):
        yield subscription.payload


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
