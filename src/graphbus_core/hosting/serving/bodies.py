"""The body of a request as JSON. Strict, so that no two readers can read two things in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.schema.json import Json

_MAX_DEPTH = 100


def read_json(body: bytes) -> Json:
    """Read one JSON document.

    Raises:
        RunError: GBE670 for what is not JSON in UTF-8: NaN, Infinity and numbers without end, half a surrogate pair, a name twice
            in one object; and for what is nested too deep.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RunError("GBE670", reason=str(error).rstrip(".")) from None
    if body.count(b"[") + body.count(b"{") > _MAX_DEPTH:
        _refuse_depth(value)
    if body.count(b":") > 1:
        _refuse_duplicates(body)
    return value


def read_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; nothing at all is an empty one.

    Raises:
        RunError: GBE670 for what is not JSON, or not an object.
    """
    value = read_json(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise RunError("GBE670", reason="it must be an object, `{...}`")
    return value


def _refuse_depth(value: Json) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [item for container in level for item in _items(container) if isinstance(item, dict | list)]
        if not level:
            return
    raise RunError("GBE670", reason=f"it is nested more than {_MAX_DEPTH} deep")


def _items(container: Json) -> Iterable[Json]:
    return container.values() if isinstance(container, dict) else container if isinstance(container, list) else ()


def _refuse_duplicates(body: bytes) -> None:
    import json

    def unique(pairs: list[tuple[str, Any]]) -> None:
        names = {name for name, _ in pairs}
        if len(names) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise RunError("GBE670", reason=f"the name {twice!r} stands twice in one object")

    json.loads(body, object_pairs_hook=unique)
