"""Find a quoted text: exact, then but for trailing blanks, then shifted as a whole, then with `...` for lines left out.

Each rung takes a match only if it is the only one, and there is no rung for text that is merely similar. Line ends are LF here.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

from graphbus_core.editing.text.source_text import Definition, SourceText, lines_inside_strings, parse, with_lf


def trimmed(code: str) -> str:
    """Give the code with LF line ends, without blank lines around it."""
    lines = with_lf(code).rstrip(" \t\f\n").split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def _leading_blanks(line: str) -> str:
    """The indentation of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


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
    if base == indentation:
        statements_of(code)
        return code[len(base) :]
    if not base and _stands_in_file(code, indentation):
        return code
    statements_of(code)
    inside = lines_inside_strings(f"if 1:\n{code}" if base else code)
    fixed = {number - 1 for number in inside} if base else inside
    return shifted(code, base, indentation, fixed)[len(indentation) :]


def _stands_in_file(code: str, indentation: str) -> bool:
    """True when the code parses as it is after the indentation of its place: all lines but the first have theirs already."""
    try:
        body = statements_of(indentation + code)
    except SyntaxError:
        return False
    return len(body) == 1


def described(body: list[ast.stmt]) -> str:
    """Say what the statements are, for a refusal."""
    names = [
        f"{type(node).__name__} {node.name}" if isinstance(node, Definition) else type(node).__name__ for node in body
    ]
    return ", ".join(names) or "nothing"


ELISIONS = ("...", "# ...")


class _Splice(NamedTuple):
    """`text` takes the place of `region[start:end]`; `added` or `removed`: how that is indented otherwise than quoted."""

    start: int
    end: int
    text: str
    added: str = ""
    removed: str = ""


class Ambiguous(NamedTuple):
    """The quoted text begins at more than one line of the region (from 0)."""

    lines: tuple[int, ...]


class Match(NamedTuple):
    """The lines `first` to `last` (from 0, end exclusive) of the region."""

    first: int
    last: int
    added: str = ""
    removed: str = ""


def locate(region: str, old: str, new: str) -> tuple[_Splice, ...] | Ambiguous:
    """Say how the one place of `old` becomes `new`; empty when there is no such place."""
    starts = _occurrences(region, old)
    if len(starts) > 1:
        return Ambiguous(tuple(region.count("\n", 0, start) for start in starts))
    if starts and not _is_flat_line(region, starts[0], old, new):
        return (_Splice(starts[0], starts[0] + len(old), new),)
    return _locate_lines(region.split("\n"), _lines(old), _lines(new))


def _is_flat_line(region: str, start: int, old: str, new: str) -> bool:
    """True when a whole line is quoted without its indentation, and further lines of the new text lack it as well."""
    lead = region[region.rfind("\n", 0, start) + 1 : start]
    rest = new.partition("\n")[2]
    ends = region[start + len(old.rstrip("\n")) :].partition("\n")[0]
    is_whole = bool(lead) and not lead.strip() and not ends.strip() and "\n" not in old.rstrip("\n")
    return is_whole and any(each.strip() and not _leading_blanks(each) for each in rest.split("\n"))


def _occurrences(text: str, part: str) -> list[int]:
    """Give the positions of a part that is not empty, overlapping ones included."""
    found = []
    start = text.find(part)
    while start >= 0:
        found.append(start)
        start = text.find(part, start + 1)
    return found


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _locate_lines(region: list[str], old: list[str], new: list[str]) -> tuple[_Splice, ...] | Ambiguous:
    found = _matches(region, old)
    if len(found) > 1:
        return Ambiguous(tuple(match.first for match in found))
    if found:
        return (_splice(region, found[0], new),)
    return _locate_parts(region, _parts(old), _parts(new))


def _matches(region: list[str], old: list[str]) -> list[Match]:
    """The matches of the first rung that has any."""
    wanted = [line.rstrip() for line in old]
    if not any(wanted):
        return []
    have = [line.rstrip() for line in region]
    places = range(len(have) - len(wanted) + 1)
    exact = [Match(at, at + len(wanted)) for at in places if have[at : at + len(wanted)] == wanted]
    return exact or [match for at in places if (match := _shifted_match(have, wanted, at))]


def _shifted_match(have: list[str], wanted: list[str], at: int) -> Match | None:
    """Lines that differ from the quoted ones by one and the same indentation, more or less."""
    lead = next(index for index, line in enumerate(wanted) if line)
    here, there = _leading_blanks(have[at + lead]), _leading_blanks(wanted[lead])
    added = here.removesuffix(there) if here.endswith(there) else ""
    removed = there.removesuffix(here) if there.endswith(here) else ""
    if not added and not removed:
        return None
    if any(line and not line.startswith(removed) for line in wanted):
        return None
    moved = [added + line[len(removed) :] if line else "" for line in wanted]
    return Match(at, at + len(wanted), added, removed) if have[at : at + len(wanted)] == moved else None


