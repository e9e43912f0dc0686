"""From a class statement to an `AgentDefinition`, members of its bases merged in: what it hears, says, asks and offers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from graphbus_core.compiler.reading.annotations import annotation_kind, evaluate, read_schema, text_of
from graphbus_core.compiler.reading.bodies import EVENT_FIELDS, Body, Function, container_root, reaches_end
from graphbus_core.compiler.reading.methods import (
    Decorator,
    Method,
    View,
    annotated_arguments,
    call_argument,
    clean_text,
    docstring,
    infer,
    make_spec,
    make_view,
    read_decorators,
    read_fields,
    read_method,
    read_parameters,
)
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    NODE,
    ClassSite,
    External,
    Library,
    Module,
    Scope,
    Symbol,
    base_targets,
    class_chain,
    family_of,
    find_member,
    resolve,
)
from graphbus_core.compiler.reading.syntax import children_of, nodes_below, span_of, type_parameters
from graphbus_core.model.agent import (
    AgentDefinition,
    Annotation,
    Call,
    Dependency,
    HandlerParameter,
    HandlerShape,
    KeyRead,
    MethodSpec,
    Parameter,
    Publication,
    SourceSpan,
    Subscription,
    decide,
)
from graphbus_core.model.digests import sha256_hex
from graphbus_core.schema.types import UNKNOWN, Field, Schema

_DEPENDS_ON = "graphbus_core.depends_on"
_BLOCKS = (ast.If, ast.Try, ast.With)
_ABSTRACT_BASES = frozenset({"abc.ABC"})
Methods = tuple[tuple[ClassSite, Method], ...]
"""The methods of a class, inherited ones included, each with the class that it is written in."""


def is_node_class(library: Library, site: ClassSite) -> bool:
    """True when `GraphBusNode` is among the bases of a class, at whatever distance."""
    return NODE in family_of(library, site).external


def is_abstract(library: Library, site: ClassSite) -> bool:
    """True for a class that exists only to be inherited from: named `_X`, `Base` or `BaseX`, or derived from `abc.ABC` itself."""
    name = site.node.name
    rest = name.removeprefix("Base")
    if name.startswith("_") or (rest != name and not rest[:1].islower()):
        return True
    return any(isinstance(base, External) and base.dotted in _ABSTRACT_BASES for base in base_targets(library, site))


def read_agent(library: Library, module: Module, node: ast.ClassDef) -> tuple[AgentDefinition, Methods]:
    """Read one agent class; give its definition, and its methods as they were walked, properties included."""
    reader = _AgentReader(library, ClassSite(module, node))
    return reader.read(), reader.found


class _AgentReader:
    def __init__(self, library: Library, site: ClassSite) -> None:
        self._library = library
        self._site = site
        self._chain = class_chain(library, site)
        self.found: Methods = tuple(self._read_methods())
        self._methods = [(home, method) for home, method in self.found if method.is_callable]
        self._instance_names = self._written_names()

    def _written_names(self) -> frozenset[str]:
        """Attributes that are assigned anywhere in the class and its bases, or where their modules are run."""
        written = {name for _, method in self.found for name in method.body.written}
        walked = {id(method.node) for _, method in self.found}
        for site in self._chain:
            written |= site.module.bindings.written
            for function in _functions(site.node.body):
                if id(function) not in walked:  # overridden, and so called by `super()` at most
                    written |= Body(function, "").written
        return frozenset(written)

    def _scope(self, site: ClassSite) -> Scope:
        """The class body that a member is written in, with the lookups of the class that is read."""
        chain = self._chain
        if site is not chain[0]:
            chain = (site, *(entry for entry in chain if entry is not site))
        return Scope(
            self._library,
            site.module,
            chain,
            in_class_body=True,
            hidden=type_parameters(site.node),
            instance_names=self._instance_names,
        )

    def _read_methods(self) -> Iterator[tuple[ClassSite, Method]]:
        seen: set[str] = set()
        for site in self._chain:
            scope = Scope(self._library, site.module, (site,), in_class_body=True)
            own = {function.name: function for function in _functions(site.node.body)}
            for name, function in own.items():
                if name not in seen:
                    yield site, read_method(function, scope)
            seen.update(site.module.class_bindings(site.node).first)

    def read(self) -> AgentDefinition:
        site = self._site
        specs: list[MethodSpec] = []
        subscriptions: list[Subscription] = []
        publications: list[Publication] = []
        calls: list[Call] = []
        scopes = {id(home): self._scope(home) for home in self._chain}
        for home, method in self._methods:
            scope = scopes[id(home)]
            inside = scope.in_signature(method.node)
            parameters = read_parameters(method, inside)
            view = make_view(method, parameters, inside, self._chain)
            specs.append(make_spec(method, parameters, scope, view))
            subscriptions.extend(_read_subscriptions(method, parameters, scope, view))
            if method.node.name == "handle_event":
                subscriptions.extend(self._listed_subscriptions(method, parameters, view))
            publications.extend(_read_publications(method, scope, view))
            calls.extend(_read_calls(method, view))
        tops = [(entry, Scope(self._library, entry.module)) for entry in self._chain]
        decorators = [(entry, read_decorators(entry.node.decorator_list, scope)) for entry, scope in tops]
        publications.extend(
            _declared_publication(decorator, entry.module.path, "", Scope(self._library, entry.module))
            for entry, listed in decorators
            for decorator in listed
            if decorator.name == _PUBLISHES and decorator.call
        )
        depended = [each for entry, listed in decorators for each in self._dependencies(entry, listed)]
        node = site.node
        line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        span = SourceSpan(site.module.path, line, node.col_offset, node.end_lineno or line, node.end_col_offset or 0)
        prompt = self._class_value("SYSTEM_PROMPT")
        definition = AgentDefinition(
            name=site.node.name,
            module=site.module.name,
            path=site.module.path,
            span=span,
            name_span=_name_span(site),
            bases=tuple(ast.unparse(base) if not isinstance(base, ast.Name) else base.id for base in site.node.bases),
            doc=docstring(site.node),
            system_prompt=clean_text(prompt if isinstance(prompt, str) else ""),
            is_arbiter=self._class_value("IS_ARBITER") is True,
            methods=tuple(specs),
            subscriptions=tuple(subscriptions),
            publications=tuple(publications),
            dependencies=tuple({each.name: each for each in reversed(depended)}.values())[::-1],
            calls=tuple(calls),
            source_digest=sha256_hex(site.module.source.span_bytes(span)),
        )
        return msgspec.structs.replace(definition, contract_digest=contract_digest(definition))

    def _class_value(self, name: str) -> object:
        """The constant value of a class attribute, None when it has none."""
        member = find_member(self._chain, name)
        if not isinstance(member, Symbol) or member.owner is None or not isinstance(member.node, ast.expr):
            return None
        scope = Scope(self._library, member.module, (ClassSite(member.module, member.owner),), in_class_body=True)
        return evaluate(member.node, scope)

    def _listed_subscriptions(
        self, method: Method, parameters: tuple[Parameter, ...], view: View
    ) -> Iterator[Subscription]:
        """`SUBSCRIBE = ["/A", "/B"]` with `handle_event(topic, payload)`."""
        member = find_member(self._chain, "SUBSCRIBE")
        if not isinstance(member, Symbol) or not isinstance(member.node, ast.List | ast.Tuple) or member.owner is None:
            return
        scope = Scope(self._library, member.module, (ClassSite(member.module, member.owner),), in_class_body=True)
        shape: HandlerShape = "topic_payload" if _takes_two(parameters) else "invalid"
        for item in member.node.elts:
            span = span_of(member.module.path, item)
            yield _make_subscription(method, parameters, view, span=span, topic=text_of(item, scope) or "", shape=shape)

    def _dependencies(self, site: ClassSite, decorators: Sequence[Decorator]) -> Iterator[Dependency]:
        for decorator in decorators:
            if decorator.name == _DEPENDS_ON and decorator.call:
                for argument in decorator.call.args:
                    yield from _depended_on(argument, Scope(self._library, site.module))


def _depended_on(argument: ast.expr, scope: Scope) -> Iterator[Dependency]:
    """A name as text, a class, or a list of these; what is computed is not known and left out."""
    if isinstance(argument, ast.List | ast.Tuple | ast.Set):
        for item in argument.elts:
            yield from _depended_on(item, scope)
        return
    name = text_of(argument, scope)
    if name is None and isinstance(argument, ast.Name | ast.Attribute):
        target = resolve(argument, scope)
        if isinstance(target, Symbol) and isinstance(target.node, ast.ClassDef):
            name = target.node.name
        elif isinstance(target, External):
            name = target.dotted.rpartition(".")[2]
    if name is not None:
        yield Dependency(name, span_of(scope.module.path, argument))


def _takes_two(parameters: tuple[Parameter, ...]) -> bool:
    required = [item for item in parameters if not item.has_default and not item.kind.startswith("var")]
    positional = [item for item in parameters if item.kind.startswith("positional")]
    return len(positional) >= 2 >= len(required) and all(item.kind != "keyword_only" for item in required)


def _functions(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The methods of a class body, those in conditional blocks included; of equals the last counts."""
    for statement in body:
        if isinstance(statement, FUNCTIONS):
            yield statement
        elif isinstance(statement, _BLOCKS):
            yield from _functions(statement.body)
            yield from _functions(getattr(statement, "orelse", ()))


