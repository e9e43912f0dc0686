"""Reads the subscriptions of a method with the keys that it reads, its publications, and its calls of other agents."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.reading.annotations import annotation_kind, read_schema
from graphbus_core.compiler.reading.attributes import is_typed_dict, missing_attributes
from graphbus_core.compiler.reading.below import MOST_HOPS, mark_guarded
from graphbus_core.compiler.reading.bodies import Access, Body, FunctionNode, container_root, reads_copy
from graphbus_core.compiler.reading.catching import may_be_caught
from graphbus_core.compiler.reading.constants import evaluate_constant, follow_constant, is_rebound, text_of
from graphbus_core.compiler.reading.flow import infer_type, read_fields, read_variants
from graphbus_core.compiler.reading.guards import GuardedParts
from graphbus_core.compiler.reading.loops import constants_of
from graphbus_core.compiler.reading.methods import Decorator, MethodSource, annotated_arguments
from graphbus_core.compiler.reading.modules import FUNCTIONS, DefinedName, NameScope, resolve_through
from graphbus_core.compiler.reading.parts import (
    PAYLOAD,
    Declared,
    Parts,
    read_parts,
)
from graphbus_core.compiler.reading.syntax import call_argument, span_of
from graphbus_core.compiler.reading.topics import ReadTopic, read_topic
from graphbus_core.compiler.reading.views import FunctionView, called_method, function_view, is_name
from graphbus_core.model.agent import (
    Annotation,
    Call,
    HandlerParameter,
    HandlerShape,
    KeyRead,
    Parameter,
    Publication,
    SourceSpan,
    Subscription,
    decide_handler_shape,
)
from graphbus_core.schema.types import UNKNOWN, Field, Schema, Type

_SUBSCRIBE = "graphbus_core.subscribe"
PUBLISHES = "graphbus_core.publishes"
_NUMBER, _TEXT = (int, float), (str,)
_OPTIONS: dict[str | None, tuple[str, tuple[type, ...]]] = {
    "retries": ("retries", _NUMBER),
    "backoff": ("backoff_s", _NUMBER),
    "timeout": ("timeout_s", _NUMBER),
    "concurrency": ("concurrency", _NUMBER),
    "key": ("key", _TEXT),
    "on_retry": ("on_retry", _TEXT),
}
"""Argument of `@subscribe` -> the field of `Subscription` that holds it, and the types of its constants."""


def read_subscriptions(
    method: MethodSource, parameters: tuple[Parameter, ...], scope: NameScope, view: FunctionView
) -> Iterator[Subscription]:
    """Yield one subscription for each topic in the `@subscribe` decorators of a method."""
    decorators = [decorator for decorator in method.effective if decorator.name == _SUBSCRIBE and decorator.call]
    if not decorators:
        return
    topics = [(each, topic, read_topic(topic, scope)) for each in decorators for topic in _topic_expressions_of(each)]
    promised = [topic.type for _, _, topic in topics]
    shape = _find_handler_shape(method, parameters, scope.in_signature(method.node), promised)
    for decorator, written_topic, topic in topics:
        span = span_of(method.module.path, decorator.node if written_topic is None else written_topic)
        subscription = make_subscription(method, parameters, view, span=span, topic=topic, shape=shape)
        yield _add_options(subscription, decorator, scope)


def _topic_expressions_of(decorator: Decorator) -> Sequence[ast.expr | None]:
    """Return the expressions of the topics in `@subscribe(A, B)`; a single None if the decorator has no topic."""
    positional = decorator.call.args if decorator.call else []
    return positional or [decorator.argument(0, "topic")]


def _add_options(subscription: Subscription, decorator: Decorator, scope: NameScope) -> Subscription:
    """Return the subscription with the options of its `@subscribe`, such as `retries`, that are constants of the right type."""
    if decorator.call is None or not decorator.call.keywords:
        return subscription
    known: dict[str, object] = {}
    for each in decorator.call.keywords:
        field, kinds = _OPTIONS.get(each.arg, ("", ()))
        value = evaluate_constant(each.value, scope) if field else None
        if type(value) in kinds:
            known[field] = value
    return msgspec.structs.replace(subscription, **known) if known else subscription


def make_subscription(
    method: MethodSource,
    parameters: tuple[Parameter, ...],
    view: FunctionView,
    *,
    span: SourceSpan,
    topic: ReadTopic,
    shape: HandlerShape,
) -> Subscription:
    """Return one subscription with the keys that its handler reads of the payload; `span` is where the topic is written."""
    reads, reads_all_known, is_handed_on = _read_keys(shape, parameters, method.node, view)
    # the position of the payload among the parameters; -1 if no parameter takes the whole payload
    at = {"payload": 0, "typed": 0, "event_payload": 1, "topic_payload": 1}.get(shape, -1)
    if 0 <= at < len(parameters):
        reads += tuple(_missing_attributes(parameters[at].name, method.node, view))
    return Subscription(
        topic=topic.name,
        method=method.node.name,
        span=span,
        shape=shape,
        payload=parameters[at].type if 0 <= at < len(parameters) else UNKNOWN,
        fields=parameters if shape == "fields" else (),
        reads=reads,
        reads_all_known=reads_all_known,
        is_handed_on=is_handed_on,
        is_async=isinstance(method.node, ast.AsyncFunctionDef),
        promised=topic.type,
    )


def _find_handler_shape(
    method: MethodSource, parameters: tuple[Parameter, ...], scope: NameScope, promised: Sequence[Type]
) -> HandlerShape:
    """Return how a handler takes its event; `promised` holds the payload types of the topics that it subscribes to."""
    handler_parameters: list[HandlerParameter] = []
    kind = ""
    for parameter, (_, annotation) in zip(parameters, annotated_arguments(method), strict=True):
        kind = annotation_kind(annotation, scope, parameter.type)
        known: Annotation = kind if kind in ("none", "event", "mapping", "typed") else "other"  # type: ignore[assignment]
        handler_parameters.append(HandlerParameter(parameter.name, parameter.kind, known))
    shape = decide_handler_shape(handler_parameters, promised)
    is_foreign = len(handler_parameters) == 1 and kind == "other" and parameters[0].type.kind == "unknown"
    if is_foreign and shape in ("event", "payload", "fields") and handler_parameters[0].kind != "keyword_only":
        # a class of another package is probably a model of the payload; it is hardly the type of a single field
        return "typed"
    return shape


# --- keys that are read -----------------------------------------------------------------


class _FoundReads(NamedTuple):
    """The keys of the payload that a handler reads, and `reads_all_known` and `is_handed_on` of its subscription."""

    keys: tuple[KeyRead, ...]
    are_complete: bool
    is_handed_on: bool = False


def _read_keys(
    shape: HandlerShape, parameters: tuple[Parameter, ...], function: FunctionNode, view: FunctionView
) -> _FoundReads:
    """Return the keys of the payload that a handler reads.

    Keys that the parameters themselves declare, for the shape `fields`, are not listed.
    """
    if shape == "fields":
        return _find_uses_of_fields(parameters, function, view)
    if shape == "nothing":
        return _FoundReads((), are_complete=True)
    if shape == "typed":
        return _find_reads_beyond_class(parameters[0], function, view)
    event = parameters[0].name if shape in ("event", "event_payload") else ""
    payload = parameters[-1].name if shape in ("payload", "event_payload", "topic_payload") else ""
    return _find_key_reads(event, payload, function, view)


def _find_uses_of_fields(parameters: tuple[Parameter, ...], function: FunctionNode, view: FunctionView) -> _FoundReads:
    """Return what a handler does with parts of its parameters, which are fields of the payload."""
    values = {each.name: msgspec.structs.replace(PAYLOAD, values=(each.name,)) for each in parameters}
    fields = tuple(Field(each.name, each.type) for each in parameters)
    parts = read_parts(function, values, view, Declared(Type("record", fields=fields), is_object=True))
    reads = _reads_of_parts(parts, function, view)
    return _FoundReads(reads, not any(each.below for each in reads), is_handed_on=parts.are_misused)


def _reads_of_parts(parts: Parts, function: FunctionNode, view: FunctionView) -> tuple[KeyRead, ...]:
    """Return what is done with parts of fields that a handler declares, as optional reads of these fields."""
    place = span_of(view.scope.module.path, function)
    return tuple(KeyRead(key, place, True, below=below, uses=uses) for key, (below, uses) in parts.unknown.items())


def _find_reads_beyond_class(payload: Parameter, function: FunctionNode, view: FunctionView) -> _FoundReads:
    """Return the reads of keys that the class of a payload does not require; see `missing_attributes` for those of objects."""
    if not payload.type.fields:
        return _FoundReads((), are_complete=False)
    is_dict = is_typed_dict(view.body.parameters.get(payload.name), view.scope)
    declared = Declared(payload.type, is_object=not is_dict)
    reads, is_whole, is_misused = _find_key_reads("", payload.name, function, view, declared)
    required = {field.name for field in payload.type.fields if field.required}
    needed = tuple(
        each
        for each in reads
        if (each.key not in required and (each.is_guarded or not each.is_optional)) or each.below or each.uses
    )
    return _FoundReads(needed, are_complete=False, is_handed_on=is_misused or (is_dict and not is_whole))


def _find_key_reads(
    event: str, payload: str, function: FunctionNode, view: FunctionView, declared: Declared | None = None
) -> _FoundReads:
    """Return the keys that a function with these names of the event and the payload reads; `""` stands for no name.

    With a `declared` type, `is_handed_on` is True if this type may not allow what is done with a part of the payload. A function
    that takes the payload as a TypedDict is trusted.
    """
    body, is_typed = view.body, declared is not None
    if not (event or payload) or not {event, payload}.isdisjoint(body.bound):
        return _FoundReads((), are_complete=False, is_handed_on=is_typed)
    aliases = {name for name, owner in body.aliases.items() if owner and owner in (event, payload)}
    # names whose keys are not certain to be those that were sent: changed copies, then payloads that are used like an event
    unclear = {name for name in aliases if body.bound_once(name) is None or _is_extended(name, body)}
    names = ({event, payload} | aliases) - unclear - {""}
    unclear |= {access.name for access in body.accesses if access.is_payload and access.name in names - {event}}
    uses = [
        (access, key)
        for access in body.accesses
        if (access.name == event if access.is_payload else access.name in names)
        for key in constants_of(access.key, view)
    ]
    # keys that the function itself adds to a copy
    added = {(access.name, key) for access, key in uses if access.how == "write" and access.name in aliases}
    constant_reads = [
        (access, key)
        for access, key in uses
        if isinstance(key, str) and access.how != "write" and (access.name, key) not in added
    ]
    tolerated = {key for access, key in constant_reads if access.how in ("get", "in")}
    passed = [*_calls_with_payload(event, names, view)]
    needs_guards = passed or any(access.how == "read" for access, _ in constant_reads)
    guards = GuardedParts(function, names) if needs_guards else None
    has_parts = bool(constant_reads) or is_typed
    parts = read_parts(function, dict.fromkeys(names, PAYLOAD) if has_parts else {}, view, declared)
    reads = []
    for access, key in sorted(constant_reads, key=lambda item: (item[0].key.lineno, item[0].key.col_offset)):
        is_read = access.how == "read" or (access.how == "get" and _may_give_none(access.node))
        is_known = guards is not None and guards.ensure(key, access.node, view.scope)
        may_fail = key in tolerated or (guards and guards.covers(access.node)) or may_be_caught(access.node, view)
        is_guarded = is_read and not is_known and bool(may_fail)
        place = span_of(view.scope.module.path, access.key)
        of_parts = parts.unknown.pop(key, ((), ()))
        reads.append(KeyRead(key, place, key in tolerated or is_known or is_guarded, is_guarded, *of_parts))
    is_hidden = not body.shown.isdisjoint(names) and not (is_typed and not reads_copy(names, function))
    is_whole = not unclear and len(constant_reads) == len(uses) and not is_hidden and not _reads_removed(uses)
    reads += _reads_of_parts(parts, function, view) if is_typed else ()
    is_misused = parts.are_misused
    for call, callee, inner_event, inner_payload, inner in passed:
        is_declared = is_typed and is_typed_dict(inner.body.parameters.get(inner_payload), inner.scope)
        of = Declared(inner.parameters[inner_payload]) if is_declared else None
        further, is_known, is_part_misused = _find_key_reads(inner_event, inner_payload, callee, inner, of)
        is_misused = is_misused or (is_declared and is_part_misused)
        is_known = is_known or is_declared
        is_optional = bool(guards and guards.covers(call)) or may_be_caught(call, view)
        reads += [mark_guarded(each) if is_optional else each for each in further]
        is_whole = is_whole and is_known
    # every other load of these names must be a call that was followed
    escaping_loads = sum(body.loads.get(name, 0) - body.harmless.get(name, 0) for name in names)
    return _FoundReads(tuple(reads), is_whole and escaping_loads <= len(passed), is_misused)


def _reads_removed(uses: Sequence[tuple[Access, object]]) -> bool:
    """True if a key is read of a copy from which it is removed: `order.pop("id")`, `del order["id"]`."""
    is_removal = [
        getattr(getattr(each.node, "func", each.node), "attr", "") == "pop" or each.how == "write" for each, _ in uses
    ]
    removed = {(each.name, key) for (each, key), is_one in zip(uses, is_removal, strict=True) if is_one}
    return any((each.name, key) in removed for (each, key), is_one in zip(uses, is_removal, strict=True) if not is_one)


def _may_give_none(getter: ast.expr) -> bool:
    """True for `name.get(key)` without a default: for a missing key it gives None, which the code may take for a value."""
    return isinstance(getter, ast.Call) and len(getter.args) == 1 and not getter.keywords


def _missing_attributes(payload: str, function: FunctionNode, view: FunctionView) -> Iterator[KeyRead]:
    """Yield the attributes that a function and those that it calls read of the payload, but that the payload's class lacks."""
    yield from missing_attributes(payload, function, view)
    for _, callee, _, parameter, inner in _calls_with_payload("", {payload}, view):
        yield from _missing_attributes(parameter, callee, inner)


