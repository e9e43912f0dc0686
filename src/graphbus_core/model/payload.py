"""Payloads: JSON-shaped values that nobody can change once they are published.

A payload is handed over frozen: dicts and lists become read-only ones (still dicts and lists, so `json.dumps` takes them),
strings, numbers, booleans and None are shared. Freezing is also the check: it refuses what is not JSON or is too large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from graphbus_core.errors import RunError
from graphbus_core.model.proposals import Json

MAX_PAYLOAD_BYTES = 1_048_576
"""The limit for one payload. A string counts its characters, a dict or list 2, every other value 4."""

_MAX_DEPTH = 100


def _refuse(self: object, *_arguments: object, **_named: object) -> NoReturn:
    raise TypeError("a payload is read-only: change a copy of it, e.g. dict(payload)")


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed; copies of it can."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, _memo: object) -> dict[str, Any]:
        thawed: dict[str, Any] = thaw(self)
        return thawed

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (dict(self),)


class FrozenList(list[Any]):
    """A list that cannot be changed; copies of it can."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = _refuse
    pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, _memo: object) -> list[Any]:
        thawed: list[Any] = thaw(self)
        return thawed

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (list(self),)


_FIXED = frozenset({int, float, bool, type(None)})
_FROZEN = frozenset({FrozenDict, FrozenList})


def freeze(value: Json, limit: int = MAX_PAYLOAD_BYTES) -> Json:
    """Give the value with read-only containers; what is frozen already is given back as it is.

    The work depends on the number of values in it, not on the length of its strings. Tuples become lists.

    Raises:
        RunError: GBE612 for a part that is not JSON, GBE613 for a payload over the limit.
    """
    kind = type(value)
    if kind in _FIXED or kind in _FROZEN:
        return value
    return _Freezer(limit).freeze(value)


def thaw(value: Json) -> Json:
    """Give a deep copy with plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


class _Freezer:
    """One pass over one payload; `left` is what may still be spent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._path: list[str | int] = []

    def freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            self._spend(len(value))
            return value
        if kind in _FIXED:
            self._spend(4)
            return value
        if isinstance(value, Mapping):
            return self._freeze_mapping(value)
        if isinstance(value, list | tuple):
            return self._freeze_items(value)
        if isinstance(value, str | int | float):  # an enum's or other subclass's plain value
            return self.freeze(_plain(value))
        raise self._not_json(f"a {kind.__name__}")

    def _freeze_mapping(self, value: Mapping[Any, Any]) -> FrozenDict:
        self._enter()
        frozen = {}
        for key, item in value.items():
            if type(key) is not str:
                raise self._not_json(f"a dict with the key {key!r}")
            self._spend(len(key) + 2)
            kind = type(item)
            if kind in _FIXED:
                self._spend(4)
                frozen[key] = item
            else:
                self._path.append(key)
                frozen[key] = self.freeze(item)
                self._path.pop()
        return FrozenDict(frozen)

    def _freeze_items(self, value: list[Any] | tuple[Any, ...]) -> FrozenList:
        self._enter()
        frozen = []
        for index, item in enumerate(value):
            self._path.append(index)
            frozen.append(self.freeze(item))
            self._path.pop()
        return FrozenList(frozen)

    def _enter(self) -> None:
        self._spend(2)
        if len(self._path) > _MAX_DEPTH:
            raise self._not_json(f"nested more than {_MAX_DEPTH} deep, or in itself")

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise RunError("GBE613", limit=self._limit)

    def _not_json(self, found: str) -> RunError:
        return RunError("GBE612", path=describe_path(self._path), found=found)


def describe_path(path: list[str | int]) -> str:
    """Spell a path into a payload: `items[0].sku`; the payload itself for the empty path."""
    spelled = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    return spelled or "the payload"


def _plain(value: str | int | float) -> str | int | float:
    """The value of a subclass, e.g. of a StrEnum, as the type that JSON knows."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)
