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
from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from graphbus_core.editing.text import ladder, placement
from graphbus_core.editing.text.ladder import described, fitted, statements_of, trimmed
from graphbus_core.editing.text.placement import with_arguments
from graphbus_core.editing.text.source_text import (
    Definition,
    SourceText,
    Symbol,
    bound_line,
    find,
    first_difference,
    parse,
    start_of,
    with_lf,
)
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange

Mask = Callable[[SourceText], None]

_KEPT_BYTES = 50_000


class _SymbolSpan(NamedTuple):
    """Where a symbol is in the bytes of its file, `data[start:end]`: from its first decorator to its last statement."""

    start: int
    end: int


class Edit(NamedTuple):
    """The new text, and what to leave out of the trees before and after so that they must be equal."""

    text: str
    mask_before: Mask
    mask_after: Mask


def find_symbol(data: bytes, target: str) -> _SymbolSpan:
    """Give the place of a class, function or method by its qualified name.

    Raises:
        EditError: There is none or more than one of this name, or the file does not parse.
    """
    source = SourceText(data)
    start, end = _span(source, target)
    return _SymbolSpan(source.byte_offset(start), source.byte_offset(end))


def symbol_text(data: bytes, target: str) -> str:
    """Give a symbol as it is written in the file; the blanks before its first line are left out.

    Raises:
        EditError: As `find_symbol`.
    """
    source = SourceText(data)
    start, end = _span(source, target)
    return source.text[start:end]


def apply_change(data: bytes, change: CodeChange) -> bytes:
    """Give the file after the change: it parses, and only what the change names is different.

    The same is asked again and again of a proposal: when an answer is read, by the gate, before its commit. So the last results
    are kept, but for large files.

    Raises:
        EditError: The change does not fit this file in exactly one way, was written for another text, changes nothing or
            something else as well, or its result does not parse.
    """
    return _applied(data, change) if len(data) <= _KEPT_BYTES else _apply(data, change)


def _apply(data: bytes, change: CodeChange) -> bytes:
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


_applied = lru_cache(maxsize=256)(_apply)


def unified_diff(path: str, before: bytes, after: bytes) -> str:
    """Give the difference in the form that `git apply` reads; empty when there is none."""
    import difflib

    old, new = _diff_lines(before), _diff_lines(after)
    lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _diff_lines(data: bytes) -> list[str]:
    try:
        text = SourceText(data).text
    except EditError:
        text = data.decode(errors="replace")
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _replace_symbol(source: SourceText, change: CodeChange) -> Edit:
    start, end = _checked_span(source, change)
    code = _fitted(source, change, source.indentation_at(start) or "")
    text = source.text[:start] + _in_file(code, source.newline_after(start)) + source.text[end:]
    return Edit(text, _blank(change), _blank(change))


def _add_symbol(source: SourceText, change: CodeChange) -> Edit:
    place = placement.for_symbol(source, change.target)
    line = bound_line(place.body, change.target.rpartition(".")[2])
    if line:
        nearest = f"There: {source.line(line).strip()!r}. Use replace_symbol to change it."
        raise EditError("GBE310", where=source.place(line), target=change.target, line=line, nearest=nearest)
    if place.container and (change.old_code or change.base_sha256):
        _checked_span(source, change, place.container)
    code = place.indentation + _fitted(source, change, place.indentation)
    text = placement.inserted(source, place, _in_file(code, source.newline))
    return Edit(text, _keep, _drop(change))


def _delete_symbol(source: SourceText, change: CodeChange) -> Edit:
    start, end = _checked_span(source, change)
    symbol = find(source, change.target)
    if len(symbol.body) == 1:
        raise EditError(
            "GBE315", where=source.place(symbol.node.lineno), target=change.target, reason="it cannot become empty"
        )
    return Edit(placement.without_lines(source, start, end), _drop(change), _keep)


