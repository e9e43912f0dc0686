"""Enums, annotations and schema displays: what the text alone says of types.

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
_USUAL_BASES = _ENUMS | TEXT_BASES | _NUMBERS | {"builtins.object"}
_OWN_WAYS = frozenset(
    {"__new__", "__init__", "__init_subclass__", "__set_name__", "_generate_next_value_", "_missing_"}
)
"""Methods by which an Enum makes other values than those that are written, or takes others."""


def _read_words(site: ClassSite, scope: NameScope) -> Type | None:
    """Return the values of an Enum as a literal, unknown when they are not certain; None for a class that is no Enum."""
    chain, bases = family_of(scope.library, site)
    if not bases & _ENUMS:
        return None
    values: list[object] = []
    if bases <= _USUAL_BASES and all(_is_usual(entry, scope) for entry in chain):
        inner = NameScope(scope.library, site.module, (site,), in_class_body=True)
        for statement in site.node.body:
            if isinstance(statement, ast.Assign):
                name = ast.unparse(statement.targets[0])
                values.append(_member(name, statement.value, values, inner, bases))
    kinds = {kind for kind, others in ((str, bases & _NUMBERS), (int, bases & TEXT_BASES)) if not others}
    words = tuple(value for value in values if isinstance(value, str | int) and type(value) in kinds)
    if not words or len(words) != len(values):
        return Type("unknown", name=site.node.name)
    return Type("literal", values=tuple(dict.fromkeys(words)), name=site.node.name)


def _is_usual(site: ClassSite, scope: NameScope) -> bool:
    """True for an Enum class whose statements are plain assignments and methods that do not change its values."""
    node = site.node
    plain = all(isinstance(base, External | DefinedName) for base in base_targets(scope.library, site))
    decorators = {dotted_name(each, scope.within(site.module)) for each in node.decorator_list}
    return plain and not node.keywords and decorators <= {"enum.unique"} and all(map(_is_usual_statement, node.body))


def _is_usual_statement(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        names = {getattr(each, "attr", getattr(each, "id", "")) for each in statement.decorator_list}
        return statement.name not in _OWN_WAYS and "member" not in names
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        return len(statement.targets) == 1 and isinstance(target, ast.Name) and target.id[:1] != "_"
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass)


def _member(name: str, value: ast.expr, before: list[object], scope: NameScope, bases: frozenset[str]) -> object:
    """The value of a member; `auto()` is the name of a StrEnum's member, or the next of rising numbers."""
    if not isinstance(value, ast.Call) or dotted_name(value.func, scope) != "enum.auto":
        return evaluate_constant(value, scope)
    if "enum.StrEnum" in bases:
        return name.lower()
    numbers = [each for each in before if type(each) is int]
    is_rising = len(numbers) == len(before) and numbers == sorted(numbers) and not bases & TEXT_BASES
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
_PYDANTIC = frozenset({"pydantic.BaseModel", "pydantic.main.BaseModel", "pydantic.dataclasses.dataclass"})
_RECORD_BASES = _PYDANTIC | {"typing.TypedDict", "typing_extensions.TypedDict", "msgspec.Struct"}
EVENT = "graphbus_core.Event"


def read_type(expression: ast.expr | None, scope: NameScope, depth: int = 0) -> Type:
    """Return the type that an annotation names."""
    if expression is None:
        return UNKNOWN
    if depth > _MAX_DEPTH:
        return _unknown(expression)
    reader = _READERS.get(expression.__class__)
    return reader(expression, scope, depth + 1) if reader else _unknown(expression)


def _unknown(expression: ast.expr) -> Type:
    return Type("unknown", name=ast.unparse(expression))


def _unquoted(expression: ast.expr | None) -> ast.expr | None:
    """Return the expression in a quoted annotation; None for a text that is no expression."""
    if not isinstance(expression, ast.Constant) or not isinstance(expression.value, str):
        return expression
    try:
        return syntax.parse_expression(expression.value.strip())
    except (SyntaxError, ValueError):
        return None