def _is_extended(copy: str, body: Body) -> bool:
    """True if `update` adds keys to this copy of the payload, so that it is not known which of its keys were sent."""
    return any(
        is_name(call.func.value, copy) and call.func.attr == "update"  # type: ignore[attr-defined]
        for call in body.changes
    )


def _calls_with_payload(
    event: str, names: Set[str], view: FunctionView
) -> Iterator[tuple[ast.Call, FunctionNode, str, str, FunctionView]]:
    """Yield each call by which a function of the project gets the event or the payload as an argument.

    An item is `(call, function, event, payload, view)`: the function's own names for the event and the payload, of which one is
    `""`, and the view of its body. `names` are the caller's names of the event, of the payload and of its copies.
    """
    body = view.body
    calls = [*body.plain_calls, *(call for _, call in body.calls)] if view.hops < MOST_HOPS else []
    for call in calls:
        arguments: dict[int | str, ast.expr] = dict(enumerate(call.args))
        arguments |= {each.arg: each.value for each in call.keywords if each.arg}
        roots = {place: container_root(each) for place, each in arguments.items()}
        payload_places = {  # `.payload` counts only of the event
            root: place for place, root in roots.items() if root and root[0] in names and root[1] <= (root[0] == event)
        }
        callee = resolve_through(call.func, view.scope) if len(payload_places) == 1 else None
        if not isinstance(callee, DefinedName) or not isinstance(callee.node, FUNCTIONS) or is_rebound(callee):
            continue
        inner = function_view(callee, view)
        parameters = [each.arg for each in (*callee.node.args.posonlyargs, *callee.node.args.args)]
        (((name, is_payload), place),) = payload_places.items()
        taken = parameters[bool(inner.body.self_name) :]
        parameter = place if isinstance(place, str) else taken[place] if place < len(taken) else ""
        if parameter:
            is_event = name == event and not is_payload
            yield (call, callee.node, parameter, "", inner) if is_event else (call, callee.node, "", parameter, inner)


