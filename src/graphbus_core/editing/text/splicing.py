"""Put replacements that were found in a text with LF line ends into the original text, whatever its line ends are."""

from __future__ import annotations

from bisect import bisect_left

from graphbus_core.editing.text.ladder import Splice, reindented
from graphbus_core.editing.text.source_text import SourceText, lines_inside_strings, with_lf


def spliced(source: SourceText, start: int, end: int, splices: tuple[Splice, ...]) -> str:
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


def _with_strings_unmoved(before: str, region: str, behind: str, splices: tuple[Splice, ...]) -> list[Splice]:
    """Shift each replacement to the indentation of its place, but not the inside of strings that begin in it.

    Where the quoted text has such strings too, it was found with their insides shifted, and so are those of the new one.
    """
    moved = [splice._replace(text=reindented(splice.text, splice.added, splice.removed)) for splice in splices]
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
            text=reindented(original.text, splice.added, splice.removed, _own_strings(inside, first, splice.text))
        )
        for splice, original, first, is_settled in zip(moved, splices, starts, settled, strict=True)
    ]


def _quotes_strings(before: str, region: str, behind: str, splice: Splice) -> bool:
    """True when a line that is replaced lies in a string that begins in a line before it that is replaced as well."""
    first = (before + region[: splice.start]).count("\n")
    lines = region[splice.start : splice.end].split("\n")
    own = _own_strings(_lines_inside_strings(before + region + behind), first, "\n".join(lines))
    return any(lines[number].strip() for number in own)


def _lines_inside_strings(text: str) -> set[int]:
    try:
        return {line - 1 for line in lines_inside_strings(text)}
    except SyntaxError:
        return set()  # the result will be refused because it does not parse


def _own_strings(inside: set[int], first: int, text: str) -> frozenset[int]:
    """Number those lines (from 0) of a replacement that lie in strings which begin in it, not before it."""
    count = text.count("\n") + 1
    own = 0
    while own < count and first + own in inside:
        own += 1
    return frozenset(number for number in range(own, count) if first + number in inside)
