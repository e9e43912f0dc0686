"""Values of a type: few, but for nearly each place where two types may differ one that tells them apart."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any

from graphbus_core.schema.types import EXAMPLES, Field, Type
from graphbus_core.schema.validation import problems_in

_MOST = 400
_PLAIN: dict[str, tuple[Any, ...]] = {
    "unknown": (None, True, 1, 0.5, "text", [], {}),
    "any": (None, True, 1, 0.5, "text", [], {}),
    "null": (None,),
    "bool": (True, False),
    "int": (1, 0, -1, 1_000_003),
    "float": (0.5, 1, -0.25),
    "str": ("text", "", "another text"),
    "bytes": (b"bytes",),
}


def samples(of: Type) -> Iterator[Any]:
    """Give values of a type; what is unknown may be anything."""
    if of.kind == "str" and of.name:
        yield from EXAMPLES[of.name]
    elif of.kind in _PLAIN:
        yield from _PLAIN[of.kind]
    elif of.kind == "union":
        for part in of.args:
            yield from samples(part)
    elif of.kind == "literal":
        yield from of.values
    elif of.kind == "record":
        yield from field_samples(of.fields)
    else:
        yield from _containers(of)


def field_samples(fields: Sequence[Field]) -> Iterator[dict[str, Any]]:
    """Give mappings with these fields: all of them, then each value of each field in turn, then without what may be missing."""
    whole = {field.name: next(samples(field.type), None) for field in fields}
    yield whole
    yield {field.name: whole[field.name] for field in fields if field.required}
    for field in fields:
        for value in islice(samples(field.type), 1, _MOST):
            yield {**whole, field.name: value}
        if not field.required:
            yield {name: value for name, value in whole.items() if name != field.name}


def _containers(of: Type) -> Iterator[Any]:
    if of.kind == "dict":
        keys, values = of.args[:2] if len(of.args) > 1 else (Type("str"), Type("any"))
        key = next(samples(keys), None)
        yield from ({key: value} for value in samples(values))
        yield from ({other: next(samples(values), None)} for other in samples(keys))
        yield {}
    elif of.kind == "tuple" and of.args:
        whole = [next(samples(part), None) for part in of.args]
        for at, part in enumerate(of.args):
            yield from ([*whole[:at], value, *whole[at + 1 :]] for value in samples(part))
    else:
        items = of.args[0] if of.args else Type("any")
        yield from ([value] for value in samples(items))
        yield []
        if of.kind == "set":  # JSON has none, but a call within the process may pass one
            yield from ({value} for value in samples(items) if isinstance(value, Hashable))


def witness(takes: Type, sent: Type) -> tuple[Any, ...]:
    """Give, as the one item of a tuple, a value of `sent` that `takes` refuses; an empty tuple if none was found."""
    found = (value for value in islice(samples(sent), _MOST) if problems_in(takes, value))
    return tuple(islice(found, 1))
