"""Templates like those of Mustache. Every value is escaped without exception, so that no text of a session becomes markup.

    {{name}}                    the value, escaped; None is nothing
    {{#name}} ... {{/name}}     once for each item of a list, or for the one value that is not None;
                                inside, the keys of a mapping are names, and another value is {{.}}
    {{?name}} ... {{/name}}     when the value is true (not empty, not 0)
    {{^name}} ... {{/name}}     when it is not
    {{>file}}                   another file as it is
    {{! words }}                a comment

Indentation and line ends of a template are removed, so that it can be laid out freely.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from graphbus_core.cli.console import sanitize

Value = str | int | float | Mapping[str, "Value"] | Sequence["Value"] | None
Values = Mapping[str, Value]

_TAG = re.compile(r"\{\{([#?^/>]?)([\w.]+)\}\}")
_COMMENT = re.compile(r"\{\{!.*?\}\}", re.DOTALL)


class TemplateTag(NamedTuple):
    """A tag in a template: `mark` is its kind, `body` the parts between a section and its end."""

    mark: str
    name: str
    body: tuple[str | TemplateTag, ...] = ()


def fill_template(path: Path, values: Values) -> str:
    """Return the text of a template, filled with values.

    Raises:
        KeyError: The template names a value that is not given.
        ValueError: A section is not closed, or closed under another name.
    """
    lines = _COMMENT.sub("", path.read_text(encoding="utf-8")).splitlines()
    pieces = iter(_TAG.split("".join(line.strip() for line in lines)))
    return "".join(_fill(tuple(_parts(pieces, path.parent, "")), values))


def _parts(pieces: Iterator[str], folder: Path, section: str) -> Iterator[str | TemplateTag]:
    """Yield the parts of a section; `pieces` alternate text, mark and name."""
    for text in pieces:
        yield text
        mark, name = next(pieces, "/"), next(pieces, "")
        if mark == "/":
            if name != section:
                raise ValueError(f"section {section!r} of the template ends with {name!r}")
            return
        if mark == ">":
            yield (folder / name).read_text(encoding="utf-8")
        else:
            yield TemplateTag(mark, name, tuple(_parts(pieces, folder, name)) if mark else ())


def _fill(parts: Sequence[str | TemplateTag], values: Values) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif not part.mark:
            yield _escaped(values[part.name])
        elif part.mark == "#":
            for item in _items(values[part.name]):
                yield from _fill(part.body, {**values, **(item if isinstance(item, Mapping) else {".": item})})
        elif bool(values[part.name]) is (part.mark == "?"):
            yield from _fill(part.body, values)


def _items(value: Value) -> Sequence[Value]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    return [] if value is None else [value]


def _escaped(value: Value) -> str:
    return "" if value is None else escape(sanitize(str(value)))
