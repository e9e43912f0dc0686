"""What a handler needs of a payload, whatever the way in which it says so: fields by name and type."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from graphbus_core.compiler.reading.syntax import parse
from graphbus_core.compiler.rules.evidence import Evidence
from graphbus_core.compiler.rules.wiring import Heard
from graphbus_core.model.agent import SourceSpan
from graphbus_core.schema.types import UNKNOWN, Type

_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.BoolOp,
    ast.Match,
    ast.While,
    ast.For,
    ast.AsyncFor,
    ast.Try,
    ast.TryStar,
    ast.Lambda,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Assert,
)
_EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Demand(msgspec.Struct, frozen=True):
    """A field without which the handler fails."""

    name: str
    type: Type
    span: SourceSpan
    is_parameter: bool = False


def declared_demands(heard: Heard) -> Iterator[Demand]:
    """Give the fields that the signature of a handler asks for: its parameters, or the fields of its typed payload."""
    subscription = heard.subscription
    if subscription.shape == "fields":
        for parameter in subscription.fields:
            if not parameter.has_default and parameter.kind in ("positional", "keyword_only"):
                yield Demand(parameter.name, parameter.type, parameter.span, is_parameter=True)
    elif subscription.payload.kind == "record":
        for field in subscription.payload.fields:
            if field.required:
                yield Demand(field.name, field.type, subscription.span)


def accepted_fields(heard: Heard) -> Iterator[Demand]:
    """Give every field that the signature gives a type, required or not."""
    subscription = heard.subscription
    if subscription.shape == "fields":
        for parameter in subscription.fields:
            if parameter.kind in ("positional", "keyword_only"):
                yield Demand(parameter.name, parameter.type, parameter.span, is_parameter=True)
    elif subscription.payload.kind == "record":
        for field in subscription.payload.fields:
            yield Demand(field.name, field.type, subscription.span)


def demands(heard: Heard, evidence: Evidence) -> tuple[Demand, ...]:
    """Give the fields that every single event must have: what the signature asks for, and what the body reads in any case."""
    found = {demand.name: demand for demand in declared_demands(heard)}
    reads = [read for read in heard.subscription.reads if not read.is_optional and read.key not in found]
    if reads:
        certain = _certain_places(heard, evidence)
        for read in reads:
            if (read.span.line, read.span.column) in certain:
                found.setdefault(read.key, Demand(read.key, UNKNOWN, read.span))
    return tuple(found.values())


def _certain_places(heard: Heard, evidence: Evidence) -> set[tuple[int, int]]:
    """The places in the body of a handler that no branch, loop or early exit can pass by."""
    method = heard.agent.method(heard.subscription.method)
    if method is None:
        return set()
    for node in ast.walk(parse(evidence.source(method.span.path).text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == method.name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= method.span.line <= node.lineno:
                return set(_straight(node.body))
    return set()


def _straight(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    for statement in body:
        yield from _unconditional(statement)
        if any(isinstance(node, _EXITS) for node in ast.walk(statement)):
            return


def _unconditional(node: ast.AST) -> Iterator[tuple[int, int]]:
    if isinstance(node, _BRANCHES):
        certain = _always_evaluated(node)
        if certain is not None:
            yield from _unconditional(certain)
        return
    if isinstance(node, ast.expr):
        yield node.lineno, node.col_offset
    for child in ast.iter_child_nodes(node):
        yield from _unconditional(child)


def _always_evaluated(node: ast.AST) -> ast.expr | None:
    """The part of a branch that runs in any case: what it tests, what it loops over."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return node.test
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    if isinstance(node, ast.Match):
        return node.subject
    return None
