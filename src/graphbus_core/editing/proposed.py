"""Reads from the tool call of a coding agent which text its files would have.

| tool | input |
|---|---|
| `Write` | `file_path`, `content` |
| `Edit` | `file_path`, `old_string`, `new_string`, `replace_all` |
| `MultiEdit` | `file_path`, `edits`: a list of edits like the above |
| `apply_patch` | `command`: a patch between `*** Begin Patch` and `*** End Patch` |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

from graphbus_core.errors import EditError

_Rewrite = Callable[[str | None], str | None]

_SECTION = re.compile(r"^\*\*\* (Add|Delete|Update) File: (.+)$", re.MULTILINE)
_MOVE = re.compile(r"\*\*\* Move to: (.+)(?:\n|$)")
_HUNK = re.compile(r"^@@(?: (.*))?$")
_END_OF_FILE = "*** End of File"
_LOOSER: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
"""How lines are compared until a hunk fits, the strictest first."""


class ProposedFile(NamedTuple):
    """A file that a tool call would write.

    Attributes:
        path: Its path as the call has it.
        rewrite: Returns the text after the call for the text before it, both with LF; None where there is no file.
            It raises EditError, GBE345, if the call does not fit the text.
    """

    path: str
    rewrite: _Rewrite


def read_call(tool: str, arguments: Any) -> tuple[ProposedFile, ...]:
    """Return the files that a tool call would write; none for a tool that is not in the table above.

    Raises:
        EditError: GBE345, the arguments are not those of this tool.
    """
    if tool == "apply_patch":
        return tuple(_read_patch(_text(arguments, "command")))
    if tool not in ("Write", "Edit", "MultiEdit"):
        return ()
    path = _text(arguments, "file_path")
    if tool == "Write":
        content = _text(arguments, "content").replace("\r\n", "\n")
        return (ProposedFile(path, lambda _: content),)
    edits = arguments.get("edits") if tool == "MultiEdit" else [arguments]
    if not isinstance(edits, list):
        raise _unusable("`edits` is not a list")
    steps = [_read_edit(edit) for edit in edits]
    return (ProposedFile(path, partial(_apply_edits, steps)),)


def _unusable(reason: str) -> EditError:
    return EditError("GBE345", reason=reason)


def _text(arguments: Any, name: str) -> str:
    """Return a text of the arguments; raise GBE345 if there is none with this name."""
    found = arguments.get(name) if isinstance(arguments, Mapping) else None
    if not isinstance(found, str):
        raise _unusable(f"`{name}` of its tool input is missing, or no text")
    return found


def _read_edit(arguments: Any) -> tuple[str, str, bool]:
    """Return the old and the new text of an edit, and whether each occurrence is replaced."""
    old, new = (_text(arguments, name).replace("\r\n", "\n") for name in ("old_string", "new_string"))
    is_for_all = arguments.get("replace_all", False)
    if not isinstance(is_for_all, bool):
        raise _unusable("`replace_all` is neither true nor false")
    return old, new, is_for_all


def _apply_edits(edits: Sequence[tuple[str, str, bool]], text: str | None) -> str:
    """Return the text after the edits, one after the other."""
    for old, new, is_for_all in edits:
        count = (text or "").count(old) if old else int(not text)
        if not count or (count > 1 and not is_for_all):
            raise _unusable(
                f"`old_string` is in the file {count} times" if count else "`old_string` is not in the file"
            )
        text = (text or "").replace(old, new) if old else new
    return text or ""


# --- patches -----------------------------------------------------------------------------------


def _read_patch(patch: str) -> Iterator[ProposedFile]:
    """Yield the files of a patch; a file that is moved is deleted under its old path."""
    lines = patch.replace("\r\n", "\n").strip("\n").split("\n")
    if lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        raise _unusable("the patch does not stand between `*** Begin Patch` and `*** End Patch`")
    body = "\n".join(lines[1:-1])
    heads = list(_SECTION.finditer(body))
    if body[: heads[0].start() if heads else None].strip():
        raise _unusable("the patch begins with a line that names no file")
    for head, end in zip_longest(heads, heads[1:]):
        content = body[head.end() + 1 : end.start() if end else None]
        yield from _read_section(head[1], head[2].strip(), content)


def _read_section(kind: str, path: str, content: str) -> Iterator[ProposedFile]:
    """Yield the files that one section of a patch writes."""
    lines = content.removesuffix("\n").split("\n") if content else []
    if kind == "Delete":
        yield ProposedFile(path, lambda _: None)
    elif kind == "Add":
        added = "".join(f"{line[1:]}\n" for line in lines)
        if not all(line.startswith("+") for line in lines):
            raise _unusable(f"a line of the new file {path} does not begin with `+`")
        yield ProposedFile(path, lambda _: added)
    else:
        move = _MOVE.match(content)
        hunks = tuple(_read_hunks(lines[1:] if move else lines))
        if move:
            yield ProposedFile(path, lambda _: None)
        yield ProposedFile(move[1].strip() if move else path, partial(_apply_hunks, hunks))


class _Hunk(NamedTuple):
    """One place of a patch: lines that stand somewhere above it, in order, its lines before and after, and whether it is
    the end of the file."""

    above: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    is_last: bool


def _read_hunks(lines: Sequence[str]) -> Iterator[_Hunk]:
    """Yield the hunks of a section that updates a file."""
    above: list[str] = []
    body: list[str] = []
    for line in (*lines, "@@"):
        if head := _HUNK.match(line):
            if body:
                yield _make_hunk(above, body)
                above, body = [], []
            above += [head[1]] if head[1] else []
        else:
            body.append(line)


def _make_hunk(above: Sequence[str], body: Sequence[str]) -> _Hunk:
    """Return the hunk with these lines, each of which begins with a space, `-` or `+`; an empty one is an unchanged line."""
    is_last = body[-1] == _END_OF_FILE
    body = body[:-1] if is_last else body
    strange = next((line for line in body if line[:1] not in ("", " ", "-", "+")), "")
    if strange:
        raise _unusable(f"a line of the patch begins with neither a space, `-` nor `+`: {strange[:60]}")
    before = tuple(line[1:] for line in body if line[:1] != "+")
    after = tuple(line[1:] for line in body if line[:1] != "-")
    return _Hunk(tuple(above), before, after, is_last)


def _apply_hunks(hunks: Sequence[_Hunk], text: str | None) -> str:
    """Return the text after the hunks, which stand in the order of the file; one that only adds lines adds them at its end."""
    lines = (text or "").removesuffix("\n").split("\n")
    at = 0
    for hunk in hunks:
        for line in hunk.above:
            at = _find_lines(lines, (line,), at) + 1
        if hunk.before:
            earliest = max(at, len(lines) - len(hunk.before)) if hunk.is_last else at
            start = _find_lines(lines, hunk.before, earliest)
            at = start + len(hunk.after)
        else:
            start = len(lines) - (lines[-1] == "")
        lines[start : start + len(hunk.before)] = hunk.after
    return "\n".join(lines) + "\n"


def _find_lines(lines: Sequence[str], wanted: Sequence[str], start: int) -> int:
    """Return where lines stand in a text from `start` on; raise GBE345 if they do not."""
    for loosen in _LOOSER:
        goal, here = [loosen(line) for line in wanted], [loosen(line) for line in lines]
        for at in range(start, len(here) - len(goal) + 1):
            if here[at : at + len(goal)] == goal:
                return at
    raise _unusable(f"these lines of the patch are not in the file: {wanted[0][:60]}")