def _read_constant(expression: ast.Constant, scope: NameScope, depth: int) -> Type:
    """A forward reference, or a type's name in a schema; the names of JSON Schema count where they mean nothing else."""
    if expression.value is None:
        return NULL
    inner = _unquoted(expression)
    if inner is None or inner is expression:
        return Type("unknown", name=str(expression.value)) if inner is None else _unknown(expression)
    name = inner.id if isinstance(inner, ast.Name) else ""
    if name in _JSON_NAMES and resolve(inner, scope) in (None, External(f"builtins.{name}")):
        return _JSON_NAMES[name]
    return read_type(inner, scope, depth)


def _read_name(expression: ast.Name | ast.Attribute, scope: NameScope, depth: int) -> Type:
    target = resolve(expression, scope)
    if isinstance(target, External):
        home, _, name = target.dotted.rpartition(".")
        found = _BUILTIN_TYPES.get(target.dotted) or _NAMED.get(_plain_name(target.dotted))
        return found or TEXT_TYPES.get((home, name)) or _unknown(expression)
    if isinstance(target, DefinedName):
        if isinstance(target.node, ast.ClassDef):
            return _read_class(ClassSite(target.module, target.node), scope, depth)
        if isinstance(target.node, syntax.TypeAlias):
            return read_type(target.node.value, _within_alias(target, target.node, scope), depth)
        if isinstance(target.node, ast.expr):
            return _read_alias(target, scope, depth) or _unknown(expression)
    return _unknown(expression)


def _within_alias(target: DefinedName, node: syntax.TypeAlias, scope: NameScope) -> NameScope:
    """Return the scope of the value of a `type` statement."""
    return scope.within(target.module)._replace(hidden=syntax.type_parameters(node))


def _plain_name(dotted: str) -> str:
    """`typing.List` -> `List`; the dotted name itself for what no typing module defines."""
    if dotted.startswith("builtins."):
        return dotted[9:]
    home, _, name = dotted.rpartition(".")
    return name if f"{home}." in _TYPING else dotted


def _read_alias(target: DefinedName, scope: NameScope, depth: int) -> Type | None:
    node = target.node
    inner = scope.within(target.module)
    if isinstance(node, ast.Call):
        made = resolve(node.func, inner)
        if isinstance(made, External) and _plain_name(made.dotted) == "NewType" and len(node.args) == 2:
            return read_type(node.args[1], inner, depth)
        is_typed_dict = isinstance(made, External) and _plain_name(made.dotted) == "TypedDict" and len(node.args) == 2
        return _read_functional(node, inner, depth) if is_typed_dict else None
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp):
        return read_type(node, inner, depth)
    return None


def _read_functional(call: ast.Call, scope: NameScope, depth: int) -> Type | None:
    """`TypedDict("Order", {"order_id": str})`."""
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
    if not isinstance(expression.op, ast.BitOr):
        return _unknown(expression)
    return union(read_type(expression.left, scope, depth), read_type(expression.right, scope, depth))


def _read_subscript(expression: ast.Subscript, scope: NameScope, depth: int) -> Type:
    target = resolve(expression.value, scope)
    if not isinstance(target, External):
        return _unknown(expression)
    name = _plain_name(target.dotted)
    parts = expression.slice.elts if isinstance(expression.slice, ast.Tuple) else [expression.slice]
    if name == "Literal":
        return _read_literal(expression, parts, scope)
    if name in _TRANSPARENT or name in ("Optional", "Union"):
        choices = [read_type(part, scope, depth) for part in (parts[:1] if name in _TRANSPARENT else parts)]
        return union(*choices, *([NULL] if name == "Optional" else []))
    container = _NAMED.get(name)
    if container is None or container.kind not in ("list", "dict", "tuple", "set"):
        return _unknown(expression)
    return _read_container(container, parts, scope, depth)