# --- what is sent -------------------------------------------------------------------------


_Reads = Mapping[str, list[KeyRead]]
"""Name of a result -> the keys that are read of it."""
Callers = Mapping[str, Sequence[tuple[ast.Call, FunctionView]]]
"""Method -> the calls of it in its own class."""


def read_publications(
    method: MethodSource, scope: NameScope, view: FunctionView, callers: Callers, reads: _Reads
) -> Iterator[Publication]:
    """Yield the publications in each `self.publish(...)`, `self.request(...)` and `@publishes` of a method."""
    for decorator in method.effective:
        if decorator.name == PUBLISHES and decorator.call:
            yield declared_publication(decorator, method.module.path, method.node.name, scope)
    for attribute, call in method.body.calls:
        if attribute in ("publish", "request"):
            yield from _publications_of_call(call, method, view, callers.get(method.node.name, ()), reads)


def declared_publication(decorator: Decorator, path: str, method: str, scope: NameScope) -> Publication:
    """Return the publication of `@publishes(topic, schema)`; without a schema, a `Topic` declares the type of its payloads."""
    topic = decorator.argument(0, "topic")
    schema = decorator.argument(1, "schema")
    found = read_topic(topic, scope)
    span = span_of(path, topic or decorator.node)
    if schema is None and found.type_span is not None:
        return _make_topic_publication(found, method, span)
    return Publication(
        topic=found.name,
        method=method,
        span=span,
        payload=read_schema(schema, scope),
        payload_span=span_of(path, schema) if schema is not None else None,
        is_declared=True,
    )


