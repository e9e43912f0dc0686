"""Where new definitions and imports go in a file, and which lines leave with a deleted one."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.editing.text.symbols import bound_line, find, imported_names
from graphbus_core.errors import EditError

_HEAD_LINE = re.compile(r"#!|#.*coding[:=]")


class Place(NamedTuple):
    """Where a new definition goes.

    Attributes:
        container: The class it goes into; empty for the module.
        body: The statements beside it.
        after_line: It comes behind this line; 0: at the top.
        indentation: Of its lines.
        blank_lines: How many to leave before it.
    """

    container: str
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
        return Place("", body, _last_line(inner) if inner else _head_lines(source), "", 2)
    node = find(source, container).node
    indentation = source.indentation_at(source.start_of(node.body[0]))
    if not isinstance(node, ast.ClassDef) or indentation is None:
        reason = f"{container} is no class with lines of its own"
        raise EditError("GBE315", where=source.place(node.lineno), target=target, reason=reason)
    return Place(container, node.body, _last_line(node.body), indentation, 1)


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


def missing_imports(
    source: SourceText, imports: list[ast.Import | ast.ImportFrom]
) -> list[ast.Import | ast.ImportFrom]:
    """Give those imports that the module does not have yet.

    Raises:
        EditError: One of them binds a name that the module uses for something else.
    """
    present = {ast.dump(single) for node in source.tree.body for single in _singles(node)}
    fresh = [node for node in imports if any(ast.dump(single) not in present for single in _singles(node))]
    for node in fresh:
        for single in _singles(node):
            name = imported_names(single)[0]
            line = bound_line(source.tree.body, name)
            is_submodule = isinstance(single, ast.Import) and _is_plain_import(source, name)
            if line and ast.dump(single) not in present and not is_submodule:
                nearest = f"There: {source.line(line).strip()!r}."
                raise EditError("GBE310", where=source.place(line), target=name, line=line, nearest=nearest)
    return fresh


def _is_plain_import(source: SourceText, name: str) -> bool:
    """True when every `import` of the module that binds the name is for the package of that name: `os` and `os.path`."""
    return all(
        isinstance(single, ast.Import) and single.names[0].asname is None
        for node in source.tree.body
        for single in _singles(node)
        if name in imported_names(single)
    ) and not bound_line([node for node in source.tree.body if not isinstance(node, ast.Import)], name)


def with_imports(source: SourceText, imports: list[ast.Import | ast.ImportFrom]) -> str:
    """Give the text with further imports behind those at its head; `__future__` comes first."""
    result = source
    for node in imports:
        result = _with_import(result, node)
    return result.text


def _with_import(source: SourceText, node: ast.Import | ast.ImportFrom) -> SourceText:
    is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level
    after_line, follows_import = _import_line(source, is_future)
    at = source.line_start(after_line + 1)
    before, behind = source.text[:at], source.text[at:]
    newline = source.newline
    if before and not before.endswith(("\n", "\r")):
        before += newline
    if before.strip() and not follows_import and not _ends_blank(source, after_line):
        before += newline
    gap = newline if not follows_import and behind.strip() and behind[:1] not in "\r\n" else ""
    return source.with_text(f"{before}{ast.unparse(node)}{newline}{gap}{behind}")


def _ends_blank(source: SourceText, line: int) -> bool:
    return not source.line(line).strip()


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
    return not is_future and isinstance(node, (ast.Import, ast.ImportFrom))


def _singles(node: ast.stmt) -> list[ast.Import | ast.ImportFrom]:
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
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and node.test.left.id == "__name__"
    )


def _last_line(body: list[ast.stmt]) -> int:
    return body[-1].end_lineno or 0
