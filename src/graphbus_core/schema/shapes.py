"""Shapes of values: what decides whether Python can do something with a value, such as adding 1 or iterating over it.

The shape of a `list[Item]` is `list[dict]`, those of `str | None` are `str` and `null`.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import msgspec

from graphbus_core.schema.types import TEXT_EXAMPLES, Type, class_of_text

OBJECT = "object"
"""The shape of an object of a class."""
_EITHER, _MEMBER = "record", "enum"
JSON_SHAPES = (
    *("null", "bool", "int", "float", "str", "dict", "list", _EITHER),
    *("list[bool]", "list[int]", "list[float]", "list[str]", "list[dict]", "list[record]"),
)
"""The shapes of payloads; a `record` may be a mapping or an object."""


class _Either(dict[str, str]):
    """Has keys and attributes."""

    def __getattr__(self, name: str) -> str:
        return "a"


class _Member:
    """A member of an Enum: it has attributes and can be compared; what else it can is not known."""

    def __getattr__(self, name: str) -> str:
        return "a"

    def __lt__(self, other: object) -> bool:
        return True

    __gt__ = __le__ = __ge__ = __lt__


_SAMPLES: dict[str, Callable[[], Any]] = {
    "null": lambda: None,
    "bool": lambda: True,
    "int": lambda: 1,
    "float": lambda: 1.5,
    "str": lambda: "a",
    "bytes": lambda: b"a",
    "dict": lambda: {"a": "a"},
    "set": lambda: {"a"},
    OBJECT: object,
    _EITHER: lambda: _Either(a="a"),
    _MEMBER: _Member,
}


def shapes_of(of: Type, *, record: str = "") -> frozenset[str]:
    """Return the shapes of the values of a type; none if they are not known.

    `record` is the shape of its records; without it they are mappings if their class is not known.
    """
    if of.kind == "union":
        each = [shapes_of(one, record=record) for one in of.args]
        known = frozenset[str]().union(*each) if all(each) else frozenset[str]()
        return known & {"Decimal"} or known  # the JSON form of a decimal may be a number
    if of.kind == "list" and of.args:
        return frozenset(f"list[{item}]" for item in shapes_of(of.args[0], record=record))
    if of.kind == "literal" and not of.name:
        return frozenset("null" if value is None else type(value).__name__ for value in of.values)
    named = {
        **dict.fromkeys(("unknown", "any", "result"), ""),
        "literal": _MEMBER,
        "record": record or (_EITHER if of.name else "dict"),
        "str": of.name or "str",
        "tuple": f"tuple[{len(of.args)}]" if of.args else "",
    }
    return frozenset({named.get(of.kind, of.kind)} - {""})


def may_use(given: Set[str], possible: Set[str], *, is_guarded: bool) -> bool:
    """Return whether values of the `given` shapes surely allow a use that is `possible` with some shapes.

    False if no shapes are given. With `is_guarded`, a condition may exclude None, and all shapes but one.
    """
    return bool(given) and (given <= possible or (is_guarded and bool(given & possible or given == {"null"})))


def sample_of(shape: str) -> Any:
    """Return a new value of a shape."""
    kind, _, item = shape.removesuffix("]").partition("[")
    if kind == "list":
        return [sample_of(shape[5:-1]) if item else object()]
    if kind == "tuple":
        return ("a",) * int(item)
    if kind in TEXT_EXAMPLES:
        return msgspec.convert(TEXT_EXAMPLES[kind][0], class_of_text(kind))
    return _SAMPLES[kind]()
