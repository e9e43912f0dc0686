"""GB301, GB302, GB303, GB310, GB311: rules on the bodies and options of an agent's own methods.

Those that need the syntax tree run while a file is read, and the facts of the file keep what they find.

A shared default (GB301) that calls change     what is proposed
never looked at                                a safe fix: nobody can notice
looked at as text only                         a fix for the agents to vote on: what is added is always the same, surely no memory
anything else                                  nothing: it may be a memory, a counter or a collection on purpose
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Literal

from graphbus_core.compiler.reading.bodies import Body, Function
from graphbus_core.compiler.reading.syntax import SourceFile, parse, span_of
from graphbus_core.compiler.rules.wiring import Heard, Wiring, report
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, SourceSpan, Subscription
from graphbus_core.model.findings import Finding


def check_handlers(wiring: Wiring) -> Iterator[Finding]:
    """Find handlers whose signature fits no way of calling them."""
    for heard in wiring.asked_heard:
        if heard.subscription.shape == "invalid":
            yield _uncallable(heard)
        for problem, hint in _unkept(heard.subscription):
            yield report(
                "GB311", heard.agent.name, heard.subscription.span, f"{heard.name} {problem}: a run refuses it", hint
            )


def _unkept(subscription: Subscription) -> Iterator[tuple[str, str]]:
    """What is wrong with the options of one `@subscribe`, each with what to do about it."""
    options = subscription
    if options.retries < 0 or type(options.retries) is not int:
        yield (
            f"is given retries={options.retries!r}",
            "Give a whole number: how often a failed event is delivered again.",
        )
    if options.backoff_s is not None and options.backoff_s < 0:
        yield (
            f"is given backoff={options.backoff_s!r}",
            "Give seconds: how long to wait before the first further attempt.",
        )
    if options.timeout_s is not None and options.timeout_s <= 0:
        yield f"is given timeout={options.timeout_s!r}", "Give seconds, more than 0, or leave it out for no limit."
    if options.concurrency < 1 or type(options.concurrency) is not int:
        yield f"is given concurrency={options.concurrency!r}", "Give a whole number of at least 1."
    if not options.is_async and options.timeout_s is not None:
        yield (
            "is a plain `def`, which nothing can stop after a timeout",
            "Make it `async def`, or leave the timeout out.",
        )
    if not options.is_async and options.concurrency > 1:
        yield "is a plain `def`, which runs one event at a time", "Make it `async def`, or leave the concurrency out."


def _uncallable(heard: Heard) -> Finding:
    method = heard.agent.method(heard.subscription.method)
    parameters = ", ".join(item.name for item in method.parameters) if method else ""
    return report(
        "GB310",
        heard.agent.name,
        heard.subscription.span,
        f"{heard.name}({parameters}) cannot be called with an event",
        "Take nothing, `event`, `payload`, both, or the fields of the payload by name; no *args, none by position only.",
    )


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


def _check_blocking(method: ast.AsyncFunctionDef, definition: AgentDefinition, source: SourceFile) -> Iterator[Finding]:
    """Find calls that wait without letting others go on."""
    calls = [call for call in _calls(method) if _dotted(call.func).rpartition(".")[2] in _suspects(call, source)]
    imports = _imports(parse(source.text)) if calls else {}
    bound = {node.id for node in ast.walk(method) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for call in calls:
        written = _dotted(call.func)
        first, _, rest = written.partition(".")
        meant = ".".join(filter(None, [imports.get(first, "?"), rest]))
        if meant in _BLOCKING and first not in bound:
            yield report(
                "GB310",
                definition.name,
                span_of(definition.path, call),
                f"{definition.name}.{method.name} is async and waits in {meant}, which stops all other handlers",
                f"Use `{_BLOCKING[meant].format(call=written)}`, or make the method a plain `def`.",
            )


def _suspects(call: ast.Call, source: SourceFile) -> frozenset[str]:
    """The last words of blocking calls; a plain name may be an alias, so that any is suspect if `as` is in the file."""
    if isinstance(call.func, ast.Name) and b" as " in source.utf8:
        return frozenset({call.func.id})
    return _LAST_WORDS


def _calls(method: ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """The calls in the body, those in functions within it left out: these may run in a thread."""
    waiting: list[ast.AST] = list(method.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def _dotted(expression: ast.expr) -> str:
    if isinstance(expression, ast.Attribute):
        left = _dotted(expression.value)
        return f"{left}.{expression.attr}" if left else ""
    return expression.id if isinstance(expression, ast.Name) else ""


def _imports(tree: ast.Module) -> dict[str, str]:
    """Name -> what the file imports under it."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else (
                    alias.name.partition(".")[0]
                )  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


