"""The entries of a mapping, or the arguments of a call, where they are written.

{"sku": sku, **rest}     dict(sku=sku)     Order(sku=sku)     base | {"sku": sku}     order = {"sku": sku}; order["qty"] = 1
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from graphbus_core.compiler.rules.token_edits import EditedSymbol, Function, Refused, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import last_name


class Entry(NamedTuple):
    """A key of a mapping or the name of an argument, as a node of the syntax tree, and the expression of its value."""

    key: ast.Constant | ast.keyword
    value: ast.expr

    @property
    def name(self) -> str:
        """The key as a string."""
        return str(self.key.arg if isinstance(self.key, ast.keyword) else self.key.value)


def entries_of(expression: ast.expr, within: ast.AST, tree: ast.Module) -> Iterator[Entry]:
    """Yield the entries with constant keys of a mapping, wherever in the file they are written.

    Args:
        expression: The expression that makes the mapping; any other expression has no entries.
        within: The function whose local names are followed.
        tree: The file. If the expression calls a function of the file, the entries are those of the values that it returns.

    Raises:
        Refused: The mapping is held by a local name that is used for something else as well.
    """
    if isinstance(expression, ast.Dict):
        for key, value in zip(expression.keys, expression.values, strict=True):
            if key is None:
                yield from entries_of(value, within, tree)
            elif isinstance(key, ast.Constant):
                yield Entry(key, value)
    elif parts := _split_combined_mapping(expression):
        for part in parts:
            yield from entries_of(part, within, tree)
    elif isinstance(expression, ast.Name):
        yield from _entries_of_local(expression.id, within, tree)
    elif isinstance(expression, ast.Call):
        yield from _entries_of_call(expression, within, tree)


def _entries_of_call(call: ast.Call, within: ast.AST, tree: ast.Module) -> Iterator[Entry]:
    """Yield the arguments of a call that makes a mapping, or the entries of what the called function of the file returns."""
    helper = None if makes_a_mapping(call) else _find_helper(call, within, tree)
    if makes_a_mapping(call):
        yield from arguments_of(call, within, tree)
    elif helper and helper is not within:
        for returned in _returned_expressions(helper):
            yield from entries_of(returned, helper, tree)


def _split_combined_mapping(expression: ast.expr) -> list[ast.expr]:
    """Return the two mappings of `base | more` or of `one if condition else other`; an empty list for anything else."""
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitOr):
        return [expression.left, expression.right]
    return [expression.body, expression.orelse] if isinstance(expression, ast.IfExp) else []


def makes_a_mapping(call: ast.Call) -> bool:
    """Return whether the arguments of a call are entries: it is `dict(...)`, or its name has a capital like that of a class."""
    name = last_name(call.func)
    return name == "dict" or name[:1].isupper()


def arguments_of(call: ast.Call, within: ast.AST, tree: ast.Module) -> Iterator[Entry]:
    """Yield the keyword arguments of a call, and the entries of mappings behind `**` and in `dict(mapping)`."""
    for keyword in call.keywords:
        if keyword.arg:
            yield Entry(keyword, keyword.value)
        else:
            yield from entries_of(keyword.value, within, tree)
    for value in call.args if last_name(call.func) == "dict" else ():
        yield from entries_of(value, within, tree)


def _entries_of_local(local: str, within: ast.AST, tree: ast.Module) -> Iterator[Entry]:
    """Yield the entries of the mapping that a local name holds: those of the assigned expression, and those of `name[key] = …`.

    Raises Refused if the name has more than one further use; unpacking by `**` does not count as a use.
    """
    nodes = list(ast.walk(within))
    uses = [
        node for node in nodes if isinstance(node, ast.Name) and node.id == local and isinstance(node.ctx, ast.Load)
    ]
    stored = [
        Entry(target.slice, node.value)
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets[:1]
        if isinstance(target, ast.Subscript) and target.value in uses and isinstance(target.slice, ast.Constant)
    ]
    unpacked = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg is None]
    unpacked += [
        value
        for node in nodes
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is None
    ]
    if len(uses) - len(stored) - sum(use in unpacked for use in uses) > 1:
        raise Refused("the mapping is used for more than this")
    bound = [value for name, value in assigned_in(within) if name == local]
    # of several assigned expressions any may make the mapping, so all of them must be displays
    for value in bound if len(bound) == 1 or all(isinstance(each, ast.Dict) for each in bound) else ():
        yield from entries_of(value, within, tree)
    yield from stored


def assigned_in(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield `(name, value)` for each assignment of a value to a plain name anywhere below a node."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and value is not None:
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))


def _find_helper(call: ast.Call, within: ast.AST, tree: ast.Module) -> Function | None:
    """Return the function of the file that a call `f(...)` or `self.f(...)` calls; None if that is not certain."""
    is_plain_or_own = isinstance(call.func, ast.Name) or (
        isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "self"
    )
    named = [node for node in ast.walk(tree) if isinstance(node, Function) and node.name == last_name(call.func)]
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and within in node.body]
    in_same_class = [node for node in named if any(node in body for body in bodies)]
    # of several functions with the name, the one in the same class is called
    return (in_same_class or named)[0] if is_plain_or_own and 1 in (len(named), len(in_same_class)) else None


def _returned_expressions(helper: Function) -> list[ast.expr]:
    """Return the expression of each `return` in a function."""
    return [node.value for node in ast.walk(helper) if isinstance(node, ast.Return) and node.value]


def written_mapping(expression: ast.expr, within: ast.AST, tree: ast.Module) -> ast.expr:
    """Return the display or call that makes a mapping, following local names and functions of the file.

    Raises:
        Refused: A name is not assigned exactly once, or a function does not have exactly one `return` with a value.
    """
    if isinstance(expression, ast.Name):
        bound = take_single([made for name, made in assigned_in(within) if name == expression.id])
        return written_mapping(bound, within, tree)
    helper = _find_helper(expression, within, tree) if isinstance(expression, ast.Call) else None
    if helper is None or helper is within:
        return expression
    return written_mapping(take_single(_returned_expressions(helper)), helper, tree)


def rename_entries(edits: TokenEdits, path: str, entries: Iterable[Entry], old: str, new: str) -> None:
    """Rename the key `old` of these entries to `new`.

    Raises:
        Refused: No entry has the key, or the key is not written as a plain string or name.
    """
    keys = [entry.key for entry in entries if entry.name == old]
    for key in keys:
        symbol = edits.at_node(path, key)
        if isinstance(key, ast.keyword):
            symbol.replace_name(key, old, new)
        else:
            symbol.replace_text(key, old, new)
    if not keys:
        raise Refused("it is not known where the key is written")


def add_entry(symbol: EditedSymbol, expression: ast.expr, name: str, value: str) -> None:
    """Add an entry at the end of a dict display or of the arguments of a call; `value` is the source text of its value.

    Raises:
        Refused: The expression is neither a dict display nor a call.
    """
    if isinstance(expression, ast.Dict):
        last, written = expression.values[-1:], f'"{name}": {value}'
    elif isinstance(expression, ast.Call):
        values = [*expression.args, *(each.value for each in expression.keywords)]
        last = sorted(values, key=lambda each: (each.lineno, each.col_offset))[-1:]
        written = f"{name}={value}"
    else:
        raise Refused("it is not known where to write it")
    if last:
        symbol.insert_after(last[0], f", {written}")
    else:
        symbol.insert_before_end(expression, written)
