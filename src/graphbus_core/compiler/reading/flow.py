"""Infers the types of expressions from displays, annotations, and the functions and classes of the project.

What is declared is believed: the annotation of a parameter, a local name or a function, the fields of a class. What another agent
gives is of the kind `result`: the wiring replaces it by what that agent declares.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import msgspec

from graphbus_core.compiler.reading.annotations import read_type
from graphbus_core.compiler.reading.bodies import Body, FunctionNode
from graphbus_core.compiler.reading.constants import NOT_CONSTANT, evaluate_constant, home_of, is_rebound
from graphbus_core.compiler.reading.endings import is_stub, reaches_end
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    DefinedName,
    External,
    NameScope,
    class_chain,
    find_member,
    resolve,
    resolve_through,
)
from graphbus_core.compiler.reading.reaching import Reaching, branches_of
from graphbus_core.compiler.reading.standard import (
    PROPERTIES,
    TRANSPARENT,
    item_of,
    of_function,
    of_items,
    of_method,
    of_operation,
    part_of,
)
from graphbus_core.compiler.reading.views import (
    FunctionView,
    certain_type,
    chain_of,
    chain_of_record,
    class_of,
    decorators_of,
    is_name,
    name_of_result,
    touch_field,
    unless_changed,
    without_none,
)
from graphbus_core.schema.compatibility import misfit_reason
from graphbus_core.schema.types import (
    ALL_OCCUR,
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
    without_constants,
)

_MAX_DEPTH = 8
_MOST_VARIANTS = 4
_LONGEST_CONSTANT = 40  # of a text that is written for programs
_MOST_HOPS = 3  # from one function without annotation to the next
_COPYING = frozenset({External("copy.copy"), External("copy.deepcopy")})
_LITERALS: dict[type, Type] = {str: STR, int: INT, float: FLOAT, bool: BOOL, bytes: BYTES, type(None): NULL}


def infer_type(expression: ast.expr, view: FunctionView, depth: int = 0) -> Type:
    """Return the type of an expression's value; unknown unless it is certain or declared."""
    reader = _READERS.get(expression.__class__)
    if reader is None or depth > _MAX_DEPTH:
        return _ALWAYS.get(expression.__class__, UNKNOWN)
    return reader(expression, view, depth + 1)


# --- names ----------------------------------------------------------------------------------


def _name(expression: ast.Name, view: FunctionView, depth: int) -> Type:
    name = expression.id
    if name in view.items:
        return view.items[name]
    declared = UNKNOWN
    if name in view.body.annotations:
        declared = read_type(view.body.annotations[name], view.scope)
    elif name in view.parameters and name not in view.body.bound:
        declared = view.parameters[name]
    if declared.kind != "unknown":
        return unless_changed(declared, name, view)
    if name not in view.body.bound:
        return declared if name in view.parameters else _constant(expression, view, depth)
    values = view.body.values_of(expression) if name not in view.parameters else ()
    types = []
    for value, _ in values:
        is_display = isinstance(value, _DISPLAYS) and view.body.escapes(name)
        types.append(certain_type(infer_type(value, view, depth), is_display=is_display))
    return unless_changed(union(*types), name, view) if types else UNKNOWN


def _constant(expression: ast.expr, view: FunctionView, depth: int) -> Type:
    value = evaluate_constant(expression, view.scope)
    if isinstance(value, str | int) and len(str(value)) <= _LONGEST_CONSTANT:
        return Type(_LITERALS[type(value)].kind, values=(value,))
    return _LITERALS.get(type(value), UNKNOWN)


_DISPLAYS = (ast.List, ast.Set, ast.ListComp, ast.SetComp, ast.Dict, ast.DictComp, ast.IfExp, ast.BoolOp)


# --- displays, operators, comprehensions ------------------------------------------------------


def _list(expression: ast.List | ast.Set, view: FunctionView, depth: int) -> Type:
    item = union(*(infer_type(each, view, depth) for each in expression.elts)) if expression.elts else UNKNOWN
    return of_items("list" if isinstance(expression, ast.List) else "set", item if item.kind != "union" else UNKNOWN)


