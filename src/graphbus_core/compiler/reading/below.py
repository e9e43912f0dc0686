"""The keys that a method reads of results of other agents, and the paths that a handler reads below the keys of its payload."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

from graphbus_core.compiler.reading.bodies import FunctionNode, container_root
from graphbus_core.compiler.reading.catching import may_be_caught
from graphbus_core.compiler.reading.constants import evaluate_constant, is_rebound
from graphbus_core.compiler.reading.flow import comprehension_view, infer_type
from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.modules import FUNCTIONS, DefinedName, resolve_through
from graphbus_core.compiler.reading.syntax import LEAVES, children_of, span_of
from graphbus_core.compiler.reading.views import FunctionView, function_view
from graphbus_core.model.agent import BELOW_UNKNOWN, KeyRead, Parameter
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


# --- results of other agents --------------------------------------------------------------------


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
    for node, view, _ in _walk_with_views(nodes, outer):
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


def _walk_with_views(
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


# --- parts of a payload ----------------------------------------------------------------------


_OF_PAYLOAD = "payload"
PAYLOAD = Type("result", name=_OF_PAYLOAD)


def reads_more(parameters: tuple[Parameter, ...], function: FunctionNode, view: FunctionView) -> bool:
    """True if a handler reads keys of a parameter whose type does not say which keys there are."""
    names = {each.name for each in parameters if each.name not in view.body.bound and is_unspecific(each.type)}
    values = {name: msgspec.structs.replace(PAYLOAD, values=(name,)) for name in names}
    return bool(names and paths_below(function, values, view))


def paths_below(function: FunctionNode, values: Mapping[str, Type], view: FunctionView) -> dict[str, list[str]]:
    """Return, for each key of the payload, the paths below it that a function reads: `items` -> `items[].sku`.

    A last step of `?` stands for a use that may read anything below. `values` maps the names of the payload, or of parameters
    that hold its fields, to `PAYLOAD` with the keys that lead to the value.
    """
    outer = view.replace(items={**view.items, **values})
    names = _names_that_may_hold_parts(outer)
    called = {id(each.func) for each in view.body.method_calls}
    paths: list[tuple[str, str]] = []
    vague: list[tuple[str, str]] = []
    for node, at, (inner, children) in _walk_with_views(function.body, outer):
        if isinstance(node, ast.Attribute | ast.Subscript) and id(node) not in called:
            path = _path_that_is_read(node, at, names)
            key = path.replace(ITEM, ".").partition(".")[0]
            if key != path:
                paths.append((key, path))
        vague.extend(
            (keys[0], ".".join((*keys, BELOW_UNKNOWN)).replace(f".{ITEM}", ITEM))
            for keys in _find_keys_of_other_uses(node, children, inner, names)
        )
    found: dict[str, list[str]] = {}
    for key, path in dict.fromkeys((*paths, *vague)):
        found.setdefault(key, []).append(path)
    return found


def _names_that_may_hold_parts(view: FunctionView) -> Set[str]:
    """Return the names in `view.items` and all local names that may hold a part of their values, directly or indirectly."""
    names = set(view.items)
    waiting = {name: [each for each in values if each] for name, values in view.body.bound.items() if name not in names}
    known = -1
    while known < len(names):
        known = len(names)
        names |= {name for name, values in waiting.items() if any(_may_hold_part(each, view, names) for each in values)}
    return names


def _path_that_is_read(node: ast.Attribute | ast.Subscript, view: FunctionView, names: Set[str]) -> str:
    """Return the path that an attribute or subscript reads below a key of the payload, such as `items[].sku`.

    `""` if it reads none, and for a key of the payload itself.
    """
    is_read = (
        isinstance(node.ctx, ast.Load) and not _is_payload(node.value, view) and _may_hold_part(node.value, view, names)
    )
    if not is_read:
        return ""
    key = node.attr if isinstance(node, ast.Attribute) else evaluate_constant(node.slice, view.scope)
    of = infer_type(node.value, view) if isinstance(key, str) else UNKNOWN
    if of.kind != "result" or of.name != _OF_PAYLOAD:
        return ""
    return ".".join(map(str, (*of.values, key))).replace(f".{ITEM}", ITEM).removeprefix(f"{_OF_PAYLOAD}.")


def _find_keys_of_other_uses(
    node: ast.AST, children: Sequence[ast.AST], view: FunctionView, names: Set[str]
) -> Iterator[tuple[str, ...]]:
    """For each part of the payload of which `node` may read keys that are not known, yield the keys that lead to the part."""
    # the value of a keyword is visited with its call
    for child in () if isinstance(node, ast.keyword) else (*children, *_keyword_values(node)):
        if isinstance(child, _VALUES) and _may_hold_part(child, view, names):
            is_called = isinstance(node, ast.Call) and child is node.func and isinstance(child, ast.Attribute)
            value = child.value if is_called else child  # type: ignore[union-attr]
            if not _is_payload(value, view) and not _reads_no_further_keys(node, child, view):
                keys = _keys_to(infer_type(value, view))
                if keys:
                    yield keys


def _is_payload(value: ast.expr, view: FunctionView) -> bool:
    """True for a name of the payload or of the event, and for `event.payload`."""
    root = container_root(value)
    return root is not None and view.items.get(root[0]) is PAYLOAD


def _keyword_values(node: ast.AST) -> list[ast.expr]:
    return [each.value for each in node.keywords] if isinstance(node, ast.Call) else []


def _may_hold_part(value: ast.AST, view: FunctionView, names: Set[str]) -> bool:
    """False for an expression whose value certainly is no part of the payload: `self.x`, `LIMIT`, `a < b`, `f(1)`.

    `names` are the local names that may hold a part.
    """
    while isinstance(value, ast.Attribute | ast.Subscript | ast.Starred):
        value = value.value
    if isinstance(value, ast.Name):
        return value.id in names or value.id in view.items
    if isinstance(value, ast.Call):
        function = value.func
        if isinstance(function, ast.Attribute) and view.is_self(function.value):
            return False
        if isinstance(function, ast.Name) and function.id in view.body.bound:  # a lambda that may return a part
            return True
        parts = [function, *value.args, *(each.value for each in value.keywords)]
        return any(_may_hold_part(each, view, names) for each in parts)
    return not isinstance(value, _WITHOUT_PARTS)


_WITHOUT_PARTS = (ast.Constant, ast.JoinedStr, ast.Compare)
_VALUES = (ast.Subscript, ast.Call, ast.Name, ast.Attribute)
_WHOLE_READERS = frozenset({"print", "len", "str", "repr", "bool", "isinstance", "type", "int", "float", "log"})


def _keys_to(of: Type) -> tuple[str, ...]:
    """Return the keys that lead from the payload to a value of this type; none for the payload itself and for other values."""
    # the first key may be the attribute `payload` of an event
    is_wrapped = of.values[:1] == (_OF_PAYLOAD,)
    return tuple(map(str, of.values[is_wrapped:])) if of.kind == "result" and of.name == _OF_PAYLOAD else ()


def _reads_no_further_keys(parent: ast.AST, value: ast.expr, view: FunctionView) -> bool:
    """True if `_path_that_is_read` finds all keys that `parent` reads of `value`, a part of the payload directly below it."""
    if isinstance(parent, ast.Attribute | ast.Subscript):  # a constant key is found; a computed one may be any
        return value is not parent.value or infer_type(parent, view).kind == "result"
    if isinstance(parent, ast.Call):  # `x.get("key")` is found; as an argument the value may be read by the function
        is_getter = value is parent.func
        return (
            infer_type(parent, view).kind == "result" if is_getter else _name_of_function(parent.func) in _WHOLE_READERS
        )
    if isinstance(parent, ast.comprehension):  # one loop variable has a known type; unpacking reads the items
        return value is not parent.iter or isinstance(parent.target, ast.Name)
    if isinstance(parent, ast.BinOp):  # only `|` uses a dict
        return not isinstance(parent.op, ast.BitOr)
    if isinstance(parent, ast.Assign | ast.NamedExpr | ast.For | ast.AsyncFor):
        targets = getattr(parent, "targets", None) or [parent.target]  # type: ignore[union-attr]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        # a name that is bound once has a known type, so that its own uses are found
        return len(names) == len(targets) and all(view.body.bound_once(name) is not None for name in names)
    return isinstance(parent, _WHOLE_READING_NODES)


_WHOLE_READING_NODES = (ast.FormattedValue, ast.Compare, ast.Expr, ast.If, ast.While)


def _name_of_function(function: ast.expr) -> str:
    return getattr(function, "attr", "") or getattr(function, "id", "")
