"""Agents as the compiler reads them and artifacts describe them: methods, subscriptions, publications, calls, dependencies.

This data is sufficient for all rules of `graphbus check` that compare agents, so those rules need no syntax tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from graphbus_core.errors import Place
from graphbus_core.schema.paths import ANYTHING_BELOW, type_of_rest
from graphbus_core.schema.types import DICT, NULL, UNKNOWN, Field, Schema, Type, is_unspecific, union


class SourceSpan(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of source text: relative posix path, lines counted from 1, columns as byte offsets from 0; the end is exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def place(self) -> Place:
        """The start of the range, for messages; there, columns are counted from 1."""
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
        type: The type of the value, as far as it is known.
        shape: The fields, if the value is a dict display or a name that is bound once to one; else None.
    """

    span: SourceSpan
    type: Type
    shape: Schema | None = None


class MethodSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A method, with the contract that `@schema_method` declares for it.

    Attributes:
        has_schema: True for a method with `@schema_method`, even if that cannot be read.
        schema_span: The call of that decorator.
        input_schema: The declared fields of the arguments; None without `@schema_method`, or if it cannot be read.
        output_schema: The declared fields of the result; None in the same cases.
        returns: The type of the return annotation; unknown if there is none.
        returned: Each `return` of the body, without nested functions, and the end of the body if it can be reached.
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


BELOW_UNKNOWN = ANYTHING_BELOW
"""An entry of `below` for a use of the value that may read any part of it."""


