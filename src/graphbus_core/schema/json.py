"""Payloads as immutable JSON values: `freeze` copies, converts and checks a value before it is published.

Dicts and lists become read-only subclasses (still dicts and lists, so `json.dumps` accepts them); texts, numbers, booleans and
None are shared. An object of a typed class becomes the dict that it is in JSON. Values that are not JSON or too large are
refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import EnumMeta
from math import isfinite
from typing import Any, NoReturn

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt
from graphbus_core.schema.types import TEXT_TYPES
from graphbus_core.schema.values import builtin_of, clip_text, enum_value_of, format_value, items_of, mapping_of

Json = Any
"""A JSON value: dict, list, str, int, float, bool or None."""

MAX_PAYLOAD_BYTES = 1_048_576
"""The limit for the size of a payload: a text counts its characters, a key 2 more, a dict or list 2, any other value 4."""

_MAX_DEPTH = 100
_LONG = 1 << 64
_MAX_INT_BITS = 14_000
"""Python refuses to write a longer int as text."""


def _refuse_change(self: object, *_arguments: object, **_named: object) -> NoReturn:
    """Raise TypeError: stands in for every method that would change a frozen dict or list."""
    raise TypeError("a payload is read-only: change a copy of it, e.g. dict(payload)")


class FrozenDict(dict[str, Any]):
    """A read-only dict; `dict(payload)` and `copy.deepcopy` make changeable copies."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse_change

    def __deepcopy__(self, _memo: object) -> dict[str, Any]:
        thawed: dict[str, Any] = thaw(self)
        return thawed

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (dict(self),)


class FrozenList(list[Any]):
    """A read-only list; `list(items)` and `copy.deepcopy` make changeable copies."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = _refuse_change
    pop = remove = reverse = sort = _refuse_change

    def __deepcopy__(self, _memo: object) -> list[Any]:
        thawed: list[Any] = thaw(self)
        return thawed

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (list(self),)


_FIXED = frozenset({int, float, bool, type(None)})
_FROZEN = frozenset({FrozenDict, FrozenList})


def freeze(value: Json, limit: int = MAX_PAYLOAD_BYTES, *, is_kept: bool = False) -> Json:
    """Return a read-only copy of a JSON-shaped value; a frozen one is returned itself.

    Tuples become lists. Enums, dates, UUIDs, decimals, sets and bytes become what they are in JSON, as in a field of a dataclass.
    The time depends on the number of values, not on the length of texts.

    Args:
        value: The value.
        limit: The size that it may have; see `MAX_PAYLOAD_BYTES`.
        is_kept: Refuse Enums, dates and other objects with a JSON form instead of converting them. For a state, which is kept
            and read again without a schema that would restore them.

    Raises:
        RunError: GBE612 for a part that is not JSON, GBE613 for a value over the limit.
    """
    kind = type(value)
    if kind in _FROZEN or (kind in _FIXED and kind is not float):
        return value
    if kind is dict and (frozen := _freeze_record(value, limit)) is not None:
        return frozen
    return _Freezer(limit, is_kept=is_kept).freeze(value)


def _freeze_record(value: dict[Any, Any], limit: int) -> FrozenDict | None:
    """Freeze a dict of texts, numbers, booleans and None; return None for any other dict, which `_Freezer` then handles.

    A fast path: most payloads are of this kind, and it takes a quarter of the time. The size that it counts is never smaller than
    the size that `_Freezer` counts, so it returns None for every dict over the limit.
    """
    frozen = FrozenDict(value)
    left = limit - 2 - 6 * len(frozen)  # 2 for each key, and 4 for its value
    for key, item in frozen.items():
        if type(key) is not str:
            return None
        kind = type(item)
        if kind is str:
            left -= len(item)
        elif kind is int:
            if not -_LONG < item < _LONG:
                return None
        elif kind is float:
            if item - item != 0.0:  # true for NaN and the infinities; faster than isfinite
                return None
        elif kind not in _FIXED:
            return None
        left -= len(key)
    return frozen if left >= 0 else None


def thaw(value: Json) -> Json:
    """Return a deep copy with ordinary dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


