"""Reads types from annotations, Enum classes, typed classes and schemas in source text.

A type that cannot be known is `unknown`, with its text as its name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from graphbus_core.compiler.reading import syntax
from graphbus_core.compiler.reading.constants import (
    NOT_CONSTANT,
    TEXT_BASES,
    dotted_name,
    evaluate_constant,
    is_rebound,
    text_of,
)
from graphbus_core.compiler.reading.modules import (
    ClassSite,
    DefinedName,
    External,
    NameScope,
    base_targets,
    family_of,
    resolve,
    resolve_through,
)
from graphbus_core.schema.types import (
    ANY,
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    LIST,
    NULL,
    STR,
    TEXT_TYPES,
    UNKNOWN,
    Field,
    Schema,
    Type,
    union,
    without_text_forms,
)

_NUMBERS = frozenset({"enum.IntEnum", "builtins.int"})
_ENUMS = frozenset({"enum.Enum", "enum.ReprEnum", "enum.StrEnum", "enum.IntEnum"})
_PLAIN_ENUM_BASES = _ENUMS | TEXT_BASES | _NUMBERS | {"builtins.object"}
_VALUE_METHODS = frozenset(
    {"__new__", "__init__", "__init_subclass__", "__set_name__", "_generate_next_value_", "_missing_"}
)
"""Methods with which an Enum class changes the values of its members, or accepts other values."""


def _read_enum(site: ClassSite, scope: NameScope) -> Type | None:
    """Return the type of an Enum class: a literal of its values, or unknown if they are not certain. None for other classes."""
    chain, bases = family_of(scope.library, site)
    if not bases & _ENUMS:
        return None
    values: list[object] = []
    if bases <= _PLAIN_ENUM_BASES and all(_is_plain_enum(entry, scope) for entry in chain):
        inner = NameScope(scope.library, site.module, (site,), in_class_body=True)
        for statement in site.node.body:
            if isinstance(statement, ast.Assign):
                name = ast.unparse(statement.targets[0])
                values.append(_enum_value(name, statement.value, values, inner, bases))
    # a number base would convert texts, and a text base would convert numbers
    allowed = {kind for kind, converting in ((str, bases & _NUMBERS), (int, bases & TEXT_BASES)) if not converting}
    certain = tuple(value for value in values if isinstance(value, str | int) and type(value) in allowed)
    if not certain or len(certain) != len(values):
        return Type("unknown", name=site.node.name)
    return Type("literal", values=tuple(dict.fromkeys(certain)), name=site.node.name)


def _is_plain_enum(site: ClassSite, scope: NameScope) -> bool:
    """True for an Enum class whose body consists of plain assignments and of methods that do not change its values."""
    node = site.node
    plain = all(isinstance(base, External | DefinedName) for base in base_targets(scope.library, site))
    decorators = {dotted_name(each, scope.within(site.module)) for each in node.decorator_list}
    return (
        plain and not node.keywords and decorators <= {"enum.unique"} and all(map(_is_plain_enum_statement, node.body))
    )


def _is_plain_enum_statement(statement: ast.stmt) -> bool:
    """True for a docstring, `pass`, a public member, and a method that does not affect the values of the members."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        names = {getattr(each, "attr", getattr(each, "id", "")) for each in statement.decorator_list}
        return statement.name not in _VALUE_METHODS and "member" not in names
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        return len(statement.targets) == 1 and isinstance(target, ast.Name) and target.id[:1] != "_"
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass)


def _enum_value(name: str, value: ast.expr, earlier: list[object], scope: NameScope, bases: frozenset[str]) -> object:
    """Return the value of an Enum member, or `NOT_CONSTANT`.

    `auto()` stands for the lower-case name in a StrEnum. Elsewhere it stands for the number after the highest of the `earlier`
    values; if these are not rising numbers, versions of Python differ, so that the value is not certain.
    """
    if not isinstance(value, ast.Call) or dotted_name(value.func, scope) != "enum.auto":
        return evaluate_constant(value, scope)
    if "enum.StrEnum" in bases:
        return name.lower()
    numbers = [each for each in earlier if type(each) is int]
    is_rising = len(numbers) == len(earlier) and numbers == sorted(numbers) and not bases & TEXT_BASES
    return max(numbers, default=0) + 1 if is_rising else NOT_CONSTANT


