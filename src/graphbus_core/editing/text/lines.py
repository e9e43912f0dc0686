"""A text as its lines, and the 3-way merge of lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from graphbus_core.editing.text.source_text import SourceText

_NEWLINE = re.compile(r"\r\n|\r|\n")


class Conflict(NamedTuple):
    """What both sides changed in different ways.

    Attributes:
        symbol: Where, by qualified name; empty outside of symbols or when it is not known.
        ours: The text of the one side.
        theirs: The text of the other.
    """

    symbol: str
    ours: str
    theirs: str


class Layout(NamedTuple):
    """A text as lines without their ends.

    Attributes:
        newline: The one line end of the text, `""` when the lines bear their own; None when there is more than one kind.
        is_ended: The last line has a line end.
    """

    lines: list[str]
    newline: str | None
    is_ended: bool

    @property
    def text(self) -> str:
        """The lines put together."""
        newline = self.newline or ""
        text = newline.join(self.lines)
        if self.is_ended:
            return text + newline if self.lines else text
        return text if newline else text.removesuffix("\n").removesuffix("\r")


def layout_of(source: SourceText) -> Layout:
    """Take a text apart at its line ends; its `newline` is None when they are of more than one kind."""
    kinds = set(_NEWLINE.findall(source.text))
    newline = kinds.pop() if len(kinds) == 1 else "\n"
    if kinds:
        return Layout([], None, True)
    found = source.text.split(newline)
    is_ended = not found[-1]
    return Layout(found[:-1] if is_ended else found, newline, is_ended or not source.text)


def verbatim(source: SourceText) -> Layout:
    """Take a text apart into lines that bear their own ends; the last one gets an LF if it has none."""
    ends = [0, *(match.end() for match in _NEWLINE.finditer(source.text)), len(source.text)]
    found = [source.text[start:end] for start, end in pairwise(ends) if end > start]
    is_ended = not found or found[-1].endswith(("\n", "\r"))
    if not is_ended:
        found[-1] += "\n"
    return Layout(found, "", is_ended)


class _Region(NamedTuple):
    """A piece of the base and what the sides have made of it."""

    base: list[str]
    ours: list[str]
    theirs: list[str]


def merge_lines(
    base: list[str], ours: list[str], theirs: list[str], symbol: str = ""
) -> list[str] | tuple[Conflict, ...]:
    """Merge two changes of a text line by line; give the lines, or what contradicts each other."""
    merged: list[str] = []
    conflicts: list[Conflict] = []
    for region in _regions(base, ours, theirs):
        if region.ours in (region.base, region.theirs):
            merged += region.theirs
        elif region.theirs == region.base:
            merged += region.ours
        else:
            conflicts.append(Conflict("", "\n".join(region.ours), "\n".join(region.theirs)))
    return tuple(conflicts) or merged


def _regions(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[_Region]:
    """Give the text piece by piece: what all three share, and what lies between."""
    at, ours_at, theirs_at = 0, 0, 0
    for start, ours_start, theirs_start, size in _shared(base, ours, theirs):
        if (start, ours_start, theirs_start) != (at, ours_at, theirs_at):
            yield _Region(base[at:start], ours[ours_at:ours_start], theirs[theirs_at:theirs_start])
        at, ours_at, theirs_at = start + size, ours_start + size, theirs_start + size
        same = base[start:at]
        yield _Region(same, same, same)


def _shared(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Give the runs of lines that all three have: where in each, and how long; at last an empty one at the end."""
    one, other = _matches(base, ours), _matches(base, theirs)
    left, right = next(one, None), next(other, None)
    while left and right:
        start, end = max(left[0], right[0]), min(left[0] + left[2], right[0] + right[2])
        if start < end:
            yield start, left[1] + start - left[0], right[1] + start - right[0], end - start
        if left[0] + left[2] < right[0] + right[2]:
            left = next(one, None)
        else:
            right = next(other, None)
    yield len(base), len(ours), len(theirs), 0


def _matches(base: list[str], other: list[str]) -> Iterator[tuple[int, int, int]]:
    from difflib import SequenceMatcher

    for match in SequenceMatcher(None, base, other, autojunk=False).get_matching_blocks():
        yield match.a, match.b, match.size