EVENT_FIELDS = frozenset(
    {"topic", "payload", "src", "event_id", "timestamp", "correlation_id", "causation_id", "hops", "trail"}
)
_CHANGING_A_DICT = frozenset({"clear", "pop", "popitem", "setdefault", "update"})
_SCOPES = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef})
_READ_ONLY = "Events and payloads are read-only: change a copy, `dict(event.payload)`."


def _check_event_use(
    method: Function, definition: AgentDefinition, subscription: Subscription, body: Body
) -> Iterator[Finding]:
    """Look at every use of the event and the payload in the body of a handler."""
    if body.is_generator:
        problem = ("is a generator: it does nothing when it is called", "Do the work in the body, without `yield`.")
        yield _finding(definition, method, subscription.span, problem)
        return
    event, payload = (name if name not in body.bound else "" for name in _names(method, subscription))
    if event or payload:
        for node in [*body.attributes, *body.changes, *[access.node for access in body.accesses]]:
            found = _misuse(node, event, payload)
            if found:
                yield _finding(definition, method, span_of(definition.path, node), found)


def _names(method: Function, subscription: Subscription) -> tuple[str, str]:
    """The names of the event and of the payload, empty for what the handler does not get."""
    given = [*method.args.posonlyargs, *method.args.args][1:]
    if not given or any(_is_static(decorator) for decorator in method.decorator_list):
        return "", ""
    shape = subscription.shape
    event = given[0] if shape in ("event", "event_payload") else None
    payload = given[-1] if shape in ("payload", "event_payload", "topic_payload") else None
    return (
        event.arg if event and _is_plain(event.annotation, "Event") else "",
        payload.arg if payload and _is_plain(payload.annotation, "dict") else "",
    )


def _is_static(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "staticmethod"


def _is_plain(annotation: ast.expr | None, name: str) -> bool:
    """Without annotation, or with this one: another one promises things that are not known here."""
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return annotation is None or getattr(annotation, "attr", getattr(annotation, "id", "")) == name


def _misuse(node: ast.expr, event: str, payload: str) -> tuple[str, str] | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == event:
            return _event_attribute(node, event)
        if node.value.id == payload and node.attr in EVENT_FIELDS:
            return f"reads {payload}.{node.attr}, but {payload} is the payload, a dict", (
                f"Take the event: `def handler(self, event)`, then event.{node.attr}; or read {payload}[{node.attr!r}]."
            )
    if _is_change(node, event, payload):
        return "changes what it was given", _READ_ONLY
    return None


def _event_attribute(node: ast.Attribute, event: str) -> tuple[str, str] | None:
    if not isinstance(node.ctx, ast.Load):
        return f"sets {event}.{node.attr}", _READ_ONLY
    from graphbus_core.model.messages import Event

    if node.attr.startswith("__") or hasattr(Event, node.attr):
        return None
    suggestion = did_you_mean(node.attr, EVENT_FIELDS).strip()
    return f"reads {event}.{node.attr}, which no event has", suggestion or (
        f"A field of the payload is {event}[{node.attr!r}]; an event has {', '.join(sorted(EVENT_FIELDS))}."
    )


def _is_change(node: ast.expr, event: str, payload: str) -> bool:
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return _is_given(node.value, event, payload)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING_A_DICT:
        return _is_given(node.func.value, "", payload) or _is_payload_of(node.func.value, event)
    return False


def _is_given(expression: ast.expr, event: str, payload: str) -> bool:
    is_name = isinstance(expression, ast.Name) and expression.id in {event, payload} - {""}
    return is_name or _is_payload_of(expression, event)


def _is_payload_of(expression: ast.expr, event: str) -> bool:
    return (
        bool(event)
        and isinstance(expression, ast.Attribute)
        and expression.attr == "payload"
        and isinstance(expression.value, ast.Name)
        and expression.value.id == event
    )


def _finding(definition: AgentDefinition, method: Function, span: SourceSpan, problem: tuple[str, str]) -> Finding:
    what, hint = problem
    message = f"{definition.name}.{method.name} {what}"
    return report("GB310", definition.name, span, message, hint)


_EVERYTHING = frozenset({"Exception", "BaseException"})


def _check_exceptions(method: ast.FunctionDef | ast.AsyncFunctionDef, definition: AgentDefinition) -> Iterator[Finding]:
    """Find `except:` without a `raise`, and clauses that catch everything and do nothing."""
    for clause in _clauses(method.body):
        yield from _check_clause(clause, f"{definition.name}.{method.name}", definition)


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


def _check_clause(clause: ast.ExceptHandler, name: str, definition: AgentDefinition) -> Iterator[Finding]:
    if clause.type is None and not _raises_again(clause.body):
        yield report(
            "GB302",
            definition.name,
            _head(clause, definition.path),
            f"{name} has an `except:` that also catches Ctrl-C and the end of the process",
            "Write `except Exception:`, or name what may be raised.",
            severity="warning",
            is_fixable=True,
        )
    if _catches_everything(clause.type) and all(_does_nothing(statement) for statement in clause.body):
        yield report(
            "GB303",
            definition.name,
            _head(clause, definition.path),
            f"{name} catches every exception and does nothing about it",
            "Name the exception that may be passed over, log it with self.log, or let it rise: the bus isolates handlers.",
            severity="warning",
        )


def _head(clause: ast.ExceptHandler, path: str) -> SourceSpan:
    """The line of the clause without its body: from `except` to the end of the type, or of the word."""
    if clause.type is None:
        return SourceSpan(path, clause.lineno, clause.col_offset, clause.lineno, clause.col_offset + len("except"))
    kind = span_of(path, clause.type)
    return SourceSpan(path, clause.lineno, clause.col_offset, kind.end_line, kind.end_column)


def _raises_again(body: list[ast.stmt]) -> bool:
    """True when the clause goes on with the exception, or ends the process, whatever happens in it."""
    last = body[-1]
    return isinstance(last, ast.Raise) or (
        isinstance(last, ast.If) and bool(last.orelse) and _raises_again(last.body) and _raises_again(last.orelse)
    )


def _catches_everything(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(name, ast.Name) and name.id in _EVERYTHING for name in names)


def _does_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass | ast.Continue) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


