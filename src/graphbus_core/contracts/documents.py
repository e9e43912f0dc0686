"""The promises of agents as documents: JSON Schema (draft 2020-12) and AsyncAPI 3.0. The same artifacts give the same document.

/Order/Created                    ->  schema Order.Created.Payload; channel Order.Created, message Order.Created.Event
OrderProcessor.process_order      ->  schemas OrderProcessor.process_order.Arguments and .Result
publishes                         ->  operation send.OrderProcessor.Order.Created
a handler                         ->  operation receive.Accounts.on_order_created.Order.Created, one for each topic that it hears
a request                         ->  operation request.Checkout.Price.Asked, with a reply

Segments of topics have neither dots nor slashes, so that no two names are alike; names of classes have no dot. `$id`s are
relative names: a document may lie anywhere. There are no line numbers and no paths of files: only promises change a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from graphbus_core.contracts.surface import Surface, TopicHandler
from graphbus_core.model.agent import AgentDefinition, Subscription
from graphbus_core.model.artifacts import Artifacts, ProjectInfo
from graphbus_core.model.topics import is_pattern, is_topic, matches
from graphbus_core.schema.json_schema import Dialect, JsonSchema, Writer
from graphbus_core.schema.types import Schema, Type

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNKNOWN_PAYLOAD = "Neither publishers nor handlers say what the payload looks like."

_CLASS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def bundle_schemas(artifacts: Artifacts, info: ProjectInfo) -> dict[str, Any]:
    """One document with the schemas of all payloads, arguments and results in its `$defs`."""
    parts = _parts(Surface.of(artifacts))
    classes = Classes(parts, "#/$defs/")
    described = {part.name: part.described(classes.writer) for part in parts}
    head = {
        "$schema": _DIALECT,
        "$id": "contracts",
        "title": f"Contracts of {info.title}",
        "description": info.description,
    }
    return {**_filled(head), "$defs": {**classes.needed(), **described}}


def single_schemas(artifacts: Artifacts) -> dict[str, dict[str, Any]]:
    """Name -> the document of one payload, of the arguments or the result of one method; it needs no other."""
    parts = _parts(Surface.of(artifacts))
    classes = Classes(parts, "#/$defs/")
    documents = {}
    for part in parts:
        schema = part.described(classes.writer)
        documents[part.name] = {"$schema": _DIALECT, "$id": part.name, **schema, **_filled({"$defs": classes.needed()})}
    return documents


# --- parts ------------------------------------------------------------------------------------


class DocumentPart(NamedTuple):
    """A payload, or what a method takes or gives.

    Attributes:
        name: The name of its schema.
        title: For people.
        side: What it is.
        schema: What a running graph checks; None: nothing.
        note: What has to be said of where it is known from; empty: it is what agents declare.
        wanted: Of a payload without a schema: what the handlers declare that they take, each once.
    """

    name: str
    title: str
    side: Literal["payload", "arguments", "result"]
    schema: Schema | None
    note: str = ""
    wanted: tuple[Type, ...] = ()

    @property
    def types(self) -> tuple[Type, ...]:
        """All types in it."""
        return self.wanted if self.schema is None else tuple(field.type for field in self.schema.fields)

    def described(self, writer: Writer) -> JsonSchema:
        """As JSON Schema with its title and note."""
        return {"title": self.title, **_filled({"description": self.note}), **self.written(writer)}

    def written(self, writer: Writer) -> JsonSchema:
        """As JSON Schema."""
        if self.schema is not None:
            write = {"payload": writer.payload, "arguments": writer.arguments, "result": writer.result}[self.side]
            return write(self.schema)
        written = [writer.value(each) for each in self.wanted]
        return {"allOf": written} if len(written) > 1 else written[0] if written else {}


def _payloads(surface: Surface) -> dict[str, DocumentPart]:
    """Topic -> its payload, by topic; patterns are no topics."""
    schemas = {topic.name: topic.schema for topic in surface.topics if is_topic(topic.name)}
    return {topic: payload_part(topic, schemas[topic], surface.handlers_of(topic)) for topic in sorted(schemas)}


def payload_part(topic: str, schema: Schema | None, hearers: Iterable[TopicHandler] = ()) -> DocumentPart:
    """Return the payload of a topic: its schema, or else the types that its handlers declare."""
    name = f"{_dotted(topic)}.Payload"
    if schema is not None:
        return DocumentPart(name, topic, "payload", schema)
    wanted = {each.name: kind for each in sorted(hearers, key=_place_of) if (kind := _wanted(each.subscription))}
    note = f"No publisher declares it: what {_listed(wanted)} can take." if wanted else _UNKNOWN_PAYLOAD
    return DocumentPart(name, topic, "payload", None, note, tuple(dict.fromkeys(wanted.values())))


def method_parts(method: str, inputs: Schema | None, outputs: Schema | None) -> tuple[DocumentPart, DocumentPart]:
    """What a method takes, and what it gives."""
    note = "The contract of the method cannot be read."
    return (
        DocumentPart(
            f"{method}.Arguments", f"Arguments of {method}", "arguments", inputs, note if inputs is None else ""
        ),
        DocumentPart(f"{method}.Result", f"Result of {method}", "result", outputs, note if outputs is None else ""),
    )


def _parts(surface: Surface) -> list[DocumentPart]:
    """Everything there is to describe of a graph, by name."""
    found = list(_payloads(surface).values())
    for agent in surface.agents:
        for name, method in surface.methods(agent).items():
            found += method_parts(f"{agent}.{name}", method.input_schema, method.output_schema)
    return sorted(found, key=lambda each: each.name)


def _dotted(topic: str) -> str:
    """A topic or pattern as a name: `/Order/Created` -> `Order.Created`."""
    return topic.strip("/").replace("/", ".")


def _place_of(handler: TopicHandler) -> tuple[str, str, str]:
    """What handlers are sorted by: no line number."""
    return handler.agent.name, handler.subscription.method, handler.subscription.topic


def _wanted(subscription: Subscription) -> Type | None:
    if subscription.shape == "fields":
        fields = subscription.declared_schema.fields if subscription.declared_schema else ()
        return Type("record", fields=fields) if fields else None
    return None if subscription.payload.kind in ("unknown", "any") else subscription.payload


def _listed(names: Mapping[str, object]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


# --- classes ------------------------------------------------------------------------------------


class Classes:
    """Named records, such as TypedDicts and dataclasses: each is described once and referenced.

    Where two classes of one name look different, each is described in place: no number would be a name that stays.

    Args:
        parts: Where they are found.
        at: What stands before the name in a `$ref`, e.g. `#/$defs/`.
        dialect: Of the JSON Schema that is written.
    """

    def __init__(self, parts: Iterable[DocumentPart], at: str, dialect: Dialect = "2020-12") -> None:
        self._at = at
        found: dict[str, set[Type]] = {}
        for record in (each for part in parts for kind in part.types for each in _records_in(kind)):
            found.setdefault(record.name, set()).add(record)
        self._by_name = {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}
        self._needed: dict[str, None] = {}
        self.writer = Writer(self._refer, dialect)

    def needed(self) -> dict[str, JsonSchema]:
        """The schemas of all classes that were referred to since this was asked last, by name."""
        written: dict[str, JsonSchema] = {}
        while missing := [name for name in self._needed if name not in written]:
            for name in missing:
                written[name] = self.writer.record(self._by_name[name])
        self._needed.clear()
        return dict(sorted(written.items()))

    def _refer(self, record: Type) -> str | None:
        if self._by_name.get(record.name) != record:
            return None
        self._needed[record.name] = None
        return self._at + record.name


def _records_in(kind: Type) -> Iterator[Type]:
    if kind.kind == "record" and _CLASS.fullmatch(kind.name):
        yield kind
    for inner in (*kind.args, *(field.type for field in kind.fields)):
        yield from _records_in(inner)


# --- AsyncAPI ---------------------------------------------------------------------------------------


_Node = dict[str, Any]


def asyncapi_document(artifacts: Artifacts, info: ProjectInfo) -> _Node:
    """Describe what agents publish, hear, ask and answer."""
    return _Document(Surface.of(artifacts)).written(info)


class _Document:
    """One document while it is written."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._payloads = _payloads(surface)
        self._classes = Classes(self._payloads.values(), "#/components/schemas/", "draft-07")
        self._asked = [topic for topic in self._payloads if surface.requests_to(topic)]
        self._handlers = sorted((each for each in surface.handlers if each.subscription.topic), key=_place_of)
        self._senders = sorted(
            {
                (agent.name, each.topic or f"{each.prefix or '/'}**", each.is_request)
                for agent in surface.agents.values()
                for each in agent.publications
            }
        )

    def written(self, info: ProjectInfo) -> _Node:
        tags = [
            _filled({"name": each.name, "description": _first_line(each)}) for each in self._surface.agents.values()
        ]
        schemas = {each.name: each.written(self._classes.writer) for each in self._payloads.values()}
        messages = {f"{_dotted(name)}.Event": _event(name, each) for name, each in self._payloads.items()}
        messages |= {f"{_dotted(topic)}.Reply": self._reply(topic) for topic in self._asked}
        return {
            "asyncapi": "3.0.0",
            "info": _filled({**info._asdict(), "tags": tags}),
            "defaultContentType": "application/json",
            "channels": dict(sorted(self._channels())),
            "operations": dict(sorted((*self._sending(), *self._receiving()))),
            "components": {
                "messages": dict(sorted(messages.items())),
                "schemas": self._classes.needed() | schemas,
            },
        }

    def _channels(self) -> Iterator[tuple[str, _Node]]:
        for topic in self._payloads:
            external = {"x-graphbus-external": True} if self._surface.is_external(topic) else {}
            yield (
                _dotted(topic),
                {"address": topic, "messages": _message("event", f"{_dotted(topic)}.Event"), **external},
            )
        heard = {topic for handler in self._handlers for topic in self._heard_by(handler)}
        said = {topic for _, topic, _ in self._senders}
        for pattern in (heard | said) - self._payloads.keys():
            yield _dotted(pattern), _open_channel(pattern)
        for topic in self._asked:
            title = f"Answers to those who ask on {topic}"
            messages = _message("reply", f"{_dotted(topic)}.Reply")
            yield _reply_channel(topic), {"address": None, "title": title, "messages": messages}

    def _heard_by(self, handler: TopicHandler) -> list[str]:
        """The topics that a handler hears: those that there are, or its own pattern where there is none."""
        wanted = handler.subscription.topic
        return [topic for topic in self._payloads if matches(wanted, topic)] or [wanted]

    def _reply(self, topic: str) -> _Node:
        """The message of an answer; what it looks like is known where one handler answers and says so."""
        found = self._surface.handlers_of(topic)
        method = found[0].method if len(found) == 1 else None
        name = f"{topic} (answer)"
        return {"name": name, "title": name, "payload": self._classes.writer.value(method.returns) if method else {}}

    def _sending(self) -> Iterator[tuple[str, _Node]]:
        for agent, topic, is_request in self._senders:
            verb, does = ("request", "asks on") if is_request else ("send", "publishes")
            about = {"title": f"{agent} {does} {topic}", "x-graphbus-agent": agent}
            reply = _reply_reference(topic) if is_request and topic in self._payloads else {}
            yield f"{verb}.{agent}.{_dotted(topic)}", {"action": "send", **_at(topic, agent), **about, **reply}

    def _receiving(self) -> Iterator[tuple[str, _Node]]:
        for handler in self._handlers:
            agent, wanted = handler.agent.name, handler.subscription.topic
            for topic in self._heard_by(handler):
                about = {
                    "title": f"{handler.name} hears {topic}",
                    "summary": _first_line(handler.method) if handler.method else "",
                    "x-graphbus-agent": agent,
                    "x-graphbus-method": handler.subscription.method,
                    "x-graphbus-pattern": wanted if is_pattern(wanted) else "",
                }
                reply = _reply_reference(topic) if topic in self._asked else {}
                name = f"receive.{handler.name}.{_dotted(topic)}"
                yield name, {"action": "receive", **_at(topic, agent), **_filled(about), **reply}


