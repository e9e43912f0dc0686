"""Writes YAML that parsers of YAML 1.1 and 1.2 read the same way."""

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
"""Texts that need no quotes: they begin like a word, a path or an option, and contain no special characters, except for colons
inside of words. Texts that begin with a digit may be read as numbers or times; only quantities such as `256Mi` are included."""
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])


def render_yaml(document: Any) -> str:
    """Return JSON data as one YAML document with a final newline; the order of keys is kept."""
    return "".join(f"{line}\n" for line in _render_lines(document))


def _render_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a value as YAML; nested mappings and lists are indented by two spaces."""
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield format_scalar(value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            is_nested = isinstance(each, Mapping | list | tuple) and bool(each)
            first, *rest = _render_lines(each)
            yield f"{format_scalar(key)}:" if is_nested else f"{format_scalar(key)}: {first}"
            yield from (f"  {line}" for line in ([first, *rest] if is_nested else rest))
    else:
        for each in value:
            first, *rest = _render_lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)


def format_scalar(value: object) -> str:
    """Return a text, number, boolean or None as YAML; a text is quoted unless every parser reads it as that text.

    Raises:
        ValueError: The number is infinite or NaN.
    """
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str):
        return quote_text(value)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    text = dumps(value)
    return text if "." in text else text.replace("e-", ".0e-").replace("e+", ".0e+")  # YAML 1.1 reads 1e-05 as a text


def quote_text(text: str) -> str:
    """Return a text in double quotes, with invisible characters as `\\UXXXXXXXX`, which YAML and TOML both understand."""
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in dumps(text, ensure_ascii=False))
