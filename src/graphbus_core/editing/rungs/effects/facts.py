"""What conditions say of a value, and what follows: below `if total > 5`, `total < 3` is False."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

Scalar = str | int | float | None
COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    bool: lambda value, truth: bool(value) is truth,
}
"""How a value compares to another one, by the class of the operator; `bool` compares its truth value."""
_OPPOSITE: dict[type, type] = {ast.Eq: ast.NotEq, ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Is: ast.IsNot}
_OPPOSITE |= {value: key for key, value in _OPPOSITE.items()}
_MIRRORED: dict[type, type] = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


class Fact(NamedTuple):
    """That a value compares to a constant in this way; the truth value is compared by `bool`."""

    kind: type
    other: Scalar


def comparison(test: ast.Compare, *, truth: bool) -> tuple[ast.expr, type, ast.expr] | None:
    """Return the two sides of a comparison that is true, or is not, and how they compare, a constant last; None for others."""
    left, right, kind = test.left, test.comparators[0], type(test.ops[0])
    if isinstance(left, ast.Constant):
        left, right, kind = right, left, _MIRRORED.get(kind, kind)
    if len(test.ops) > 1 or kind not in _OPPOSITE:
        return None
    return left, kind if truth else _OPPOSITE[kind], right


def decide(facts: Sequence[Fact], kind: type, other: object, *, is_right: bool = False) -> bool | None:
    """Return how a value compares of which these facts hold; None if that is not known. `is_right`: it is the right side."""
    asked = Fact(_MIRRORED.get(kind, kind) if is_right else kind, other)  # type: ignore[arg-type]
    if not facts or asked.kind not in COMPARE:
        return None
    answers = {_holds(asked, each) for each in _examples([*facts, asked]) if all(_holds(fact, each) for fact in facts)}
    return answers.pop() if len(answers) == 1 else None


def _holds(fact: Fact, value: object) -> bool:
    return COMPARE[fact.kind](value, fact.other)


def _examples(facts: Sequence[Fact]) -> list[object]:
    """Return values of which at least one compares to the constants of these facts in each possible way; none if unknown."""
    others = [each.other for each in facts if each.kind is not bool]
    is_plain = all(each.kind in (bool, ast.Eq, ast.NotEq, ast.Is, ast.IsNot) for each in facts)
    of_any_type: list[object] = [None, 0, "", object()] if is_plain else []  # which cannot be put in order
    numbers = sorted({each for each in others if isinstance(each, int | float)})
    if numbers and len(numbers) == len(set(others)):
        between = [(one + other) / 2 for one, other in pairwise(numbers)]
        return [numbers[0] - 1, *numbers, *between, numbers[-1] + 1, 0, *of_any_type]
    is_scalar = all(each is None or isinstance(each, str) for each in others)
    return [*others, *of_any_type] if is_plain and is_scalar else []
