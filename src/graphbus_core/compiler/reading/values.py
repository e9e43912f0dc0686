"""What expressions in a method are worth: types of values, and the fields of dict displays that are sent or returned."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from graphbus_core.compiler.reading.annotations import NOT_CONSTANT, evaluate
from graphbus_core.compiler.reading.bodies import Body
from graphbus_core.compiler.reading.modules import External, Scope, resolve
from graphbus_core.schema.types import (
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    LIST,
    NULL,
    STR,
    UNKNOWN,
    Field,
    Schema,
    Type,
    union,
)

_MAX_DEPTH = 8
_CALLS = {
    **{f"builtins.{name}": STR for name in ("str", "repr", "chr")},
    **{f"builtins.{name}": INT for name in ("len", "int", "ord", "hash", "id")},
    **{f"builtins.{name}": BOOL for name in ("bool", "isinstance", "any", "all")},
    "builtins.list": LIST,
    "builtins.sorted": LIST,
    "builtins.dict": DICT,
    "builtins.bytes": BYTES,
    "builtins.float": FLOAT,
    "builtins.set": Type("set"),
    "builtins.tuple": Type("tuple"),
    **dict.fromkeys(("time.time", "time.monotonic", "time.perf_counter"), FLOAT),
}
_COPYING = frozenset({External("copy.copy"), External("copy.deepcopy")})
_LITERALS: dict[type, Type] = {str: STR, int: INT, float: FLOAT, bool: BOOL, bytes: BYTES, type(None): NULL}
_BARE = {"list": LIST, "dict": DICT, "record": DICT, "set": Type("set")}


class View(msgspec.Struct, frozen=True):
    """A method as its expressions see it: where it stands, what its body binds, what its parameters are annotated with."""

    scope: Scope
    body: Body
    parameters: Mapping[str, Type]


def infer(expression: ast.expr, view: View, depth: int = 0) -> Type:
    """Give the type of an expression's value; unknown unless it is certain, annotations of parameters believed."""
    reader = _READERS.get(expression.__class__)
    if reader is None or depth > _MAX_DEPTH:
        return _ALWAYS.get(expression.__class__, UNKNOWN)
    return reader(expression, view, depth + 1)


def _name(expression: ast.Name, view: View, depth: int) -> Type:
    name = expression.id
    if name in view.body.bound:
        value = view.body.bound_once(name) if name not in view.parameters else None
        if value is None:
            return UNKNOWN
        return _bare(infer(value, view, depth))
    return view.parameters[name] if name in view.parameters else _constant(expression, view, depth)


def _constant(expression: ast.expr, view: View, depth: int) -> Type:
    return _LITERALS.get(type(evaluate(expression, view.scope)), UNKNOWN)


def _bare(found: Type) -> Type:
    """What is certain of a mutable value that others may have changed since: only what kind of container it is."""
    return union(*map(_bare, found.args)) if found.kind == "union" else _BARE.get(found.kind, found)


def _list(expression: ast.List, view: View, depth: int) -> Type:
    found = {infer(each, view, depth) for each in expression.elts}
    item = found.pop() if len(found) == 1 else UNKNOWN
    return LIST if item.kind == "unknown" else Type("list", (item,))


def _dict(expression: ast.Dict, view: View, depth: int) -> Type:
    schema = _read_display(expression, view, depth)
    if schema is None or schema.is_open or not schema.fields:
        return DICT
    return Type("record", fields=schema.fields)


def _call(expression: ast.Call, view: View, depth: int) -> Type:
    if isinstance(expression.func, ast.Name) and expression.func.id in view.body.bound:
        return UNKNOWN
    target = resolve(expression.func, view.scope)
    if not isinstance(target, External):
        return UNKNOWN
    if target.dotted == "builtins.round" and expression.args:
        value, has_digits = infer(expression.args[0], view, depth), len(expression.args) + len(expression.keywords) > 1
        return UNKNOWN if value.kind not in ("int", "float") else value if has_digits else INT
    if target.dotted == "builtins.dict" and expression.keywords:
        schema = _read_dict_call(expression, view, depth)
        if schema is not None and not schema.is_open:
            return Type("record", fields=schema.fields)
    return _CALLS.get(target.dotted, UNKNOWN)


def _operation(expression: ast.BinOp, view: View, depth: int) -> Type:
    left = infer(expression.left, view, depth)
    if left == STR and isinstance(expression.op, ast.Mod):
        return STR
    right = infer(expression.right, view, depth)
    if left.name or right.name:  # a date plus a duration is no text
        return UNKNOWN
    kinds = {left.kind, right.kind}
    if kinds == {"str"} and isinstance(expression.op, ast.Add):
        return STR
    if not kinds <= {"int", "float"} or isinstance(expression.op, ast.Pow):
        return UNKNOWN
    return FLOAT if "float" in kinds or isinstance(expression.op, ast.Div) else INT


def _not(expression: ast.UnaryOp, view: View, depth: int) -> Type:
    if isinstance(expression.op, ast.Not):
        return BOOL
    value = infer(expression.operand, view, depth)
    return value if value.kind in ("int", "float") else UNKNOWN