def _read_container(container: Type, parts: list[ast.expr], scope: NameScope, depth: int) -> Type:
    if container.kind == "tuple" and isinstance(parts[-1], ast.Constant) and parts[-1].value is ...:  # of any length
        return Type("list", (read_type(parts[0], scope, depth),), name="tuple") if len(parts) == 2 else container
    args = tuple(read_type(part, scope, depth) for part in parts)
    wanted = {"list": 1, "set": 1, "dict": 2}.get(container.kind, len(args))
    return Type(container.kind, args) if len(args) == wanted else container


def _read_literal(expression: ast.Subscript, parts: list[ast.expr], scope: NameScope) -> Type:
    values: list[str | int | bool | None] = []
    for part in parts:
        value = evaluate_constant(part, scope)
        if not isinstance(value, str | int | None):
            return _unknown(expression)
        values.append(value)
    return Type("literal", values=tuple(values))


def _read_display(expression: ast.Dict, scope: NameScope, depth: int) -> Type:
    schema = read_schema(expression, scope, depth)
    return Type("record", fields=schema.fields) if schema and not schema.is_open else DICT


def _read_list_display(expression: ast.List, scope: NameScope, depth: int) -> Type:
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
    """Return the fields that a schema expression declares: a dict display, its name, or a typed class; None when unknown."""
    if (
        isinstance(expression, ast.Call)
        and not expression.args
        and dotted_name(expression.func, scope) == "builtins.dict"
    ):
        keys: list[ast.expr | None] = [ast.Constant(each.arg) if each.arg else None for each in expression.keywords]
        expression = ast.Dict(keys, [each.value for each in expression.keywords])
    if expression is None or depth > _MAX_DEPTH:
        return None
    if isinstance(expression, ast.Dict):
        return _read_fields(expression, scope, depth + 1)
    return _read_named_schema(expression, scope, depth)


def _read_named_schema(expression: ast.expr, scope: NameScope, depth: int) -> Schema | None:
    target = resolve(expression, scope)
    if not isinstance(target, DefinedName):
        return None
    if isinstance(target.node, syntax.TypeAlias):
        return read_schema(target.node.value, _within_alias(target, target.node, scope), depth + 1)
    if isinstance(target.node, ast.Dict):
        return None if is_rebound(target) else read_schema(target.node, scope.within(target.module), depth + 1)
    record = _read_name(expression, scope, depth + 1) if isinstance(expression, ast.Name | ast.Attribute) else None
    return Schema(record.fields) if record and record.kind == "record" else None


def _read_fields(display: ast.Dict, scope: NameScope, depth: int) -> Schema | None:
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
            fields[name] = Field(name, read_type(value, scope, depth), _wrapper(value, scope) != "NotRequired")
        else:
            return None
    return Schema(tuple(fields.values()), is_open)


def _wrapper(expression: ast.expr | None, scope: NameScope) -> str:
    """The name of the special form around an annotation, `NotRequired[str]` -> `NotRequired`."""
    inner = _unquoted(expression)
    return _plain_name(dotted_name(inner.value if isinstance(inner, ast.Subscript) else inner, scope)) if inner else ""


# --- classes --------------------------------------------------------------------------


def _read_class(site: ClassSite, scope: NameScope, depth: int = 0) -> Type:
    """Return the record that a TypedDict, dataclass, msgspec or pydantic class describes, the values of an Enum, or unknown."""
    unknown = Type("unknown", name=site.node.name)
    if depth > _MAX_DEPTH:
        return unknown
    words = _read_words(site, scope)
    if words is not None:
        return words
    chain, bases = family_of(scope.library, site)
    is_dataclass = any(_is_decorated(entry, scope, _DATACLASS) for entry in chain)
    if "typing.NamedTuple" in bases:  # a list in JSON
        named = tuple(_class_fields(site, scope, depth + 1))
        return Type("tuple", tuple(field.type for field in named), name=site.node.name, fields=named)
    is_known = not bases - _RECORD_BASES - {"builtins.object", "typing.Generic", "typing.Protocol"}
    if not is_known or not (is_dataclass or bases & _RECORD_BASES) or _renames_fields(chain):
        return unknown
    fields: dict[str, Field] = {}
    for entry in reversed(chain):
        fields |= {field.name: field for field in _class_fields(entry, scope, depth + 1)}
    record = Type("record", name=site.node.name, fields=tuple(fields.values()))
    is_of_pydantic = bases & _PYDANTIC or any(_is_decorated(entry, scope, _PYDANTIC) for entry in chain)
    return without_text_forms(record) if is_of_pydantic else record


