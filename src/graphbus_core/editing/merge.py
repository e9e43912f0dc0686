"""Two changes of one file made one: a 3-way merge by symbols, then by lines. Pure; a conflict is data, never a marker.

      base
     /    \\
  ours    theirs        each symbol that only one side has changed is that side's; what both have changed is merged by lines
     \\    /
      merged            parses, or it is a conflict

Line ends, byte order mark and encoding are those of the files; a side that alone has changed them decides.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from graphbus_core.editing.text import blocks, lines
from graphbus_core.editing.text.source_text import SourceText, parse
from graphbus_core.errors import EditError

Kind = TypeVar("Kind")


class Merged(NamedTuple):
    """The merged bytes, or why there are none.

    Attributes:
        data: None after a conflict.
        conflicts: What both sides changed in different ways.
        reason: Why the merged text does not parse, if that is what is wrong.
    """

    data: bytes | None
    conflicts: tuple[lines.Conflict, ...] = ()
    reason: str = ""


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged:
    """Merge two changes of one file; the lines of `ours` come first where both add something at the same place.

    Raises:
        EditError: One of the three is no text in its encoding.
    """
    if theirs in (ours, base):
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    sides = [SourceText(data) for data in (base, ours, theirs)]
    encoding = pick(*(side.encoding for side in sides))
    layouts = [lines.layout_of(side) for side in sides]
    if any(layout.newline is None for layout in layouts):
        layouts = [lines.verbatim(side) for side in sides]
    was, mine, its = (layout.lines for layout in layouts)
    found = blocks.merge_blocks(was, mine, its) or lines.merge_lines(was, mine, its)
    if isinstance(found, tuple):
        return Merged(None, blocks.conflicts_of(was, mine, its) or found)
    newline, is_ended = pick(*(layout.newline for layout in layouts)), pick(*(layout.is_ended for layout in layouts))
    return _written(lines.Layout(found, newline, is_ended), encoding)


def pick(base: Kind, ours: Kind, theirs: Kind) -> Kind:
    """Give what one side alone has made of a value; `ours` when both have changed it."""
    return theirs if ours == base else ours


def _written(layout: lines.Layout, encoding: str) -> Merged:
    text = layout.text
    try:
        parse(text)
        merged = SourceText(text.encode(encoding))
    except SyntaxError as reason:
        return Merged(None, (), f"line {reason.lineno}: {reason.msg}")
    except (UnicodeError, EditError) as reason:
        return Merged(None, (), str(reason))
    if merged.text != text:
        return Merged(None, (), f"it would not be read as {encoding}")
    return Merged(merged.data)
