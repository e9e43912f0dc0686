"""The parts of a handler that run only if a condition on the payload has a certain outcome."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from graphbus_core.compiler.reading.below import COMPREHENSIONS, key_access
from graphbus_core.compiler.reading.bodies import EVENT_FIELDS, FunctionNode, container_root
from graphbus_core.compiler.reading.constants import evaluate_constant
from graphbus_core.compiler.reading.endings import reaches_end
from graphbus_core.compiler.reading.modules import NameScope
from graphbus_core.compiler.reading.syntax import children_of, nodes_below


class _Guarded(NamedTuple):
    """The places from `first` up to `last` run only if `test` has an outcome; None: the outcome is no truth value.

    `hides` is True if a key that is read there may be one that is not always sent.
    """

    first: tuple[int, int]
    last: tuple[int, int]
    test: ast.expr
    outcome: bool | None
    hides: bool


class GuardedParts:
    """Finds the parts of a handler that run only if a condition on the payload has a certain outcome.

    A key that is read there may be one that is not always sent. In doubt a read counts as guarded: to overlook a missing key is
    better than to report a key that is never read.

    Args:
        function: The handler.
        names: The names of the event, of the payload, and of its copies.
    """

    def __init__(self, function: FunctionNode, names: Iterable[str]) -> None:
        self._payload = frozenset(names)
        self._names = set(names)
        self._guarded: list[_Guarded] = []
        nodes = nodes_below(function)
        if any(isinstance(node, _DECIDING) for node in nodes):
            self._collect_names(nodes)
            for node in nodes:
                for test, outcome, parts in _conditional_parts(node) if isinstance(node, _DECIDING) else ():
                    if self._mentions(test):
                        self._add_range(parts, test, outcome)
                for field in _BODY_FIELDS if hasattr(node, "body") else ():
                    self._add_ranges_after_exits(getattr(node, field, ()))

    def covers(self, node: ast.expr) -> bool:
        """True if this expression runs only for one outcome of a condition on the payload."""
        return any(each.hides for each in self._around(node))

    def ensure(self, key: str, node: ast.expr, scope: NameScope) -> bool:
        """True if this expression runs only where a condition such as `key in event` has found the key in the payload."""
        return any(self._shows(each.test, key, scope, when=each.outcome) for each in self._around(node))

    def tests_of(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield the conditions that decide whether this expression runs."""
        return (each.test for each in self._around(node))

    def _around(self, node: ast.expr) -> Iterator[_Guarded]:
        return (each for each in self._guarded if each.first <= (node.lineno, node.col_offset) < each.last)

    def _shows(self, test: ast.expr, key: str, scope: NameScope, *, when: bool | None) -> bool:
        """True if a condition with the outcome `when` proves that the payload has a key; None stands for any outcome."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and when is not None:
            return self._shows(test.operand, key, scope, when=not when)
        if isinstance(test, ast.BoolOp):  # all parts of an `and` that is true are true, of an `or` that is false, false
            is_each = when is isinstance(test.op, ast.And)
            return is_each and any(self._shows(each, key, scope, when=when) for each in test.values)
        if isinstance(test, ast.NamedExpr):
            test = test.value
        has_default = isinstance(test, ast.Call) and len(test.args) > 1  # `event.get(key, True)` says nothing
        container, tested = key_access(test) if not has_default else (None, None)
        root = container_root(container) if container is not None else None
        is_absence = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotIn)
        is_this = root is not None and root[0] in self._payload and tested is not None
        return is_this and when is not None and when is not is_absence and evaluate_constant(tested, scope) == key  # type: ignore[arg-type]

    def _collect_names(self, nodes: Iterable[ast.AST]) -> None:
        """Add to `_names` those of values that are computed from the whole payload: `keys = event.keys()`, `for key in event`."""
        assignments = [
            (_bound_names(node), getattr(node, "value", None) or getattr(node, "iter", None))
            for node in nodes
            if isinstance(node, _ASSIGNING)
        ]
        is_growing = True
        while is_growing:
            known = len(self._names)
            for names, value in assignments:
                if value is not None and self._uses_whole_payload(value):
                    self._names |= names
            is_growing = len(self._names) > known

    def _mentions(self, expression: ast.AST) -> bool:
        """True if an expression uses the payload, or a value that is computed from the whole payload."""
        return any(isinstance(node, ast.Name) and node.id in self._names for node in ast.walk(expression))

    def _uses_whole_payload(self, expression: ast.AST) -> bool:
        """True if an expression uses the payload as a whole, not only one constant key of it or a field of the event."""
        if isinstance(expression, ast.Name):
            return expression.id in self._names
        if isinstance(expression, ast.Attribute) and expression.attr in EVENT_FIELDS:
            return False
        container, key = key_access(expression)
        root = container_root(container) if container is not None else None
        if isinstance(key, ast.Constant) and root is not None and root[0] in self._payload:
            return False
        return any(self._uses_whole_payload(child) for child in children_of(expression))

    def _add_ranges_after_exits(self, block: Sequence[ast.stmt]) -> None:
        """Note the statements after `if missing: return` or `assert len(event) == 3`, as they run for one outcome only."""
        for number, statement in enumerate(block[:-1] if isinstance(block, list) else (), 1):
            if isinstance(statement, ast.Assert | ast.If) and self._mentions(statement.test):
                blocks = (statement.body, statement.orelse) if isinstance(statement, ast.If) else ()
                if not all(map(reaches_end, blocks)) or not blocks:  # a branch that exits, or an `assert`
                    outcome = not blocks or reaches_end(statement.body)  # type: ignore[union-attr]
                    hides = self._depends_on_keys(statement.test)
                    self._add_range(block[number:], statement.test, outcome, hides=hides)

    def _depends_on_keys(self, test: ast.expr) -> bool:
        """True if a condition may depend on which keys exist; one that only tests for None, truth or a type does not."""
        if isinstance(test, ast.UnaryOp | ast.BoolOp):
            return any(self._depends_on_keys(value) for value in children_of(test) if isinstance(value, ast.expr))
        root = container_root(test)
        is_presence = root is not None and root[0] in self._payload
        is_presence |= isinstance(test, ast.Call) and getattr(test.func, "id", "") in ("bool", "isinstance")
        is_presence |= isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot)
        return not is_presence and self._uses_whole_payload(test)

    def _add_range(
        self, nodes: Sequence[ast.stmt | ast.expr], test: ast.expr, outcome: bool | None, *, hides: bool = True
    ) -> None:
        """Note the range of these consecutive nodes, which run for one outcome of a condition; nothing for no nodes."""
        if nodes:
            first, last = nodes[0], nodes[-1]
            end = (last.end_lineno or last.lineno, last.end_col_offset or 0)
            self._guarded.append(_Guarded((first.lineno, first.col_offset), end, test, outcome, hides))


_BODY_FIELDS = ("body", "orelse", "finalbody")
_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)
_DECIDING = (ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.Match, ast.Assert, *COMPREHENSIONS)
"""Nodes that decide what runs; a function without any of them has no guarded parts."""


def _conditional_parts(node: ast.AST) -> Iterator[tuple[ast.expr, bool | None, Sequence[ast.stmt | ast.expr]]]:
    """Yield each condition in a node, one of its outcomes, and the parts that run only then; None: it is no truth value."""
    if isinstance(node, ast.If | ast.While):
        yield from ((node.test, outcome, part) for outcome, part in ((True, node.body), (False, node.orelse)))
    elif isinstance(node, ast.IfExp):
        yield from ((node.test, outcome, [part]) for outcome, part in ((True, node.body), (False, node.orelse)))
    elif isinstance(node, ast.BoolOp):
        outcome = isinstance(node.op, ast.And)
        yield from ((value, outcome, node.values[number:]) for number, value in enumerate(node.values, 1))
    elif isinstance(node, ast.Match):
        for case in node.cases:
            guards = [case.guard] if case.guard else []
            yield node.subject, None, [*guards, *case.body]
            yield from ((guard, True, case.body) for guard in guards)
    elif isinstance(node, COMPREHENSIONS):
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        yield from ((test, True, parts) for generator in node.generators for test in generator.ifs)


def _bound_names(node: ast.AST) -> set[str]:
    """Return the names that an assignment, a loop or a comprehension binds."""
    targets = getattr(node, "targets", None) or [node.target]  # type: ignore[attr-defined]
    below = (each for target in targets for each in ast.walk(target))
    return {each.id for each in below if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
