"""Classes, functions and methods of a file by their qualified names, and trees compared without their positions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from graphbus_core.editing.text.source_text import SourceText
from graphbus_core.errors import EditError, did_you_mean

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_OWN_SCOPE = (
    *(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


class Symbol(NamedTuple):
    """One definition: its node stands at `body[at]`."""

    name: str
    node: Definition
    body: list[ast.stmt]
    at: int


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Give the statement lists of a compound statement, as far as they share its scope."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def definitions(tree: ast.Module) -> Iterator[Symbol]:
    """Give every class, function and method outside of functions, in no particular order."""
    waiting: list[tuple[str, list[ast.stmt]]] = [("", tree.body)]
    while waiting:
        prefix, body = waiting.pop()
        for index, node in enumerate(body):
            if isinstance(node, Definition):
                name = prefix + node.name
                yield Symbol(name, node, body, index)
                if isinstance(node, ast.ClassDef):
                    waiting.append((f"{name}.", node.body))
            else:
                waiting.extend((prefix, block) for block in blocks(node))


def find(source: SourceText, target: str) -> Symbol:
    """Give the one definition of a qualified name.

    Raises:
        EditError: There is none, or more than one (overloads, property setters, definitions in if and else).
    """
    everything = sorted(definitions(source.tree), key=lambda symbol: symbol.node.lineno)
    found = [symbol for symbol in everything if symbol.name == target]
    if not found:
        names = list(dict.fromkeys(symbol.name for symbol in everything))
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise EditError(
            "GBE301",
            where=source.place(),
            target=target,
            suggestion=did_you_mean(target, names),
            known=shown or "no definitions",
        )
    if len(found) > 1:
        lines = [symbol.node.lineno for symbol in found]
        raise EditError(
            "GBE302",
            where=source.place(lines[0]),
            target=target,
            count=len(found),
            lines=", ".join(map(str, lines)),
        )
    return found[0]


def start_of(source: SourceText, node: Definition) -> int:
    """Where a definition begins in the text: at the `@` of its first decorator, else at its keyword."""
    if not node.decorator_list:
        return source.start_of(node)
    line = node.decorator_list[0].lineno
    while not source.line(line).lstrip().startswith("@"):  # the expression may stand in brackets below its @
        line -= 1
    return source.line_start(line) + source.line(line).index("@")


def bound_line(body: list[ast.stmt], name: str) -> int:
    """Give the line of this scope that binds a name, or 0: definitions, imports, assignments, loops, with, except."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if name in _names_bound_by(node):
            return getattr(node, "lineno", 1)
        if not isinstance(node, _OWN_SCOPE):
            waiting.extend(ast.iter_child_nodes(node))
    return 0


def _names_bound_by(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, Definition):
        return (node.name,)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return (node.id,)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return tuple(imported_names(node))
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        return (node.name,)
    return ()


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The names that an import binds."""
    is_plain = isinstance(node, ast.Import)
    return [alias.asname or (alias.name.partition(".")[0] if is_plain else alias.name) for alias in node.names]


def first_difference(one: ast.AST, other: ast.AST) -> int | None:
    """Compare two trees without their positions; give None when they are equal, else the line of `other` near the difference."""
    waiting: list[tuple[object, object, int]] = [(one, other, 1)]
    while waiting:
        left, right, line = waiting.pop()
        if left is right:
            continue
        if type(left) is not type(right):
            return line
        if isinstance(left, ast.AST) and isinstance(right, ast.AST):
            line = getattr(right, "lineno", line)
            waiting.extend(
                (getattr(left, name, None), getattr(right, name, None), line) for name in reversed(left._fields)
            )
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return _line_of_extra(left, right, line)
            waiting.extend((a, b, line) for a, b in zip(reversed(left), reversed(right), strict=True))
        elif left != right or repr(left) != repr(right):  # 0.0 and -0.0 are equal, but not the same code
            return line
    return None


def _line_of_extra(left: list[object], right: list[object], line: int) -> int:
    """Where the lists part; the same kind of statement at the same place counts as the same here."""
    for index, node in enumerate(right):
        if index >= len(left) or _kind(left[index]) != _kind(node):
            return getattr(node, "lineno", line)
    return line


def _kind(node: object) -> tuple[str, object]:
    return type(node).__name__, getattr(node, "name", None)