def _dict(expression: ast.Dict, view: FunctionView, depth: int) -> Type:
    return _record_of(_read_display(expression, view, depth)) or DICT


def _record_of(schema: Schema | None) -> Type | None:
    """The record with these fields; None unless all fields are known."""
    return Type("record", fields=schema.fields) if schema and schema.fields and not schema.is_open else None


def _comprehension(expression: ast.ListComp | ast.SetComp | ast.GeneratorExp, view: FunctionView, depth: int) -> Type:
    item = infer_type(expression.elt, comprehension_view(expression.generators, view, depth), depth)
    return of_items("set" if isinstance(expression, ast.SetComp) else "list", without_constants(item))


def _dict_comprehension(expression: ast.DictComp, view: FunctionView, depth: int) -> Type:
    inner = comprehension_view(expression.generators, view, depth)
    key, value = infer_type(expression.key, inner, depth), infer_type(expression.value, inner, depth)
    of = Type("dict", (key, value))
    return DICT if "unknown" in (key.kind, value.kind) else without_constants(of)


def comprehension_view(generators: list[ast.comprehension], view: FunctionView, depth: int = 0) -> FunctionView:
    """Return the view of the parts of a comprehension, in which its loop variables are known."""
    items = dict(view.items)
    for each in generators:
        of = item_of(infer_type(each.iter, msgspec.structs.replace(view, items=items), depth))
        targets = each.target.elts if isinstance(each.target, ast.Tuple) else [each.target]
        parts = of.args if of.kind == "tuple" and len(of.args) == len(targets) > 1 else [of] * len(targets)
        for target, part in zip(targets, parts, strict=True):
            if isinstance(target, ast.Name):
                items[target.id] = part if len(targets) == 1 or of.kind == "tuple" else UNKNOWN
    return msgspec.structs.replace(view, items=items)


def _operation(expression: ast.BinOp, view: FunctionView, depth: int) -> Type:
    if isinstance(expression.op, ast.BitOr):
        return _record_of(read_fields(expression, view, depth)) or UNKNOWN
    return of_operation(
        expression.op, infer_type(expression.left, view, depth), infer_type(expression.right, view, depth)
    )


def _not(expression: ast.UnaryOp, view: FunctionView, depth: int) -> Type:
    if isinstance(expression.op, ast.Not):
        return BOOL
    value = infer_type(expression.operand, view, depth)
    return without_constants(value) if value.kind in ("int", "float") else UNKNOWN


def _compare(expression: ast.Compare, view: FunctionView, depth: int) -> Type:
    if all(isinstance(operator, ast.In | ast.NotIn | ast.Is | ast.IsNot) for operator in expression.ops):
        return BOOL
    sides = [expression.left, *expression.comparators]
    plain = ("int", "float", "str", "bool")
    return BOOL if all(infer_type(side, view, depth).kind in plain for side in sides) else UNKNOWN


def _either(expression: ast.IfExp, view: FunctionView, depth: int) -> Type:
    """The union of both branches, marked `EITHER`: each may happen. A branch that is a union itself may be narrowed."""
    body, orelse = infer_type(expression.body, view, depth), infer_type(expression.orelse, view, depth)
    if body.values and orelse.values and body.kind == orelse.kind and body != orelse:
        return Type("union", (body, orelse), name=ALL_OCCUR)  # each of the constants happens
    found = union(body, orelse)
    is_certain = found.kind == "union" and "union" not in (body.kind, orelse.kind)
    return msgspec.structs.replace(found, name=ALL_OCCUR) if is_certain else found


def _one_of(expression: ast.BoolOp, view: FunctionView, depth: int) -> Type:
    """The union of the operands of `or` and `and`; the operands before the last of an `or` are never None."""
    *heads, last = [infer_type(value, view, depth) for value in expression.values]
    if isinstance(expression.op, ast.Or):
        choices = [each for head in heads for each in (head.args if head.kind == "union" else (head,))]
        heads = [each for each in choices if each.kind != "null"]
    return union(*heads, last)


