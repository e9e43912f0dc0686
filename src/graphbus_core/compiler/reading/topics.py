"""Reads topics in source text: a constant text, or a `Topic` with the type of its payloads."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.reading.annotations import read_type
from graphbus_core.compiler.reading.constants import follow_constant, text_of
from graphbus_core.compiler.reading.modules import External, NameScope, resolve_through
from graphbus_core.compiler.reading.syntax import call_argument, span_of
from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.types import UNKNOWN, Type

_TOPIC = External("graphbus_core.Topic")


class ReadTopic(NamedTuple):
    """A topic where it is used in the code.

    Attributes:
        name: The name; empty if it is computed.
        type: The type of its payloads that a `Topic` declares; unknown for a text.
        type_span: Where the type is declared; None for a text.
    """

    name: str = ""
    type: Type = UNKNOWN
    type_span: SourceSpan | None = None


class DefinedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A `Topic(...)` in a file, whether it is used or not."""

    name: str
    type: Type
    span: SourceSpan


def topic_calls(tree: ast.Module, scope: NameScope, imports: Collection[str]) -> Iterator[ast.Call]:
    """Yield each call `Topic(...)` in a file; `imports` holds the dotted names that the file imports."""
    homes = {"graphbus_core", "graphbus_core.Topic", "graphbus_core.model.topics.Topic"}
    for node in ast.walk(tree) if homes.intersection(imports) else ():
        function = node.func if isinstance(node, ast.Call) else None
        generic = function.value if isinstance(function, ast.Subscript) else function
        if isinstance(node, ast.Call) and generic is not None and resolve_through(generic, scope) == _TOPIC:
            yield node


def defined_topics(tree: ast.Module, scope: NameScope, imports: Collection[str]) -> Iterator[DefinedTopic]:
    """Yield each `Topic(...)` in a file whose name is constant and whose payload type is known."""
    for call in topic_calls(tree, scope, imports):
        found = read_topic(call, scope)
        if found.name and found.type.kind != "unknown":
            yield DefinedTopic(found.name, found.type, span_of(scope.module.path, call))


def read_topic(expression: ast.expr | None, scope: NameScope) -> ReadTopic:
    """Read a topic where it is used: `"/Order/Created"`, `ORDER_CREATED`, `TOPICS.created`, `TOPICS["created"]`.

    An empty `ReadTopic` for None, and for a topic that is computed.
    """
    if expression is None:
        return ReadTopic()
    text = text_of(expression, scope)
    if text is not None:
        return ReadTopic(text)
    if isinstance(expression, ast.Attribute) and expression.attr == "name":
        named = _read_topic_object(expression.value, scope).name
        if named:
            return ReadTopic(named)
    return _read_topic_object(expression, scope)


def _read_topic_object(expression: ast.expr, scope: NameScope) -> ReadTopic:
    """Read `Topic(...)`, `Topic[Order](...)` or a constant that stands for it; an empty `ReadTopic` for anything else."""
    call, home = follow_constant(expression, scope)
    if not isinstance(call, ast.Call):
        return ReadTopic()
    generic = call.func if isinstance(call.func, ast.Subscript) else None
    if resolve_through(generic.value if generic else call.func, home) != _TOPIC:
        return ReadTopic()
    payload = call_argument(call, 1, "payload") or (generic.slice if generic else None)
    name = text_of(call_argument(call, 0, "name"), home) or ""
    return ReadTopic(name, read_type(payload, home), span_of(home.module.path, payload or call))
