"""Inserts definitions, imports and decorator arguments into a file at the right place, and removes the lines of deleted ones."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from graphbus_core.editing.text.source_text import (
    SourceText,
    bound_line,
    find_definition,
    imported_names,
    parse,
    tokenize_text,
    with_lf,
)
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange


def set_decorator_arguments(source: SourceText, change: CodeChange) -> str:
    """Return the text with arguments of a decorator set to those in `change.new_code`, such as `name(value, keyword=value)`.

    Arguments that the decorator has already get the new value; others are appended.

    Raises:
        EditError: GBE314, the target has no such decorator or several, or the arguments cannot be set one by one. GBE301 or
            GBE302, the file does not define the target exactly once.
    """
    code = change.new_code.strip().removeprefix("@").strip()
    wanted = _parse_decorator(source, change, code)
    name = ast.unparse(wanted.func)
    nodes = [
        node for node in find_definition(source, change.target).node.decorator_list if _decorator_name(node) == name
    ]
    if len(nodes) != 1:
        shown = ", ".join(
            f"@{_decorator_name(node)}" for node in find_definition(source, change.target).node.decorator_list
        )
        advice = f"Name one of its decorators: {shown}." if shown and not nodes else _WHOLE_DEFINITION
        reason = f"it occurs {len(nodes)} times" if nodes else f"{change.target} does not have it"
        raise _decorator_error(source, change, name, reason, advice)
    old = nodes[0]
    if not isinstance(old, ast.Call):
        return source.text[: source.start_of(old)] + _with_newlines_of(source, code) + source.text[source.end_of(old) :]
    is_longer = len(wanted.args) > len(old.args)
    if (is_longer and old.keywords) or any(isinstance(node, ast.Starred) for node in old.args):
        reason = "its positional arguments cannot be matched with the new ones"
        raise _decorator_error(source, change, name, reason, "Pass the new arguments as keywords.")
    return _replace_arguments(source, old, wanted, code)


def _parse_decorator(source: SourceText, change: CodeChange, code: str) -> ast.Call:
    """Return the new decorator as a call; raise GBE314 unless it is one with at least one argument and without `*` or `**`."""
    try:
        body = parse(code).body
    except SyntaxError as reason:
        wrong = f"the new arguments are not valid Python, {reason.msg}"
        raise _decorator_error(source, change, "", wrong, _AS_CALL) from None
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    if not isinstance(call, ast.Call):
        raise _decorator_error(source, change, "", "the new arguments are not a call", _AS_CALL)
    stars = [value for value in call.args if isinstance(value, ast.Starred)]
    if stars or not (call.args or call.keywords) or not all(word.arg for word in call.keywords):
        name, wrong = ast.unparse(call.func), "the new arguments must be single values or keywords"
        raise _decorator_error(source, change, name, wrong, "Write each argument out, without `*` and `**`.")
    return call


def _decorator_name(node: ast.expr) -> str:
    """Return the text of a decorator without its arguments."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


_AS_CALL = "Write the new arguments as a call with the name of the decorator: `name(argument=value)`."
_WHOLE_DEFINITION = "Write the whole definition with its decorators with `replace_symbol`."


def _decorator_error(source: SourceText, change: CodeChange, name: str, reason: str, advice: str) -> EditError:
    """Return GBE314 at the line of the target; `name` is empty if the new code does not name a decorator."""
    where, quoted = source.place(find_definition(source, change.target).node.lineno), name and f" `{name}`"
    return EditError("GBE314", where=where, target=change.target, name=quoted, reason=reason, advice=advice)


def _with_newlines_of(source: SourceText, code: str) -> str:
    """Return the code with the line ends of a file."""
    return with_lf(code).replace("\n", source.newline)