_MAX_DEPTH = 12
_TYPING = ("typing.", "typing_extensions.", "collections.abc.", "collections.", "types.")
_NAMED = {
    "str": STR,
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "bytes": BYTES,
    "object": ANY,
    "Any": ANY,
    "None": NULL,
    "NoneType": NULL,
    "tuple": Type("tuple"),
    "Tuple": Type("tuple"),
    **dict.fromkeys(("list", "List", "Sequence", "MutableSequence"), LIST),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), DICT),
    **dict.fromkeys(("set", "Set", "AbstractSet", "frozenset", "FrozenSet"), Type("set")),
}
_BUILTIN_TYPES = {f"builtins.{name}": kind for name, kind in _NAMED.items()}
_JSON_NAMES = {"string": STR, "integer": INT, "number": FLOAT, "boolean": BOOL, "array": LIST, "null": NULL, "any": ANY}
_TRANSPARENT = frozenset({"Annotated", "Final", "ClassVar", "Required", "NotRequired", "ReadOnly"})
_DATACLASS = frozenset({"dataclasses.dataclass", "pydantic.dataclasses.dataclass"})
PYDANTIC = frozenset({"pydantic.BaseModel", "pydantic.main.BaseModel", "pydantic.dataclasses.dataclass"})
_RECORD_BASES = PYDANTIC | {"typing.TypedDict", "typing_extensions.TypedDict", "msgspec.Struct"}
EVENT = "graphbus_core.Event"


def read_type(expression: ast.expr | None, scope: NameScope, depth: int = 0) -> Type:
    """Return the type that an annotation names; unknown if there is none, or if `depth`, its nesting, exceeds the limit."""
    if expression is None:
        return UNKNOWN
    if depth > _MAX_DEPTH:
        return _unknown_type(expression)
    reader = _READERS.get(expression.__class__)
    return reader(expression, scope, depth + 1) if reader else _unknown_type(expression)


def _unknown_type(expression: ast.expr) -> Type:
    """Return an unknown type whose name is the text of the expression."""
    return Type("unknown", name=ast.unparse(expression))


def _unquote(expression: ast.expr | None) -> ast.expr | None:
    """Return the expression inside of a quoted annotation, any other one unchanged; None for a text that is no expression."""
    if not isinstance(expression, ast.Constant) or not isinstance(expression.value, str):
        return expression
    try:
        return syntax.parse_expression(expression.value.strip())
    except (SyntaxError, ValueError):
        return None


def _read_constant(expression: ast.Constant, scope: NameScope, depth: int) -> Type:
    """Return the type that a constant stands for: None, or a text with an annotation such as `"Order"` or `"list[str]"`.

    A type name of JSON Schema, such as `"string"`, is understood unless the file itself defines that name.
    """
    if expression.value is None:
        return NULL
    inner = _unquote(expression)
    if inner is None or inner is expression:
        return Type("unknown", name=str(expression.value)) if inner is None else _unknown_type(expression)
    name = inner.id if isinstance(inner, ast.Name) else ""
    if name in _JSON_NAMES and resolve(inner, scope) in (None, External(f"builtins.{name}")):
        return _JSON_NAMES[name]
    return read_type(inner, scope, depth)


def _read_name(expression: ast.Name | ast.Attribute, scope: NameScope, depth: int) -> Type:
    """Return the type that a name stands for: a builtin or typing name, a class, or an alias of a type."""
    target = resolve(expression, scope)
    if isinstance(target, External):
        home, _, name = target.dotted.rpartition(".")
        found = _BUILTIN_TYPES.get(target.dotted) or _NAMED.get(_strip_module(target.dotted))
        return found or TEXT_TYPES.get((home, name)) or _unknown_type(expression)
    if isinstance(target, DefinedName):
        if isinstance(target.node, ast.ClassDef):
            return _read_class(ClassSite(target.module, target.node), scope, depth)
        if isinstance(target.node, syntax.TypeAlias):
            return read_type(target.node.value, _scope_of_alias(target, target.node, scope), depth)
        if isinstance(target.node, ast.expr):
            return _read_alias(target, scope, depth) or _unknown_type(expression)
    return _unknown_type(expression)


def _scope_of_alias(target: DefinedName, node: syntax.TypeAlias, scope: NameScope) -> NameScope:
    """Return the scope of the value of a `type` statement."""
    return scope.within(target.module)._replace(hidden=syntax.type_parameters(node))


def _strip_module(dotted: str) -> str:
    """Remove the module from a name of `builtins` or of a typing module: `typing.List` -> `List`; other names are unchanged."""
    if dotted.startswith("builtins."):
        return dotted.removeprefix("builtins.")
    home, _, name = dotted.rpartition(".")
    return name if f"{home}." in _TYPING else dotted