def _set_decorator_argument(source: SourceText, change: CodeChange) -> Edit:
    _checked_span(source, change)
    return Edit(with_arguments(source, change), _blank(change), _blank(change))


def _add_import(source: SourceText, change: CodeChange) -> Edit:
    try:
        body = statements_of(trimmed(change.new_code))
    except SyntaxError as reason:
        raise _malformed(source, change, "import statements", f"no Python, {reason.msg}") from None
    imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if not imports or len(imports) < len(body):
        raise _malformed(source, change, "import statements", described(body))
    fresh = placement.missing_imports(source, imports)
    text = placement.with_imports(source, fresh)
    return Edit(text, _keep, _drop_imports(fresh))


def _search_replace(source: SourceText, change: CodeChange) -> Edit:
    if not change.old_code.strip():
        raise EditError("GBE313", where=source.place(), target=_named(change))
    start, end = _region(source, change)
    region = with_lf(source.text[start:end])
    found = ladder.locate(region, with_lf(change.old_code), with_lf(change.new_code))
    first = source.line_at(start)
    if isinstance(found, ladder.Ambiguous):
        lines = [first + line for line in found.lines]
        where, shown = source.place(lines[0]), ", ".join(map(str, lines))
        raise EditError("GBE308", where=where, target=_named(change), count=len(lines), lines=shown)
    if not found:
        nearest = _nearest_lines(region, change.old_code, first)
        raise EditError("GBE307", where=source.place(first), target=_named(change), nearest=nearest)
    mask = _blank(change) if change.target else _forget
    return Edit(ladder.spliced(source, start, end, found), mask, mask)


_OPERATIONS: dict[str, Callable[[SourceText, CodeChange], Edit]] = {
    "replace_symbol": _replace_symbol,
    "add_symbol": _add_symbol,
    "delete_symbol": _delete_symbol,
    "set_decorator_argument": _set_decorator_argument,
    "add_import": _add_import,
    "search_replace": _search_replace,
}


def _span(source: SourceText, target: str) -> tuple[int, int]:
    node = find(source, target).node
    return start_of(source, node), source.end_of(node)


def _checked_span(source: SourceText, change: CodeChange, target: str = "") -> tuple[int, int]:
    """Give the place of the symbol, provided that it is still the text that the change was written for."""
    target = target or change.target
    start, end = _span(source, target)
    raw = source.text[start:end]
    _check_base(source, change, target, start, (raw, source.indentation_at(start) or ""))
    return start, end


def _region(source: SourceText, change: CodeChange) -> tuple[int, int]:
    """Give the whole lines in which to search, provided that they are still those that the change was written for."""
    if change.target:
        start, end = _span(source, change.target)
        _check_digest(
            source, change, change.target, start, (source.text[start:end], source.indentation_at(start) or "")
        )
        return source.line_start(source.line_at(start)), source.line_end(source.line_at(end))
    _check_digest(source, change, "the module", 0, (source.text, ""))
    return 0, len(source.text)


def _check_base(source: SourceText, change: CodeChange, target: str, start: int, seen: tuple[str, str]) -> None:
    if not change.old_code and not change.base_sha256:
        raise EditError("GBE313", where=source.place(source.line_at(start)), target=target)
    raw, indentation = seen
    quoted, here = with_lf(change.old_code).rstrip("\n"), with_lf(raw)
    if quoted and quoted not in (here, indentation + here):
        raise _stale(source, target, start, _first_other_line(here, quoted, source.line_at(start)))
    _check_digest(source, change, target, start, seen)


def _check_digest(source: SourceText, change: CodeChange, target: str, start: int, seen: tuple[str, str]) -> None:
    """The digest may have been taken with or without the first line's blanks, of the line ends as they are or as LF."""
    raw, indentation = seen
    texts = {
        before + text + after for before in ("", indentation) for text in (raw, with_lf(raw)) for after in ("", "\n")
    }
    if change.base_sha256 and change.base_sha256 not in {_sha256(text) for text in texts}:
        raise _stale(source, target, start, "Its digest is another one: read the file again.")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _stale(source: SourceText, target: str, start: int, nearest: str) -> EditError:
    return EditError("GBE303", where=source.place(source.line_at(start)), target=target, nearest=nearest)


