"""Fills the templates in `templates/`, which look like the generated files with placeholders for values.

    @name@                 a value. After `key: ` or `- ` it is quoted if YAML needs that; elsewhere it is inserted as it is.
                           For a tuple, the line is repeated for each item.
    @if name, @if not name, @end      lines that are written only if the value is true, or false

A value of several lines must stand alone in its line, so that no value can break out of a comment or a command; its lines get the
indentation of the placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from graphbus_core.deploy.yaml import format_scalar

Files = Mapping[str, str | bytes]
"""Relative path with `/` -> content."""

_HOLE = re.compile(r"@([a-z_]+)@")
_VALUE = re.compile(r"( *(?:- |(?:- )?[\w./-]+: ))@([a-z_]+)@( +#.*|)")


def fill_template(template: str, **values: object) -> str:
    """Return the text of a template with its placeholders filled.

    Args:
        template: The file name of the template.
        values: Placeholder -> value.

    Raises:
        KeyError: A placeholder has no value.
        ValueError: A value of several lines stands in the middle of a line.
    """
    text = (files("graphbus_core.deploy") / "templates" / template).read_text(encoding="utf-8")
    lines: list[str] = []
    conditions = [True]  # of the open `@if` lines
    for line in text.splitlines():
        word, _, name = line.partition(" ")
        if word == "@if":
            conditions.append(bool(values[name.removeprefix("not ")]) != name.startswith("not "))
        elif word == "@end":
            conditions.pop()
        elif all(conditions):
            lines += _fill_line(line, values)
    return "".join(f"{line}\n" for line in lines)


def _fill_line(line: str, values: Mapping[str, object]) -> list[str]:
    """Return the lines that a line of a template becomes: several for a tuple or a text of lines, none for an empty text."""
    for name in _HOLE.findall(line):
        items = values[name]
        if isinstance(items, tuple):
            return [each for item in items for each in _fill_line(line, {**values, name: item})]
    if whole := _VALUE.fullmatch(line):
        return [f"{whole[1]}{format_scalar(values[whole[2]])}{_insert(whole[3], values)}"]
    first, *rest = _insert(line, values).split("\n")
    is_alone = _HOLE.fullmatch(line.strip())
    if rest and not is_alone:
        raise ValueError(f"several lines in the middle of {line!r}")
    if is_alone and not first.strip():
        return []
    indent = " " * (len(line) - len(line.lstrip()))
    return [first, *(f"{indent}{each}" if each else "" for each in rest)]


def _insert(text: str, values: Mapping[str, object]) -> str:
    return _HOLE.sub(lambda hole: str(values[hole[1]]).removesuffix("\n"), text)
