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
from graphbus_core.editing.text.indentation import (
    indent_block,
    indent_definition,
    leading_whitespace,
    reindent,
    statements_of,
    trim_blank_lines,
)
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
"""Removes from the syntax tree, in place, what a change may alter."""


class _Edit(NamedTuple):
    """The new text, and two masks: without what they remove, the syntax trees before and after must be equal."""

    text: str
    mask_before: _Mask
    mask_after: _Mask


def symbol_text(data: bytes, target: str, *, has_comment: bool = False) -> str:
    """Return the text of a definition in a file, without the indentation of its first line.

    Args:
        has_comment: Include the comment behind its last line; a change that quotes it replaces it too.

    Raises:
        EditError: There is none or more than one with this qualified name, or the file does not parse.
    """
    source = SourceText(data)
    start, end = _definition_span(source, target)
    return source.text[start : _end_of_comment(source, end) if has_comment else end]


def _end_of_comment(source: SourceText, end: int) -> int:
    """Return where the comment behind a position ends; the position if there is none."""
    line_end = source.line_end(source.line_at(end))
    return line_end if source.text[end:line_end].lstrip().startswith("#") else end


def complete_definition(data: bytes, change: CodeChange) -> CodeChange:
    """Return a `replace_symbol` whose new code is the whole function, made from its new statements.

    Decorators, signature and docstring stay. The statements may have any common indentation; a docstring at their beginning
    replaces the old one. If they are a whole definition of the function, only its statements are used.

    Raises:
        EditError: There is no such function, or the statements do not parse.
    """
    source = SourceText(data, change.file_path)
    node, expected = find_definition(source, change.target).node, "the statements of a function"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise _malformed_error(source, change, expected, "meant for a class")
    head_end, indentation = _find_body(source, node)
    try:
        code, has_docstring = _read_body(change.new_code, node.name)
        body = indent_block(code, indentation)
    except SyntaxError as reason:
        raise _malformed_error(source, change, expected, f"{_NOT_PYTHON}, {reason.msg}") from None
    if has_docstring or ast.get_docstring(node, clean=False) is None:
        docstring = ""
    else:
        docstring = source.text[source.start_of(node.body[0]) : source.end_of(node.body[0])]
    start, _ = _definition_span(source, change.target)
    head = source.text[start:head_end] + (f"{source.newline}{indentation}{docstring}" if docstring else "")
    return replace(change, new_code=f"{with_lf(head)}\n{body}\n")


def _find_body(source: SourceText, node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, str]:
    """Return the position behind the line with the colon of a function's signature, and the indentation of its body.

    Comments between the signature and the first statement belong to the statements, not to the signature.
    """
    first = _first_position(source, node.body[0])
    indentation = source.indentation_at(first)
    if indentation is None:  # the body stands behind the colon
        indentation = (source.indentation_at(source.start_of(node)) or "") + "    "
    lines = source.text[:first].rstrip().split(source.newline)
    while lines[-1].lstrip().startswith("#") or not lines[-1].strip():
        del lines[-1]
    return len(source.newline.join(lines).rstrip()), indentation


def _first_position(source: SourceText, statement: ast.stmt) -> int:
    """Return where a statement begins, its decorators included."""
    decorators = getattr(statement, "decorator_list", None)
    if not decorators:
        return source.start_of(statement)
    return source.text.rindex("@", 0, source.start_of(decorators[0]))


def _read_body(code: str, name: str) -> tuple[str, bool]:
    """Return the lines of a function's body, and whether they begin with a docstring; raise SyntaxError if they do not parse."""
    code = trim_blank_lines(code)
    try:
        body = statements_of(code)
    except SyntaxError:  # a model often leaves out the indentation of the first line only
        following = [leading_whitespace(line) for line in code.split("\n")[1:] if line.strip()]
        code = min(following, key=len, default="") + code
        body = statements_of(code)
    only = body[0] if len(body) == 1 else None
    if isinstance(only, ast.FunctionDef | ast.AsyncFunctionDef) and only.name == name:
        first = only.body[0]
        line = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))])
        lines = code.split("\n")[
            line - (2 if leading_whitespace(code) else 1) :
        ]  # `statements_of` adds a line to indented code
        before = lines[0].encode()[: first.col_offset].decode() if line == first.lineno else ""
        if before.strip():  # the body stands behind the colon
            lines[0] = lines[0][len(before) :]
            statements_of("\n".join(lines))
        code, body = "\n".join(lines), only.body
    first_statement = body[0] if body else None
    has_docstring = (
        isinstance(first_statement, ast.Expr)
        and isinstance(first_statement.value, ast.Constant)
        and isinstance(first_statement.value.value, str)
    )
    return code, has_docstring


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
        raise EditError("GBE304", where=before.place(), target=_describe_target(change))
    after = before.with_text(edit.text)
    after.tree = _parse_result(after, change)
    edit.mask_before(before)
    edit.mask_after(after)
    line = first_difference(before.tree, after.tree)
    if line is not None:
        raise _touches_more_error(after, change, line)
    return after.data