def _compare(expression: ast.Compare, view: View, depth: int) -> Type:
    if all(isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot) for operator in expression.ops):
        return BOOL
    sides = [expression.left, *expression.comparators]
    plain = ("int", "float", "str", "bool")
    return BOOL if all(infer(side, view, depth).kind in plain for side in sides) else UNKNOWN


def _either(expression: ast.IfExp, view: View, depth: int) -> Type:
    return union(infer(expression.body, view, depth), infer(expression.orelse, view, depth))


_ALWAYS = {
    ast.DictComp: DICT,
    ast.JoinedStr: STR,
    ast.ListComp: LIST,
    ast.Set: Type("set"),
    ast.SetComp: Type("set"),
    ast.Tuple: Type("tuple"),
}
_READERS: dict[type, Callable[[Any, View, int], Type]] = {
    ast.Attribute: _constant,
    ast.BinOp: _operation,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.IfExp: _either,
    ast.List: _list,
    ast.Name: _name,
    ast.UnaryOp: _not,
}


# --- dict displays --------------------------------------------------------------------


def read_fields(expression: ast.expr | None, view: View, depth: int = 0) -> Schema | None:
    """Give the fields of a dict display, a `dict(...)` call, a name bound once to one, and of a copy of these; else None."""
    if expression is None or depth > _MAX_DEPTH:
        return None
    if isinstance(expression, ast.Dict):
        return _read_display(expression, view, depth + 1)
    if isinstance(expression, ast.Call):
        return _read_call(expression, view, depth + 1)
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitOr):
        sides = [expression.left, expression.right]
        is_dict = any(read_fields(side, view, depth + 1) is not None for side in sides)
        return _read_display(ast.Dict(keys=[None, None], values=sides), view, depth + 1) if is_dict else None
    if isinstance(expression, ast.Name):
        return _read_local(expression.id, view, depth + 1)
    return None


def _read_call(expression: ast.Call, view: View, depth: int) -> Schema | None:
    """`dict(...)`, `copy.copy(x)` and `x.copy()`."""
    function = expression.func
    if isinstance(function, ast.Attribute) and function.attr == "copy" and not expression.args:
        return read_fields(function.value, view, depth)
    target = resolve(function, view.scope)
    if target == External("builtins.dict"):
        return _read_dict_call(expression, view, depth)
    is_copy = target in _COPYING and len(expression.args) == 1 and not expression.keywords
    return read_fields(expression.args[0], view, depth) if is_copy else None


def _read_display(expression: ast.Dict, view: View, depth: int) -> Schema | None:
    """Give the fields of a dict display; None when a key is no text."""
    fields: dict[str, Field] = {}
    is_open = False
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            spread = read_fields(value, view, depth)
            is_open = is_open or spread is None or spread.is_open
            if spread is None or spread.is_open:  # it may replace what stands before it
                fields = {name: Field(name, UNKNOWN, field.required) for name, field in fields.items()}
            fields |= {field.name: field for field in (spread.fields if spread else ())}
            continue
        name = key.value if isinstance(key, ast.Constant) else evaluate(key, view.scope)
        if isinstance(name, str):
            fields[name] = Field(name, infer(value, view, depth))
        elif name is NOT_CONSTANT:
            is_open = True
        else:
            return None
    return Schema(tuple(fields.values()), is_open)


def _read_dict_call(expression: ast.Call, view: View, depth: int) -> Schema | None:
    """`dict(base, key=value, **more)` is `{**base, "key": value, **more}`."""
    if len(expression.args) > 1:
        return None
    pairs: list[tuple[ast.expr | None, ast.expr]] = [(None, base) for base in expression.args]
    pairs += [(ast.Constant(each.arg) if each.arg else None, each.value) for each in expression.keywords]
    return _read_display(ast.Dict([key for key, _ in pairs], [value for _, value in pairs]), view, depth)


def _read_local(name: str, view: View, depth: int) -> Schema | None:
    """A name that is bound once to a display and then only read, or given further keys."""
    value = view.body.bound_once(name)
    if value is None or name in view.parameters or view.body.escapes(name) or isinstance(value, ast.Name):
        return None
    schema = read_fields(value, view, depth)
    if schema is None:
        return None
    fields = {field.name: field for field in schema.fields}
    for access in view.body.accesses:
        if access.name == name and access.how in ("read", "write"):
            key = evaluate(access.key, view.scope)
            if not isinstance(key, str) or isinstance(getattr(access.node, "ctx", None), ast.Del):
                return None
            _touch(fields, key, is_written=access.how == "write")
    return Schema(tuple(fields.values()), schema.is_open)


def _touch(fields: dict[str, Field], key: str, *, is_written: bool) -> None:
    """What is known of a field after its key was used somewhere: a write may add or replace it, a read may lead to a change."""
    field = fields.get(key)
    if is_written:
        fields[key] = Field(key, UNKNOWN, field is not None and field.required)
    elif field is not None:
        fields[key] = Field(key, _bare(field.type), field.required)
