"""Checks values against types: a slow walk that describes every problem, and fast checks that only accept valid values.

    problems_of(schema, {"total": "12"})    ->   (ValueProblem("total", "float", "str '12'"),)

Theory of operation. The walk (`problems_of`) defines what fits. A fast check, made for one schema, uses msgspec to accept most
values that fit, and passes all others to `otherwise`, which runs the walk:

    check = check_for(Schema((Field("total", FLOAT),)), otherwise)
    check({"total": 12})      returns the same dict
    check({"total": "12"})    returns otherwise({"total": "12"})

A record becomes a msgspec Struct; the object that `msgspec.convert` makes is dropped, only its success counts. msgspec accepts
more than the walk in two ways. It takes sets for lists, and any Mapping, whose code would run, for a dict: so `_is_plain` tests
values first. And it takes base64 text for bytes, and numbers for decimals: such types, and most unions, become classes unknown to
msgspec, for which it calls `_convert_unknown`. A fast check may reject values that fit, such as sets and typed objects, but it
never accepts a value that does not fit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, convert

from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.isolation import attempt, make_fast_call, make_fast_check
from graphbus_core.schema.json import FrozenDict, FrozenList
from graphbus_core.schema.types import ANY, NULL, STR, Field, Schema, Type, is_text_of
from graphbus_core.schema.values import (
    builtin_of,
    clip_text,
    enum_value_of,
    fields_of,
    format_value,
    is_bytes,
    is_float,
    is_int,
    is_str,
    items_of,
    mapping_of,
    members_of,
)

MAX_PROBLEMS = 8
"""How many problems of one value a message lists; for further ones it says `and more`."""

_MAX_NAMES = 200


class ValueProblem(NamedTuple):
    """A part of a value that does not fit: its path such as `items[0].sku`, what is expected there, and what was found."""

    path: str
    expected: str
    got: str
    suggestion: str = ""

    def __str__(self) -> str:
        suggestion = f".{self.suggestion}" if self.suggestion else ""
        return f"{self.path}: expected {self.expected}, got {self.got}{suggestion}"

    def below(self, name: str) -> ValueProblem:
        """Return the problem with its path prefixed by the field `name` that contains the value."""
        inner = "" if self.path == "the value" else self.path
        return self._replace(path=name + inner if inner.startswith("[") else _join(name, inner) if inner else name)


def problems_of(schema: Schema, value: object, *, is_closed: bool = False) -> tuple[ValueProblem, ...]:
    """Return the problems of a mapping or typed object, at most `MAX_PROBLEMS` + 1; empty if it fits. Never raises.

    Every value fits an unknown type; an int fits float, a bool does not fit int.

    Args:
        schema: What is expected.
        value: Any object.
        is_closed: Report fields that the schema does not list, unless it is open.
    """
    return _first_problems(
        _problems_of_fields(schema, value, "", refuses_others=is_closed and not schema.is_open), schema
    )


def problems_in(wanted: Type, value: object) -> tuple[ValueProblem, ...]:
    """Return the problems of a value of any type, as `problems_of` does for records."""
    if wanted.kind == "record":
        return problems_of(Schema(wanted.fields), value)
    return tuple(
        each._replace(path=each.path or "the value")
        for each in _first_problems(_problems_of_type(wanted, value, ""), wanted)
    )


def _first_problems(found: Iterator[ValueProblem], wanted: object) -> tuple[ValueProblem, ...]:
    """Return the first problems of a walk, or a single one if code of the value raises."""
    problems, error = attempt(lambda: tuple(islice(found, MAX_PROBLEMS + 1)))
    if problems is None:  # such as a key whose `__eq__` raises
        return (
            ValueProblem("the value", clip_text(f"an object with {wanted}"), f"one that raises {type(error).__name__}"),
        )
    return problems


def describe_problems(problems: Iterable[ValueProblem]) -> str:
    """Return the problems as one sentence of limited length, without its full stop."""
    texts = [*map(str, islice(problems, MAX_PROBLEMS + 1))]
    return "; ".join([*texts[:MAX_PROBLEMS], "and more"] if len(texts) > MAX_PROBLEMS else texts)


def misfit_error(code: str, problems: tuple[ValueProblem, ...], **data: str) -> RunError:
    """Make a RunError for the problems of a value; its data holds their sentence as `reason`, and the `problems`."""
    return RunError(code, where=None, reason=describe_problems(problems), problems=problems, **data)


# --- the walk, with a function for each kind of type ---------------------------------------


def _problems_of_fields(
    schema: Schema, value: object, path: str, *, refuses_others: bool = False
) -> Iterator[ValueProblem]:
    """Yield the problems of the fields of an object; with `refuses_others`, of further fields, too."""
    fields = fields_of(value)
    if fields is None:
        yield ValueProblem(path or "the value", clip_text(f"an object with {schema}"), format_value(value))
        return
    others = [_key_text(name) for name in fields if name not in schema.names] if len(fields) <= _MAX_NAMES else []
    for field in schema.fields:
        yield from _problems_of_field(field, fields, path, others)
    if refuses_others:
        for name in fields:
            if name not in schema.names:
                yield _unknown_name(_key_text(name), schema, fields, path)


def _problems_of_field(field: Field, fields: dict[Any, Any], path: str, others: list[str]) -> Iterator[ValueProblem]:
    """Yield the problems of one field; `others` are further names, to suggest one for a missing field."""
    where = _join(path, _key_text(field.name))
    if field.name in fields:
        yield from _problems_of_type(field.type, fields[field.name], where)
    elif field.required:
        near = did_you_mean(_key_text(field.name), others).replace("Did you mean", "Is it")
        yield ValueProblem(where, clip_text(str(field.type)), "nothing", near)


def _unknown_name(name: str, schema: Schema, fields: dict[Any, Any], path: str) -> ValueProblem:
    missing = [field.name for field in schema.fields if field.name not in fields] or schema.names
    near = did_you_mean(name, islice(map(_key_text, missing), _MAX_NAMES))
    listed = clip_text(", ".join(field.name for field in schema.fields))
    return ValueProblem(_join(path, name), f"one of {listed}" if listed else "no argument", "an unknown name", near)


def _problems_of_type(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield the problems of a value: of its parts if it is the right container, otherwise one for all of it."""
    inside = _INSIDE.get(wanted.kind)
    if wanted.kind == "str" and wanted.name:
        inside = _problems_in_text
    if inside is not None:
        yield from inside(wanted, value, path)
    elif not _IS[wanted.kind](value):
        yield _misfit(wanted, value, path)


