"""The rules that need the syntax tree of a class. Extraction runs them once per file and keeps what they find."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from graphbus_core.compiler.reading.bodies import Body
from graphbus_core.compiler.rules.blocking import check_blocking
from graphbus_core.compiler.rules.defaults import check_defaults
from graphbus_core.compiler.rules.event_use import check_event_use
from graphbus_core.compiler.rules.evidence import Source
from graphbus_core.compiler.rules.exceptions import check_exceptions
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_class(
    tree: ast.ClassDef, definition: AgentDefinition, source: Source, bodies: Mapping[str, Body]
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
    tree: ast.ClassDef, definition: AgentDefinition, source: Source, bodies: Mapping[str, Body]
) -> Iterator[Finding]:
    handlers = {subscription.method: subscription for subscription in definition.subscriptions}
    may_catch = b"except" in source.utf8
    for method in methods_of(tree.body):
        if method.args.defaults or method.args.kwonlyargs:
            yield from check_defaults(method, definition)
        if may_catch:
            yield from check_exceptions(method, definition)
        if method.name in handlers:
            yield from check_event_use(method, definition, handlers[method.name], bodies[method.name])
        if isinstance(method, ast.AsyncFunctionDef):
            yield from check_blocking(method, definition, source)


def methods_of(body: list[ast.stmt]) -> Iterator[Function]:
    """Give the methods of a class body, those in conditional blocks included."""
    for statement in body:
        if isinstance(statement, Function):
            yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            yield from methods_of(statement.body)
            yield from methods_of(getattr(statement, "orelse", []))
