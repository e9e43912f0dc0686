"""GB210, GB301, GB302, GB303, GB310, GB311: rules on the bodies and options of an agent's own methods.

Those that need the syntax tree run while a file is read, and the facts of the file keep what they find.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from graphbus_core.compiler.reading.bodies import Body, FunctionNode, container_root
from graphbus_core.compiler.reading.modules import Bindings, ImportBinding
from graphbus_core.compiler.reading.syntax import ModuleSource, nodes_below, own_nodes, parse, span_of
from graphbus_core.compiler.rules.wiring import AgentSubscription, Wiring, last_name, make_finding
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, SourceSpan, Subscription
from graphbus_core.model.findings import Finding

_CALLABLE = (
    "Take nothing, `event`, `payload`, both, or the fields of the payload by name; no *args, none by position only."
)


def check_handlers(wiring: Wiring) -> Iterator[Finding]:
    """Find handlers whose signature fits no way of calling them, and options that cannot be kept."""
    for heard in wiring.asked_subscriptions:
        name, span = heard.agent.name, heard.subscription.span
        if heard.subscription.shape == "invalid":
            method = heard.agent.method(heard.subscription.method)
            parameters = ", ".join(item.name for item in method.parameters) if method else ""
            message = f"{heard.name}({parameters}) cannot be called with an event"
            yield make_finding("GB310", name, span, message, _CALLABLE)
        yield from _event_of_another_type(heard)
        for problem, hint in _unkept(heard.subscription):
            yield make_finding("GB311", name, span, f"{heard.name} {problem}: a run refuses it", hint)


_NO_EVENT = frozenset({"bool", "bytes", "float", "int", "list", "literal", "set", "str", "tuple"})


def _event_of_another_type(heard: AgentSubscription) -> Iterator[Finding]:
    """Find a parameter that is given the event because of its name, and is annotated with the type of a field."""
    method = heard.agent.method(heard.subscription.method) if heard.subscription.shape == "event" else None
    for each in method.parameters if method else ():
        if each.type.kind in _NO_EVENT:
            message = f"{heard.name} is given the event as {each.name!r}, which it annotates as {each.type}"
            hint = f"A parameter of this name takes the event: write `{each.name}: Event`, or name it as the field."
            yield make_finding("GB310", heard.agent.name, each.span, message, hint)


def _unkept(options: Subscription) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of one `@subscribe`, each with what to do about it."""
    if options.retries < 0 or type(options.retries) is not int:
        hint = "Give a whole number: how often a failed event is delivered again."
        yield f"is given retries={options.retries!r}", hint
    if options.backoff_s is not None and options.backoff_s < 0:
        hint = "Give seconds: how long to wait before the first further attempt."
        yield f"is given backoff={options.backoff_s!r}", hint
    if options.timeout_s is not None and options.timeout_s <= 0:
        yield f"is given timeout={options.timeout_s!r}", "Give seconds, more than 0, or leave it out for no limit."
    if options.concurrency < 1 or type(options.concurrency) is not int:
        yield f"is given concurrency={options.concurrency!r}", "Give a whole number of at least 1."
    if not options.is_async and options.timeout_s is not None:
        hint = "Make it `async def`, or leave the timeout out."
        yield "is a plain `def`, which nothing can stop after a timeout", hint
    if not options.is_async and options.concurrency > 1:
        yield "is a plain `def`, which runs one event at a time", "Make it `async def`, or leave the concurrency out."


_IN_A_THREAD = "await asyncio.to_thread({call}, ...)"
_BLOCKING = {
    "time.sleep": "await asyncio.sleep(...)",
    "os.system": "await asyncio.create_subprocess_shell(...)",
    "subprocess.run": "await asyncio.create_subprocess_exec(...)",
    "subprocess.call": "await asyncio.create_subprocess_exec(...)",
    "subprocess.check_call": "await asyncio.create_subprocess_exec(...)",
    "subprocess.check_output": "await asyncio.create_subprocess_exec(...)",
    "urllib.request.urlopen": _IN_A_THREAD,
    **{
        f"{package}.{verb}": _IN_A_THREAD
        for package in ("requests", "httpx")
        for verb in ("get", "post", "put", "patch", "delete", "head", "options", "request")
    },
}
_LAST_WORDS = frozenset(name.rpartition(".")[2] for name in _BLOCKING)


