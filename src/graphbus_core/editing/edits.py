"""One `CodeChange` applied to the bytes of one file: all that it does not name stays byte for byte.

| operation | target | new_code |
|---|---|---|
| replace_symbol | the class, function or method | its whole new definition, decorators included |
| add_symbol | the name it will have, `"Class.method"` or `"function"` | its definition; goes to the end of its block |
| delete_symbol | the class, function or method | empty |
| set_decorator_argument | the decorated symbol | `name(argument=value)`: these arguments of that decorator |
| add_import | empty | import statements |
| search_replace | the symbol it is in, or empty for the whole file | what stands in the place of old_code |
"""

from __future__ import annotations

import ast
import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection
from functools import lru_cache, partial
from itertools import zip_longest
from typing import NamedTuple

from msgspec.structs import replace

from graphbus_core.editing.text import placement
from graphbus_core.editing.text.source_text import (
    Definition,
    SourceText,
    bound_line,
    find,
    first_difference,
    lines_inside_strings,
    parse,
    start_of,
    with_lf,
)
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange

_Mask = Callable[[SourceText], None]


class _Edit(NamedTuple):
    """The new text, and what to leave out of the trees before and after so that they must be equal."""

    text: str
    mask_before: _Mask
    mask_after: _Mask


def symbol_text(data: bytes, target: str) -> str:
    """Give a symbol as it is written in the file; the blanks before its first line are left out.

    Raises:
        EditError: There is none or more than one of this qualified name, or the file does not parse.
    """
    source = SourceText(data)
    start, end = _span(source, target)
    return source.text[start:end]


@lru_cache(maxsize=128)  # an answer is read, the gate asks and the commit does: the same change of the same bytes
def apply_change(data: bytes, change: CodeChange) -> bytes:
    """Give the file after the change: it parses, and only what the change names is different.

    Raises:
        EditError: The change does not fit this file in exactly one way, was written for another text, changes nothing or
            something else as well, or its result does not parse.
    """
    before = SourceText(data, change.file_path)
    edit = _OPERATIONS[change.operation](before, change)
    if with_lf(edit.text) == with_lf(before.text):
        raise EditError("GBE304", where=before.place(), target=_named(change))
    after = before.with_text(edit.text)
    after.tree = _parsed(after, change)
    edit.mask_before(before)
    edit.mask_after(after)
    line = first_difference(before.tree, after.tree)
    if line is not None:
        raise _touches_more(after, change, line)
    return after.data


