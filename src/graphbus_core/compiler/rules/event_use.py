"""GB310: a handler asks its event for what it has not, or tries to change what nobody can change."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.reading.bodies import Body
from graphbus_core.compiler.reading.source import span_of
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, SourceSpan, Subscription
from graphbus_core.model.findings import Finding

Function = ast.FunctionDef | ast.AsyncFunctionDef

EVENT_FIELDS = frozenset(
    {"topic", "payload", "src", "event_id", "timestamp", "correlation_id", "causation_id", "hops", "trail"}
)
_CHANGING = frozenset({"clear", "pop", "popitem", "setdefault", "update"})
_SCOPES = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef})
_USES = frozenset({ast.Attribute, ast.Subscript, ast.Call})
_YIELDS = frozenset({ast.Yield, ast.YieldFrom})
_CONTEXTS = frozenset({ast.Load, ast.Store, ast.Del})
_READ_ONLY = "Events and payloads are read-only: change a copy, `dict(event.payload)`."


def check_event_use(
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
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
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
    return Finding(code="GB310", severity="error", agent=definition.name, span=span, message=message, hint=hint)