def _read_alias(target: DefinedName, scope: NameScope, depth: int) -> Type | None:
    """Return the type that is assigned to a name: `NewType(...)`, `TypedDict(...)`, another type; None if it cannot be one."""
    node = target.node
    inner = scope.within(target.module)
    if isinstance(node, ast.Call):
        made = resolve(node.func, inner)
        if isinstance(made, External) and _strip_module(made.dotted) == "NewType" and len(node.args) == 2:
            return read_type(node.args[1], inner, depth)
        is_typed_dict = isinstance(made, External) and _strip_module(made.dotted) == "TypedDict" and len(node.args) == 2
        return _read_typed_dict_call(node, inner, depth) if is_typed_dict else None
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp):
        return read_type(node, inner, depth)
    return None


def _read_typed_dict_call(call: ast.Call, scope: NameScope, depth: int) -> Type | None:
    """Return the record that `TypedDict("Order", {"order_id": str})` declares; None if a part of it is computed."""
    schema, name = read_schema(call.args[1], scope, depth), text_of(call.args[0], scope)
    if schema is None or schema.is_open or name is None:
        return None
    is_total = not any(each.arg == "total" and getattr(each.value, "value", True) is False for each in call.keywords)
    return Type(
        "record",
        name=name,
        fields=tuple(Field(each.name, each.type, each.required and is_total) for each in schema.fields),
    )


def _read_union(expression: ast.BinOp, scope: NameScope, depth: int) -> Type:
    """Return the union `A | B`; unknown for any other operator."""
    if not isinstance(expression.op, ast.BitOr):
        return _unknown_type(expression)
    return union(read_type(expression.left, scope, depth), read_type(expression.right, scope, depth))


def _read_subscript(expression: ast.Subscript, scope: NameScope, depth: int) -> Type:
    """Return the type of an annotation with arguments, such as `Literal["a"]` or `list[str]`; unknown for other forms."""
    target = resolve(expression.value, scope)
    if not isinstance(target, External):
        return _unknown_type(expression)
    name = _strip_module(target.dotted)
    parts = expression.slice.elts if isinstance(expression.slice, ast.Tuple) else [expression.slice]
    if name == "Literal":
        return _read_literal(expression, parts, scope)
    if name in _TRANSPARENT or name in ("Optional", "Union"):
        choices = [read_type(part, scope, depth) for part in (parts[:1] if name in _TRANSPARENT else parts)]
        return union(*choices, *([NULL] if name == "Optional" else []))
    container = _NAMED.get(name)
    if container is None or container.kind not in ("list", "dict", "tuple", "set"):
        return _unknown_type(expression)
    return _read_container(container, parts, scope, depth)


def _read_container(container: Type, parts: list[ast.expr], scope: NameScope, depth: int) -> Type:
    """Return the container with its item types; without them if it has too many or too few type arguments."""
    if container.kind == "tuple" and parts and isinstance(parts[-1], ast.Constant) and parts[-1].value is ...:
        # `tuple[str, ...]` has any number of items of one type, like a list
        return Type("list", (read_type(parts[0], scope, depth),), name="tuple") if len(parts) == 2 else container
    args = tuple(read_type(part, scope, depth) for part in parts)
    expected = {"list": 1, "set": 1, "dict": 2}.get(container.kind, len(args))
    return Type(container.kind, args) if len(args) == expected else container


def _read_literal(expression: ast.Subscript, parts: list[ast.expr], scope: NameScope) -> Type:
    """Return the literal type with these values; unknown if one of them is not a constant."""
    values: list[str | int | bool | None] = []
    for part in parts:
        value = evaluate_constant(part, scope)
        if not isinstance(value, str | int | None):
            return _unknown_type(expression)
        values.append(value)
    return Type("literal", values=tuple(values))


def _read_display(expression: ast.Dict, scope: NameScope, depth: int) -> Type:
    """Return the record that a nested schema such as `{"sku": str}` declares; a plain dict if a field is not known."""
    schema = read_schema(expression, scope, depth)
    return Type("record", fields=schema.fields) if schema and not schema.is_open else DICT


def _read_list_display(expression: ast.List, scope: NameScope, depth: int) -> Type:
    """Return the list type of `[str]` in a schema; a list of anything unless the display has exactly one item."""
    return Type("list", (read_type(expression.elts[0], scope, depth),)) if len(expression.elts) == 1 else LIST


_READERS: dict[type, Callable[[Any, NameScope, int], Type]] = {
    ast.Constant: _read_constant,
    ast.Name: _read_name,
    ast.Attribute: _read_name,
    ast.BinOp: _read_union,
    ast.Subscript: _read_subscript,
    ast.Dict: _read_display,
    ast.List: _read_list_display,
}


# --- schemas --------------------------------------------------------------------------


