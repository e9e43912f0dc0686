"""Gives new code the indentation of the place where it goes; lines inside of strings keep theirs."""

from __future__ import annotations

import ast
from collections.abc import Collection

from graphbus_core.editing.text.source_text import lines_inside_strings, parse, with_lf


def trim_blank_lines(code: str) -> str:
    """Return the code with LF line ends, without blank lines before and after it."""
    lines = with_lf(code).rstrip(" \t\f\n").split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def reindent(code: str, old: str, new: str, fixed: Collection[int]) -> str:
    """Replace the indentation `old` by `new` where a line begins with it, except blank lines and the line numbers in `fixed`."""
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        if number not in fixed and line.strip() and line.startswith(old):
            lines[number - 1] = new + line[len(old) :]
    return "\n".join(lines)


def statements_of(code: str) -> list[ast.stmt]:
    """Return the statements of code that may be indented as a whole.

    Raises:
        SyntaxError: It does not parse, or a line is indented less than the first one.
    """
    if not leading_whitespace(code):
        return parse(code).body
    tree = parse(f"if 1:\n{code}")
    block = tree.body[0]
    if len(tree.body) > 1 or not isinstance(block, ast.If) or block.orelse:
        raise SyntaxError("its lines are indented less than its first line")
    return block.body


def indent_definition(code: str, indentation: str) -> str:
    """Return a definition with all its lines but the first indented for a place in the file.

    The place already has the `indentation` of the first line. Two forms of code are accepted: code that is indented as in the
    file, with or without the indentation of its first line, and code with any other common indentation, usually none.

    Raises:
        SyntaxError: The code does not parse in any of these forms.
    """
    code = trim_blank_lines(code)
    base = leading_whitespace(code)
    if not base and _is_already_indented(code, indentation):
        return code
    statements_of(code)
    if base == indentation:
        return code[len(base) :]
    return indent_block(code, indentation)[len(indentation) :]


def indent_block(code: str, indentation: str) -> str:
    """Give code with any common indentation another one; the lines inside of strings stay as they are."""
    base = leading_whitespace(code)
    inside = lines_inside_strings(f"if 1:\n{code}" if base else code)
    fixed = {number - 1 for number in inside} if base else inside
    return reindent(code, base, indentation, fixed)


def _is_already_indented(code: str, indentation: str) -> bool:
    """True if only the first line of the code lacks the indentation: with it, the code parses as one statement."""
    try:
        return len(statements_of(indentation + code)) == 1
    except SyntaxError:
        return False


def leading_whitespace(line: str) -> str:
    """Return the spaces and tabs at the start of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]
