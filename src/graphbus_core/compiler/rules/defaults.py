"""GB301: a default value that all calls share and that one of them changes.

changed, never looked at          a safe fix: nobody can notice
changed, then looked at as text   a fix for the agents to vote on: what is added is always the same, surely no memory
anything else                     reported only: it may be a memory, a counter or a collection on purpose
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Literal

from graphbus_core.compiler.reading.source import span_of
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding

Function = ast.FunctionDef | ast.AsyncFunctionDef
Seen = Literal["never", "as text", "as memory"]

_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_MAKERS = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"})
_CHANGING_LISTS = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
_CHANGING_DICTS = {"popitem", "setdefault", "update"}
_CHANGING_SETS = {"add", "difference_update", "discard", "intersection_update", "symmetric_difference_update"}
_CHANGING_DEQUES = {"appendleft", "extendleft", "popleft", "rotate"}
_ADDING = frozenset({"add", "append", "appendleft", "extend", "extendleft", "insert", "setdefault", "update"})
_KINDS = frozenset({"int", "str", "float", "list", "dict", "set"})
_MAPPINGS = frozenset({"dict", "defaultdict", "Counter", "OrderedDict"})
_REFLECTING = frozenset({"locals", "vars", "eval", "exec", "globals"})
_CHANGING = frozenset(_CHANGING_LISTS | _CHANGING_DICTS | _CHANGING_SETS | _CHANGING_DEQUES)


def check_defaults(method: Function, definition: AgentDefinition) -> Iterator[Finding]:
    """Find mutable defaults that the body changes; one that is only read does no harm."""
    for argument, default in defaulted(method):
        name = argument.arg
        if is_mutable(default) and not _is_memory(name) and _is_changed(name, method):
            seen = how_seen(name, default, method)
            yield Finding(
                code="GB301",
                severity="warning",
                agent=definition.name,
                span=span_of(definition.path, default),
                message=f"{definition.name}.{method.name} changes the default value of {name!r}, which all calls share",
                hint=f"Write `{name}=None` and make a new value in the body."
                + ("" if seen != "as memory" else " If the calls are meant to share it, keep it in `self`."),
                is_fixable=seen != "as memory",
                is_fix_safe=seen == "never",
                data={"parameter": name},
            )


def defaulted(method: Function) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Give the parameters with their defaults."""
    positional = [*method.args.posonlyargs, *method.args.args]
    if method.args.defaults:
        yield from zip(positional[-len(method.args.defaults) :], method.args.defaults, strict=True)
    for argument, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True):
        if default is not None:
            yield argument, default


def is_mutable(default: ast.expr) -> bool:
    """True for a display, a comprehension and a call of a mutable container's class."""
    if isinstance(default, ast.Call):
        return getattr(default.func, "attr", getattr(default.func, "id", "")) in _MAKERS
    return isinstance(default, _DISPLAYS)


def _is_memory(name: str) -> bool:
    """A default that is meant to outlive the call, by the usual names for it."""
    return name.startswith("_") or any(word in name for word in ("cache", "memo"))


def _is_changed(name: str, method: Function) -> bool:
    """True when the body changes the value itself and never gives the name another value."""
    is_changed = False
    for node in ast.walk(method):
        if _rebinds(node, name):
            return False
        is_changed = is_changed or _changes(node, name)
    return is_changed


def _rebinds(node: ast.AST, name: str) -> bool:
    """Assignments and loops, and inner functions with a parameter of that name: what is changed then is something else."""
    if isinstance(node, ast.AugAssign):
        return False
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.For | ast.AsyncFor | ast.comprehension):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars:
        targets = [node.optional_vars]
    elif isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
        return _counts_as_inner(node, name)
    return any(isinstance(each, ast.Name) and each.id == name for target in targets for each in ast.walk(target)
               if isinstance(getattr(each, "ctx", None), ast.Store))  # fmt: skip


