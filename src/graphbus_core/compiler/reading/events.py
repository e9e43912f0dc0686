"""Reads the subscriptions of a class with the keys that they read, its publications, and its calls of other agents."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.reading.annotations import annotation_kind, read_schema
from graphbus_core.compiler.reading.below import COMPREHENSIONS, MOST_HOPS, PAYLOAD, key_access, paths_below, reads_more
from graphbus_core.compiler.reading.bodies import EVENT_FIELDS, Body, FunctionNode, container_root
from graphbus_core.compiler.reading.constants import evaluate_constant, follow_constant, is_rebound, text_of
from graphbus_core.compiler.reading.endings import reaches_end
from graphbus_core.compiler.reading.flow import function_view, infer_type, read_fields, read_variants
from graphbus_core.compiler.reading.methods import Decorator, MethodSource, annotated_arguments
from graphbus_core.compiler.reading.modules import FUNCTIONS, DefinedName, NameScope, resolve_through
from graphbus_core.compiler.reading.syntax import call_argument, children_of, nodes_below, span_of
from graphbus_core.compiler.reading.topics import ReadTopic, read_topic
from graphbus_core.compiler.reading.views import FunctionView, called_method, is_name
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


class _Guards:
    """The parts of a handler that run only if a condition on the payload has a certain outcome.

    Behind such a condition a key may be one that is not always sent. In doubt a read is guarded: GraphBus would rather miss a
    wrong key than report one that is never read.

    Args:
        function: The handler.
        names: The event, the payload, and what else the payload is called.
    """

    def __init__(self, function: FunctionNode, names: Iterable[str]) -> None:
        self._payload = frozenset(names)
        self._names = set(names)
        self._stretches: list[tuple[tuple[int, int], tuple[int, int]]] = []
        nodes = nodes_below(function)
        if any(isinstance(node, _DECIDING) for node in nodes):
            self._learn(nodes)
            for node in nodes:
                for test, parts in _decisions(node) if isinstance(node, _DECIDING) else ():
                    if self._mentions(test):
                        self._note(parts)
                for field in _BODY_FIELDS if hasattr(node, "body") else ():
                    self._note_rest(getattr(node, field, ()))

    def covers(self, node: ast.expr) -> bool:
        """True when this expression is behind a condition on the payload."""
        return any(first <= (node.lineno, node.col_offset) < last for first, last in self._stretches)

    def _learn(self, nodes: Iterable[ast.AST]) -> None:
        """Collect the names of values made from the whole payload: `keys = event.keys()`, `for key in event`."""
        given = [
            (_stored(node), getattr(node, "value", None) or getattr(node, "iter", None))
            for node in nodes
            if isinstance(node, _ASSIGNING)
        ]
        is_growing = True
        while is_growing:
            known = len(self._names)
            for names, value in given:
                if value is not None and self._is_of_whole(value):
                    self._names |= names
            is_growing = len(self._names) > known

    def _mentions(self, expression: ast.AST) -> bool:
        """True when an expression uses the payload or a value made from it."""
        return any(isinstance(node, ast.Name) and node.id in self._names for node in ast.walk(expression))

    def _is_of_whole(self, expression: ast.AST) -> bool:
        """True when an expression uses the payload as a whole, and not just one constant key or a field of the event."""
        if isinstance(expression, ast.Name):
            return expression.id in self._names
        if isinstance(expression, ast.Attribute) and expression.attr in EVENT_FIELDS:
            return False
        container, key = key_access(expression)
        root = container_root(container) if container is not None else None
        if isinstance(key, ast.Constant) and root is not None and root[0] in self._payload:
            return False
        return any(self._is_of_whole(child) for child in children_of(expression))

    def _note_rest(self, block: Sequence[ast.stmt]) -> None:
        """Note the statements behind `if missing: return` and `assert len(event) == 3`: they run for one outcome only."""
        for number, statement in enumerate(block[:-1] if isinstance(block, list) else (), 1):
            if isinstance(statement, ast.Assert | ast.If) and self._tells_keys(statement.test):
                ways = (statement.body, statement.orelse) if isinstance(statement, ast.If) else ()
                if not all(map(reaches_end, ways)) or not ways:
                    self._note(block[number:])

    def _tells_keys(self, test: ast.expr) -> bool:
        """True when a test may depend on which keys exist; a test for the presence of a payload does not."""
        if isinstance(test, ast.UnaryOp | ast.BoolOp):
            return any(self._tells_keys(value) for value in children_of(test) if isinstance(value, ast.expr))
        root = container_root(test)
        is_presence = root is not None and root[0] in self._payload
        is_presence |= isinstance(test, ast.Call) and getattr(test.func, "id", "") in ("bool", "isinstance")
        is_presence |= isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)
        return not is_presence and self._is_of_whole(test)

    def _note(self, nodes: Sequence[ast.stmt | ast.expr]) -> None:
        """Note that these consecutive nodes run under a condition."""
        if nodes:
            first, last = nodes[0], nodes[-1]
            end = (last.end_lineno or last.lineno, last.end_col_offset or 0)
            self._stretches.append(((first.lineno, first.col_offset), end))


_BODY_FIELDS = ("body", "orelse", "finalbody")
_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)
_DECIDING = (ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.Match, ast.Assert, *COMPREHENSIONS)
"""Without any of these nothing in a function depends on what its payload is like."""


def _decisions(node: ast.AST) -> Iterator[tuple[ast.expr, Sequence[ast.stmt | ast.expr]]]:
    """Return each condition in a node, with what runs only when it came out one way."""
    if isinstance(node, ast.If | ast.While):
        yield from ((node.test, part) for part in (node.body, node.orelse))
    elif isinstance(node, ast.IfExp):
        yield from ((node.test, [part]) for part in (node.body, node.orelse))
    elif isinstance(node, ast.BoolOp):
        yield from ((value, node.values[number:]) for number, value in enumerate(node.values, 1))
    elif isinstance(node, ast.Match):
        for case in node.cases:
            guards = [case.guard] if case.guard else []
            yield node.subject, [*guards, *case.body]
            yield from ((guard, case.body) for guard in guards)
    elif isinstance(node, COMPREHENSIONS):
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        yield from ((test, parts) for generator in node.generators for test in generator.ifs)


def _stored(node: ast.AST) -> set[str]:
    """Return the names that an assignment, a loop or a comprehension binds."""
    targets = getattr(node, "targets", None) or [node.target]  # type: ignore[attr-defined]
    below = (each for target in targets for each in ast.walk(target))
    return {each.id for each in below if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


_SUBSCRIBE = "graphbus_core.subscribe"
PUBLISHES = "graphbus_core.publishes"
_POLICY = {"retries": "retries", "backoff": "backoff_s", "timeout": "timeout_s", "concurrency": "concurrency"}


def read_subscriptions(
    method: MethodSource, parameters: tuple[Parameter, ...], scope: NameScope, view: FunctionView
) -> Iterator[Subscription]:
    """Return one subscription for each `@subscribe` of a method."""
    decorators = [decorator for decorator in method.effective if decorator.name == _SUBSCRIBE and decorator.call]
    if not decorators:
        return
    topics = [(each, topic, read_topic(topic, scope)) for each in decorators for topic in _topics_of(each)]
    promised = [topic.type for _, _, topic in topics]
    shape = _shape(method, parameters, scope.in_signature(method.node), promised)
    for decorator, written_topic, topic in topics:
        span = span_of(method.module.path, decorator.node if written_topic is None else written_topic)
        heard = make_subscription(method, parameters, view, span=span, topic=topic, shape=shape)
        yield _with_policy(heard, decorator, scope)


def _topics_of(decorator: Decorator) -> Sequence[ast.expr | None]:
    """The topics of `@subscribe(A, B)`; a single None for a decorator without a topic."""
    positional = decorator.call.args if decorator.call else []
    return positional or [decorator.argument(0, "topic")]


def _with_policy(heard: Subscription, decorator: Decorator, scope: NameScope) -> Subscription:
    """Add the options of `@subscribe` that are constant numbers."""
    if decorator.call is None or not decorator.call.keywords:
        return heard
    given = {each.arg: evaluate_constant(each.value, scope) for each in decorator.call.keywords if each.arg in _POLICY}
    numbers = {_POLICY[name]: value for name, value in given.items() if name and type(value) in (int, float)}
    return msgspec.structs.replace(heard, **numbers) if numbers else heard


def make_subscription(
    method: MethodSource,
    parameters: tuple[Parameter, ...],
    view: FunctionView,
    *,
    span: SourceSpan,
    topic: ReadTopic,
    shape: HandlerShape,
) -> Subscription:
    """Put together one subscription; `span` is where the topic is written."""
    reads, reads_all_known = _reads(shape, parameters, method.node, view)
    at = {"payload": 0, "typed": 0, "event_payload": 1, "topic_payload": 1}.get(shape, -1)
    return Subscription(
        topic=topic.name,
        method=method.node.name,
        span=span,
        shape=shape,
        payload=parameters[at].type if 0 <= at < len(parameters) else UNKNOWN,
        fields=parameters if shape == "fields" else (),
        reads=reads,
        reads_all_known=reads_all_known,
        is_async=isinstance(method.node, ast.AsyncFunctionDef),
        promised=topic.type,
    )


def _shape(
    method: MethodSource, parameters: tuple[Parameter, ...], scope: NameScope, promised: Sequence[Type]
) -> HandlerShape:
    given: list[HandlerParameter] = []
    kind = ""
    for parameter, (_, annotation) in zip(parameters, annotated_arguments(method), strict=True):
        kind = annotation_kind(annotation, scope, parameter.type)
        known: Annotation = kind if kind in ("none", "event", "mapping", "typed") else "other"  # type: ignore[assignment]
        given.append(HandlerParameter(parameter.name, parameter.kind, known))
    shape = decide_handler_shape(given, promised)
    is_foreign = len(given) == 1 and kind == "other" and parameters[0].type.kind == "unknown"
    if is_foreign and shape in ("event", "payload", "fields") and given[0].kind != "keyword_only":
        return "typed"  # a class of another package: probably a model, in any case no field of that name
    return shape


# --- keys that are read -----------------------------------------------------------------


def _reads(
    shape: HandlerShape, parameters: tuple[Parameter, ...], function: FunctionNode, view: FunctionView
) -> tuple[tuple[KeyRead, ...], bool]:
    """Return every key of the payload that a handler touches, and whether these surely are all."""
    if shape == "fields":
        return (), not reads_more(parameters, function, view)
    if shape == "nothing":
        return (), True
    if shape == "typed":  # what the class demands is known; what it leaves open may be demanded here
        required = {field.name for field in parameters[0].type.fields if field.required}
        reads = _keys("", parameters[0].name, function, view)[0] if parameters[0].type.fields else ()
        return tuple(each for each in reads if each.key not in required and not each.is_optional), False
    event = parameters[0].name if shape in ("event", "event_payload") else ""
    payload = parameters[-1].name if shape in ("payload", "event_payload", "topic_payload") else ""
    return _keys(event, payload, function, view)


def _keys(event: str, payload: str, function: FunctionNode, view: FunctionView) -> tuple[tuple[KeyRead, ...], bool]:
    """Do the work of `_reads` for a function in which event and payload have these names; the empty text: there is none."""
    body = view.body
    if not (event or payload) or not {event, payload}.isdisjoint(body.bound):
        return (), False
    aliases = {name for name, owner in body.aliases.items() if owner and owner in (event, payload)}
    lost = {name for name in aliases if body.bound_once(name) is None or _is_extended(name, body)}
    names = ({event, payload} | aliases) - lost - {""}
    lost |= {access.name for access in body.accesses if access.is_payload and access.name in names - {event}}
    touched = [
        (access, evaluate_constant(access.key, view.scope))
        for access in body.accesses
        if (access.name == event if access.is_payload else access.name in names)
    ]
    added = {(access.name, key) for access, key in touched if access.how == "write" and access.name in aliases}
    known = [
        (access, key)
        for access, key in touched
        if isinstance(key, str) and access.how != "write" and (access.name, key) not in added
    ]
    guarded = {key for access, key in known if access.how in ("get", "in") or body.is_caught(access.node)}
    passed = [*_passed_on(event, names, view)]
    guards = _Guards(function, names) if passed or any(key not in guarded for _, key in known) else None
    below = paths_below(function, dict.fromkeys(names, PAYLOAD), view) if known else {}
    reads = []
    for access, key in sorted(known, key=lambda item: (item[0].key.lineno, item[0].key.col_offset)):
        is_guarded = key not in guarded and bool(guards and guards.covers(access.node))
        place = span_of(view.scope.module.path, access.key)
        paths = tuple(below.pop(key, ()))
        reads.append(KeyRead(key, place, key in guarded or is_guarded, is_guarded, paths))
    is_whole = not lost and len(known) == len(touched) and body.shown.isdisjoint(names)
    for call, callee, event_there, payload_there, inner in passed:
        further, is_known = _keys(event_there, payload_there, callee, inner)
        is_optional = bool(guards and guards.covers(call)) or body.is_caught(call)
        reads += [_behind_guard(each) if is_optional else each for each in further]
        is_whole = is_whole and is_known
    uses = sum(body.loads.get(name, 0) - body.harmless.get(name, 0) for name in names)
    return tuple(reads), is_whole and uses <= len(passed)


def _is_extended(copy: str, body: Body) -> bool:
    """True for a copy of the payload that is given further keys by `update`: which of its keys were sent is not known."""
    return any(
        is_name(call.func.value, copy) and call.func.attr == "update"  # type: ignore[attr-defined]
        for call in body.changes
    )


def _behind_guard(read: KeyRead) -> KeyRead:
    return msgspec.structs.replace(read, is_optional=True, is_guarded=read.is_guarded or not read.is_optional)


def _passed_on(
    event: str, names: Set[str], view: FunctionView
) -> Iterator[tuple[ast.Call, FunctionNode, str, str, FunctionView]]:
    """The calls of functions of the project that get the event or payload as one argument, with its name in the callee."""
    body = view.body
    calls = [*body.plain_calls, *(call for _, call in body.calls)] if view.hops < MOST_HOPS else []
    for call in calls:
        given = {
            each.id: place for place, each in enumerate(call.args) if isinstance(each, ast.Name) and each.id in names
        }
        callee = resolve_through(call.func, view.scope) if len(given) == 1 else None
        if not isinstance(callee, DefinedName) or not isinstance(callee.node, FUNCTIONS) or is_rebound(callee):
            continue
        inner = function_view(callee, view)
        parameters = [each.arg for each in (*callee.node.args.posonlyargs, *callee.node.args.args)]
        ((name, place),) = given.items()
        place += bool(inner.body.self_name)
        if place < len(parameters):
            there = parameters[place]
            yield (call, callee.node, there, "", inner) if name == event else (call, callee.node, "", there, inner)


# --- what is sent -------------------------------------------------------------------------


_Reads = Mapping[str, list[KeyRead]]
Callers = Mapping[str, Sequence[tuple[ast.Call, FunctionView]]]
"""Method -> the calls of it in its own class."""


def read_publications(
    method: MethodSource, scope: NameScope, view: FunctionView, callers: Callers, reads: _Reads
) -> Iterator[Publication]:
    """Return each `self.publish(...)` and `self.request(...)` of a method and each `@publishes` on it."""
    for decorator in method.effective:
        if decorator.name == PUBLISHES and decorator.call:
            yield declared_publication(decorator, method.module.path, method.node.name, scope)
    for attribute, call in method.body.calls:
        if attribute in ("publish", "request"):
            yield from _publications(call, method, view, callers.get(method.node.name, ()), reads)


def declared_publication(decorator: Decorator, path: str, method: str, scope: NameScope) -> Publication:
    """Read one `@publishes(topic, schema)`; a `Topic` says itself what its payloads look like."""
    topic = decorator.argument(0, "topic")
    schema = decorator.argument(1, "schema")
    found = read_topic(topic, scope)
    span = span_of(path, topic or decorator.node)
    if schema is None and found.type_span is not None:
        return _promise(found, method, span)
    return Publication(
        topic=found.name,
        method=method,
        span=span,
        payload=read_schema(schema, scope),
        payload_span=span_of(path, schema) if schema is not None else None,
        is_declared=True,
    )


def _promise(topic: ReadTopic, method: str, span: SourceSpan, *, is_request: bool = False) -> Publication:
    """The publication that a `Topic` declares at the place where it is used."""
    payload, of = _parts_of(topic.type)
    at = topic.type_span
    return Publication(
        topic=topic.name,
        method=method,
        span=span,
        payload=payload,
        type=of,
        payload_span=at,
        is_declared=True,
        promised=topic.type,
        is_request=is_request,
    )


def _parts_of(of: Type) -> tuple[Schema | None, Type]:
    """The fields of a mapping of known fields, else the type itself."""
    return (Schema(of.fields), UNKNOWN) if of.kind == "record" else (None, of)


class _Place(NamedTuple):
    """Topic and payload of a publication, and the view that each is read in."""

    topic: ast.expr | None
    payload: ast.expr | None
    topic_view: FunctionView
    payload_view: FunctionView


def _places(
    call: ast.Call, method: MethodSource, view: FunctionView, callers: Sequence[tuple[ast.Call, FunctionView]]
) -> Iterator[_Place]:
    """Yield where topic and payload are written. For a helper that takes the topic as a parameter, these are its calls."""
    topic, payload = call_argument(call, 0, "topic"), call_argument(call, 1, "payload")
    is_parameter = isinstance(topic, ast.Name) and topic.id in view.parameters and topic.id not in view.body.bound
    if not is_parameter or not callers or method.decorators:
        yield _Place(topic, payload, view, view)
        return
    names = [each.arg for each in (*method.node.args.posonlyargs, *method.node.args.args)][1:]
    for other, there in callers:
        given = {name: call_argument(other, at, name) for at, name in enumerate(names)}
        types = {name: infer_type(value, there) for name, value in given.items() if value is not None}
        inner = msgspec.structs.replace(view, parameters={**view.parameters, **types})
        whole = given.get(payload.id) if isinstance(payload, ast.Name) and payload.id not in view.body.bound else None
        yield _Place(given.get(topic.id), whole or payload, there, there if whole else inner)  # type: ignore[union-attr]


def _publications(
    call: ast.Call,
    method: MethodSource,
    view: FunctionView,
    callers: Sequence[tuple[ast.Call, FunctionView]],
    reads: _Reads,
) -> Iterator[Publication]:
    """Yield what a `Topic` declares and what is sent, one publication for each possible topic or payload."""
    is_request = call.func.attr == "request"  # type: ignore[attr-defined]
    for place in _places(call, method, view, callers):
        path = place.topic_view.scope.module.path
        span = span_of(path, place.topic if place.topic is not None else call)
        payload_span = (
            span_of(place.payload_view.scope.module.path, place.payload) if place.payload is not None else None
        )
        topics, payloads = (
            _choices(place.topic, place.topic_view),
            _sent(call, place.payload, place.payload_view),
        )
        for source, home in topics:
            found = read_topic(source, home.scope)
            if found.type_span is not None:
                yield _promise(found, method.node.name, span, is_request=is_request)
            # where both are a choice, one condition may decide of both: which pairs there are is not known
            for fields, of in payloads if min(len(topics), len(payloads)) == 1 else [(None, UNKNOWN)]:
                yield Publication(
                    topic=found.name,
                    prefix="" if found.name else _beginning(source, home),
                    method=method.node.name,
                    span=span,
                    payload=fields,
                    payload_span=payload_span,
                    is_request=is_request,
                    type=of,
                    reads=_reads_of(found.name, reads) if is_request else (),
                )


def _choices(topic: ast.expr | None, view: FunctionView) -> list[tuple[ast.expr | None, FunctionView]]:
    """The expressions that a topic may stand for: both branches of a condition, each item that a loop goes through."""
    if topic is None:
        return [(None, view)]
    source, home = view.source_of(topic)
    if isinstance(source, ast.IfExp):
        return [*_choices(source.body, home), *_choices(source.orelse, home)]
    if isinstance(source, ast.Starred):
        items, inner = follow_constant(source.value, home.scope)
        if isinstance(items, ast.Tuple | ast.List | ast.Set) and items.elts:
            return [(each, msgspec.structs.replace(home, scope=inner)) for each in items.elts]
    return [(source, home)]


def _sent(call: ast.Call, payload: ast.expr | None, view: FunctionView) -> list[tuple[Schema | None, Type]]:
    """The fields of a payload, or the type of one that is no mapping of known fields; more than one for a choice."""
    is_hidden = ast.Starred in [each.__class__ for each in call.args] or None in [each.arg for each in call.keywords]
    if isinstance(payload, ast.Constant) and payload.value is None:
        return [(Schema(), UNKNOWN)]
    if payload is None:
        return [(None if is_hidden else Schema(), UNKNOWN)]
    return read_variants(payload, view)


def _beginning(expression: ast.expr | None, view: FunctionView) -> str:
    """Return the constant text at the start of a computed topic, `"/Order/"` of `f"/Order/{status}"`."""
    while isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        expression = expression.left
    parts = expression.values if isinstance(expression, ast.JoinedStr) else [expression]
    texts = [
        text_of(part if isinstance(part, ast.Constant) else ast.JoinedStr([part]), view.scope) for part in parts if part
    ]
    return "".join(text or "" for text in texts[: texts.index(None) if None in texts else None])


def read_calls(method: MethodSource, view: FunctionView, reads: _Reads) -> Iterator[Call]:
    """Return each `self.call("Agent", "method", argument=...)` and `self.agent(Agent).method(...)` of a method."""
    for attribute, call in method.body.calls:
        if attribute == "call":
            yield _call(call, view, reads, is_by_name=True)
    for call in method.body.method_calls:
        if called_method(call, view):
            yield _call(call, view, reads, is_by_name=False)
    names = {name for name, _ in method.body.calls}
    if view.scope.chain and not names.isdisjoint(("call", "request", "agent")):
        for attribute, call in method.body.calls:
            if attribute not in _OF_THE_BUS and _takes_results(call, view):
                own = view.scope.chain[0].node.name, attribute
                yield _call(call, view, reads, is_by_name=False, own=own)


_OF_THE_BUS = frozenset({"agent", "call", "log", "publish", "request"})


def _takes_results(call: ast.Call, view: FunctionView) -> bool:
    """True for a call of an own method that is given what another agent gave: its keys are compared with the parameters."""
    values = [*call.args, *(each.value for each in call.keywords)]
    target = resolve_through(call.func, view.scope)
    is_method = isinstance(target, DefinedName) and isinstance(target.node, FUNCTIONS) and not is_rebound(target)
    return is_method and any(infer_type(each, view).kind == "result" for each in values)


def _call(
    call: ast.Call,
    view: FunctionView,
    reads: _Reads,
    *,
    is_by_name: bool,
    own: tuple[str, str] | None = None,
) -> Call:
    """Build one `Call`. Positional arguments are named by their numbers until the parameters of the callee are known."""
    agent, name = own or called_method(call, view) or ("", "")
    given = [each for each in call.keywords if not (is_by_name and each.arg in ("agent", "method"))]
    by_position = [] if is_by_name else call.args
    fields = [Field(str(number), infer_type(value, view)) for number, value in enumerate(by_position)]
    fields += [Field(each.arg, infer_type(each.value, view)) for each in given if each.arg]
    spread = [read_fields(each.value, view) for each in given if not each.arg]
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
        _reads_of(f"{agent}.{name}", reads),
    )


def _reads_of(name: str, reads: Mapping[str, list[KeyRead]]) -> tuple[KeyRead, ...]:
    return tuple(sorted(reads.get(name, ()), key=lambda each: (each.span.line, each.span.column)))