def _first_other_line(here: str, quoted: str, first: int) -> str:
    lines = zip_longest(here.split("\n"), quoted.split("\n"), fillvalue="")
    number, (is_now, was) = next((number, pair) for number, pair in enumerate(lines, first) if pair[0] != pair[1])
    return f"Line {number} is now {is_now.strip()!r}; the change has {was.strip()!r}."


def _fitted(source: SourceText, change: CodeChange, indentation: str) -> str:
    """Give the one definition that the new code is, as it must be written at its place."""
    name = change.target.rpartition(".")[2]
    expected = f"one definition of {name}"
    try:
        code = fitted(change.new_code, indentation)
        body = statements_of(indentation + code)
    except SyntaxError as reason:
        raise _malformed(source, change, expected, f"no Python, {reason.msg}") from None
    if len(body) != 1 or not isinstance(body[0], Definition) or body[0].name != name:
        raise _malformed(source, change, expected, described(body))
    return code


def _malformed(source: SourceText, change: CodeChange, expected: str, found: str) -> EditError:
    first = repr(trimmed(change.new_code).partition("\n")[0])
    return EditError(
        "GBE309", where=source.place(), target=_named(change), expected=expected, found=found, nearest=first
    )


def _in_file(code: str, newline: str) -> str:
    return code.replace("\n", newline)


def _named(change: CodeChange) -> str:
    return change.target or "the module"


def _nearest_lines(region: str, old: str, first: int) -> str:
    from difflib import get_close_matches

    lines = region.split("\n")
    quoted = next(line.strip() for line in with_lf(old).split("\n") if line.strip())
    near = get_close_matches(quoted, [line.strip() for line in lines], n=3)
    numbers = [number for number, line in enumerate(lines, first) if line.strip() in near]
    shown = ", ".join(f"line {number} {lines[number - first].strip()!r}" for number in numbers[:3])
    return f"Nearest: {shown}." if shown else "No line there is like the first line of the text."


def _parsed(after: SourceText, change: CodeChange) -> ast.Module:
    try:
        return parse(after.text)
    except SyntaxError as reason:
        line = reason.lineno or 1
        where, near = after.place(line), repr(after.line(min(line, len(after.line_starts))).strip())
        raise EditError("GBE306", where=where, target=_named(change), reason=reason.msg, nearest=near) from None


def _touches_more(after: SourceText, change: CodeChange, line: int) -> EditError:
    near = repr(after.line(line).strip())
    return EditError("GBE305", where=after.place(line), target=_named(change), line=line, nearest=near)


def _keep(_source: SourceText) -> None:
    """Everything must stay."""


def _forget(source: SourceText) -> None:
    """Anything may change."""
    source.tree.body.clear()


def _blank(change: CodeChange) -> Mask:
    """The target may change."""

    def mask(source: SourceText) -> None:
        symbol = _found_again(source, change)
        symbol.body[symbol.at] = ast.Pass()

    return mask


def _drop(change: CodeChange) -> Mask:
    """The target is on one side only."""

    def mask(source: SourceText) -> None:
        symbol = _found_again(source, change)
        del symbol.body[symbol.at]

    return mask


def _found_again(source: SourceText, change: CodeChange) -> Symbol:
    try:
        return find(source, change.target)
    except EditError as error:
        raise _touches_more(source, change, error.where.line if error.where else 1) from None


def _drop_imports(imports: list[ast.Import | ast.ImportFrom]) -> Mask:
    """These imports are on one side only."""

    def mask(source: SourceText) -> None:
        for wanted in imports:
            body = source.tree.body
            body.remove(next(node for node in body if ast.dump(node) == ast.dump(wanted)))

    return mask