def _check_blocking(
    method: ast.AsyncFunctionDef, definition: AgentDefinition, source: ModuleSource
) -> Iterator[Finding]:
    """Find blocking calls in an `async def`."""
    words = _LAST_WORDS | {node.id for call in _calls(method) if isinstance(node := call.func, ast.Name)}
    words = words if b" as " in source.utf8 else _LAST_WORDS  # a plain name may be one that is imported under another
    suspects = [call for call in _calls(method) if last_name(call.func) in words]
    imports = Bindings(parse(source.text).body).first if suspects else {}
    imports |= Bindings(method.body).first if suspects else {}
    for call in suspects:
        written = ast.unparse(call.func)
        first, _, rest = written.partition(".")
        found = imports.get(first)
        meant = ".".join(filter(None, [found.module, found.name, rest])) if isinstance(found, ImportBinding) else ""
        if meant in _BLOCKING:
            message = f"{definition.name}.{method.name} is async and waits in {meant}, which stops all other handlers"
            hint = f"Use `{_BLOCKING[meant].format(call=written)}`, or make the method a plain `def`."
            data = {"blocking": written} if meant == "time.sleep" else None
            yield make_finding("GB310", definition.name, span_of(definition.path, call), message, hint, data=data)


def _calls(method: ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """The calls in the body, those in functions within it left out: these may run in a thread."""
    return (node for node in own_nodes(method) if isinstance(node, ast.Call))


EVENT_FIELDS = frozenset(
    {"topic", "payload", "src", "event_id", "timestamp", "correlation_id", "causation_id", "hops", "trail"}
)
_READ_ONLY = "Events and payloads are read-only: change a copy, `dict(event.payload)`."


def _check_event_use(
    method: FunctionNode, definition: AgentDefinition, subscription: Subscription, body: Body
) -> Iterator[Finding]:
    """Look at every use of the event and the payload in the body of a handler."""
    name = f"{definition.name}.{method.name}"
    if body.is_generator:
        message = f"{name} is a generator: it does nothing when it is called"
        yield make_finding(
            "GB310", definition.name, subscription.span, message, "Do the work in the body, without `yield`."
        )
        return
    event, payload = (each if each not in body.bound else "" for each in _names(method, subscription))
    for node in (
        [*body.attributes, *body.changes, *[access.node for access in body.accesses]] if event or payload else ()
    ):
        what, hint = (
            _attribute(node, event, payload) if isinstance(node, ast.Attribute) else _change(node, event, payload)
        )
        if what:
            data = {"key": node.attr} if isinstance(node, ast.Attribute) and hint.startswith("A field") else None
            yield make_finding(
                "GB310", definition.name, span_of(definition.path, node), f"{name} {what}", hint, data=data
            )


def _names(method: FunctionNode, subscription: Subscription) -> tuple[str, str]:
    """The names of the event and of the payload, empty for what the handler does not get or gives a type of its own."""
    given = [*method.args.posonlyargs, *method.args.args][1:]
    if not given or any(last_name(decorator) == "staticmethod" for decorator in method.decorator_list):
        return "", ""
    shape = subscription.shape
    has_event, has_payload = shape in ("event", "event_payload"), shape in ("payload", "event_payload", "topic_payload")
    return (
        given[0].arg if has_event and _is_plain(given[0].annotation, "Event") else "",
        given[-1].arg if has_payload and _is_plain(given[-1].annotation, "dict") else "",
    )


def _is_plain(annotation: ast.expr | None, name: str) -> bool:
    """Without annotation, or with this one: another one promises things that are not known here."""
    named = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return named is None or last_name(named) == name


def _attribute(node: ast.Attribute, event: str, payload: str) -> tuple[str, str]:
    """Describe what is wrong with an attribute of the event or the payload; two empty texts for nothing."""
    owner = getattr(node.value, "id", "")
    if owner == payload != "" and node.attr in EVENT_FIELDS:
        hint = f"Take the event: `def handler(self, event)`, then event.{node.attr}; or read {payload}[{node.attr!r}]."
        return f"reads {payload}.{node.attr}, but {payload} is the payload, a dict", hint
    if owner != event or not event:
        return "", ""
    if not isinstance(node.ctx, ast.Load):
        return f"sets {event}.{node.attr}", _READ_ONLY
    from graphbus_core.model.messages import Event

    if node.attr.startswith("__") or hasattr(Event, node.attr):
        return "", ""
    fields = f"A field of the payload is {event}[{node.attr!r}]; an event has {', '.join(sorted(EVENT_FIELDS))}."
    return f"reads {event}.{node.attr}, which no event has", did_you_mean(node.attr, EVENT_FIELDS).strip() or fields


def _change(node: ast.expr, event: str, payload: str) -> tuple[str, str]:
    """The same for a key that is set or deleted, and for a call of a method that changes a dict."""
    root, given = None, {(event, True), (payload, False)}
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        root, given = container_root(node.value), given | {(event, False)}
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING_A_DICT:
        root = container_root(node.func.value)
    return ("changes what it was given", _READ_ONLY) if root and root[0] and root in given else ("", "")


def _check_exceptions(method: FunctionNode, definition: AgentDefinition) -> Iterator[Finding]:
    """Find `except:` without a `raise`, and clauses that catch everything and do nothing."""
    name = f"{definition.name}.{method.name}"
    for clause in _clauses(method.body):
        kind = span_of(definition.path, clause.type) if clause.type else None
        end = (kind.end_line, kind.end_column) if kind else (clause.lineno, clause.col_offset + len("except"))
        span = SourceSpan(definition.path, clause.lineno, clause.col_offset, *end)  # without the body
        if clause.type is None and not _raises_again(clause.body):
            message = f"{name} has an `except:` that also catches Ctrl-C and the end of the process"
            hint = "Write `except Exception:`, or name what may be raised."
            yield make_finding("GB302", definition.name, span, message, hint, severity="warning", is_fixable=True)
        if _catches_everything(clause.type) and all(_does_nothing(statement) for statement in clause.body):
            message = f"{name} catches every exception and does nothing about it"
            hint = "Name the exception that may be passed over, log it with self.log, or let it rise: the bus isolates handlers."
            yield make_finding("GB303", definition.name, span, message, hint, severity="warning")


def _clauses(body: list[ast.stmt]) -> Iterator[ast.ExceptHandler]:
    """The clauses of a body and of the blocks within it; expressions hold none, so that only statements are visited."""
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ExceptHandler):
            yield node
        for field in ("finalbody", "orelse", "cases", "handlers", "body"):
            block = getattr(node, field, None)
            if block.__class__ is list:
                waiting.extend(reversed(block))


