"""Applies one `CodeChange` to the bytes of one file; everything that the change does not name stays byte for byte.

| operation | target | new_code |
|---|---|---|
| replace_symbol | the class, function or method | its whole new definition, decorators included |
| add_symbol | its new name, `"Class.method"` or `"function"` | its definition, which goes to the end of the block |
| delete_symbol | the class, function or method | empty |
| set_decorator_argument | the decorated symbol | `name(argument=value)`: the arguments to set in that decorator |
| add_import | empty | import statements |
| search_replace | the symbol to search in; empty for the whole file | the replacement for old_code |

To prove that nothing else changes, the syntax trees before and after are compared, with the target masked out of both.
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
    find_definition,
    first_difference,
    lines_inside_strings,
    parse,
    start_of,
    with_lf,
)
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange, diff_of_texts

_Mask = Callable[[SourceText], None]


class _Edit(NamedTuple):
    """The new text, and two functions that remove the target from the trees before and after, which must then be equal."""

    text: str
    mask_before: _Mask
    mask_after: _Mask


def symbol_text(data: bytes, target: str) -> str:
    """Return the text of a definition in a file, without the indentation of its first line.

    Raises:
        EditError: There is none or more than one with this qualified name, or the file does not parse.
    """
    source = SourceText(data)
    start, end = _definition_span(source, target)
    return source.text[start:end]


@lru_cache(maxsize=128)  # reading an answer, the gate and the commit apply the same change to the same bytes
def apply_change(data: bytes, change: CodeChange) -> bytes:
    """Return the file after the change. It parses, and only the target of the change is different.

    Raises:
        EditError: The change does not fit in exactly one place, was written for another text, changes nothing or too much, or
            its result does not parse.
    """
    before = SourceText(data, change.file_path)
    edit = _OPERATIONS[change.operation](before, change)
    if with_lf(edit.text) == with_lf(before.text):
        raise EditError("GBE304", where=before.place(), target=_target_name(change))
    after = before.with_text(edit.text)
    after.tree = _parse_result(after, change)
    edit.mask_before(before)
    edit.mask_after(after)
    line = first_difference(before.tree, after.tree)
    if line is not None:
        raise _touches_more_error(after, change, line)
    return after.data


def unified_diff(path: str, before: bytes, after: bytes) -> str:
    """Return the difference in the form that `git apply` reads; empty if there is none."""
    return diff_of_texts(path, _text_for_people(before), _text_for_people(after))


def _text_for_people(data: bytes) -> str:
    try:
        return SourceText(data).text
    except EditError:
        return data.decode(errors="replace")


# --- the operations ----------------------------------------------------------------------------


def _replace_symbol(source: SourceText, change: CodeChange) -> _Edit:
    start, end = _checked_span(source, change)
    code = _definition(source, change, source.indentation_at(start) or "")
    text = source.text[:start] + code.replace("\n", source.newline_after(start)) + source.text[end:]
    return _Edit(text, _mask_target(change), _mask_target(change))


def _add_symbol(source: SourceText, change: CodeChange) -> _Edit:
    place = placement.find_insertion_point(source, change.target)
    line = bound_line(place.body, change.target.rpartition(".")[2])
    if line:
        nearest = f"That line reads {source.line(line).strip()!r}. Use replace_symbol to change it."
        raise EditError("GBE310", where=source.place(line), target=change.target, line=line, nearest=nearest)
    container = change.target.rpartition(".")[0]
    if container and (change.old_code or change.base_sha256):  # they quote the class that the symbol goes into
        _checked_span(source, replace(change, target=container))
    code = place.indentation + _definition(source, change, place.indentation)
    text = placement.insert_code(source, place, code.replace("\n", source.newline))
    return _Edit(text, _mask_nothing, _mask_removed(change))


def _delete_symbol(source: SourceText, change: CodeChange) -> _Edit:
    start, end = _checked_span(source, change)
    symbol = find_definition(source, change.target)
    if len(symbol.body) == 1:  # it is the only statement of its block
        where, reason = source.place(symbol.node.lineno), "its block would be empty without it"
        raise EditError("GBE315", where=where, target=change.target, reason=reason)
    return _Edit(placement.remove_lines(source, start, end), _mask_removed(change), _mask_nothing)


def _set_decorator_argument(source: SourceText, change: CodeChange) -> _Edit:
    _checked_span(source, change)
    return _Edit(placement.set_decorator_arguments(source, change), _mask_target(change), _mask_target(change))


def _add_import(source: SourceText, change: CodeChange) -> _Edit:
    try:
        body = _statements_of(_trimmed(change.new_code))
    except SyntaxError as reason:
        raise _malformed_error(source, change, "import statements", f"not valid Python, {reason.msg}") from None
    imports = [node for node in body if isinstance(node, placement.ImportStatement)]
    if not imports or len(imports) < len(body):
        raise _malformed_error(source, change, "import statements", _described(body))
    fresh = placement.missing_imports(source, imports)
    return _Edit(placement.add_imports(source, fresh), _mask_nothing, _mask_imports(fresh))


def _search_replace(source: SourceText, change: CodeChange) -> _Edit:
    """Replace the only place of `old_code` in the target; raise GBE307 or GBE308 if there is none or more than one."""
    if not change.old_code.strip():
        raise EditError("GBE313", where=source.place(), target=_target_name(change))
    start, end = _search_region(source, change)
    region = with_lf(source.text[start:end])
    found = _find_replacement(region, with_lf(change.old_code), with_lf(change.new_code))
    first = source.line_at(start)
    if isinstance(found, _Splice):
        mask = _mask_target(change) if change.target else _mask_all
        return _Edit(_apply_splice(source, start, end, found), mask, mask)
    if not found:
        nearest = _nearest_lines(region, change.old_code, first)
        raise EditError("GBE307", where=source.place(first), target=_target_name(change), nearest=nearest)
    where, shown = source.place(first + found[0]), ", ".join(str(first + line) for line in found)
    raise EditError("GBE308", where=where, target=_target_name(change), count=len(found), lines=shown)


_OPERATIONS: dict[str, Callable[[SourceText, CodeChange], _Edit]] = {
    "replace_symbol": _replace_symbol,
    "add_symbol": _add_symbol,
    "delete_symbol": _delete_symbol,
    "set_decorator_argument": _set_decorator_argument,
    "add_import": _add_import,
    "search_replace": _search_replace,
}


# --- is this the text that the change was written for? -----------------------------------------


def _definition_span(source: SourceText, target: str) -> tuple[int, int]:
    node = find_definition(source, target).node
    return start_of(source, node), source.end_of(node)


def _checked_span(source: SourceText, change: CodeChange) -> tuple[int, int]:
    """Return start and end of the target, or raise GBE303 if its text is not the one that the change quotes."""
    start, end = _definition_span(source, change.target)
    if not change.old_code and not change.base_sha256:
        raise EditError("GBE313", where=source.place(source.line_at(start)), target=change.target)
    quoted, here = with_lf(change.old_code).rstrip("\n"), with_lf(source.text[start:end])
    if quoted and quoted not in (here, (source.indentation_at(start) or "") + here):
        raise _stale_error(source, change, start, _first_other_line(here, quoted, source.line_at(start)))
    _check_digest(source, change, start, end)
    return start, end


def _search_region(source: SourceText, change: CodeChange) -> tuple[int, int]:
    """Return start and end of the lines to search, or raise GBE303 if the change was written for other ones."""
    start, end = _definition_span(source, change.target) if change.target else (0, len(source.text))
    _check_digest(source, change, start, end)
    return source.line_start(source.line_at(start)), source.line_end(source.line_at(end))


def _check_digest(source: SourceText, change: CodeChange, start: int, end: int) -> None:
    """Raise GBE303 if the digest of the change is not that of the text, in any usual form.

    It may have been computed with or without the first indentation and the last line end, with the file's line ends or with LF.
    """
    text, indentation = source.text[start:end], source.indentation_at(start) or ""
    texts = (text, with_lf(text))
    written = {before + each + after for before in ("", indentation) for each in texts for after in ("", "\n")}
    if change.base_sha256 and change.base_sha256 not in {hashlib.sha256(each.encode()).hexdigest() for each in written}:
        raise _stale_error(
            source, change, start, "Its digest differs: read the file again, and write the change for its present code."
        )


def _stale_error(source: SourceText, change: CodeChange, start: int, nearest: str) -> EditError:
    return EditError("GBE303", where=source.place(source.line_at(start)), target=_target_name(change), nearest=nearest)


def _first_other_line(here: str, quoted: str, first: int) -> str:
    """Describe the first line in which the file differs from the quoted text."""
    lines = zip_longest(here.split("\n"), quoted.split("\n"), fillvalue="")
    number, (is_now, was) = next((number, pair) for number, pair in enumerate(lines, first) if pair[0] != pair[1])
    return f"Line {number} is now {is_now.strip()!r}; the change has {was.strip()!r}."


def _nearest_lines(region: str, old: str, first: int) -> str:
    """List the lines of a region that resemble the first line of a text that was not found."""
    from difflib import get_close_matches

    lines = [line.strip() for line in region.split("\n")]
    quoted = next(line.strip() for line in with_lf(old).split("\n") if line.strip())
    near = get_close_matches(quoted, lines, n=3)
    shown = ", ".join(f"line {number} {line!r}" for number, line in enumerate(lines, first) if line in near)
    return f"The most similar lines: {shown}." if shown else "No line is similar to the first line of the text."


# --- does the new code fit the operation? ------------------------------------------------------


def _definition(source: SourceText, change: CodeChange, indentation: str) -> str:
    """Return the new code, which must be a single definition of the target, indented for its place."""
    name = change.target.rpartition(".")[2]
    expected = f"one definition of {name}"
    try:
        code = _indent_definition(change.new_code, indentation)
        body = _statements_of(indentation + code)
    except SyntaxError as reason:
        raise _malformed_error(source, change, expected, f"not valid Python, {reason.msg}") from None
    if len(body) != 1 or not isinstance(body[0], Definition) or body[0].name != name:
        raise _malformed_error(source, change, expected, _described(body))
    return code


def _malformed_error(source: SourceText, change: CodeChange, expected: str, found: str) -> EditError:
    first = repr(_trimmed(change.new_code).partition("\n")[0])
    more = {"target": _target_name(change), "expected": expected, "found": found, "nearest": first}
    return EditError("GBE309", where=source.place(), **more)


def _target_name(change: CodeChange) -> str:
    return change.target or "the module"


def _parse_result(after: SourceText, change: CodeChange) -> ast.Module:
    try:
        return parse(after.text)
    except SyntaxError as reason:
        line = min(reason.lineno or 1, len(after.line_starts))
        more = {"target": _target_name(change), "reason": reason.msg, "nearest": repr(after.line(line).strip())}
        raise EditError("GBE306", where=after.place(line), **more) from None


# --- the proof: without the target, both trees are equal ----------------------------------------


def _touches_more_error(after: SourceText, change: CodeChange, line: int) -> EditError:
    near = repr(after.line(line).strip())
    return EditError("GBE305", where=after.place(line), target=_target_name(change), line=line, nearest=near)


def _mask_nothing(_source: SourceText) -> None:
    """Mask nothing: the whole tree must stay equal."""


def _mask_all(source: SourceText) -> None:
    """Mask the whole tree: anything may change."""
    source.tree.body.clear()


def _mask_target(change: CodeChange) -> _Mask:
    """Return a mask that replaces the target by `pass`: it may change."""
    return partial(_replace_target, change, [ast.Pass()])


def _mask_removed(change: CodeChange) -> _Mask:
    """Return a mask that removes the target, which only one side has."""
    return partial(_replace_target, change, [])


def _replace_target(change: CodeChange, statements: list[ast.stmt], source: SourceText) -> None:
    try:
        symbol = find_definition(source, change.target)
    except EditError as error:
        raise _touches_more_error(source, change, error.where.line if error.where else 1) from None
    symbol.body[symbol.at : symbol.at + 1] = statements


def _mask_imports(imports: list[placement.ImportStatement]) -> _Mask:
    """Return a mask that removes imports, which only one side has."""

    def mask(source: SourceText) -> None:
        wanted = {ast.dump(node) for node in imports}
        source.tree.body[:] = [node for node in source.tree.body if ast.dump(node) not in wanted]

    return mask


# --- indentation of new code -------------------------------------------------------------------


def _trimmed(code: str) -> str:
    """Return the code with LF line ends, without blank lines before and after it."""
    lines = with_lf(code).rstrip(" \t\f\n").split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def reindent(code: str, old: str, new: str, fixed: Collection[int]) -> str:
    """Replace the indentation `old` by `new` on each line that has it, except blank lines and the line numbers in `fixed`."""
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        if number not in fixed and line.strip() and line.startswith(old):
            lines[number - 1] = new + line[len(old) :]
    return "\n".join(lines)


def _statements_of(code: str) -> list[ast.stmt]:
    """Parse code that may be indented as a whole.

    Raises:
        SyntaxError: It does not parse, or a line is indented less than the first one.
    """
    if not _leading_blanks(code):
        return parse(code).body
    tree = parse(f"if 1:\n{code}")
    block = tree.body[0]
    if len(tree.body) > 1 or not isinstance(block, ast.If) or block.orelse:
        raise SyntaxError("its lines are indented less than its first line")
    return block.body


def _indent_definition(code: str, indentation: str) -> str:
    """Indent a definition for a place at which the indentation of its first line is already there.

    Accepted are code that is indented as in the file, with or without the indentation of its first line, and code with any
    other common indentation, usually none.

    Raises:
        SyntaxError: The code does not parse in any of these forms.
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
    return reindent(code, base, indentation, fixed)[len(indentation) :]