def _filled(node: _Node) -> _Node:
    """Return the node without its empty values."""
    return {key: value for key, value in node.items() if value}


def _first_line(described: AgentDefinition | Any) -> str:
    text: str = described.doc
    return text.strip().partition("\n")[0]


def _event(topic: str, payload: DocumentPart) -> _Node:
    about = _filled({"name": topic, "title": topic, "summary": payload.note})
    return {**about, "payload": _ref("components", "schemas", payload.name)}


def _message(key: str, name: str) -> _Node:
    return {key: _ref("components", "messages", name)}


def _open_channel(pattern: str) -> _Node:
    """The channel of topics that are known by their pattern only; each wildcard is a parameter."""
    count = pattern.count("*") - 2 * pattern.count("**")
    parameters: dict[str, _Node] = {}
    address = pattern
    for number in range(1, count + 1):
        name = f"segment{number}" if count > 1 else "segment"
        address = re.sub(r"(?<!\*)\*(?!\*)", f"{{{name}}}", address, count=1)
        parameters[name] = {"description": "One segment of the topic."}
    if "**" in address:
        address = address.replace("**", "{rest}")
        parameters["rest"] = {"description": "The rest of the topic: one segment or more, with slashes between them."}
    message = {"event": {"name": pattern, "title": pattern, "summary": _UNKNOWN_PAYLOAD, "payload": {}}}
    return {"address": address, "messages": message, **_filled({"parameters": parameters})}


def _reply_channel(topic: str) -> str:
    """No topic has a colon."""
    return f"{_dotted(topic)}:reply"


def _reply_reference(topic: str) -> _Node:
    channel = _reply_channel(topic)
    messages = [_ref("channels", channel, "messages", "reply")]
    return {"reply": {"channel": _ref("channels", channel), "messages": messages}}


def _at(topic: str, agent: str) -> _Node:
    """The channel and message of an operation, and whose it is."""
    channel = _dotted(topic)
    messages = [_ref("channels", channel, "messages", "event")]
    return {"channel": _ref("channels", channel), "messages": messages, "tags": [{"name": agent}]}


def _ref(*names: str) -> _Node:
    return {"$ref": f"#/{'/'.join(names)}"}
