"""The ways in which a function body ends: can the end of its text be reached, or does every path return or raise before?

In doubt the end is not reached: GraphBus would rather miss an implicit None than report one that never happens.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Stops = Callable[[ast.Call], bool]

_NO_RETURN = frozenset({"exit", "quit", "_exit", "abort", "assert_never", "bail", "die", "fail", "panic", "skip"})


def _returns_surely(call: ast.Call) -> bool:
    return False


def reaches_end(body: Sequence[ast.stmt], stops: Stops = _returns_surely) -> bool:
    """True when running these statements surely can go on after the last one.

    Args:
        body: The statements.
        stops: Tells of a call whether it may never return, besides those whose name says so.
    """
    for statement in body:
        judge = _JUDGES.get(statement.__class__)
        if judge is not None and not judge(statement, stops):
            return False
    return True


def _never(statement: ast.stmt, stops: Stops) -> bool:
    return False


def _loop_goes_on(statement: ast.For | ast.AsyncFor | ast.While, stops: Stops) -> bool:
    is_endless = isinstance(statement, ast.While) and _is_true(statement.test)
    if not is_endless and not statement.orelse:
        return True
    return _can_break(statement.body, stops) or (not is_endless and reaches_end(statement.orelse, stops))


def _with_goes_on(statement: ast.With | ast.AsyncWith, stops: Stops) -> bool:
    return reaches_end(statement.body, stops)


def _match_goes_on(statement: ast.Match, stops: Stops) -> bool:
    return any(reaches_end(case.body, stops) for case in statement.cases)


def _assert_goes_on(statement: ast.Assert, stops: Stops) -> bool:
    return not (isinstance(statement.test, ast.Constant) and not statement.test.value)


def _expression_goes_on(statement: ast.Expr, stops: Stops) -> bool:
    return not _never_returns(statement.value, stops)


def _if_goes_on(statement: ast.If, stops: Stops) -> bool:
    if _is_true(statement.test):
        return reaches_end(statement.body, stops)
    return reaches_end(statement.body, stops) or reaches_end(statement.orelse, stops)


def _try_goes_on(statement: ast.Try, stops: Stops) -> bool:
    if not reaches_end(statement.finalbody, stops):
        return False
    main = reaches_end(statement.body, stops) and reaches_end(statement.orelse, stops)
    return main or any(reaches_end(handler.body, stops) for handler in statement.handlers)


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _can_break(body: Sequence[ast.stmt], stops: Stops) -> bool:
    """True when a `break` of this loop, not of an inner one, can be reached in the statements."""
    for statement in body:
        if isinstance(statement, ast.Break) or any(_can_break(part, stops) for part in _parts(statement, stops)):
            return True
        if not reaches_end([statement], stops):
            return False
    return False


def _parts(statement: ast.stmt, stops: Stops) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a statement whose `break` belongs to the loop around it."""
    if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        yield statement.orelse
    elif isinstance(statement, ast.If) and _is_true(statement.test):
        yield statement.body
    elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield getattr(statement, "body", ())
        if not isinstance(statement, ast.Try) or reaches_end(statement.body, stops):
            yield getattr(statement, "orelse", ())
        yield getattr(statement, "finalbody", ())
        yield from (part.body for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())))


def _never_returns(value: ast.expr, stops: Stops) -> bool:
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call):
        return False
    name = getattr(value.func, "attr", getattr(value.func, "id", ""))
    return name in _NO_RETURN or stops(value)


def ends_of(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """Give the calls that stand alone as the last statement of a path."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr):
        value = last.value.value if isinstance(last.value, ast.Await) else last.value
        if isinstance(value, ast.Call):
            yield value
    elif isinstance(last, ast.If | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match):
        for field in ("body", "orelse"):
            yield from ends_of(getattr(last, field, ()))
        for part in (*getattr(last, "handlers", ()), *getattr(last, "cases", ())):
            yield from ends_of(part.body)


def is_stub(body: Sequence[ast.stmt]) -> bool:
    """True for a body of nothing but a docstring and `...`: what it gives is left to others."""
    for statement in body:
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
            return False
        if not isinstance(statement.value.value, str) and statement.value.value is not ...:
            return False
    return True


_JUDGES: dict[type, Callable[[Any, Stops], bool]] = {
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
