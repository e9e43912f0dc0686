"""Agents as the compiler reads them and artifacts describe them: methods, subscriptions, publications, calls, dependencies.

They hold enough for every rule of `graphbus check` between agents, so that no rule there needs the syntax tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from graphbus_core.errors import Place
from graphbus_core.schema.types import DICT, UNKNOWN, Field, Schema, Type


class SourceSpan(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of source text: relative posix path; lines from 1, columns as byte offsets from 0, the end exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def place(self) -> Place:
        """The start of the range for messages, where columns count from 1."""
        return Place(self.path, self.line, self.column + 1)


ParameterKind = Literal["positional", "positional_only", "keyword_only", "var_positional", "var_keyword"]


class Parameter(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A parameter of a method, without `self`; without an annotation (`is_annotated=False`) its `type` is unknown."""

    name: str
    span: SourceSpan
    type: Type = UNKNOWN
    kind: ParameterKind = "positional"
    has_default: bool = False
    is_annotated: bool = False


class Returned(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One `return` of a method, or the end of its body.

    Attributes:
        shape: The fields, if a dict display (or a name bound once to one) is returned; else None.
        type: The type of the value, as far as it is known.
    """

    span: SourceSpan
    type: Type
    shape: Schema | None = None


class MethodSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A method, with the contract that `@schema_method` declares for it.

    Attributes:
        input_schema: Declared argument fields; None without `@schema_method` or when it cannot be read.
        output_schema: Declared result fields; None likewise.
        has_schema: True for a method with `@schema_method`, readable or not.
        schema_span: The decorator call.
        returns: The type of the return annotation; unknown without one.
        returned: Every `return` of the body and its end, outside of nested functions.
    """

    name: str
    span: SourceSpan
    parameters: tuple[Parameter, ...] = ()
    has_schema: bool = False
    schema_span: SourceSpan | None = None
    input_schema: Schema | None = None
    output_schema: Schema | None = None
    returns: Type = UNKNOWN
    has_return_annotation: bool = False
    returned: tuple[Returned, ...] = ()
    is_async: bool = False
    is_static: bool = False
    doc: str = ""


BELOW_UNKNOWN = "?"
"""In `below`: the value is used in a way that may read any part of it."""


class KeyRead(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A handler reads a key of its payload.

    Attributes:
        is_optional: The handler works without the key (`.get`, `in`, try/except KeyError), or may do so.
        is_guarded: It is not certain: the key is read under a condition on the payload, or as an attribute of an object.
        below: The parts of the value that are read, such as `patient.name` or `lines[].sku`; `lines[].?` for an unknown use.
    """

    key: str
    span: SourceSpan
    is_optional: bool = False
    is_guarded: bool = False
    below: tuple[str, ...] = ()


HandlerShape = Literal["nothing", "event", "payload", "typed", "event_payload", "topic_payload", "fields", "invalid"]


class Subscription(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One handler of one topic.

    Attributes:
        topic: A topic or a pattern (`*` one segment, `**` the rest); empty for a computed one.
        method: The name of the handler.
        span: The text of the topic in `@subscribe` or `SUBSCRIBE`.
        shape: The arguments of the handler (the table in docs/writing-agents.md).
        payload: The payload type that the handler declares; unknown without one.
        fields: For the shape `fields`: the keyword parameters, which are fields of the payload.
        reads: The keys that the body reads; complete only if `reads_all_known`.
        reads_all_known: False if the payload is passed on, iterated or indexed by a computed key.
        promised: The type of the `Topic` to which it subscribes; unknown for a plain name.
        retries: The argument of `@subscribe`, if it is constant; likewise `backoff_s`, `timeout_s` and `concurrency`.
    """

    topic: str
    method: str
    span: SourceSpan
    shape: HandlerShape
    payload: Type = UNKNOWN
    fields: tuple[Parameter, ...] = ()
    reads: tuple[KeyRead, ...] = ()
    reads_all_known: bool = True
    is_async: bool = False
    retries: int = 0
    backoff_s: float | None = None
    timeout_s: float | None = None
    concurrency: int = 1
    promised: Type = UNKNOWN

    @property
    def named(self) -> frozenset[str]:
        """The keys that the handler names itself: what it reads, and its parameters."""
        return frozenset({*(read.key for read in self.reads), *(field.name for field in self.fields)})

    @property
    def declared_schema(self) -> Schema | None:
        """The declared fields of the payload, by parameters or by the payload's class; None if nothing is declared.

        A field that is optional in the class counts as required if the body reads it without a guard.
        """
        if self.shape == "fields":
            named = [each for each in self.fields if each.kind in ("positional", "keyword_only")]
            return Schema(tuple(Field(each.name, each.type, not each.has_default) for each in named))
        if self.payload.kind != "record":
            return None
        needed = {read.key for read in self.reads if not read.is_optional}
        return Schema(
            tuple(Field(each.name, each.type, each.required or each.name in needed) for each in self.payload.fields)
        )

    @property
    def declared_type(self) -> Type:
        """The declared type of the payload, also if it is not a mapping of known fields; unknown if nothing is declared."""
        return (
            Type("record", fields=self.declared_schema.fields)
            if self.shape == "fields" and self.declared_schema
            else self.payload
        )


class Publication(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One place where an agent publishes, or one `@publishes` declaration.

    Attributes:
        topic: Empty for a computed topic.
        prefix: The constant beginning of a computed topic, `"/Order/"` of `f"/Order/{status}"`.
        method: The method that publishes; empty for a declaration on the class.
        span: The text of the topic.
        payload: The fields that are sent; None if unknown.
        type: The type of a payload that is not a mapping of known fields, such as a list; else unknown.
        payload_span: The payload expression, if any.
        is_declared: True for a declaration by `@publishes` or a `Topic`.
        is_request: True for `self.request`, which exactly one handler must answer.
        reads: The keys that the code reads of the answer to a request.
        promised: For a declaration by a `Topic`: its type.
    """

    topic: str
    method: str
    span: SourceSpan
    payload: Schema | None = None
    payload_span: SourceSpan | None = None
    is_declared: bool = False
    prefix: str = ""
    is_request: bool = False
    type: Type = UNKNOWN
    reads: tuple[KeyRead, ...] = ()
    promised: Type = UNKNOWN

    @property
    def payload_type(self) -> Type:
        """The type of the payload: a record of its fields, or `dict` if it may have others."""
        if self.payload is None:
            return self.type
        return DICT if self.payload.is_open else Type("record", fields=self.payload.fields)


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """A name in `@depends_on`, as written; for a class reference its name."""

    name: str
    span: SourceSpan


class Call(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`self.call("Agent", "method", argument=...)`, or `self.agent(Agent).method(argument=...)`.

    Attributes:
        has_unknown: True if there are arguments that cannot be read: `**`, or a computed name.
        reads: The keys and attributes that the code reads of the result.
    """

    agent: str
    method: str
    span: SourceSpan
    arguments: Schema = Schema()
    has_unknown: bool = False
    reads: tuple[KeyRead, ...] = ()


class AgentDefinition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One `GraphBusNode` subclass, as the artifacts hold it.

    Attributes:
        module: Dotted name that Runtime Mode imports.
        path: Relative posix path of its file below the project root.
        span: The class statement with its decorators.
        source_digest: sha256 of the class's text.
        contract_digest: sha256 of the contract: schemas, topics, payloads, dependencies; without the bodies of methods.
    """

    name: str
    module: str
    path: str
    span: SourceSpan
    name_span: SourceSpan
    bases: tuple[str, ...] = ()
    doc: str = ""
    system_prompt: str = ""
    is_arbiter: bool = False
    methods: tuple[MethodSpec, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    publications: tuple[Publication, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    calls: tuple[Call, ...] = ()
    source_digest: str = ""
    contract_digest: str = ""

    @property
    def source_file(self) -> str:
        """The file of the class, as seed 001 names it: `path`."""
        return self.path

    def method(self, name: str) -> MethodSpec | None:
        """Return the method called `name`, or None."""
        return next((method for method in self.methods if method.name == name), None)


class TopicDefinition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A topic with its publishers and subscribers by name; `schema` if publishers declare one, or all send the same."""

    name: str
    publishers: tuple[str, ...] = ()
    subscribers: tuple[str, ...] = ()
    schema: Schema | None = None
    is_external: bool = False


EVENT_NAMES = frozenset({"event", "evt", "ev", "message", "msg"})
PAYLOAD_NAMES = frozenset({"payload", "data", "body"})

Annotation = Literal["none", "event", "mapping", "typed", "other"]
"""`mapping`: dict or Mapping, with or without arguments. `typed`: a TypedDict, dataclass, msgspec or pydantic class."""


class HandlerParameter(msgspec.Struct, frozen=True):
    """A parameter of a handler, `self` left out."""

    name: str
    kind: ParameterKind = "positional"
    annotation: Annotation = "none"


_WITH_FIELDS = frozenset({"record", "dict", "any", "unknown", "result"})


def decide_handler_shape(parameters: Sequence[HandlerParameter], promised: Sequence[Type] = ()) -> HandlerShape:
    """Return how a handler with these parameters is called.

    An annotation counts more than a name; defaults do not count. Fields are passed by keyword, everything else by position.

    Args:
        parameters: Those of the handler, without `self`.
        promised: The payload type of each topic to which it subscribes; unknown for a plain name.
    """
    if any(parameter.kind == "var_positional" for parameter in parameters):
        return "invalid"
    if not parameters:
        return "nothing"
    if all(parameter.kind in ("positional", "positional_only") for parameter in parameters):
        whole = _decide_by_position(parameters)
        if whole is None and len(parameters) == 1 and promised and not any(map(_may_have_fields, promised)):
            whole = "payload" if parameters[0].annotation == "none" else "typed"
        if whole:
            return whole
    return "invalid" if any(parameter.kind == "positional_only" for parameter in parameters) else "fields"


def _decide_by_position(parameters: Sequence[HandlerParameter]) -> HandlerShape | None:
    if len(parameters) == 1:
        return _decide_one(parameters[0])
    if len(parameters) == 2 and _is_event(parameters[0]) and _is_payload(parameters[1]):
        return "event_payload"
    return None


def _decide_one(parameter: HandlerParameter) -> HandlerShape | None:
    if parameter.annotation == "typed":
        return "typed"
    if _is_event(parameter):
        return "event"
    return "payload" if _is_payload(parameter) else None


def _may_have_fields(payload: Type) -> bool:
    return payload.kind in _WITH_FIELDS or (payload.kind == "union" and any(map(_may_have_fields, payload.args)))


def _is_event(parameter: HandlerParameter) -> bool:
    by_name = parameter.name in EVENT_NAMES and parameter.annotation in ("none", "other")
    return parameter.annotation == "event" or by_name


def _is_payload(parameter: HandlerParameter) -> bool:
    by_name = parameter.name in PAYLOAD_NAMES and parameter.annotation != "event"
    return parameter.annotation in ("mapping", "typed") or by_name