def _stands_in_file(code: str, indentation: str) -> bool:
    """True if all lines except the first already have the indentation of their place."""
    try:
        return len(_statements_of(indentation + code)) == 1
    except SyntaxError:
        return False


def _described(body: list[ast.stmt]) -> str:
    """List the kinds of the statements, for an error message."""
    names = (f"{type(node).__name__} {node.name if isinstance(node, Definition) else ''}".rstrip() for node in body)
    return ", ".join(names) or "nothing"


def _leading_blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


# --- search_replace ----------------------------------------------------------------------------
#
# The quoted text is searched exactly, then ignoring trailing blanks, then with another common indentation. A match counts only if
# it is the only one at its stage. Text that is merely similar never matches. Line ends are LF here.


class _Splice(NamedTuple):
    """The replacement of `region[start:end]` by `text`."""

    start: int
    end: int
    text: str


class _Match(NamedTuple):
    """A place of the quoted lines: it begins at line `first` (from 0), and each line begins with `added` instead of `removed`."""

    first: int
    added: str = ""
    removed: str = ""


def _find_replacement(region: str, old: str, new: str) -> _Splice | tuple[int, ...]:
    """Return the replacement of the only place of `old` by `new`; with none or several places, their lines (from 0)."""
    starts = _occurrences(region, old)
    if len(starts) > 1:
        return tuple(region.count("\n", 0, start) for start in starts)
    if starts and not _is_flat_line(region, starts[0], old, new):
        return _Splice(starts[0], starts[0] + len(old), new)
    lines, wanted = region.split("\n"), _lines(old)
    found = _find_matches([line.rstrip() for line in lines], [line.rstrip() for line in wanted])
    if len(found) != 1:
        return tuple(match.first for match in found)
    return _replace_lines(lines, found[0], wanted, _lines(new))


