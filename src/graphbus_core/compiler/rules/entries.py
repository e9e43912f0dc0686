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
    """A key as it is written, and its value."""

    key: ast.Constant | ast.keyword
    value: ast.expr

    @property
    def name(self) -> str:
        """What the key says."""
        return str(self.key.arg if isinstance(self.key, ast.keyword) else self.key.value)


def entries_of(expression: ast.expr, within: ast.AST, tree: ast.Module) -> Iterator[Entry]:
    """Give the entries of a mapping.

    Args:
        expression: What makes it.
        within: The function in which names are followed.
        tree: The file in which helper functions and methods are followed that only return a mapping.

    Raises:
        Refused: A name stands for it that is used otherwise as well.
    """
    if isinstance(expression, ast.Dict):
        for key, value in zip(expression.keys, expression.values, strict=True):
            if key is None:
                yield from entries_of(value, within, tree)
            elif isinstance(key, ast.Constant):
                yield Entry(key, value)
    elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitOr):
        yield from (*entries_of(expression.left, within, tree), *entries_of(expression.right, within, tree))
    elif isinstance(expression, ast.Name):
        yield from _local_entries(expression.id, within, tree)
    elif isinstance(expression, ast.Call) and _makes_a_mapping(expression):
        yield from arguments_of(expression, within, tree)
    elif isinstance(expression, ast.Call) and (helper := _helper(expression, tree)) not in (None, within):
        yield from entries_of(_returned(helper), helper, tree)


def _makes_a_mapping(call: ast.Call) -> bool:
    """Tell whether a call makes an object of its arguments by name: `dict(...)`, or a class."""
    name = last_name(call.func)
    return name == "dict" or name[:1].isupper()


def arguments_of(call: ast.Call, within: ast.AST, tree: ast.Module) -> Iterator[Entry]:
    """Give the arguments by name of a call, those behind `**` included."""
    for keyword in call.keywords:
        if keyword.arg:
            yield Entry(keyword, keyword.value)
        else:
            yield from entries_of(keyword.value, within, tree)
    for value in call.args if last_name(call.func) == "dict" else ():
        yield from entries_of(value, within, tree)


def _local_entries(local: str, within: ast.AST, tree: ast.Module) -> Iterator[Entry]:
    """Follow a name that is bound once in its function, and else only unpacked, joined and given further entries."""
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
    yield from entries_of(take_single([value for bound, value in assigned_in(within) if bound == local]), within, tree)
    yield from stored


def assigned_in(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Give every name that something is assigned to, with the value."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and value is not None:
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))


def _helper(call: ast.Call, tree: ast.Module) -> Function | None:
    """Give the one function or method of the file that is called; None for anything else."""
    is_own = isinstance(call.func, ast.Name) or (
        isinstance(call.func, ast.Attribute) and last_name(call.func.value) == "self"
    )
    named = [node for node in ast.walk(tree) if isinstance(node, Function) and node.name == last_name(call.func)]
    return named[0] if is_own and len(named) == 1 else None


def _returned(helper: Function) -> ast.expr:
    return take_single([node.value for node in ast.walk(helper) if isinstance(node, ast.Return) and node.value])


def written_mapping(expression: ast.expr, within: ast.AST, tree: ast.Module) -> ast.expr:
    """Follow names and helpers to the display or call that makes a mapping."""
    if isinstance(expression, ast.Name):
        bound = take_single([made for name, made in assigned_in(within) if name == expression.id])
        return written_mapping(bound, within, tree)
    helper = _helper(expression, tree) if isinstance(expression, ast.Call) else None
    if helper is None or helper is within:
        return expression
    return written_mapping(_returned(helper), helper, tree)


def rename_entries(edits: TokenEdits, path: str, entries: Iterable[Entry], old: str, new: str) -> None:
    """Give these entries another key.

    Raises:
        Refused: There is none, or a key is not written as plain text.
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
    """Write one more entry at the end of a display or call.

    Raises:
        Refused: The expression is neither.
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
        symbol.insert_behind(last[0], f", {written}")
    else:
        symbol.insert_before_end(expression, written)
