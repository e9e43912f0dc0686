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

_PLACEHOLDER = re.compile(r"@([a-z_]+)@")
_YAML_VALUE = re.compile(r"( *(?:- |(?:- )?[\w./-]+: ))@([a-z_]+)@( +#.*|)")


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
    """Return the lines that replace a line of a template: one, or several if a value is a tuple or has several lines.

    A line that consists of a placeholder with an empty value is left out. Raise ValueError as `fill_template` does.
    """
    for name in _PLACEHOLDER.findall(line):
        items = values[name]
        if isinstance(items, tuple):
            return [each for item in items for each in _fill_line(line, {**values, name: item})]
    if entry := _YAML_VALUE.fullmatch(line):  # the part before the value, its placeholder, and a comment
        return [f"{entry[1]}{format_scalar(values[entry[2]])}{_insert_values(entry[3], values)}"]
    first, *rest = _insert_values(line, values).split("\n")
    is_alone = _PLACEHOLDER.fullmatch(line.strip())
    if rest and not is_alone:
        raise ValueError(f"several lines in the middle of {line!r}")
    if is_alone and not first.strip():
        return []
    indent = " " * (len(line) - len(line.lstrip()))
    return [first, *(f"{indent}{each}" if each else "" for each in rest)]


def _insert_values(text: str, values: Mapping[str, object]) -> str:
    """Return the text with each placeholder replaced by its value as it is, without a newline at the end of the value."""
    return _PLACEHOLDER.sub(lambda match: str(values[match[1]]).removesuffix("\n"), text)
