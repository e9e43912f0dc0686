"""Differences of files, to be read side by side where there is room and as one column where there is none.

One grid per file. Each run of lines is two cells, old and new: next to each other, or in one column below each other and without
the copy of what has not changed. Added and removed lines bear their sign as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from graphbus_core.cli.report.markup import Child, Markup, element
from graphbus_core.model.proposals import CodeChange, ProposalRecord

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@(.*)")
_Sign = Literal[" ", "+", "-"]
_SIGNS: dict[str, _Sign] = {" ": " ", "": " ", "+": "+", "-": "-"}


class Line(NamedTuple):
    """One line of a hunk; of the two numbers the one of a side where it is not is 0."""

    sign: _Sign
    old: int
    new: int
    text: str


class Hunk(NamedTuple):
    """Lines that belong together; `heading` is what stands behind the second `@@`."""

    heading: str
    lines: tuple[Line, ...]
    ends: tuple[str, ...] = ()


class FileDiff(NamedTuple):
    """The difference of one file; `note` says what the numbers of its lines count from, if that is not the file."""

    path: str
    hunks: tuple[Hunk, ...]
    note: str = ""

    def count(self, sign: _Sign) -> int:
        """Give the number of lines with this sign."""
        return sum(line.sign == sign for hunk in self.hunks for line in hunk.lines)


def diffs_of(record: ProposalRecord) -> tuple[FileDiff, ...]:
    """Give what was committed, or what the changes would do to the text that they were written for."""
    if record.commit and record.commit.resolution:
        return tuple(FileDiff(path, read_diff(text)) for path, text in sorted(record.commit.resolution.items()))
    return tuple(_proposed(change) for change in record.proposal.code_changes)


def _proposed(change: CodeChange) -> FileDiff:
    from graphbus_core.editing.edits import unified_diff

    old, new = (
        f"{code}\n" if code and not code.endswith("\n") else code for code in (change.old_code, change.new_code)
    )
    text = (
        unified_diff("file", old.encode(errors="replace"), new.encode(errors="replace")) if old != new else change.diff
    )
    where = f"in {change.target}" if change.target else "in the module"
    return FileDiff(change.file_path, read_diff(text), f"{change.operation.replace('_', ' ')} {where}")


def read_diff(text: str) -> tuple[Hunk, ...]:
    """Read a unified diff of one file. What does not belong to a hunk is passed over."""
    found: list[tuple[str, list[Line], list[str]]] = []
    old = new = 0
    for line in text.removesuffix("\n").split("\n"):
        start = _HUNK.fullmatch(line)
        sign = _SIGNS.get(line[:1])
        if start:
            old, new = int(start[1]), int(start[2])
            found.append((start[3].strip(), [], []))
        elif found and line.startswith("\\"):
            found[-1][2].append(line[1:].strip())
        elif found and sign:
            found[-1][1].append(Line(sign, 0 if sign == "+" else old, 0 if sign == "-" else new, line[1:]))
            old, new = old + (sign != "+"), new + (sign != "-")
    return tuple(Hunk(heading, tuple(lines), tuple(ends)) for heading, lines, ends in found)


def show_diff(diff: FileDiff) -> Markup:
    """Give the difference of one file as a figure."""
    counts = element(
        "span",
        element("ins", f"+{diff.count('+')}"),
        " ",
        element("del", f"−{diff.count('-')}"),
        class_="counts",
    )
    note = element("span", diff.note, class_="quiet") if diff.note else None
    caption = element("figcaption", element("code", diff.path), " ", counts, " ", note)
    if not diff.hunks:
        return element("figure", caption, element("p", "No text changes.", class_="quiet"), class_="change")
    grid = element("div", [_cells(hunk, is_first=not index) for index, hunk in enumerate(diff.hunks)], class_="diff")
    box = element("div", grid, class_="scroll", role="region", tabindex=0, aria_label=f"Difference of {diff.path}")
    return element("figure", caption, box, class_="change")


def _cells(hunk: Hunk, *, is_first: bool) -> Iterator[Markup]:
    if not is_first or hunk.heading:
        yield element("p", hunk.heading or "⋯", class_="skip")
    for is_same, group in groupby(hunk.lines, key=lambda line: line.sign == " "):
        lines = list(group)
        if is_same:
            yield element("div", [_line(line, line.old) for line in lines], class_="old same")
            yield element("div", [_line(line, line.new) for line in lines], class_="new same", aria_hidden="true")
        else:
            yield from _changed(
                [line for line in lines if line.sign == "-"], [line for line in lines if line.sign == "+"]
            )
    yield from (element("p", end, class_="skip") for end in hunk.ends)


def _changed(gone: Sequence[Line], came: Sequence[Line]) -> Iterator[Markup]:
    pairs = [_marked(old.text, new.text) for old, new in zip(gone, came, strict=True)] if len(gone) == len(came) else []
    olds = [pair[0] for pair in pairs] or [line.text for line in gone]
    news = [pair[1] for pair in pairs] or [line.text for line in came]
    yield element("div", [_line(line, line.old, text) for line, text in zip(gone, olds, strict=True)], class_="old")
    yield element("div", [_line(line, line.new, text) for line, text in zip(came, news, strict=True)], class_="new")


def _line(line: Line, number: int, text: Child = None) -> Markup:
    name = {" ": "span", "+": "ins", "-": "del"}[line.sign]
    sign = {" ": " ", "+": "+", "-": "−"}[line.sign]
    return element(name, element("b", number), element("i", sign), line.text if text is None else text, class_="l")


def _marked(old: str, new: str) -> tuple[Child, Child]:
    """Mark what differs between two lines, when enough of them is the same for that to help."""
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    if 2 * (head + tail) < shorter or not old[:head].strip() + old[len(old) - tail :].strip():
        return old, new
    return _with_mark(old, head, tail), _with_mark(new, head, tail)


def _with_mark(text: str, head: int, tail: int) -> Child:
    end = len(text) - tail
    return (text[:head], element("mark", text[head:end]) if end > head else None, text[end:])
