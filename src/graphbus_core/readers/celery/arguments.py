"""Counts the arguments of a message: those of a call, and those in the literals that `apply_async` and signatures get."""

from __future__ import annotations

import ast
from collections.abc import Callable

from graphbus_core.readers.celery.values import NOTHING, SOMETHING, Arguments, External, Values
from graphbus_core.readers.scopes import Point

_UNKNOWN_POSITIONAL = Arguments(has_rest=True)
_UNKNOWN_NAMED = Arguments(is_open=True)


class Literals:
    """Reads arguments; `values` says what an expression may be."""

    def __init__(self, values: Callable[[ast.expr | None, Point], Values]) -> None:
        self._values = values

    def arguments_of(self, call: ast.Call, point: Point) -> Arguments:
        """Return the arguments of a call such as `task.delay(1, b=2)`."""
        return self._positional(call.args, point).behind(self._named(call.keywords, point))

    def passed(self, call: ast.Call, point: Point, first: int) -> Arguments:
        """Return the arguments that a call passes on: `(args, kwargs)` from the position `first` on, or by their names."""
        if any(isinstance(each, ast.Starred) for each in call.args):
            return SOMETHING
        given = dict(zip(("args", "kwargs"), call.args[first : first + 2], strict=False))
        given |= {each.arg: each.value for each in call.keywords if each.arg in ("args", "kwargs")}
        is_open = any(each.arg is None for each in call.keywords)
        positional = self.sequence(given["args"], point) if "args" in given else NOTHING
        named = self.mapping(given["kwargs"], point) if "kwargs" in given else NOTHING
        found = positional.behind(named)
        return found.behind(SOMETHING) if is_open and not {"args", "kwargs"} <= given.keys() else found

    def is_true(self, call: ast.Call, option: str) -> bool:
        """True if a call passes an option that is not certainly false."""
        given = next((each.value for each in call.keywords if each.arg == option), None)
        return given is not None and not (isinstance(given, ast.Constant) and not given.value)

    def sequence(self, node: ast.expr, point: Point) -> Arguments:
        """Return the positional arguments in a tuple or list."""
        if isinstance(node, ast.Tuple | ast.List):
            return self._positional(node.elts, point)
        if isinstance(node, ast.Constant) and node.value is None:
            return NOTHING
        if isinstance(node, ast.BoolOp):
            return self._first_given(node, self.sequence, point)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.sequence(node.right, point).behind(self.sequence(node.left, point))
        if isinstance(node, ast.Name) and (found := self._bound(node, point)) is not None:
            return self.sequence(*found)
        return _UNKNOWN_POSITIONAL

    def mapping(self, node: ast.expr, point: Point) -> Arguments:
        """Return the named arguments in a dictionary."""
        if isinstance(node, ast.Dict):
            return self._keys(node, point)
        if isinstance(node, ast.Call) and not node.args and self._is_dict(node.func, point):
            return self._named(node.keywords, point)
        if isinstance(node, ast.BoolOp):
            return self._first_given(node, self.mapping, point)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.mapping(node.left, point).behind(self.mapping(node.right, point))
        if isinstance(node, ast.Name) and (found := self._bound(node, point)) is not None:
            return self.mapping(*found)
        return NOTHING if isinstance(node, ast.Constant) and node.value is None else _UNKNOWN_NAMED

    def _first_given(self, node: ast.BoolOp, read: Callable[[ast.expr, Point], Arguments], point: Point) -> Arguments:
        """Return the arguments of `args or ()`: those of the first operand that has some."""
        found = (read(each, point) for each in node.values)
        return SOMETHING if isinstance(node.op, ast.And) else next((each for each in found if each != NOTHING), NOTHING)

    def _is_dict(self, function: ast.expr, point: Point) -> bool:
        return any(
            isinstance(each, External) and each.name == "builtins.dict" for each in self._values(function, point)
        )

    def _keys(self, node: ast.Dict, point: Point) -> Arguments:
        found = NOTHING
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found = found.behind(self.mapping(value, point))
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                found = found.behind(Arguments(keywords=(key.value,)))
            else:
                found = found.behind(_UNKNOWN_NAMED)
        return found

    def _positional(self, nodes: list[ast.expr], point: Point) -> Arguments:
        """Return the arguments of elements; what follows on `*rest` is counted as well."""
        found = NOTHING
        for each in reversed(nodes):
            given = self.sequence(each.value, point) if isinstance(each, ast.Starred) else Arguments(positional=1)
            found = found.behind(given)
        return found

    def _named(self, keywords: list[ast.keyword], point: Point) -> Arguments:
        found = NOTHING
        for each in keywords:
            given = Arguments(keywords=(each.arg,)) if each.arg else self.mapping(each.value, point)
            found = given.behind(found)
        return found

    def _bound(self, node: ast.Name, point: Point) -> tuple[ast.expr, Point] | None:
        """Return the only literal that a variable can be; None if it may be another one, or is changed after its assignment."""
        owner = point.scope.owner(node.id)
        found = owner.reaching(node.id, point) if owner else []
        if owner is None or len(found) != 1 or found[0].kind != "value" or node.id in owner.changed:
            return None
        value = found[0].node
        return (value, found[0].point) if isinstance(value, ast.expr) and value is not node else None
