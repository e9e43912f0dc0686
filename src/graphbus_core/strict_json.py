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
        any_text: Accept half of a surrogate pair in a string, which Python may write and other parsers refuse.
        max_depth: How deeply arrays and objects may be nested.

    Raises:
        ValueError: With the reason as text: not JSON, NaN or Infinity, a number that is too large, a name twice in one object,
            nesting deeper than `max_depth`, half of a surrogate pair, not UTF-8.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = _loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            parse_int=_parse_integer,
            object_pairs_hook=_make_object,
        )
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
        raise ValueError(reason) from None
    except RecursionError:
        raise _depth_error(max_depth) from None
    if text.count("[") + text.count("{") > max_depth:  # with fewer brackets it cannot be too deep
        _check_depth(value, max_depth)
    if not any_text and _SURROGATE.search(text):
        _check_surrogates(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _parse_float(text: str) -> float:
    """Return the number; ValueError if it is too large for a float."""
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large to be represented")
    return number


def _parse_integer(text: str) -> int:
    """Return the integer; ValueError if Python refuses to read so many digits."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"a number has {len(text)} digits, which is more than Python reads") from None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object as a dict; ValueError if a name appears twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(name for name, after in pairwise(names) if name == after)
        clipped = twice if len(twice) <= 60 else f"{twice[:60]}..."
        raise ValueError(f"the name {clipped!r} appears twice in one object")
    return found


def _check_depth(value: Any, most: int) -> None:
    """Raise ValueError if arrays and objects are nested more than `most` deep."""
    level = [value]
    for _ in range(most):  # each pass goes one level deeper
        level = [item for container in level for item in _list_items(container) if isinstance(item, dict | list)]
        if not level:
            return
    raise _depth_error(most)


def _list_items(container: Any) -> Iterable[Any]:
    """Return the items of an array or the values of an object; none for any other value."""
    return container.values() if isinstance(container, dict) else container if isinstance(container, list) else ()


def _depth_error(most: int) -> ValueError:
    return ValueError(f"it is nested more than {most} deep")


def _check_surrogates(value: Any) -> None:
    """Raise ValueError if a string contains half of a surrogate pair."""
    from json import dumps

    try:
        dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string contains half of a surrogate pair") from None
