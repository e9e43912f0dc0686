"""Does what a method calls come back? Functions and methods of the project are looked at; of others little is known."""

from __future__ import annotations

import ast
import sys

from graphbus_core.compiler.reading.bodies import Body, Function
from graphbus_core.compiler.reading.endings import Stops, ends_of, is_stub, reaches_end
from graphbus_core.compiler.reading.modules import FUNCTIONS, External, ModuleRef, Symbol, Target
from graphbus_core.compiler.reading.scopes import find_member, resolve, resolve_through
from graphbus_core.compiler.reading.values import View

_RETURNING = frozenset({"call", "log", "publish", "request"})
_NEVER = frozenset({"NoReturn", "Never"})


def judge_calls(function: Function, view: View, raising: frozenset[str]) -> Stops:
    """Give the judgement which calls of a method may never return.

    A callee that is not known counts as such only at the very end of a path, and only if other paths return a value:
    there a `return` was hardly forgotten. `raising` are the methods of `self` that never return.
    """
    gives_values = any(node.value is not None for node in view.body.returns)
    last = {id(call) for call in ends_of(function.body)} if gives_values else set()

    def stops(call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr in raising:
            return True
        returns = _returns(call.func, function, view)
        return not returns if returns is not None else id(call) in last

    return stops


def never_comes_back(function: Function, body: Body | None = None) -> bool:
    """True for a function that says so, or that only raises."""
    if _says_so(function.returns):
        return True
    if is_stub(function.body) or reaches_end(function.body):
        return False
    body = body or Body(function, "")
    return not (body.returns or body.is_generator)


def _says_so(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2] in _NEVER
    return getattr(annotation, "attr", getattr(annotation, "id", "")) in _NEVER


def _returns(callee: ast.expr, function: Function, view: View) -> bool | None:
    """True or False where it is known, else None."""
    if isinstance(callee, ast.Name):
        if callee.id in view.scope.hidden:
            return _inner_returns(callee.id, function)
        return _target_returns(resolve_through(callee, view.scope))
    if not isinstance(callee, ast.Attribute):
        return None
    if isinstance(callee.value, ast.Name) and callee.value.id == view.body.self_name:
        member = find_member(view.scope.chain, callee.attr)
        return True if member is None and callee.attr in _RETURNING else _target_returns(member)
    if isinstance(resolve(callee.value, view.scope), ModuleRef | External):
        return _target_returns(resolve_through(callee, view.scope))
    return True  # a method of some object


def _inner_returns(name: str, function: Function) -> bool | None:
    for node in ast.walk(function):
        if isinstance(node, FUNCTIONS) and node.name == name and node is not function:
            return not never_comes_back(node)
    return None


def _target_returns(target: Target) -> bool | None:
    if isinstance(target, Symbol):
        node = target.node
        if isinstance(node, FUNCTIONS):
            return not never_comes_back(node)
        return True if isinstance(node, ast.ClassDef) else None
    if isinstance(target, External):
        top, _, rest = target.dotted.partition(".")
        return True if top in sys.stdlib_module_names and not rest.startswith("exec") else None
    return None