def _counts_as_inner(node: ast.Lambda | Function, name: str) -> bool:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    has_default = [argument.arg for argument, _ in defaulted(node)] if isinstance(node, Function) else []
    return any(argument.arg == name for argument in arguments) and name not in has_default


def _changes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return _is_the(node.target, name) or _is_part_of(node.target, name)
    if isinstance(node, ast.Call):
        function = node.func
        return isinstance(function, ast.Attribute) and function.attr in _CHANGING and _is_the(function.value, name)
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load) and _is_the(node.value, name)
    return False


def _is_part_of(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Subscript) and _is_the(target.value, name)


def _is_the(expression: ast.expr, name: str) -> bool:
    return isinstance(expression, ast.Name) and expression.id == name


# --- what a call can see of what earlier calls changed ----------------------------------------


def how_seen(name: str, default: ast.expr, method: Function) -> Seen:
    """Tell how the calls of a method look at the default that they share and change."""
    above = {child: node for node in ast.walk(method) for child in ast.iter_child_nodes(node)}
    names = [node for statement in method.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    if _is_computed(default) or any(node.id in _REFLECTING for node in names):
        return "as memory"
    added = {node: place for node in names if node.id == name and (place := _addition(node, default, above))}
    looks = [node for node in names if node.id == name and node not in added]
    if not looks:
        return "never"
    first = next((place for place in method.body if place in added.values()), None)
    is_behind = first is not None and all(look.lineno > (first.end_lineno or first.lineno) for look in looks)
    is_constant = all(_adds_constants(place) for place in added.values())
    is_text = is_behind and is_constant and all(_is_joined(look, above) for look in looks)
    return "as text" if is_text else "as memory"


def _addition(node: ast.Name, default: ast.expr, above: Mapping[ast.AST, ast.AST]) -> ast.stmt | None:
    """Give the statement that adds to the value without a look at what is in it, None where a use is none of this."""
    parent = above[node]
    if isinstance(parent, ast.AugAssign) and parent.target is node:
        return parent
    holder = above[parent]
    if isinstance(parent, ast.Subscript) and parent.value is node and _is_mapping(default):
        return holder if isinstance(holder, ast.Assign) and parent in holder.targets else None
    if not (isinstance(parent, ast.Attribute) and parent.attr in _ADDING and isinstance(holder, ast.Call)):
        return None
    statement = above[holder]
    return statement if isinstance(statement, ast.Expr) and holder.func is parent else None


def _is_mapping(default: ast.expr) -> bool:
    if isinstance(default, ast.Call):
        return getattr(default.func, "attr", getattr(default.func, "id", "")) in _MAPPINGS
    return isinstance(default, ast.Dict | ast.DictComp)


def _is_computed(default: ast.expr) -> bool:
    """True when the value could be another one, or cost something, each time that it is made."""
    maker = default.func if isinstance(default, ast.Call) else None
    known = (default, maker, getattr(maker, "value", None))
    parts = [node for node in ast.walk(default) if node not in known]
    kinds = (ast.Call, ast.Await, ast.Attribute, ast.NamedExpr)
    return any(isinstance(node, kinds) or (isinstance(node, ast.Name) and node.id not in _KINDS) for node in parts)


def _adds_constants(place: ast.stmt) -> bool:
    """True when every call adds the same: the value is the only name in the statement, and nothing else is called."""
    names = sum(isinstance(node, ast.Name) for node in ast.walk(place))
    calls = sum(isinstance(node, ast.Call | ast.Await) for node in ast.walk(place))
    return names == 1 and calls <= 1


def _is_joined(look: ast.Name, above: Mapping[ast.AST, ast.AST]) -> bool:
    """True for `"".join(x)` and `"".join([..., *x])`: a text is made of it, and nobody gets hold of the value itself."""
    node = above[look]
    if isinstance(node, ast.Starred):
        node = above[node]
        node = above[node] if isinstance(node, ast.List | ast.Tuple) else node
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"
