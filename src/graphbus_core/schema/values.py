"""Inspects values safely: by their real type, without trusting methods of their classes.

A value may be of any class: a Mapping that raises, a list with a false `__iter__`, an object with a `__class__` of its own.
Objects of a subclass of a builtin type are read as that type. Only Mappings and typed objects run code of their own, and
errors of it are caught.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import EnumMeta
from itertools import islice
from math import isfinite
from typing import Any

from graphbus_core.errors.legible import escape_to_one_line
from graphbus_core.isolation import attempt

MAX_ENTRIES = 262_144
"""How many entries of a Mapping are read; its iterator may never end."""

Items = list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]


def is_int(value: object) -> bool:
    """True for an int, also of a subclass such as an IntEnum, but not for True and False."""
    kind = type(value)
    return kind is not bool and issubclass(kind, int)


def is_float(value: object) -> bool:
    """True for a float or int, also of a subclass, but not for True and False."""
    kind = type(value)
    return kind is not bool and issubclass(kind, int | float)


def has_nan_or_infinity(value: object) -> bool:
    """True for plain data that contains NaN or an infinite float, which msgspec would encode as null."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, float) and not isfinite(each):
            return True
        if isinstance(each, dict):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)
    return False


def is_str(value: object) -> bool:
    """True for a str, also of a subclass such as a StrEnum."""
    return issubclass(type(value), str)


def is_bytes(value: object) -> bool:
    """True for bytes, also of a subclass."""
    return issubclass(type(value), bytes)


def items_of(value: object) -> Items | None:
    """Return the items of a list or tuple, also of a subclass; None for anything else."""
    kind = type(value)
    if kind is list or kind is tuple:
        return value  # type: ignore[return-value]
    if issubclass(kind, list):
        return list(list.__iter__(value))  # type: ignore[arg-type]
    return tuple(tuple.__iter__(value)) if issubclass(kind, tuple) else None  # type: ignore[arg-type]


def members_of(value: object) -> Items | None:
    """Return the members of a set or frozenset, or the items of a list or tuple, which stand for a set in JSON."""
    kind = type(value)
    if kind is set or kind is frozenset:
        return value  # type: ignore[return-value]
    if issubclass(kind, set):
        return list(set.__iter__(value))  # type: ignore[arg-type]
    return list(frozenset.__iter__(value)) if issubclass(kind, frozenset) else items_of(value)  # type: ignore[arg-type]


def mapping_of(value: object) -> dict[Any, Any] | None:
    """Return the entries of a dict or Mapping; a plain dict itself.

    None for anything else, and for a Mapping that raises or has more than `MAX_ENTRIES` entries.
    """
    kind = type(value)
    if kind is dict:
        return value  # type: ignore[return-value]
    if issubclass(kind, dict):
        return dict(dict.items(value))  # type: ignore[arg-type]
    if not issubclass(kind, Mapping):
        return None
    entries, _ = attempt(lambda: dict(islice(value.items(), MAX_ENTRIES + 1)))  # type: ignore[attr-defined]
    return entries if entries is None or len(entries) <= MAX_ENTRIES else None


def fields_of(value: object) -> dict[Any, Any] | None:
    """Return the entries of a dict or Mapping, or JSON name -> value of the fields of a typed object; None for anything else."""
    found = mapping_of(value)
    return found if found is not None else _object_fields_of(value)


def _object_fields_of(value: object) -> dict[str, Any] | None:
    """Return JSON name -> value of the fields of a typed or annotated object; None for others, and if reading a field raises."""
    kind = type(value)
    if hasattr(kind, "model_fields"):
        return attempt(lambda: _model_fields(kind.model_fields, object.__getattribute__(value, "__dict__")))[0]
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if names is not None:
        json_names = getattr(kind, "__struct_encode_fields__", names)  # a Struct may rename its fields
        pairs = tuple(zip(names, json_names, strict=True))
        return attempt(lambda: {key: getattr(value, name) for name, key in pairs if hasattr(value, name)})[0]
    if not hasattr(kind, "__annotations__"):
        return None
    return attempt(lambda: {**object.__getattribute__(value, "__dict__")})[0]


def _model_fields(fields: Mapping[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return JSON name -> value for the declared `fields` of a pydantic model that are set in `own`, its `__dict__`."""
    return {alias_of(name, field): own[name] for name, field in fields.items() if name in own}


def alias_of(name: str, field: Any) -> str:
    """Return the JSON name of a field of a pydantic model."""
    alias = getattr(field, "validation_alias", None) or getattr(field, "alias", None)
    return alias if isinstance(alias, str) else name


def builtin_of(value: object) -> object:
    """Return the plain str, int or float of an object of a subclass, such as a StrEnum member; anything else unchanged."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    for base, plain in _BASES:
        if issubclass(kind, base):
            return plain(value)
    return value


def enum_value_of(value: object) -> object:
    """Return what `builtin_of` returns for the value of an Enum member, or for any other object itself."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    return builtin_of(object.__getattribute__(value, "_value_") if issubclass(type(kind), EnumMeta) else value)


_PLAIN = frozenset({str, int, float, bool, type(None)})
_BASES: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)


# --- in words ------------------------------------------------------------------------------

_MAX_SHOWN = 60


def clip_text(text: str, limit: int = 240) -> str:
    """Return a text for a message: at most `limit` characters, on one line, with control characters escaped."""
    return escape_to_one_line(text if len(text) <= limit else f"{text[: limit - 3]}...")


def format_value(value: object) -> str:
    """Return a value for a message: its class and at most 60 characters of its repr. No code of its class runs."""
    if value is None:
        return "None"
    text = _repr_of(value)
    return f"{_class_name(type(value))} {text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + '...'}".rstrip()


def _class_name(kind: type) -> str:
    """Return the name of a class, and `dict` or `list` for their frozen subclasses."""
    return {"FrozenDict": "dict", "FrozenList": "list"}.get(kind.__name__, kind.__name__)


def _repr_of(value: object) -> str:
    """Return the repr of builtin data, with long parts shortened; `""` for objects of other classes, whose code might run."""
    from reprlib import Repr  # only imported for messages about wrong values

    plain = builtin_of(value)
    if issubclass(type(plain), dict):
        plain = mapping_of(plain)
    elif issubclass(type(plain), list | tuple):
        plain = items_of(plain)
    if type(plain) is str:
        return repr(plain[: _MAX_SHOWN + 1])
    if type(plain) is int and plain.bit_length() > 200:
        return f"of {plain.bit_length()} bits"

    class Short(Repr):
        """Shortens at any depth, and never calls the `__repr__` of other classes."""

        def repr_int(self, x: int, level: int) -> str:
            return repr(x) if x.bit_length() <= 200 else "..."

        def repr_instance(self, x: object, level: int) -> str:
            if issubclass(type(x), dict):
                return self.repr_dict(mapping_of(x) or {}, level)
            if issubclass(type(x), list):
                return self.repr_list(list(items_of(x) or ()), level)
            return repr(x) if type(x) in _WITH_SAFE_REPR else f"<{type(x).__name__}>"

    short = Short()
    short.maxstring = short.maxother = _MAX_SHOWN + 1
    return short.repr(plain) if type(plain) in _BUILTIN else ""


_WITH_SAFE_REPR = frozenset({int, float, bool, type(None), bytes})
_BUILTIN = frozenset({int, float, bool, bytes, list, tuple, dict, set, frozenset})
