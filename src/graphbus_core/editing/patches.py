"""A patch that somebody else made, applied to bytes in memory: by content and in exactly one place, never by likeness.

Git's form and that of `diff -u`, with `a/` and `b/` or without, new, deleted and renamed files. Counts may be wrong; a line
number only chooses between places that are all equal to what the hunk expects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from graphbus_core.errors import EditError, Place

Read = Callable[[str], bytes | None]
"""Relative path -> bytes; None for what is no file of the project."""
Files = dict[str, tuple[bytes | None, bytes | None]]
"""Path -> bytes before and after; None: there is no such file."""

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NOWHERE = "/dev/null"
_NO_TIME = ("1970-01-01", "1969-12-31")
"""The date that `diff -N` gives to a file that is not there."""


class _Hunk(NamedTuple):
    """One hunk: where it says that it belongs (from 0), the lines that it expects, and those that shall be there instead."""

    number: int
    first: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    has_end: bool | None
    """Does the file end with a line end afterwards? None: as before."""


class _FilePatch(NamedTuple):
    """What a patch does to one file."""

    old: str
    new: str
    hunks: tuple[_Hunk, ...]


def apply_patch(patch: bytes, read: Read) -> Files:
    """Give what a patch makes of the files that it names; an empty one makes nothing.

    Raises:
        EditError: GBE341, a hunk does not apply; GBE342, this is no patch of text files.
    """
    files: Files = {}
    now: dict[str, bytes | None] = {}

    def present(path: str) -> bytes | None:
        return now[path] if path in now else read(path)

    for part in _Reader(_text(patch).replace("\r\n", "\n").split("\n")).read():
        for path, data in _applied(part, present).items():
            files[path] = (files[path][0] if path in files else read(path), data)
            now[path] = data
    if not files and patch.strip():
        raise _unreadable("it names no file")
    return files


def _unreadable(reason: str, path: str = "") -> EditError:
    return EditError("GBE342", where=Place(path) if path else None, reason=reason)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


# --- reading ----------------------------------------------------------------------------------


class _Reader:
    """Goes through the lines of a patch; what stands between its parts is talk."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = [*lines, "", "", ""]
        self._end = len(lines)
        self._at = 0

    def read(self) -> Iterator[_FilePatch]:
        git: dict[str, str] = {}
        while self._at < self._end:
            line = self._lines[self._at]
            if line.startswith("diff --git "):
                yield from _without_hunks(git)
                git = {"": line}
            elif self._is_header(self._at):
                yield self._file(git)
                git = {}
                continue
            elif line.startswith("@@"):
                raise _unreadable("a hunk comes before the name of its file")
            elif line.startswith(("GIT binary patch", "Binary files ")):
                raise _unreadable("it changes a binary file")
            else:
                _note(git, line)
            self._at += 1
        yield from _without_hunks(git)

    def _is_header(self, at: int) -> bool:
        first, second, third = self._lines[at : at + 3]
        return first.startswith("--- ") and second.startswith("+++ ") and (third.startswith("@@") or not third)

    def _file(self, git: Mapping[str, str]) -> _FilePatch:
        old, new = (_name(line[4:]) for line in self._lines[self._at : self._at + 2])
        self._at += 2
        hunks: list[_Hunk] = []
        while self._lines[self._at].startswith("@@"):
            hunks.append(self._hunk(len(hunks) + 1, new if new != _NOWHERE else old))
        return _FilePatch(git.get("rename from", old), git.get("rename to", new), tuple(hunks))

    def _hunk(self, number: int, path: str) -> _Hunk:
        counts = _HUNK.match(self._lines[self._at])
        if counts is None:
            raise _unreadable(f"hunk {number} has the odd head {self._lines[self._at]!r}", path)
        self._at += 1
        body = list(self._body([int(counts[2] or 1), int(counts[3] or 1)]))
        while body and not body[-1] and self._at >= self._end:
            body.pop()  # the end of the patch, and no blank line of the file
        body = [line or " " for line in body]
        old = tuple(line[1:] for line in body if line[0] in " -")
        new = tuple(line[1:] for line in body if line[0] in " +")
        ends = [body[at - 1][0] for at, line in enumerate(body) if at and line[0] == "\\"]
        return _Hunk(
            number, max(0, int(counts[1]) - 1), old, new, not any(end in " +" for end in ends) if ends else None
        )

    def _body(self, owed: list[int]) -> Iterator[str]:
        """The lines of a hunk; one that is empty for want of its blank is a blank line while lines are owed."""
        while self._at < self._end:
            line = self._lines[self._at]
            is_owed = owed[0] > 0 or owed[1] > 0
            if self._is_header(self._at) and not (owed[0] > 0 and owed[1] > 0):
                return
            if line[:1] not in {" ", "+", "-", "\\", ""} or (not is_owed and line in ("", "-- ")):
                return
            self._at += 1
            if line[:1] != "\\":
                owed[0] -= line[:1] != "+"
                owed[1] -= line[:1] != "-"
            yield line


def _note(git: dict[str, str], line: str) -> None:
    for key in ("rename from", "rename to", "new file mode", "deleted file mode", "copy from", "copy to"):
        if git and line.startswith(f"{key} "):
            git[key] = _name(line[len(key) + 1 :])