class PartUse(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a handler does with a part of its payload: it is possible with values of these shapes (`schema.shapes`) only.

    With `is_guarded`, a condition on the part may exclude values of other shapes.
    """

    path: str
    shapes: tuple[str, ...]
    is_guarded: bool = False


class KeyRead(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A place where a handler reads a key of its payload.

    Attributes:
        is_optional: The handler works without the key (`.get`, `in`, try/except KeyError), or may do so.
        is_guarded: The read may not happen, or may fail without harm: it depends on a condition on the payload, its error is
            caught, or it reads an attribute of an object.
        below: The parts of the value that are read, such as `patient.name` or `lines[].sku`; `lines[].?` for an unknown use.
        uses: What is done with the value and its parts.
        is_attribute: What is read of a result is an attribute, not a key.
    """

    key: str
    span: SourceSpan
    is_optional: bool = False
    is_guarded: bool = False
    below: tuple[str, ...] = ()
    uses: tuple[PartUse, ...] = ()
    is_attribute: bool = False


_READ_BY_KEY = frozenset({"unknown", "any", "dict", "union"})
"""Kinds of payload types of which only the keys that a handler reads are known to matter; a union may contain a dict."""

HandlerShape = Literal["nothing", "event", "payload", "typed", "event_payload", "topic_payload", "fields", "invalid"]


class Subscription(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One handler of one topic.

    Attributes:
        topic: A topic or a pattern (`*` one segment, `**` the rest); empty if it is computed at run time.
        method: The name of the handler.
        span: The place of the topic in `@subscribe` or `SUBSCRIBE`.
        shape: Which arguments the handler takes (the table in docs/writing-agents.md).
        payload: The payload type that the handler declares; unknown if it declares none.
        fields: For the shape `fields`: the keyword parameters, which are fields of the payload.
        reads: The keys that the body reads; complete only if `reads_all_known`.
        reads_all_known: False if the payload is passed on, iterated or indexed by a computed key.
        is_handed_on: A payload of a declared class, or a part of it, is passed to code that is not followed, or is used in a way
            that its type may not allow.
        retries: The argument of `@subscribe`, if it is constant; so are `backoff_s`, `timeout_s` and `concurrency`.
        promised: The payload type of the `Topic` to which it subscribes; unknown for a plain name.
        key: The argument of `@subscribe`, if it is constant; so is `on_retry`.
    """

    topic: str
    method: str
    span: SourceSpan
    shape: HandlerShape
    payload: Type = UNKNOWN
    fields: tuple[Parameter, ...] = ()
    reads: tuple[KeyRead, ...] = ()
    reads_all_known: bool = True
    is_handed_on: bool = False
    is_async: bool = False
    retries: int = 0
    backoff_s: float | None = None
    timeout_s: float | None = None
    concurrency: int = 1
    promised: Type = UNKNOWN
    key: str = ""
    on_retry: str = "block"

    @property
    def named(self) -> frozenset[str]:
        """The names of the keys that the handler reads and of its parameters that are fields of the payload."""
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
        """The declared type of the payload, which need not be a mapping of known fields; unknown if nothing is declared."""
        return (
            Type("record", fields=self.declared_schema.fields)
            if self.shape == "fields" and self.declared_schema
            else self.payload
        )

    def find_needs(self) -> tuple[Schema, bool]:
        """Return the fields of the payload that the handler is known to need, and whether it certainly needs no others.

        They are its parameters, the fields of its class, or the keys that it reads.
        """
        if self.shape == "nothing":
            return Schema(), True
        declared = self.declared_schema
        if declared is not None:
            takes_more = any(each.kind == "var_keyword" for each in self.fields)
            return declared, self.reads_all_known or not takes_more
        if self.payload.kind not in _READ_BY_KEY:  # such as a list, which has no fields
            return Schema(), True
        keys: dict[str, bool] = {}
        for read in self.reads:
            keys[read.key] = keys.get(read.key, False) or not read.is_optional
        of = self.payload.args[1] if self.payload.args else UNKNOWN
        fields = tuple(Field(key, of, is_required) for key, is_required in sorted(keys.items()))
        if not self.reads_all_known and self.promised.kind == "record":  # a type checker reports other keys
            return Schema(self.promised.fields), True
        return Schema(fields), self.reads_all_known

    @property
    def is_typed(self) -> bool:
        """False if what it needs is only known from the keys that it reads."""
        return self.shape == "fields" or self.payload.kind not in _READ_BY_KEY

    @property
    def wanted(self) -> Type:
        """The type that payloads need to have: a record of the needed fields; the declared type if no field is known."""
        fields = self.find_needs()[0].fields
        if self.payload.kind == "record":
            return msgspec.structs.replace(self.payload, fields=fields)
        return Type("record", fields=fields) if fields else self.payload

    @property
    def needed(self) -> Type:
        """`wanted`, with what the handler reads below those fields whose own type says nothing about that."""
        below: dict[str, dict[str, bool]] = {}
        for read in self.reads:
            below.setdefault(read.key, {}).update((path.removeprefix(read.key), True) for path in read.below)
        wanted = self.wanted
        fields = tuple(
            Field(each.name, union(type_of_rest(below[each.name]), NULL), each.required)  # a guard may exclude None
            if below.get(each.name) and is_unspecific(each.type)
            else each
            for each in wanted.fields
        )
        return msgspec.structs.replace(wanted, fields=fields) if fields else wanted


class Publication(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One place where an agent publishes, or one `@publishes` declaration.

    Attributes:
        topic: The topic; empty if it is computed at run time.
        prefix: The constant beginning of a computed topic, such as `"/Order/"` in `f"/Order/{status}"`.
        method: The method that publishes; empty for a declaration on the class.
        span: The place of the topic.
        payload: The fields that are sent; None if they are not known.
        type: The type of a payload that is not a mapping of known fields, such as a list; else unknown.
        payload_span: The place of the payload expression; None if there is none.
        is_declared: True for a declaration by `@publishes` or a `Topic`.
        is_request: True for `self.request`, which exactly one handler must answer.
        reads: The keys of the answer to a request that the code reads.
        promised: For a declaration by a `Topic`: its payload type.
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
        """The type of the payload: a record of its fields, or `dict` if it may have further fields; else `type`."""
        if self.payload is None:
            return self.type
        return DICT if self.payload.is_open else Type("record", fields=self.payload.fields)


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """An agent that `@depends_on` names; for a reference to a class, the name of the class."""

    name: str
    span: SourceSpan


class Call(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`self.call("Agent", "method", argument=...)`, or `self.agent(Agent).method(argument=...)`.

    Attributes:
        has_unknown: True if some arguments are not known, because of `**` or a computed name.
        reads: The keys and attributes of the result that the code reads.
    """

    agent: str
    method: str
    span: SourceSpan
    arguments: Schema = Schema()
    has_unknown: bool = False
    reads: tuple[KeyRead, ...] = ()


class AgentDefinition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One `GraphBusNode` subclass, as in the artifact agents.json.

    Attributes:
        module: Dotted name of the module that a run imports.
        path: Relative posix path of its file below the project root.
        span: The class statement with its decorators.
        source_digest: sha256 of the text of the class.
        contract_digest: sha256 of the contract: schemas, topics, payloads and dependencies, without the bodies of methods.
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
        """The file of the class; another name of `path`."""
        return self.path

    def method(self, name: str) -> MethodSpec | None:
        """Return the method with this name; None if the agent has none."""
        return next((method for method in self.methods if method.name == name), None)


class TopicDefinition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A topic with the names of its publishers and subscribers; `schema` if publishers declare one, or all send the same."""

    name: str
    publishers: tuple[str, ...] = ()
    subscribers: tuple[str, ...] = ()
    schema: Schema | None = None
    is_external: bool = False


EVENT_NAMES = frozenset({"event", "evt", "ev", "message", "msg"})
PAYLOAD_NAMES = frozenset({"payload", "data", "body"})

Annotation = Literal["none", "event", "mapping", "typed", "other"]
"""The kind of a parameter's annotation.

`mapping`: dict or Mapping, with or without arguments. `typed`: a TypedDict, dataclass, msgspec or pydantic class.
"""


class HandlerParameter(msgspec.Struct, frozen=True):
    """A parameter of a handler other than `self`."""

    name: str
    kind: ParameterKind = "positional"
    annotation: Annotation = "none"


_KINDS_WITH_FIELDS = frozenset({"record", "dict", "any", "unknown", "result"})


def decide_handler_shape(parameters: Sequence[HandlerParameter], promised: Sequence[Type] = ()) -> HandlerShape:
    """Return with which arguments a handler is called; `"invalid"` if it cannot be called with an event.

    An annotation has precedence over a name; defaults make no difference. Fields are passed by keyword, all else by position.

    Args:
        parameters: The parameters of the handler, without `self`.
        promised: The payload type of each topic to which the handler subscribes; unknown for a topic without a type.
    """
    if any(parameter.kind == "var_positional" for parameter in parameters):
        return "invalid"
    if not parameters:
        return "nothing"
    if all(parameter.kind in ("positional", "positional_only") for parameter in parameters):
        shape = _decide_positional_shape(parameters)
        if shape is None and len(parameters) == 1 and promised and not any(map(_may_have_fields, promised)):
            # the payload is no mapping, so a parameter with any name takes all of it
            shape = "payload" if parameters[0].annotation == "none" else "typed"
        if shape:
            return shape
    return "invalid" if any(parameter.kind == "positional_only" for parameter in parameters) else "fields"


def _decide_positional_shape(parameters: Sequence[HandlerParameter]) -> HandlerShape | None:
    """Return the shape of a handler that takes the event, the payload or both by position; None if its parameters are fields."""
    if len(parameters) == 1:
        return _decide_shape_of_single(parameters[0])
    if len(parameters) == 2 and _is_event(parameters[0]) and _is_payload(parameters[1]):
        return "event_payload"
    return None


def _decide_shape_of_single(parameter: HandlerParameter) -> HandlerShape | None:
    """Return the shape of a handler with only this parameter; None if the parameter is a field of the payload."""
    if parameter.annotation == "typed":
        return "typed"
    if _is_event(parameter):
        return "event"
    return "payload" if _is_payload(parameter) else None


def _may_have_fields(payload: Type) -> bool:
    """Return whether a payload of this type may be a mapping with fields."""
    return payload.kind in _KINDS_WITH_FIELDS or (payload.kind == "union" and any(map(_may_have_fields, payload.args)))


def _is_event(parameter: HandlerParameter) -> bool:
    """Return whether a parameter takes the event: by its annotation, or by its name if the annotation does not contradict."""
    is_so_named = parameter.name in EVENT_NAMES and parameter.annotation in ("none", "other")
    return parameter.annotation == "event" or is_so_named


def _is_payload(parameter: HandlerParameter) -> bool:
    """Return whether a parameter takes the whole payload: by its annotation, or by its name if it is not annotated as event."""
    is_so_named = parameter.name in PAYLOAD_NAMES and parameter.annotation != "event"
    return parameter.annotation in ("mapping", "typed") or is_so_named