def read_schema(expression: ast.expr | None, scope: NameScope, depth: int = 0) -> Schema | None:
    """Return the fields that a dict display, `dict(...)`, a name of these or a typed class declares; None for anything else."""
    if (
        isinstance(expression, ast.Call)
        and not expression.args
        and dotted_name(expression.func, scope) == "builtins.dict"
    ):
        # read `dict(sku=str, **more)` as `{"sku": str, **more}`
        keys: list[ast.expr | None] = [ast.Constant(each.arg) if each.arg else None for each in expression.keywords]
        expression = ast.Dict(keys, [each.value for each in expression.keywords])
    if expression is None or depth > _MAX_DEPTH:
        return None
    if isinstance(expression, ast.Dict):
        return _read_dict_schema(expression, scope, depth + 1)
    return _read_named_schema(expression, scope, depth)


def _read_named_schema(expression: ast.expr, scope: NameScope, depth: int) -> Schema | None:
    """Return the fields of the dict display, alias or typed class that a name stands for; None if it is none of these."""
    target = resolve(expression, scope)
    if not isinstance(target, DefinedName):
        return None
    if isinstance(target.node, syntax.TypeAlias):
        return read_schema(target.node.value, _scope_of_alias(target, target.node, scope), depth + 1)
    if isinstance(target.node, ast.Dict):
        return None if is_rebound(target) else read_schema(target.node, scope.within(target.module), depth + 1)
    record = _read_name(expression, scope, depth + 1) if isinstance(expression, ast.Name | ast.Attribute) else None
    return Schema(record.fields) if record and record.kind == "record" else None


def _read_dict_schema(display: ast.Dict, scope: NameScope, depth: int) -> Schema | None:
    """Return the fields that a dict display declares.

    None if a key is a constant but not a text. The schema is open if a key is computed, or if `**other` is not known.
    """
    fields: dict[str, Field] = {}
    is_open = False
    for key, value in zip(display.keys, display.values, strict=True):
        if key is None:
            spread = read_schema(value, scope, depth)
            is_open = is_open or spread is None or spread.is_open
            fields |= {field.name: field for field in (spread.fields if spread else ())}
            continue
        name = evaluate_constant(key, scope)
        if name is NOT_CONSTANT:
            is_open = True
        elif isinstance(name, str):
            fields[name] = Field(
                name, read_type(value, scope, depth), _name_before_brackets(value, scope) != "NotRequired"
            )
        else:
            return None
    return Schema(tuple(fields.values()), is_open)


def _name_before_brackets(expression: ast.expr | None, scope: NameScope) -> str:
    """Return the name before the brackets of an annotation, `NotRequired[str]` -> `NotRequired`; `""` if it is not known."""
    inner = _unquote(expression)
    return (
        _strip_module(dotted_name(inner.value if isinstance(inner, ast.Subscript) else inner, scope)) if inner else ""
    )


# --- classes --------------------------------------------------------------------------


def _read_class(site: ClassSite, scope: NameScope, depth: int = 0) -> Type:
    """Return the type of a class: a record, the literal of an Enum, or a tuple with fields for a NamedTuple.

    TypedDicts, dataclasses, msgspec and pydantic classes are records. Any other class is unknown, and so is a record class with
    a base that is not known here, or with a JSON form that differs from its fields.
    """
    unknown = Type("unknown", name=site.node.name)
    if depth > _MAX_DEPTH:
        return unknown
    enum = _read_enum(site, scope)
    if enum is not None:
        return enum
    chain, bases = family_of(scope.library, site)
    is_dataclass = any(_is_decorated(entry, scope, _DATACLASS) for entry in chain)
    if "typing.NamedTuple" in bases:  # a list in JSON
        named = tuple(_declared_fields(site, scope, depth + 1))
        return Type("tuple", tuple(field.type for field in named), name=site.node.name, fields=named)
    is_known = not bases - _RECORD_BASES - {"builtins.object", "typing.Generic", "typing.Protocol"}
    if not is_known or not (is_dataclass or bases & _RECORD_BASES) or _changes_json_form(chain):
        return unknown
    fields: dict[str, Field] = {}
    for entry in reversed(chain):
        fields |= {field.name: field for field in _declared_fields(entry, scope, depth + 1)}
    record = Type("record", name=site.node.name, fields=tuple(fields.values()))
    is_of_pydantic = bases & PYDANTIC or any(_is_decorated(entry, scope, PYDANTIC) for entry in chain)
    return without_text_forms(record) if is_of_pydantic else record


def _is_decorated(site: ClassSite, scope: NameScope, names: frozenset[str]) -> bool:
    return not names.isdisjoint(decorators_of_class(site, scope))


