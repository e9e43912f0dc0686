"""TOML from data: texts, numbers, truth values, lists of them, and tables; in the order of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from json import dumps

Value = str | int | float | bool | Sequence[str]
Table = Mapping[str, "Value | Table"]


def render_toml(table: Table) -> str:
    """Give a document as text; keys are bare, i.e. made of letters, digits, `_` and `-`."""
    return "\n".join(_lines(table, ())).lstrip("\n") + "\n"


def _lines(table: Table, names: tuple[str, ...]) -> Iterator[str]:
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if names and values:
        yield ""
        yield f"[{'.'.join(names)}]"
    yield from (f"{key} = {_value(value)}" for key, value in values.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines(value, (*names, key))


def _value(value: Value) -> str:
    """As JSON has it, whose escapes TOML knows; the sign that only TOML refuses is escaped besides."""
    if isinstance(value, str):
        return dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return dumps(value)
    return f"[{', '.join(map(_value, value))}]"
