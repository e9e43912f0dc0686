"""Types of values as plain data, read from annotations and schemas.

    {"order_id": str, "items": list[Item]}   ->   Schema(fields=(Field("order_id", STR), Field("items", list of record)))

A type that cannot be read is `unknown`: every value fits it, so GraphBus reports nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Literal

import msgspec

Kind = Literal[
    "unknown",
    "any",
    "null",
    "bool",
    "int",
    "float",
    "str",
    "bytes",
    "list",
    "dict",
    "tuple",
    "set",
    "union",
    "literal",
    "record",
    "result",
]


ITEM = "[]"
"""A key into a `result` that stands for any item of a list."""
ALL_OCCUR = "either"
"""The name of a `union` of which all choices are known to occur, because no condition can have narrowed it."""
_SHOWN = {"null": "None", "any": "Any", "unknown": "?"}


class Type(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One type.

    Attributes:
        kind: Which type it is; the other attributes refine it.
        args: `list`, `set`: the item type (none: any). `dict`: key and value types. `tuple`: item types. `union`: the choices.
        values: The choices of a `literal`; of a `str`, `int` or `bool` that is read from the code, the constants that it surely
            is. These decide whether it fits a `literal`, and make no difference anywhere else.
        name: For a `record` the class name, for `unknown` the text that was not understood. A `literal` with a name is an Enum,
            whose members fit, too. A `str` with a name is the text form of that class; see `TEXT_TYPES`. A `list` with a name
            is `tuple[T, ...]`, which is an array in JSON like a list.
        fields: The fields of a `record` (TypedDict, dataclass, msgspec or pydantic class, or a nested schema mapping).

    A `result` stands for the result of another agent: its `name` is `"Agent.method"` or the topic of a request, its `values` are
    the keys that lead to a part of it. It is resolved when the whole graph is known.
    """

    kind: Kind
    args: tuple[Type, ...] = ()
    values: tuple[str | int | bool | None, ...] = ()
    name: str = ""
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        """Return the type as in source code; a record without a name as its fields, and `?` for an unknown type."""
        if self.kind == "union":
            return " | ".join(dict.fromkeys(map(str, self.args)))
        if self.kind == "literal":
            return f"Literal[{', '.join(map(repr, self.values))}]"
        if self.kind == "record":
            return self.name or str(Schema(self.fields))
        if self.args:
            of_any_length = ", ..." if self.kind == "list" and self.name else ""
            return f"{self.name or self.kind}[{', '.join(map(str, self.args))}{of_any_length}]"
        return self.name or _SHOWN.get(self.kind, self.kind)


