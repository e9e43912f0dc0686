"""What the variable of a loop over constants may be: `for key in ("id", "total")`, `for name, part in PARTS.items()`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from graphbus_core.compiler.reading.constants import constant_dict, evaluate_constant, follow_constant
from graphbus_core.compiler.reading.standard import types_of_targets
from graphbus_core.compiler.reading.views import NO_BODY, FunctionView, is_name
from graphbus_core.schema.types import Field, Schema, Type

_MOST_ITEMS = 100


def constants_of(expression: ast.expr, view: FunctionView) -> list[object]:
    """Return the values that a constant expression or the variable of a loop over constants may have; else `NOT_CONSTANT`."""
    source, home = view.source_of(expression)
    items = constant_items(source.value, home) if isinstance(source, ast.Starred) else None
    if items is None:
        return [evaluate_constant(expression, view.scope)]
    return [evaluate_constant(each, inner.scope) for each, inner in items]


def constant_items(iterable: ast.expr, view: FunctionView) -> Sequence[tuple[ast.expr, FunctionView]] | None:
    """Return the expression of each item of a display, or of the `items()`, `keys()` or `values()` of one, with its view.

    None unless the display is written in place, or held by a name whose value nothing changes.
    """
    part = ""
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute) and not iterable.args:
        part, iterable = iterable.func.attr, iterable.func.value
    display, home = _display_of(iterable, view)
    items: list[ast.expr] = []
    if isinstance(display, ast.Dict):
        keys = [each for each in display.keys if each]
        pairs = [ast.Tuple([key, value], ast.Load()) for key, value in zip(keys, display.values, strict=False)]
        known: dict[str, Sequence[ast.expr]] = {"": keys, "keys": keys, "values": display.values, "items": pairs}
        items = list(known.get(part, ())) if len(keys) == len(display.values) else []
    elif isinstance(display, ast.Tuple | ast.List | ast.Set) and not part:
        items = [] if any(isinstance(each, ast.Starred) for each in display.elts) else display.elts
    return [(each, home) for each in items] if 0 < len(items) <= _MOST_ITEMS else None


def read_comprehension(
    expression: ast.DictComp, view: FunctionView, infer: Callable[[ast.expr, FunctionView], Type]
) -> Schema | None:
    """Return the fields of a dict comprehension over constants; else None. `infer` gives the type of an expression."""
    loop = expression.generators[0]
    is_simple = len(expression.generators) == 1 and not loop.ifs
    fields: dict[str, Field] = {}
    for item, home in (constant_items(loop.iter, view) or ()) if is_simple else ():
        names = types_of_targets(loop.target, infer(item, home))
        inner = view.replace(items={**view.items, **names})
        key = infer(expression.key, inner)
        if key.kind != "str" or len(key.values) != 1:
            return None
        fields[str(key.values[0])] = Field(str(key.values[0]), infer(expression.value, inner))
    return Schema(tuple(fields.values())) if fields else None


def _display_of(expression: ast.expr, view: FunctionView) -> tuple[ast.expr, FunctionView]:
    """Return the display that a name holds for certain, and the view in which it is written; else the expression itself."""
    if isinstance(expression, ast.Name) and expression.id in view.body.bound:
        is_certain = not view.body.escapes(expression.id) and not _is_changed(expression.id, view)
        return view.source_of(expression) if is_certain else (expression, view)
    found = constant_dict(expression, view.scope)
    source, scope = found or follow_constant(expression, view.scope)
    is_mutable = isinstance(source, ast.Dict | ast.List | ast.Set) and source is not expression and not found
    known = view.replace(scope=scope, body=NO_BODY, parameters={}) if source is not expression else view
    return (expression, view) if is_mutable else (source, known)


def _is_changed(name: str, view: FunctionView) -> bool:
    """True if a key is stored in the value of a name, or a method may change it."""
    calls = (*view.body.changes, *view.body.method_calls)
    is_called = any(is_name(each.func.value, name) and each.func.attr not in _READING for each in calls)  # type: ignore[attr-defined]
    return is_called or any(each.name == name and each.how == "write" for each in view.body.accesses)


_READING = frozenset({"items", "keys", "values", "get", "index", "count"})
