"""GB210, off by default: a method declares what it takes and never looks whether it got it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.rules.fixes.rewrite import Refused, Symbol
from graphbus_core.compiler.rules.wiring import Wiring, owns
from graphbus_core.model.agent import AgentDefinition, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding
from graphbus_core.schema.types import Type

_CHECKABLE = frozenset({"str", "int", "float", "bool", "list", "dict"})
_CHECKING = ("valid", "check", "ensure", "require", "assert", "verify", "parse", "convert", "isinstance")


def check_validation(wiring: Wiring) -> Iterator[Finding]:
    """Find methods with an input schema none of whose arguments is ever looked at before it is used."""
    for agent in wiring.asked:
        for method in agent.methods:
            kinds = _checkable(agent, method)
            if kinds and not _validates(agent, method, set(kinds), wiring):
                yield Finding(
                    code="GB210",
                    severity="info",
                    agent=agent.name,
                    span=method.schema_span or method.span,
                    message=f"{agent.name}.{method.name} declares its input and never validates it",
                    hint="Refuse wrong input at the top of the body, before anything is done with it.",
                    is_fixable=True,
                    data={"kinds": ",".join(f"{name}:{kind}" for name, kind in kinds.items())},
                )


def _checkable(agent: AgentDefinition, method: MethodSpec) -> dict[str, str]:
    """Parameter -> type, of those whose type can be checked with isinstance."""
    if method.input_schema is None or not owns(agent, method.span):
        return {}
    fields = {field.name: field.type.kind for field in method.input_schema.fields if _is_plain(field.type)}
    return {item.name: fields[item.name] for item in method.parameters if item.name in fields}


def _is_plain(of: Type) -> bool:
    """A `str` with a name is a date or the like, or its text."""
    return of.kind in _CHECKABLE and (of.kind != "str" or not of.name)


def _validates(agent: AgentDefinition, method: MethodSpec, names: set[str], wiring: Wiring) -> bool:
    span = method.span
    inside = SourceSpan(span.path, span.end_line, max(span.end_column - 1, 0), span.end_line, span.end_column)
    try:
        function = Symbol.at(wiring.evidence, inside).function
    except Refused:
        return True
    return any(_looks_at(node, names) for node in ast.walk(function))


def _looks_at(node: ast.AST, names: set[str]) -> bool:
    """A condition on an argument, or a call by a name that speaks of checking."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return _mentions(node.test, names)
    if isinstance(node, ast.Match):
        return _mentions(node.subject, names)
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", "")).lower()
        return any(word in name for word in _CHECKING) and _mentions(node, names)
    return False


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))
