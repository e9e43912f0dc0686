"""Files from templates: `templates/` holds each file as it is written, with holes for what differs from project to project.

    @name@                 a value. Behind `key: ` or `- ` of YAML it is quoted if YAML needs that; elsewhere it stands as it is.
                           For a tuple, the line is repeated for each item.
    @if name, @if not name, @end      lines that are written only then

A text of several lines is taken only by a line that has nothing but its hole, so that no value can leave its comment or its
command; each line of it gets the indentation of the hole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from graphbus_core.deploy.yaml import format_scalar

Files = Mapping[str, str | bytes]
"""Path, relative and with `/` -> content."""

_HOLE = re.compile(r"@([a-z_]+)@")
_VALUE = re.compile(r"( *(?:- |(?:- )?[\w./-]+: ))@([a-z_]+)@( +#.*|)")


def fill_template(template: str, **values: object) -> str:
    """Return the text of a template with its holes filled.

    Raises:
        KeyError: A hole without a value.
        ValueError: A text of several lines in the middle of a line.
    """
    text = (files("graphbus_core.deploy") / "templates" / template).read_text(encoding="utf-8")
    lines: list[str] = []
    shown = [True]
    for line in text.splitlines():
        word, _, name = line.partition(" ")
        if word == "@if":
            shown.append(bool(values[name.removeprefix("not ")]) != name.startswith("not "))
        elif word == "@end":
            shown.pop()
        elif all(shown):
            lines += _fill_line(line, values)
    return "".join(f"{line}\n" for line in lines)


def _fill_line(line: str, values: Mapping[str, object]) -> list[str]:
    for name in _HOLE.findall(line):
        items = values[name]
        if isinstance(items, tuple):
            return [each for item in items for each in _fill_line(line, {**values, name: item})]
    if whole := _VALUE.fullmatch(line):
        return [f"{whole[1]}{format_scalar(values[whole[2]])}{_put_in(whole[3], values)}"]
    first, *rest = _put_in(line, values).split("\n")
    is_alone = _HOLE.fullmatch(line.strip())
    if rest and not is_alone:
        raise ValueError(f"several lines in the middle of {line!r}")
    if is_alone and not first.strip():
        return []
    indent = " " * (len(line) - len(line.lstrip()))
    return [first, *(f"{indent}{each}" if each else "" for each in rest)]


def _put_in(text: str, values: Mapping[str, object]) -> str:
    return _HOLE.sub(lambda hole: str(values[hole[1]]).removesuffix("\n"), text)