def _misfit(wanted: Type, value: object, path: str) -> ValueProblem:
    return ValueProblem(path, clip_text(str(wanted)), format_value(value))


_IS: dict[str, Callable[[object], bool]] = {
    "unknown": lambda _value: True,
    "any": lambda _value: True,
    "result": lambda _value: True,
    "null": lambda value: value is None,
    "bool": lambda value: value is True or value is False,
    "int": is_int,
    "float": is_float,
    "str": is_str,
    "bytes": is_bytes,
}


def _problems_in_items(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    items = members_of(value) if wanted.kind == "set" else items_of(value)
    if items is None:
        yield _misfit(wanted, value, path)
    elif wanted.args:
        for at, item in enumerate(items):
            yield from _problems_of_type(wanted.args[0], item, f"{path}[{at}]")


def _problems_in_tuple(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    items = items_of(value)
    if items is None or (wanted.args and len(items) != len(wanted.args)):
        yield _misfit(wanted, value, path)
    elif wanted.args:
        for at, (part, item) in enumerate(zip(wanted.args, items, strict=True)):
            yield from _problems_of_type(part, item, f"{path}[{at}]")


def _problems_in_dict(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    entries = mapping_of(value)
    if entries is None:
        yield _misfit(wanted, value, path)
    elif wanted.args:
        for key, item in entries.items():
            if _has_problems(wanted.args[0], key):
                yield _misfit(wanted, value, path)
                return
            yield from _problems_of_type(wanted.args[1], item, _join(path, _key_text(key)))


def _problems_in_union(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield a problem unless one of the choices fits."""
    if not any(not _has_problems(choice, value) for choice in wanted.args):
        choices = [choice for choice in wanted.args if choice != NULL]
        if len(choices) != 1 or value is None:
            yield _misfit(wanted, value, path)
            return
        for problem in _problems_of_type(choices[0], value, path):  # a wrong value for `X | None`: describe it as for X
            yield problem._replace(expected=clip_text(str(wanted))) if problem.path == path else problem


def _problems_in_literal(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    plain = enum_value_of(value) if wanted.name else builtin_of(value)
    if not any(type(plain) is type(each) and plain == each for each in wanted.values):
        near = did_you_mean(_key_text(plain), map(str, wanted.values[:_MAX_NAMES])) if type(plain) is str else ""
        yield _misfit(wanted, value, path)._replace(suggestion=near)


def _problems_in_text(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    if not is_text_of(wanted.name)(value):
        yield _misfit(wanted, value, path)


def _problems_in_record(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    if fields_of(value) is None:
        yield _misfit(wanted, value, path)
    else:
        yield from _problems_of_fields(Schema(wanted.fields), value, path)


def _has_problems(wanted: Type, value: object) -> bool:
    problem, error = attempt(lambda: next(_problems_of_type(wanted, value, ""), None))
    return problem is not None or error is not None


_INSIDE: dict[str, Callable[[Type, object, str], Iterator[ValueProblem]]] = {
    "list": _problems_in_items,
    "set": _problems_in_items,
    "tuple": _problems_in_tuple,
    "dict": _problems_in_dict,
    "union": _problems_in_union,
    "literal": _problems_in_literal,
    "record": _problems_in_record,
}


# --- in words ------------------------------------------------------------------------------


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _key_text(name: object) -> str:
    """Return a key of a mapping for messages."""
    return clip_text(name, 60) if type(name) is str else format_value(name)


# --- fast checks ---------------------------------------------------------------------------

Fits = Callable[[Any], bool]
Check = Callable[[Any], Any]

_DICTS = frozenset[type]((dict, FrozenDict))
_LISTS: frozenset[type] = frozenset({list, tuple, FrozenList})
_LEAVES = frozenset({str, int, float, bool, type(None), bytes})
_LONG = 1 << 63
_MOST_ITEMS = 128
"""The longest list in a payload that the fast check accepts; it bounds the size of each item."""

_SCALARS: dict[str, Any] = {
    "unknown": Any,
    "any": Any,
    "null": None,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
}
_BOUNDED = Annotated[int, Meta(ge=-_LONG, le=_LONG - 1)]
_FINITE = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


def check_for(wanted: Schema, otherwise: Check, *, is_closed: bool = False) -> Check:
    """Make a function that returns a dict that fits unchanged, and `otherwise(value)` for any other value.

    Args:
        wanted: What is expected.
        otherwise: Called with every value that the fast check does not accept; some of these fit.
        is_closed: Do not accept fields that the schema does not list, unless it is open.
    """
    struct = _struct_for(wanted.fields, is_closed=is_closed and not wanted.is_open)
    if struct is None:
        return otherwise
    if all(map(_is_scalar, wanted.fields)):
        return make_fast_check(convert, struct, _DICTS, otherwise)
    return make_fast_check(_accept, struct, _DICTS, otherwise)


def payload_check_for(wanted: Schema, otherwise: Check, *, limit: int) -> Check:
    """Make a fast check for payloads, so that most of them need not be frozen before they are checked.

    A payload that it accepts fits, is JSON, has no further fields, and its size, as `json.freeze` counts it, is within the limit:
    each part may use an equal share. All others are passed to `otherwise`, whose result is returned.
    """
    struct, _ = attempt(lambda: _sized_struct(wanted.fields, limit))
    if struct is None:
        return otherwise
    if all(map(_is_scalar, wanted.fields)):
        return make_fast_check(convert, struct, frozenset({dict}), otherwise)
    return make_fast_check(_accept, struct, frozenset({dict}), otherwise)


def _sized_struct(fields: tuple[Field, ...], room: int) -> type:
    """Return a Struct that accepts only JSON of at most the size `room`.

    Raises:
        ValueError: The room is too small, or a field has a type whose values are not JSON themselves, such as bytes.
    """
    share = (room - 2 - sum(len(field.name) + 2 for field in fields)) // max(len(fields), 1)
    struct = _struct_for(fields, lambda of: _sized(of, share), is_closed=True)
    if struct is None:
        raise ValueError
    return struct


def _sized(of: Type, room: int) -> Any:
    """Return an annotation for msgspec that accepts values of a type up to a size; raises as `_sized_struct` does."""
    if room < 4:
        raise ValueError
    if present := _without_none(of):
        return _sized(present, room) | None
    if of.kind == "record":
        return _sized_struct(of.fields, room)
    if of.kind == "literal" and (words := _literal(of)) and len(str(of)) < room:
        return words
    text = Annotated[str, Meta(max_length=room)]
    anything = text | _BOUNDED | _FINITE | bool | None
    if of.kind in _SCALARS and not of.name:
        own = {"any": anything, "unknown": anything, "int": _BOUNDED, "float": _FINITE, "str": text}
        return own.get(of.kind, _SCALARS[of.kind])
    share = room // _MOST_ITEMS - 2
    if of.kind == "list":
        return Annotated[list[_sized(of.args[0] if of.args else ANY, share)], Meta(max_length=_MOST_ITEMS)]  # type: ignore[misc]
    if of.kind == "dict" and (not of.args or of.args[0] in (STR, ANY)):
        item = _sized(of.args[1] if of.args else ANY, share // 2)
        key = Annotated[str, Meta(max_length=share // 2)]
        return Annotated[dict[key, item], Meta(max_length=_MOST_ITEMS)]  # type: ignore[valid-type]
    raise ValueError


def checked_call_for(
    wanted: Schema,
    order: Sequence[str],
    function: Callable[..., Any],
    promised: Schema | None,
    *,
    otherwise: Check,
    release: Check,
) -> Check:
    """Make a function that checks a dict of arguments, calls `function` with them by position, and checks its result.

    Args:
        wanted: The schema of the arguments, with required fields only.
        order: The names of the fields in the order of the function's parameters.
        function: The function to call.
        promised: The schema of the result; None: any result.
        otherwise: Called instead with arguments that are not accepted; returned itself if some field is not a scalar.
        release: Called with a result that is not accepted; its result is returned.
    """
    outgoing = Schema() if promised is None else promised
    structs = _struct_for(wanted.fields, is_closed=True), _struct_for(outgoing.fields)
    if None in structs or not all(map(_is_scalar, (*wanted.fields, *outgoing.fields))):
        return otherwise
    take = itemgetter(*order) if len(order) > 1 else dict.values
    result = None if promised is None else structs[1]
    return make_fast_call(convert, structs[0], take, function, result, otherwise=otherwise, release=release)


def _is_scalar(field: Field) -> bool:
    of = _without_none(field.type) or field.type
    return of.kind in _SCALARS and not of.name


def _without_none(of: Type) -> Type | None:
    """Return `str` for `str | None`; None for a type that is not such a union."""
    others = [choice for choice in of.args if choice != NULL]
    return others[0] if of.kind == "union" and len(others) == 1 and len(of.args) == 2 else None


def _accept(value: Any, struct: type) -> None:
    """Raise unless a value is plain data that fits a Struct."""
    if not _is_plain(value):
        raise ValueError
    convert(value, struct, dec_hook=_convert_unknown)


# --- for msgspec ---------------------------------------------------------------------------


def _struct_for(
    fields: tuple[Field, ...], annotate: Callable[[Type], Any] | None = None, *, is_closed: bool = False
) -> type | None:
    """Return a Struct with these fields; None if msgspec cannot make it, for instance for a name with a quotation mark."""
    annotate = annotate or _annotation_of
    members = [(f"f{number}", annotate(field.type), _struct_field(field)) for number, field in enumerate(fields)]
    made, _ = attempt(
        lambda: msgspec.defstruct("Record", members, kw_only=True, forbid_unknown_fields=is_closed, gc=False)
    )
    return made


def _struct_field(field: Field) -> Any:
    return msgspec.field(name=field.name) if field.required else msgspec.field(name=field.name, default=None)


def _annotation_of(wanted: Type) -> Any:
    """Return an annotation for msgspec; for a type that it cannot express, a new class that `_convert_unknown` handles."""
    if wanted.kind in _SCALARS and not wanted.name:
        return _SCALARS[wanted.kind]
    if present := _without_none(wanted):
        return _annotation_of(present) | None
    make = _ANNOTATIONS.get(wanted.kind)
    return (make(wanted) if make else None) or type("Other", (_Other,), {"fits": staticmethod(_fits_of(wanted))})


def _literal(wanted: Type) -> Any:
    """Return a Literal; None for values that msgspec cannot express: booleans, long ints and text that may not be UTF-8."""
    is_known = wanted.values and all(
        value.isascii() if isinstance(value, str) else value is None or (type(value) is int and -_LONG < value < _LONG)
        for value in wanted.values
    )
    return Literal[wanted.values] if is_known else None


def _mapping(wanted: Type) -> Any:
    """Return a dict annotation; None for keys of other than simple types: for text keys msgspec calls no `dec_hook`."""
    if wanted.args and (wanted.args[0].kind not in _SCALARS or wanted.args[0].name):
        return None
    return dict[_part_annotations(wanted) or (Any, Any)]  # type: ignore[misc]


def _part_annotations(wanted: Type) -> tuple[Any, ...]:
    return tuple(map(_annotation_of, wanted.args))


_ANNOTATIONS: dict[str, Callable[[Type], Any]] = {
    "literal": _literal,
    "record": lambda wanted: _struct_for(wanted.fields),
    "list": lambda wanted: list[_part_annotations(wanted) or Any],  # type: ignore[misc]
    "set": lambda wanted: list[_part_annotations(wanted) or Any],  # type: ignore[misc]
    "tuple": lambda wanted: tuple[_part_annotations(wanted) or (Any, ...)],  # type: ignore[misc]
    "dict": _mapping,
}


class _Other:
    """Base of the classes that stand for types unknown to msgspec; `fits` tests a value."""

    fits: Fits


def _convert_unknown(kind: Any, value: Any) -> Any:
    """The `dec_hook` of msgspec for classes derived from `_Other`: return an object of the class if the value fits, or raise."""
    if kind.fits(value):
        return kind()
    raise ValueError


def _fits_of(wanted: Type) -> Fits:
    """Return the test for a type that msgspec cannot express; of unions, the fast check of each choice."""
    if wanted.kind == "bytes":
        return is_bytes
    if wanted.kind == "str":
        return is_text_of(wanted.name)
    choices = wanted.args if wanted.kind == "union" else ()  # no test for any other type: the walk decides
    checks = [check_for(Schema((Field("it", choice),)), _reject) for choice in choices]
    return lambda value: any(check({"it": value}) for check in checks)


def _reject(_value: object) -> None:
    return None


def _is_plain(value: Any) -> bool:
    """True if a value consists, at any depth, of objects of the exact classes that JSON has, or of bytes."""
    kind = type(value)
    if kind in _DICTS:
        value = value.values()
    elif kind not in _LISTS:
        return kind in _LEAVES
    for each in value:  # noqa: SIM110 - `all` and a generator take twice the time
        if type(each) not in _LEAVES and not _is_plain(each):
            return False
    return True
