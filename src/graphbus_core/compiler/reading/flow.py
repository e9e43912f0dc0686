"""Infers the types of expressions from displays, annotations, and the functions and classes of the project.

Declarations are trusted: the annotation of a parameter, a local name or a function, the fields of a class. The result of another
agent has the kind `result`: the wiring replaces it by the type that this agent declares.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from graphbus_core.compiler.reading.annotations import read_type
from graphbus_core.compiler.reading.bodies import Body, FunctionNode
from graphbus_core.compiler.reading.constants import NOT_CONSTANT, constant_dict, evaluate_constant, home_of, is_rebound
from graphbus_core.compiler.reading.endings import is_stub, reaches_end
from graphbus_core.compiler.reading.loops import read_comprehension
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    DefinedName,
    External,
    NameScope,
    find_member,
    resolve,
    resolve_through,
)
from graphbus_core.compiler.reading.reaching import Reaching, branches_of
from graphbus_core.compiler.reading.standard import (
    COROUTINE,
    PROPERTIES,
    TRANSPARENT,
    item_of,
    of_either,
    of_function,
    of_get,
    of_items,
    of_method,
    of_one,
    of_operation,
    part_of,
    types_of_targets,
    with_fields,
)
from graphbus_core.compiler.reading.views import (
    NO_BODY,
    FunctionView,
    certain_type,
    chain_of,
    chain_of_record,
    converts_values,
    decorators_of,
    fields_of_record,
    find_project_member,
    function_view,
    is_name,
    name_of_result,
    read_once,
    record_of,
    touch_field,
    type_of_constant,
    unless_changed,
    unshared_values,
    without_none,
)
from graphbus_core.schema.compatibility import misfit_reason
from graphbus_core.schema.types import (
    BOOL,
    DICT,
    LIST,
    NULL,
    STR,
    UNKNOWN,
    Field,
    Schema,
    Type,
    union,
    without_constants,
)

_MAX_DEPTH = 8
_MOST_VARIANTS = 4
_MOST_ITEMS = 16
_MOST_HOPS = 3  # from one function without annotation to the next
_COPYING = frozenset({External("copy.copy"), External("copy.deepcopy")})


def infer_type(expression: ast.expr, view: FunctionView, depth: int = 0) -> Type:
    """Return the type of an expression's value; unknown if it is neither certain nor declared, or nested too deeply (`depth`)."""
    reader = _READERS.get(expression.__class__)
    if reader is None or depth > _MAX_DEPTH:
        return _ALWAYS.get(expression.__class__, UNKNOWN)
    return reader(expression, view, depth + 1)


@read_once
def _infer_name(expression: ast.Name, view: FunctionView, depth: int) -> Type:
    """Return the type of a name: of its loop, its annotation, the values that reach this use, or a constant of the module."""
    name = expression.id
    if name in view.items:
        return view.items[name]
    declared = view.parameters.get(name, UNKNOWN) if name not in view.body.bound else UNKNOWN
    if name in view.body.annotations:
        declared = read_type(view.body.annotations[name], view.scope)
    if declared.kind != "unknown":
        known = COROUTINE if _is_coroutine(expression, view, depth) else _apply_changes(declared, name, view, depth)
        return unless_changed(known, name, view)
    if name not in view.body.bound:
        return declared if name in view.parameters else type_of_constant(expression, view.scope)
    values = view.body.values_of(expression) if name not in view.parameters else ()
    types = []
    for value, _ in values:
        is_display = isinstance(value, _DISPLAYS) and view.body.escapes(name)
        types.append(certain_type(infer_type(value, view, depth), is_display=is_display))
    return unless_changed(_apply_changes(union(*types), name, view, depth), name, view) if types else UNKNOWN


def _is_coroutine(name: ast.Name, view: FunctionView, depth: int) -> bool:
    """True if a local name of an `async def` holds a coroutine, whatever the annotation of the name says."""
    values = view.body.values_of(name) if view.body.is_async else ()
    return any(infer_type(value, view, depth) == COROUTINE for value, _ in values if isinstance(value, ast.Call))


