"""The value of an expression when it is the same in every run: literals, constants by name, their sums and f-strings.

Everything else is `NOT_CONSTANT`; nothing is ever guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from graphbus_core.compiler.reading.modules import External, Symbol
from graphbus_core.compiler.reading.scopes import ClassSite, Scope, family_of, resolve


class _NotConstant:
    __slots__ = ()


NOT_CONSTANT: Final = _NotConstant()
_MAX_DEPTH = 20
_STRING_ENUMS = frozenset({"enum.StrEnum", "builtins.str"})
_ENUMS = frozenset({"enum.Enum", "enum.StrEnum", "enum.IntEnum", "enum.Flag", "enum.IntFlag"})
_DEDENT = "textwrap.dedent"


def evaluate(expression: ast.expr, scope: Scope, depth: int = 0) -> object:
    """Give the value of a constant expression (text, number, truth value or None), or `NOT_CONSTANT`."""
    reader = _READERS.get(expression.__class__)
    return reader(expression, scope, depth + 1) if reader is not None and depth <= _MAX_DEPTH else NOT_CONSTANT


def text_of(expression: ast.expr | None, scope: Scope) -> str | None:
    """Give the text that an expression always has, or None."""
    value = evaluate(expression, scope) if expression is not None else None
    return value if isinstance(value, str) else None


def _literal(expression: ast.Constant, scope: Scope, depth: int) -> object:
    return expression.value


def _negative(expression: ast.UnaryOp, scope: Scope, depth: int) -> object:
    value = evaluate(expression.operand, scope, depth)
    return -value if isinstance(expression.op, ast.USub) and isinstance(value, int | float) else NOT_CONSTANT


def _named(expression: ast.Name | ast.Attribute, scope: Scope, depth: int) -> object:
    if isinstance(expression, ast.Attribute) and expression.attr == "value":
        member = resolve(expression.value, scope)
        if isinstance(member, Symbol) and _is_enum_member(member, scope):
            return _symbol_value(member, scope, depth)
    target = resolve(expression, scope)
    if not isinstance(target, Symbol):
        return NOT_CONSTANT
    if _is_enum_member(target, scope) and not _enum_bases(target, scope) & _STRING_ENUMS:
        return NOT_CONSTANT
    return _symbol_value(target, scope, depth)


def _symbol_value(symbol: Symbol, scope: Scope, depth: int) -> object:
    if not isinstance(symbol.node, ast.expr) or _is_rebound(symbol):
        return NOT_CONSTANT
    if symbol.owner is not None:
        site = ClassSite(symbol.module, symbol.owner)
        inner = Scope(scope.library, symbol.module, (site,), in_class_body=True)
    else:
        inner = Scope(scope.library, symbol.module)
    return evaluate(symbol.node, inner, depth)


def _is_rebound(symbol: Symbol) -> bool:
    bindings = symbol.module.class_bindings(symbol.owner) if symbol.owner else symbol.module.bindings
    name = next((name for name, binding in bindings.first.items() if binding is symbol.node), "")
    return not name or name in bindings.rebound


def _is_enum_member(symbol: Symbol, scope: Scope) -> bool:
    return isinstance(symbol.node, ast.expr) and bool(_enum_bases(symbol, scope) & _ENUMS)


def _enum_bases(symbol: Symbol, scope: Scope) -> frozenset[str]:
    if symbol.owner is None:
        return frozenset()
    return family_of(scope.library, ClassSite(symbol.module, symbol.owner)).external


def _joined(expression: ast.JoinedStr, scope: Scope, depth: int) -> object:
    parts: list[str] = []
    for part in expression.values:
        if isinstance(part, ast.FormattedValue):
            if part.conversion not in (-1, ord("s")) or part.format_spec is not None:
                return NOT_CONSTANT
            part = part.value  # noqa: PLW2901 - what stands between the braces
        value = evaluate(part, scope, depth)
        if not isinstance(value, str | int):
            return NOT_CONSTANT
        parts.append(str(value))
    return "".join(parts)


def _sum(expression: ast.BinOp, scope: Scope, depth: int) -> object:
    if not isinstance(expression.op, ast.Add):
        return NOT_CONSTANT
    left = evaluate(expression.left, scope, depth)
    right = evaluate(expression.right, scope, depth)
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    return NOT_CONSTANT


def _dedented(expression: ast.Call, scope: Scope, depth: int) -> object:
    """`dedent("...")` and `"...".strip()`, as prompts are often written."""
    function = expression.func
    if isinstance(function, ast.Attribute) and function.attr == "strip" and not expression.args:
        value = evaluate(function.value, scope, depth)
        return value.strip() if isinstance(value, str) else NOT_CONSTANT
    if len(expression.args) != 1 or expression.keywords:
        return NOT_CONSTANT
    target = resolve(function, scope)
    if not isinstance(target, External) or target.dotted != _DEDENT:
        return NOT_CONSTANT
    value = evaluate(expression.args[0], scope, depth)
    if not isinstance(value, str):
        return NOT_CONSTANT
    import textwrap

    return textwrap.dedent(value)


_READERS: dict[type, Callable[[Any, Scope, int], object]] = {
    ast.Attribute: _named,
    ast.BinOp: _sum,
    ast.Call: _dedented,
    ast.Constant: _literal,
    ast.JoinedStr: _joined,
    ast.Name: _named,
    ast.UnaryOp: _negative,
}
