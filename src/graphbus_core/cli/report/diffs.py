"""Differences of files as a page shows them: hunks of runs, old and new side by side, with the changed part of a line marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from graphbus_core.cli.report.template import Values
from graphbus_core.model.proposals import CodeChange, ProposalRecord

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@(.*)")
_Sign = Literal[" ", "+", "-"]
_SIGNS: dict[str, _Sign] = {" ": " ", "": " ", "+": "+", "-": "-"}


class Line(NamedTuple):
    """One line of a hunk with its numbers in the old and the new file; 0 where it is not in that file."""

    sign: _Sign
    old: int
    new: int
    text: str


class Hunk(NamedTuple):
    """Lines that belong together; `heading` is what stands behind the second `@@`, `ends` what follows a backslash."""

    heading: str
    lines: list[Line]
    ends: list[str]


class FileDiff(NamedTuple):
    """The difference of one file; `note` says what the numbers of its lines count from, if that is not the file."""

    path: str
    hunks: tuple[Hunk, ...]
    note: str = ""

    def count_lines(self, sign: _Sign) -> int:
        """Count the lines with this sign."""
        return sum(line.sign == sign for hunk in self.hunks for line in hunk.lines)


def diffs_of(record: ProposalRecord) -> tuple[FileDiff, ...]:
    """Give what was committed, or what the changes would do to the text that they were written for."""
    if record.commit and record.commit.resolution:
        return tuple(FileDiff(path, read_diff(text)) for path, text in sorted(record.commit.resolution.items()))
    return tuple(_proposed(change) for change in record.proposal.code_changes)


def _proposed(change: CodeChange) -> FileDiff:
    from graphbus_core.editing.edits import unified_diff

    old, new = (
        (f"{code}\n" if code and not code.endswith("\n") else code).encode(errors="replace")
        for code in (change.old_code, change.new_code)
    )
    text = unified_diff("file", old, new) if old != new else change.diff
    where = f"in {change.target}" if change.target else "in the module"
    return FileDiff(change.file_path, read_diff(text), f"{change.operation.replace('_', ' ')} {where}")


def read_diff(text: str) -> tuple[Hunk, ...]:
    """Read a unified diff of one file; lines outside of hunks are ignored."""
    found: list[Hunk] = []
    old = new = 0
    for line in text.removesuffix("\n").split("\n"):
        start = _HUNK.fullmatch(line)
        sign = _SIGNS.get(line[:1])
        if start:
            old, new = int(start[1]), int(start[2])
            found.append(Hunk(start[3].strip(), [], []))
        elif found and line.startswith("\\"):
            found[-1].ends.append(line[1:].strip())
        elif found and sign:
            found[-1].lines.append(Line(sign, 0 if sign == "+" else old, 0 if sign == "-" else new, line[1:]))
            old, new = old + (sign != "+"), new + (sign != "-")
    return tuple(found)


def diff_values(diff: FileDiff) -> Values:
    """Give the values of the template for the difference of one file."""
    return {
        "path": diff.path,
        "added": diff.count_lines("+"),
        "removed": diff.count_lines("-"),
        "note": diff.note,
        "hunks": [
            {"heading": hunk.heading or ("⋯" if index else ""), "runs": _runs(hunk), "ends": hunk.ends}
            for index, hunk in enumerate(diff.hunks)
        ],
    }


def _runs(hunk: Hunk) -> list[Values]:
    """Give the lines by turns: those that are the same, and those that have gone with those that have come for them."""
    runs: list[Values] = []
    for is_same, group in groupby(hunk.lines, key=lambda line: line.sign == " "):
        lines = list(group)
        if is_same:
            runs.append({"same": [line._asdict() for line in lines], "gone": [], "came": []})
        else:
            gone, came = ([line for line in lines if line.sign == sign] for sign in "-+")
            runs.append({"same": [], "gone": _marked(gone, came), "came": _marked(came, gone)})
    return runs


def _marked(lines: Sequence[Line], others: Sequence[Line]) -> list[Values]:
    """Mark in each line what differs from the line that it faces, if there are as many on the other side."""
    facing = others if len(lines) == len(others) else lines
    return [
        {**line._asdict(), **dict(zip(("text", "mark", "rest"), split_at_change(line.text, other.text), strict=True))}
        for line, other in zip(lines, facing, strict=True)
    ]


def split_at_change(text: str, other: str) -> tuple[str, str, str]:
    """Split a line into what is before, in and behind the change; all is before it where a mark would not help."""
    shorter = min(len(text), len(other))
    head = next((index for index in range(shorter) if text[index] != other[index]), shorter)
    tail = next((index for index in range(shorter - head) if text[-1 - index] != other[-1 - index]), shorter - head)
    end = len(text) - tail
    is_alike = 2 * (head + tail) >= shorter and (text[:head] + text[end:]).strip()
    return (text[:head], text[head:end], text[end:]) if is_alike else (text, "", "")
