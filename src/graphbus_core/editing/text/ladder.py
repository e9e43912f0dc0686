"""Find a quoted text: exactly, then but for trailing blanks, then shifted as a whole; and fit new code to its place.

Each rung takes a match only if it is the only one, and there is no rung for text that is merely similar. Line ends are LF here.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Collection
from typing import NamedTuple

from graphbus_core.editing.text.source_text import Definition, SourceText, lines_inside_strings, parse, with_lf


def trimmed(code: str) -> str:
    """Give the code with LF line ends, without blank lines around it."""
    lines = with_lf(code).rstrip(" \t\f\n").split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def shifted(code: str, old: str, new: str, fixed: Collection[int]) -> str:
    """Replace the indentation `old` by `new` on each line that has it, but not on blank lines and those numbered in `fixed`."""
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        if number not in fixed and line.strip() and line.startswith(old):
            lines[number - 1] = new + line[len(old) :]
    return "\n".join(lines)


def statements_of(code: str) -> list[ast.stmt]:
    """Parse code that may be indented as a whole.

    Raises:
        SyntaxError: It does not parse, or a part of it is indented less than its first line.
    """
    if not _leading_blanks(code):
        return parse(code).body
    tree = parse(f"if 1:\n{code}")
    block = tree.body[0]
    if len(tree.body) > 1 or not isinstance(block, ast.If) or block.orelse:
        raise SyntaxError("its lines are indented less than its first line")
    return block.body


def fitted(code: str, indentation: str) -> str:
    """Give one definition as it must be written where its first line already has its indentation.

    Three ways of writing are understood: as it stands in the file with or without the blanks before its first line, and
    indented as a whole in any other way, usually not at all.

    Raises:
        SyntaxError: The code does not parse in any of them.
    """
    code = trimmed(code)
    base = _leading_blanks(code)
    if not base and _stands_in_file(code, indentation):
        return code
    statements_of(code)
    if base == indentation:
        return code[len(base) :]
    inside = lines_inside_strings(f"if 1:\n{code}" if base else code)
    fixed = {number - 1 for number in inside} if base else inside
    return shifted(code, base, indentation, fixed)[len(indentation) :]


def _stands_in_file(code: str, indentation: str) -> bool:
    """True when all lines but the first have the indentation of their place already."""
    try:
        return len(statements_of(indentation + code)) == 1
    except SyntaxError:
        return False


def described(body: list[ast.stmt]) -> str:
    """Say what the statements are, for a refusal."""
    names = (f"{type(node).__name__} {node.name if isinstance(node, Definition) else ''}".rstrip() for node in body)
    return ", ".join(names) or "nothing"


def _leading_blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


class Splice(NamedTuple):
    """`text` takes the place of `region[start:end]`."""

    start: int
    end: int
    text: str


class _Match(NamedTuple):
    """The quoted lines begin at line `first` (from 0), with `removed` in the place of `added` before each of them."""

    first: int
    added: str = ""
    removed: str = ""


def locate(region: str, old: str, new: str) -> Splice | tuple[int, ...]:
    """Say how the one place of `old` becomes `new`; else give the lines (from 0) at which it begins: none, or several."""
    starts = _occurrences(region, old)
    if len(starts) > 1:
        return tuple(region.count("\n", 0, start) for start in starts)
    if starts and not _is_flat_line(region, starts[0], old, new):
        return Splice(starts[0], starts[0] + len(old), new)
    lines, wanted = region.split("\n"), _lines(old)
    found = _matches([line.rstrip() for line in lines], [line.rstrip() for line in wanted])
    if len(found) != 1:
        return tuple(match.first for match in found)
    return _whole_lines(lines, found[0], wanted, _lines(new))


def _is_flat_line(region: str, start: int, old: str, new: str) -> bool:
    """True when a whole line is quoted without its indentation, and further lines of the new text lack it as well."""
    lead = region[region.rfind("\n", 0, start) + 1 : start]
    ends = region[start + len(old.rstrip("\n")) :].partition("\n")[0]
    is_whole = bool(lead) and not lead.strip() and not ends.strip() and "\n" not in old.rstrip("\n")
    return is_whole and any(line.strip() and not _leading_blanks(line) for line in new.split("\n")[1:])


def _occurrences(text: str, part: str) -> list[int]:
    """Give the positions of a part that is not empty, overlapping ones included."""
    found = []
    start = text.find(part)
    while start >= 0:
        found.append(start)
        start = text.find(part, start + 1)
    return found


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _matches(have: list[str], wanted: list[str]) -> list[_Match]:
    """Give the matches of the first rung that has any; no line has trailing blanks."""
    if not any(wanted):
        return []
    places = range(len(have) - len(wanted) + 1)
    exact = [_Match(at) for at in places if have[at : at + len(wanted)] == wanted]
    return exact or [match for at in places if (match := _shifted_match(have, wanted, at))]


def _shifted_match(have: list[str], wanted: list[str], at: int) -> _Match | None:
    """Lines that differ from the quoted ones by one and the same indentation, more or less."""
    lead = next(index for index, line in enumerate(wanted) if line)
    here, there = _leading_blanks(have[at + lead]), _leading_blanks(wanted[lead])
    added = here.removesuffix(there) if here.endswith(there) else ""
    removed = there.removesuffix(here) if there.endswith(here) else ""
    if not added + removed or any(line and not line.startswith(removed) for line in wanted):
        return None
    moved = [added + line[len(removed) :] if line else "" for line in wanted]
    return _Match(at, added, removed) if have[at : at + len(wanted)] == moved else None


def _whole_lines(region: list[str], match: _Match, old: list[str], new: list[str]) -> Splice:
    """Replace whole lines; where nothing takes their place, their line end goes too."""
    last = match.first + len(old)
    start = sum(len(line) + 1 for line in region[: match.first])
    end = start + sum(len(line) + 1 for line in region[match.first : last]) - 1
    if not new:
        has_next = last < len(region)
        return Splice(start if has_next else max(start - 1, 0), end + has_next, "")
    # Strings with several lines were found with their insides shifted if there are any; else those of the new text stay.
    fixed = () if _inside_strings("\n".join(old)) else _inside_strings("\n".join(new))
    return Splice(start, end, shifted("\n".join(new), match.removed, match.added, fixed))


def _inside_strings(fragment: str) -> Collection[int]:
    try:
        return lines_inside_strings(fragment)
    except SyntaxError:
        return ()  # a part of a string or of a statement, which moves as a whole


def spliced(source: SourceText, start: int, end: int, splice: Splice) -> str:
    """Give the text of the file with the splice, whose positions count in the LF form of `text[start:end]`, applied to it."""
    region = source.text[start:end]
    crlf = _crlf_positions(region)
    first, last = (start + position + bisect_left(crlf, position) for position in (splice.start, splice.end))
    text = splice.text.replace("\n", source.newline_after(start))
    return source.text[:first] + text + source.text[last:]


def _crlf_positions(text: str) -> list[int]:
    """Give the places, counted in the LF form, of the line ends that are CRLF."""
    positions, at = [], 0
    for piece in text.split("\r\n")[:-1]:
        positions.append(at := at + len(piece))
        at += 1
    return positions
