"""The types that functions and methods of Python's library return for given argument types, and its decorators."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from graphbus_core.schema.compatibility import misfit_reason
from graphbus_core.schema.types import (
    ALL_OCCUR,
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    ITEM,
    STR,
    TEXT_TYPES,
    UNKNOWN,
    Kind,
    Type,
    union,
    without_constants,
)

COROUTINE = Type("unknown", name="coroutine")
"""The type of a call of an `async def` that is not awaited; in an `async def`, also of such a call of another agent."""
TRANSPARENT = frozenset(
    {
        *("builtins.classmethod", "builtins.staticmethod", "functools.cache", "functools.lru_cache"),
        *(f"graphbus_core.{name}" for name in ("depends_on", "publishes", "schema_method", "subscribe")),
        *("typing.final", "typing.override", "typing_extensions.override", "abc.abstractmethod"),
    }
)
"""Decorators that do not change what a function returns."""
PROPERTIES = frozenset({"builtins.property", "functools.cached_property"})


def _text_types_of(home: str, name: str, *makers: str) -> dict[str, Type]:
    """Return dotted name -> type for methods such as `datetime.datetime.now`, which make an object of the class `home.name`."""
    return {f"{home}.{name}.{maker}": TEXT_TYPES[home, name] for maker in makers}


_STR_LIST = Type("list", (STR,))
_CALLS = {
    **{f"builtins.{name}": STR for name in ("str", "repr", "chr", "hex", "bin", "format", "ascii")},
    **{f"builtins.{name}": INT for name in ("len", "int", "ord", "hash", "id")},
    **{f"builtins.{name}": BOOL for name in ("bool", "isinstance", "any", "all", "callable", "hasattr")},
    "builtins.dict": DICT,
    "builtins.bytes": BYTES,
    "builtins.float": FLOAT,
    "builtins.tuple": Type("tuple"),
    "builtins.range": Type("list", (INT,)),
    **dict.fromkeys(("time.time", "time.monotonic", "time.perf_counter", "random.random", "random.uniform"), FLOAT),
    **dict.fromkeys(("random.randint", "random.randrange", "time.time_ns", "math.floor", "math.ceil"), INT),
    **dict.fromkeys(("json.dumps", "secrets.token_hex", "secrets.token_urlsafe", "os.getcwd", "textwrap.dedent"), STR),
    **_text_types_of("datetime", "datetime", "now", "utcnow", "today", "fromisoformat", "fromtimestamp"),
    **_text_types_of("datetime", "date", "today", "fromisoformat"),
    **{f"uuid.uuid{number}": TEXT_TYPES["uuid", "UUID"] for number in (1, 3, 4, 5)},
}
_CONTAINERS: dict[str, Kind] = {
    **{f"builtins.{name}": "list" for name in ("list", "sorted", "reversed")},
    "builtins.set": "set",
}
_SAME = frozenset(
    {
        *("copy.copy", "copy.deepcopy", "dataclasses.asdict", "dataclasses.replace"),
        *("msgspec.to_builtins", "msgspec.structs.asdict", "msgspec.structs.replace"),
    }
)
"""Functions that return their argument, a copy of it, or its fields as a dict."""
_COPYING_METHODS = frozenset({"copy", "model_copy", "_replace"})
_DUMPING_METHODS = frozenset({"dict", "model_dump", "_asdict"})
_OF_STR = {
    **dict.fromkeys(
        ("capitalize", "casefold", "center", "expandtabs", "format", "join", "ljust", "lower", "lstrip"), STR
    ),
    **dict.fromkeys(("removeprefix", "removesuffix", "replace", "rjust", "rstrip", "strip", "title", "upper"), STR),
    **dict.fromkeys(("swapcase", "translate", "zfill"), STR),
    **dict.fromkeys(("split", "rsplit", "splitlines"), _STR_LIST),
    **dict.fromkeys(("startswith", "endswith", "isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower"), BOOL),
    **dict.fromkeys(("count", "find", "rfind", "index"), INT),
    "encode": BYTES,
}
_OF_TEXTS = {**dict.fromkeys(("isoformat", "strftime"), STR), **dict.fromkeys(("timestamp", "total_seconds"), FLOAT)}
"""Methods of dates, times and durations."""


def item_of(of: Type) -> Type:
    """Return the type of the items of an iterable of this type; unknown if it is not certain, or if items of a tuple differ."""
    if of.kind == "str":
        return STR
    if of.kind == "result":
        return replace(of, values=(*of.values, ITEM))
    if of.kind == "tuple" and len(set(map(without_constants, of.args))) == 1:
        return without_constants(of.args[0])
    return of.args[0] if of.kind in ("list", "set", "dict") and of.args else UNKNOWN


def types_of_targets(target: ast.expr, of: Type) -> dict[str, Type]:
    """Return the types of the names of a target, to which items of a type are assigned."""
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    parts = of.args if of.kind == "tuple" and len(of.args) == len(targets) > 1 else [of] * len(targets)
    return {
        each.id: part if len(targets) == 1 or of.kind == "tuple" else UNKNOWN
        for each, part in zip(targets, parts, strict=True)
        if isinstance(each, ast.Name)
    }


def of_function(dotted: str, first: Type, count: int) -> Type:
    """Return the type that a function of a library returns; unknown for one that is not listed here.

    Args:
        dotted: The dotted name of the function.
        first: The type of the first argument of the call.
        count: The number of arguments of the call.
    """
    if dotted in _CONTAINERS:
        return of_items(_CONTAINERS[dotted], item_of(first))
    if dotted in _SAME:  # `replace` takes the changed fields as further arguments
        return first if count == 1 or dotted.endswith("replace") else UNKNOWN
    return _OF_NUMBERS[dotted](first, count) if dotted in _OF_NUMBERS else _CALLS.get(dotted, UNKNOWN)


def of_items(kind: Kind, item: Type) -> Type:
    """Return a list or set type with this item type; without any item type if `item` is unknown."""
    return Type(kind) if item.kind == "unknown" else Type(kind, (item,))


def of_method(owner: Type, name: str, *, is_plain: bool) -> Type:
    """Return the type that the method `name` of a value returns; unknown for a method that is not listed here.

    `owner` is the type of the value; `is_plain` is True if the arguments of the call do not change the fields of the result.
    """
    if owner.kind == "str":
        return (_OF_TEXTS if owner.name else _OF_STR).get(name, UNKNOWN)
    if name == "_asdict" and owner.kind == "tuple" and owner.fields:
        return Type("record", fields=owner.fields)
    if name in _COPYING_METHODS | _DUMPING_METHODS and owner.kind in ("record", "dict", "list", "result"):
        return owner if name in _COPYING_METHODS or is_plain else UNKNOWN
    if owner.kind == "dict" and len(owner.args) == 2 and name in ("keys", "values", "items"):
        key, value = owner.args
        return Type("list", ({"keys": key, "values": value, "items": Type("tuple", owner.args)}[name],))
    return UNKNOWN


def part_of(owner: Type, key: object) -> Type:
    """Return the type of `owner[key]` or `owner.key`: of a field, an entry or an item; unknown if it is not certain."""
    if owner.kind == "record" or (owner.fields and isinstance(key, str)):
        return next((field.type for field in owner.fields if field.name == key), UNKNOWN)
    if owner.kind == "result" and isinstance(key, int | str):
        return replace(owner, values=(*owner.values, key if isinstance(key, str) else ITEM))
    if owner.kind == "dict" and owner.args:
        return owner.args[1]
    if owner.kind == "tuple" and isinstance(key, int) and 0 <= key < len(owner.args):
        return owner.args[key]
    return item_of(owner) if owner.kind in ("list", "str") and isinstance(key, int) else UNKNOWN


def with_fields(record: Type, given: Mapping[str, Type], *, converts: bool = False) -> Type:
    """Return the record, with the types of assigned values in place of the declared types that they contradict.

    Args:
        record: The declared record.
        given: Field -> the type of the value that is assigned to it.
        converts: The class converts plain values (texts, numbers, booleans), so that they contradict only container types.
    """
    contradicting = {}
    for field in record.fields:
        actual = given.get(field.name, UNKNOWN)
        is_converted = converts and actual.kind in _PLAIN and field.type.kind not in ("list", "dict", "set", "tuple")
        if actual == COROUTINE or (misfit_reason(field.type, actual, is_narrowed=True) and not is_converted):
            contradicting[field.name] = actual
    fields = (replace(each, type=contradicting.get(each.name, each.type)) for each in record.fields)
    return Type("record", fields=tuple(fields)) if contradicting else record


_PLAIN = frozenset({"str", "int", "float", "bool", "bytes"})


def of_either(body: Type, orelse: Type) -> Type:
    """Return the union of both branches of a conditional expression.

    It is marked with `ALL_OCCUR` if each choice certainly can be the value; not if a branch is a union, which a condition may
    have narrowed.
    """
    if body.values and orelse.values and body.kind == orelse.kind and body != orelse:
        return Type("union", (body, orelse), name=ALL_OCCUR)  # `union` would merge two constants of one kind
    found = union(body, orelse)
    is_certain = found.kind == "union" and "union" not in (body.kind, orelse.kind)
    return replace(found, name=ALL_OCCUR) if is_certain else found


def of_one(operands: Sequence[Type], *, is_or: bool) -> Type:
    """Return the type of `a or b` or `a and b`: the union of the types of the operands.

    An operand of `or` before the last one is the result only if it is true, so that None is left out of its type.
    """
    *heads, last = operands
    choices = [each for head in heads for each in (head.args if head.kind == "union" else (head,))]
    return union(*([each for each in choices if each.kind != "null"] if is_or else heads), last)


def of_get(owner: Type, key: object, default: Type) -> Type:
    """Return the type of `x.get(key, default)`: that of the field, in union with the default if the field may be missing."""
    found = part_of(owner, key)
    field = next((field for field in owner.fields if field.name == key), None)
    is_certain = found.kind in ("unknown", "result") or (field is not None and field.required)
    return found if is_certain else union(found, default)


def of_operation(operator: ast.operator, left: Type, right: Type) -> Type:
    """Return the type of `left operator right` for texts and numbers; unknown unless it is certain."""
    if left.kind == "str" and not left.name and isinstance(operator, ast.Mod):
        return STR
    kinds = {left.kind, right.kind}
    if left.name or right.name:  # a date or duration: its kind is `str`, but it is not a text
        return UNKNOWN
    if kinds == {"str"} and isinstance(operator, ast.Add):
        return STR
    if not kinds <= {"int", "float"} or isinstance(operator, ast.Pow):
        return UNKNOWN
    return FLOAT if "float" in kinds or isinstance(operator, ast.Div) else INT


def _number_type(value: Type) -> Type:
    """Return the type of a number, without a constant value; unknown for anything else."""
    return without_constants(value) if value.kind in ("int", "float") else UNKNOWN


def _sum_type(item: Type) -> Type:
    """Return the type of `sum(...)` of items of this type: a number even if they are unknown, because the sum starts with 0."""
    number = _number_type(item)
    return number if number.kind != "unknown" else union(INT, FLOAT)


_OF_NUMBERS: dict[str, Callable[[Type, int], Type]] = {
    "builtins.round": lambda value, count: (
        INT if count == 1 and _number_type(value) != UNKNOWN else _number_type(value)
    ),
    "builtins.sum": lambda value, count: _sum_type(item_of(value)) if count == 1 else UNKNOWN,
    "builtins.abs": lambda value, _count: _number_type(value),
}