def _apply_changes(of: Type, name: str, view: FunctionView, depth: int) -> Type:
    """Return `of`, the type of a local name, with the types of assigned attributes and appended items that contradict it."""
    if of.kind == "record" and any(is_name(each.value, name) for each in view.body.stored):
        values = {each.attr: value for each, value in view.body.stored.items() if is_name(each.value, name)}
        return with_fields(of, {key: infer_type(value, view, depth) for key, value in values.items()})
    if of.kind == "list" and of.args:
        added = [each for each in view.body.method_calls if getattr(each.func, "attr", "") == "append" and each.args]
        for each in added:
            item = infer_type(each.args[0], view, depth) if is_name(each.func.value, name) else UNKNOWN  # type: ignore[attr-defined]
            if misfit_reason(of.args[0], item, is_narrowed=True):
                return Type("list", (item,))
    return of


_DISPLAYS = (ast.List, ast.Set, ast.ListComp, ast.SetComp, ast.Dict, ast.DictComp, ast.IfExp, ast.BoolOp)


def _infer_list(expression: ast.List | ast.Set, view: FunctionView, depth: int) -> Type:
    """Return the type of a list or set display; without item type if the types of its items differ."""
    item = union(*(infer_type(each, view, depth) for each in expression.elts)) if expression.elts else UNKNOWN
    return of_items("list" if isinstance(expression, ast.List) else "set", item if item.kind != "union" else UNKNOWN)


def _infer_tuple(expression: ast.Tuple, view: FunctionView, depth: int) -> Type:
    """Return the type of a tuple display; without the types of its items if it has many: tuples of tuples grow fast."""
    items = expression.elts if len(expression.elts) <= _MOST_ITEMS else ()
    return Type("tuple", tuple(infer_type(each, view, depth) for each in items))


def _infer_comprehension(
    expression: ast.ListComp | ast.SetComp | ast.GeneratorExp, view: FunctionView, depth: int
) -> Type:
    item = infer_type(expression.elt, comprehension_view(expression.generators, view, depth), depth)
    return of_items("set" if isinstance(expression, ast.SetComp) else "list", without_constants(item))


def _infer_dict_comprehension(expression: ast.DictComp, view: FunctionView, depth: int) -> Type:
    """Return the type of a dict comprehension; a plain dict unless the types of its keys and values are both known."""
    known = record_of(read_comprehension(expression, view, partial(infer_type, depth=depth)))
    inner = comprehension_view(expression.generators, view, depth)
    key, value = infer_type(expression.key, inner, depth), infer_type(expression.value, inner, depth)
    is_unknown = "unknown" in (key.kind, value.kind)
    return known or (DICT if is_unknown else without_constants(Type("dict", (key, value))))


def comprehension_view(generators: list[ast.comprehension], view: FunctionView, depth: int = 0) -> FunctionView:
    """Return the view in which the parts of a comprehension are read: `items` has the types of its loop variables."""
    items = dict(view.items)
    for each in generators:
        of = infer_type(each.iter, view.replace(items=items), depth)
        items |= types_of_targets(each.target, item_of(of))
    return view.replace(items=items)


def _infer_operation(expression: ast.BinOp, view: FunctionView, depth: int) -> Type:
    """Return the type of `left | right` if these are dicts, or of an arithmetic operation; else unknown."""
    if isinstance(expression.op, ast.BitOr):
        return record_of(read_fields(expression, view, depth)) or UNKNOWN
    left, right = infer_type(expression.left, view, depth), infer_type(expression.right, view, depth)
    return of_operation(expression.op, left, right)


def _infer_unary(expression: ast.UnaryOp, view: FunctionView, depth: int) -> Type:
    """Return bool for `not x`, and the type of the operand for an operation on a number; else unknown."""
    if isinstance(expression.op, ast.Not):
        return BOOL
    value = infer_type(expression.operand, view, depth)
    return without_constants(value) if value.kind in ("int", "float") else UNKNOWN