def _is_flat_line(region: str, start: int, old: str, new: str) -> bool:
    """True if `old` is a whole line without its indentation, and further lines of `new` lack that indentation as well."""
    lead = region[region.rfind("\n", 0, start) + 1 : start]
    ends = region[start + len(old.rstrip("\n")) :].partition("\n")[0]
    is_whole = bool(lead) and not lead.strip() and not ends.strip() and "\n" not in old.rstrip("\n")
    return is_whole and any(line.strip() and not _leading_blanks(line) for line in new.split("\n")[1:])


def _occurrences(text: str, part: str) -> list[int]:
    """Return the positions of a non-empty part in a text, overlapping ones included."""
    found = []
    start = text.find(part)
    while start >= 0:
        found.append(start)
        start = text.find(part, start + 1)
    return found


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _find_matches(have: list[str], wanted: list[str]) -> list[_Match]:
    """Return the exact matches of lines, or if there are none, those with another indentation.

    No line may have trailing blanks, and one of the wanted lines must not be empty.
    """
    places = range(len(have) - len(wanted) + 1)
    exact = [_Match(at) for at in places if have[at : at + len(wanted)] == wanted]
    return exact or [match for at in places if (match := _shifted_match(have, wanted, at))]


def _shifted_match(have: list[str], wanted: list[str], at: int) -> _Match | None:
    """Return the match at a line if the lines there differ from the wanted ones only by one common indentation."""
    lead = next(index for index, line in enumerate(wanted) if line)
    here, there = _leading_blanks(have[at + lead]), _leading_blanks(wanted[lead])
    added = here.removesuffix(there) if here.endswith(there) else ""
    removed = there.removesuffix(here) if there.endswith(here) else ""
    if not added + removed or any(line and not line.startswith(removed) for line in wanted):
        return None
    moved = [added + line[len(removed) :] if line else "" for line in wanted]
    return _Match(at, added, removed) if have[at : at + len(wanted)] == moved else None


