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
        """Return the same problem of a larger value, which holds this value in its field `name`."""
        inner = "" if self.path == "the value" else self.path
        return self._replace(path=name + inner if inner.startswith("[") else _join_path(name, inner) if inner else name)


def problems_of(schema: Schema, value: object, *, is_closed: bool = False) -> tuple[ValueProblem, ...]:
    """Return the problems of a mapping or typed object, at most `MAX_PROBLEMS` + 1; an empty tuple if it fits. Never raises.

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
    """Return the problems of a value for a wanted type of any kind, as `problems_of` does for a schema."""
    if wanted.kind == "record":
        return problems_of(Schema(wanted.fields), value)
    return tuple(
        each._replace(path=each.path or "the value")
        for each in _first_problems(_problems_of_type(wanted, value, ""), wanted)
    )


def _first_problems(found: Iterator[ValueProblem], wanted: object) -> tuple[ValueProblem, ...]:
    """Return the first problems that a walk finds; a single one that names `wanted` if code of the value raises."""
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
    """Return a RunError about the problems of a value, with two entries in its data: `reason`, a sentence, and `problems`."""
    return RunError(code, where=None, reason=describe_problems(problems), problems=problems, **data)


# --- the walk, with a function for each kind of type ---------------------------------------


def _problems_of_fields(
    schema: Schema, value: object, path: str, *, refuses_others: bool = False
) -> Iterator[ValueProblem]:
    """Yield the problems of the fields that a schema lists; with `refuses_others`, also of fields that it does not list."""
    fields = fields_of(value)
    if fields is None:
        yield ValueProblem(path or "the value", clip_text(f"an object with {schema}"), format_value(value))
        return
    others = [_format_key(name) for name in fields if name not in schema.names] if len(fields) <= _MAX_NAMES else []
    for field in schema.fields:
        yield from _problems_of_field(field, fields, path, others)
    if refuses_others:
        for name in fields:
            if name not in schema.names:
                yield _unknown_name_problem(_format_key(name), schema, fields, path)


def _problems_of_field(field: Field, fields: dict[Any, Any], path: str, others: list[str]) -> Iterator[ValueProblem]:
    """Yield the problems of one field; if it is missing, the problem suggests a similar name from `others`."""
    where = _join_path(path, _format_key(field.name))
    if field.name in fields:
        yield from _problems_of_type(field.type, fields[field.name], where)
    elif field.required:
        near = did_you_mean(_format_key(field.name), others).replace("Did you mean", "Is it")
        yield ValueProblem(where, clip_text(str(field.type)), "nothing", near)


def _unknown_name_problem(name: str, schema: Schema, fields: dict[Any, Any], path: str) -> ValueProblem:
    """Return the problem of a field that the schema does not list; it suggests a similar name, first of the missing fields."""
    missing = [field.name for field in schema.fields if field.name not in fields] or schema.names
    near = did_you_mean(name, islice(map(_format_key, missing), _MAX_NAMES))
    listed = clip_text(", ".join(field.name for field in schema.fields))
    return ValueProblem(
        _join_path(path, name), f"one of {listed}" if listed else "no argument", "an unknown name", near
    )


def _problems_of_type(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield the problems of a value: those of its parts if it is the right kind of container, else one for the whole value."""
    find_problems = _PROBLEMS_OF_KIND.get(wanted.kind)
    if wanted.kind == "str" and wanted.name:
        find_problems = _problems_in_text
    if find_problems is not None:
        yield from find_problems(wanted, value, path)
    elif not _TEST_OF_KIND[wanted.kind](value):
        yield _whole_value_problem(wanted, value, path)


def _whole_value_problem(wanted: Type, value: object, path: str) -> ValueProblem:
    return ValueProblem(path, clip_text(str(wanted)), format_value(value))


