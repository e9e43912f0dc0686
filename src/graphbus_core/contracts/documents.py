"""The contracts of agents as JSON Schema (draft 2020-12) and AsyncAPI 3.0. The same artifacts give the same document.

/Order/Created                    ->  schema Order.Created.Payload; channel Order.Created, message Order.Created.Event
OrderProcessor.process_order      ->  schemas OrderProcessor.process_order.Arguments and .Result
publishes                         ->  operation send.OrderProcessor.Order.Created
a handler                         ->  operation receive.Accounts.on_order_created.Order.Created, one for each of its topics
a request                         ->  operation request.Checkout.Price.Asked, with a reply

The names are unique, since segments of topics contain neither dots nor slashes, and names of classes contain no dot. Each `$id`
is a relative name, so that a document can be stored anywhere. Documents contain no line numbers and no paths of files: they
only change if a contract does.
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
    """Return one document whose `$defs` hold the schemas of all payloads, arguments and results."""
    parts = _collect_parts(Surface.of(artifacts))
    classes = Classes(parts, "#/$defs/")
    described = {part.name: part.described(classes.writer) for part in parts}
    head = {
        "$schema": _DIALECT,
        "$id": "contracts",
        "title": f"Contracts of {info.title}",
        "description": info.description,
    }
    return {**_compact(head), "$defs": {**classes.needed(), **described}}


def single_schemas(artifacts: Artifacts) -> dict[str, dict[str, Any]]:
    """Return name -> document: a self-contained one for each payload, and for the arguments and the result of each method."""
    parts = _collect_parts(Surface.of(artifacts))
    classes = Classes(parts, "#/$defs/")
    documents = {}
    for part in parts:
        schema = part.described(classes.writer)
        definitions = _compact({"$defs": classes.needed()})
        documents[part.name] = {"$schema": _DIALECT, "$id": part.name, **schema, **definitions}
    return documents


# --- parts ------------------------------------------------------------------------------------


class DocumentPart(NamedTuple):
    """A payload, the arguments of a method, or its result.

    Attributes:
        name: The name of its schema in a document.
        title: The title for readers.
        side: Which of the three it is.
        schema: The schema that a running graph checks; None if it checks none.
        note: A description if the schema is not what agents declare; else empty.
        wanted: For a payload without a schema, the different types that its handlers declare.
    """

    name: str
    title: str
    side: Literal["payload", "arguments", "result"]
    schema: Schema | None
    note: str = ""
    wanted: tuple[Type, ...] = ()

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of its fields, or if it has no schema, those that handlers declare."""
        return self.wanted if self.schema is None else tuple(field.type for field in self.schema.fields)

    def described(self, writer: Writer) -> JsonSchema:
        """Return this part as JSON Schema with its title and note."""
        return {"title": self.title, **_compact({"description": self.note}), **self.written(writer)}

    def written(self, writer: Writer) -> JsonSchema:
        """Return this part as JSON Schema; without a schema, the types that handlers declare are combined by `allOf`."""
        if self.schema is not None:
            write = {"payload": writer.payload, "arguments": writer.arguments, "result": writer.result}[self.side]
            return write(self.schema)
        written = [writer.value(each) for each in self.wanted]
        return {"allOf": written} if len(written) > 1 else written[0] if written else {}


def _collect_payloads(surface: Surface) -> dict[str, DocumentPart]:
    """Return topic -> the part for its payload, sorted by topic; patterns are left out."""
    schemas = {topic.name: topic.schema for topic in surface.topics if is_topic(topic.name)}
    return {topic: payload_part(topic, schemas[topic], surface.handlers_of(topic)) for topic in sorted(schemas)}


def payload_part(topic: str, schema: Schema | None, handlers: Iterable[TopicHandler] = ()) -> DocumentPart:
    """Return the part for the payload of a topic, with its schema, or if that is None, the types that its handlers declare."""
    name = f"{_name_of(topic)}.Payload"
    if schema is not None:
        return DocumentPart(name, topic, "payload", schema)
    declared = ((each.name, _declared_type(each.subscription)) for each in sorted(handlers, key=_sort_key_of))
    wanted = {handler: kind for handler, kind in declared if kind}
    note = f"No publisher declares it: what {_join_names(wanted)} can take." if wanted else _UNKNOWN_PAYLOAD
    return DocumentPart(name, topic, "payload", None, note, tuple(dict.fromkeys(wanted.values())))


def method_parts(method: str, inputs: Schema | None, outputs: Schema | None) -> tuple[DocumentPart, DocumentPart]:
    """Return the parts for the arguments and the result of a method, `"Stock.reserve"`; without schema, a part has a note."""
    note = "The contract of the method cannot be read."
    return (
        DocumentPart(
            f"{method}.Arguments", f"Arguments of {method}", "arguments", inputs, note if inputs is None else ""
        ),
        DocumentPart(f"{method}.Result", f"Result of {method}", "result", outputs, note if outputs is None else ""),
    )