# --- attributes and entries -------------------------------------------------------------------


def _attribute(expression: ast.Attribute, view: FunctionView, depth: int) -> Type:
    found = _constant(expression, view, depth)
    if found.kind != "unknown":
        return found
    member = _member(expression, view)
    if member is not None and isinstance(member.node, FUNCTIONS):
        return _given_by(member, view) if decorators_of(member, view) & PROPERTIES else UNKNOWN
    if view.is_self(expression.value) and expression.attr in view.typed:
        return read_type(*view.typed[expression.attr])
    value, home = view.source_of(expression)
    if value is not expression:
        return certain_type(infer_type(value, home, depth), is_display=isinstance(value, _DISPLAYS))
    owner = infer_type(expression.value, view, depth)
    is_hex = owner.kind == "str" and owner.name == "UUID" and expression.attr == "hex"
    return STR if is_hex else part_of(owner, expression.attr)


def _entry(expression: ast.Subscript, view: FunctionView, depth: int) -> Type:
    found = _constant(expression, view, depth)
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


def _member(expression: ast.Attribute, view: FunctionView) -> DefinedName | None:
    """The method or property of the project that an attribute stands for."""
    found = resolve(expression, view.scope)
    site = class_of(expression.value, view) if found is None else None
    if site is not None:
        found = find_member(class_chain(view.scope.library, site), expression.attr)
    return found if isinstance(found, DefinedName) else None


# --- calls --------------------------------------------------------------------------------------


def _call(expression: ast.Call, view: FunctionView, depth: int, *, is_awaited: bool = False) -> Type:
    asked = name_of_result(expression, view)
    if asked is not None:
        return Type("result", name=asked) if asked else UNKNOWN
    function = expression.func
    if isinstance(function, ast.Name) and function.id in view.body.bound:
        return _called_locally(function.id, view) if not is_awaited else UNKNOWN
    member = _member(function, view) if isinstance(function, ast.Attribute) else None
    target = member or resolve_through(function, view.scope)
    if isinstance(target, DefinedName):
        return _called(target, expression, view, depth, is_awaited=is_awaited)
    if isinstance(target, External):
        return _of_library(target.dotted, expression, view, depth)
    return _method(function, expression, view, depth) if isinstance(function, ast.Attribute) else UNKNOWN


def _called_locally(name: str, view: FunctionView) -> Type:
    """The type that a lambda or a local function returns; the local names of the method are unknown to it."""
    values, node = view.body.bound[name], view.body.functions.get(name)
    hidden = view.scope.hidden | ({each.arg for each in ast.walk(node) if isinstance(each, ast.arg)} if node else set())
    if len(values) > 1 or view.hops >= _MOST_HOPS:
        return UNKNOWN
    if isinstance(values[0], ast.Lambda):
        names = {each.arg: UNKNOWN for each in ast.walk(values[0].args) if isinstance(each, ast.arg)}
        return _returned_type(values[0].body, msgspec.structs.replace(view, items={**view.items, **names}))
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return UNKNOWN
    body = Body(node, "")
    scope = view.scope._replace(hidden=hidden | body.bound.keys(), self_name="")
    return _type_of_returns(node, FunctionView(scope, body, {}, hops=view.hops + 1))


def _await(expression: ast.Await, view: FunctionView, depth: int) -> Type:
    value = expression.value
    return _call(value, view, depth, is_awaited=True) if isinstance(value, ast.Call) else UNKNOWN


def _called(target: DefinedName, call: ast.Call, view: FunctionView, depth: int, *, is_awaited: bool) -> Type:
    if isinstance(target.node, FUNCTIONS):
        is_certain = isinstance(target.node, ast.AsyncFunctionDef) == is_awaited and not is_rebound(target)
        return _given_by(target, view) if is_certain else UNKNOWN
    found = read_type(call.func, view.scope) if isinstance(target.node, ast.ClassDef | ast.expr) else UNKNOWN
    return _made(found, call, view, depth) if found.kind == "record" else found