def _without_hunks(git: Mapping[str, str]) -> Iterator[_FilePatch]:
    """Files that git names without a hunk: renamed as they are, or empty."""
    if "rename to" in git:
        yield _FilePatch(git["rename from"], git["rename to"], ())
    elif "copy to" in git:
        raise _unreadable("it copies a file")
    elif "new file mode" in git or "deleted file mode" in git:
        name = git[""].rpartition(" b/")[2]
        yield _FilePatch(*((_NOWHERE, name) if "new file mode" in git else (name, _NOWHERE)), ())


def _name(text: str) -> str:
    name, _, stamp = text.partition("\t")
    if stamp.startswith(_NO_TIME):
        return _NOWHERE
    name = name.strip()
    if name.startswith('"') and name.endswith('"'):
        import codecs

        name = _text(codecs.escape_decode(name[1:-1].encode())[0])
    return name


# --- applying ---------------------------------------------------------------------------------


def _applied(part: _FilePatch, read: Read) -> dict[str, bytes | None]:
    old, new = _paths(part, read)
    before = read(old) if old != _NOWHERE else b""
    if old == _NOWHERE and read(new) is not None:
        raise EditError("GBE341", where=Place(new), number=1, path=new, reason="the file is there already", nearest="")
    if before is None:
        raise EditError(
            "GBE341",
            where=Place(old),
            number=1,
            path=old,
            reason="there is no such file",
            nearest="Is this its project?",
        )
    after = _patched(old if old != _NOWHERE else new, before, part.hunks)
    if new == _NOWHERE:
        if after:
            raise EditError(
                "GBE341",
                where=Place(old),
                number=len(part.hunks),
                path=old,
                reason="it deletes the file, which has more lines than the patch",
                nearest="",
            )
        return {old: None}
    return {new: after} if old in (new, _NOWHERE) else {old: None, new: after}


def _paths(part: _FilePatch, read: Read) -> tuple[str, str]:
    """Give both paths as the project has them: without `a/` and `b/`, and without the folders that `diff -r` compared."""
    old, new = part.old, part.new
    if (old == _NOWHERE or old.startswith("a/")) and (new == _NOWHERE or new.startswith("b/")):
        old, new = (name if name == _NOWHERE else name[2:] for name in (old, new))
    elif _NOWHERE not in (old, new) and old != new and read(old) is None:
        shorter, other = old.partition("/")[2], new.partition("/")[2]
        if shorter and shorter == other:
            old = new = shorter
    elif _NOWHERE in (old, new):
        old, new = _without_folder(old, new, read)
    if part.hunks and not part.hunks[0].old and old == new and read(old) is None:
        old = _NOWHERE  # `diff -N`
    if _NOWHERE not in (old, new) and old != new and read(old) is None and read(new) is not None:
        old = new  # `diff -u x.py.orig x.py`
    return old, new


def _without_folder(old: str, new: str, read: Read) -> tuple[str, str]:
    """`diff -rN old new` names the folders that it compared; a file that goes away tells by being there."""
    if new == _NOWHERE and read(old) is None and read(old.partition("/")[2]) is not None:
        return old.partition("/")[2], new
    return old, new


def _patched(path: str, data: bytes, hunks: tuple[_Hunk, ...]) -> bytes:
    text = _text(data)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    has_end = lines[-1] == ""
    lines = lines[:-1] if has_end else lines
    shift, reached = 0, 0
    result = list(lines)
    for hunk in sorted(hunks, key=lambda hunk: hunk.first):
        at = _place(path, hunk, lines)
        if at < reached:
            raise EditError(
                "GBE341",
                where=Place(path, at + 1),
                number=hunk.number,
                path=path,
                reason="it overlaps another",
                nearest="",
            )
        reached = at + len(hunk.old)
        result[at + shift : reached + shift] = hunk.new
        shift += len(hunk.new) - len(hunk.old)
        if hunk.has_end is not None:
            has_end = hunk.has_end
    if not lines and not data:
        has_end = all(hunk.has_end is not False for hunk in hunks)
    joined = newline.join(result) + (newline if has_end and result else "")
    return joined.encode("utf-8", errors="surrogateescape")


def _place(path: str, hunk: _Hunk, lines: list[str]) -> int:
    wanted, count = list(hunk.old), len(hunk.old)
    if not count:
        if not lines:
            return 0
        raise _refused(
            path, hunk, "it has no line of the text that is there, so its place is not known", "Make it with context."
        )
    starts = [at for at in range(len(lines) - count + 1) if lines[at : at + count] == wanted]
    if len(starts) == 1 or hunk.first in starts:
        return starts[0] if len(starts) == 1 else hunk.first
    if starts:
        places = ", ".join(str(start + 1) for start in starts)
        raise _refused(
            path,
            hunk,
            f"its lines are there {len(starts)} times, from the lines {places}",
            "Make it with more context.",
        )
    raise _refused(path, hunk, "its lines are not in the file", _nearest(wanted, lines))


def _refused(path: str, hunk: _Hunk, reason: str, nearest: str) -> EditError:
    where = Place(path, hunk.first + 1)
    return EditError("GBE341", where=where, number=hunk.number, path=path, reason=reason, nearest=nearest)


def _nearest(wanted: list[str], lines: list[str]) -> str:
    """Say where most of the lines are, and which one is another there."""
    if not lines:
        return "The file is empty."
    best = max(
        range(len(lines)),
        key=lambda at: sum(a == b for a, b in zip(wanted, lines[at : at + len(wanted)], strict=False)),
    )
    for at, line in enumerate(wanted):
        here = lines[best + at] if best + at < len(lines) else "the end of the file"
        if here != line:
            return f"Nearest: line {best + at + 1} is {here.strip()!r}; the patch expects {line.strip()!r}."
    return ""
