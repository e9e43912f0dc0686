"""A unified diff that somebody else made, as edits by content: what a hunk says of line numbers and counts is not believed.

@@ anything @@          its context and removed lines: old_code
 context                its context and added lines: new_code
-removed
+added
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from graphbus_core.editing.text.source_text import parse, with_lf
from graphbus_core.errors import EditError, Place
from graphbus_core.model.proposals import CodeChange

TextOf = Callable[[str], str]
"""Relative path -> the text of the file that the diff was made for."""

_COUNTS = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_HAS_NO_NEWLINE = "\\"
_ODD_HEADERS = {
    "new file mode": "it makes a new file",
    "deleted file mode": "it deletes a file",
    "old mode": "it changes the mode of a file",
    "new mode": "it changes the mode of a file",
    "rename from": "it renames a file",
    "copy from": "it copies a file",
    "GIT binary patch": "it changes a binary file",
    "Binary files": "it changes a binary file",
}


class Hunk(NamedTuple):
    """One hunk: the lines that it expects, and those that shall be there instead."""

    old: tuple[str, ...]
    new: tuple[str, ...]


class _Found(NamedTuple):
    """A hunk at its one place: the lines `first` to `last` (from 0, end exclusive) of the text before all hunks."""

    first: int
    last: int
    new: tuple[str, ...]


def changes_of_diff(diff: str, text_of: TextOf) -> tuple[CodeChange, ...]:
    """Turn a unified diff of existing files into `search_replace` edits, each with an `old_code` that occurs once.

    The edits of a file are one for each hunk, in the order of the text, or a single one when the file would not parse between
    two of them. Whole lines must be equal, but for their line ends; nothing that is merely similar is accepted.

    Raises:
        EditError: GBE316, it is no diff of existing text files; GBE307 or GBE308, the lines of a hunk are not in the file, or
            more than once. What `text_of` raises goes up.
    """
    changes: list[CodeChange] = []
    for path, hunks in files_of_diff(diff).items():
        changes += _changes_of_file(path, hunks, with_lf(text_of(path)))
    if not changes:
        raise _unreadable("it changes nothing")
    return tuple(changes)


def files_of_diff(diff: str) -> dict[str, list[Hunk]]:
    """Give the hunks of each file, by its path without `a/` and `b/`.

    Raises:
        EditError: GBE316.
    """
    return _Reader(diff.replace("\r\n", "\n").split("\n")).read()


def _unreadable(reason: str, path: str = "") -> EditError:
    return EditError("GBE316", where=Place(path) if path else None, reason=reason)


class _Reader:
    """Goes through the lines of a diff."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._at = 0
        self._files: dict[str, list[Hunk]] = {}

    def read(self) -> dict[str, list[Hunk]]:
        path = ""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if self._is_header(self._at):
                path = _path(line, self._lines[self._at + 1])
                self._at += 2
            elif line.startswith("@@"):
                self._take_hunk(path)
            else:
                odd = next((reason for begin, reason in _ODD_HEADERS.items() if line.startswith(begin)), "")
                if odd:
                    raise _unreadable(odd, path)
                self._at += 1
        return self._files

    def _is_header(self, at: int) -> bool:
        following = [*self._lines[at : at + 3], "", "", ""]
        return following[0].startswith("--- ") and following[1].startswith("+++ ") and following[2].startswith("@@")

    def _take_hunk(self, path: str) -> None:
        if not path:
            raise _unreadable("a hunk comes before the name of its file")
        counts = _COUNTS.match(self._lines[self._at])
        self._at += 1
        body = list(self._body(counts))
        while body and not body[-1]:
            body.pop()
        old = tuple(line[1:] for line in body if line[:1] != "+")
        new = tuple(line[1:] for line in body if line[:1] != "-")
        if not any(line.strip() for line in old):
            raise _unreadable("a hunk has no line of the text that is there", path)
        if old != new:
            self._files.setdefault(path, []).append(Hunk(old, new))

    def _body(self, counts: re.Match[str] | None) -> Iterator[str]:
        """The lines of a hunk; one that is empty for want of its blank is a blank line, except at the end."""
        left = [int(number or 1) for number in counts.groups()] if counts else [0, 0]
        while self._at < len(self._lines):
            line = self._lines[self._at]
            is_owed = left[0] > 0 or left[1] > 0
            if line[:1] not in {" ", "+", "-", _HAS_NO_NEWLINE, ""} or self._is_header(self._at):
                return
            self._at += 1
            if line[:1] != _HAS_NO_NEWLINE:
                left[0] -= line[:1] != "+"
                left[1] -= line[:1] != "-"
                yield line if line or not is_owed else " "