def _collect_parts(surface: Surface) -> list[DocumentPart]:
    """Return the parts for all payloads, arguments and results of a graph, sorted by name."""
    found = list(_collect_payloads(surface).values())
    for agent in surface.agents:
        for name, method in surface.methods(agent).items():
            found += method_parts(f"{agent}.{name}", method.input_schema, method.output_schema)
    return sorted(found, key=lambda each: each.name)


def _name_of(topic: str) -> str:
    """Return the name for a topic or pattern: `Order.Created` for `/Order/Created`."""
    return topic.strip("/").replace("/", ".")


def _sort_key_of(handler: TopicHandler) -> tuple[str, str, str]:
    """Return the sort key of a handler; a line number in it would change the document although no contract has changed."""
    return handler.agent.name, handler.subscription.method, handler.subscription.topic


def _declared_type(subscription: Subscription) -> Type | None:
    """Return the type of payload that a handler declares by its parameters or its annotation; None if it declares none."""
    if subscription.shape == "fields":
        fields = subscription.declared_schema.fields if subscription.declared_schema else ()
        return Type("record", fields=fields) if fields else None
    return None if subscription.payload.kind in ("unknown", "any") else subscription.payload


def _join_names(names: Mapping[str, object]) -> str:
    """Return the keys as a list in words: `"A, B and C"`. There must be at least one."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


# --- classes ------------------------------------------------------------------------------------


class Classes:
    """Named records, such as TypedDicts and dataclasses: each is described once and referenced.

    Different classes with the same name are described in place: numbered names would change when another class is added.

    Args:
        parts: The parts in which the classes are used.
        ref_prefix: The beginning of a `$ref`, before the name of the class, such as `#/$defs/`.
        dialect: The dialect of JSON Schema to write.
    """

    def __init__(self, parts: Iterable[DocumentPart], ref_prefix: str, dialect: Dialect = "2020-12") -> None:
        self._ref_prefix = ref_prefix
        found: dict[str, set[Type]] = {}
        for record in (each for part in parts for kind in part.types for each in _find_records(kind)):
            found.setdefault(record.name, set()).add(record)
        self._by_name = {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}
        self._needed: dict[str, None] = {}
        self.writer = Writer(self._refer, dialect)

    def needed(self) -> dict[str, JsonSchema]:
        """Return name -> schema of all classes that were referenced since the last call, directly or by one another."""
        written: dict[str, JsonSchema] = {}
        while missing := [name for name in self._needed if name not in written]:
            for name in missing:
                written[name] = self.writer.record(self._by_name[name])
        self._needed.clear()
        return dict(sorted(written.items()))

    def _refer(self, record: Type) -> str | None:
        """Return the `$ref` of a class and note that its schema is needed; None if it must be described in place."""
        if self._by_name.get(record.name) != record:
            return None
        self._needed[record.name] = None
        return self._ref_prefix + record.name


def _find_records(kind: Type) -> Iterator[Type]:
    """Yield the records with a class name in a type, at any depth, itself included."""
    if kind.kind == "record" and _CLASS.fullmatch(kind.name):
        yield kind
    for inner in (*kind.args, *(field.type for field in kind.fields)):
        yield from _find_records(inner)


# --- AsyncAPI ---------------------------------------------------------------------------------------


_Node = dict[str, Any]


def asyncapi_document(artifacts: Artifacts, info: ProjectInfo) -> _Node:
    """Return the AsyncAPI document of the events that agents publish and handle, and the requests that they send and answer."""
    return _AsyncApi(Surface.of(artifacts)).build(info)


class _AsyncApi:
    """Builds an AsyncAPI document of a surface."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._payloads = _collect_payloads(surface)
        self._classes = Classes(self._payloads.values(), "#/components/schemas/", "draft-07")
        self._requested = [topic for topic in self._payloads if surface.requests_to(topic)]
        self._handlers = sorted((each for each in surface.handlers if each.subscription.topic), key=_sort_key_of)
        self._senders = sorted(
            {
                (agent.name, each.topic or f"{each.prefix or '/'}**", each.is_request)
                for agent in surface.agents.values()
                for each in agent.publications
            }
        )

    def build(self, info: ProjectInfo) -> _Node:
        """Return the whole document."""
        tags = [
            _compact({"name": each.name, "description": _first_doc_line(each)})
            for each in self._surface.agents.values()
        ]
        schemas = {each.name: each.written(self._classes.writer) for each in self._payloads.values()}
        messages = {f"{_name_of(name)}.Event": _event_message(name, each) for name, each in self._payloads.items()}
        messages |= {f"{_name_of(topic)}.Reply": self._reply_message(topic) for topic in self._requested}
        return {
            "asyncapi": "3.0.0",
            "info": _compact({**info._asdict(), "tags": tags}),
            "defaultContentType": "application/json",
            "channels": dict(sorted(self._channels())),
            "operations": dict(sorted((*self._sending_operations(), *self._receiving_operations()))),
            "components": {
                "messages": dict(sorted(messages.items())),
                "schemas": self._classes.needed() | schemas,
            },
        }

    def _channels(self) -> Iterator[tuple[str, _Node]]:
        """Yield `(name, channel)` for each topic, each pattern that matches no known topic, and the replies to each request."""
        for topic in self._payloads:
            external = {"x-graphbus-external": True} if self._surface.is_external(topic) else {}
            messages = _message_ref("event", f"{_name_of(topic)}.Event")
            yield _name_of(topic), {"address": topic, "messages": messages, **external}
        heard = {topic for handler in self._handlers for topic in self._topics_of(handler)}
        published = {topic for _, topic, _ in self._senders}
        for pattern in (heard | published) - self._payloads.keys():
            yield _name_of(pattern), _pattern_channel(pattern)
        for topic in self._requested:
            title = f"Answers to those who ask on {topic}"
            messages = _message_ref("reply", f"{_name_of(topic)}.Reply")
            yield _reply_channel_name(topic), {"address": None, "title": title, "messages": messages}

    def _topics_of(self, handler: TopicHandler) -> list[str]:
        """Return the known topics that reach a handler; if there are none, its own topic or pattern."""
        wanted = handler.subscription.topic
        return [topic for topic in self._payloads if matches(wanted, topic)] or [wanted]

    def _reply_message(self, topic: str) -> _Node:
        """Return the message of an answer; only if the topic has a single handler, its return annotation gives the payload."""
        found = self._surface.handlers_of(topic)
        method = found[0].method if len(found) == 1 else None
        name = f"{topic} (answer)"
        return {"name": name, "title": name, "payload": self._classes.writer.value(method.returns) if method else {}}

    def _sending_operations(self) -> Iterator[tuple[str, _Node]]:
        """Yield `(name, operation)` for each agent and each topic to which the agent publishes or sends requests."""
        for agent, topic, is_request in self._senders:
            verb, does = ("request", "asks on") if is_request else ("send", "publishes")
            about = {"title": f"{agent} {does} {topic}", "x-graphbus-agent": agent}
            reply = _reply_field(topic) if is_request and topic in self._payloads else {}
            fields = _operation_fields(topic, agent)
            yield f"{verb}.{agent}.{_name_of(topic)}", {"action": "send", **fields, **about, **reply}

    def _receiving_operations(self) -> Iterator[tuple[str, _Node]]:
        """Yield `(name, operation)` for each handler and each topic that reaches it."""
        for handler in self._handlers:
            agent, wanted = handler.agent.name, handler.subscription.topic
            for topic in self._topics_of(handler):
                about = {
                    "title": f"{handler.name} hears {topic}",
                    "summary": _first_doc_line(handler.method) if handler.method else "",
                    "x-graphbus-agent": agent,
                    "x-graphbus-method": handler.subscription.method,
                    "x-graphbus-pattern": wanted if is_pattern(wanted) else "",
                }
                reply = _reply_field(topic) if topic in self._requested else {}
                name = f"receive.{handler.name}.{_name_of(topic)}"
                yield name, {"action": "receive", **_operation_fields(topic, agent), **_compact(about), **reply}


