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
    """The class of `NOT_CONSTANT`, which stands for "no constant value", since None is a constant."""

    __slots__ = ()


NOT_CONSTANT: Final = _NotConstant()
_ENUM_BASES = frozenset({"enum.Enum", "enum.StrEnum", "enum.IntEnum", "enum.Flag", "enum.IntFlag"})


def evaluate_constant(expression: ast.expr, scope: NameScope, depth: int = 0) -> object:
    """Return the value of a constant expression (text, number, boolean or None), or `NOT_CONSTANT`."""
    reader = _EVALUATORS.get(expression.__class__)
    return reader(expression, scope, depth + 1) if reader is not None and depth <= _MAX_DEPTH else NOT_CONSTANT


def text_of(expression: ast.expr | None, scope: NameScope) -> str | None:
    """Return the text that an expression always has; None if there is no expression, or if its value is not a constant text."""
    value = evaluate_constant(expression, scope) if expression is not None else None
    return value if isinstance(value, str) else None


def _evaluate_literal(expression: ast.Constant, scope: NameScope, depth: int) -> object:
    return expression.value


def _evaluate_negation(expression: ast.UnaryOp, scope: NameScope, depth: int) -> object:
    """Return the value of `-number`; `NOT_CONSTANT` for any other unary operation."""
    value = evaluate_constant(expression.operand, scope, depth)
    return -value if isinstance(expression.op, ast.USub) and isinstance(value, int | float) else NOT_CONSTANT


def _evaluate_name(expression: ast.Name | ast.Attribute, scope: NameScope, depth: int) -> object:
    """Return the value that a name or attribute always has.

    `Color.RED.value` is a constant. `Color.RED` itself is one only if the members of the Enum are texts.
    """
    if isinstance(expression, ast.Attribute) and expression.attr == "value":
        member = resolve(expression.value, scope)
        if isinstance(member, DefinedName) and _is_enum_member(member, scope):
            return _evaluate_defined_name(member, scope, depth)
    target = resolve(expression, scope)
    if not isinstance(target, DefinedName):
        return NOT_CONSTANT
    if _is_enum_member(target, scope) and not _external_bases(target, scope) & TEXT_BASES:
        return NOT_CONSTANT
    return _evaluate_defined_name(target, scope, depth)


def _evaluate_defined_name(symbol: DefinedName, scope: NameScope, depth: int) -> object:
    """Return the value that is assigned to a symbol; `NOT_CONSTANT` if it is a class or function, or bound more than once."""
    if not isinstance(symbol.node, ast.expr) or is_rebound(symbol):
        return NOT_CONSTANT
    return evaluate_constant(symbol.node, home_of(symbol, scope), depth)


def home_of(symbol: DefinedName, scope: NameScope) -> NameScope:
    """Return the scope in which a symbol is written: that of its class body, or of the top level of its module."""
    site = (ClassSite(symbol.module, symbol.owner),) if symbol.owner else ()
    return NameScope(scope.library, symbol.module, site, in_class_body=bool(site))


def is_rebound(symbol: DefinedName) -> bool:
    """True if the name of a symbol is bound more than once."""
    bindings = symbol.module.class_bindings(symbol.owner) if symbol.owner else symbol.module.bindings
    return bindings.rebinds(symbol.node)


def follow_constant(expression: ast.expr, scope: NameScope, depth: int = 0) -> tuple[ast.expr, NameScope]:
    """Return the expression that `NAME`, `DICT["key"]` or `TUPLE[0]` always stands for, and the scope of that expression.

    Names are followed repeatedly. Where the value is not certain, the last expression that was reached is returned.
    """
    found = None
    if depth <= _MAX_DEPTH:
        is_entry = isinstance(expression, ast.Subscript)
        found = _follow_entry(expression, scope, depth + 1) if is_entry else _follow_name(expression, scope)  # type: ignore[arg-type]
    return follow_constant(*found, depth + 1) if found else (expression, scope)


def _follow_name(expression: ast.expr, scope: NameScope) -> tuple[ast.expr, NameScope] | None:
    """Return the only expression that is assigned to a name, and its scope; None if there is none, or more than one.

    A member of an Enum is not followed, because it is not its value; `member.value` is.
    """
    is_value = isinstance(expression, ast.Attribute) and expression.attr == "value"
    member = resolve(expression.value, scope) if is_value else None  # type: ignore[attr-defined]
    is_member = isinstance(member, DefinedName) and _is_enum_member(member, scope)
    target = member if is_member else resolve(expression, scope)
    if not isinstance(target, DefinedName) or not isinstance(target.node, ast.expr):
        return None
    if (_is_enum_member(target, scope) and not is_member) or is_rebound(target):
        return None
    return target.node, home_of(target, scope)


