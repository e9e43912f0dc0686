"""GB210, GB301, GB302, GB303, GB310, GB311: rules on the bodies and options of an agent's own methods.

The rules that need the syntax tree run while a file is read, and their findings are kept in the facts of the file.
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
    "Declare no parameters, or `event`, `payload`, both, or fields of the payload by name. `*args` and positional-only "
    "parameters are not allowed."
)


def check_handlers(wiring: Wiring) -> Iterator[Finding]:
    """Find handlers that cannot be called with an event (GB310), and invalid options of `@subscribe` (GB311)."""
    for handler in wiring.checked_subscriptions:
        name, span = handler.agent.name, handler.subscription.span
        if handler.subscription.shape == "invalid":
            method = handler.agent.method(handler.subscription.method)
            parameters = ", ".join(item.name for item in method.parameters) if method else ""
            message = f"{handler.name}({parameters}) cannot be called with an event"
            yield make_finding("GB310", name, span, message, _CALLABLE)
        yield from _check_type_of_event(handler)
        for problem, hint in _check_options(handler.subscription):
            yield make_finding("GB311", name, span, f"{handler.name} {problem}, so the graph cannot start", hint)


_KINDS_OTHER_THAN_EVENT = frozenset({"bool", "bytes", "float", "int", "list", "literal", "set", "str", "tuple"})


def _check_type_of_event(handler: AgentSubscription) -> Iterator[Finding]:
    """Find a parameter that gets the event because of its name, but is annotated with the type of a field."""
    method = handler.agent.method(handler.subscription.method) if handler.subscription.shape == "event" else None
    for each in method.parameters if method else ():
        if each.type.kind in _KINDS_OTHER_THAN_EVENT:
            message = f"{handler.name} gets the event as {each.name!r}, which it annotates as {each.type}"
            hint = f"A parameter of this name takes the event: write `{each.name}: Event`, or name it as the field."
            yield make_finding("GB310", handler.agent.name, each.span, message, hint, data={"parameter": each.name})


def _check_options(options: Subscription) -> Iterator[tuple[str, str]]:
    """Yield the predicate of a message and a hint for each invalid option of one `@subscribe`."""
    if options.retries < 0 or type(options.retries) is not int:
        hint = "Pass a whole number of at least 0: how often a failed event is delivered again."
        yield f"has retries={options.retries!r}", hint
    if options.backoff_s is not None and options.backoff_s < 0:
        hint = "Pass the seconds to wait before the first further attempt, at least 0."
        yield f"has backoff={options.backoff_s!r}", hint
    if options.timeout_s is not None and options.timeout_s <= 0:
        yield f"has timeout={options.timeout_s!r}", "Pass more than 0 seconds, or leave it out for no limit."
    if options.concurrency < 1 or type(options.concurrency) is not int:
        yield f"has concurrency={options.concurrency!r}", "Pass a whole number of at least 1."
    if not options.is_async and options.timeout_s is not None:
        hint = "Make it `async def`, or leave the timeout out."
        yield "is a plain `def`, which nothing can stop after a timeout", hint
    if not options.is_async and options.concurrency > 1:
        yield "is a plain `def`, which runs one event at a time", "Make it `async def`, or leave the concurrency out."
    if options.on_retry not in ("block", "skip"):
        yield f"has on_retry={options.on_retry!r}", 'Pass "block" or "skip".'
    fields = [each.name for each in options.promised.fields] if options.promised.kind == "record" else []
    if options.key and fields and options.key not in fields:
        hint = f"Name a field of the payload: {', '.join(fields)}."
        yield f"has key={options.key!r}, which its payload does not have", hint


_Found = tuple[str, SourceSpan | ast.expr, str, str, dict[str, str]]
"""A finding in a method: code, place, predicate of the message, hint, and the data for a fix."""

_USE_A_THREAD = "await asyncio.to_thread({call}, ...)"
_BLOCKING = {
    "time.sleep": "await asyncio.sleep(...)",
    "os.system": "await asyncio.create_subprocess_shell(...)",
    "subprocess.run": "await asyncio.create_subprocess_exec(...)",
    "subprocess.call": "await asyncio.create_subprocess_exec(...)",
    "subprocess.check_call": "await asyncio.create_subprocess_exec(...)",
    "subprocess.check_output": "await asyncio.create_subprocess_exec(...)",
    "urllib.request.urlopen": _USE_A_THREAD,
    **{
        f"{package}.{verb}": _USE_A_THREAD
        for package in ("requests", "httpx")
        for verb in ("get", "post", "put", "patch", "delete", "head", "options", "request")
    },
}
_BLOCKING_NAMES = frozenset(name.rpartition(".")[2] for name in _BLOCKING)


def _check_blocking(method: ast.AsyncFunctionDef, source: ModuleSource) -> Iterator[_Found]:
    """Find calls of blocking functions such as `time.sleep` in an `async def`, also if `import ... as` renames the function."""
    names = _BLOCKING_NAMES | {node.id for call in _calls_in(method) if isinstance(node := call.func, ast.Name)}
    names = names if b" as " in source.utf8 else _BLOCKING_NAMES  # `import ... as` may give the function any name
    suspects = [call for call in _calls_in(method) if last_name(call.func) in names]
    # imports of the file, then those within the method
    imports = Bindings(parse(source.text).body).first if suspects else {}
    imports |= Bindings(method.body).first if suspects else {}
    for call in suspects:
        written = ast.unparse(call.func)
        first, _, rest = written.partition(".")
        found = imports.get(first)
        name = ".".join(filter(None, [found.module, found.name, rest])) if isinstance(found, ImportBinding) else ""
        if name in _BLOCKING:
            what = f"is async and waits in {name}, which stops all other handlers"
            hint = f"Use `{_BLOCKING[name].format(call=written)}`, or make the method a plain `def`."
            yield "GB310", call, what, hint, {"blocking": written} if name == "time.sleep" else {}


def _calls_in(method: ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """Yield the calls in the body, except those in inner functions, which may run in a thread."""
    return (node for node in own_nodes(method) if isinstance(node, ast.Call))


EVENT_FIELDS = frozenset(
    {"topic", "payload", "src", "event_id", "timestamp", "correlation_id", "causation_id", "hops", "trail"}
)
_READ_ONLY = "Events and payloads are read-only: change a copy, `dict(event.payload)`."


def _check_event_use(method: FunctionNode, subscription: Subscription, body: Body) -> Iterator[_Found]:
    """Find handlers that are generators, attributes that an event or payload lacks, and changes of an event or payload."""
    if body.is_generator:
        what = "is a generator: it does nothing when it is called"
        yield "GB310", subscription.span, what, "Do the work in the body, without `yield`.", {}
        return
    # a parameter that the body binds again need not hold the event or the payload
    event, payload = (each if each not in body.bound else "" for each in _find_event_and_payload(method, subscription))
    nodes = [*body.attributes, *body.changes, *[access.node for access in body.accesses]]
    for node in nodes if event or payload else ():
        if isinstance(node, ast.Attribute):
            what, hint = _describe_attribute(node, event, payload)
            data = {"key": node.attr} if hint.startswith("A field") else {}
        else:
            (what, hint), data = _describe_change(node, event, payload), {}
        if what:
            yield "GB310", node, what, hint, data


def _find_event_and_payload(method: FunctionNode, subscription: Subscription) -> tuple[str, str]:
    """Return the names of the parameters for the event and the payload; `""` for one that is absent or has another type."""
    parameters = [*method.args.posonlyargs, *method.args.args][1:]
    if not parameters or any(last_name(decorator) == "staticmethod" for decorator in method.decorator_list):
        return "", ""
    shape = subscription.shape
    has_event, has_payload = shape in ("event", "event_payload"), shape in ("payload", "event_payload", "topic_payload")
    return (
        parameters[0].arg if has_event and _has_standard_type(parameters[0].annotation, "Event") else "",
        parameters[-1].arg if has_payload and _has_standard_type(parameters[-1].annotation, "dict") else "",
    )


def _has_standard_type(annotation: ast.expr | None, name: str) -> bool:
    """Return whether an annotation is absent, `name` or `name[...]`; other types may allow more attributes and changes."""
    named = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return named is None or last_name(named) == name


def _describe_attribute(node: ast.Attribute, event: str, payload: str) -> tuple[str, str]:
    """Return the predicate of a message and a hint for a wrong attribute of the event or payload; `("", "")` if it is right.

    `event` and `payload` are the names of the handler's parameters, or `""`.
    """
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


def _describe_change(node: ast.expr, event: str, payload: str) -> tuple[str, str]:
    """Return the predicate of a message and a hint if `x[key] = …`, `del` or a dict method changes the event or payload.

    Return `("", "")` for any other node. `event` and `payload` are names of parameters, or `""`.
    """
    # the name of a parameter, and whether its attribute `.payload` is changed rather than the value itself
    root, guarded = None, {(event, True), (payload, False)}
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        root, guarded = container_root(node.value), guarded | {(event, False)}
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING_A_DICT:
        root = container_root(node.func.value)
    return ("changes its event or payload", _READ_ONLY) if root and root[0] and root in guarded else ("", "")


def _check_exceptions(method: FunctionNode, path: str) -> Iterator[_Found]:
    """Find `except:` clauses that do not raise again (GB302), and clauses that catch everything and do nothing (GB303)."""
    for clause in _except_clauses(method.body):
        kind = span_of(path, clause.type) if clause.type else None
        end = (kind.end_line, kind.end_column) if kind else (clause.lineno, clause.col_offset + len("except"))
        span = SourceSpan(path, clause.lineno, clause.col_offset, *end)  # without the body
        if clause.type is None and not _raises_again(clause.body):
            what = "has an `except:` that also catches Ctrl-C and the end of the process"
            yield "GB302", span, what, "Write `except Exception:`, or name what may be raised.", {}
        if _catches_everything(clause.type) and all(_does_nothing(statement) for statement in clause.body):
            hint = "Catch only the exception that may be ignored, or log it with self.log, or do not catch it: the graph runs on."
            yield "GB303", span, "catches every exception and does nothing about it", hint, {}


def _except_clauses(body: list[ast.stmt]) -> Iterator[ast.ExceptHandler]:
    """Yield the `except` clauses of a body and of the blocks within it, visiting only statements."""
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
    """Return whether a block ends in `raise`, or in an `if` and `else` that both do so."""
    last = body[-1]
    return isinstance(last, ast.Raise) or (
        isinstance(last, ast.If) and bool(last.orelse) and _raises_again(last.body) and _raises_again(last.orelse)
    )


def _catches_everything(kind: ast.expr | None) -> bool:
    """Return whether a clause has no type (`kind` is None), or names `Exception` or `BaseException`."""
    if kind is None:
        return True
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(name, ast.Name) and name.id in ("Exception", "BaseException") for name in names)


def _does_nothing(statement: ast.stmt) -> bool:
    """Return whether a statement is `pass`, `continue`, or a constant such as `...`."""
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


_MUTABLE_CLASSES = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"})
_CHANGING_A_DICT = frozenset({"clear", "pop", "popitem", "setdefault", "update"})
_CHANGING = _CHANGING_A_DICT | {
    *("append", "extend", "insert", "remove", "reverse", "sort", "appendleft", "extendleft", "popleft", "rotate"),
    *("add", "difference_update", "discard", "intersection_update", "symmetric_difference_update"),
}


def _check_defaults(method: FunctionNode) -> Iterator[_Found]:
    """Find mutable defaults that the body changes, except of parameters whose names suggest a cache."""
    for argument, default in parameters_with_defaults(method):
        name = argument.arg
        is_cache = name.startswith("_") or any(word in name for word in ("cache", "memo"))  # shared on purpose
        if _is_mutable(default) and not is_cache and _is_changed(name, method):
            what = f"changes the default value of {name!r}, which all calls share"
            yield "GB301", default, what, f"Write `{name}=None` and make a new value in the body.", {"parameter": name}


def parameters_with_defaults(method: FunctionNode) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Yield each parameter that has a default value, and the expression of that value."""
    positional = [*method.args.posonlyargs, *method.args.args]
    if method.args.defaults:
        yield from zip(positional[-len(method.args.defaults) :], method.args.defaults, strict=True)
    for argument, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True):
        if default is not None:
            yield argument, default