def _locate_parts(region: list[str], old: list[list[str]], new: list[list[str]]) -> tuple[_Splice, ...] | Ambiguous:
    """`...` on a line of its own stands for lines that stay; each part around it must occur once, in order, shifted alike."""
    if len(old) < 2 or len(old) != len(new) or not all(old):
        return ()
    places: list[Match] = []
    for part in old:
        found = _matches(region, part)
        if len(found) > 1:
            return Ambiguous(tuple(match.first for match in found))
        places += found
    in_order = all(one.last <= other.first for one, other in pairwise(places))
    alike = len({(match.added, match.removed) for match in places}) == 1
    if len(places) < len(old) or not in_order or not alike:
        return ()
    return tuple(_splice(region, match, lines) for match, lines in zip(places, new, strict=True))


def _parts(lines: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.strip() in ELISIONS:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _splice(region: list[str], match: Match, new: list[str]) -> _Splice:
    """Replace whole lines; where nothing takes their place, their line end goes too."""
    start = sum(len(line) + 1 for line in region[: match.first])
    end = start + sum(len(line) + 1 for line in region[match.first : match.last]) - 1
    if not new:
        has_next = match.last < len(region)
        return _Splice(start if has_next else max(start - 1, 0), end + has_next, "")
    return _Splice(start, end, "\n".join(new), match.added, match.removed)


# --- putting replacements into the original text, whatever its line ends are -------------------


def spliced(source: SourceText, start: int, end: int, splices: tuple[_Splice, ...]) -> str:
    """Give the text of the file with the splices, whose positions count in the LF form of `text[start:end]`, applied to it."""
    region = source.text[start:end]
    crlf = _crlf_positions(region)
    newline = source.newline_after(start)
    settled = _with_strings_unmoved(with_lf(source.text[:start]), with_lf(region), with_lf(source.text[end:]), splices)
    for splice in reversed(settled):
        first, last = (position + bisect_left(crlf, position) for position in (splice.start, splice.end))
        region = region[:first] + splice.text.replace("\n", newline) + region[last:]
    return source.text[:start] + region + source.text[end:]


def _crlf_positions(text: str) -> list[int]:
    """Give the places, counted in the LF form, of the line ends that are CRLF."""
    pieces = text.split("\r\n")
    positions, at = [], 0
    for piece in pieces[:-1]:
        at += len(piece)
        positions.append(at)
        at += 1
    return positions


def _with_strings_unmoved(before: str, region: str, behind: str, splices: tuple[_Splice, ...]) -> list[_Splice]:
    """Shift each replacement to the indentation of its place, but not the inside of strings that begin in it.

    Where the quoted text has such strings too, it was found with their insides shifted, and so are those of the new one.
    """
    moved = [splice._replace(text=shifted(splice.text, splice.removed, splice.added, ())) for splice in splices]
    if all(one.text == other.text for one, other in zip(splices, moved, strict=True)):
        return moved
    settled = [_quotes_strings(before, region, behind, splice) for splice in splices]
    text, starts = region, []
    for splice in reversed(moved):
        text = text[: splice.start] + splice.text + text[splice.end :]
    grown = 0
    for splice in moved:
        starts.append((before + text[: splice.start + grown]).count("\n"))
        grown += len(splice.text) - (splice.end - splice.start)
    inside = _lines_inside_strings(before + text + behind)
    return [
        splice
        if is_settled
        else splice._replace(
            text=shifted(original.text, splice.removed, splice.added, _own_strings(inside, first, splice.text))
        )
        for splice, original, first, is_settled in zip(moved, splices, starts, settled, strict=True)
    ]


def _quotes_strings(before: str, region: str, behind: str, splice: _Splice) -> bool:
    """True when a line that is replaced lies in a string that begins in a line before it that is replaced as well."""
    first = (before + region[: splice.start]).count("\n")
    lines = region[splice.start : splice.end].split("\n")
    own = _own_strings(_lines_inside_strings(before + region + behind), first, "\n".join(lines))
    return any(lines[number - 1].strip() for number in own)


def _lines_inside_strings(text: str) -> set[int]:
    try:
        return lines_inside_strings(text)
    except SyntaxError:
        return set()  # the result will be refused because it does not parse


def _own_strings(inside: set[int], first: int, text: str) -> frozenset[int]:
    """Number those lines (from 1) of a replacement that lie in strings which begin in it, not before it."""
    count = text.count("\n") + 1
    own = 0
    while own < count and first + own + 1 in inside:
        own += 1
    return frozenset(number for number in range(own + 1, count + 1) if first + number in inside)
