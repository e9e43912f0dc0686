"""Contracts as live classes declare them, in the same terms as the compiler reads them from source text."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import msgspec

from graphbus_core.decorators import DeclaredSchema, DeclaredTopic
from graphbus_core.model.agent import MethodSpec, SourceSpan
from graphbus_core.model.schema import (
    ANY,
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
    Kind,
    Schema,
    Type,
)
from graphbus_core.node import GraphBusNode

_PLAIN: dict[object, Type] = {
    str: STR,
    int: INT,
    float: FLOAT,
    bool: BOOL,
    bytes: BYTES,
    list: LIST,
    dict: DICT,
    tuple: Type("tuple"),
    set: Type("set"),
    frozenset: Type("set"),
    type(None): NULL,
    object: ANY,
    Any: ANY,
}
_CONTAINERS: tuple[tuple[type | tuple[type, ...], Kind], ...] = (
    (Mapping, "dict"),
    ((set, frozenset), "set"),
    (Sequence, "list"),
)
_MAX_DEPTH = 12
_NOWHERE = SourceSpan("", 0, 0, 0, 0)


def methods_of(node: type[GraphBusNode]) -> tuple[MethodSpec, ...]:
    """Give the methods with `@schema_method`, inherited ones included."""
    found = []
    for name in dir(node):
        declared = getattr(getattr(node, name, None), "__graphbus_schema__", None)
        if isinstance(declared, DeclaredSchema):
            found.append(
                MethodSpec(
                    name=name,
                    span=_NOWHERE,
                    has_schema=True,
                    input_schema=schema_of(declared.input_schema),
                    output_schema=schema_of(declared.output_schema),
                )
            )
    return tuple(found)


def topics_of(node: type[GraphBusNode]) -> dict[str, Schema | None]:
    """Give what `@publishes` declares on the class and its methods: topic -> payload."""
    found: dict[str, Schema | None] = {}
    for holder in (node, *(getattr(node, name, None) for name in dir(node))):
        declared = getattr(holder, "__graphbus_publishes__", ())
        for each in declared if isinstance(declared, tuple) else ():
            if isinstance(each, DeclaredTopic):
                found[each.topic] = schema_of(each.schema)
    return found


def schema_of(declared: object) -> Schema | None:
    """Give the fields of a mapping of name -> type or of a typed class; None for None and what cannot be read."""
    if declared is None:
        return None
    found = type_of(declared)
    return Schema(found.fields) if found.kind == "record" else None


def type_of(annotation: object, depth: int = 0) -> Type:
    """Give the type that an annotation, or a display like `{"sku": str}` or `[str]`, stands for."""
    if depth > _MAX_DEPTH:
        return UNKNOWN
    if isinstance(annotation, Mapping):
        return Type("record", fields=tuple(_field(str(name), of, depth) for name, of in annotation.items()))
    if isinstance(annotation, list):
        return Type("list", args=(type_of(annotation[0], depth + 1),)) if annotation else LIST
    origin = get_origin(annotation)
    if origin is not None:
        return _type_of_generic(origin, get_args(annotation), depth)
    if isinstance(annotation, type):
        return _PLAIN.get(annotation) or _record_of(annotation, depth)
    return NULL if annotation is None else UNKNOWN


def _type_of_generic(origin: object, args: tuple[Any, ...], depth: int) -> Type:
    if origin in (Union, types.UnionType):
        return Type("union", args=tuple(type_of(arg, depth + 1) for arg in args))
    if origin is Literal:
        return Type("literal", values=args)
    if origin in (Required, NotRequired) or not isinstance(origin, type):
        return type_of(args[0], depth + 1) if args else UNKNOWN
    if issubclass(origin, tuple):
        return _type_of_tuple(args, depth)
    for kinds, name in _CONTAINERS:
        if issubclass(origin, kinds):
            return Type(name, args=tuple(type_of(arg, depth + 1) for arg in args))
    return UNKNOWN


def _type_of_tuple(args: tuple[Any, ...], depth: int) -> Type:
    if len(args) == 2 and args[1] is Ellipsis:
        return Type("list", args=(type_of(args[0], depth + 1),))
    return Type("tuple", args=tuple(type_of(arg, depth + 1) for arg in args))


def _record_of(kind: type, depth: int) -> Type:
    """The fields of a TypedDict, dataclass, msgspec or pydantic class."""
    required = _required_of(kind)
    if required is None:
        return UNKNOWN
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        return UNKNOWN
    fields = tuple(_field(name, hints[name], depth, is_required=needed) for name, needed in required.items())
    return Type("record", name=kind.__name__, fields=fields)


def _required_of(kind: Any) -> dict[str, bool] | None:
    """Field name -> must it be there; None for a class that has no declared fields."""
    if hasattr(kind, "__required_keys__"):
        return {name: name in kind.__required_keys__ for name in kind.__annotations__}
    if issubclass(kind, msgspec.Struct):
        return {field.name: field.required for field in msgspec.structs.fields(kind)}
    if hasattr(kind, "model_fields"):
        return {name: field.is_required() for name, field in kind.model_fields.items()}
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import MISSING, fields

        return {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(kind)}
    return None


def _field(name: str, annotation: object, depth: int, *, is_required: bool = True) -> Field:
    """A field; `NotRequired[...]` is looked for here, because a TypedDict does not see it in annotations that are text."""
    origin = get_origin(annotation)
    needed = origin is not NotRequired and (is_required or origin is Required)
    return Field(name, type_of(annotation, depth + 1), needed)