Seen = Literal["never", "as text", "as memory"]

_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_MAKERS = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"})
_CHANGING_LISTS = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
_CHANGING_DICTS = {"popitem", "setdefault", "update"}
_CHANGING_SETS = {"add", "difference_update", "discard", "intersection_update", "symmetric_difference_update"}
_CHANGING_DEQUES = {"appendleft", "extendleft", "popleft", "rotate"}
_ADDING = frozenset({"add", "append", "appendleft", "extend", "extendleft", "insert", "setdefault", "update"})
_KINDS = frozenset({"int", "str", "float", "list", "dict", "set"})
_MAPPINGS = frozenset({"dict", "defaultdict", "Counter", "OrderedDict"})
_REFLECTING = frozenset({"locals", "vars", "eval", "exec", "globals"})
_CHANGING = frozenset(_CHANGING_LISTS | _CHANGING_DICTS | _CHANGING_SETS | _CHANGING_DEQUES)


def _check_defaults(method: Function, definition: AgentDefinition) -> Iterator[Finding]:
    """Find mutable defaults that the body changes; one that is only read does no harm."""
    for argument, default in defaulted(method):
        name = argument.arg
        if _is_mutable(default) and not _is_memory(name) and _is_changed(name, method):
            seen = how_seen(name, default, method)
            yield report(
                "GB301",
                definition.name,
                span_of(definition.path, default),
                f"{definition.name}.{method.name} changes the default value of {name!r}, which all calls share",
                f"Write `{name}=None` and make a new value in the body."
                + ("" if seen != "as memory" else " If the calls are meant to share it, keep it in `self`."),
                severity="warning",
                is_fixable=seen != "as memory",
                is_fix_safe=seen == "never",
                data={"parameter": name},
            )


def defaulted(method: Function) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Give the parameters with their defaults."""
    positional = [*method.args.posonlyargs, *method.args.args]
    if method.args.defaults:
        yield from zip(positional[-len(method.args.defaults) :], method.args.defaults, strict=True)
    for argument, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True):
        if default is not None:
            yield argument, default


def _is_mutable(default: ast.expr) -> bool:
    """True for a display, a comprehension and a call of a mutable container's class."""
    if isinstance(default, ast.Call):
        return getattr(default.func, "attr", getattr(default.func, "id", "")) in _MAKERS
    return isinstance(default, _DISPLAYS)


def _is_memory(name: str) -> bool:
    """A default that is meant to outlive the call, by the usual names for it."""
    return name.startswith("_") or any(word in name for word in ("cache", "memo"))


def _is_changed(name: str, method: Function) -> bool:
    """True when the body changes the value itself and never gives the name another value."""
    is_changed = False
    for node in ast.walk(method):
        if _rebinds(node, name):
            return False
        is_changed = is_changed or _changes(node, name)
    return is_changed


def _rebinds(node: ast.AST, name: str) -> bool:
    """Assignments and loops, and inner functions with a parameter of that name: what is changed then is something else."""
    if isinstance(node, ast.AugAssign):
        return False
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.For | ast.AsyncFor | ast.comprehension):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars:
        targets = [node.optional_vars]
    elif isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
        return _counts_as_inner(node, name)
    return any(isinstance(each, ast.Name) and each.id == name for target in targets for each in ast.walk(target)
               if isinstance(getattr(each, "ctx", None), ast.Store))  # fmt: skip


def _counts_as_inner(node: ast.Lambda | Function, name: str) -> bool:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    has_default = [argument.arg for argument, _ in defaulted(node)] if isinstance(node, Function) else []
    return any(argument.arg == name for argument in arguments) and name not in has_default


