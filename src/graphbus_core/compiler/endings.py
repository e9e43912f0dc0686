"""The ways in which a function body ends: can the end of its text be reached, or does every path return or raise before?

In doubt the end is not reached: GraphBus would rather miss an implicit None than report one that never happens.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_NO_RETURN = frozenset({"exit", "quit", "_exit", "abort", "assert_never", "fail", "skip"})


def reaches_end(body: Sequence[ast.stmt], raising: frozenset[str] = frozenset()) -> bool:
    """True when running these statements surely can go on after the last one.

    Args:
        body: The statements.
        raising: Methods of `self` that never return.
    """
    for statement in body:
        judge = _JUDGES.get(statement.__class__)
        if judge is not None and not judge(statement, raising):
            return False
    return True


def _never(statement: ast.stmt, raising: frozenset[str]) -> bool:
    return False


def _loop_goes_on(statement: ast.For | ast.AsyncFor | ast.While, raising: frozenset[str]) -> bool:
    is_endless = isinstance(statement, ast.While) and _is_true(statement.test)
    if not is_endless and not statement.orelse:
        return True
    return _can_break(statement.body, raising) or (not is_endless and reaches_end(statement.orelse, raising))


def _with_goes_on(statement: ast.With | ast.AsyncWith, raising: frozenset[str]) -> bool:
    return reaches_end(statement.body, raising)


def _match_goes_on(statement: ast.Match, raising: frozenset[str]) -> bool:
    return any(reaches_end(case.body, raising) for case in statement.cases)


def _assert_goes_on(statement: ast.Assert, raising: frozenset[str]) -> bool:
    return not (isinstance(statement.test, ast.Constant) and not statement.test.value)


def _expression_goes_on(statement: ast.Expr, raising: frozenset[str]) -> bool:
    return not _never_returns(statement.value, raising)


def _if_goes_on(statement: ast.If, raising: frozenset[str]) -> bool:
    if _is_true(statement.test):
        return reaches_end(statement.body, raising)
    return reaches_end(statement.body, raising) or reaches_end(statement.orelse, raising)


def _try_goes_on(statement: ast.Try, raising: frozenset[str]) -> bool:
    if not reaches_end(statement.finalbody, raising):
        return False
    main = reaches_end(statement.body, raising) and reaches_end(statement.orelse, raising)
    return main or any(reaches_end(handler.body, raising) for handler in statement.handlers)


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _can_break(body: Sequence[ast.stmt], raising: frozenset[str]) -> bool:
    """True when a `break` of this loop, not of an inner one, can be reached in the statements."""
    for statement in body:
        if isinstance(statement, ast.Break) or any(_can_break(part, raising) for part in _parts(statement, raising)):
            return True
        if not reaches_end([statement], raising):
            return False
    return False


def _parts(statement: ast.stmt, raising: frozenset[str]) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a statement whose `break` belongs to the loop around it."""
    if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        yield statement.orelse
    elif isinstance(statement, ast.If) and _is_true(statement.test):
        yield statement.body
    elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield getattr(statement, "body", ())
        if not isinstance(statement, ast.Try) or reaches_end(statement.body, raising):
            yield getattr(statement, "orelse", ())
        yield getattr(statement, "finalbody", ())
        yield from (part.body for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())))


def _never_returns(value: ast.expr, raising: frozenset[str]) -> bool:
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    if isinstance(function, ast.Name):
        return function.id in _NO_RETURN
    if isinstance(function, ast.Attribute):
        return function.attr in _NO_RETURN or function.attr in raising
    return False


def is_stub(body: Sequence[ast.stmt]) -> bool:
    """True for a body of nothing but a docstring and `...`: what it gives is left to others."""
    for statement in body:
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
            return False
        if not isinstance(statement.value.value, str) and statement.value.value is not ...:
            return False
    return True


_JUDGES: dict[type, Callable[[Any, frozenset[str]], bool]] = {
    ast.Assert: _assert_goes_on,
    ast.AsyncFor: _loop_goes_on,
    ast.AsyncWith: _with_goes_on,
    ast.Break: _never,
    ast.Continue: _never,
    ast.Expr: _expression_goes_on,
    ast.For: _loop_goes_on,
    ast.If: _if_goes_on,
    ast.Match: _match_goes_on,
    ast.Raise: _never,
    ast.Return: _never,
    ast.Try: _try_goes_on,
    ast.TryStar: _try_goes_on,
    ast.While: _loop_goes_on,
    ast.With: _with_goes_on,
}
