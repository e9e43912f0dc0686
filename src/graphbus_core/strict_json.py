"""Parses JSON from outside strictly: documents that parsers understand differently are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from json import JSONDecodeError
from json import loads as _loads
from math import isfinite
from typing import Any, NoReturn

MAX_DEPTH = 100
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: str | bytes, *, any_text: bool = False, max_depth: int = MAX_DEPTH) -> Any:
    """Parse one JSON document. Integers may have as many digits as Python accepts.

    Args:
        data: The document; bytes are UTF-8 without a byte order mark.
        any_text: Accept half of a surrogate pair in a string, as Python writes it; other parsers refuse it.
        max_depth: How deeply arrays and objects may be nested.

    Raises:
        ValueError: With the reason as text: not JSON, NaN or Infinity, a number that is too large, a name twice in one object,
            nesting deeper than `max_depth`, half of a surrogate pair, not UTF-8.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = _loads(
            text, parse_constant=_refuse_constant, parse_float=_number, parse_int=_integer, object_pairs_hook=_unique
        )
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
        raise ValueError(reason) from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    if text.count("[") + text.count("{") > max_depth:
        _check_depth(value, max_depth)
    if not any_text and _SURROGATE.search(text):
        _check_text(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large to be represented")
    return number


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a number has {len(text)} digits, which is more than Python reads") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(name for name, after in pairwise(names) if name == after)
        shown = twice if len(twice) <= 60 else f"{twice[:60]}..."
        raise ValueError(f"the name {shown!r} appears twice in one object")
    return found


def _check_depth(value: Any, most: int) -> None:
    level = [value]
    for _ in range(most + 1):
        level = [item for container in level for item in _items(container) if isinstance(item, dict | list)]
        if not level:
            return
    raise _too_deep(most)


def _items(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container if isinstance(container, list) else ()


def _too_deep(most: int) -> ValueError:
    return ValueError(f"it is nested more than {most} deep")


def _check_text(value: Any) -> None:
    from json import dumps

    try:
        dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string contains half of a surrogate pair") from None