def _replace_arguments(source: SourceText, old: ast.Call, wanted: ast.Call, code: str) -> str:
    """Return the text with the arguments of a call set.

    Args:
        old: The call in the file. Its arguments that `wanted` has too get the new values; the others stay.
        wanted: The call with the new arguments, parsed from `code`. Those that `old` lacks are appended.
        code: The text of `wanted`.
    """

    def text_of(node: ast.AST) -> str:
        return _with_newlines_of(source, ast.get_source_segment(code, node) or "")

    present = {word.arg: word.value for word in old.keywords}
    changes = [*zip(old.args, wanted.args, strict=False)]
    changes += [(present[word.arg], word.value) for word in wanted.keywords if word.arg in present]
    splices = [(source.start_of(there), source.end_of(there), text_of(value)) for there, value in changes]
    added = [*wanted.args[len(old.args) :], *(word for word in wanted.keywords if word.arg not in present)]
    if added:
        at, lead = _find_end_of_arguments(source, old)
        splices.append((at, at, lead + ", ".join(map(text_of, added))))
    text = source.text
    for start, end, value in sorted(splices, reverse=True):  # from the end, so that positions stay valid
        text = text[:start] + value + text[end:]
    return text


def _find_end_of_arguments(source: SourceText, call: ast.Call) -> tuple[int, str]:
    """Return the position after the last argument of a call, before any comment, and the separator for the next argument."""
    start, end = source.start_of(call), source.end_of(call)
    segment = source.text[start:end]
    inside = [
        token
        for token in tokenize_text(with_lf(segment))[:-1]
        if token.string.strip() and not token.string.startswith("#")
    ]
    last = inside[-2]  # the one before the closing bracket
    first_line = source.line_at(start)
    column = last.end[1] + (start - source.line_start(first_line) if last.end[0] == 1 else 0)
    at = source.line_start(first_line + last.end[0] - 1) + column
    return at, {"(": "", ",": " "}.get(last.string, ", ")  # after `(` there is no argument, after `,` a trailing comma


ImportStatement = ast.Import | ast.ImportFrom

_HEAD_LINE = re.compile(r"#!|#.*coding[:=]")


class InsertionPoint(NamedTuple):
    """Where a new definition goes: into the statements `body`, after line `after_line` (0: at the top of the file)."""

    body: list[ast.stmt]
    after_line: int
    indentation: str
    blank_lines: int


def find_insertion_point(source: SourceText, target: str) -> InsertionPoint:
    """Return the end of the block that a new symbol belongs to: its class, or the module.

    In a module a symbol goes before a last `if __name__ == "__main__":`.

    Raises:
        EditError: GBE301 or GBE302, its class is not defined exactly once; GBE315, its class is no class or is on one line.
    """
    container, _, _ = target.rpartition(".")
    if not container:
        body = source.tree.body
        inner = body[:-1] if body and _is_main_guard(body[-1]) else body
        return InsertionPoint(body, _last_line(inner) if inner else _count_head_lines(source), "", 2)
    node = find_definition(source, container).node
    indentation = source.indentation_at(source.start_of(node.body[0]))
    if not isinstance(node, ast.ClassDef) or indentation is None:
        reason = f"{container} is not a class whose body is on lines of its own"
        raise EditError("GBE315", where=source.place(node.lineno), target=target, reason=reason)
    return InsertionPoint(node.body, _last_line(node.body), indentation, 1)


def insert_code(source: SourceText, place: InsertionPoint, code: str) -> str:
    """Return the text with a definition inserted at a point, after blank lines. The code must be fully indented."""
    newline = source.newline
    at = source.line_start(place.after_line + 1)
    before = source.text[:at]
    gap = newline * place.blank_lines if before.strip() else ""
    if before and not before.endswith(("\n", "\r")):
        gap += newline
    return f"{before}{gap}{code}{newline}{source.text[at:]}"


def remove_lines(source: SourceText, start: int, end: int) -> str:
    """Return the text without the lines that contain two positions or lie between them, and without blank lines before."""
    first, last = source.line_at(start), source.line_at(end)
    while first > 1 and not source.line(first - 1).strip():
        first -= 1
    return source.text[: source.line_start(first)] + source.text[source.line_start(last + 1) :]


