"""Finds the assignments of a local name that reach a use of it, and the keys that a dict certainly gets in between.

made = {"name": name}                    reaching_values(made, as used below):
if is_large:                             {"name": name}, {"pfennig": 5}
    made = {"pfennig": 5}                both have got the key "cents"
made["cents"] = 5
self.publish(MINTED, made)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphbus_core.compiler.reading.endings import reaches_end


class Reaching(NamedTuple):
    """One assignment that reaches a use.

    Attributes:
        value: The expression that is assigned.
        additions: The `name["key"]` that are stored and the `name.update(...)` that are called on every path in between.
    """

    value: ast.expr
    additions: frozenset[ast.expr] = frozenset()


def branches_of(held: Reaching) -> list[Reaching]:
    """Return one assignment for each branch of `a if condition else b`; the assignment itself for any other value."""
    value = held.value
    values = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    return [held._replace(value=each) for each in values]


_State = frozenset[Reaching]
"""The assignments that reach a place in the function; empty for a place that execution does not reach."""
_Path = tuple[int, ...]
"""The conditional blocks around a statement, outermost first."""
_NONE: _State = frozenset()


def reaching_values(use: ast.Name, body: Sequence[ast.stmt], count: int) -> tuple[Reaching, ...] | None:
    """Return the assignments of a local name that reach a use of it, in the order of the source.

    Args:
        use: The name where it is used.
        body: The statements of the function.
        count: How often the function binds the name in whatever way.

    Returns:
        None if that is not certain. The name may be bound by something else than plain assignments. Or the use may be in a
        conditional block and an assignment outside of it: then the same condition may have chosen between the assignments.
    """
    walk = _Walk(use)
    walk.walk_block(body, _NONE, ())
    if len(walk.bound_at) != count or not walk.found:
        return None
    is_one = len({each.value for each in walk.found}) == 1
    paths = (walk.bound_at[each.value] for each in walk.found)
    if not is_one and any(path[: len(walk.path)] != walk.path for path in paths):
        return None
    common = {each.value: each.additions for each in walk.found}
    for each in walk.found:
        common[each.value] &= each.additions  # what is added on every path
    return tuple(Reaching(*each) for each in sorted(common.items(), key=lambda item: item[0].lineno))


class _Walk:
    """One walk over the statements of a function.

    Each `walk_...` method takes the state before its statement and returns the state after it.

    Attributes:
        found: The assignments that reach the use.
        path: The conditional blocks around the use.
        bound_at: Assigned expression -> the conditional blocks around the assignment.
    """

    def __init__(self, use: ast.Name) -> None:
        self._name = use.id
        self._use = use
        self._line = use.lineno
        self.found: _State = _NONE
        self.path: _Path = ()
        self._left: _State = _NONE  # the state at a `break` or `continue` of the innermost loop
        self.bound_at: dict[ast.expr, _Path] = {}

    def walk_block(self, statements: Sequence[ast.stmt], state: _State, path: _Path) -> _State:
        """Walk consecutive statements; the result is the empty state if execution cannot continue after them."""
        for statement in statements:
            state = self._walk_statement(statement, state, path)
            if isinstance(statement, ast.If) and reaches_end(statement.body) != reaches_end(statement.orelse):
                path = (*path, id(statement))  # what follows runs under the condition
            if not reaches_end([statement]):
                return _NONE
        return state

    def _walk_statement(self, statement: ast.stmt, state: _State, path: _Path) -> _State:
        """Walk one statement; if the use is in it, outside of its blocks, add the state before it to `found`."""
        # comparing lines first avoids most searches
        if statement.lineno <= self._line <= (statement.end_lineno or 0) and any(
            map(self._contains_use, _parts_outside_blocks(statement))
        ):
            self.found |= state
            self.path = path
        step = _STEPS.get(statement.__class__)
        return step(self, statement, state, path) if step else state

    def walk_leave(self, statement: ast.Break | ast.Continue, state: _State, path: _Path) -> _State:
        """Add the state at a `break` or `continue` to `_left`, so that it reaches the end of the loop."""
        self._left |= state
        return state

    def walk_expression(self, statement: ast.Expr, state: _State, path: _Path) -> _State:
        """Add `name.update(...)` to each assignment in the state."""
        return self._with_addition(statement.value, state) if self._is_update_call(statement.value) else state

    def walk_with(self, statement: ast.With | ast.AsyncWith, state: _State, path: _Path) -> _State:
        return self.walk_block(statement.body, state, path)

    def walk_if(self, statement: ast.If, state: _State, path: _Path) -> _State:
        """Walk both branches, each from the state before; the states of both are joined."""
        blocks = [statement.body, statement.orelse]
        return _NONE.union(*(self.walk_block(each, state, (*path, id(each))) for each in blocks))

    def walk_match(self, statement: ast.Match, state: _State, path: _Path) -> _State:
        """Walk all cases and join their states with the state before, because it may be that no case matches."""
        return state.union(*(self.walk_block(each.body, state, (*path, id(each.body))) for each in statement.cases))

    def walk_loop(self, loop: ast.For | ast.AsyncFor | ast.While, state: _State, path: _Path) -> _State:
        """Walk a loop twice, as assignments of one pass reach the next one. The loop may also be skipped."""
        outer, self._left = self._left, _NONE
        for _ in range(2):
            state |= self.walk_block(loop.body, state, (*path, id(loop.body))) | self._left
        self._left = outer
        return state | self.walk_block(loop.orelse, state, path)

    def walk_assignment(self, statement: ast.Assign | ast.AnnAssign, state: _State, path: _Path) -> _State:
        """Replace the state if the name is assigned; add `name["key"] = ...` to each assignment in the state."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id == self._name and statement.value is not None:
                self.bound_at[statement.value] = path
                return frozenset({Reaching(statement.value, frozenset())})
            if isinstance(target, ast.Subscript) and self._is_name(target.value):
                state = self._with_addition(target, state)
        return state

    def walk_try(self, statement: ast.Try | ast.TryStar, state: _State, path: _Path) -> _State:
        """Walk a `try`. A handler may begin with the state after any of the statements that can raise."""
        before = state
        for end in range(1, len(statement.body) + 1):
            before |= self.walk_block(statement.body[:end], state, path)
        ends = [self.walk_block([*statement.body, *statement.orelse], state, path)]
        ends += [self.walk_block(each.body, before, (*path, id(each))) for each in statement.handlers]
        return self.walk_block(statement.finalbody, _NONE.union(*ends), path)

    def _contains_use(self, part: ast.AST) -> bool:
        return any(node is self._use for node in ast.walk(part))

    def _is_update_call(self, value: ast.expr) -> bool:
        """True for `name.update(...)`."""
        is_method = (
            isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "update"
        )
        return is_method and self._is_name(value.func.value)  # type: ignore[attr-defined]

    def _is_name(self, expression: ast.expr) -> bool:
        return isinstance(expression, ast.Name) and expression.id == self._name

    def _with_addition(self, addition: ast.expr, state: _State) -> _State:
        """Return the state in which each assignment also has this addition."""
        return frozenset(each._replace(additions=each.additions | {addition}) for each in state)


_STEPS: dict[type, Callable[[_Walk, Any, _State, _Path], _State]] = {
    ast.AnnAssign: _Walk.walk_assignment,
    ast.Assign: _Walk.walk_assignment,
    ast.AsyncFor: _Walk.walk_loop,
    ast.AsyncWith: _Walk.walk_with,
    ast.Break: _Walk.walk_leave,
    ast.Continue: _Walk.walk_leave,
    ast.Expr: _Walk.walk_expression,
    ast.For: _Walk.walk_loop,
    ast.If: _Walk.walk_if,
    ast.Match: _Walk.walk_match,
    ast.Try: _Walk.walk_try,
    ast.TryStar: _Walk.walk_try,
    ast.While: _Walk.walk_loop,
    ast.With: _Walk.walk_with,
}


def _parts_outside_blocks(statement: ast.stmt) -> list[ast.AST]:
    """Return the parts of a statement without the blocks in it: its condition, iterable, subject or context managers."""
    if not hasattr(statement, "body") and not hasattr(statement, "cases"):
        return [statement]
    parts = [getattr(statement, field, None) for field in ("test", "iter", "subject")]
    return [*filter(None, parts), *getattr(statement, "items", ())]