def _is_decorated(site: ClassSite, scope: NameScope, names: frozenset[str]) -> bool:
    decorators = (each.func if isinstance(each, ast.Call) else each for each in site.node.decorator_list)
    return any(dotted_name(decorator, scope.within(site.module)) in names for decorator in decorators)


def _renames_fields(chain: tuple[ClassSite, ...]) -> bool:
    """True when the fields go by other names outside: `rename=`, `Field(alias=...)`, `msgspec.field(name=...)`."""
    assignments = (each for site in chain for each in site.node.body if isinstance(each, ast.AnnAssign | ast.Assign))
    calls = [each.value for each in assignments if isinstance(each.value, ast.Call)]
    keywords = {keyword.arg for site in chain for keyword in site.node.keywords}
    keywords |= {keyword.arg for call in calls for keyword in call.keywords}
    return bool(keywords & {"rename", "array_like", "tag", "alias_generator", "alias", "validation_alias", "name"})


def _class_fields(site: ClassSite, scope: NameScope, depth: int) -> Iterator[Field]:
    inner = scope.within(site.module)._replace(hidden=syntax.type_parameters(site.node))
    is_total = not any(
        keyword.arg == "total" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in site.node.keywords
    )
    for statement in site.node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        wrapper = _wrapper(statement.annotation, inner)
        if wrapper in ("ClassVar", "InitVar", "KW_ONLY", "dataclasses.InitVar", "dataclasses.KW_ONLY"):
            continue
        if _is_made_inside(statement.value):
            continue
        required = wrapper == "Required" or (
            is_total and wrapper != "NotRequired" and not _has_default(statement.value)
        )
        yield Field(statement.target.id, read_type(statement.annotation, inner, depth), required)


def _is_made_inside(value: ast.expr | None) -> bool:
    """`field(init=False)`: a value that does not come from outside."""
    return isinstance(value, ast.Call) and any(
        keyword.arg == "init" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        for keyword in value.keywords
    )


def _has_default(value: ast.expr | None) -> bool:
    """True for a field that is given a value; `field(...)` and `Field(...)` give one only by their arguments."""
    function = value.func if isinstance(value, ast.Call) else None
    if not isinstance(value, ast.Call) or getattr(function, "attr", getattr(function, "id", "")) not in (
        "field",
        "Field",
    ):
        return value is not None and not (isinstance(value, ast.Constant) and value.value is ...)
    if value.args:
        return not (isinstance(value.args[0], ast.Constant) and value.args[0].value is ...)
    return any(keyword.arg in ("default", "default_factory") for keyword in value.keywords)


def annotation_kind(expression: ast.expr | None, scope: NameScope, found: Type, depth: int = 0) -> str:
    """Describe what an annotation means for a handler, see `model.agent`; `variable` for what may be any type."""
    if expression is None:
        return "none"
    expression = _unquoted(expression)
    if expression is None:
        return "other"
    named = expression.value if isinstance(expression, ast.Subscript) else expression
    target = resolve_through(named, scope)
    if isinstance(target, DefinedName) and isinstance(target.node, syntax.TypeAlias) and depth < _MAX_DEPTH:
        return annotation_kind(target.node.value, _within_alias(target, target.node, scope), found, depth + 1)
    if isinstance(target, External) and target.dotted == EVENT:
        return "event"
    if isinstance(named, ast.Name) and named.id in scope.hidden:
        return "variable"
    return {"record": "typed", "dict": "mapping"}.get(found.kind, "other")