def _made(record: Type, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """The type of `Class(...)`. Arguments that contradict the class replace its fields, so that a rule reports them here."""
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return record
    given = {keyword.arg or "": infer_type(keyword.value, view, depth) for keyword in call.keywords}
    given |= {
        field.name: infer_type(value, view, depth) for field, value in zip(record.fields, call.args, strict=False)
    }
    fields = {field.name: field for field in record.fields if field.name in given or not field.required}
    for name, of in given.items():
        field = fields.get(name)
        if field is None:
            fields[name] = Field(name, of)
        elif misfit_reason(field.type, of, is_narrowed=True):
            fields[name] = Field(name, Type("union", (field.type, of), name=ALL_OCCUR))
    return record if tuple(fields.values()) == record.fields else Type("record", fields=tuple(fields.values()))


def _given_by(function: DefinedName, view: FunctionView) -> Type:
    """The type that a function of the project returns: its annotation, else the type of its `return` statements."""
    node: Any = function.node
    scope = home_of(function, view.scope)
    if decorators_of(function, view) - TRANSPARENT - PROPERTIES:
        return UNKNOWN
    declared = read_type(node.returns, scope.in_signature(node))
    if node.returns is not None and declared.kind not in ("unknown", "any", "dict", "record"):
        return declared
    read = _read_given(function, scope, view)
    if declared.kind == "record":  # what contradicts it is a finding where it is used
        return read if read.kind == "record" and misfit_reason(declared, read, is_narrowed=True) else declared
    is_better = read.kind == "record" or (read.kind == "union" and all(each.kind == "record" for each in read.args))
    return read if is_better or node.returns is None else declared


def _read_given(function: DefinedName, scope: NameScope, view: FunctionView) -> Type:
    """The type of the `return` statements of a function, kept per module."""
    node: Any = function.node
    chain = chain_of(function, view)
    key = (node.lineno, view.hops, *((site.module.path, site.node.lineno) for site in chain[:1]))
    if key in function.module.given:
        found: Type = function.module.given[key]
        return found
    asked = scope.library.asked
    found = _read_returns(function, view) if view.hops < _MOST_HOPS else UNKNOWN
    if asked == scope.library.asked:  # no other file has a say in it
        function.module.given[key] = found
    return found


def _read_returns(function: DefinedName, caller: FunctionView) -> Type:
    node: Any = function.node
    return _type_of_returns(node, function_view(function, caller))


def _type_of_returns(node: FunctionNode, view: FunctionView) -> Type:
    if view.body.is_generator or is_stub(node.body):
        return UNKNOWN
    given = [_returned_type(each.value, view) for each in view.body.returns] + [NULL] * reaches_end(node.body)
    return union(*given) if given else UNKNOWN


def function_view(function: DefinedName, caller: FunctionView) -> FunctionView:
    """Return the view of the body of a function that a method calls."""
    node: Any = function.node
    chain = chain_of(function, caller)
    scope = home_of(function, caller.scope)._replace(chain=chain, in_class_body=False)
    arguments = [*node.args.posonlyargs, *node.args.args]
    is_static = any(getattr(each, "id", "") == "staticmethod" for each in node.decorator_list)
    self_name = arguments[0].arg if chain and arguments and not is_static else ""
    body = Body(node, self_name)
    types = {each.arg: read_type(each.annotation, scope) for each in (*arguments, *node.args.kwonlyargs)}
    scope = scope._replace(self_name=self_name, hidden=frozenset((*body.bound, *types)))
    view = FunctionView(scope, body, types, hops=caller.hops + 1)
    is_of_class = chain is caller.scope.chain and bool(chain)
    return msgspec.structs.replace(view, kept=caller.kept, typed=caller.typed) if is_of_class else view


def _returned_type(value: ast.expr | None, view: FunctionView) -> Type:
    return NULL if value is None else _record_of(read_fields(value, view)) or infer_type(value, view)


def _of_library(dotted: str, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """What a function of Python, or of a package, returns."""
    if dotted in ("typing.cast", "typing_extensions.cast") and call.args:
        return read_type(call.args[0], view.scope)
    if dotted == "builtins.dict":
        return _record_of(_read_dict_call(call, view, depth)) or DICT
    if dotted == "asyncio.gather":
        types = [infer_type(each, view, depth) for each in call.args]
        return of_items("list", types[0]) if isinstance(call.args[0], ast.Starred) else Type("tuple", tuple(types))
    first = infer_type(call.args[0], view, depth) if call.args else UNKNOWN
    return of_function(dotted, first, len(call.args) + len(call.keywords))


def _method(function: ast.Attribute, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """What a method of a value of a known type gives."""
    owner = infer_type(function.value, view, depth)
    if function.attr == "get" and call.args and owner.kind in ("record", "dict", "result"):
        return _got(owner, call, view, depth)
    is_plain = not call.args and {each.arg for each in call.keywords} <= {"mode"}
    found = of_method(owner, function.attr, is_plain=is_plain)
    return found if found.kind != "unknown" else _method_of_record(owner, function.attr, view)


def _method_of_record(owner: Type, name: str, view: FunctionView) -> Type:
    """The type that a method of a record returns, if its class has its own name in the file of the call."""
    member = find_member(chain_of_record(without_none(owner), view), name)
    is_function = isinstance(member, DefinedName) and isinstance(member.node, ast.FunctionDef)
    return _given_by(member, view) if is_function and not is_rebound(member) else UNKNOWN  # type: ignore[arg-type]


def _got(owner: Type, call: ast.Call, view: FunctionView, depth: int) -> Type:
    """The type of `x.get(key)`: the field, and the default as well unless the field is always present."""
    key = evaluate_constant(call.args[0], view.scope)
    found = part_of(owner, key)
    field = next((field for field in owner.fields if field.name == key), None)
    if found.kind in ("unknown", "result") or (field is not None and field.required):
        return found
    return union(found, infer_type(call.args[1], view, depth) if len(call.args) > 1 else NULL)


_ALWAYS = {
    ast.DictComp: DICT,
    ast.JoinedStr: STR,
    ast.ListComp: LIST,
    ast.Set: Type("set"),
    ast.SetComp: Type("set"),
    ast.Tuple: Type("tuple"),
}
_READERS: dict[type, Callable[[Any, FunctionView, int], Type]] = {
    ast.Attribute: _attribute,
    ast.Await: _await,
    ast.BinOp: _operation,
    ast.BoolOp: _one_of,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.DictComp: _dict_comprehension,
    ast.GeneratorExp: _comprehension,
    ast.IfExp: _either,
    ast.List: _list,
    ast.ListComp: _comprehension,
    ast.Name: _name,
    ast.NamedExpr: lambda expression, view, depth: infer_type(expression.value, view, depth),
    ast.Set: _list,
    ast.SetComp: _comprehension,
    ast.Starred: lambda expression, view, depth: item_of(infer_type(expression.value, view, depth)),
    ast.Subscript: _entry,
    ast.Tuple: lambda expression, view, depth: Type(
        "tuple", tuple(infer_type(each, view, depth) for each in expression.elts)
    ),
    ast.UnaryOp: _not,
}


# --- fields ------------------------------------------------------------------------------------------


def read_fields(expression: ast.expr | None, view: FunctionView, depth: int = 0) -> Schema | None:
    """Return the fields of a dict display, a `dict(...)` call, a local name with one of these, a copy of these, or a record.

    Those of another agent's result are its `rest`. None for anything else.
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
    if not isinstance(expression.op, ast.BitOr):
        return None
    sides = [expression.left, expression.right]
    is_dict = any(read_fields(side, view, depth) is not None for side in sides)
    return _read_display(ast.Dict(keys=[None, None], values=sides), view, depth) if is_dict else None


def _read_call(expression: ast.Call, view: FunctionView, depth: int) -> Schema | None:
    """`dict(...)`, `copy.copy(x)` and `x.copy()`."""
    function = expression.func
    if isinstance(function, ast.Attribute) and function.attr == "copy" and not expression.args:
        return read_fields(function.value, view, depth)
    target = resolve(function, view.scope)
    if target == External("builtins.dict"):
        return _read_dict_call(expression, view, depth)
    is_copy = target in _COPYING and len(expression.args) == 1 and not expression.keywords
    return read_fields(expression.args[0], view, depth) if is_copy else None


def _read_display(expression: ast.Dict, view: FunctionView, depth: int) -> Schema | None:
    """Return the fields of a dict display; None when a key is no text."""
    fields: dict[str, Field] = {}
    rest: list[Type] = []
    is_open = False
    for key, value in zip(expression.keys, expression.values, strict=True):
        if key is None:
            spread = read_fields(value, view, depth) or _fields_of_record(infer_type(value, view, depth))
            rest += spread.rest if spread else ()
            is_open = is_open or spread is None or (spread.is_open and not spread.rest)
            if spread is None or spread.is_open:  # it may replace what stands before it
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


def _fields_of_record(of: Type) -> Schema | None:
    """The fields of a record that may be None; `**None` would fail, so a spread value is the record."""
    record = without_none(of)
    return Schema(record.fields) if record.kind == "record" else None


def _read_dict_call(expression: ast.Call, view: FunctionView, depth: int) -> Schema | None:
    """`dict(base, key=value, **more)` is `{**base, "key": value, **more}`."""
    if len(expression.args) > 1:
        return None
    pairs: list[tuple[ast.expr | None, ast.expr]] = [(None, base) for base in expression.args]
    pairs += [(ast.Constant(each.arg) if each.arg else None, each.value) for each in expression.keywords]
    return _read_display(ast.Dict([key for key, _ in pairs], [value for _, value in pairs]), view, depth)


def _read_local(expression: ast.Name, view: FunctionView, depth: int) -> Schema | None:
    """The fields of a local name that holds a display and is then only read or extended."""
    values = _held_by(expression, view)
    return _read_held(expression.id, values[0], view, depth) if len(values) == 1 else None


def _held_by(name: ast.Name, view: FunctionView) -> tuple[Reaching, ...]:
    """The assignments that reach a local name; none if the value is shared, so that it may change under another name."""
    is_shared = name.id in view.parameters or view.body.escapes(name.id)
    values = () if is_shared else view.body.values_of(name)
    return () if any(isinstance(each.value, ast.Name) for each in values) else values


def _read_held(name: str, held: Reaching, view: FunctionView, depth: int) -> Schema | None:
    """The fields of a display that a name holds, with the keys that are stored or read by that name."""
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
    """Return the possible payloads of an expression: the fields of each, or its type if it has no known fields."""
    if isinstance(expression, ast.IfExp):
        return [*read_variants(expression.body, view), *read_variants(expression.orelse, view)]
    if isinstance(expression, ast.Name):
        choices = [choice for held in _held_by(expression, view) for choice in branches_of(held)]
        if 1 < len(choices) <= _MOST_VARIANTS:
            read = ((_read_held(expression.id, each, view, 1), each) for each in choices)
            return [(fields, UNKNOWN if fields else infer_type(each.value, view)) for fields, each in read]
    fields = read_fields(expression, view)
    of = UNKNOWN if fields is not None else infer_type(expression, view)
    if of.kind == "union" and all(each.kind == "record" for each in of.args):
        return [(Schema(each.fields), UNKNOWN) for each in of.args]
    return [(fields, of)]


_FIELD_READERS: dict[type, Callable[[Any, FunctionView, int], Schema | None]] = {
    ast.BinOp: _read_operation,
    ast.Call: _read_call,
    ast.Dict: _read_display,
    ast.Name: _read_local,
}