def _changes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return _is_the(node.target, name) or _is_part_of(node.target, name)
    if isinstance(node, ast.Call):
        function = node.func
        return isinstance(function, ast.Attribute) and function.attr in _CHANGING and _is_the(function.value, name)
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load) and _is_the(node.value, name)
    return False


def _is_part_of(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Subscript) and _is_the(target.value, name)


def _is_the(expression: ast.expr, name: str) -> bool:
    return isinstance(expression, ast.Name) and expression.id == name


# --- what a call can see of what earlier calls changed ----------------------------------------


def how_seen(name: str, default: ast.expr, method: Function) -> Seen:
    """Tell how the calls of a method look at the default that they share and change."""
    above = {child: node for node in ast.walk(method) for child in ast.iter_child_nodes(node)}
    names = [node for statement in method.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    if _is_computed(default) or any(node.id in _REFLECTING for node in names):
        return "as memory"
    added = {node: place for node in names if node.id == name and (place := _addition(node, default, above))}
    looks = [node for node in names if node.id == name and node not in added]
    if not looks:
        return "never"
    first = next((place for place in method.body if place in added.values()), None)
    is_behind = first is not None and all(look.lineno > (first.end_lineno or first.lineno) for look in looks)
    is_constant = all(_adds_constants(place) for place in added.values())
    is_text = is_behind and is_constant and all(_is_joined(look, above) for look in looks)
    return "as text" if is_text else "as memory"


def _addition(node: ast.Name, default: ast.expr, above: Mapping[ast.AST, ast.AST]) -> ast.stmt | None:
    """Give the statement that adds to the value without a look at what is in it, None where a use is none of this."""
    parent = above[node]
    if isinstance(parent, ast.AugAssign) and parent.target is node:
        return parent
    holder = above[parent]
    if isinstance(parent, ast.Subscript) and parent.value is node and _is_mapping(default):
        return holder if isinstance(holder, ast.Assign) and parent in holder.targets else None
    if not (isinstance(parent, ast.Attribute) and parent.attr in _ADDING and isinstance(holder, ast.Call)):
        return None
    statement = above[holder]
    return statement if isinstance(statement, ast.Expr) and holder.func is parent else None


def _is_mapping(default: ast.expr) -> bool:
    if isinstance(default, ast.Call):
        return getattr(default.func, "attr", getattr(default.func, "id", "")) in _MAPPINGS
    return isinstance(default, ast.Dict | ast.DictComp)


def _is_computed(default: ast.expr) -> bool:
    """True when the value could be another one, or cost something, each time that it is made."""
    maker = default.func if isinstance(default, ast.Call) else None
    known = (default, maker, getattr(maker, "value", None))
    parts = [node for node in ast.walk(default) if node not in known]
    kinds = (ast.Call, ast.Await, ast.Attribute, ast.NamedExpr)
    return any(isinstance(node, kinds) or (isinstance(node, ast.Name) and node.id not in _KINDS) for node in parts)


def _adds_constants(place: ast.stmt) -> bool:
    """True when every call adds the same: the value is the only name in the statement, and nothing else is called."""
    names = sum(isinstance(node, ast.Name) for node in ast.walk(place))
    calls = sum(isinstance(node, ast.Call | ast.Await) for node in ast.walk(place))
    return names == 1 and calls <= 1


def _is_joined(look: ast.Name, above: Mapping[ast.AST, ast.AST]) -> bool:
    """True for `"".join(x)` and `"".join([..., *x])`: a text is made of it, and nobody gets hold of the value itself."""
    node = above[look]
    if isinstance(node, ast.Starred):
        node = above[node]
        node = above[node] if isinstance(node, ast.List | ast.Tuple) else node
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"


def check_class(
    tree: ast.ClassDef, definition: AgentDefinition, source: SourceFile, bodies: Mapping[str, Body]
) -> tuple[Finding, ...]:
    """Find what is wrong in the bodies of an agent's own methods: GB301, GB302, GB303 and GB310.

    Args:
        tree: The class.
        definition: What extraction made of it.
        source: Its file.
        bodies: Its methods by name, as extraction walked them.
    """
    return tuple(_check(tree, definition, source, bodies))


def _check(
    tree: ast.ClassDef, definition: AgentDefinition, source: SourceFile, bodies: Mapping[str, Body]
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
        if isinstance(method, ast.AsyncFunctionDef):
            yield from _check_blocking(method, definition, source)


def methods_of(body: list[ast.stmt]) -> Iterator[Function]:
    """Give the methods of a class body, those in conditional blocks included."""
    for statement in body:
        if isinstance(statement, Function):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from methods_of(statement.body)
            yield from methods_of(getattr(statement, "orelse", []))