def _follow_entry(expression: ast.Subscript, scope: NameScope, depth: int) -> tuple[ast.expr, NameScope] | None:
    """Return the expression at a constant key of a dict, or at a constant index of a tuple, and its scope.

    None if the container is not a constant display, if a file may change it, or if the key is missing or occurs twice.
    """
    display, inner = _unwrap_display(expression.value, scope, depth)
    key = evaluate_constant(expression.slice, scope, depth)
    if isinstance(display, ast.Tuple) and isinstance(key, int):
        return (display.elts[key], inner) if 0 <= key < len(display.elts) else None
    keys = _constant_keys(display, expression, inner, scope, depth)
    is_known = isinstance(display, ast.Dict) and key is not NOT_CONSTANT and keys.count(key) == 1
    return (display.values[keys.index(key)], inner) if is_known else None  # type: ignore[attr-defined]


def _constant_keys(
    display: ast.expr, entry: ast.Subscript, inner: NameScope, scope: NameScope, depth: int
) -> list[object]:
    """Return the keys of `display`, written in `inner`, for which the name in `entry`, `NAME[key]` in `scope`, stands.

    No keys if one of them is computed, if one of both files changes the dict, or if `display` is not a dict display.
    """
    name = getattr(entry.value, "attr", getattr(entry.value, "id", ""))
    if not isinstance(display, ast.Dict) or inner.module.changes(name) or scope.module.changes(name):
        return []
    keys = [evaluate_constant(each, inner, depth) if each else NOT_CONSTANT for each in display.keys]
    return [] if NOT_CONSTANT in keys else keys


def keys_without(entry: ast.Subscript, scope: NameScope) -> list[str]:
    """Return the keys of the constant dict in `DICT["key"]` if it certainly lacks this key; else an empty list."""
    key = evaluate_constant(entry.slice, scope)
    display, inner = _unwrap_display(entry.value, scope)
    keys = _constant_keys(display, entry, inner, scope, 0) if isinstance(key, str) else []
    return [] if key in keys else [each for each in keys if isinstance(each, str)]


def _unwrap_display(expression: ast.expr, scope: NameScope, depth: int = 0) -> tuple[ast.expr, NameScope]:
    """Return the expression that a name stands for, and its scope; `x` for `MappingProxyType(x)`, `dict(x)` and `tuple(x)`."""
    display, inner = follow_constant(expression, scope, depth)
    if isinstance(display, ast.Call) and len(display.args) == 1 and dotted_name(display.func, inner) in _READ_ONLY:
        return follow_constant(display.args[0], inner, depth)
    return display, inner


def constant_dict(expression: ast.expr, scope: NameScope) -> tuple[ast.Dict, NameScope] | None:
    """Return the dict display that a global name or class attribute always stands for, and the scope of the display.

    None for anything else, and if a file may change the dict.
    """
    display, inner = _unwrap_display(expression, scope)
    name = getattr(expression, "attr", getattr(expression, "id", ""))
    is_changed = inner.module.changes(name) or scope.module.changes(name)
    return (display, inner) if isinstance(display, ast.Dict) and display is not expression and not is_changed else None


_READ_ONLY = frozenset({"types.MappingProxyType", "builtins.dict", "builtins.tuple"})


def _evaluate_subscript(expression: ast.Subscript, scope: NameScope, depth: int) -> object:
    """Return the value of `DICT["key"]` or `TUPLE[0]`; `NOT_CONSTANT` if the container or the entry is not certain."""
    found = _follow_entry(expression, scope, depth)
    return evaluate_constant(*found, depth) if found else NOT_CONSTANT


def _is_enum_member(symbol: DefinedName, scope: NameScope) -> bool:
    return isinstance(symbol.node, ast.expr) and bool(_external_bases(symbol, scope) & _ENUM_BASES)


def _external_bases(symbol: DefinedName, scope: NameScope) -> frozenset[str]:
    """Return the dotted names of the bases outside of the project that the class around a symbol has; none without a class."""
    if symbol.owner is None:
        return frozenset()
    return family_of(scope.library, ClassSite(symbol.module, symbol.owner)).external


def _evaluate_f_string(expression: ast.JoinedStr, scope: NameScope, depth: int) -> object:
    """Return the text of an f-string; `NOT_CONSTANT` unless all its parts are constant texts or ints without a format."""
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


def _evaluate_concatenation(expression: ast.BinOp, scope: NameScope, depth: int) -> object:
    """Return `left + right` of two constant texts; `NOT_CONSTANT` for any other operation."""
    if not isinstance(expression.op, ast.Add):
        return NOT_CONSTANT
    left = evaluate_constant(expression.left, scope, depth)
    right = evaluate_constant(expression.right, scope, depth)
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    return NOT_CONSTANT


def _evaluate_text_call(expression: ast.Call, scope: NameScope, depth: int) -> object:
    """Evaluate `dedent("...")` and `"...".strip()`, as prompts are often written."""
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
    """Return the dotted name of the thing outside of the project that an expression stands for; `""` for anything else."""
    target = resolve(expression, scope)
    return target.dotted if isinstance(target, External) else ""


_EVALUATORS: dict[type, Callable[[Any, NameScope, int], object]] = {
    ast.Attribute: _evaluate_name,
    ast.BinOp: _evaluate_concatenation,
    ast.Call: _evaluate_text_call,
    ast.Constant: _evaluate_literal,
    ast.JoinedStr: _evaluate_f_string,
    ast.Name: _evaluate_name,
    ast.Subscript: _evaluate_subscript,
    ast.UnaryOp: _evaluate_negation,
}