_TEST_OF_KIND: dict[str, Callable[[object], bool]] = {
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
    """Yield the problems of the items of a list or set."""
    items = members_of(value) if wanted.kind == "set" else items_of(value)
    if items is None:
        yield _whole_value_problem(wanted, value, path)
    elif wanted.args:
        for at, item in enumerate(items):
            yield from _problems_of_type(wanted.args[0], item, f"{path}[{at}]")


def _problems_in_tuple(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield the problems of the items of a tuple, or one problem if it has another length."""
    items = items_of(value)
    if items is None or (wanted.args and len(items) != len(wanted.args)):
        yield _whole_value_problem(wanted, value, path)
    elif wanted.args:
        for at, (part, item) in enumerate(zip(wanted.args, items, strict=True)):
            yield from _problems_of_type(part, item, f"{path}[{at}]")


def _problems_in_dict(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield the problems of the values of a dict. A key that does not fit is a problem of the whole dict, and ends the walk."""
    entries = mapping_of(value)
    if entries is None:
        yield _whole_value_problem(wanted, value, path)
    elif wanted.args:
        for key, item in entries.items():
            if _has_problems(wanted.args[0], key):
                yield _whole_value_problem(wanted, value, path)
                return
            yield from _problems_of_type(wanted.args[1], item, _join_path(path, _format_key(key)))


def _problems_in_union(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield the problems of a value that fits none of the choices of a union."""
    if all(_has_problems(choice, value) for choice in wanted.args):
        choices = [choice for choice in wanted.args if choice != NULL]
        if len(choices) != 1 or value is None:
            yield _whole_value_problem(wanted, value, path)
            return
        for problem in _problems_of_type(choices[0], value, path):  # a wrong value for `X | None`: describe it as for X
            yield problem._replace(expected=clip_text(str(wanted))) if problem.path == path else problem


def _problems_in_literal(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield a problem unless a value, or the value of an Enum member if the literal is an Enum, is one of the literal."""
    plain = enum_value_of(value) if wanted.name else builtin_of(value)
    if not any(type(plain) is type(each) and plain == each for each in wanted.values):
        near = did_you_mean(_format_key(plain), map(str, wanted.values[:_MAX_NAMES])) if type(plain) is str else ""
        yield _whole_value_problem(wanted, value, path)._replace(suggestion=near)


def _problems_in_text(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield a problem unless a value is an object of the class that the type names, or a text that can become one."""
    if not is_text_of(wanted.name)(value):
        yield _whole_value_problem(wanted, value, path)


def _problems_in_record(wanted: Type, value: object, path: str) -> Iterator[ValueProblem]:
    """Yield the problems of the fields of a value, or one problem for the whole value if it has no fields."""
    if fields_of(value) is None:
        yield _whole_value_problem(wanted, value, path)
    else:
        yield from _problems_of_fields(Schema(wanted.fields), value, path)


def _has_problems(wanted: Type, value: object) -> bool:
    """True if a value does not fit, and if its own code raises."""
    problem, error = attempt(lambda: next(_problems_of_type(wanted, value, ""), None))
    return problem is not None or error is not None


_PROBLEMS_OF_KIND: dict[str, Callable[[Type, object, str], Iterator[ValueProblem]]] = {
    "list": _problems_in_items,
    "set": _problems_in_items,
    "tuple": _problems_in_tuple,
    "dict": _problems_in_dict,
    "union": _problems_in_union,
    "literal": _problems_in_literal,
    "record": _problems_in_record,
}


# --- in words ------------------------------------------------------------------------------


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _format_key(name: object) -> str:
    """Return a key of a mapping for messages: a text itself, shortened; anything else with its class."""
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
    """Make a fast check: a function that returns a dict that fits unchanged, and `otherwise(value)` for any other value.

    Args:
        wanted: What is expected.
        otherwise: Called with every value that the fast check does not accept; some of these fit. Returned itself if no fast
            check can be made.
        is_closed: Do not accept fields that the schema does not list, unless it is open.
    """
    struct = _struct_for(wanted.fields, is_closed=is_closed and not wanted.is_open)
    if struct is None:
        return otherwise
    if all(map(_has_scalar_type, wanted.fields)):
        return make_fast_check(convert, struct, _DICTS, otherwise)
    return make_fast_check(_require_fit, struct, _DICTS, otherwise)


def payload_check_for(wanted: Schema, otherwise: Check, *, limit: int) -> Check:
    """Make a fast check for payloads, so that most of them need not be frozen before they are checked.

    A payload that it accepts fits, is JSON, has no further fields, and its size, as `json.freeze` counts it, is within `limit`.
    Each field gets an equal share of the limit: a payload with one large field may be rejected, although its size is allowed. Any
    other payload is passed to `otherwise`, whose result is returned. Returns `otherwise` itself if no fast check can be made.
    """
    struct, _ = attempt(lambda: _sized_struct(wanted.fields, limit))
    if struct is None:
        return otherwise
    if all(map(_has_scalar_type, wanted.fields)):
        return make_fast_check(convert, struct, frozenset({dict}), otherwise)
    return make_fast_check(_require_fit, struct, frozenset({dict}), otherwise)


def _sized_struct(fields: tuple[Field, ...], room: int) -> type:
    """Return a Struct that accepts only JSON objects with these fields, of at most the size `room`.

    Raises:
        ValueError: The room is too small, or a field has a type whose values are not JSON themselves, such as bytes.
    """
    share = (room - 2 - sum(len(field.name) + 2 for field in fields)) // max(len(fields), 1)
    struct = _struct_for(fields, lambda of: _sized_annotation(of, share), is_closed=True)
    if struct is None:
        raise ValueError
    return struct


def _sized_annotation(of: Type, room: int) -> Any:
    """Return an annotation for msgspec that accepts values of a type up to a size; raises as `_sized_struct` does."""
    if room < 4:  # the size of a number
        raise ValueError
    if present := _without_none(of):
        return _sized_annotation(present, room) | None
    if of.kind == "record":
        return _sized_struct(of.fields, room)
    if of.kind == "literal" and (words := _literal_annotation(of)) and len(str(of)) < room:
        return words
    text = Annotated[str, Meta(max_length=room)]
    anything = text | _BOUNDED | _FINITE | bool | None
    if of.kind in _SCALARS and not of.name:
        own = {"any": anything, "unknown": anything, "int": _BOUNDED, "float": _FINITE, "str": text}
        return own.get(of.kind, _SCALARS[of.kind])
    share = room // _MOST_ITEMS - 2  # of each item; the key and the value of an entry get one half each
    if of.kind == "list":
        return Annotated[list[_sized_annotation(of.args[0] if of.args else ANY, share)], Meta(max_length=_MOST_ITEMS)]  # type: ignore[misc]
    if of.kind == "dict" and (not of.args or of.args[0] in (STR, ANY)):
        item = _sized_annotation(of.args[1] if of.args else ANY, share // 2)
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
        otherwise: Called instead with arguments that are not accepted. Returned itself if a field of either schema is not a
            scalar, because such a call cannot be made fast.
        release: Called with a result that is not accepted; its result is returned.
    """
    outgoing = Schema() if promised is None else promised
    structs = _struct_for(wanted.fields, is_closed=True), _struct_for(outgoing.fields)
    if None in structs or not all(map(_has_scalar_type, (*wanted.fields, *outgoing.fields))):
        return otherwise
    take = itemgetter(*order) if len(order) > 1 else dict.values  # itemgetter of one name returns no tuple
    result = None if promised is None else structs[1]
    return make_fast_call(convert, structs[0], take, function, result, otherwise=otherwise, release=release)


def _has_scalar_type(field: Field) -> bool:
    """True for a field whose type is in `_SCALARS`, or is the union of such a type and None."""
    of = _without_none(field.type) or field.type
    return of.kind in _SCALARS and not of.name


def _without_none(of: Type) -> Type | None:
    """Return `str` for `str | None`; None for a type that is not such a union."""
    others = [choice for choice in of.args if choice != NULL]
    return others[0] if of.kind == "union" and len(others) == 1 and len(of.args) == 2 else None


def _require_fit(value: Any, struct: type) -> None:
    """Return nothing if a value is plain data that fits a Struct; raise ValueError, or what msgspec raises, if it does not."""
    if not _is_plain(value):
        raise ValueError
    convert(value, struct, dec_hook=_convert_unknown)


# --- for msgspec ---------------------------------------------------------------------------


def _struct_for(
    fields: tuple[Field, ...], annotate: Callable[[Type], Any] | None = None, *, is_closed: bool = False
) -> type | None:
    """Return a Struct with these fields; None if msgspec cannot make it, for instance for a name with a quotation mark.

    `annotate` returns the annotation of a type; None stands for `_annotation_of`.
    """
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
    return (make(wanted) if make else None) or type("Other", (_Other,), {"fits": staticmethod(_make_fit_test(wanted))})


def _literal_annotation(wanted: Type) -> Any:
    """Return a Literal; None for values that msgspec cannot express: booleans, long ints and text that may not be UTF-8."""
    is_known = wanted.values and all(
        value.isascii() if isinstance(value, str) else value is None or (type(value) is int and -_LONG < value < _LONG)
        for value in wanted.values
    )
    return Literal[wanted.values] if is_known else None


def _dict_annotation(wanted: Type) -> Any:
    """Return a dict annotation; None for keys of other than simple types: for text keys msgspec calls no `dec_hook`."""
    if wanted.args and (wanted.args[0].kind not in _SCALARS or wanted.args[0].name):
        return None
    return dict[_part_annotations(wanted) or (Any, Any)]  # type: ignore[misc]


def _part_annotations(wanted: Type) -> tuple[Any, ...]:
    return tuple(map(_annotation_of, wanted.args))


_ANNOTATIONS: dict[str, Callable[[Type], Any]] = {
    "literal": _literal_annotation,
    "record": lambda wanted: _struct_for(wanted.fields),
    "list": lambda wanted: list[_part_annotations(wanted) or Any],  # type: ignore[misc]
    "set": lambda wanted: list[_part_annotations(wanted) or Any],  # type: ignore[misc]
    "tuple": lambda wanted: tuple[_part_annotations(wanted) or (Any, ...)],  # type: ignore[misc]
    "dict": _dict_annotation,
}


class _Other:
    """Base of the classes that stand for types unknown to msgspec; `fits` tests a value."""

    fits: Fits


def _convert_unknown(kind: Any, value: Any) -> Any:
    """The `dec_hook` of msgspec for classes derived from `_Other`: return an object of the class if the value fits, or raise."""
    if kind.fits(value):
        return kind()
    raise ValueError


def _make_fit_test(wanted: Type) -> Fits:
    """Return a test for a type that msgspec cannot express; for a union, it runs the fast check of each choice."""
    if wanted.kind == "bytes":
        return is_bytes
    if wanted.kind == "str":
        return is_text_of(wanted.name)
    choices = wanted.args if wanted.kind == "union" else ()  # for other types it is always False: the walk decides
    # a check returns the dict, which is true, if it fits, and otherwise None
    checks = [check_for(Schema((Field("it", choice),)), _return_none) for choice in choices]
    return lambda value: any(check({"it": value}) for check in checks)


def _return_none(_value: object) -> None:
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
