"""Agents as the compiler reads them and the artifacts describe them: what a class offers, hears, says and needs.

The facts are complete enough that every rule of `graphbus check` works on them alone, without the syntax tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from graphbus_core.errors import Place
from graphbus_core.schema.types import DICT, UNKNOWN, Field, Schema, Type


class SourceSpan(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A stretch of source: relative posix path; lines count from 1, columns are byte offsets that count from 0, end exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def place(self) -> Place:
        """The start for people: columns count from 1."""
        return Place(self.path, self.line, self.column + 1)


ParameterKind = Literal["positional", "positional_only", "keyword_only", "var_positional", "var_keyword"]


class Parameter(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A parameter of a method, `self` left out; `type` is unknown where it has no annotation (`is_annotated=False`)."""

    name: str
    span: SourceSpan
    type: Type = UNKNOWN
    kind: ParameterKind = "positional"
    has_default: bool = False
    is_annotated: bool = False


class Returned(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One `return` of a method, or the end of its body.

    Attributes:
        shape: The fields, when a dict display (or a name bound once to one) is returned; else None.
        type: What is returned, as far as it can be known.
    """

    span: SourceSpan
    type: Type
    shape: Schema | None = None


class MethodSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A method, with the contract that `@schema_method` declares for it.

    Attributes:
        input_schema: Declared argument fields; None without `@schema_method` or when it cannot be read.
        output_schema: Declared result fields; None likewise.
        has_schema: True when the method bears `@schema_method`, readable or not.
        schema_span: The decorator call.
        returns: The annotation; unknown without one.
        returned: Every way in which the body ends, outside of nested functions.
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
"""A value is used in a way that may read anything of it."""


class KeyRead(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A handler reads a key of its payload.

    Attributes:
        is_optional: It copes with its absence (`.get`, `in`, try/except KeyError), or may do so.
        is_guarded: It may only be so: the key is read behind a condition on the payload, or is an attribute of an object.
        below: What is read of the value, such as `patient.name` or `lines[].sku`; `lines[].?` for a use that is not understood.
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
        topic: A topic or a pattern (`*` one segment, `**` the rest); empty when it is computed and so unknown.
        method: The name of the handler.
        span: The topic's text in `@subscribe` or `SUBSCRIBE`.
        shape: What the handler is called with (the table in docs/runtime.md).
        payload: The payload type that the handler declares; unknown without one.
        fields: For the shape `fields`: the keyword parameters that the payload must provide.
        reads: The keys that the body reads; complete only if `reads_all_known`.
        reads_all_known: False when the payload escapes (is passed on, iterated, indexed by a computed key).
        promised: The type of the `Topic` that it listens to; unknown for a plain name.
        retries: What `@subscribe` is given besides the topic, as far as it is constant; so are `backoff_s`, `timeout_s` and
            `concurrency`.
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
    def declared(self) -> Schema | None:
        """What the handler says that it takes of a payload: its parameters, or the fields of its class; None: nothing is said.

        A field that the class may lack, and that is read without a guard, is required.
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
    def wanted(self) -> Type:
        """The same as a type, also of a payload that is no mapping of known fields; unknown where nothing is said."""
        return Type("record", fields=self.declared.fields) if self.shape == "fields" and self.declared else self.payload


class Publication(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One place where an agent publishes, or one `@publishes` declaration.

    Attributes:
        topic: Empty when it is computed and so unknown.
        prefix: The text that a computed topic surely begins with, `"/Order/"` of `f"/Order/{status}"`.
        method: The method that publishes; empty for a declaration on the class.
        span: The topic's text.
        payload: The fields that are sent; None when unknown.
        type: What is sent if it is no mapping of known fields, such as a list; else unknown.
        payload_span: The payload expression, if any.
        is_declared: True for what `@publishes` or a `Topic` says.
        is_request: True for `self.request`, which exactly one handler must answer.
        reads: The keys that are read of the answer to a request.
        promised: For what a `Topic` says: its type.
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
    def given(self) -> Type:
        """The payload as a type: a record of the fields that are known, `dict` where there may be others."""
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
        has_unknown: True after `**` or a computed name.
        reads: The keys and attributes that are read of the result.
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
        contract_digest: sha256 of what neighbours can see: schemas, topics, payloads, dependencies; not the bodies.
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

    def method(self, name: str) -> MethodSpec | None:
        """Give the method called `name`, or None."""
        return next((method for method in self.methods if method.name == name), None)


class Topic(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A topic with the names of the agents at its ends; `schema` if publishers declare or agree on one."""

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


def decide(parameters: Sequence[HandlerParameter], promised: Sequence[Type] = ()) -> HandlerShape:
    """Say what a handler with these parameters is called with.

    An annotation counts more than a name; defaults do not count. Fields are passed by keyword, all else by position.

    Args:
        promised: The type of the payloads for each topic that it hears; unknown for a topic that is a text.
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