def _is_mutable(default: ast.expr) -> bool:
    """Return whether a default is a list, dict or set, a comprehension of one, or a call such as `list()` or `deque()`."""
    if isinstance(default, ast.Call):
        return last_name(default.func) in _MUTABLE_CLASSES
    return isinstance(default, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _is_changed(name: str, method: FunctionNode) -> bool:
    """Return whether the body changes the value of a parameter in place and binds its name nowhere, inner functions included."""
    nodes = [node for statement in method.body for node in ast.walk(statement)]
    added = [node.target for node in nodes if isinstance(node, ast.AugAssign)]  # `items += …` extends a list in place
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id == name and node not in added]
    if any(isinstance(node.ctx, ast.Store) for node in names):
        return False
    if any(isinstance(node, ast.arg) and node.arg == name for node in nodes):  # a parameter of an inner function
        return False
    return any(_changes_in_place(node, name) for node in nodes)


def _changes_in_place(node: ast.AST, name: str) -> bool:
    """Return whether a node changes the value of a name: `x += …`, a method such as `x.append`, `x[key] = …` or `del x[key]`."""
    if isinstance(node, ast.AugAssign):
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        return _is_name(target, name)
    if isinstance(node, ast.Call):
        function = node.func
        return isinstance(function, ast.Attribute) and function.attr in _CHANGING and _is_name(function.value, name)
    return isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_name(node.value, name)


