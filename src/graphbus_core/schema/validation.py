"""Values against types, one after the other: what is wrong with a value, word for word.

    problems_of(schema, {"total": "12"})    ->   (Problem("total", "float", "str '12'"),)

This walk decides what fits; the gates of `checks` only save it for the values that surely do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.isolation import attempt
from graphbus_core.schema.types import NULL, Field, Schema, Type, is_text_of
from graphbus_core.schema.values import (
    clipped,
    fields_of,
    is_bytes,
    is_float,
    is_int,
    is_str,
    items_of,
    mapping_of,
    members_of,
    plain_of,
    shown,
    word_of,
)

MAX_PROBLEMS = 8
"""A message lists so many problems of one value, and `and more` where there are others."""

_MAX_NAMES = 200


class Problem(NamedTuple):
    """One value that does not fit: where it is (`items[0].sku`), what is expected there and what was found."""

    path: str
    expected: str
    got: str
    suggestion: str = ""

    def __str__(self) -> str:
        suggestion = f".{self.suggestion}" if self.suggestion else ""
        return f"{self.path}: expected {self.expected}, got {self.got}{suggestion}"

    def below(self, name: str) -> Problem:
        """The same problem of a value that is the field `name` of another."""
        inner = "" if self.path == "the value" else self.path
        return self._replace(path=name + inner if inner.startswith("[") else _join(name, inner) if inner else name)


def problems_of(schema: Schema, value: object, *, is_closed: bool = False) -> tuple[Problem, ...]:
    """Say what is wrong with a mapping or typed object; nothing for one that fits.

    Of many problems it gives the first, one more than `MAX_PROBLEMS`. Whatever the value is, this raises nothing.

    Args:
        schema: What is expected. What is unknown fits; an int is a float, a bool no int.
        value: Anything.
        is_closed: Fields that the schema does not list are wrong, too, unless it is open.
    """
    return _first(_of_fields(schema, value, "", refuses_others=is_closed and not schema.is_open), schema)


def problems_in(wanted: Type, value: object) -> tuple[Problem, ...]:
    """Say what is wrong with a value of this type, as `problems_of` does."""
    if wanted.kind == "record":
        return problems_of(Schema(wanted.fields), value)
    return tuple(each._replace(path=each.path or "the value") for each in _first(_of_type(wanted, value, ""), wanted))


def _first(found: Iterator[Problem], wanted: object) -> tuple[Problem, ...]:
    problems, error = attempt(lambda: tuple(islice(found, MAX_PROBLEMS + 1)))
    if problems is None:  # e.g. a key whose `__eq__` raises
        return (Problem("the value", clipped(f"an object with {wanted}"), f"one that raises {type(error).__name__}"),)
    return problems


def describe(problems: Iterable[Problem]) -> str:
    """The problems in one sentence of bounded length, without its full stop."""
    told = [*map(str, islice(problems, MAX_PROBLEMS + 1))]
    return "; ".join([*told[:MAX_PROBLEMS], "and more"] if len(told) > MAX_PROBLEMS else told)


def refusal(code: str, problems: tuple[Problem, ...], **data: str) -> RunError:
    """Make the error that says all of this: its data holds the sentence as `reason`, and the problems themselves."""
    return RunError(code, where=None, reason=describe(problems), problems=problems, **data)


# --- a type after the other ----------------------------------------------------------------


def _of_fields(schema: Schema, value: object, path: str, *, refuses_others: bool = False) -> Iterator[Problem]:
    fields = fields_of(value)
    if fields is None:
        yield Problem(path or "the value", clipped(f"an object with {schema}"), shown(value))
        return
    others = [_named(name) for name in fields if name not in schema.names] if len(fields) <= _MAX_NAMES else []
    for field in schema.fields:
        yield from _of_field(field, fields, path, others)
    if refuses_others:
        for name in fields:
            if name not in schema.names:
                yield _unknown_name(_named(name), schema, fields, path)


def _of_field(field: Field, fields: dict[Any, Any], path: str, others: list[str]) -> Iterator[Problem]:
    where = _join(path, _named(field.name))
    if field.name in fields:
        yield from _of_type(field.type, fields[field.name], where)
    elif field.required:
        near = did_you_mean(_named(field.name), others).replace("Did you mean", "Is it")
        yield Problem(where, clipped(str(field.type)), "nothing", near)


def _unknown_name(name: str, schema: Schema, fields: dict[Any, Any], path: str) -> Problem:
    missing = [field.name for field in schema.fields if field.name not in fields] or schema.names
    near = did_you_mean(name, islice(map(_named, missing), _MAX_NAMES))
    listed = clipped(", ".join(field.name for field in schema.fields))
    return Problem(_join(path, name), f"one of {listed}" if listed else "no argument", "an unknown name", near)


def _of_type(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    """What is wrong with a value: inside of it, if it is the right container, or with all of it."""
    inside = _INSIDE.get(wanted.kind)
    if wanted.kind == "str" and wanted.name:
        inside = _in_text
    if inside is not None:
        yield from inside(wanted, value, path)
    elif not _IS[wanted.kind](value):
        yield _misfit(wanted, value, path)


def _misfit(wanted: Type, value: object, path: str) -> Problem:
    return Problem(path, clipped(str(wanted)), shown(value))


_IS: dict[str, Callable[[object], bool]] = {
    "unknown": lambda _value: True,
    "any": lambda _value: True,
    "null": lambda value: value is None,
    "bool": lambda value: value is True or value is False,
    "int": is_int,
    "float": is_float,
    "str": is_str,
    "bytes": is_bytes,
}


def _in_items(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    items = members_of(value) if wanted.kind == "set" else items_of(value)
    if items is None:
        yield _misfit(wanted, value, path)
    elif wanted.args:
        for at, item in enumerate(items):
            yield from _of_type(wanted.args[0], item, f"{path}[{at}]")


def _in_tuple(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    items = items_of(value)
    if items is None or (wanted.args and len(items) != len(wanted.args)):
        yield _misfit(wanted, value, path)
    elif wanted.args:
        for at, (part, item) in enumerate(zip(wanted.args, items, strict=True)):
            yield from _of_type(part, item, f"{path}[{at}]")


def _in_dict(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    entries = mapping_of(value)
    if entries is None:
        yield _misfit(wanted, value, path)
    elif wanted.args:
        for key, item in entries.items():
            if _has_problems(wanted.args[0], key):
                yield _misfit(wanted, value, path)
                return
            yield from _of_type(wanted.args[1], item, _join(path, _named(key)))


def _in_union(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    if not any(not _has_problems(choice, value) for choice in wanted.args):
        choices = [choice for choice in wanted.args if choice != NULL]
        if len(choices) != 1 or value is None:
            yield _misfit(wanted, value, path)
            return
        for problem in _of_type(choices[0], value, path):  # an optional value is there, and wrong
            yield problem._replace(expected=clipped(str(wanted))) if problem.path == path else problem


def _in_literal(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    plain = word_of(value) if wanted.name else plain_of(value)
    if not any(type(plain) is type(each) and plain == each for each in wanted.values):
        near = did_you_mean(_named(plain), map(str, wanted.values[:_MAX_NAMES])) if type(plain) is str else ""
        yield _misfit(wanted, value, path)._replace(suggestion=near)


def _in_text(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    if not is_text_of(wanted.name)(value):
        yield _misfit(wanted, value, path)


def _in_record(wanted: Type, value: object, path: str) -> Iterator[Problem]:
    if fields_of(value) is None:
        yield _misfit(wanted, value, path)
    else:
        yield from _of_fields(Schema(wanted.fields), value, path)


def _has_problems(wanted: Type, value: object) -> bool:
    problem, error = attempt(lambda: next(_of_type(wanted, value, ""), None))
    return problem is not None or error is not None


_INSIDE: dict[str, Callable[[Type, object, str], Iterator[Problem]]] = {
    "list": _in_items,
    "set": _in_items,
    "tuple": _in_tuple,
    "dict": _in_dict,
    "union": _in_union,
    "literal": _in_literal,
    "record": _in_record,
}


# --- in words ------------------------------------------------------------------------------


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _named(name: object) -> str:
    """A key for people."""
    return clipped(name, 60) if type(name) is str else shown(name)
