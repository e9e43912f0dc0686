"""The keys that a method reads of results of other agents, and the functions that are followed from a method."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

from graphbus_core.compiler.reading.bodies import FunctionNode
from graphbus_core.compiler.reading.catching import may_be_caught
from graphbus_core.compiler.reading.constants import evaluate_constant, is_rebound
from graphbus_core.compiler.reading.flow import comprehension_view, infer_type
from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.modules import FUNCTIONS, DefinedName, resolve_through
from graphbus_core.compiler.reading.syntax import LEAVES, children_of, span_of
from graphbus_core.compiler.reading.views import FunctionView, function_view
from graphbus_core.model.agent import KeyRead
from graphbus_core.schema.types import ITEM, UNKNOWN, Type, is_unspecific

MOST_HOPS = 2
"""The number of calls through which a value is followed from a method into the functions that receive it."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def key_access(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """Return the container and the key of `x[key]`, `x.get(key)` and `key in x`; None and None for anything else."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    return None, None


def reads_of_results(method: MethodSource, view: FunctionView) -> Mapping[str, list[KeyRead]]:
    """Return, for each result of another agent, the keys that a method reads of it.

    The name of a result is `Agent.method` or the topic of a request. A key is a path: `a[].b` leads into the items of a list. A
    key counts as optional if any read of it is. Attributes are optional and guarded: an object may have more than its fields. So
    are keys whose absence is caught: what the code does then is not followed.
    """
    found: dict[str, list[KeyRead]] = {}
    kept = (getattr(getattr(value, "func", None), "attr", "") for value, _ in view.kept.values())
    # only `self.call`, `self.request` and `self.agent` give results; the proxy of `self.agent` may be kept in an attribute
    if not {"call", "request", "agent"}.isdisjoint(name for name, _ in view.body.calls) or "agent" in kept:
        called = {id(each.func) for each in view.body.method_calls}
        reads = [*_find_key_reads(method.node.body, view, called), *_find_reads_in_callees(view)]
        optional = {(name, each.key) for name, each in reads if each.is_optional}
        for name, each in reads:
            is_tolerated = not each.is_optional and (name, each.key) in optional
            found.setdefault(name, []).append(mark_guarded(each) if is_tolerated else each)
    return found


def mark_guarded(read: KeyRead) -> KeyRead:
    """Return the read of a key, marked as optional and guarded; one that was optional without a guard stays unguarded."""
    return msgspec.structs.replace(read, is_optional=True, is_guarded=read.is_guarded or not read.is_optional)


def _find_key_reads(nodes: Sequence[ast.AST], outer: FunctionView, called: Set[int]) -> Iterator[tuple[str, KeyRead]]:
    """Yield `(name of the result, key)` for each constant key or attribute of a result that is used in `nodes`.

    A key that is stored or deleted counts as optional. `called` holds the `id()` of each attribute that is called as a method:
    such an attribute is not a read.
    """
    for node, view, _ in walk_with_views(nodes, outer):
        container, key = key_access(node)
        if isinstance(node, ast.Attribute) and id(node) not in called:
            container, key = node.value, ast.copy_location(ast.Constant(node.attr), node)
        value = evaluate_constant(key, view.scope) if key is not None else None
        of = infer_type(container, view) if container is not None and isinstance(value, str) else UNKNOWN
        if of.kind == "result" and key is not None:
            path = ".".join(map(str, (*of.values, value))).replace(f".{ITEM}", ITEM)
            is_stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
            is_attribute = isinstance(node, ast.Attribute)
            is_caught = isinstance(node, ast.Subscript) and may_be_caught(node, view)
            is_guarded = is_caught or (is_attribute and not is_stored)
            is_optional = is_stored or is_caught or not isinstance(node, ast.Subscript)
            place = span_of(view.scope.module.path, key)
            yield of.name, KeyRead(path, place, is_optional, is_guarded, is_attribute=is_attribute)


def walk_with_views(
    nodes: Sequence[ast.AST], view: FunctionView
) -> Iterator[tuple[ast.AST, FunctionView, tuple[FunctionView, list[ast.AST]]]]:
    """Yield each node at any depth, except names and constants, in the order of the source.

    Each comes with the view in which it is read and with `(view, list)` of its children: inside of a comprehension their view
    also knows the loop variables.
    """
    waiting = [(node, view) for node in reversed(nodes)]
    while waiting:
        node, outer = waiting.pop()
        inner = comprehension_view(node.generators, outer) if isinstance(node, COMPREHENSIONS) else outer
        children = children_of(node)
        yield node, outer, (inner, children)
        waiting += [(child, inner) for child in reversed(children) if child.__class__ not in LEAVES]


def _find_reads_in_callees(view: FunctionView) -> Iterator[tuple[str, KeyRead]]:
    """Follow results into functions of the project that receive them, through `MOST_HOPS` calls; yield the keys they read."""
    body = view.body
    for call in [*body.plain_calls, *(call for _, call in body.calls)] if view.hops < MOST_HOPS else ():
        arguments: dict[int | str | None, Type] = {
            place: infer_type(each, view) for place, each in enumerate(call.args)
        }
        arguments |= {each.arg: infer_type(each.value, view) for each in call.keywords}
        results = {place: of for place, of in arguments.items() if of.kind == "result"}
        callee = resolve_through(call.func, view.scope) if results else None
        if isinstance(callee, DefinedName) and isinstance(callee.node, FUNCTIONS) and not is_rebound(callee):
            inner = _add_passed_results(function_view(callee, view), callee.node, results)
            called = {id(each.func) for each in inner.body.method_calls}
            yield from _find_key_reads(callee.node.body, inner, called)
            yield from _find_reads_in_callees(inner)


def _add_passed_results(
    view: FunctionView, function: FunctionNode, results: Mapping[int | str | None, Type]
) -> FunctionView:
    """Return the view with the types of passed results in place of the imprecise types that parameters declare.

    `results` maps the position or keyword of an argument to the type of the result.
    """
    arguments = [*function.args.posonlyargs, *function.args.args][bool(view.body.self_name) :]
    names: dict[int | str | None, str] = dict(enumerate(each.arg for each in arguments))
    taken = {names.get(place, place): of for place, of in results.items()}
    vague = {name: taken[name] for name, of in view.parameters.items() if name in taken and is_unspecific(of)}
    return view.replace(parameters={**view.parameters, **vague})
