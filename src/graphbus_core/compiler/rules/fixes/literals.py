"""Is a value that is written in the code one of a type, as a type checker sees it? A tuple is no list there."""

from __future__ import annotations

import ast

from graphbus_core.schema.types import UNKNOWN, Type

_MAKERS = {"list": "list", "dict": "dict", "set": "set", "tuple": "tuple"}


def is_one_of(wanted: Type, value: ast.expr) -> bool:
    """Tell whether a value surely is of a type; one that is computed may be anything, and so is not."""
    if wanted.kind in ("unknown", "any"):
        return True
    if wanted.kind == "union":
        return any(is_one_of(choice, value) for choice in wanted.args)
    return (
        _is_member_of(wanted, value) if wanted.kind in ("str", "literal") and wanted.name else _is_plain(wanted, value)
    )


def _is_member_of(wanted: Type, value: ast.expr) -> bool:
    """True for a member of an Enum by its name: its words are none, and a text is no date."""
    is_attribute = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name)
    return is_attribute and wanted.kind == "literal" and ast.unparse(value.value) == wanted.name  # type: ignore[attr-defined]


def _is_plain(wanted: Type, value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand) and is_one_of(wanted, value.operand)
    if isinstance(value, ast.Constant):
        return _is_constant_of(wanted, value.value)
    if isinstance(value, ast.Call):
        is_empty = not value.args and not value.keywords
        return (
            is_empty and isinstance(value.func, ast.Name) and _MAKERS.get(value.func.id) == (wanted.name or wanted.kind)
        )
    return _is_display_of(wanted, value)


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def _is_constant_of(wanted: Type, value: object) -> bool:
    if wanted.kind == "literal":
        return any(value == choice and type(value) is type(choice) for choice in wanted.values)
    if value is None:
        return wanted.kind == "null"
    return type(value).__name__ == wanted.kind or (wanted.kind == "float" and type(value) is int)


def _is_display_of(wanted: Type, value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        keys, values = wanted.args if len(wanted.args) == 2 else (UNKNOWN, UNKNOWN)
        are_keys = all(key is not None and is_one_of(keys, key) for key in value.keys)
        return wanted.kind == "dict" and are_keys and all(is_one_of(values, item) for item in value.values)
    if isinstance(value, ast.List | ast.Set):
        item = wanted.args[0] if wanted.args else UNKNOWN
        kind = "list" if isinstance(value, ast.List) else "set"
        return (wanted.name or wanted.kind) == kind and all(is_one_of(item, each) for each in value.elts)
    if wanted.kind == "list" and wanted.name:  # a tuple of any length
        return isinstance(value, ast.Tuple) and all(is_one_of(wanted.args[0], each) for each in value.elts)
    return isinstance(value, ast.Tuple) and wanted.kind == "tuple" and (not value.elts or not wanted.args)
