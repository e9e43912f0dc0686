"""Follows what a function of the project does with its parameters: a call inside it, in the words of the call of the function."""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import NamedTuple

from graphbus_core.readers.scopes import Scope, defaults_of

_UNKNOWN = ast.Name("", ast.Load())
"""An expression of which nothing is known: no scope binds this name."""
_LITERALS = (ast.Constant, ast.Tuple, ast.List, ast.Dict)
"""Defaults that are the same everywhere."""


class Forwarding(NamedTuple):
    """A call of a function of the project.

    Attributes:
        scope: The function.
        given: Parameter -> what the call gives: an expression of the caller, or a literal of the function.
    """

    scope: Scope
    given: dict[str, ast.expr]

    def rewrite(self, call: ast.Call) -> ast.Call:
        """Return a call inside the function with what is given in place of the parameters, so that the caller can read it."""
        rewritten: ast.Call = _Rewriter(self).visit(deepcopy(call))
        return rewritten


def forward(call: ast.Call, scope: Scope) -> Forwarding | None:
    """Return what a call gives to the parameters of a function; None if that depends on the run."""
    node = scope.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or any(
        isinstance(each, ast.Starred) for each in call.args
    ):
        return None
    of = node.args
    is_method = (
        scope.parent is not None and scope.parent.kind == "class" and "staticmethod" not in _names(node.decorator_list)
    )
    named = [each.arg for each in (*of.posonlyargs, *of.args)][is_method:]
    every = {*named, *(each.arg for each in of.kwonlyargs)}
    rest = [each for each in call.keywords if each.arg not in every]
    if (len(call.args) > len(named) and not of.vararg) or (rest and not of.kwarg):
        return None
    given: dict[str, ast.expr] = dict.fromkeys(every, _UNKNOWN)
    if not any(each.arg is None for each in rest):
        given |= {each.arg: value for each, value in defaults_of(of).items() if isinstance(value, _LITERALS)}
    given |= {each.arg: each.value for each in call.keywords if each.arg in every}
    given |= dict(zip(named, call.args, strict=False))
    if of.vararg:
        given[of.vararg.arg] = ast.Tuple(call.args[len(named) :], ast.Load())
    if of.kwarg:
        keys: list[ast.expr | None] = [None if each.arg is None else ast.Constant(each.arg) for each in rest]
        given[of.kwarg.arg] = ast.Dict(keys, [each.value for each in rest])
    return Forwarding(scope, given)


def _names(decorators: list[ast.expr]) -> set[str]:
    return {each.id for each in decorators if isinstance(each, ast.Name)}


class _Rewriter(ast.NodeTransformer):
    """Replaces the parameters of a function; of other names only those of Python keep their meaning for the caller."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding

    def visit_Name(self, node: ast.Name) -> ast.expr:
        scope = self._forwarding.scope
        is_kept = len(scope.bindings.get(node.id, ())) == 1 and node.id not in scope.changed
        if is_kept and node.id in self._forwarding.given:
            return self._forwarding.given[node.id]
        return node if scope.owner(node.id) is None else _UNKNOWN