def _make_topic_publication(
    topic: ReadTopic, method: str, span: SourceSpan, *, is_request: bool = False
) -> Publication:
    """Return the publication that a `Topic` declares by its payload type, at the place where the `Topic` is used."""
    payload, of = _split_payload_type(topic.type)
    return Publication(
        topic=topic.name,
        method=method,
        span=span,
        payload=payload,
        type=of,
        payload_span=topic.type_span,
        is_declared=True,
        promised=topic.type,
        is_request=is_request,
    )


def _split_payload_type(of: Type) -> tuple[Schema | None, Type]:
    """Return `(fields, UNKNOWN)` for a record, and `(None, type)` for any other type of payload."""
    return (Schema(of.fields), UNKNOWN) if of.kind == "record" else (None, of)


class _PublishedArguments(NamedTuple):
    """Topic and payload of a publication, and the view that each is read in."""

    topic: ast.expr | None
    payload: ast.expr | None
    topic_view: FunctionView
    payload_view: FunctionView


def _find_published_arguments(
    call: ast.Call, method: MethodSource, view: FunctionView, callers: Sequence[tuple[ast.Call, FunctionView]]
) -> Iterator[_PublishedArguments]:
    """Yield the topic and payload of a publishing call; one pair for each caller if the topic is a parameter of `method`."""
    topic, payload = call_argument(call, 0, "topic"), call_argument(call, 1, "payload")
    is_parameter = isinstance(topic, ast.Name) and topic.id in view.parameters and topic.id not in view.body.bound
    if not is_parameter or not callers or method.decorators:
        yield _PublishedArguments(topic, payload, view, view)
        return
    names = [each.arg for each in (*method.node.args.posonlyargs, *method.node.args.args)][1:]
    for other, caller_view in callers:
        arguments = {name: call_argument(other, at, name) for at, name in enumerate(names)}
        types = {name: infer_type(value, caller_view) for name, value in arguments.items() if value is not None}
        inner = view.replace(parameters={**view.parameters, **types})
        is_passed = isinstance(payload, ast.Name) and payload.id not in view.body.bound
        passed = arguments.get(payload.id) if is_passed else None  # type: ignore[union-attr]
        sent, home = (passed, caller_view) if passed else (payload, inner)
        yield _PublishedArguments(arguments.get(topic.id), sent, caller_view, home)  # type: ignore[union-attr]