def _infer_comparison(expression: ast.Compare, view: FunctionView, depth: int) -> Type:
    """Return bool for a comparison of plain values; other types may define what a comparison returns."""
    if all(isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot) for operator in expression.ops):
        return BOOL
    sides = [expression.left, *expression.comparators]
    plain = ("int", "float", "str", "bool")
    return BOOL if all(infer_type(side, view, depth).kind in plain for side in sides) else UNKNOWN


def _infer_and_or(expression: ast.BoolOp, view: FunctionView, depth: int) -> Type:
    types = [infer_type(value, view, depth) for value in expression.values]
    return of_one(types, is_or=isinstance(expression.op, ast.Or))


def _infer_attribute(expression: ast.Attribute, view: FunctionView, depth: int) -> Type:
    """Return the type of an attribute: a constant, the result of a property, an attribute of `self`, or a field; else unknown."""
    found = type_of_constant(expression, view.scope)
    if found.kind != "unknown":
        return found
    member = find_project_member(expression, view)
    if member is not None and isinstance(member.node, FUNCTIONS):
        return _infer_result(member, view) if decorators_of(member, view) & PROPERTIES else UNKNOWN
    if view.is_self(expression.value) and expression.attr in view.typed:
        return read_type(*view.typed[expression.attr])
    value, home = view.source_of(expression)
    if value is not expression:
        return certain_type(infer_type(value, home, depth), is_display=isinstance(value, _DISPLAYS))
    owner = infer_type(expression.value, view, depth)
    is_hex = (owner.kind, owner.name, expression.attr) == ("str", "UUID", "hex")
    return STR if is_hex else part_of(owner, expression.attr)


def _infer_subscript(expression: ast.Subscript, view: FunctionView, depth: int) -> Type:
    """Return the type of `x[key]`: a constant, an item, a slice, or a field of a record or dict display; else unknown."""
    found = type_of_constant(expression, view.scope)
    if found.kind != "unknown":
        return found
    owner = infer_type(expression.value, view, depth)
    if isinstance(expression.slice, ast.Slice):
        return without_constants(owner) if owner.kind in ("list", "str") else UNKNOWN
    key = evaluate_constant(expression.slice, view.scope)
    if key is NOT_CONSTANT and owner.kind == "list" and infer_type(expression.slice, view, depth).kind == "int":
        return item_of(owner)
    if owner == DICT and isinstance(key, str):
        known = read_fields(expression.value, view, depth)
        field = known.get(key) if known and not known.is_open else None
        return field.type if field and field.required else UNKNOWN
    return part_of(owner, key)


def _infer_call(expression: ast.Call, view: FunctionView, depth: int, *, is_awaited: bool = False) -> Type:
    """Return the type of a call; `COROUTINE` if it returns a coroutine that is not awaited."""
    result_name = name_of_result(expression, view)
    if result_name is not None:
        result = Type("result", name=result_name) if result_name else UNKNOWN
        return COROUTINE if view.body.is_async and not is_awaited else result
    function = expression.func
    if isinstance(function, ast.Name) and function.id in view.body.bound:
        return _infer_local_call(function.id, view) if not is_awaited else UNKNOWN
    member = find_project_member(function, view) if isinstance(function, ast.Attribute) else None
    target = member or resolve_through(function, view.scope)
    if isinstance(target, DefinedName):
        return _infer_project_call(target, expression, view, depth, is_awaited=is_awaited)
    if isinstance(target, External):
        if target.dotted in _WAITING:
            return _infer_asyncio_call(target.dotted, expression, view, depth) if is_awaited else COROUTINE
        return _infer_library_call(target.dotted, expression, view, depth)
    return _infer_method_call(function, expression, view, depth) if isinstance(function, ast.Attribute) else UNKNOWN


def _infer_local_call(name: str, view: FunctionView) -> Type:
    """Return the type that a lambda or local function `name` returns. A local function is read without the method's own names."""
    values, node = view.body.bound[name], view.body.functions.get(name)
    function = values[0] if isinstance(values[0], ast.Lambda) else node
    if len(values) > 1 or view.hops >= _MOST_HOPS or function is None:
        return UNKNOWN
    return _infer_returned_by(function, view, view.hops)


