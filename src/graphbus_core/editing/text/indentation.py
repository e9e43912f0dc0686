"""New code, written at whatever indentation, made to fit the place where it goes; the inside of strings is never moved."""

from __future__ import annotations

import ast
from collections.abc import Collection

from graphbus_core.editing.text.source_text import lines_inside_strings, parse, with_lf
from graphbus_core.editing.text.symbols import Definition


def trimmed(code: str) -> str:
    """Give the code with LF line ends, without blank lines around it."""
    lines = with_lf(code).rstrip(" \t\f\n").split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def leading_blanks(line: str) -> str:
    """The indentation of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def shifted(code: str, old: str, new: str, fixed: Collection[int]) -> str:
    """Replace the indentation `old` by `new` on each line that has it, but not on blank lines and those numbered in `fixed`."""
    lines = code.split("\n")
    for number, line in enumerate(lines, 1):
        if number not in fixed and line.strip() and line.startswith(old):
            lines[number - 1] = new + line[len(old) :]
    return "\n".join(lines)


def statements_of(code: str) -> list[ast.stmt]:
    """Parse code that may be indented as a whole.

    Raises:
        SyntaxError: It does not parse, or a part of it is indented less than its first line.
    """
    if not leading_blanks(code):
        return parse(code).body
    tree = parse(f"if 1:\n{code}")
    block = tree.body[0]
    if len(tree.body) > 1 or not isinstance(block, ast.If) or block.orelse:
        raise SyntaxError("its lines are indented less than its first line")
    return block.body


def fitted(code: str, indentation: str) -> str:
    """Give one definition as it must be written where its first line already has its indentation.

    Three ways of writing are understood: as it stands in the file with or without the blanks before its first line, and
    indented as a whole in any other way, usually not at all.

    Raises:
        SyntaxError: The code does not parse in any of them.
    """
    code = trimmed(code)
    base = leading_blanks(code)
    if base == indentation:
        statements_of(code)
        return code[len(base) :]
    if not base and stands_in_file(code, indentation):
        return code
    statements_of(code)
    inside = lines_inside_strings(f"if 1:\n{code}" if base else code)
    fixed = {number - 1 for number in inside} if base else inside
    return shifted(code, base, indentation, fixed)[len(indentation) :]


def stands_in_file(code: str, indentation: str) -> bool:
    """True when the code parses as it is after the indentation of its place: all lines but the first have theirs already."""
    try:
        body = statements_of(indentation + code)
    except SyntaxError:
        return False
    return len(body) == 1


def described(body: list[ast.stmt]) -> str:
    """Say what the statements are, for a refusal."""
    names = [
        f"{type(node).__name__} {node.name}" if isinstance(node, Definition) else type(node).__name__ for node in body
    ]
    return ", ".join(names) or "nothing"
