"""Where new definitions, imports and arguments of decorators go in a file, and which lines leave with a deleted one."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from graphbus_core.editing.text.source_text import SourceText, bound_line, find, imported_names, parse, tokens, with_lf
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange


def with_arguments(source: SourceText, change: CodeChange) -> str:
    """Give the text with the arguments of `change.new_code`, written `name(value, keyword=value)`, set in that decorator.

    Raises:
        EditError: The target has no such decorator or several, or the arguments cannot be set one by one.
    """
    code = change.new_code.strip().removeprefix("@").strip()
    wanted = _call(source, change, code)
    name = ast.unparse(wanted.func)
    nodes = [node for node in find(source, change.target).node.decorator_list if _name(node) == name]
    if len(nodes) != 1:
        raise _refused(source, change, name, "there is none" if not nodes else f"there are {len(nodes)}")
    old = nodes[0]
    if not isinstance(old, ast.Call):
        return source.text[: source.start_of(old)] + _written(source, code) + source.text[source.end_of(old) :]
    is_longer = len(wanted.args) > len(old.args)
    if (is_longer and old.keywords) or any(isinstance(node, ast.Starred) for node in old.args):
        raise _refused(source, change, name, "its positional arguments do not line up")
    return _spliced(source, old, wanted, code)


def _call(source: SourceText, change: CodeChange, code: str) -> ast.Call:
    try:
        body = parse(code).body
    except SyntaxError as reason:
        raise _refused(source, change, "", f"the new arguments are not valid Python, {reason.msg}") from None
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    if not isinstance(call, ast.Call):
        raise _refused(source, change, "", "the new arguments must be written as name(argument=value)")
    stars = [value for value in call.args if isinstance(value, ast.Starred)]
    if stars or not (call.args or call.keywords) or not all(word.arg for word in call.keywords):
        raise _refused(source, change, ast.unparse(call.func), "only single arguments can be set")
    return call


def _name(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _refused(source: SourceText, change: CodeChange, name: str, reason: str) -> EditError:
    node = find(source, change.target).node
    shown = ", ".join(f"@{_name(decorator)}" for decorator in node.decorator_list) or "none"
    where = source.place(node.lineno)
    return EditError(
        "GBE314", where=where, target=change.target, name=name and f" {name}", reason=reason, nearest=shown
    )


def _written(source: SourceText, code: str) -> str:
    return with_lf(code).replace("\n", source.newline)


def _spliced(source: SourceText, old: ast.Call, wanted: ast.Call, code: str) -> str:
    """Replace the values that are there, from the last to the first, and append the others."""

    def text_of(node: ast.AST) -> str:
        return _written(source, ast.get_source_segment(code, node) or "")

    present = {word.arg: word.value for word in old.keywords}
    changes = [*zip(old.args, wanted.args, strict=False)]
    changes += [(present[word.arg], word.value) for word in wanted.keywords if word.arg in present]
    splices = [(source.start_of(there), source.end_of(there), text_of(value)) for there, value in changes]
    added = [*wanted.args[len(old.args) :], *(word for word in wanted.keywords if word.arg not in present)]
    if added:
        at, lead = _end_of_arguments(source, old)
        splices.append((at, at, lead + ", ".join(map(text_of, added))))
    text = source.text
    for start, end, value in sorted(splices, reverse=True):
        text = text[:start] + value + text[end:]
    return text


def _end_of_arguments(source: SourceText, call: ast.Call) -> tuple[int, str]:
    """Give the place behind the last argument, before any comment, and what has to separate the next one from it."""
    start, end = source.start_of(call), source.end_of(call)
    segment = source.text[start:end]
    inside = [
        token for token in tokens(with_lf(segment))[:-1] if token.string.strip() and not token.string.startswith("#")
    ]
    last = inside[-2]  # the one before the closing bracket
    first_line = source.line_at(start)
    column = last.end[1] + (start - source.line_start(first_line) if last.end[0] == 1 else 0)
    at = source.line_start(first_line + last.end[0] - 1) + column
    return at, {"(": "", ",": " "}.get(last.string, ", ")


Import = ast.Import | ast.ImportFrom

_HEAD_LINE = re.compile(r"#!|#.*coding[:=]")


class Place(NamedTuple):
    """Where a new definition goes: among the statements `body`, behind line `after_line` (0: at the top)."""

    body: list[ast.stmt]
    after_line: int
    indentation: str
    blank_lines: int


def for_symbol(source: SourceText, target: str) -> Place:
    """Find the end of the block that a new symbol belongs to; in a module that is before `if __name__ == "__main__":`.

    Raises:
        EditError: Its class is missing, ambiguous or written on one line.
    """
    container, _, _ = target.rpartition(".")
    if not container:
        body = source.tree.body
        inner = body[:-1] if body and _is_main_guard(body[-1]) else body
        return Place(body, _last_line(inner) if inner else _head_lines(source), "", 2)
    node = find(source, container).node
    indentation = source.indentation_at(source.start_of(node.body[0]))
    if not isinstance(node, ast.ClassDef) or indentation is None:
        reason = f"{container} is not a class whose body has lines of its own"
        raise EditError("GBE315", where=source.place(node.lineno), target=target, reason=reason)
    return Place(node.body, _last_line(node.body), indentation, 1)


def inserted(source: SourceText, place: Place, code: str) -> str:
    """Give the text with the code, its first line already indented, at its place."""
    newline = source.newline
    at = source.line_start(place.after_line + 1)
    before = source.text[:at]
    gap = newline * place.blank_lines if before.strip() else ""
    if before and not before.endswith(("\n", "\r")):
        gap += newline
    return f"{before}{gap}{code}{newline}{source.text[at:]}"


def without_lines(source: SourceText, start: int, end: int) -> str:
    """Give the text without the whole lines from one position to another, and without the blank lines before them."""
    first, last = source.line_at(start), source.line_at(end)
    while first > 1 and not source.line(first - 1).strip():
        first -= 1
    return source.text[: source.line_start(first)] + source.text[source.line_start(last + 1) :]


def missing_imports(source: SourceText, imports: list[Import]) -> list[Import]:
    """Give those imports that the module does not have yet.

    Raises:
        EditError: One of them binds a name that the module uses for something else.
    """
    body = source.tree.body
    present = [single for node in body for single in _singles(node)]
    known = {ast.dump(single) for single in present}
    packages = {single.names[0].name.partition(".")[0] for single in present if _is_plain(single)}
    fresh = [single for node in imports for single in _singles(node) if ast.dump(single) not in known]
    for single in fresh:
        name = imported_names(single)[0]
        line = bound_line(body, name)
        if line and not (_is_plain(single) and name in packages):  # `os` is both `import os` and `import os.path`
            nearest = f"That line reads {source.line(line).strip()!r}."
            raise EditError("GBE310", where=source.place(line), target=name, line=line, nearest=nearest)
    return [node for node in imports if any(ast.dump(single) not in known for single in _singles(node))]


def _is_plain(node: Import) -> bool:
    return isinstance(node, ast.Import) and node.names[0].asname is None


def with_imports(source: SourceText, imports: list[Import]) -> str:
    """Give the text with further imports behind those at its head; `__future__` comes first."""
    for node in imports:
        source = _with_import(source, node)
    return source.text


def _with_import(source: SourceText, node: Import) -> SourceText:
    is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level
    after_line, follows_import = _import_line(source, is_future)
    at = source.line_start(after_line + 1)
    before, behind = source.text[:at], source.text[at:]
    newline = source.newline
    if before and not before.endswith(("\n", "\r")):
        before += newline
    if before.strip() and not follows_import and source.line(after_line).strip():
        before += newline
    gap = newline if not follows_import and behind.strip() and behind[:1] not in "\r\n" else ""
    return source.with_text(f"{before}{ast.unparse(node)}{newline}{gap}{behind}")


def _import_line(source: SourceText, is_future: bool) -> tuple[int, bool]:
    """Give the line behind which an import goes, and whether an import ends there."""
    body = source.tree.body
    has_docstring = ast.get_docstring(source.tree, clean=False) is not None
    count = int(has_docstring)
    while count < len(body) and _is_head_import(body[count], is_future):
        count += 1
    if count == 0:
        return _head_lines(source), False
    line = _last_line(body[:count])
    while count < len(body) and body[count].lineno <= line:  # `import a; x = 1`: behind all of the line
        line = _last_line(body[: count + 1])
        count += 1
    return line, count > has_docstring


def _is_head_import(node: ast.stmt, is_future: bool) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return True
    return not is_future and isinstance(node, Import)


def _singles(node: ast.stmt) -> list[Import]:
    """Take an import of several names apart."""
    if isinstance(node, ast.Import):
        return [ast.Import([alias]) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
    return []


def _head_lines(source: SourceText) -> int:
    """Count the lines at the top that must stay there: `#!` and the coding line."""
    count = 0
    while count < 2 and _HEAD_LINE.match(source.line(count + 1)):
        count += 1
    return count


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ ")


def _last_line(body: list[ast.stmt]) -> int:
    return body[-1].end_lineno or 0