@read_once
def _infer_returned_by(function: ast.Lambda | FunctionNode, view: FunctionView, hops: int) -> Type:
    names = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
    if isinstance(function, ast.Lambda):
        items = {**view.items, **dict.fromkeys(names, UNKNOWN)}
        return _infer_returned_value(function.body, view.replace(items=items, hops=hops + 1))
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return UNKNOWN
    body = Body(function, "")
    scope = view.scope._replace(hidden=view.scope.hidden | names | body.bound.keys(), self_name="")
    return _infer_type_of_returns(function, FunctionView(scope, body, {}, hops=hops + 1))


def _infer_awaited(expression: ast.expr, view: FunctionView, depth: int) -> Type:
    """Return the type of `await x`, where `x` is a call, or a name to which one call is assigned; else unknown."""
    value, home = view.source_of(expression)
    return _infer_call(value, home, depth, is_awaited=True) if isinstance(value, ast.Call) else UNKNOWN


_WAITING = frozenset({"asyncio.create_task", "asyncio.gather", "asyncio.shield", "asyncio.wait_for"})


def _infer_asyncio_call(dotted: str, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """Return the type of `await asyncio.gather(...)`; for other functions of `_WAITING`, that of awaiting the first argument."""
    if dotted != "asyncio.gather":
        return _infer_awaited(call.args[0], view, depth) if call.args else UNKNOWN
    if call.keywords:  # with `return_exceptions=True` an item may be an exception
        return LIST
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Starred):
        return Type("tuple", tuple(_infer_awaited(each, view, depth) for each in call.args))
    value, home = view.source_of(call.args[0].value)
    if not isinstance(value, ast.ListComp | ast.GeneratorExp):
        return LIST
    return of_items("list", _infer_awaited(value.elt, comprehension_view(value.generators, home, depth), depth))


def _infer_project_call(
    target: DefinedName, call: ast.Call, view: FunctionView, depth: int, *, is_awaited: bool
) -> Type:
    """Return the type of a call of a function or class of the project; `COROUTINE` for an `async def` that is not awaited."""
    if isinstance(target.node, FUNCTIONS):
        is_async = isinstance(target.node, ast.AsyncFunctionDef)
        is_certain = is_async == is_awaited and not is_rebound(target)
        return _infer_result(target, view) if is_certain else COROUTINE if is_async else UNKNOWN
    found = read_type(call.func, view.scope) if isinstance(target.node, ast.ClassDef | ast.expr) else UNKNOWN
    return _infer_instance(found, call, view, depth) if found.kind == "record" else found


