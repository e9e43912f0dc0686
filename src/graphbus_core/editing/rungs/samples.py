"""Made-up values that fit a type: plain ones, as a user of the contract would send them, and odd ones that the type allows, too.

The same for the same type, always. What is unknown has no sample, and nothing that needs one is tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.schema.json import Json
from graphbus_core.schema.types import STR, Field, Schema, Type

_PLAIN: dict[str, list[Json]] = {"bool": [True], "int": [3], "float": [12.5], "str": ["sample"], "null": [None]}
_ODD: dict[str, list[Json]] = {
    "bool": [False],
    "int": [0, -1, 1],
    "float": [0.0, -0.5, 7],
    "str": ["", "Größe ✓", "  x  "],
    "null": [None],
}
_DEEPEST = 4


class NoSample(Exception):  # noqa: N818 - it is an answer, not a failure
    """The type does not say what a value looks like."""


def plain(schema: Schema) -> Iterator[dict[str, Json]]:
    """Give a plain mapping with every field, then, if some may be missing, one without those.

    Raises:
        NoSample: A required field has a type that says nothing.
    """
    fields = [field for field in schema.fields if field.required or _has_sample(field.type)]
    yield {field.name: sample(field.type) for field in fields}
    if any(not field.required for field in fields):
        yield {field.name: sample(field.type) for field in fields if field.required}


def odd(schema: Schema) -> Iterator[dict[str, Json]]:
    """Give plain mappings in which one field at a time has a rare value."""
    whole = next(plain(schema))
    for field in schema.fields:
        if field.name in whole:
            yield from ({**whole, field.name: value} for value in _rare(field.type))


def sample(of: Type, depth: int = 0) -> Json:
    """Give a plain value.

    Raises:
        NoSample: The type does not say what a value looks like, or it goes on without end.
    """
    if depth > _DEEPEST:
        raise NoSample
    if of.kind in ("str", "literal") and of.name:  # a method is called as it is, and may want the object, or the member
        raise NoSample
    if of.kind in _PLAIN:
        return _PLAIN[of.kind][0]
    if of.kind == "literal" and of.values:
        return of.values[0]
    if of.kind == "list" and of.args:
        return [sample(of.args[0], depth + 1)]
    if of.kind == "dict" and len(of.args) == 2 and of.args[0] == STR:
        return {"sample": sample(of.args[1], depth + 1)}
    if of.kind == "union":
        return sample(next((arg for arg in of.args if arg.kind != "null"), of.args[0]), depth + 1)
    if of.kind == "record" and of.fields:
        return _record(of.fields, depth)
    raise NoSample


def _record(fields: tuple[Field, ...], depth: int) -> Json:
    return {field.name: sample(field.type, depth + 1) for field in fields if field.required}


def _rare(of: Type) -> list[Json]:
    if of.kind in _ODD and not of.name:
        return _ODD[of.kind]
    if of.kind == "literal":
        return list(of.values[1:])
    if of.kind == "list":
        return [[]]
    if of.kind == "dict":
        return [{}]
    if of.kind == "union" and any(arg.kind == "null" for arg in of.args):
        return [None]
    return []


def _has_sample(of: Type) -> bool:
    try:
        sample(of)
    except NoSample:
        return False
    return True
