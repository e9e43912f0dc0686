"""What is typed after a command of the prompt: JSON or `key=value` pairs, and how both are completed. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from json import JSONDecoder
from typing import Any

import msgspec

from graphbus_core.schema.types import Field, Schema, Type

_EMPTY: Mapping[str, Any] = {"str": "", "bytes": "", "int": 0, "float": 0.0, "bool": False, "null": None}
_KEY = re.compile(r"\s*([^\s=]+)=")


def read_value(text: str, schema: Schema | None) -> Any:
    """Read one JSON value, or an object written as `key=value` pairs; an empty text is None.

    The value of a pair is JSON if it can be read as JSON, else text; where the schema wants text, it is text.

    Raises:
        ValueError: The text is neither.
    """
    text = text.strip()
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text[0] in '{["' or "=" not in text:
            raise ValueError(_not_json(error)) from None
    pairs, position = {}, 0
    while position < len(text):
        key = _KEY.match(text, position)
        if key is None:
            raise ValueError(f"{text[position:].strip()!r} is no `key=value`")
        field = schema.get(key[1]) if schema else None
        end = _end_of_value(text, key.end())
        pairs[key[1]] = _read_one(text[key.end() : end], field.type if field else None)
        position = end
    return pairs


def _end_of_value(text: str, start: int) -> int:
    """A value in quotes or brackets may hold spaces; any other ends at the next space."""
    first = text[start : start + 1]
    if first == "'":
        end = text.find("'", start + 1)
        if end < 0:
            raise ValueError("' is not closed")
        return end + 1
    if first and first in '{["':
        try:
            return JSONDecoder().raw_decode(text, start)[1]
        except ValueError as error:
            raise ValueError(_not_json(error)) from None
    return start + len(text[start:].split(maxsplit=1)[0]) if first.strip() else start


def _not_json(error: Exception) -> str:
    reason = str(error)
    return f"it is not JSON ({reason[:1].lower()}{reason[1:]})"


def _read_one(text: str, wanted: Type | None) -> Any:
    is_quoted = text[:1] in ("'", '"')
    if text.startswith("'"):
        text = text[1:-1]
    if wanted is not None and wanted.kind == "str" and not is_quoted:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def snippet(schema: Schema) -> str:
    """Give an object with all required fields, to be filled in: `{"sku": "", "quantity": 0}`."""
    return _as_json({field.name: _example(field.type) for field in schema.fields if field.required})


def field_words(schema: Schema, line: str, text: str) -> list[str]:
    """Give the names of the fields that begin with `text` and are not in the line yet, as they are written there."""
    if "{" in line:
        words = [f'"{field.name}":' for field in schema.fields if f'"{field.name}"' not in line.removesuffix(text)]
    else:
        words = [f"{field.name}=" for field in schema.fields if f" {field.name}=" not in line]
    return [word for word in words if word.startswith(text)]


def _example(kind: Type) -> Any:
    if kind.kind == "record":
        return {field.name: _example(field.type) for field in kind.fields if field.required}
    if kind.kind == "literal":
        return kind.values[0] if kind.values else None
    if kind.kind == "union":
        return next((_example(each) for each in kind.args if each.kind != "null"), None)
    if kind.kind in ("list", "tuple", "set"):
        items = [_example(each) for each in kind.args[:1]]
        return items if items and isinstance(items[0], dict) and items[0] else []
    return {} if kind.kind == "dict" else _EMPTY.get(kind.kind)


def _as_json(value: Any) -> str:
    """JSON in one line, with a space after `:` and `,`."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def pretty(value: Any, width: int = 80) -> str:
    """Give JSON in one line if it fits into the width, else over several."""
    line = _as_json(value)
    return line if len(line) <= width else msgspec.json.format(line.encode(), indent=2).decode()


def describe_fields(schema: Schema | None) -> str:
    """Describe a schema in the few words of a table."""
    return "" if schema is None else ", ".join(_describe(field) for field in schema.fields)


def _describe(field: Field) -> str:
    return f"{field.name}{'' if field.required else '?'}: {field.type}"
