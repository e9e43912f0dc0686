"""Whether a block of statements can continue after its last statement, and the calls with which its paths end.

What conditions are worth at run time is not known here: both branches of each count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_NO_RETURN = frozenset({"exit", "quit", "_exit", "abort", "assert_never", "bail", "die", "fail", "panic", "skip"})


def reaches_end(body: Sequence[ast.stmt]) -> bool:
    """True when execution can continue after the last statement. A call counts as returning unless its name says otherwise."""
    return all(map(_goes_on, body))


def _goes_on(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return False
    if isinstance(statement, ast.Expr):
        call = _called_by(statement)
        return call is None or getattr(call.func, "attr", getattr(call.func, "id", "")) not in _NO_RETURN
    if isinstance(statement, ast.If | ast.Match | ast.Try | ast.TryStar):
        return any(map(reaches_end, _ways(statement))) and reaches_end(getattr(statement, "finalbody", ()))
    if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        is_endless = isinstance(statement, ast.While) and _constant(statement.test) is True
        return _can_break(statement.body) or (not is_endless and reaches_end(statement.orelse))
    if isinstance(statement, ast.Assert):
        return _constant(statement.test) is not False
    return reaches_end(statement.body) if isinstance(statement, ast.With | ast.AsyncWith) else True


def _constant(test: ast.expr) -> bool | None:
    """Return the truth value of a constant condition; None for any other condition."""
    return bool(test.value) if isinstance(test, ast.Constant) else None


def _ways(statement: ast.If | ast.Match | ast.Try | ast.TryStar) -> Iterator[Sequence[ast.stmt]]:
    """The alternative blocks of a statement: each run takes exactly one of them."""
    if isinstance(statement, ast.If):
        yield statement.body
        if not _constant(statement.test):
            yield statement.orelse
    elif isinstance(statement, ast.Match):
        yield from (case.body for case in statement.cases)
    else:
        yield [*statement.body, *statement.orelse]
        yield from (handler.body for handler in statement.handlers)


def _can_break(body: Sequence[ast.stmt]) -> bool:
    """True when a `break` of this loop, not of an inner one, can be reached in the statements."""
    for statement in body:
        if isinstance(statement, ast.Break) or any(map(_can_break, _within(statement))):
            return True
        if not _goes_on(statement):
            break
    return False


def _within(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a statement whose `break` belongs to the loop around it."""
    if isinstance(statement, ast.If | ast.Match | ast.Try | ast.TryStar):
        yield from _ways(statement)
        yield getattr(statement, "finalbody", ())
    elif isinstance(statement, ast.With | ast.AsyncWith):
        yield statement.body
    elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        yield statement.orelse


def _called_by(statement: ast.Expr) -> ast.Call | None:
    """Return the call that a statement consists of, awaited or not."""
    value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
    return value if isinstance(value, ast.Call) else None


def last_calls(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """Return the calls that stand alone as the last statement of a way through a body."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr):
        yield from filter(None, [_called_by(last)])
    elif isinstance(last, ast.With | ast.AsyncWith):
        yield from last_calls(last.body)
    elif isinstance(last, ast.If | ast.Match | ast.Try | ast.TryStar):
        for way in _ways(last):
            yield from last_calls(way)


def is_stub(body: Sequence[ast.stmt]) -> bool:
    """True for a body that consists of a docstring and `...` only: an override decides what it returns."""
    constants = [getattr(getattr(statement, "value", None), "value", None) for statement in body]
    return all(
        isinstance(statement, ast.Expr) and (isinstance(value, str) or value is ...)
        for statement, value in zip(body, constants, strict=True)
    )