def _compact(node: _Node) -> _Node:
    """Return the node without its empty values."""
    return {key: value for key, value in node.items() if value}


def _first_doc_line(described: AgentDefinition | Any) -> str:
    """Return the first line of the docstring of an agent or a method; `""` without a docstring."""
    text: str = described.doc
    return text.strip().partition("\n")[0]


def _event_message(topic: str, payload: DocumentPart) -> _Node:
    """Return the message of the events of a topic, which refers to the schema of the payload."""
    about = _compact({"name": topic, "title": topic, "summary": payload.note})
    return {**about, "payload": _ref("components", "schemas", payload.name)}


def _message_ref(key: str, name: str) -> _Node:
    return {key: _ref("components", "messages", name)}


def _pattern_channel(pattern: str) -> _Node:
    """Return the channel of a pattern that matches no known topic; each wildcard becomes a parameter of its address."""
    count = pattern.count("*") - 2 * pattern.count("**")  # of single `*`
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
    return {"address": address, "messages": message, **_compact({"parameters": parameters})}


def _reply_channel_name(topic: str) -> str:
    """Return the name of the channel for answers; it is unique, since no topic contains a colon."""
    return f"{_name_of(topic)}:reply"


def _reply_field(topic: str) -> _Node:
    """Return the field `reply` of an operation that sends or answers requests; it refers to the channel for answers."""
    channel = _reply_channel_name(topic)
    messages = [_ref("channels", channel, "messages", "reply")]
    return {"reply": {"channel": _ref("channels", channel), "messages": messages}}


def _operation_fields(topic: str, agent: str) -> _Node:
    """Return the common fields of an operation: the channel of its topic, the message in it, and its agent as a tag."""
    channel = _name_of(topic)
    messages = [_ref("channels", channel, "messages", "event")]
    return {"channel": _ref("channels", channel), "messages": messages, "tags": [{"name": agent}]}


def _ref(*names: str) -> _Node:
    return {"$ref": f"#/{'/'.join(names)}"}
