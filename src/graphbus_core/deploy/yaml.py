"""YAML whose text means the same in YAML 1.1 and 1.2."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from json import dumps
from math import isfinite
from typing import Any

_SIGN = "[A-Za-z0-9_./@+=-]"
_INSIDE = "[A-Za-z0-9_./@+=(),-]"
_PLAIN = re.compile(
    rf"(?:\.?/|--)?[A-Za-z_](?:{_SIGN}|:(?={_SIGN}))*(?: (?:{_INSIDE}|(?<=[A-Za-z0-9]):(?={_SIGN}))+)*"
    r"|[1-9][0-9]*(?:[KMGT]i|[mMGT])"
)
"""Begins like a word, a path or an option, and has no sign with a meaning; a colon only inside of a word. A text that begins
with a digit may be a time or a number of some base, unless it is a quantity."""
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])


def render_yaml(document: Any) -> str:
    """Return JSON data as one YAML document, in the order of the data, with a final newline."""
    return "".join(f"{line}\n" for line in _lines(document))


def _lines(value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield format_scalar(value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            is_nested = isinstance(each, Mapping | list | tuple) and bool(each)
            first, *rest = _lines(each)
            yield f"{format_scalar(key)}:" if is_nested else f"{format_scalar(key)}: {first}"
            yield from (f"  {line}" for line in ([first, *rest] if is_nested else rest))
    else:
        for each in value:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def format_scalar(value: object) -> str:
    """Return a scalar as YAML 1.1 and 1.2 both read it: plain if no parser can take it for anything else."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is no finite number")
    text = dumps(value)
    return text if "." in text else text.replace("e-", ".0e-").replace("e+", ".0e+")  # YAML 1.1 reads 1e-05 as a text


def quote_text(text: str) -> str:
    """Quote as JSON does; what nobody can see is written by its number, as YAML and TOML both understand it."""
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in dumps(text, ensure_ascii=False))