class Field(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A named field of a schema; it may be missing unless it is `required`."""

    name: str
    type: Type
    required: bool = True


class Schema(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The fields of a payload, of a method's arguments or of its result.

    Attributes:
        fields: In the order of the source.
        is_open: Further fields may be present, for instance because of `**extra` in a dict display.
        rest: Types of kind `result` whose fields are present as well.
    """

    fields: tuple[Field, ...] = ()
    is_open: bool = False
    rest: tuple[Type, ...] = ()

    def __str__(self) -> str:
        shown = [f"{field.name}{'' if field.required else '?'}: {field.type}" for field in self.fields]
        return "{" + ", ".join(shown + ["..."] * self.is_open) + "}"

    def get(self, name: str) -> Field | None:
        """Return the field with this name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    @property
    def names(self) -> frozenset[str]:
        """The names of all fields."""
        return frozenset(field.name for field in self.fields)


UNKNOWN = Type("unknown")
ANY = Type("any")
NULL = Type("null")
BOOL = Type("bool")
INT = Type("int")
FLOAT = Type("float")
STR = Type("str")
BYTES = Type("bytes")
LIST = Type("list")
DICT = Type("dict")


def union(*types: Type) -> Type:
    """Return the union of types, flat and without duplicates.

    It is unknown if one of them is unknown, else `any` if one of them is `any`, and a single type if only one remains.
    """
    choices: list[Type] = []
    for item in types:
        choices.extend(item.args if item.kind == "union" else (item,))
    distinct = _merge_choices(choices) if len(choices) > 1 else tuple(choices)
    unknown = next((choice for choice in distinct if choice.kind == "unknown"), None)
    if unknown is not None:
        return Type("unknown", name=" | ".join(map(str, distinct)) if unknown.name else "")
    if any(choice.kind == "any" for choice in distinct):
        return ANY
    return distinct[0] if len(distinct) == 1 else Type("union", distinct)


_CONSTANT_KINDS = frozenset({"str", "int", "bool"})
_MOST_CONSTANTS = 8


def _merge_choices(choices: Iterable[Type]) -> tuple[Type, ...]:
    """Return each choice once; those that differ only in constants become one, without constants if there are many."""
    found: dict[Type, Type] = {}
    for each in choices:
        key = without_constants(each)
        known = found.setdefault(key, each)
        if known != each:
            values = tuple(dict.fromkeys((*known.values, *each.values))) if known.values and each.values else ()
            has_few = each.kind in _CONSTANT_KINDS and len(values) <= _MOST_CONSTANTS
            found[key] = Type(each.kind, values=values) if has_few else key
    return tuple(found.values())


def without_constants(of: Type) -> Type:
    """Return the type without the constants that are known of its values, at any depth; a `literal` keeps its values."""
    if of.kind in _CONSTANT_KINDS:
        return Type(of.kind, name=of.name) if of.values else of
    if not (of.args or of.fields):
        return of
    if of.kind == "union":
        found = union(*map(without_constants, of.args))
        return Type("union", found.args, name=of.name) if found.kind == "union" else found
    fields = tuple(Field(each.name, without_constants(each.type), each.required) for each in of.fields)
    return Type(of.kind, tuple(map(without_constants, of.args)), of.values, of.name, fields)


def fields_without_constants(schema: Schema) -> Schema:
    """Return the schema without the constants that are known of its fields."""
    fields = without_constants(Type("record", fields=schema.fields)).fields
    return Schema(fields, schema.is_open, schema.rest)


# --- texts in a certain format -------------------------------------------------------------
#
# In JSON, dates, times, durations and UUIDs are text, and decimals are text or numbers. Such a type is a `str` with the name
# of its class. It fits wherever a text is wanted. A text fits it if msgspec can convert it to an object of the class.

_HOMES = {
    "date": "datetime",
    "datetime": "datetime",
    "time": "datetime",
    "timedelta": "datetime",
    "Decimal": "decimal",
    "UUID": "uuid",
}
FORMATS = {"date": "date", "datetime": "date-time", "time": "time", "timedelta": "duration", "UUID": "uuid"}
"""Class -> the `format` of its text in JSON Schema, which has none for decimals."""

TEXT_EXAMPLES = {
    "date": ("2026-01-31", "1999-12-01"),
    "datetime": ("2026-01-31T12:00:00Z", "1999-12-01T00:00:00"),
    "time": ("12:00:00", "00:00:00.5"),
    "timedelta": ("PT1S", "P1D"),
    "Decimal": ("12.50", "-1"),
    "UUID": ("12345678-1234-5678-1234-567812345678",),
}

TEXT_TYPES: dict[tuple[str, str], Type] = {(home, name): Type("str", name=name) for name, home in _HOMES.items()}
TEXT_TYPES["decimal", "Decimal"] = union(TEXT_TYPES["decimal", "Decimal"], FLOAT)
"""(module, name) of a class -> its type; by name, so that the modules are imported only where they are used."""


def as_json(of: Type) -> Type:
    """Return the type of the JSON form of its values, in which bytes are base64 text and sets are lists."""
    if of.kind == "bytes":
        return STR
    fields = tuple(Field(each.name, as_json(each.type), each.required) for each in of.fields)
    args, kind = tuple(map(as_json, of.args)), "list" if of.kind == "set" else of.kind
    return Type(kind, args, of.values, of.name, fields) if args or fields or kind != of.kind else of


def is_unspecific(of: Type) -> bool:
    """True if a type, or a type that it contains, says nothing about its values: `dict`, `list[Any]`, an unknown type."""
    if of.kind in ("list", "set", "tuple", "dict", "union"):
        return not of.args or any(map(is_unspecific, of.args))
    return of.kind in ("unknown", "any")


def without_text_forms(of: Type) -> Type:
    """Return a type in which dates and other named texts are unknown: pydantic accepts numbers and other formats for them."""
    if of.kind == "str" and of.name:
        return Type("unknown", name=of.name)
    if of.kind == "union":
        return union(*map(without_text_forms, of.args))
    fields = tuple(Field(each.name, without_text_forms(each.type), each.required) for each in of.fields)
    return Type(of.kind, tuple(map(without_text_forms, of.args)), of.values, of.name, fields)


IsOne = Callable[[object], bool]


def class_of_text(name: str) -> type:
    """Return the class of `TEXT_TYPES` with this name; its module is imported here."""
    found: type = getattr(import_module(_HOMES[name]), name)
    return found


@cache
def is_text_of(name: str) -> IsOne:
    """Return a function that tests a value for one class of `TEXT_TYPES`, by its name, such as `"date"`.

    The function returns True for an object of the class, and for a text that can be converted to one.
    """
    kind = class_of_text(name)
    others: tuple[type, ...] = (import_module("datetime").datetime,) if name == "date" else ()

    def is_one(value: object) -> bool:
        own = type(value)
        if not issubclass(own, str):
            # In Python a datetime is a date, but its text is not the text of a date.
            return issubclass(own, kind) and not issubclass(own, others)
        try:
            msgspec.convert(str.__str__(value), kind)
        except ValueError:
            return False
        return True

    return is_one