def _path(old: str, new: str) -> str:
    before, after = (line[4:].partition("\t")[0].rstrip() for line in (old, new))
    if before == "/dev/null":
        raise _unreadable("it makes a new file", after)
    if after == "/dev/null":
        raise _unreadable("it deletes a file", before)
    if before.startswith("a/") and after.startswith("b/"):
        before, after = before[2:], after[2:]
    if before != after:
        raise _unreadable(f"it renames {before} to {after}", before)
    if not after or after.startswith('"'):
        raise _unreadable("the name of a file cannot be read")
    return after


def _changes_of_file(path: str, hunks: list[Hunk], text: str) -> list[CodeChange]:
    lines = text.split("\n")
    places = sorted(_find(path, hunk, lines) for hunk in hunks)
    for one, other in pairwise(places):
        if other.first < one.last:
            raise _unreadable("two of its hunks change the same lines", path)
    if not _stand_alone(lines, places):
        places = [_joined(lines, places)]
    return [_change(path, lines, place) for place in places]


def _find(path: str, hunk: Hunk, lines: list[str]) -> _Found:
    wanted, count = list(hunk.old), len(hunk.old)
    starts = [at for at in range(len(lines) - count + 1) if lines[at : at + count] == wanted]
    if len(starts) == 1:
        return _Found(starts[0], starts[0] + count, hunk.new)
    if starts:
        shown = ", ".join(str(start + 1) for start in starts)
        raise EditError("GBE308", where=Place(path, starts[0] + 1), target="the module", count=len(starts), lines=shown)
    first = next(line.strip() for line in wanted if line.strip())
    nearest = f"The hunk with {first!r} was made for other text."
    raise EditError("GBE307", where=Place(path), target="the module", nearest=nearest)


def _stand_alone(lines: list[str], places: list[_Found]) -> bool:
    """Tell whether the file parses after each hunk, and the next one still occurs once."""
    text = "\n".join(lines)
    for place, following in pairwise(places):
        change = _change("", lines, place)
        text = text.replace(change.old_code, change.new_code, 1)
        is_clear = text.count(_change("", lines, following).old_code) == 1
        if not is_clear or not _parses(text):
            return False
    return True


def _parses(text: str) -> bool:
    try:
        parse(text)
    except SyntaxError:
        return False
    return True


def _joined(lines: list[str], places: list[_Found]) -> _Found:
    """All hunks and the lines between them as one."""
    new: list[str] = []
    at = places[0].first
    for place in places:
        new += [*lines[at : place.first], *place.new]
        at = place.last
    return _Found(places[0].first, at, tuple(new))


def _change(path: str, lines: list[str], place: _Found) -> CodeChange:
    """Quote whole lines with the line ends around them, so that no part of a longer line can match."""
    before = "\n" if place.first else ""
    after = "\n" if place.last < len(lines) else ""
    old = before + "\n".join(lines[place.first : place.last]) + after
    new = before + "\n".join([*place.new, ""] if after and place.new else place.new)
    return CodeChange(
        file_path=path, target="", change_type="modify", operation="search_replace", old_code=old, new_code=new
    )