def decorators_of_class(site: ClassSite, scope: NameScope) -> frozenset[str]:
    """Return the dotted names of the decorators of a class."""
    decorators = (each.func if isinstance(each, ast.Call) else each for each in site.node.decorator_list)
    return frozenset(dotted_name(decorator, scope.within(site.module)) for decorator in decorators)


def class_of_annotation(expression: ast.expr | None, scope: NameScope) -> ClassSite | None:
    """Return the class of the project that `Order`, `"Order"`, `Annotated[Order, ...]` or `Order[int]` names; else None."""
    named = _unquote(expression)
    while isinstance(named, ast.Subscript):
        is_wrapper = _name_before_brackets(named, scope) in _TRANSPARENT
        inner = named.slice.elts[0] if isinstance(named.slice, ast.Tuple) else named.slice
        named = _unquote(inner) if is_wrapper else named.value
    target = resolve_through(named, scope) if named is not None else None
    is_class = isinstance(target, DefinedName) and isinstance(target.node, ast.ClassDef)
    return ClassSite(target.module, target.node) if is_class else None  # type: ignore[union-attr, arg-type]


def _changes_json_form(chain: tuple[ClassSite, ...]) -> bool:
    """True if the JSON form of a class may differ from its declared fields: renamed, tagged, or written as an array."""
    assignments = (each for site in chain for each in site.node.body if isinstance(each, ast.AnnAssign | ast.Assign))
    calls = [each.value for each in assignments if isinstance(each.value, ast.Call)]
    keywords = {keyword.arg for site in chain for keyword in site.node.keywords}
    keywords |= {keyword.arg for call in calls for keyword in call.keywords}
    return bool(keywords & {"rename", "array_like", "tag", "alias_generator", "alias", "validation_alias", "name"})


def _declared_fields(site: ClassSite, scope: NameScope, depth: int) -> Iterator[Field]:
    """Yield the fields that a class declares in its own body, except `ClassVar`, `InitVar`, `KW_ONLY`, `field(init=False)`."""
    inner = scope.within(site.module)._replace(hidden=syntax.type_parameters(site.node))
    is_total = not any(
        keyword.arg == "total" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in site.node.keywords
    )
    for statement in site.node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        wrapper = _name_before_brackets(statement.annotation, inner)
        if wrapper in ("ClassVar", "InitVar", "KW_ONLY", "dataclasses.InitVar", "dataclasses.KW_ONLY"):
            continue
        if _is_not_in_init(statement.value):
            continue
        required = wrapper == "Required" or (
            is_total and wrapper != "NotRequired" and not _has_default(statement.value)
        )
        yield Field(statement.target.id, read_type(statement.annotation, inner, depth), required)


def _is_not_in_init(value: ast.expr | None) -> bool:
    """True for `field(init=False)`: the constructor takes no such argument."""
    return isinstance(value, ast.Call) and any(
        keyword.arg == "init" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in value.keywords
    )


def _has_default(value: ast.expr | None) -> bool:
    """True if the value that is assigned to a field is a default.

    `field(...)` and `Field(...)` give a default only by their arguments. A value of `...` marks a required field of pydantic.
    """
    function = value.func if isinstance(value, ast.Call) else None
    maker = getattr(function, "attr", getattr(function, "id", ""))
    if not isinstance(value, ast.Call) or maker not in ("field", "Field"):
        return value is not None and not (isinstance(value, ast.Constant) and value.value is ...)
    if value.args:
        return not (isinstance(value.args[0], ast.Constant) and value.args[0].value is ...)
    return any(keyword.arg in ("default", "default_factory") for keyword in value.keywords)


def annotation_kind(expression: ast.expr | None, scope: NameScope, found: Type, depth: int = 0) -> str:
    """Return what the annotation of a parameter means for a handler.

    That is `none`, `event`, `typed` (a record), `mapping`, `variable` (a type parameter, so any type) or `other`. `found` is the
    type that `read_type` returns for the annotation.
    """
    if expression is None:
        return "none"
    expression = _unquote(expression)
    if expression is None:
        return "other"
    named = expression.value if isinstance(expression, ast.Subscript) else expression
    target = resolve_through(named, scope)
    if isinstance(target, DefinedName) and isinstance(target.node, syntax.TypeAlias) and depth < _MAX_DEPTH:
        return annotation_kind(target.node.value, _scope_of_alias(target, target.node, scope), found, depth + 1)
    if isinstance(target, External) and target.dotted == EVENT:
        return "event"
    if isinstance(named, ast.Name) and named.id in scope.hidden:
        return "variable"
    return {"record": "typed", "dict": "mapping"}.get(found.kind, "other")
