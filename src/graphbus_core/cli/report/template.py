"""Templates like those of Mustache. Every value is escaped, so that no text of a session becomes markup.

    {{name}}                    the value, escaped; nothing for None
    {{#name}} ... {{/name}}     once for each item of a list, or for the one value that is not None;
                                inside, the keys of a mapping are names, and another value is {{.}}
    {{?name}} ... {{/name}}     if the value is true (not empty, not 0)
    {{^name}} ... {{/name}}     if it is false
    {{>file}}                   the text of another file, unchanged; the path is relative to the template
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

_TAG = re.compile(r"\{\{([#?^/>]?)([\w./]+)\}\}")
_COMMENT = re.compile(r"\{\{!.*?\}\}", re.DOTALL)


class TemplateTag(NamedTuple):
    """A tag in a template: `mark` is its first character (empty for a value), `body` the parts of a section."""

    mark: str
    name: str
    body: tuple[str | TemplateTag, ...] = ()


def fill_template(path: Path, values: Values) -> str:
    """Return the text of a template, filled with values.

    Raises:
        KeyError: The template names a value that is missing in `values`.
        ValueError: A section is not closed, or closed under another name.
    """
    lines = _COMMENT.sub("", path.read_text(encoding="utf-8")).splitlines()
    pieces = iter(_TAG.split("".join(line.strip() for line in lines)))
    return "".join(_fill_parts(tuple(_parse_parts(pieces, path.parent, "")), values))


def _parse_parts(pieces: Iterator[str], folder: Path, section: str) -> Iterator[str | TemplateTag]:
    """Yield the texts and tags of a section, up to its end; `pieces` repeats text, mark and name."""
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
            yield TemplateTag(mark, name, tuple(_parse_parts(pieces, folder, name)) if mark else ())


def _fill_parts(parts: Sequence[str | TemplateTag], values: Values) -> Iterator[str]:
    """Yield the text of the parts, with values filled in and sections repeated or left out."""
    for part in parts:
        if isinstance(part, str):
            yield part
        elif not part.mark:
            yield _escape_value(values[part.name])
        elif part.mark == "#":
            for item in _as_items(values[part.name]):
                yield from _fill_parts(part.body, {**values, **(item if isinstance(item, Mapping) else {".": item})})
        elif bool(values[part.name]) is (part.mark == "?"):
            yield from _fill_parts(part.body, values)


def _as_items(value: Value) -> Sequence[Value]:
    """Return the items of a list, no item for None, and any other value as the only item."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    return [] if value is None else [value]


def _escape_value(value: Value) -> str:
    return "" if value is None else escape(sanitize(str(value)))
