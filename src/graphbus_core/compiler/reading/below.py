"""The keys that a method reads of results of other agents, and the paths that a handler reads below the keys of its payload."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

from graphbus_core.compiler.reading.bodies import FunctionNode
from graphbus_core.compiler.reading.constants import evaluate_constant, is_rebound
from graphbus_core.compiler.reading.flow import comprehension_view, function_view, infer_type
from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.modules import FUNCTIONS, DefinedName, resolve_through
from graphbus_core.compiler.reading.syntax import children_of, span_of
from graphbus_core.compiler.reading.views import FunctionView
from graphbus_core.model.agent import BELOW_UNKNOWN, KeyRead, Parameter
from graphbus_core.schema.types import ITEM, UNKNOWN, Type, is_unspecific

MOST_HOPS = 2
"""From a method to a function that gets what it has, and on."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)


def key_access(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The container and the key of `x[key]`, `x.get(key)` and `key in x`."""
    if isinstance(node, ast.Subscript):
        return node.value, node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, node.args[0]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], node.left
    return None, None


# --- what other agents give --------------------------------------------------------------------


def reads_of_results(method: MethodSource, view: FunctionView) -> Mapping[str, list[KeyRead]]:
    """Return the keys that a method reads of the results of other agents, by the name of the result; `a[].b` leads into a list.

    Attributes count as optional, behind a guard: an object of a class may have more than its fields.
    """
    found: dict[str, list[KeyRead]] = {}
    kept = (getattr(getattr(value, "func", None), "attr", "") for value, _ in view.kept.values())
    if not {"call", "request", "agent"}.isdisjoint(name for name, _ in view.body.calls) or "agent" in kept:
        called = {id(each.func) for each in view.body.method_calls}
        reads = [*_key_reads(method.node.body, view, called), *_handed_on(view)]
        coped = {(name, each.key) for name, each in reads if each.is_optional}
        for name, each in reads:
            found.setdefault(name, []).append(msgspec.structs.replace(each, is_optional=(name, each.key) in coped))
    return found


def _key_reads(nodes: Sequence[ast.AST], view: FunctionView, called: Set[int]) -> Iterator[tuple[str, KeyRead]]:
    for node in nodes:
        container, key = key_access(node)
        is_optional = not isinstance(node, ast.Subscript) or view.body.is_caught(node)
        if isinstance(node, ast.Attribute) and id(node) not in called:
            container, key = node.value, ast.copy_location(ast.Constant(node.attr), node)
        value = evaluate_constant(key, view.scope) if key is not None else None
        of = infer_type(container, view) if container is not None and isinstance(value, str) else UNKNOWN
        if of.kind == "result" and key is not None:
            path = ".".join(map(str, (*of.values, value))).replace(f".{ITEM}", ITEM)
            is_stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
            is_guarded = isinstance(node, ast.Attribute) and not is_stored
            yield of.name, KeyRead(path, span_of(view.scope.module.path, key), is_optional or is_stored, is_guarded)
        inner = comprehension_view(node.generators, view) if isinstance(node, COMPREHENSIONS) else view
        yield from _key_reads(children_of(node), inner, called)


def _handed_on(view: FunctionView) -> Iterator[tuple[str, KeyRead]]:
    """The keys of results that are read in the functions of the project to which the results are passed."""
    body = view.body
    for call in [*body.plain_calls, *(call for _, call in body.calls)] if view.hops < MOST_HOPS else ():
        given: dict[int | str | None, Type] = {place: infer_type(each, view) for place, each in enumerate(call.args)}
        given |= {each.arg: infer_type(each.value, view) for each in call.keywords}
        results = {place: of for place, of in given.items() if of.kind == "result"}
        callee = resolve_through(call.func, view.scope) if results else None
        if isinstance(callee, DefinedName) and isinstance(callee.node, FUNCTIONS) and not is_rebound(callee):
            inner = _with_results(function_view(callee, view), callee.node, results)
            called = {id(each.func) for each in inner.body.method_calls}
            yield from _key_reads(callee.node.body, inner, called)
            yield from _handed_on(inner)


def _with_results(view: FunctionView, function: FunctionNode, results: Mapping[int | str | None, Type]) -> FunctionView:
    """The view of a function in which parameters without a precise type have the types of the results passed to them."""
    arguments = [*function.args.posonlyargs, *function.args.args][bool(view.body.self_name) :]
    names: dict[int | str | None, str] = dict(enumerate(each.arg for each in arguments))
    taken = {names.get(place, place): of for place, of in results.items()}
    vague = {name: taken[name] for name, of in view.parameters.items() if name in taken and is_unspecific(of)}
    return msgspec.structs.replace(view, parameters={**view.parameters, **vague})


# --- what is in a payload ----------------------------------------------------------------------


_OF_PAYLOAD = "payload"
PAYLOAD = Type("result", name=_OF_PAYLOAD)


def reads_more(parameters: tuple[Parameter, ...], function: FunctionNode, view: FunctionView) -> bool:
    """True when a handler reads keys of parameters whose types do not declare them."""
    names = {each.name for each in parameters if each.name not in view.body.bound and is_unspecific(each.type)}
    values = {name: msgspec.structs.replace(PAYLOAD, values=(name,)) for name in names}
    return bool(names and paths_below(function, values, view))


def paths_below(function: FunctionNode, values: Mapping[str, Type], view: FunctionView) -> dict[str, list[str]]:
    """Return the paths that are read below each key of the payload; `?` stands for a use that may read anything."""
    inner = msgspec.structs.replace(view, items={**view.items, **values})
    called = {id(each.func) for each in view.body.method_calls}
    found: dict[str, list[str]] = {}
    for name, read in _key_reads(function.body, inner, called):
        path = read.key.removeprefix(f"{_OF_PAYLOAD}.")
        key = path.replace(ITEM, ".").partition(".")[0]
        if name == _OF_PAYLOAD and key != path and (read.is_guarded or not read.is_optional):
            found.setdefault(key, []).append(path)
    for keys in _not_understood(function.body, inner):
        path = ".".join((*keys, BELOW_UNKNOWN)).replace(f".{ITEM}", ITEM)
        found.setdefault(keys[0], []).append(path)
    return {key: list(dict.fromkeys(paths)) for key, paths in found.items()}


def _not_understood(nodes: Sequence[ast.AST], view: FunctionView) -> Iterator[tuple[str, ...]]:
    """Return the keys of payload values that are used in a way which may read further keys."""
    for node in nodes:
        inner = comprehension_view(node.generators, view) if isinstance(node, COMPREHENSIONS) else view
        for child in (*children_of(node), *(each.value for each in getattr(node, "keywords", ()))):
            if isinstance(child, _VALUES) and not isinstance(node, ast.keyword) and _may_hold(child, inner):
                is_called = isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Attribute)
                keys = _keys_to(infer_type(child.value if is_called else child, inner))  # type: ignore[union-attr]
                if keys and not _is_understood(node, child, inner):
                    yield keys
        yield from _not_understood(children_of(node), inner)


def _may_hold(value: ast.expr, view: FunctionView) -> bool:
    """False for an expression that begins with a name that never stands for a value of the payload: `self.x`, `LIMIT`."""
    root: ast.AST = value
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    if isinstance(root, ast.Call):
        return not (isinstance(root.func, ast.Attribute) and view.is_self(root.func.value))
    return not isinstance(root, ast.Name) or root.id in view.items or root.id in view.body.bound


_VALUES = (ast.Subscript, ast.Call, ast.Name, ast.Attribute)
_LOOKING = frozenset({"print", "len", "str", "repr", "bool", "isinstance", "type", "int", "float", "log"})


def _keys_to(of: Type) -> tuple[str, ...]:
    """The keys of the payload that lead to a value; none for the payload itself, and for anything else."""
    is_wrapped = of.values[:1] == (_OF_PAYLOAD,)
    return tuple(map(str, of.values[is_wrapped:])) if of.kind == "result" and of.name == _OF_PAYLOAD else ()


def _is_understood(parent: ast.AST, value: ast.expr, view: FunctionView) -> bool:
    """True when a use reads nothing of a value beyond the paths that are listed anyway."""
    if isinstance(parent, ast.Attribute | ast.Subscript):
        return value is not parent.value or infer_type(parent, view).kind == "result"
    if isinstance(parent, ast.Call):
        is_getter = value is parent.func
        return infer_type(parent, view).kind == "result" if is_getter else _name_of(parent.func) in _LOOKING
    if isinstance(parent, ast.comprehension):
        return value is not parent.iter or isinstance(parent.target, ast.Name)
    if isinstance(parent, ast.BinOp):
        return not isinstance(parent.op, ast.BitOr)
    if isinstance(parent, ast.Assign | ast.NamedExpr | ast.For | ast.AsyncFor):
        targets = getattr(parent, "targets", None) or [parent.target]  # type: ignore[union-attr]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        return len(names) == len(targets) and all(view.body.bound_once(name) is not None for name in names)
    return isinstance(parent, _LOOKING_NODES)


_LOOKING_NODES = (ast.FormattedValue, ast.Compare, ast.Expr, ast.If, ast.While)


def _name_of(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")
