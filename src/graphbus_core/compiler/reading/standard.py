"""The types that functions and methods of Python's library return for given argument types, and its decorators."""

from __future__ import annotations

import ast
from collections.abc import Callable

from msgspec.structs import replace

from graphbus_core.schema.types import (
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

TRANSPARENT = frozenset(
    {
        *("builtins.classmethod", "builtins.staticmethod", "functools.cache", "functools.lru_cache"),
        *(f"graphbus_core.{name}" for name in ("depends_on", "publishes", "schema_method", "subscribe")),
        *("typing.final", "typing.override", "typing_extensions.override", "abc.abstractmethod"),
    }
)
"""Decorators that change nothing in what a function returns."""
PROPERTIES = frozenset({"builtins.property", "functools.cached_property"})


def _texts_of(home: str, name: str, *makers: str) -> dict[str, Type]:
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
    **_texts_of("datetime", "datetime", "now", "utcnow", "today", "fromisoformat", "fromtimestamp"),
    **_texts_of("datetime", "date", "today", "fromisoformat"),
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
"""They give what they are given, or the same fields as a dict."""
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
    """Return the type of the items of an iterable."""
    if of.kind == "str":
        return STR
    if of.kind == "result":
        return replace(of, values=(*of.values, ITEM))
    return of.args[0] if of.kind in ("list", "set", "dict") and of.args else UNKNOWN


def of_function(dotted: str, first: Type, count: int) -> Type:
    """Return what a function returns; unknown for one that is not known.

    Args:
        dotted: Its dotted name.
        first: The type of its first argument.
        count: How many arguments it is given.
    """
    if dotted in _CONTAINERS:
        return of_items(_CONTAINERS[dotted], item_of(first))
    if dotted in _SAME:
        return first if count == 1 or dotted.endswith("replace") else UNKNOWN
    return _OF_NUMBERS[dotted](first, count) if dotted in _OF_NUMBERS else _CALLS.get(dotted, UNKNOWN)


def of_items(kind: Kind, item: Type) -> Type:
    """Return a list or set of such items."""
    return Type(kind) if item.kind == "unknown" else Type(kind, (item,))


def of_method(owner: Type, name: str, *, is_plain: bool) -> Type:
    """Return what a method returns; unknown for one that is not known. `is_plain` if it is given no arguments that matter."""
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
    """Return the type of an entry, a field or an item of a value."""
    if owner.kind == "record" or (owner.fields and isinstance(key, str)):
        return next((field.type for field in owner.fields if field.name == key), UNKNOWN)
    if owner.kind == "result" and isinstance(key, int | str):
        return replace(owner, values=(*owner.values, key if isinstance(key, str) else ITEM))
    if owner.kind == "dict" and owner.args:
        return owner.args[1]
    if owner.kind == "tuple" and isinstance(key, int) and 0 <= key < len(owner.args):
        return owner.args[key]
    return item_of(owner) if owner.kind in ("list", "str") and isinstance(key, int) else UNKNOWN


def of_operation(operator: ast.operator, left: Type, right: Type) -> Type:
    """Return what an arithmetic operation gives."""
    if left.kind == "str" and not left.name and isinstance(operator, ast.Mod):
        return STR
    kinds = {left.kind, right.kind}
    if left.name or right.name:  # a date plus a duration is no text
        return UNKNOWN
    if kinds == {"str"} and isinstance(operator, ast.Add):
        return STR
    if not kinds <= {"int", "float"} or isinstance(operator, ast.Pow):
        return UNKNOWN
    return FLOAT if "float" in kinds or isinstance(operator, ast.Div) else INT


def _number(value: Type) -> Type:
    return without_constants(value) if value.kind in ("int", "float") else UNKNOWN


def _sum(item: Type) -> Type:
    """Return the type of `sum(...)`: a number, as it starts with 0, even if the items are unknown."""
    number = _number(item)
    return number if number.kind != "unknown" else union(INT, FLOAT)


_OF_NUMBERS: dict[str, Callable[[Type, int], Type]] = {
    "builtins.round": lambda value, count: INT if count == 1 and _number(value) != UNKNOWN else _number(value),
    "builtins.sum": lambda value, count: _sum(item_of(value)) if count == 1 else UNKNOWN,
    "builtins.abs": lambda value, _count: _number(value),
}