def unified_diff(path: str, before: bytes, after: bytes) -> str:
    """Give the difference in the form that `git apply` reads; empty when there is none."""
    import difflib

    lines = difflib.unified_diff(_diff_lines(before), _diff_lines(after), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _diff_lines(data: bytes) -> list[str]:
    try:
        text = SourceText(data).text
    except EditError:
        text = data.decode(errors="replace")
    return [f"{line}\n" for line in text.split("\n")[:-1]] + [last for last in [text.rpartition("\n")[2]] if last]


# --- the operations ----------------------------------------------------------------------------


def _replace_symbol(source: SourceText, change: CodeChange) -> _Edit:
    start, end = _checked_span(source, change)
    code = _definition(source, change, source.indentation_at(start) or "")
    text = source.text[:start] + code.replace("\n", source.newline_after(start)) + source.text[end:]
    return _Edit(text, _blank(change), _blank(change))


def _add_symbol(source: SourceText, change: CodeChange) -> _Edit:
    place = placement.for_symbol(source, change.target)
    line = bound_line(place.body, change.target.rpartition(".")[2])
    if line:
        nearest = f"That line reads {source.line(line).strip()!r}. Use replace_symbol to change it."
        raise EditError("GBE310", where=source.place(line), target=change.target, line=line, nearest=nearest)
    container = change.target.rpartition(".")[0]
    if container and (change.old_code or change.base_sha256):  # of the class that it goes into
        _checked_span(source, replace(change, target=container))
    code = place.indentation + _definition(source, change, place.indentation)
    return _Edit(placement.inserted(source, place, code.replace("\n", source.newline)), _keep, _drop(change))


def _delete_symbol(source: SourceText, change: CodeChange) -> _Edit:
    start, end = _checked_span(source, change)
    symbol = find(source, change.target)
    if len(symbol.body) == 1:
        where, reason = source.place(symbol.node.lineno), "its block would be empty without it"
        raise EditError("GBE315", where=where, target=change.target, reason=reason)
    return _Edit(placement.without_lines(source, start, end), _drop(change), _keep)


def _set_decorator_argument(source: SourceText, change: CodeChange) -> _Edit:
    _checked_span(source, change)
    return _Edit(placement.with_arguments(source, change), _blank(change), _blank(change))


def _add_import(source: SourceText, change: CodeChange) -> _Edit:
    try:
        body = _statements_of(_trimmed(change.new_code))
    except SyntaxError as reason:
        raise _malformed(source, change, "import statements", f"not valid Python, {reason.msg}") from None
    imports = [node for node in body if isinstance(node, placement.Import)]
    if not imports or len(imports) < len(body):
        raise _malformed(source, change, "import statements", _described(body))
    fresh = placement.missing_imports(source, imports)
    return _Edit(placement.with_imports(source, fresh), _keep, _drop_imports(fresh))


def _search_replace(source: SourceText, change: CodeChange) -> _Edit:
    if not change.old_code.strip():
        raise EditError("GBE313", where=source.place(), target=_named(change))
    start, end = _region(source, change)
    region = with_lf(source.text[start:end])
    found = _locate(region, with_lf(change.old_code), with_lf(change.new_code))
    first = source.line_at(start)
    if isinstance(found, _Splice):
        mask = _blank(change) if change.target else _forget
        return _Edit(_spliced(source, start, end, found), mask, mask)
    if not found:
        nearest = _nearest_lines(region, change.old_code, first)
        raise EditError("GBE307", where=source.place(first), target=_named(change), nearest=nearest)
    where, shown = source.place(first + found[0]), ", ".join(str(first + line) for line in found)
    raise EditError("GBE308", where=where, target=_named(change), count=len(found), lines=shown)


_OPERATIONS: dict[str, Callable[[SourceText, CodeChange], _Edit]] = {
    "replace_symbol": _replace_symbol,
    "add_symbol": _add_symbol,
    "delete_symbol": _delete_symbol,
    "set_decorator_argument": _set_decorator_argument,
    "add_import": _add_import,
    "search_replace": _search_replace,
}


# --- is it the text that the change was written for? -------------------------------------------


def _span(source: SourceText, target: str) -> tuple[int, int]:
    node = find(source, target).node
    return start_of(source, node), source.end_of(node)


def _checked_span(source: SourceText, change: CodeChange) -> tuple[int, int]:
    """Give the place of the symbol, provided that it is still the text that the change quotes."""
    start, end = _span(source, change.target)
    if not change.old_code and not change.base_sha256:
        raise EditError("GBE313", where=source.place(source.line_at(start)), target=change.target)
    quoted, here = with_lf(change.old_code).rstrip("\n"), with_lf(source.text[start:end])
    if quoted and quoted not in (here, (source.indentation_at(start) or "") + here):
        raise _stale(source, change, start, _first_other_line(here, quoted, source.line_at(start)))
    _check_digest(source, change, start, end)
    return start, end


def _region(source: SourceText, change: CodeChange) -> tuple[int, int]:
    """Give the whole lines in which to search, provided that they are still those that the change was written for."""
    start, end = _span(source, change.target) if change.target else (0, len(source.text))
    _check_digest(source, change, start, end)
    return source.line_start(source.line_at(start)), source.line_end(source.line_at(end))


def _check_digest(source: SourceText, change: CodeChange, start: int, end: int) -> None:
    """The digest may have been taken with or without the first line's blanks and the last line's end, as it is or as LF."""
    text, indentation = source.text[start:end], source.indentation_at(start) or ""
    texts = (text, with_lf(text))
    written = {before + each + after for before in ("", indentation) for each in texts for after in ("", "\n")}
    if change.base_sha256 and change.base_sha256 not in {hashlib.sha256(each.encode()).hexdigest() for each in written}:
        raise _stale(
            source, change, start, "Its digest differs: read the file again, and write the change for its present code."
        )


def _stale(source: SourceText, change: CodeChange, start: int, nearest: str) -> EditError:
    return EditError("GBE303", where=source.place(source.line_at(start)), target=_named(change), nearest=nearest)


def _first_other_line(here: str, quoted: str, first: int) -> str:
    lines = zip_longest(here.split("\n"), quoted.split("\n"), fillvalue="")
    number, (is_now, was) = next((number, pair) for number, pair in enumerate(lines, first) if pair[0] != pair[1])
    return f"Line {number} is now {is_now.strip()!r}; the change has {was.strip()!r}."


def _nearest_lines(region: str, old: str, first: int) -> str:
    from difflib import get_close_matches

    lines = [line.strip() for line in region.split("\n")]
    quoted = next(line.strip() for line in with_lf(old).split("\n") if line.strip())
    near = get_close_matches(quoted, lines, n=3)
    shown = ", ".join(f"line {number} {line!r}" for number, line in enumerate(lines, first) if line in near)
    return f"The most similar lines: {shown}." if shown else "No line is similar to the first line of the text."


# --- is the new code what it should be? --------------------------------------------------------


def _definition(source: SourceText, change: CodeChange, indentation: str) -> str:
    """Give the one definition that the new code is, as it must be written at its place."""
    name = change.target.rpartition(".")[2]
    expected = f"one definition of {name}"
    try:
        code = _fitted(change.new_code, indentation)
        body = _statements_of(indentation + code)
    except SyntaxError as reason:
        raise _malformed(source, change, expected, f"not valid Python, {reason.msg}") from None
    if len(body) != 1 or not isinstance(body[0], Definition) or body[0].name != name:
        raise _malformed(source, change, expected, _described(body))
    return code


def _malformed(source: SourceText, change: CodeChange, expected: str, found: str) -> EditError:
    first = repr(_trimmed(change.new_code).partition("\n")[0])
    more = {"target": _named(change), "expected": expected, "found": found, "nearest": first}
    return EditError("GBE309", where=source.place(), **more)


def _named(change: CodeChange) -> str:
    return change.target or "the module"


def _parsed(after: SourceText, change: CodeChange) -> ast.Module:
    try:
        return parse(after.text)
    except SyntaxError as reason:
        line = min(reason.lineno or 1, len(after.line_starts))
        more = {"target": _named(change), "reason": reason.msg, "nearest": repr(after.line(line).strip())}
        raise EditError("GBE306", where=after.place(line), **more) from None


# --- the proof: without what the change names, both trees are equal ----------------------------


def _touches_more(after: SourceText, change: CodeChange, line: int) -> EditError:
    near = repr(after.line(line).strip())
    return EditError("GBE305", where=after.place(line), target=_named(change), line=line, nearest=near)


def _keep(_source: SourceText) -> None:
    """Everything must stay."""


def _forget(source: SourceText) -> None:
    """Anything may change."""
    source.tree.body.clear()


def _blank(change: CodeChange) -> _Mask:
    """The target may change."""
    return partial(_put, change, [ast.Pass()])


def _drop(change: CodeChange) -> _Mask:
    """The target is on one side only."""
    return partial(_put, change, [])


def _put(change: CodeChange, statements: list[ast.stmt], source: SourceText) -> None:
    try:
        symbol = find(source, change.target)
    except EditError as error:
        raise _touches_more(source, change, error.where.line if error.where else 1) from None
    symbol.body[symbol.at : symbol.at + 1] = statements


def _drop_imports(imports: list[placement.Import]) -> _Mask:
    """These imports are on one side only."""

    def mask(source: SourceText) -> None:
        wanted = {ast.dump(node) for node in imports}
        source.tree.body[:] = [node for node in source.tree.body if ast.dump(node) not in wanted]

    return mask


# --- new code at its place ---------------------------------------------------------------------


def _trimmed(code: str) -> str:
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


def _statements_of(code: str) -> list[ast.stmt]:
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


def _fitted(code: str, indentation: str) -> str:
    """Give one definition as it must be written where its first line already has its indentation.

    Three ways of writing are understood: as it stands in the file with or without the blanks before its first line, and
    indented as a whole in any other way, usually not at all.

    Raises:
        SyntaxError: The code does not parse in any of them.
    """
    code = _trimmed(code)
    base = _leading_blanks(code)
    if not base and _stands_in_file(code, indentation):
        return code
    _statements_of(code)
    if base == indentation:
        return code[len(base) :]
    inside = lines_inside_strings(f"if 1:\n{code}" if base else code)
    fixed = {number - 1 for number in inside} if base else inside
    return shifted(code, base, indentation, fixed)[len(indentation) :]


def _stands_in_file(code: str, indentation: str) -> bool:
    """True when all lines but the first have the indentation of their place already."""
    try:
        return len(_statements_of(indentation + code)) == 1
    except SyntaxError:
        return False


def _described(body: list[ast.stmt]) -> str:
    """Say what the statements are, for a refusal."""
    names = (f"{type(node).__name__} {node.name if isinstance(node, Definition) else ''}".rstrip() for node in body)
    return ", ".join(names) or "nothing"


def _leading_blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


# --- a quoted text -----------------------------------------------------------------------------
#
# It is found exactly, else but for trailing blanks, else shifted as a whole. Each rung takes a match only if it is the only one,
# and there is no rung for text that is merely similar. Line ends are LF here.


class _Splice(NamedTuple):
    """`text` takes the place of `region[start:end]`."""

    start: int
    end: int
    text: str


class _Match(NamedTuple):
    """The quoted lines begin at line `first` (from 0), with `removed` in the place of `added` before each of them."""

    first: int
    added: str = ""
    removed: str = ""


def _locate(region: str, old: str, new: str) -> _Splice | tuple[int, ...]:
    """Say how the one place of `old` becomes `new`; else give the lines (from 0) at which it begins: none, or several."""
    starts = _occurrences(region, old)
    if len(starts) > 1:
        return tuple(region.count("\n", 0, start) for start in starts)
    if starts and not _is_flat_line(region, starts[0], old, new):
        return _Splice(starts[0], starts[0] + len(old), new)
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
    """Give the matches of the first rung that has any; no line has trailing blanks, and one is wanted that is not empty."""
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


def _whole_lines(region: list[str], match: _Match, old: list[str], new: list[str]) -> _Splice:
    """Replace whole lines; where nothing takes their place, their line end goes too."""
    last = match.first + len(old)
    start = sum(len(line) + 1 for line in region[: match.first])
    end = start + sum(len(line) + 1 for line in region[match.first : last]) - 1
    if not new:
        has_next = last < len(region)
        return _Splice(start if has_next else max(start - 1, 0), end + has_next, "")
    # Strings with several lines were found with their insides shifted if there are any; else those of the new text stay.
    fixed = () if _inside_strings("\n".join(old)) else _inside_strings("\n".join(new))
    return _Splice(start, end, shifted("\n".join(new), match.removed, match.added, fixed))


def _inside_strings(fragment: str) -> Collection[int]:
    try:
        return lines_inside_strings(fragment)
    except SyntaxError:
        return ()  # a part of a string or of a statement, which moves as a whole


def _spliced(source: SourceText, start: int, end: int, splice: _Splice) -> str:
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