def unified_diff(path: str, before: bytes, after: bytes) -> str:
    """Return a unified diff for display; empty if nothing differs. `git apply` accepts it if both versions can be decoded."""
    return diff_of_texts(path, _decode_for_display(before), _decode_for_display(after))


def _decode_for_display(data: bytes) -> str:
    """Decode a file; bytes that cannot be decoded become replacement characters."""
    try:
        return SourceText(data).text
    except EditError:
        return data.decode(errors="replace")


# --- the operations ----------------------------------------------------------------------------


def _replace_symbol(source: SourceText, change: CodeChange) -> _Edit:
    """Replace the whole definition of the target; the new code gets the line ends of the old."""
    start, end = _require_quoted_span(source, change)
    code = _require_definition(source, change, source.indentation_at(start) or "")
    text = source.text[:start] + code.replace("\n", source.newline_after(start)) + source.text[end:]
    return _Edit(text, _mask_target(change), _mask_target(change))


def _add_symbol(source: SourceText, change: CodeChange) -> _Edit:
    """Add a definition at the end of its class or module; raise GBE310 if its name is already bound there."""
    place = placement.find_insertion_point(source, change.target)
    line = bound_line(place.body, change.target.rpartition(".")[2])
    if line:
        more = {"target": change.target, "line": line, "nearest": repr(source.line(line).strip())}
        advice = "Choose another name, or change the existing code with `replace_symbol`."
        raise EditError("GBE310", where=source.place(line), advice=advice, **more)
    container = change.target.rpartition(".")[0]
    if container and (change.old_code or change.base_sha256):  # here they quote the class that gets the symbol
        _require_quoted_span(source, replace(change, target=container))
    code = place.indentation + _require_definition(source, change, place.indentation)
    text = placement.insert_code(source, place, code.replace("\n", source.newline))
    return _Edit(text, _mask_nothing, _mask_removed(change))


def _delete_symbol(source: SourceText, change: CodeChange) -> _Edit:
    """Delete a definition; raise GBE315 if it is the only statement of its block."""
    start, end = _require_quoted_span(source, change)
    symbol = find_definition(source, change.target)
    if len(symbol.body) == 1:
        where, reason = source.place(symbol.node.lineno), "its block would be empty without it"
        raise EditError("GBE315", where=where, target=change.target, reason=reason)
    return _Edit(placement.remove_lines(source, start, end), _mask_removed(change), _mask_nothing)


def _set_decorator_argument(source: SourceText, change: CodeChange) -> _Edit:
    """Set arguments of a decorator of the target; raise an EditError as `placement.set_decorator_arguments`."""
    _require_quoted_span(source, change)
    return _Edit(placement.set_decorator_arguments(source, change), _mask_target(change), _mask_target(change))


def _add_import(source: SourceText, change: CodeChange) -> _Edit:
    """Add the imports that the module lacks; raise GBE309 if the new code has any other statement."""
    try:
        body = statements_of(trim_blank_lines(change.new_code))
    except SyntaxError as reason:
        raise _malformed_error(source, change, "import statements", f"{_NOT_PYTHON}, {reason.msg}") from None
    imports = [node for node in body if isinstance(node, placement.ImportStatement)]
    if not imports or len(imports) < len(body):
        raise _malformed_error(source, change, "import statements", _describe_statements(body))
    fresh = placement.missing_imports(source, imports)
    return _Edit(placement.add_imports(source, fresh), _mask_nothing, _mask_imports(fresh))