def _raises_again(body: list[ast.stmt]) -> bool:
    """True when every path through the clause raises again or ends the process."""
    last = body[-1]
    return isinstance(last, ast.Raise) or (
        isinstance(last, ast.If) and bool(last.orelse) and _raises_again(last.body) and _raises_again(last.orelse)
    )


def _catches_everything(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(name, ast.Name) and name.id in ("Exception", "BaseException") for name in names)


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


_MAKERS = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"})
_CHANGING_A_DICT = frozenset({"clear", "pop", "popitem", "setdefault", "update"})
_CHANGING = _CHANGING_A_DICT | {
    *("append", "extend", "insert", "remove", "reverse", "sort", "appendleft", "extendleft", "popleft", "rotate"),
    *("add", "difference_update", "discard", "intersection_update", "symmetric_difference_update"),
}


def _check_defaults(method: FunctionNode, definition: AgentDefinition) -> Iterator[Finding]:
    """Find mutable defaults that the body changes; one that is only read does no harm."""
    for argument, default in defaulted(method):
        name = argument.arg
        is_memory = name.startswith("_") or any(word in name for word in ("cache", "memo"))  # meant to outlive the call
        if _is_mutable(default) and not is_memory and _is_changed(name, method):
            message = f"{definition.name}.{method.name} changes the default value of {name!r}, which all calls share"
            hint = f"Write `{name}=None` and make a new value in the body."
            span = span_of(definition.path, default)
            yield make_finding(
                "GB301", definition.name, span, message, hint, severity="warning", data={"parameter": name}
            )


