"""Constant expressions: the value that an expression has in every run, and where it is written."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from graphbus_core.compiler.reading.modules import (
    ClassSite,
    DefinedName,
    External,
    NameScope,
    family_of,
    resolve,
)

_MAX_DEPTH = 12
TEXT_BASES = frozenset({"enum.StrEnum", "builtins.str"})
"""Bases of Enums whose members are texts themselves."""


class _NotConstant:
    __slots__ = ()


NOT_CONSTANT: Final = _NotConstant()
_ENUM_BASES = frozenset({"enum.Enum", "enum.StrEnum", "enum.IntEnum", "enum.Flag", "enum.IntFlag"})


def evaluate_constant(expression: ast.expr, scope: NameScope, depth: int = 0) -> object:
    """Return the value of a constant expression (text, number, truth value or None), or `NOT_CONSTANT`."""
    reader = _EVALUATORS.get(expression.__class__)
    return reader(expression, scope, depth + 1) if reader is not None and depth <= _MAX_DEPTH else NOT_CONSTANT


def text_of(expression: ast.expr | None, scope: NameScope) -> str | None:
    """Return the text that an expression always has, or None."""
    value = evaluate_constant(expression, scope) if expression is not None else None
    return value if isinstance(value, str) else None


def _literal(expression: ast.Constant, scope: NameScope, depth: int) -> object:
    return expression.value


def _negative(expression: ast.UnaryOp, scope: NameScope, depth: int) -> object:
    value = evaluate_constant(expression.operand, scope, depth)
    return -value if isinstance(expression.op, ast.USub) and isinstance(value, int | float) else NOT_CONSTANT


def _named(expression: ast.Name | ast.Attribute, scope: NameScope, depth: int) -> object:
    if isinstance(expression, ast.Attribute) and expression.attr == "value":
        member = resolve(expression.value, scope)
        if isinstance(member, DefinedName) and _is_enum_member(member, scope):
            return _symbol_value(member, scope, depth)
    target = resolve(expression, scope)
    if not isinstance(target, DefinedName):
        return NOT_CONSTANT
    if _is_enum_member(target, scope) and not _enum_bases(target, scope) & TEXT_BASES:
        return NOT_CONSTANT
    return _symbol_value(target, scope, depth)


def _symbol_value(symbol: DefinedName, scope: NameScope, depth: int) -> object:
    if not isinstance(symbol.node, ast.expr) or is_rebound(symbol):
        return NOT_CONSTANT
    return evaluate_constant(symbol.node, home_of(symbol, scope), depth)


def home_of(symbol: DefinedName, scope: NameScope) -> NameScope:
    """Return the surroundings that a symbol is written in: a class body, or the top level of a module."""
    site = (ClassSite(symbol.module, symbol.owner),) if symbol.owner else ()
    return NameScope(scope.library, symbol.module, site, in_class_body=bool(site))


def is_rebound(symbol: DefinedName) -> bool:
    """Return whether the name of a symbol is bound more than once."""
    bindings = symbol.module.class_bindings(symbol.owner) if symbol.owner else symbol.module.bindings
    return bindings.rebinds(symbol.node)


def follow_constant(expression: ast.expr, scope: NameScope, depth: int = 0) -> tuple[ast.expr, NameScope]:
    """Return the expression that a name or an entry of a constant dict always stands for, and where it is written.

    Where that is not certain it is the expression itself.
    """
    found = None
    if depth <= _MAX_DEPTH:
        is_entry = isinstance(expression, ast.Subscript)
        found = _entry(expression, scope, depth + 1) if is_entry else _assigned(expression, scope)  # type: ignore[arg-type]
    return follow_constant(*found, depth + 1) if found else (expression, scope)


def _assigned(expression: ast.expr, scope: NameScope) -> tuple[ast.expr, NameScope] | None:
    is_value = isinstance(expression, ast.Attribute) and expression.attr == "value"
    member = resolve(expression.value, scope) if is_value else None  # type: ignore[attr-defined]
    is_member = isinstance(member, DefinedName) and _is_enum_member(member, scope)
    target = member if is_member else resolve(expression, scope)
    if not isinstance(target, DefinedName) or not isinstance(target.node, ast.expr):
        return None
    if (_is_enum_member(target, scope) and not is_member) or is_rebound(target):
        return None
    return target.node, home_of(target, scope)


def _entry(expression: ast.Subscript, scope: NameScope, depth: int) -> tuple[ast.expr, NameScope] | None:
    """The value of a constant key in a dict display that nothing in its file changes, or of a number in a tuple."""
    display, inner = _read_only_display(expression.value, scope, depth)
    key = evaluate_constant(expression.slice, scope, depth)
    if isinstance(display, ast.Tuple) and isinstance(key, int):
        return (display.elts[key], inner) if 0 <= key < len(display.elts) else None
    keys = _keys_of(display, expression, inner, scope, depth)
    is_known = isinstance(display, ast.Dict) and key is not NOT_CONSTANT and keys.count(key) == 1
    return (display.values[keys.index(key)], inner) if is_known else None  # type: ignore[attr-defined]


def _keys_of(display: ast.expr, entry: ast.Subscript, inner: NameScope, scope: NameScope, depth: int) -> list[object]:
    """The keys of a dict display that nothing changes; none where one of them is computed, and for anything else."""
    name = getattr(entry.value, "attr", getattr(entry.value, "id", ""))
    if not isinstance(display, ast.Dict) or inner.module.changes(name) or scope.module.changes(name):
        return []
    keys = [evaluate_constant(each, inner, depth) if each else NOT_CONSTANT for each in display.keys]
    return [] if NOT_CONSTANT in keys else keys


def keys_without(entry: ast.Subscript, scope: NameScope) -> list[str]:
    """Return the keys of a constant dict of texts that lacks the key which is looked up; none where that is not certain."""
    key = evaluate_constant(entry.slice, scope)
    display, inner = _read_only_display(entry.value, scope)
    keys = _keys_of(display, entry, inner, scope, 0) if isinstance(key, str) else []
    return [] if key in keys else [each for each in keys if isinstance(each, str)]


def _read_only_display(expression: ast.expr, scope: NameScope, depth: int = 0) -> tuple[ast.expr, NameScope]:
    """Return the display that a name stands for, also one inside `MappingProxyType(...)`, `dict(...)` or `tuple(...)`."""
    display, inner = follow_constant(expression, scope, depth)
    if isinstance(display, ast.Call) and len(display.args) == 1 and dotted_name(display.func, inner) in _READ_ONLY:
        return follow_constant(display.args[0], inner, depth)
    return display, inner


_READ_ONLY = frozenset({"types.MappingProxyType", "builtins.dict", "builtins.tuple"})


def _subscripted(expression: ast.Subscript, scope: NameScope, depth: int) -> object:
    found = _entry(expression, scope, depth)
    return evaluate_constant(*found, depth) if found else NOT_CONSTANT


def _is_enum_member(symbol: DefinedName, scope: NameScope) -> bool:
    return isinstance(symbol.node, ast.expr) and bool(_enum_bases(symbol, scope) & _ENUM_BASES)


def _enum_bases(symbol: DefinedName, scope: NameScope) -> frozenset[str]:
    if symbol.owner is None:
        return frozenset()
    return family_of(scope.library, ClassSite(symbol.module, symbol.owner)).external


def _joined(expression: ast.JoinedStr, scope: NameScope, depth: int) -> object:
    parts: list[str] = []
    for part in expression.values:
        if isinstance(part, ast.FormattedValue):
            if part.conversion not in (-1, ord("s")) or part.format_spec is not None:
                return NOT_CONSTANT
            part = part.value  # noqa: PLW2901 - what stands between the braces
        value = evaluate_constant(part, scope, depth)
        if not isinstance(value, str | int):
            return NOT_CONSTANT
        parts.append(str(value))
    return "".join(parts)


def _sum(expression: ast.BinOp, scope: NameScope, depth: int) -> object:
    if not isinstance(expression.op, ast.Add):
        return NOT_CONSTANT
    left = evaluate_constant(expression.left, scope, depth)
    right = evaluate_constant(expression.right, scope, depth)
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    return NOT_CONSTANT


def _dedented(expression: ast.Call, scope: NameScope, depth: int) -> object:
    """`dedent("...")` and `"...".strip()`, as prompts are often written."""
    function, arguments = expression.func, [*expression.args, *expression.keywords]
    if isinstance(function, ast.Attribute) and function.attr == "strip" and not arguments:
        value = evaluate_constant(function.value, scope, depth)
        return value.strip() if isinstance(value, str) else NOT_CONSTANT
    if len(arguments) != 1 or not expression.args or dotted_name(function, scope) != "textwrap.dedent":
        return NOT_CONSTANT
    import textwrap

    value = evaluate_constant(expression.args[0], scope, depth)
    return textwrap.dedent(value) if isinstance(value, str) else NOT_CONSTANT


def dotted_name(expression: ast.expr, scope: NameScope) -> str:
    """Return the dotted name of what an expression stands for outside of the project; empty for anything else."""
    target = resolve(expression, scope)
    return target.dotted if isinstance(target, External) else ""


_EVALUATORS: dict[type, Callable[[Any, NameScope, int], object]] = {
    ast.Attribute: _named,
    ast.BinOp: _sum,
    ast.Call: _dedented,
    ast.Constant: _literal,
    ast.JoinedStr: _joined,
    ast.Name: _named,
    ast.Subscript: _subscripted,
    ast.UnaryOp: _negative,
}