def _search_replace(source: SourceText, change: CodeChange) -> _Edit:
    """Replace the only place of `old_code` in the target; raise GBE307 if it has none, GBE308 if it has several."""
    if not change.old_code.strip():
        raise EditError("GBE313", where=source.place(), target=_describe_target(change))
    start, end = _find_search_region(source, change)
    region = with_lf(source.text[start:end])
    found = _find_replacement(region, with_lf(change.old_code), with_lf(change.new_code))
    first = source.line_at(start)
    if isinstance(found, _Splice):
        mask = _mask_target(change) if change.target else _mask_all
        return _Edit(_apply_splice(source, start, end, found), mask, mask)
    if not found:
        nearest = _describe_similar_lines(region, change.old_code, first)
        raise EditError("GBE307", where=source.place(first), target=_describe_target(change), nearest=nearest)
    where, shown = source.place(first + found[0]), ", ".join(str(first + line) for line in found)
    raise EditError("GBE308", where=where, target=_describe_target(change), count=len(found), lines=shown)


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
    """Return start and end of a definition in the text, decorators included; raise GBE301 or GBE302 as `find_definition`."""
    node = find_definition(source, target).node
    return start_of(source, node), source.end_of(node)


def _require_quoted_span(source: SourceText, change: CodeChange) -> tuple[int, int]:
    """Return start and end of the target in the text.

    Raises:
        EditError: GBE301 or GBE302, the file does not define it exactly once; GBE303, its text is not the one that the change
            quotes; GBE313, the change quotes none.
    """
    start, end = _definition_span(source, change.target)
    if not change.old_code and not change.base_sha256:
        raise EditError("GBE313", where=source.place(source.line_at(start)), target=change.target)
    quoted, here = with_lf(change.old_code).rstrip("\n"), with_lf(source.text[start:end])
    commented = _end_of_comment(source, end)
    if quoted and quoted == with_lf(source.text[start:commented]):
        here, end = quoted, commented
    if quoted and quoted not in (here, (source.indentation_at(start) or "") + here):
        raise _stale_error(source, change, start, _describe_first_difference(here, quoted, source.line_at(start)))
    _check_digest(source, change, start, end)
    return start, end


def _find_search_region(source: SourceText, change: CodeChange) -> tuple[int, int]:
    """Return start and end of the lines to search: those of the target, or all. Raise GBE303 if their digest does not fit."""
    start, end = _definition_span(source, change.target) if change.target else (0, len(source.text))
    _check_digest(source, change, start, end)
    return source.line_start(source.line_at(start)), source.line_end(source.line_at(end))


def _check_digest(source: SourceText, change: CodeChange, start: int, end: int) -> None:
    """Raise GBE303 if the change gives a digest that does not fit the text from `start` to `end`; do nothing without a digest.

    A digest fits if it is that of the text in one of these forms: with or without the indentation of its first line, with or
    without a line end after it, with LF or the file's line ends.
    """
    text, indentation = source.text[start:end], source.indentation_at(start) or ""
    texts = (text, with_lf(text))
    written = {before + each + after for before in ("", indentation) for each in texts for after in ("", "\n")}
    if change.base_sha256 and change.base_sha256 not in {hashlib.sha256(each.encode()).hexdigest() for each in written}:
        raise _stale_error(source, change, start, "The digest in `base_sha256` is not that of this code.")


def _stale_error(source: SourceText, change: CodeChange, start: int, nearest: str) -> EditError:
    """Return GBE303 for the target at position `start`; `nearest` is a sentence about the difference."""
    return EditError(
        "GBE303", where=source.place(source.line_at(start)), target=_describe_target(change), nearest=nearest
    )


def _describe_first_difference(here: str, quoted: str, first: int) -> str:
    """Describe the first line, counted from `first`, in which the text of the file (`here`) differs from the quoted one."""
    lines = zip_longest(here.split("\n"), quoted.split("\n"), fillvalue="")
    number, (is_now, was) = next((number, pair) for number, pair in enumerate(lines, first) if pair[0] != pair[1])
    return f"Line {number} is now {is_now.strip()!r}; the change has {was.strip()!r}."


def _describe_similar_lines(region: str, old: str, first: int) -> str:
    """Return a sentence that lists the lines of a region, from line `first`, that resemble the first line of `old`."""
    from difflib import get_close_matches

    lines = [line.strip() for line in region.split("\n")]
    quoted = next(line.strip() for line in with_lf(old).split("\n") if line.strip())
    similar = get_close_matches(quoted, lines, n=3)
    listed = ", ".join(f"line {number} {line!r}" for number, line in enumerate(lines, first) if line in similar)
    return f"The most similar lines: {listed}." if listed else "No line is similar to the first line of the text."


# --- does the new code fit the operation? ------------------------------------------------------