def _infer_instance(record: Type, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """Return the type of `Class(...)`: the record, but with the types of arguments that contradict it; a rule reports these."""
    spread = [read_fields(each.value, view, depth) for each in call.keywords if each.arg is None]
    is_known = all(each is not None and not each.is_open for each in spread)
    if not is_known or any(isinstance(each, ast.Starred) for each in call.args):
        return record
    given = {field.name: field.type for each in spread if each for field in each.fields}
    values = [*zip([field.name for field in record.fields], call.args, strict=False)]
    values += [(each.arg, each.value) for each in call.keywords if each.arg]
    given |= {name: infer_type(value, view, depth) for name, value in values}
    fields = [each for each in record.fields if each.name in given or not each.required]
    fields += [Field(name, given[name]) for name in given.keys() - {each.name for each in record.fields}]
    made = record if tuple(fields) == record.fields else Type("record", fields=tuple(fields))
    return with_fields(made, given, converts=converts_values(call.func, view))


def _infer_result(function: DefinedName, view: FunctionView) -> Type:
    """Return the type that a function of the project returns: as annotated, or as inferred if more precise or contradicting."""
    node: Any = function.node
    scope = home_of(function, view.scope)
    if decorators_of(function, view) - TRANSPARENT - PROPERTIES:
        return UNKNOWN
    declared = read_type(node.returns, scope.in_signature(node))
    if node.returns is not None and declared.kind not in ("unknown", "any", "dict", "record"):
        return declared
    read = _infer_returns_cached(function, scope, view)
    if declared.kind == "record":  # a contradicting type is kept, so that a rule reports it
        return read if read.kind == "record" and misfit_reason(declared, read, is_narrowed=True) else declared
    is_better = read.kind == "record" or (read.kind == "union" and all(each.kind == "record" for each in read.args))
    return read if is_better or node.returns is None else declared


def _infer_returns_cached(function: DefinedName, scope: NameScope, view: FunctionView) -> Type:
    """Return the type of the `return` statements of a function. It is cached if no other module was needed to infer it."""
    node: Any = function.node
    chain = chain_of(function, view)
    key = (node.lineno, view.hops, *((site.module.path, site.node.lineno) for site in chain[:1]))
    if key in function.module.given:
        found: Type = function.module.given[key]
        return found
    lookups_before = scope.library.asked
    found = _infer_type_of_returns(node, function_view(function, view)) if view.hops < _MOST_HOPS else UNKNOWN
    if lookups_before == scope.library.asked:  # no other module was looked up, so this file alone decides
        function.module.given[key] = found
    return found


def _infer_type_of_returns(node: FunctionNode, view: FunctionView) -> Type:
    """Return the union of what a function returns, with None if its end can be reached; unknown for a generator or a stub."""
    if view.body.is_generator or is_stub(node.body):
        return UNKNOWN
    given = [_infer_returned_value(each.value, view) for each in view.body.returns] + [NULL] * reaches_end(node.body)
    return union(*given) if given else UNKNOWN


def _infer_returned_value(value: ast.expr | None, view: FunctionView) -> Type:
    return NULL if value is None else record_of(read_fields(value, view)) or infer_type(value, view)


def _infer_library_call(dotted: str, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """Return the type that a function of Python or of a package returns; unknown if it is not listed in `standard`."""
    if dotted in ("typing.cast", "typing_extensions.cast") and call.args:
        declared, value = read_type(call.args[0], view.scope), infer_type(call.args[-1], view, depth)
        is_wrong = value.kind == "record" and misfit_reason(declared, value, is_narrowed=True)
        return value if is_wrong else declared
    if dotted == "builtins.dict":
        return record_of(_read_dict_call(call, view, depth)) or DICT
    first = infer_type(call.args[0], view, depth) if call.args else UNKNOWN
    if dotted.endswith(".replace") and first.kind == "record":
        return with_fields(first, {each.arg or "": infer_type(each.value, view, depth) for each in call.keywords})
    return of_function(dotted, first, len(call.args) + len(call.keywords))


def _infer_method_call(function: ast.Attribute, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """Return the type that a method of a value returns; unknown if the type of the value or the method is not known."""
    owner = infer_type(function.value, view, depth)
    if function.attr == "get" and call.args and owner.kind in ("record", "dict", "result"):
        default = infer_type(call.args[1], view, depth) if len(call.args) > 1 else NULL
        return of_get(owner, evaluate_constant(call.args[0], view.scope), default)
    changed = {each.arg or "": infer_type(each.value, view, depth) for each in call.keywords}
    if owner.kind == "record" and function.attr == "model_copy" and "update" in changed:
        update = changed["update"]
        return with_fields(owner, {each.name: each.type for each in update.fields}) if update.fields else UNKNOWN
    is_plain = not call.args and {each.arg for each in call.keywords} <= {"mode"}
    found = of_method(owner, function.attr, is_plain=is_plain)
    return found if found.kind != "unknown" else _infer_record_method(owner, function.attr, view)


def _infer_record_method(owner: Type, name: str, view: FunctionView) -> Type:
    """Return the type that a method of a record returns; unknown unless the file of the call knows the class by its own name."""
    member = find_member(chain_of_record(without_none(owner), view), name)
    is_function = isinstance(member, DefinedName) and isinstance(member.node, ast.FunctionDef)
    return _infer_result(member, view) if is_function and not is_rebound(member) else UNKNOWN  # type: ignore[arg-type]


_ALWAYS = {
    ast.DictComp: DICT,
    ast.JoinedStr: STR,
    ast.ListComp: LIST,
    ast.Set: Type("set"),
    ast.SetComp: Type("set"),
    ast.Tuple: Type("tuple"),
}
_READERS: dict[type, Callable[[Any, FunctionView, int], Type]] = {
    ast.Attribute: _infer_attribute,
    ast.Await: lambda expression, view, depth: _infer_awaited(expression.value, view, depth),
    ast.BinOp: _infer_operation,
    ast.BoolOp: _infer_and_or,
    ast.Call: _infer_call,
    ast.Compare: _infer_comparison,
    ast.Constant: lambda expression, view, depth: type_of_constant(expression, view.scope),
    ast.Dict: lambda expression, view, depth: record_of(_read_display(expression, view, depth)) or DICT,
    ast.DictComp: _infer_dict_comprehension,
    ast.GeneratorExp: _infer_comprehension,
    ast.IfExp: lambda expression, view, depth: of_either(
        infer_type(expression.body, view, depth), infer_type(expression.orelse, view, depth)
    ),
    ast.List: _infer_list,
    ast.ListComp: _infer_comprehension,
    ast.Name: _infer_name,
    ast.NamedExpr: lambda expression, view, depth: infer_type(expression.value, view, depth),
    ast.Set: _infer_list,
    ast.SetComp: _infer_comprehension,
    ast.Starred: lambda expression, view, depth: item_of(infer_type(expression.value, view, depth)),
    ast.Subscript: _infer_subscript,
    ast.Tuple: _infer_tuple,
    ast.UnaryOp: _infer_unary,
}


def read_fields(expression: ast.expr | None, view: FunctionView, depth: int = 0) -> Schema | None:
    """Return the fields of a dict or record: a dict display, `dict(...)`, a copy of these, a name that holds one, or an object.

    A result of another agent has no known fields: it becomes the `rest` of the schema. None for anything else.
    """
    if expression is None or depth > _MAX_DEPTH:
        return None
    reader = _FIELD_READERS.get(expression.__class__)
    found = reader(expression, view, depth + 1) if reader else None
    if found is not None or isinstance(expression, ast.Dict | ast.BinOp):
        return found
    of = infer_type(expression, view, depth)
    if of.kind == "result":
        return Schema(is_open=True, rest=(of,))
    return Schema(of.fields) if of.kind == "record" else None


def _read_operation(expression: ast.BinOp, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of `base | more`; None unless at least one side is a dict with known fields."""
    if not isinstance(expression.op, ast.BitOr):
        return None
    sides = [expression.left, expression.right]
    is_dict = any(read_fields(side, view, depth) is not None for side in sides)
    return _read_display(ast.Dict(keys=[None, None], values=sides), view, depth) if is_dict else None


def _read_call(expression: ast.Call, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of `dict(...)`, `copy.copy(x)` and `x.copy()`; None for any other call."""
    function = expression.func
    if isinstance(function, ast.Attribute) and function.attr == "copy" and not expression.args:
        return read_fields(function.value, view, depth)
    target = resolve(function, view.scope)
    if target == External("builtins.dict"):
        return _read_dict_call(expression, view, depth)
    is_copy = target in _COPYING and len(expression.args) == 1 and not expression.keywords
    return read_fields(expression.args[0], view, depth) if is_copy else None


def _read_display(expression: ast.Dict, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of a dict display; open if a key is computed, None if a key is a constant but not a text."""
    fields: dict[str, Field] = {}
    rest: list[Type] = []
    is_open = False
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            spread = read_fields(value, view, depth) or fields_of_record(infer_type(value, view, depth))
            rest += spread.rest if spread else ()
            is_open = is_open or spread is None or (spread.is_open and not spread.rest)
            if spread is None or spread.is_open:  # it may replace the fields before it
                fields = {name: Field(name, UNKNOWN, field.required) for name, field in fields.items()}
            fields |= {field.name: field for field in (spread.fields if spread else ())}
            continue
        name = key.value if isinstance(key, ast.Constant) else evaluate_constant(key, view.scope)
        if isinstance(name, str):
            fields[name] = Field(name, infer_type(value, view, depth))
        elif name is NOT_CONSTANT:
            is_open = True
        else:
            return None
    return Schema(tuple(fields.values()), is_open or bool(rest), () if is_open else tuple(rest))


def _read_dict_call(expression: ast.Call, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of `dict(base, key=value, **more)`, read as `{**base, "key": value, **more}`; None for a wrong call."""
    if len(expression.args) > 1:
        return None
    pairs: list[tuple[ast.expr | None, ast.expr]] = [(None, base) for base in expression.args]
    pairs += [(ast.Constant(each.arg) if each.arg else None, each.value) for each in expression.keywords]
    return _read_display(ast.Dict([key for key, _ in pairs], [value for _, value in pairs]), view, depth)


@read_once
def _read_local(expression: ast.Name, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of a constant dict, or of a local name whose dict display is only read and extended; else None."""
    if expression.id not in view.body.bound and expression.id not in view.parameters:
        return _read_constant_dict(expression, view, depth)
    values = unshared_values(expression, view)
    return _read_held_fields(expression.id, values[0], view, depth) if len(values) == 1 else None


def _read_constant_dict(expression: ast.Name | ast.Attribute, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of the dict display that a global name or class attribute always stands for; else None."""
    found = constant_dict(expression, view.scope)
    home = FunctionView(found[1], NO_BODY, {}, hops=view.hops) if found else view
    return _read_display(found[0], home, depth) if found else None


def _read_held_fields(name: str, held: Reaching, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of the dict that a name holds, with the keys that are added later; None if it is changed otherwise."""
    schema = read_fields(held.value, view, depth)
    updates = [change for change in view.body.changes if is_name(change.func.value, name)]  # type: ignore[attr-defined]
    if schema is None or any(each.func.attr != "update" for each in updates):  # type: ignore[attr-defined]
        return None
    further = {each: _read_dict_call(each, view, depth) for each in updates}
    if None in further.values():
        return None
    is_open = any(each.is_open for each in further.values() if each)
    fields = {each.name: Field(each.name, UNKNOWN, each.required) if is_open else each for each in schema.fields}
    for update, added in further.items():
        for field in added.fields if added else ():
            known = fields.get(field.name)
            of = field.type if known is None else union(known.type, field.type)
            of = of if of.kind != "union" else UNKNOWN
            is_certain = update in held.additions or (known is not None and known.required)
            fields[field.name] = Field(field.name, of, is_certain)
    for access in view.body.accesses:
        if access.name == name and access.how in ("read", "write"):
            key = evaluate_constant(access.key, view.scope)
            if not isinstance(key, str) or isinstance(getattr(access.node, "ctx", None), ast.Del):
                return None
            touch_field(fields, key, is_written=access.how == "write", is_certain=access.node in held.additions)
    return Schema(tuple(fields.values()), schema.is_open or is_open, schema.rest)


def read_variants(expression: ast.expr, view: FunctionView) -> list[tuple[Schema | None, Type]]:
    """Return the possible values of a payload as `(fields, UNKNOWN)`, or as `(None, type)` if the fields are not known."""
    if isinstance(expression, ast.IfExp):
        return [*read_variants(expression.body, view), *read_variants(expression.orelse, view)]
    if isinstance(expression, ast.Name):
        choices = [choice for held in unshared_values(expression, view) for choice in branches_of(held)]
        if 1 < len(choices) <= _MOST_VARIANTS:
            read = ((_read_held_fields(expression.id, each, view, 1), each) for each in choices)
            return [(fields, UNKNOWN if fields else infer_type(each.value, view)) for fields, each in read]
    fields = read_fields(expression, view)
    of = UNKNOWN if fields is not None else infer_type(expression, view)
    if of.kind == "union" and all(each.kind == "record" for each in of.args):
        return [(Schema(each.fields), UNKNOWN) for each in of.args]
    return [(fields, of)]


_FIELD_READERS: dict[type, Callable[[Any, FunctionView, int], Schema | None]] = {
    ast.Attribute: _read_constant_dict,
    ast.BinOp: _read_operation,
    ast.Call: _read_call,
    ast.Dict: _read_display,
    ast.DictComp: lambda expression, view, depth: read_comprehension(
        expression, view, partial(infer_type, depth=depth)
    ),
    ast.Name: _read_local,
}