def _is_name(expression: ast.expr, name: str) -> bool:
    return isinstance(expression, ast.Name) and expression.id == name


_CHECKABLE_KINDS = frozenset({"str", "int", "float", "bool", "list", "dict"})
_CHECKING_WORDS = ("valid", "check", "ensure", "require", "assert", "verify", "parse", "convert", "isinstance")


def _check_validation(method: FunctionNode, definition: AgentDefinition) -> Iterator[_Found]:
    """Find a method with an input schema whose body neither tests nor validates any of its arguments of a simple type."""
    spec = definition.method(method.name)
    if spec is None or spec.input_schema is None:
        return
    fields = {field.name: field.type for field in spec.input_schema.fields}
    known = {
        name: declared.kind
        for name, declared in fields.items()
        if declared.kind in _CHECKABLE_KINDS and not (declared.kind == "str" and declared.name)  # a date or the like
    }
    kinds = {item.name: known[item.name] for item in spec.parameters if item.name in known}
    if kinds and not any(_tests_argument(node, set(kinds)) for node in nodes_below(method)):
        hint = "Refuse wrong input at the top of the body, before anything is done with it."
        data = {"kinds": ",".join(f"{name}:{kind}" for name, kind in kinds.items())}
        yield "GB210", spec.schema_span or spec.span, "declares its input and never validates it", hint, data