def _require_definition(source: SourceText, change: CodeChange, indentation: str) -> str:
    """Return the new code for a place that has the `indentation`; raise GBE309 unless it is one definition of the target."""
    name = change.target.rpartition(".")[2]
    expected = f"one definition of {name}"
    try:
        code = indent_definition(change.new_code, indentation)
        body = statements_of(indentation + code)
    except SyntaxError as reason:
        raise _malformed_error(source, change, expected, f"{_NOT_PYTHON}, {reason.msg}") from None
    if len(body) != 1 or not isinstance(body[0], Definition) or body[0].name != name:
        raise _malformed_error(source, change, expected, _describe_statements(body))
    return code


def _malformed_error(source: SourceText, change: CodeChange, expected: str, found: str) -> EditError:
    """Return GBE309: the new code is `found` instead of `expected`."""
    first = repr(trim_blank_lines(change.new_code).partition("\n")[0])
    advice = f"Write only {expected} in `new_code`."
    if found.startswith(_NOT_PYTHON):
        advice = "Correct the syntax of `new_code`."
    elif change.operation == "add_import":
        advice = "Use `add_symbol` to add a class or function, or `search_replace` for other code."
    more = {"operation": change.operation, "expected": expected, "found": found, "advice": advice, "nearest": first}
    return EditError("GBE309", where=source.place(), **more)


def _describe_target(change: CodeChange) -> str:
    """Return the target of a change for a message."""
    return change.target or "the module"


def _parse_result(after: SourceText, change: CodeChange) -> ast.Module:
    """Return the syntax tree of the changed file, or raise GBE306 with the line that does not parse."""
    try:
        return parse(after.text)
    except SyntaxError as reason:
        line = min(reason.lineno or 1, len(after.line_starts))
        more = {"target": _describe_target(change), "reason": reason.msg, "nearest": repr(after.line(line).strip())}
        raise EditError("GBE306", where=after.place(line), **more) from None


# --- the proof: without the target, both trees are equal ----------------------------------------


def _touches_more_error(after: SourceText, change: CodeChange, line: int) -> EditError:
    """Return GBE305 for a line outside of the target that the change altered."""
    near = repr(after.line(line).strip())
    return EditError("GBE305", where=after.place(line), target=_describe_target(change), line=line, nearest=near)


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
    """Replace the target in the syntax tree by statements; raise GBE305 if the file does not define it exactly once."""
    try:
        symbol = find_definition(source, change.target)
    except EditError as error:
        raise _touches_more_error(source, change, error.where.line if error.where else 1) from None
    symbol.body[symbol.at : symbol.at + 1] = statements


def _mask_imports(imports: list[placement.ImportStatement]) -> _Mask:
    """Return a mask that removes these imports from the top level of a module; only one side has them."""

    def remove_imports(source: SourceText) -> None:
        wanted = {ast.dump(node) for node in imports}
        source.tree.body[:] = [node for node in source.tree.body if ast.dump(node) not in wanted]

    return remove_imports


_NOT_PYTHON = "not valid Python"

_STATEMENT_NAMES = {
    "ClassDef": "the class",
    "FunctionDef": "the function",
    "AsyncFunctionDef": "the function",
    "Expr": "an expression",
    "Assign": "an assignment",
    "AnnAssign": "an assignment",
    "ImportFrom": "an import",
}
"""Kind of statement -> its name in messages; the others are named by their keyword."""


def _describe_statements(body: list[ast.stmt]) -> str:
    """Return a list of the statements for an error message, e.g. `the class Order, an expression`; `empty` if there are none."""
    kinds = (
        _STATEMENT_NAMES.get(type(node).__name__, f"the statement `{type(node).__name__.lower()}`") for node in body
    )
    shown = (f"{kind} {getattr(node, 'name', '')}".rstrip() for kind, node in zip(kinds, body, strict=True))
    return ", ".join(shown) or "empty"


# --- search_replace ----------------------------------------------------------------------------
#
# The quoted text is searched exactly, then ignoring trailing whitespace, then with another common indentation. A match counts
# only if no other place matches in the same way. Text that is merely similar never matches. Line ends are LF here.


class _Splice(NamedTuple):
    """The replacement of `region[start:end]` by `text`."""

    start: int
    end: int
    text: str


class _Match(NamedTuple):
    """A place where quoted lines match, from line `first` of the region (0 is its first line).

    Each line of the file begins with `added` where the quoted line begins with `removed`.
    """

    first: int
    added: str = ""
    removed: str = ""