def missing_imports(source: SourceText, imports: list[ImportStatement]) -> list[ImportStatement]:
    """Return those import statements of which the module lacks at least one name.

    Raises:
        EditError: GBE310, one of them binds a name that the module binds to something else.
    """
    body = source.tree.body
    present = [single for node in body for single in _split_import(node)]
    known = {ast.dump(single) for single in present}
    packages = {single.names[0].name.partition(".")[0] for single in present if _is_plain_import(single)}
    fresh = [single for node in imports for single in _split_import(node) if ast.dump(single) not in known]
    for single in fresh:
        name = imported_names(single)[0]
        line = bound_line(body, name)
        # both `import os` and `import os.path` bind `os`, to the same module
        if line and not (_is_plain_import(single) and name in packages):
            nearest, advice = repr(source.line(line).strip()), "Import it under another name: `import ... as ...`."
            raise EditError("GBE310", where=source.place(line), target=name, line=line, nearest=nearest, advice=advice)
    return [node for node in imports if any(ast.dump(single) not in known for single in _split_import(node))]


def _is_plain_import(node: ImportStatement) -> bool:
    """True for `import a.b` without an alias, which binds `a`."""
    return isinstance(node, ast.Import) and node.names[0].asname is None


def add_imports(source: SourceText, imports: list[ImportStatement]) -> str:
    """Return the text with imports added after those at its top; one of `__future__` goes after the others of `__future__`."""
    for node in imports:
        source = _insert_import(source, node)
    return source.text


def _insert_import(source: SourceText, node: ImportStatement) -> SourceText:
    """Return the source with one more import; if it is the first one, with blank lines around it."""
    is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level
    after_line, follows_import = _find_import_line(source, is_future)
    at = source.line_start(after_line + 1)
    before, rest = source.text[:at], source.text[at:]
    newline = source.newline
    if before and not before.endswith(("\n", "\r")):
        before += newline
    if before.strip() and not follows_import and source.line(after_line).strip():
        before += newline
    gap = newline if not follows_import and rest.strip() and rest[:1] not in "\r\n" else ""
    return source.with_text(f"{before}{ast.unparse(node)}{newline}{gap}{rest}")


def _find_import_line(source: SourceText, is_future: bool) -> tuple[int, bool]:
    """Return the number of the line after which an import goes, and whether that line is an import.

    The number is 0 for the top of the file; `is_future` says that the import is one of `__future__`.
    """
    body = source.tree.body
    has_docstring = ast.get_docstring(source.tree, clean=False) is not None
    count = int(has_docstring)
    while count < len(body) and _is_head_import(body[count], is_future):
        count += 1
    if count == 0:
        return _count_head_lines(source), False
    line = _last_line(body[:count])
    while count < len(body) and body[count].lineno <= line:  # `import a; x = 1`: after the whole line
        line = _last_line(body[: count + 1])
        count += 1
    return line, count > has_docstring


def _is_head_import(node: ast.stmt, is_future: bool) -> bool:
    """True for an import after which the new one may go; one of `__future__` may only go after others of `__future__`."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return True
    return not is_future and isinstance(node, ImportStatement)


def _split_import(node: ast.stmt) -> list[ImportStatement]:
    """Return one import for each name that an import statement imports; none for any other statement."""
    if isinstance(node, ast.Import):
        return [ast.Import([alias]) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
    return []


def _count_head_lines(source: SourceText) -> int:
    """Return how many lines must stay at the top of the file: `#!` and the coding line."""
    count = 0
    while count < 2 and _HEAD_LINE.match(source.line(count + 1)):
        count += 1
    return count


def _is_main_guard(node: ast.stmt) -> bool:
    """True for `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ ")


def _last_line(body: list[ast.stmt]) -> int:
    """Return the number of the line on which the last statement ends."""
    return body[-1].end_lineno or 0