def _tests_argument(node: ast.AST, names: set[str]) -> bool:
    """Return whether a node is a condition on one of these arguments, or passes one to a call whose name suggests a check."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return _mentions(node.test, names)
    if isinstance(node, ast.Match):
        return _mentions(node.subject, names)
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func).lower()
    return any(word in name for word in _CHECKING_WORDS) and _mentions(node, names)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    """Return whether one of the names occurs in a node or below it."""
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def check_class(
    tree: ast.ClassDef, definition: AgentDefinition, source: ModuleSource, bodies: Mapping[str, Body]
) -> Iterator[Finding]:
    """Find what is wrong in the bodies of an agent's own methods: GB210, GB301, GB302, GB303 and GB310.

    Args:
        tree: The class statement.
        definition: The definition that was read from the class.
        source: The file with the class.
        bodies: Method name -> the facts that were read from its body.
    """
    for method in methods_of(tree.body):
        for code, place, what, hint, data in _check_method(method, definition, source, bodies):
            span = place if isinstance(place, SourceSpan) else span_of(definition.path, place)
            message = f"{definition.name}.{method.name} {what}"
            yield make_finding(code, definition.name, span, message, hint, data=data)


def _check_method(
    method: FunctionNode, definition: AgentDefinition, source: ModuleSource, bodies: Mapping[str, Body]
) -> Iterator[_Found]:
    """Run the rules that apply to one method; uses of events are checked only in handlers, validation only in other methods."""
    handled = next((each for each in reversed(definition.subscriptions) if each.method == method.name), None)
    if method.args.defaults or method.args.kwonlyargs:
        yield from _check_defaults(method)
    if b"except" in source.utf8:
        yield from _check_exceptions(method, definition.path)
    if handled:
        yield from _check_event_use(method, handled, bodies[method.name])
    elif method.decorator_list:
        yield from _check_validation(method, definition)
    if isinstance(method, ast.AsyncFunctionDef):
        yield from _check_blocking(method, source)


def methods_of(body: list[ast.stmt]) -> Iterator[FunctionNode]:
    """Yield the methods of a class body, also those in `if`, `try` and `with` blocks, but not those in `except` or `finally`."""
    for statement in body:
        if isinstance(statement, FunctionNode):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from methods_of(statement.body)
            yield from methods_of(getattr(statement, "orelse", []))