def _name_span(site: ClassSite) -> SourceSpan:
    source, line, name = site.module.source, site.node.lineno, site.node.name.encode()
    start = source.line_starts[line - 1]
    column = source.utf8.find(name, start + site.node.col_offset + len("class")) - start
    return SourceSpan(site.module.path, line, column, line, column + len(name))


def contract_digest(definition: AgentDefinition) -> str:
    """Give the digest of what neighbours can see of an agent; it does not change with bodies, names of handlers or places."""
    methods = [(spec.name, spec.input_schema, spec.output_schema) for spec in definition.methods if spec.has_schema]
    heard = [
        (
            item.topic,
            item.payload,
            [(field.name, field.type, field.has_default) for field in item.fields],
            sorted({(read.key, read.is_optional) for read in item.reads}),
            item.reads_all_known,
        )
        for item in definition.subscriptions
    ]
    said = [(item.topic, item.payload) for item in definition.publications]
    asked: list[Any] = [(call.agent, call.method, call.arguments, call.has_unknown) for call in definition.calls]
    asked += [("", item.topic, item.payload, True) for item in definition.publications if item.is_request]
    every: tuple[list[Any], ...] = (methods, heard, said, asked)
    for listed in every:
        listed.sort(key=itemgetter(0))
    needed = sorted(dependency.name for dependency in definition.dependencies)
    whole = (definition.name, definition.is_arbiter, methods, heard, said, needed, asked)
    return sha256_hex(msgspec.json.encode(whole))


