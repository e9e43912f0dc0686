"""Where a handler has looked at its payload before it reads: behind such a condition a key may be one that is not always sent.

In doubt a read is guarded: GraphBus would rather miss a wrong key than report one that is never read.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphbus_core.compiler.reading.bodies import EVENT_FIELDS, Function, container_root
from graphbus_core.compiler.reading.endings import reaches_end
from graphbus_core.compiler.reading.nodes import children_of, nodes_below

_BLOCKS = ("body", "orelse", "finalbody")
_WITH_BLOCKS = frozenset(
    {
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While, ast.If),
        *(ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.ExceptHandler, ast.match_case),
    }
)
_ASSIGNING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension}
)
_SAYING_NOTHING = frozenset({"bool", "isinstance"})


class Guards:
    """The stretches of a handler that run only when a condition on the payload came out one way.

    Args:
        function: The handler.
        names: The event, the payload, and what else the payload is called.
    """

    def __init__(self, function: Function, names: Iterable[str]) -> None:
        self._payload = frozenset(names)
        self._names = set(names)
        self._stretches: list[tuple[tuple[int, int], tuple[int, int]]] = []
        nodes = nodes_below(function)
        if not _DECIDING.isdisjoint([node.__class__ for node in nodes]):
            self._find(nodes)

    def _find(self, nodes: Sequence[ast.AST]) -> None:
        self._learn(nodes)
        for node in nodes:
            visit = _CONDITIONS.get(node.__class__)
            if visit is not None:
                visit(self, node)
            if node.__class__ in _WITH_BLOCKS:
                for field in _BLOCKS:
                    self._note_rest(getattr(node, field, ()))

    def covers(self, node: ast.expr) -> bool:
        """True when this expression is behind a condition on the payload."""
        return any(first <= (node.lineno, node.col_offset) < last for first, last in self._stretches)

    def _learn(self, nodes: Iterable[ast.AST]) -> None:
        """Take in the names of what is made of the payload as a whole: `keys = event.keys()`, `for key in event`."""
        assigned = map(_assigned, [node for node in nodes if node.__class__ in _ASSIGNING])
        given = [(names, value) for names, value in assigned if names and value is not None]
        is_growing = True
        while is_growing:
            is_growing = False
            for names, value in given:
                if not names <= self._names and self._is_of_whole(value):
                    self._names |= names
                    is_growing = True

    def mentions(self, expression: ast.AST | None) -> bool:
        """True when the payload, or what was made of it, is used in an expression in whatever way."""
        if expression is None:
            return False
        waiting = [expression]
        for node in waiting:
            if isinstance(node, ast.Name):
                if node.id in self._names:
                    return True
            else:
                waiting += children_of(node)
        return False

    def _is_of_whole(self, expression: ast.AST) -> bool:
        """True when the payload is used otherwise than for one key with a constant name or a field of the event."""
        if isinstance(expression, ast.Name):
            return expression.id in self._names
        if self._is_one_field(expression):
            return False
        return any(self._is_of_whole(child) for child in children_of(expression))

    def _is_one_field(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and node.attr in EVENT_FIELDS:
            return True
        container, key = _keyed(node)
        root = container_root(container) if container is not None else None
        return isinstance(key, ast.Constant) and root is not None and root[0] in self._payload

    def _note_rest(self, block: Sequence[ast.stmt]) -> None:
        for number, statement in enumerate(block[:-1], 1):
            if self._decides_on_rest(statement):
                self.note(block[number:])
                return

    def _decides_on_rest(self, statement: ast.stmt) -> bool:
        """True for `if missing: return` and `assert len(event) == 3`: only one outcome leads to what follows."""
        if isinstance(statement, ast.Assert):
            return self._tells_keys(statement.test)
        if not isinstance(statement, ast.If) or not self._tells_keys(statement.test):
            return False
        return not reaches_end(statement.body) or (bool(statement.orelse) and not reaches_end(statement.orelse))

    def _tells_keys(self, test: ast.expr) -> bool:
        """True when a test may tell which keys there are; that there is a payload at all says nothing of them."""
        if isinstance(test, ast.UnaryOp):
            return self._tells_keys(test.operand)
        if isinstance(test, ast.BoolOp):
            return any(self._tells_keys(value) for value in test.values)
        root = container_root(test)
        if root is not None and root[0] in self._payload:
            return False
        if isinstance(test, ast.Call) and getattr(test.func, "id", "") in _SAYING_NOTHING:
            return False
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot):
            return False
        return self._is_of_whole(test)

    def note(self, nodes: Sequence[ast.stmt | ast.expr]) -> None:
        """Note that these, which follow each other in the text, are behind a condition."""
        if nodes:
            first, last = nodes[0], nodes[-1]
            end = (last.end_lineno or last.lineno, last.end_col_offset or 0)
            self._stretches.append(((first.lineno, first.col_offset), end))


def _assigned(node: ast.AST) -> tuple[frozenset[str], ast.expr | None]:
    """The names that a node binds, and what to."""
    if isinstance(node, ast.Assign):
        return _names_in(node.targets), node.value
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        return _names_in([node.target]), node.value
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        return _names_in([node.target]), node.iter
    return frozenset(), None


def _names_in(targets: Sequence[ast.expr]) -> frozenset[str]:
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return frozenset({targets[0].id})
    return frozenset(
        node.id
        for target in targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


def _keyed(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The container and the key of `x[key]`, `x.get(key)` and `key in x`."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    return None, None


# --- conditions ---------------------------------------------------------------------------------


def _visit_statement(guards: Guards, node: ast.If | ast.While) -> None:
    if guards.mentions(node.test):
        guards.note(node.body)
        guards.note(node.orelse)


def _visit_either(guards: Guards, node: ast.IfExp) -> None:
    if guards.mentions(node.test):
        guards.note([node.body])
        guards.note([node.orelse])


def _visit_and_or(guards: Guards, node: ast.BoolOp) -> None:
    for number, value in enumerate(node.values, 1):
        if guards.mentions(value):
            guards.note(node.values[number:])
            return


def _visit_match(guards: Guards, node: ast.Match) -> None:
    for case in node.cases:
        if guards.mentions(node.subject):
            guards.note([*([case.guard] if case.guard else []), *case.body])
        elif guards.mentions(case.guard):
            guards.note(case.body)


def _visit_comprehension(guards: Guards, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> None:
    if any(guards.mentions(test) for part in node.generators for test in part.ifs):
        guards.note([node.elt])


def _visit_dict_comprehension(guards: Guards, node: ast.DictComp) -> None:
    if any(guards.mentions(test) for part in node.generators for test in part.ifs):
        guards.note([node.key, node.value])


_CONDITIONS: dict[type, Callable[[Guards, Any], None]] = {
    ast.BoolOp: _visit_and_or,
    ast.DictComp: _visit_dict_comprehension,
    ast.GeneratorExp: _visit_comprehension,
    ast.If: _visit_statement,
    ast.IfExp: _visit_either,
    ast.ListComp: _visit_comprehension,
    ast.Match: _visit_match,
    ast.SetComp: _visit_comprehension,
    ast.While: _visit_statement,
}
_DECIDING = frozenset({*_CONDITIONS, ast.Assert})
"""Without any of these nothing in a function depends on what its payload is like."""
