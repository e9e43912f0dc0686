"""Adds an item to the text of a JSON document, or takes one out, and leaves every other byte as it is.

[ 1, 2 ]  --insert_item 3-->  [ 1, 2, 3 ]  --remove_item-->  [ 1, 2 ]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from json import JSONDecoder, dumps
from typing import Any, NamedTuple

_DECODER = JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)")

Steps = Sequence[str | int]
"""The keys and indexes that lead to a value."""


class _Item(NamedTuple):
    """A member of an object or an element of an array: its key or index, and where it, its value and its end stand."""

    key: str | int
    start: int
    value: int
    end: int


def insert_item(text: str, steps: Steps, value: Any, key: str = "") -> str:
    """Return the text with a value added at the end of an object (under `key`) or array, in the style of its neighbours."""
    at = _find_value(text, steps)
    items = _list_items(text, at)
    indent = found[1] if (found := _INDENT.search(text)) else "  "
    newline = "\r\n" if "\r\n" in text else "\n"
    if items:
        start, end, close = items[-1].start, items[-1].end, ""
        gap = text[len(text[:start].rstrip()) : start]
        gap = gap if gap or len(items) > 1 else " "
    else:
        outer = newline + indent * len(steps)
        gap, end, close = outer + indent, at + 1, outer
    margin = gap.rpartition("\n")[2] if "\n" in gap else None
    item = dumps(value, ensure_ascii=False, indent=indent if margin is not None else None)
    item = (f"{dumps(key)}: " if key else "") + item.replace("\n", f"{newline}{margin}")
    rest = text[end:] if items else close + text[_skip_space(text, end) :]
    return f"{text[:end]}{',' if items else ''}{gap}{item}{rest}"


def remove_item(text: str, steps: Steps) -> str:
    """Return the text without the item at these steps, and without the comma that it leaves."""
    items = _list_items(text, _find_value(text, steps[:-1]))
    index = next(index for index, item in enumerate(items) if item.key == steps[-1])
    if index:
        return text[: items[index - 1].end] + text[items[index].end :]
    end = items[1].start if len(items) > 1 else items[0].end
    return text[: items[0].start] + text[end:]


def _find_value(text: str, steps: Steps) -> int:
    """Return where the value at these steps begins."""
    at = _skip_space(text, 0)
    for step in steps:
        at = next(item.value for item in _list_items(text, at) if item.key == step)
    return at


def _list_items(text: str, at: int) -> list[_Item]:
    """Return the items of the object or array that begins at this position."""
    items: list[_Item] = []
    is_object = text[at] == "{"
    at = _skip_space(text, at + 1)
    while text[at] not in "]}":
        start, key = at, len(items)
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip_space(text, _skip_space(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        items.append(_Item(key, start, at, end))
        at = _skip_space(text, end)
        at = _skip_space(text, at + 1) if text[at] == "," else at
    return items


def _skip_space(text: str, at: int) -> int:
    """Return the position of the next character that is no white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at
