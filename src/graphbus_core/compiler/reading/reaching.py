"""Which assignments of a local name reach the place where it is used, and which keys a dict was surely given on the way.

made = {"name": name}                    reach(made, used below):
if is_large:                             {"name": name}, {"pfennig": 5}
    made = {"pfennig": 5}                both were given "cents"
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
        additions: The `name["key"]` that are stored and the `name.update(...)` that are called in between, in any case.
    """

    value: ast.expr
    additions: frozenset[ast.expr] = frozenset()


def branches_of(held: Reaching) -> list[Reaching]:
    """Return an assignment of `a if condition else b` as two of them, any other as it is."""
    value = held.value
    values = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    return [held._replace(value=each) for each in values]


_State = frozenset[Reaching]
_Path = tuple[int, ...]
"""The conditional blocks around a statement."""
_NONE: _State = frozenset()


def reaching_values(use: ast.Name, body: Sequence[ast.stmt], count: int) -> tuple[Reaching, ...] | None:
    """Return the assignments of a local name that reach a use of it, in the order of the source.

    Args:
        use: The name where it is used.
        body: The statements of the function.
        count: How often the function binds the name in whatever way.

    Returns:
        None where that is not certain: the name is bound otherwise than by plain assignments, or the use stands behind a
        condition that may be the one that chose between the assignments.
    """
    walk = _Walk(use)
    walk.block(body, _NONE, ())
    if len(walk.bound_at) != count or not walk.found:
        return None
    is_one = len({each.value for each in walk.found}) == 1
    paths = (walk.bound_at[each.value] for each in walk.found)
    if not is_one and any(path[: len(walk.path)] != walk.path for path in paths):
        return None
    common = {each.value: each.additions for each in walk.found}
    for each in walk.found:
        common[each.value] &= each.additions
    return tuple(Reaching(*each) for each in sorted(common.items(), key=lambda item: item[0].lineno))


class _Walk:
    """One walk over the statements of a function; a block that ends early gives the empty state."""

    def __init__(self, use: ast.Name) -> None:
        self._name = use.id
        self._use = use
        self._line = use.lineno
        self.found: _State = _NONE
        self.path: _Path = ()
        self._left: _State = _NONE  # what a `break` or `continue` of the loop at hand takes along
        self.bound_at: dict[ast.expr, _Path] = {}

    def block(self, statements: Sequence[ast.stmt], state: _State, path: _Path) -> _State:
        for statement in statements:
            state = self._statement(statement, state, path)
            if isinstance(statement, ast.If) and reaches_end(statement.body) != reaches_end(statement.orelse):
                path = (*path, id(statement))  # what follows runs under the condition
            if not reaches_end([statement]):
                return _NONE
        return state

    def _statement(self, statement: ast.stmt, state: _State, path: _Path) -> _State:
        if statement.lineno <= self._line <= (statement.end_lineno or 0) and any(
            map(self._uses, _own_parts(statement))
        ):
            self.found |= state
            self.path = path
        step = _STEPS.get(statement.__class__)
        return step(self, statement, state, path) if step else state

    def leave(self, statement: ast.Break | ast.Continue, state: _State, path: _Path) -> _State:
        self._left |= state
        return state

    def call(self, statement: ast.Expr, state: _State, path: _Path) -> _State:
        return self._added(statement.value, state) if self._is_update(statement.value) else state

    def within(self, statement: ast.With | ast.AsyncWith, state: _State, path: _Path) -> _State:
        return self.block(statement.body, state, path)

    def either(self, statement: ast.If, state: _State, path: _Path) -> _State:
        blocks = [statement.body, statement.orelse]
        return _NONE.union(*(self.block(each, state, (*path, id(each))) for each in blocks))

    def match(self, statement: ast.Match, state: _State, path: _Path) -> _State:
        return state.union(*(self.block(each.body, state, (*path, id(each.body))) for each in statement.cases))

    def loop(self, loop: ast.For | ast.AsyncFor | ast.While, state: _State, path: _Path) -> _State:
        outer, self._left = self._left, _NONE
        for _ in range(2):  # the second round begins with what the first one leaves
            state |= self.block(loop.body, state, (*path, id(loop.body))) | self._left
        self._left = outer
        return state | self.block(loop.orelse, state, path)

    def assign(self, statement: ast.Assign | ast.AnnAssign, state: _State, path: _Path) -> _State:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id == self._name and statement.value is not None:
                self.bound_at[statement.value] = path
                return frozenset({Reaching(statement.value, frozenset())})
            if isinstance(target, ast.Subscript) and self._is_named(target.value):
                state = self._added(target, state)
        return state

    def attempt(self, statement: ast.Try | ast.TryStar, state: _State, path: _Path) -> _State:
        """A handler begins with whatever the statements before the exception have left."""
        before = state
        for end in range(1, len(statement.body) + 1):
            before |= self.block(statement.body[:end], state, path)
        ways = [self.block([*statement.body, *statement.orelse], state, path)]
        ways += [self.block(each.body, before, (*path, id(each))) for each in statement.handlers]
        return self.block(statement.finalbody, _NONE.union(*ways), path)

    def _uses(self, part: ast.AST) -> bool:
        return any(node is self._use for node in ast.walk(part))

    def _is_update(self, value: ast.expr) -> bool:
        is_method = (
            isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "update"
        )
        return is_method and self._is_named(value.func.value)  # type: ignore[attr-defined]

    def _is_named(self, expression: ast.expr) -> bool:
        return isinstance(expression, ast.Name) and expression.id == self._name

    def _added(self, addition: ast.expr, state: _State) -> _State:
        return frozenset(each._replace(additions=each.additions | {addition}) for each in state)


_STEPS: dict[type, Callable[[_Walk, Any, _State, _Path], _State]] = {
    ast.AnnAssign: _Walk.assign,
    ast.Assign: _Walk.assign,
    ast.AsyncFor: _Walk.loop,
    ast.AsyncWith: _Walk.within,
    ast.Break: _Walk.leave,
    ast.Continue: _Walk.leave,
    ast.Expr: _Walk.call,
    ast.For: _Walk.loop,
    ast.If: _Walk.either,
    ast.Match: _Walk.match,
    ast.Try: _Walk.attempt,
    ast.TryStar: _Walk.attempt,
    ast.While: _Walk.loop,
    ast.With: _Walk.within,
}


def _own_parts(statement: ast.stmt) -> list[ast.AST]:
    """What runs as part of the statement itself, its blocks left out."""
    if not hasattr(statement, "body") and not hasattr(statement, "cases"):
        return [statement]
    parts = [getattr(statement, field, None) for field in ("test", "iter", "subject")]
    return [*filter(None, parts), *getattr(statement, "items", ())]