class _Freezer:
    """Freezes one payload; see `freeze` for the arguments and the errors.

    `_left` is the size that remains of the limit, and `_path` leads to the part that is being frozen.
    """

    def __init__(self, limit: int, *, is_kept: bool = False) -> None:
        self._limit = limit
        self._is_kept = is_kept
        self._left = limit
        self._path: list[str | int] = []

    def freeze(self, value: Any) -> Any:
        """Return a frozen copy of a part of the payload, and subtract its size from what is left of the limit."""
        kind = type(value)
        if kind is str:
            self._count_size(len(value))
            return value
        if kind in _FIXED:
            return self._check_scalar(value)
        if (items := items_of(value)) is not None:
            return self._freeze_items(items)
        if issubclass(kind, Mapping):
            if (entries := mapping_of(value)) is None:
                raise self._not_json(f"a {kind.__name__} that cannot be read")
            return self._freeze_mapping(entries)
        plain = builtin_of(value)  # the text or number of an object of a subclass, such as a StrEnum
        if plain is value:
            plain = self._json_of(value)
        return self.freeze(plain)

    def _check_scalar(self, value: Any) -> Any:
        """Return an int, float, bool or None; raise GBE612 for NaN, an infinity, and an int that Python cannot write."""
        self._count_size(4)
        if type(value) is int and not -_LONG < value < _LONG and value.bit_length() > _MAX_INT_BITS:
            raise self._not_json(f"an int of {value.bit_length()} bits")
        if type(value) is float and not isfinite(value):
            raise self._not_json(f"{value}, which JSON cannot represent")
        return value

    def _freeze_mapping(self, value: dict[Any, Any]) -> FrozenDict:
        """Freeze the entries of a dict; a key that is a member of a text Enum becomes its value, unless `is_kept`."""
        self._enter_container()
        frozen = {}
        for given, item in value.items():
            key = given if type(given) is str or self._is_kept else enum_value_of(given)
            if type(key) is not str:
                raise self._not_json(f"a dict with the key {format_value(given)}")
            self._count_size(len(key) + 2)
            kind = type(item)
            if kind is str:
                self._count_size(len(item))
                frozen[key] = item
            else:
                self._path.append(key)
                frozen[key] = self.freeze(item)
                self._path.pop()
        return FrozenDict(frozen)

    def _freeze_items(self, value: Iterable[Any]) -> FrozenList:
        """Freeze the items of a list or tuple."""
        self._enter_container()
        frozen = []
        for index, item in enumerate(value):
            self._path.append(index)
            frozen.append(self.freeze(item))
            self._path.pop()
        return FrozenList(frozen)

    def _json_of(self, value: Any) -> Json:
        """Return the JSON form of a typed object, an Enum, a date, a UUID, a decimal, bytes or a set; GBE612 for any other."""
        kind = type(value)
        if not _is_typed(kind) and (self._is_kept or not _has_json_form(kind)):
            raise self._not_json(f"a {kind.__name__}")
        plain, error = attempt(lambda: msgspec.to_builtins(value, enc_hook=encode_model))
        if error is not None:
            raise self._not_json(f"a {kind.__name__} that is not JSON: {clip_text(type(error).__name__)}")
        return plain

    def _enter_container(self) -> None:
        """Count the size of a dict or list itself, and refuse one that is nested too deeply."""
        self._count_size(2)
        if len(self._path) > _MAX_DEPTH:
            raise self._not_json(f"nested more than {_MAX_DEPTH} deep, or in itself")

    def _count_size(self, size: int) -> None:
        """Subtract a size from what is left of the limit; GBE613 if nothing is left."""
        self._left -= size
        if self._left < 0:
            raise RunError("GBE613", limit=self._limit)

    def _not_json(self, found: str) -> RunError:
        """Return GBE612 for the part at `_path`; `found` describes the part."""
        return RunError("GBE612", path=clip_text(describe_path(self._path)), found=clip_text(found))


def describe_path(path: Iterable[str | int], whole: str = "the payload") -> str:
    """Return a path into a value as text, `items[0].sku`; an empty path gives `whole`."""
    spelled = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return spelled or whole


def _has_json_form(kind: type) -> bool:
    """True for a class whose objects have a JSON form without being typed: Enums, bytes, sets, and those of `TEXT_TYPES`."""
    if issubclass(kind, bytes | set | frozenset) or isinstance(kind, EnumMeta):
        return True
    return any((base.__module__, base.__name__) in TEXT_TYPES for base in kind.__mro__)


def _is_typed(kind: type) -> bool:
    """True for a dataclass, msgspec or pydantic class."""
    return any(hasattr(kind, mark) for mark in ("__struct_fields__", "__dataclass_fields__", "model_dump"))


def encode_model(value: Any) -> Any:
    """Return the JSON form of a pydantic model: the `enc_hook` of msgspec. NotImplementedError for any other object."""
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise NotImplementedError
