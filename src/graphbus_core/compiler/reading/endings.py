"""Whether a block of statements can continue after its last statement, and the calls with which its paths end.

Conditions are not evaluated, unless they are constants: both branches of each count.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

NO_RETURN = frozenset({"exit", "quit", "_exit", "abort", "assert_never", "bail", "die", "fail", "panic", "skip"})
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
"""Comparisons by value; `is` depends on the interpreter."""


def reaches_end(body: Sequence[ast.stmt]) -> bool:
    """True if execution can continue after the last statement. A call is taken to return, unless `NO_RETURN` has its name."""
    return all(map(_can_continue, body))


def _can_continue(statement: ast.stmt) -> bool:
    """True if execution can continue with the next statement."""
    if isinstance(statement, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return False
    if isinstance(statement, ast.Expr):
        call = _call_of_statement(statement)
        return call is None or getattr(call.func, "attr", getattr(call.func, "id", "")) not in NO_RETURN
    if isinstance(statement, ast.If | ast.Match | ast.Try | ast.TryStar):
        return any(map(reaches_end, _alternatives(statement))) and reaches_end(getattr(statement, "finalbody", ()))
    if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        is_endless = isinstance(statement, ast.While) and constant_truth(statement.test) is True
        return _can_break(statement.body) or (not is_endless and reaches_end(statement.orelse))
    if isinstance(statement, ast.Assert):
        return constant_truth(statement.test) is not False
    return reaches_end(statement.body) if isinstance(statement, ast.With | ast.AsyncWith) else True


def constant_truth(test: ast.AST) -> bool | None:  # noqa: PLR0911 - one for each kind of expression
    """Return the truth value of an expression that is the same in every run, such as `not 0` or `[]`; None for any other."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            truth = constant_truth(operand)
            return None if truth is None else not truth
        case ast.BoolOp(op=op, values=values):
            truths, decides = [constant_truth(each) for each in values], isinstance(op, ast.Or)
            return decides if decides in truths else None if None in truths else not decides
        case ast.Compare(left=ast.Constant(value=left), ops=[op], comparators=[ast.Constant(value=right)]):
            return _compare_constants(left, op, right)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return False if not parts else None if all(isinstance(part, ast.Starred) for part in parts) else True
        case ast.Dict(keys=keys):
            return False if not keys else None if all(key is None for key in keys) else True
    return None


def _compare_constants(left: object, op: ast.cmpop, right: object) -> bool | None:
    """Return the result of a comparison of two constants; None where it has no fixed result, or fails."""
    compare = _COMPARISONS.get(type(op))
    try:
        return None if compare is None else bool(compare(left, right))
    except TypeError:
        return None


def _alternatives(statement: ast.If | ast.Match | ast.Try | ast.TryStar) -> Iterator[Sequence[ast.stmt]]:
    """Yield the alternative blocks of a statement, of which each run takes one.

    One of the cases of a `match` is expected to fit; a `try` either completes its body or runs a handler.
    """
    if isinstance(statement, ast.If):
        yield statement.body
        if not constant_truth(statement.test):
            yield statement.orelse
    elif isinstance(statement, ast.Match):
        yield from (case.body for case in statement.cases)
    else:
        yield [*statement.body, *statement.orelse]
        yield from (handler.body for handler in statement.handlers)


def _can_break(body: Sequence[ast.stmt]) -> bool:
    """True if execution can reach a `break` in the body of a loop; a `break` of an inner loop does not count."""
    for statement in body:
        if isinstance(statement, ast.Break) or any(map(_can_break, _blocks_of_same_loop(statement))):
            return True
        if not _can_continue(statement):
            break
    return False


def _blocks_of_same_loop(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """Yield the blocks of a statement in which a `break` belongs to the loop around the statement."""
    if isinstance(statement, ast.If | ast.Match | ast.Try | ast.TryStar):
        yield from _alternatives(statement)
        yield getattr(statement, "finalbody", ())
    elif isinstance(statement, ast.With | ast.AsyncWith):
        yield statement.body
    elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        yield statement.orelse


def _call_of_statement(statement: ast.Expr) -> ast.Call | None:
    """Return the call that a statement consists of, awaited or not."""
    value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
    return value if isinstance(value, ast.Call) else None


def last_calls(body: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls with which paths through a body end, where such a call is a statement of its own."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr):
        yield from filter(None, [_call_of_statement(last)])
    elif isinstance(last, ast.With | ast.AsyncWith):
        yield from last_calls(last.body)
    elif isinstance(last, ast.If | ast.Match | ast.Try | ast.TryStar):
        for block in _alternatives(last):
            yield from last_calls(block)


def is_stub(body: Sequence[ast.stmt]) -> bool:
    """True for a body with nothing but docstrings and `...`, as of an abstract method: an override decides what it returns."""
    constants = [getattr(getattr(statement, "value", None), "value", None) for statement in body]
    return all(
        isinstance(statement, ast.Expr) and (isinstance(value, str) or value is ...)
        for statement, value in zip(body, constants, strict=True)
    )