def _publications_of_call(
    call: ast.Call,
    method: MethodSource,
    view: FunctionView,
    callers: Sequence[tuple[ast.Call, FunctionView]],
    reads: _Reads,
) -> Iterator[Publication]:
    """Yield a publication for what the `Topic` of a call declares, and one for each topic or payload that it may send."""
    is_request = call.func.attr == "request"  # type: ignore[attr-defined]
    for place in _find_published_arguments(call, method, view, callers):
        path = place.topic_view.scope.module.path
        span = span_of(path, place.topic if place.topic is not None else call)
        payload_span = (
            span_of(place.payload_view.scope.module.path, place.payload) if place.payload is not None else None
        )
        topics = _possible_topics(place.topic, place.topic_view)
        payloads = _possible_payloads(call, place.payload, place.payload_view)
        for source, home in topics:
            found = read_topic(source, home.scope)
            if found.type_span is not None:
                yield _make_topic_publication(found, method.node.name, span, is_request=is_request)
            # if both vary, one condition may decide both: which pairs occur is not known
            for fields, of in payloads if min(len(topics), len(payloads)) == 1 else [(None, UNKNOWN)]:
                yield Publication(
                    topic=found.name,
                    prefix="" if found.name else _constant_prefix(source, home),
                    method=method.node.name,
                    span=span,
                    payload=fields,
                    payload_span=payload_span,
                    is_request=is_request,
                    type=of,
                    reads=_sorted_reads_of(found.name, reads) if is_request else (),
                )


def _possible_topics(topic: ast.expr | None, view: FunctionView) -> list[tuple[ast.expr | None, FunctionView]]:
    """Return each expression that a topic may stand for, with its view: both branches of a condition, or the items of a loop."""
    if topic is None:
        return [(None, view)]
    source, home = view.source_of(topic)
    if isinstance(source, ast.IfExp):
        return [*_possible_topics(source.body, home), *_possible_topics(source.orelse, home)]
    if isinstance(source, ast.Starred):
        items, inner = follow_constant(source.value, home.scope)
        if isinstance(items, ast.Tuple | ast.List | ast.Set) and items.elts:
            return [(each, home.replace(scope=inner)) for each in items.elts]
    return [(source, home)]