def _find_replacement(region: str, old: str, new: str) -> _Splice | tuple[int, ...]:
    """Return the replacement of `old` by `new` if a region has exactly one place for it.

    Otherwise return the lines (from 0) at which its places begin: empty if there is none.
    """
    starts = _find_occurrences(region, old)
    if len(starts) > 1:
        return tuple(region.count("\n", 0, start) for start in starts)
    if starts and not _is_unindented_line(region, starts[0], old, new):
        return _Splice(starts[0], starts[0] + len(old), new)
    # Compare by lines, so that the new lines get the indentation of the file.
    lines, wanted = region.split("\n"), _split_lines(old)
    found = _find_matches([line.rstrip() for line in lines], [line.rstrip() for line in wanted])
    if len(found) != 1:
        return tuple(match.first for match in found)
    return _replace_lines(lines, found[0], wanted, _split_lines(new))


def _is_unindented_line(region: str, start: int, old: str, new: str) -> bool:
    """True if `old` is a whole line of the file quoted without its indentation, and `new` has a further line without it."""
    lead = region[region.rfind("\n", 0, start) + 1 : start]
    rest = region[start + len(old.rstrip("\n")) :].partition("\n")[0]
    is_whole = bool(lead) and not lead.strip() and not rest.strip() and "\n" not in old.rstrip("\n")
    return is_whole and any(line.strip() and not leading_whitespace(line) for line in new.split("\n")[1:])


def _find_occurrences(text: str, part: str) -> list[int]:
    """Return the positions of a non-empty part in a text, overlapping ones included."""
    found = []
    start = text.find(part)
    while start >= 0:
        found.append(start)
        start = text.find(part, start + 1)
    return found


def _split_lines(text: str) -> list[str]:
    """Split a text with LF line ends; a last line end adds no empty line."""
    return text.removesuffix("\n").split("\n") if text else []


def _find_matches(have: list[str], wanted: list[str]) -> list[_Match]:
    """Return the places where lines match exactly, or if there are none, those where they match with another indentation.

    The caller has removed trailing whitespace from all lines, and one of the wanted lines is not empty.
    """
    places = range(len(have) - len(wanted) + 1)
    exact = [_Match(at) for at in places if have[at : at + len(wanted)] == wanted]
    return exact or [match for at in places if (match := _find_shifted_match(have, wanted, at))]


def _find_shifted_match(have: list[str], wanted: list[str], at: int) -> _Match | None:
    """Return the match at line `at` if the lines differ from the wanted ones by one common indentation; else None."""
    lead = next(index for index, line in enumerate(wanted) if line)
    here, quoted = leading_whitespace(have[at + lead]), leading_whitespace(wanted[lead])
    added = here.removesuffix(quoted) if here.endswith(quoted) else ""
    removed = quoted.removesuffix(here) if quoted.endswith(here) else ""
    if not added + removed or any(line and not line.startswith(removed) for line in wanted):
        return None
    moved = [added + line[len(removed) :] if line else "" for line in wanted]
    return _Match(at, added, removed) if have[at : at + len(wanted)] == moved else None


def _replace_lines(region: list[str], match: _Match, old: list[str], new: list[str]) -> _Splice:
    """Return the replacement of the matching lines of a region by new ones, which get the indentation of the file.

    If there are no new lines, the line end of the old ones is removed as well.
    """
    last = match.first + len(old)
    start = sum(len(line) + 1 for line in region[: match.first])
    end = start + sum(len(line) + 1 for line in region[match.first : last]) - 1
    if not new:
        has_next = last < len(region)
        return _Splice(start if has_next else max(start - 1, 0), end + has_next, "")
    # If the quoted text has multi-line strings, it matched with them shifted, so those of the new text are shifted too.
    fixed = () if _find_lines_inside_strings("\n".join(old)) else _find_lines_inside_strings("\n".join(new))
    return _Splice(start, end, reindent("\n".join(new), match.removed, match.added, fixed))


def _find_lines_inside_strings(fragment: str) -> Collection[int]:
    """Return the numbers (from 1) of lines that begin inside a string; empty if the fragment is not complete Python."""
    try:
        return lines_inside_strings(fragment)
    except SyntaxError:
        return ()  # then all its lines are shifted


def _apply_splice(source: SourceText, start: int, end: int, splice: _Splice) -> str:
    """Return the text of the file after a splice, whose positions count in the LF form of `source.text[start:end]`."""
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
