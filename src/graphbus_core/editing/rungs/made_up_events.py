"""Payloads for topics without a publisher in the project, made up from what a handler reads of them.

What a value is for is not known: a key may hold a number or a text, so there is a payload for each combination. Only an error for
every payload that the handler could deal with before the change says something about the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from graphbus_core.model.agent import BELOW_UNKNOWN, Subscription
from graphbus_core.schema.json import Json
from graphbus_core.schema.types import ITEM

_ANY_VALUES: tuple[Json, ...] = (3, "sample", [], {})
"""Values for a key of unknown type, the most usual first."""
_MAX_PAYLOADS = 64

_Parts = dict[str, Any]
"""The parts of a value that are read: key, or `[]` for an item -> its own parts; empty for a value that is read as a whole."""


def make_payloads(handlers: Iterable[Subscription], known: dict[str, Json]) -> list[dict[str, Json]]:
    """Return payloads with every key that these versions of a handler read; empty if they read too many of unknown type.

    Args:
        handlers: The handler before and after the change.
        known: Key -> a value, for keys whose types are known.
    """
    parts: _Parts = {}
    for handler in handlers:
        for name in sorted(handler.named - known.keys()):
            parts.setdefault(name, {})
        for path in (path for read in handler.reads if read.key not in known for path in read.below):
            _add_path(parts, path)
    leaves = sum(1 for _ in _leaves(parts))
    kinds = next((kinds for kinds in range(len(_ANY_VALUES), 1, -1) if kinds**leaves <= _MAX_PAYLOADS), 0)
    combinations = product(_ANY_VALUES[:kinds], repeat=leaves) if kinds else ()
    return [
        {**known, **{key: _fill(inner, values) for key, inner in parts.items()}} for values in map(iter, combinations)
    ]


def _add_path(parts: _Parts, path: str) -> None:
    """Add a path such as `lines[].sku`."""
    for key in path.replace(ITEM, f".{ITEM}").split("."):
        if key != BELOW_UNKNOWN:
            parts = parts.setdefault(key, {})


def _leaves(parts: _Parts) -> Iterator[str]:
    """Yield the keys of all values that are read as a whole."""
    for key, inner in parts.items():
        if inner:
            yield from _leaves(inner)
        else:
            yield key


def _fill(parts: _Parts, values: Iterator[Json]) -> Json:
    """Return a value with these parts; `values` gives those that are read as a whole."""
    if not parts:
        return next(values)
    filled = {key: _fill(inner, values) for key, inner in parts.items()}
    return [filled[ITEM]] if ITEM in filled else filled
