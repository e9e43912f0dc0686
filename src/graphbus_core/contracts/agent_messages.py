"""The messages of the agents of a graph: events, requests, calls and answers, with both of their ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from graphbus_core.compiler.rules.results import Results
from graphbus_core.compiler.rules.wiring import AgentPublication
from graphbus_core.contracts.messages import OUTSIDE, Consumer, MessageKind, Messages, Producer, Unread
from graphbus_core.contracts.surface import Surface, TopicHandler, merge_schemas
from graphbus_core.model.agent import AgentDefinition, Call, KeyRead, MethodSpec, Publication
from graphbus_core.model.topics import is_pattern
from graphbus_core.schema.paths import type_of_paths
from graphbus_core.schema.types import UNKNOWN, Schema, Type, as_json

_COMPUTED = "the topic or method is computed at run time"


def messages_of(surface: Surface) -> Messages:
    """Return who sends which messages in a graph, and who takes them."""
    results = Results(surface.agents)
    surface = Surface(map(results.resolve_agent, surface.agents.values()), surface.topics)
    producers = (*_events(surface), *_computed_events(surface), *_calls(surface), *_answers(surface, results))
    consumers = (*map(_handler, surface.handlers), *_methods(surface), *_waiting(surface, results))
    computed = [each.span for each in producers if not each.channel]
    computed += [each.span for each in consumers if not each.channel]
    return Messages(producers, consumers, tuple(Unread(span, _COMPUTED) for span in computed))


# --- events and requests -----------------------------------------------------------------------


def _events(surface: Surface) -> Iterator[Producer]:
    """Yield the producers of each topic: its publishers, and code outside of the graph if nothing of the graph publishes it."""
    schemas = {each.name: each.schema for each in surface.topics}
    for topic in sorted({*surface.publications, *surface.handlers_by_topic}):
        published = surface.publications.get(topic, ())
        promised = next((each.publication.promised.name for each in published if each.publication.promised.name), "")
        declared = _named(_type_of(schemas.get(topic)), promised)
        sent = [each for each in published if not each.publication.is_declared]
        for each in sent or published:
            yield _event(each, topic, declared)
        if surface.is_external(topic) or not (surface.has_publisher(topic) or surface.may_compute(topic)):
            yield _event_from_outside(surface, topic, declared)


def _event(sent: AgentPublication, topic: str, declared: Type) -> Producer:
    """Return the producer of a publication; of one that is only declared, the messages have the declared type."""
    agent, publication = sent.agent, sent.publication
    kind: MessageKind = "request" if publication.is_request else "event"
    payload = None if publication.is_declared else publication.payload
    return Producer(
        kind=kind, channel=topic, name=agent.name, unit=agent.name, span=publication.span, declared=declared,
        given=_named(_record_of(payload), declared.name) if payload
        else UNKNOWN if publication.is_declared else as_json(publication.type),
        is_open=payload is not None and payload.is_open, prefix=publication.prefix, digest=agent.source_digest,
    )  # fmt: skip


def _event_from_outside(surface: Surface, topic: str, declared: Type) -> Producer:
    """Return the producer of a topic that comes from outside: it sends what is declared, else what the handlers take."""
    handlers = surface.handlers_by_topic.get(topic, ())
    needed = declared if declared.kind != "unknown" else _type_of(merge_schemas([each.needs for each in handlers]))
    span = handlers[0].subscription.span if handlers else surface.publications[topic][0].publication.span
    return Producer(kind="event", channel=topic, name=OUTSIDE, span=span, declared=needed)


def _computed_events(surface: Surface) -> Iterator[Producer]:
    """Yield the publications whose topic is computed at run time."""
    for agent in surface.agents.values():
        for each in agent.publications:
            if not each.topic:
                yield _event(AgentPublication(agent, each), "", UNKNOWN)


def _handler(handler: TopicHandler) -> Consumer:
    subscription = handler.subscription
    reads = {each.name: each.span for each in subscription.fields} | {
        each.key: each.span for each in subscription.reads
    }
    guarded = () if subscription.declared_schema else _guarded_keys(subscription.reads)
    return Consumer(
        kind="event", channel=subscription.topic, name=handler.name, unit=handler.agent.name, span=subscription.span,
        wanted=as_json(subscription.needed), is_whole=handler.is_whole, reads=reads, guarded=guarded,
        digest=handler.agent.source_digest,
    )  # fmt: skip


# --- calls and answers ---------------------------------------------------------------------------


def _own_methods(surface: Surface) -> Iterator[tuple[AgentDefinition, MethodSpec]]:
    """Yield each method that can be called, with its agent."""
    return ((agent, method) for agent in surface.agents.values() for method in surface.methods(agent.name).values())


def _calls(surface: Surface) -> Iterator[Producer]:
    for agent in surface.agents.values():
        for call in agent.calls:
            is_known = bool(call.agent and call.method)
            yield Producer(
                kind="call", channel=f"{call.agent}.{call.method}" if is_known else "", name=agent.name, unit=agent.name,
                span=call.span, given=_record_of(call.arguments), is_open=call.has_unknown, digest=agent.source_digest,
            )  # fmt: skip


def _methods(surface: Surface) -> Iterator[Consumer]:
    for agent, method in _own_methods(surface):
        takes, name = method.input_schema, f"{agent.name}.{method.name}"
        yield Consumer(
            kind="call", channel=name, name=name, unit=agent.name, span=method.schema_span or method.span,
            wanted=_record_of(takes) if takes else UNKNOWN, is_closed=takes is not None and not takes.is_open,
            is_whole=takes is not None, digest=agent.source_digest,
        )  # fmt: skip


def _answers(surface: Surface, results: Results) -> Iterator[Producer]:
    """Yield what methods return, and what handlers of requests answer."""
    for agent, method in _own_methods(surface):
        gives, name = method.output_schema, f"{agent.name}.{method.name}"
        yield Producer(
            kind="answer", channel=name, name=name, unit=agent.name, span=method.schema_span or method.span,
            given=_named(_record_of(gives), method.returns.name) if gives else as_json(results.type_of(name)),
            is_open=gives is not None and gives.is_open, digest=agent.source_digest,
        )  # fmt: skip
    for handler in surface.handlers:
        answering = handler.method
        topic = handler.subscription.topic
        gives_none = results.type_of(handler.name).kind == "null"  # then another handler may be the one that answers
        is_one = not is_pattern(topic) and (handler.agent.name, answering and answering.name) in results.responders(
            topic
        )
        if answering and not answering.has_schema and topic and (is_one or not gives_none):
            yield Producer(
                kind="answer", channel=handler.subscription.topic, name=handler.name, unit=handler.agent.name,
                span=answering.span, given=as_json(results.type_of(handler.name)), digest=handler.agent.source_digest,
            )  # fmt: skip


def _waiting(surface: Surface, results: Results) -> Iterator[Consumer]:
    """Yield the agents that wait for an answer, with what they read of it anywhere."""
    for agent in surface.agents.values():
        asked: list[tuple[str, Call | Publication]] = [
            (f"{each.agent}.{each.method}", each) for each in agent.calls if each.agent and each.method
        ]
        asked += [(each.topic, each) for each in agent.publications if each.is_request and each.topic]
        for channel in dict.fromkeys(channel for channel, _ in asked):
            places = [each for name, each in asked if name == channel]
            reads = [read for each in places for read in each.reads]
            wanted = _type_of_reads(reads, results.type_of(channel))
            yield Consumer(
                kind="answer", channel=channel, name=agent.name, unit=agent.name, span=places[0].span,
                wanted=wanted, is_whole=False, guarded=_guarded_keys(reads), reads={each.key: each.span for each in reads},
                digest=agent.source_digest,
            )  # fmt: skip


# --- types -----------------------------------------------------------------------------------------


def _record_of(schema: Schema) -> Type:
    """Return the JSON type of values of a schema, whether or not further fields may be there."""
    return as_json(Type("record", fields=schema.fields))


def _type_of(schema: Schema | None) -> Type:
    """Return the JSON type of values of a schema; `UNKNOWN` if not all of their fields are known."""
    return UNKNOWN if schema is None or schema.is_open else _record_of(schema)


def _named(of: Type, name: str) -> Type:
    """Return the record of a class with this name; any other type unchanged."""
    return replace(of, name=name) if of.kind == "record" else of


def _guarded_keys(reads: Sequence[KeyRead]) -> tuple[str, ...]:
    """Return the first keys that are only read under a guard."""
    guarded = {_first_key(each.key): None for each in reads if each.is_guarded}
    certain = {_first_key(each.key) for each in reads if not each.is_guarded}
    return tuple(name for name in guarded if name not in certain)


def _first_key(path: str) -> str:
    return path.split(".", maxsplit=1)[0].partition("[")[0]


def _type_of_reads(reads: Sequence[KeyRead], answer: Type) -> Type:
    """Return the record of the keys that are read of an answer of some type.

    An attribute is needed if it is a field of the answer; else it may be something that its class adds.
    """
    fields = {each.name for each in answer.fields}
    needed: dict[str, bool] = {}
    for each in reads:
        is_field = each.is_guarded and _first_key(each.key) in fields
        needed[each.key] = needed.get(each.key, False) or not each.is_optional or is_field
    return type_of_paths(needed)