# --- what a class hears, says and asks ------------------------------------------------------------


class _Guards:
    """The stretches of a handler that run only when a condition on the payload came out one way.

    Behind such a condition a key may be one that is not always sent. In doubt a read is guarded: GraphBus would rather miss a
    wrong key than report one that is never read.

    Args:
        function: The handler.
        names: The event, the payload, and what else the payload is called.
    """

    def __init__(self, function: Function, names: Iterable[str]) -> None:
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
        """Take in the names of what is made of the payload as a whole: `keys = event.keys()`, `for key in event`."""
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
        """True when the payload, or what was made of it, is used in an expression in whatever way."""
        return any(isinstance(node, ast.Name) and node.id in self._names for node in ast.walk(expression))

    def _is_of_whole(self, expression: ast.AST) -> bool:
        """True when the payload is used otherwise than for one key with a constant name or a field of the event."""
        if isinstance(expression, ast.Name):
            return expression.id in self._names
        if isinstance(expression, ast.Attribute) and expression.attr in EVENT_FIELDS:
            return False
        container, key = _keyed(expression)
        root = container_root(container) if container is not None else None
        if isinstance(key, ast.Constant) and root is not None and root[0] in self._payload:
            return False
        return any(self._is_of_whole(child) for child in children_of(expression))

    def _note_rest(self, block: Sequence[ast.stmt]) -> None:
        """Behind `if missing: return` and `assert len(event) == 3` only one outcome leads on."""
        for number, statement in enumerate(block[:-1] if isinstance(block, list) else (), 1):
            if isinstance(statement, ast.Assert | ast.If) and self._tells_keys(statement.test):
                ways = (statement.body, statement.orelse) if isinstance(statement, ast.If) else ()
                if not all(map(reaches_end, ways)) or not ways:
                    self._note(block[number:])

    def _tells_keys(self, test: ast.expr) -> bool:
        """True when a test may tell which keys there are; that there is a payload at all says nothing of them."""
        if isinstance(test, ast.UnaryOp | ast.BoolOp):
            return any(self._tells_keys(value) for value in children_of(test) if isinstance(value, ast.expr))
        root = container_root(test)
        is_presence = root is not None and root[0] in self._payload
        is_presence |= isinstance(test, ast.Call) and getattr(test.func, "id", "") in ("bool", "isinstance")
        is_presence |= isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)
        return not is_presence and self._is_of_whole(test)

    def _note(self, nodes: Sequence[ast.stmt | ast.expr]) -> None:
        """Note that these, which follow each other in the text, are behind a condition."""
        if nodes:
            first, last = nodes[0], nodes[-1]
            end = (last.end_lineno or last.lineno, last.end_col_offset or 0)
            self._stretches.append(((first.lineno, first.col_offset), end))