def defaulted(method: FunctionNode) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Return the parameters with their defaults."""
    positional = [*method.args.posonlyargs, *method.args.args]
    if method.args.defaults:
        yield from zip(positional[-len(method.args.defaults) :], method.args.defaults, strict=True)
    for argument, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True):
        if default is not None:
            yield argument, default


def _is_mutable(default: ast.expr) -> bool:
    """True for a display, a comprehension and a call of a mutable container's class."""
    if isinstance(default, ast.Call):
        return last_name(default.func) in _MAKERS
    return isinstance(default, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _is_changed(name: str, method: FunctionNode) -> bool:
    """True when the body changes the value itself and never gives the name another value."""
    nodes = [node for statement in method.body for node in ast.walk(statement)]
    added = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id == name and node not in added]
    if any(isinstance(node.ctx, ast.Store) for node in names):
        return False
    if any(isinstance(node, ast.arg) and node.arg == name for node in nodes):  # of an inner function
        return False
    return any(_changes(node, name) for node in nodes)


def _changes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        return _is_the(target, name)
    if isinstance(node, ast.Call):
        function = node.func
        return isinstance(function, ast.Attribute) and function.attr in _CHANGING and _is_the(function.value, name)
    return isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_the(node.value, name)


def _is_the(expression: ast.expr, name: str) -> bool:
    return isinstance(expression, ast.Name) and expression.id == name


_CHECKABLE = frozenset({"str", "int", "float", "bool", "list", "dict"})
_CHECKING = ("valid", "check", "ensure", "require", "assert", "verify", "parse", "convert", "isinstance")


def _check_validation(method: FunctionNode, definition: AgentDefinition) -> Iterator[Finding]:
    """Find a method with an input schema none of whose arguments is ever looked at before it is used."""
    spec = definition.method(method.name)
    if spec is None or spec.input_schema is None:
        return
    fields = {field.name: field.type for field in spec.input_schema.fields}  # a `str` with a name is a date or the like
    known = {
        name: of.kind for name, of in fields.items() if of.kind in _CHECKABLE and not (of.kind == "str" and of.name)
    }
    kinds = {item.name: known[item.name] for item in spec.parameters if item.name in known}
    if kinds and not any(_looks_at(node, set(kinds)) for node in nodes_below(method)):
        message = f"{definition.name}.{method.name} declares its input and never validates it"
        hint = "Refuse wrong input at the top of the body, before anything is done with it."
        data = {"kinds": ",".join(f"{name}:{kind}" for name, kind in kinds.items())}
        yield make_finding(
            "GB210", definition.name, spec.schema_span or spec.span, message, hint, severity="info", data=data
        )


def _looks_at(node: ast.AST, names: set[str]) -> bool:
    """True for a condition on an argument, or a call whose name suggests a check."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return _mentions(node.test, names)
    if isinstance(node, ast.Match):
        return _mentions(node.subject, names)
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func).lower()
    return any(word in name for word in _CHECKING) and _mentions(node, names)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def check_class(
    tree: ast.ClassDef, definition: AgentDefinition, source: ModuleSource, bodies: Mapping[str, Body]
) -> tuple[Finding, ...]:
    """Find what is wrong in the bodies of an agent's own methods: GB210, GB301, GB302, GB303 and GB310.

    Args:
        tree: The class.
        definition: What extraction made of it.
        source: Its file.
        bodies: Its methods by name, as extraction walked them.
    """
    return tuple(_check(tree, definition, source, bodies))


def _check(
    tree: ast.ClassDef, definition: AgentDefinition, source: ModuleSource, bodies: Mapping[str, Body]
) -> Iterator[Finding]:
    handlers = {subscription.method: subscription for subscription in definition.subscriptions}
    may_catch = b"except" in source.utf8
    for method in methods_of(tree.body):
        if method.args.defaults or method.args.kwonlyargs:
            yield from _check_defaults(method, definition)
        if may_catch:
            yield from _check_exceptions(method, definition)
        if method.name in handlers:
            yield from _check_event_use(method, definition, handlers[method.name], bodies[method.name])
        elif method.decorator_list:
            yield from _check_validation(method, definition)
        if isinstance(method, ast.AsyncFunctionDef):
            yield from _check_blocking(method, definition, source)


def methods_of(body: list[ast.stmt]) -> Iterator[FunctionNode]:
    """Return the methods of a class body, those in conditional blocks included."""
    for statement in body:
        if isinstance(statement, FunctionNode):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from methods_of(statement.body)
            yield from methods_of(getattr(statement, "orelse", []))