def _replace_lines(region: list[str], match: _Match, old: list[str], new: list[str]) -> _Splice:
    """Return the replacement of whole lines; if there are no new ones, the line end is removed as well."""
    last = match.first + len(old)
    start = sum(len(line) + 1 for line in region[: match.first])
    end = start + sum(len(line) + 1 for line in region[match.first : last]) - 1
    if not new:
        has_next = last < len(region)
        return _Splice(start if has_next else max(start - 1, 0), end + has_next, "")
    # If the quoted text has multi-line strings, it matched with them shifted, so those of the new text are shifted too.
    fixed = () if _inside_strings("\n".join(old)) else _inside_strings("\n".join(new))
    return _Splice(start, end, reindent("\n".join(new), match.removed, match.added, fixed))


def _inside_strings(fragment: str) -> Collection[int]:
    try:
        return lines_inside_strings(fragment)
    except SyntaxError:
        return ()  # a fragment of a string or statement, which is shifted as a whole


def _apply_splice(source: SourceText, start: int, end: int, splice: _Splice) -> str:
    """Apply a splice to the text of the file; its positions count in the LF form of `text[start:end]`."""
    region = source.text[start:end]
    crlf = _crlf_positions(region)
    first, last = (start + position + bisect_left(crlf, position) for position in (splice.start, splice.end))
    text = splice.text.replace("\n", source.newline_after(start))
    return source.text[:first] + text + source.text[last:]


def _crlf_positions(text: str) -> list[int]:
    """Return the positions, counted in the LF form of a text, of its CRLF line ends."""
    positions, at = [], 0
    for piece in text.split("\r\n")[:-1]:
        positions.append(at := at + len(piece))
        at += 1
    return positions