_BODY_FIELDS = ("body", "orelse", "finalbody")
_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_DECIDING = (ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.Match, ast.Assert, *_COMPREHENSIONS)
"""Without any of these nothing in a function depends on what its payload is like."""


def _decisions(node: ast.AST) -> Iterator[tuple[ast.expr, Sequence[ast.stmt | ast.expr]]]:
    """Give each condition in a node, with what runs only when it came out one way."""
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
    elif isinstance(node, _COMPREHENSIONS):
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        yield from ((test, parts) for generator in node.generators for test in generator.ifs)


def _stored(node: ast.AST) -> set[str]:
    """The names that an assignment, a loop or a comprehension binds."""
    targets = getattr(node, "targets", None) or [node.target]  # type: ignore[attr-defined]
    below = (each for target in targets for each in ast.walk(target))
    return {each.id for each in below if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _keyed(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The container and the key of `x[key]`, `x.get(key)` and `key in x`."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    return None, None


_SUBSCRIBE = "graphbus_core.subscribe"
_PUBLISHES = "graphbus_core.publishes"
_POLICY = {"retries": "retries", "backoff": "backoff_s", "timeout": "timeout_s", "concurrency": "concurrency"}


def _read_subscriptions(
    method: Method, parameters: tuple[Parameter, ...], scope: Scope, view: View
) -> Iterator[Subscription]:
    """Give one subscription for each `@subscribe` of a method."""
    decorators = [decorator for decorator in method.effective if decorator.name == _SUBSCRIBE and decorator.call]
    if not decorators:
        return
    shape = _shape(method, parameters, scope.in_signature(method.node))
    for decorator in decorators:
        topic = decorator.argument(0, "topic")
        span = span_of(method.module.path, topic if topic is not None else decorator.node)
        heard = _make_subscription(method, parameters, view, span=span, topic=text_of(topic, scope) or "", shape=shape)
        yield _with_policy(heard, decorator, scope)


def _with_policy(heard: Subscription, decorator: Decorator, scope: Scope) -> Subscription:
    """Add the options of `@subscribe` that are constant numbers."""
    if decorator.call is None or not decorator.call.keywords:
        return heard
    given = {each.arg: evaluate(each.value, scope) for each in decorator.call.keywords if each.arg in _POLICY}
    numbers = {_POLICY[name]: value for name, value in given.items() if name and type(value) in (int, float)}
    return msgspec.structs.replace(heard, **numbers) if numbers else heard


def _make_subscription(
    method: Method,
    parameters: tuple[Parameter, ...],
    view: View,
    *,
    span: SourceSpan,
    topic: str,
    shape: HandlerShape,
) -> Subscription:
    """Put together one subscription; `span` is where the topic is written."""
    reads, reads_all_known = _reads(shape, parameters, method.node, view)
    at = {"payload": 0, "typed": 0, "event_payload": 1, "topic_payload": 1}.get(shape, -1)
    return Subscription(
        topic=topic,
        method=method.node.name,
        span=span,
        shape=shape,
        payload=parameters[at].type if 0 <= at < len(parameters) else UNKNOWN,
        fields=parameters if shape == "fields" else (),
        reads=reads,
        reads_all_known=reads_all_known,
        is_async=isinstance(method.node, ast.AsyncFunctionDef),
    )


def _shape(method: Method, parameters: tuple[Parameter, ...], scope: Scope) -> HandlerShape:
    given: list[HandlerParameter] = []
    kind = ""
    for parameter, (_, annotation) in zip(parameters, annotated_arguments(method), strict=True):
        kind = annotation_kind(annotation, scope, parameter.type)
        known: Annotation = kind if kind in ("none", "event", "mapping", "typed") else "other"  # type: ignore[assignment]
        given.append(HandlerParameter(parameter.name, parameter.kind, known))
    shape = decide(given)
    is_foreign = len(given) == 1 and kind == "other" and parameters[0].type.kind == "unknown"
    if is_foreign and shape in ("event", "payload", "fields") and given[0].kind != "keyword_only":
        return "typed"  # a class of another package: probably a model, in any case no field of that name
    return shape


# --- keys that are read -----------------------------------------------------------------


def _reads(
    shape: HandlerShape, parameters: tuple[Parameter, ...], function: Function, view: View
) -> tuple[tuple[KeyRead, ...], bool]:
    """Give every key of the payload that a handler touches, and whether these surely are all."""
    if shape in ("nothing", "fields"):
        return (), True
    body = view.body
    event = parameters[0].name if shape in ("event", "event_payload") else ""
    payload = parameters[-1].name if shape in ("payload", "event_payload", "topic_payload") else ""
    if not (event or payload) or not {event, payload}.isdisjoint(body.bound):
        return (), False
    aliases = {name for name, owner in body.aliases.items() if event and owner == event}
    lost = {name for name in aliases if body.bound_once(name) is None}
    names = ({event, payload} | aliases) - lost - {""}
    lost |= {access.name for access in body.accesses if access.is_payload and access.name in names - {event}}
    keyed = [
        (access, evaluate(access.key, view.scope))
        for access in body.accesses
        if (access.name == event if access.is_payload else access.name in names)
    ]
    known = [(access, key) for access, key in keyed if isinstance(key, str) and access.how != "write"]
    guarded = {key for access, key in known if access.how in ("get", "in") or body.is_caught(access.node)}
    guards = _Guards(function, names) if any(key not in guarded for _, key in known) else None
    reads = tuple(
        KeyRead(
            key,
            span_of(view.scope.module.path, access.key),
            key in guarded or bool(guards and guards.covers(access.node)),
        )
        for access, key in sorted(known, key=lambda item: (item[0].key.lineno, item[0].key.col_offset))
    )
    is_handed_on = any(body.escapes(name) or name in body.shown for name in names)
    return reads, not lost and not is_handed_on and len(known) == len(keyed)


# --- what is sent -------------------------------------------------------------------------


def _read_publications(method: Method, scope: Scope, view: View) -> Iterator[Publication]:
    """Give each `self.publish(...)` and `self.request(...)` of a method and each `@publishes` on it."""
    for decorator in method.effective:
        if decorator.name == _PUBLISHES and decorator.call:
            yield _declared_publication(decorator, method.module.path, method.node.name, scope)
    for attribute, call in method.body.calls:
        if attribute in ("publish", "request"):
            yield _publication(call, method, view, is_request=attribute == "request")


def _declared_publication(decorator: Decorator, path: str, method: str, scope: Scope) -> Publication:
    """Read one `@publishes(topic, schema)`."""
    topic = decorator.argument(0, "topic")
    schema = decorator.argument(1, "schema")
    return Publication(
        topic=text_of(topic, scope) or "",
        method=method,
        span=span_of(path, topic or decorator.node),
        payload=read_schema(schema, scope),
        payload_span=span_of(path, schema) if schema is not None else None,
        is_declared=True,
    )


def _publication(call: ast.Call, method: Method, view: View, *, is_request: bool) -> Publication:
    path = method.module.path
    topic = call_argument(call, 0, "topic")
    payload = call_argument(call, 1, "payload")
    is_hidden = ast.Starred in [argument.__class__ for argument in call.args] or None in [
        keyword.arg for keyword in call.keywords
    ]
    is_empty = payload is None and not is_hidden
    if isinstance(payload, ast.Constant) and payload.value is None:
        is_empty = True
    known = _local_text(topic, view) or ""
    return Publication(
        topic=known,
        prefix="" if known else _beginning(topic, view),
        method=method.node.name,
        span=span_of(path, topic if topic is not None else call),
        payload=Schema() if is_empty else read_fields(payload, view),
        payload_span=span_of(path, payload) if payload is not None else None,
        is_request=is_request,
    )


def _local_text(expression: ast.expr | None, view: View) -> str | None:
    """A constant text, also by way of a local name that is bound once."""
    if isinstance(expression, ast.Name) and expression.id not in view.parameters:
        expression = view.body.bound_once(expression.id) or expression
    return text_of(expression, view.scope)


def _beginning(expression: ast.expr | None, view: View) -> str:
    """The text that a computed topic surely begins with: of an f-string or a sum, as far as its parts are constant."""
    if isinstance(expression, ast.Name) and expression.id not in view.parameters:
        expression = view.body.bound_once(expression.id) or expression
    while isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        expression = expression.left
    parts = expression.values if isinstance(expression, ast.JoinedStr) else [expression]
    texts = [
        text_of(part if isinstance(part, ast.Constant) else ast.JoinedStr([part]), view.scope) for part in parts if part
    ]
    return "".join(text or "" for text in texts[: texts.index(None) if None in texts else None])


def _read_calls(method: Method, view: View) -> Iterator[Call]:
    """Give each `self.call("Agent", "method", argument=...)` of a method."""
    for attribute, call in method.body.calls:
        if attribute == "call":
            yield _call(call, method, view)


def _call(call: ast.Call, method: Method, view: View) -> Call:
    agent = _local_text(call_argument(call, 0, "agent"), view)
    name = _local_text(call_argument(call, 1, "method"), view)
    given = [keyword for keyword in call.keywords if keyword.arg not in ("agent", "method")]
    fields = [Field(keyword.arg, infer(keyword.value, view)) for keyword in given if keyword.arg]
    spread = [read_fields(keyword.value, view) for keyword in given if not keyword.arg]
    fields += [field for schema in spread if schema for field in schema.fields]
    is_open = any(schema is None or schema.is_open for schema in spread)
    has_unknown = is_open or len(call.args) > 2 or agent is None or name is None
    return Call(agent or "", name or "", span_of(method.module.path, call), Schema(tuple(fields)), has_unknown)
