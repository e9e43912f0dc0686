"""What a person can type at the prompt: words, arguments as JSON or `key=value`, and ways to complete them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from graphbus_core.schema.types import Field, Schema, Type

_EMPTY: Mapping[str, Any] = {"str": "", "bytes": "", "int": 0, "float": 0.0, "bool": False, "null": None}
_OPEN, _CLOSED = "[{(", "]})"


def words_of(text: str) -> list[str]:
    """Split at spaces, but not within quotes or brackets.

    Raises:
        ValueError: A quote or a bracket is not closed.
    """
    words: list[str] = []
    word = ""
    quote, depth, is_escaped = "", 0, False
    for character in text:
        if character.isspace() and not quote and not depth:
            words, word = ([*words, word] if word else words), ""
            continue
        word += character
        if is_escaped or (quote and character == "\\"):
            is_escaped = not is_escaped
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in _OPEN) - (character in _CLOSED)
    if quote or depth > 0:
        raise ValueError(f"{quote or 'a bracket'} is not closed")
    return [*words, word] if word else words


def read_value(text: str, schema: Schema | None) -> Any:
    """Give what the text stands for: one JSON value, or an object made of `key=value` pairs; nothing is None.

    The value of a pair is JSON if it can be read as that, else text; where the schema wants text it is text.

    Raises:
        ValueError: It is neither.
    """
    text = text.strip()
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if text[0] in '{["' or "=" not in text:
            reason = str(error)
            raise ValueError(f"it is not JSON ({reason[:1].lower()}{reason[1:]})") from None
    pairs = {}
    for word in words_of(text):
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise ValueError(f"{word!r} is no `key=value`")
        field = schema.get(key) if schema else None
        pairs[key] = _read_one(value, field.type if field else None)
    return pairs


def _read_one(text: str, wanted: Type | None) -> Any:
    if len(text) > 1 and text[0] == text[-1] == "'":
        text, is_quoted = text[1:-1], True
    else:
        is_quoted = text.startswith('"')
    if wanted is not None and wanted.kind == "str" and not is_quoted:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def snippet(schema: Schema) -> str:
    """An object with all fields that are needed, to be filled in: `{"sku": "", "quantity": 0}`."""
    return _as_json({field.name: _example(field.type) for field in schema.fields if field.required})


def field_words(schema: Schema, line: str, text: str) -> list[str]:
    """The names of fields that begin so and are not in the line yet, as they are written there."""
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
    """JSON in one line if it fits into the width, else over several."""
    line = _as_json(value)
    return line if len(line) <= width else msgspec.json.format(line.encode(), indent=2).decode()


def describe_fields(schema: Schema | None) -> str:
    """A schema in the few words of a table."""
    return "" if schema is None else ", ".join(_describe(field) for field in schema.fields)


def _describe(field: Field) -> str:
    return f"{field.name}{'' if field.required else '?'}: {field.type}"
