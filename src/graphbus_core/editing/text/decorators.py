"""Single arguments of a decorator, set without touching the rest of its text."""

from __future__ import annotations

import ast

from graphbus_core.editing.text.source_text import SourceText, parse, tokens, with_lf
from graphbus_core.editing.text.symbols import find
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange


def with_arguments(source: SourceText, change: CodeChange) -> str:
    """Give the text with the arguments of `change.new_code`, written `name(value, keyword=value)`, set in that decorator.

    Raises:
        EditError: The target has no such decorator or several, or the arguments cannot be set one by one.
    """
    wanted = _call(source, change)
    name = ast.unparse(wanted.func)
    nodes = [node for node in find(source, change.target).node.decorator_list if _name(node) == name]
    if len(nodes) != 1:
        raise _refused(source, change, name, "there is none" if not nodes else f"there are {len(nodes)}")
    old = nodes[0]
    code = change.new_code.strip().removeprefix("@").strip()
    if not isinstance(old, ast.Call):
        return source.text[: source.start_of(old)] + _written(source, code) + source.text[source.end_of(old) :]
    is_longer = len(wanted.args) > len(old.args)
    if (is_longer and old.keywords) or any(isinstance(node, ast.Starred) for node in old.args):
        raise _refused(source, change, name, "its positional arguments do not line up")
    return _spliced(source, old, wanted, code)


def _call(source: SourceText, change: CodeChange) -> ast.Call:
    code = change.new_code.strip().removeprefix("@").strip()
    try:
        body = parse(code).body
    except SyntaxError as reason:
        raise _refused(source, change, "", f"the new arguments do not parse, {reason.msg}") from None
    node = body[0] if len(body) == 1 else None
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        raise _refused(source, change, "", "the new arguments must be written as name(argument=value)")
    call = node.value
    has_stars = any(isinstance(value, ast.Starred) for value in call.args) or any(
        not word.arg for word in call.keywords
    )
    if has_stars or not (call.args or call.keywords):
        raise _refused(source, change, ast.unparse(call.func), "only single arguments can be set")
    return call


def _name(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def _refused(source: SourceText, change: CodeChange, name: str, reason: str) -> EditError:
    node = find(source, change.target).node
    shown = ", ".join(f"@{_name(decorator)}" for decorator in node.decorator_list) or "none"
    return EditError(
        "GBE314", where=source.place(node.lineno), target=change.target, name=name, reason=reason, nearest=shown
    )


def _written(source: SourceText, code: str) -> str:
    return with_lf(code).replace("\n", source.newline)


def _spliced(source: SourceText, old: ast.Call, wanted: ast.Call, code: str) -> str:
    """Replace the values that are there, from the last to the first, and append the others."""
    present = {word.arg: word.value for word in old.keywords}
    changes: list[tuple[ast.expr, ast.expr]] = list(zip(old.args, wanted.args, strict=False))
    changes += [(present[word.arg], word.value) for word in wanted.keywords if word.arg in present]
    added = [ast.get_source_segment(code, node) or "" for node in wanted.args[len(old.args) :]]
    added += [
        f"{word.arg}={ast.get_source_segment(code, word.value)}" for word in wanted.keywords if word.arg not in present
    ]
    splices = [
        (source.start_of(there), source.end_of(there), _written(source, ast.get_source_segment(code, value) or ""))
        for there, value in changes
    ]
    if added:
        at, lead = _end_of_arguments(source, old)
        splices.append((at, at, lead + _written(source, ", ".join(added))))
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