def _possible_payloads(
    call: ast.Call, payload: ast.expr | None, view: FunctionView
) -> list[tuple[Schema | None, Type]]:
    """Return the possible payloads of a call as `(fields, UNKNOWN)`, or as `(None, type)` if the fields are not known."""
    # `*arguments` or `**arguments` may contain the payload, or an argument that the method does not take
    is_hidden = ast.Starred in [each.__class__ for each in call.args] or None in [each.arg for each in call.keywords]
    if is_hidden:
        return [(None, UNKNOWN)]
    if isinstance(payload, ast.Constant) and payload.value is None:
        return [(Schema(), UNKNOWN)]
    if payload is None:
        return [(Schema(), UNKNOWN)]
    return read_variants(payload, view)


def _constant_prefix(expression: ast.expr | None, view: FunctionView) -> str:
    """Return the constant text with which a computed topic begins: `"/Order/"` for `f"/Order/{status}"`."""
    while isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        expression = expression.left
    parts = expression.values if isinstance(expression, ast.JoinedStr) else [expression]
    texts = [
        text_of(part if isinstance(part, ast.Constant) else ast.JoinedStr([part]), view.scope) for part in parts if part
    ]
    # None stands for the first part that is not constant
    return "".join(text or "" for text in texts[: texts.index(None) if None in texts else None])


def read_calls(method: MethodSource, view: FunctionView, reads: _Reads) -> Iterator[Call]:
    """Yield the calls of other agents in a method: `self.call("Agent", "method", key=...)` and `self.agent(Agent).method(...)`.

    A call of a method of the same agent is included if a result of another agent is passed to it: the result may not fit.
    """
    for attribute, call in method.body.calls:
        if attribute == "call":
            yield _make_call(call, view, reads, is_by_name=True)
    for call in method.body.method_calls:
        if called_method(call, view):
            yield _make_call(call, view, reads, is_by_name=False)
    names = {name for name, _ in method.body.calls}
    if view.scope.chain and not names.isdisjoint(("call", "request", "agent")):
        for attribute, call in method.body.calls:
            if attribute not in _BUS_METHODS and _passes_result(call, view):
                own = view.scope.chain[0].node.name, attribute
                yield _make_call(call, view, reads, is_by_name=False, own=own)


_BUS_METHODS = frozenset({"agent", "call", "log", "publish", "request"})


def _passes_result(call: ast.Call, view: FunctionView) -> bool:
    """True if a call passes a result of another agent to a method or function of the project."""
    values = [*call.args, *(each.value for each in call.keywords)]
    target = resolve_through(call.func, view.scope)
    is_method = isinstance(target, DefinedName) and isinstance(target.node, FUNCTIONS) and not is_rebound(target)
    return is_method and any(infer_type(each, view).kind == "result" for each in values)


def _make_call(
    call: ast.Call,
    view: FunctionView,
    reads: _Reads,
    *,
    is_by_name: bool,
    own: tuple[str, str] | None = None,
) -> Call:
    """Return one `Call`. The position of a positional argument is its name, until the parameters of the method are known.

    `is_by_name` is True for `self.call("Agent", "method", ...)`; `own` is `(agent, method)` if the agent calls itself.
    """
    agent, name = own or called_method(call, view) or ("", "")
    keywords = [each for each in call.keywords if not (is_by_name and each.arg in ("agent", "method"))]
    by_position = [] if is_by_name else call.args
    fields = [Field(str(number), infer_type(value, view)) for number, value in enumerate(by_position)]
    fields += [Field(each.arg, infer_type(each.value, view)) for each in keywords if each.arg]
    spread = [read_fields(each.value, view) for each in keywords if not each.arg]  # the fields of `**mapping`
    fields += [field for schema in spread if schema for field in schema.fields]
    rest = tuple(each for schema in spread if schema for each in schema.rest)
    is_open = any(schema is None or (schema.is_open and not schema.rest) for schema in spread)
    is_open |= len(call.args) > 2 if is_by_name else any(isinstance(each, ast.Starred) for each in by_position)
    return Call(
        agent,
        name,
        span_of(view.scope.module.path, call),
        Schema(tuple(fields), bool(rest), rest),
        is_open or not (agent and name),
        _sorted_reads_of(f"{agent}.{name}", reads),
    )


def _sorted_reads_of(name: str, reads: _Reads) -> tuple[KeyRead, ...]:
    """Return the keys that are read of the result with this name, in the order of the source."""
    return tuple(sorted(reads.get(name, ()), key=lambda each: (each.span.line, each.span.column)))
