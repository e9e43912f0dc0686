"""What JSON has as a text of a form of its own: dates, times, durations and ids, and decimals, which may be numbers, too.

Such a type is a `str` with a name: who asks for no more than a text reads a text. The text is judged by what makes objects of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

import msgspec

from graphbus_core.model.schema import FLOAT, Field, Type, union

_HOMES = {
    "date": "datetime",
    "datetime": "datetime",
    "time": "datetime",
    "timedelta": "datetime",
    "Decimal": "decimal",
    "UUID": "uuid",
}
FORMATS = {"date": "date", "datetime": "date-time", "time": "time", "timedelta": "duration", "UUID": "uuid"}
"""Class -> what JSON Schema calls its text; it has no word for decimals."""

EXAMPLES = {
    "date": ("2026-01-31", "1999-12-01"),
    "datetime": ("2026-01-31T12:00:00Z", "1999-12-01T00:00:00"),
    "time": ("12:00:00", "00:00:00.5"),
    "timedelta": ("PT1S", "P1D"),
    "Decimal": ("12.50", "-1"),
    "UUID": ("12345678-1234-5678-1234-567812345678",),
}

TEXTS: dict[tuple[str, str], Type] = {(home, name): Type("str", name=name) for name, home in _HOMES.items()}
TEXTS["decimal", "Decimal"] = union(TEXTS["decimal", "Decimal"], FLOAT)
"""Module and name of a class -> its type; by name, so that who has none of them does not import them."""


def left_open(of: Type) -> Type:
    """The type with nothing said of such texts: pydantic makes dates of numbers and of texts in other forms, too."""
    if of.kind == "str" and of.name:
        return Type("unknown", name=of.name)
    if of.kind == "union":
        return union(*map(left_open, of.args))
    fields = tuple(Field(each.name, left_open(each.type), each.required) for each in of.fields)
    return Type(of.kind, tuple(map(left_open, of.args)), of.values, of.name, fields)


IsOne = Callable[[object], bool]


@cache
def is_text_of(name: str) -> IsOne:
    """Give the function that tells whether a value is an object of this class, or a text that one can be made of."""
    kind: type = getattr(import_module(_HOMES[name]), name)
    others: tuple[type, ...] = (import_module("datetime").datetime,) if name == "date" else ()

    def is_one(value: object) -> bool:
        own = type(value)
        if not issubclass(own, str):
            # To Python a datetime is a date, but its text is none.
            return issubclass(own, kind) and not issubclass(own, others)
        try:
            msgspec.convert(str.__str__(value), kind)
        except ValueError:
            return False
        return True

    return is_one
