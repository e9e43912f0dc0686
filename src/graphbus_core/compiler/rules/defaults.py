"""GB301: a default value that all calls share and that one of them changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.source import span_of
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding

Function = ast.FunctionDef | ast.AsyncFunctionDef

_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_MAKERS = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"})
_CHANGING_LISTS = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
_CHANGING_DICTS = {"popitem", "setdefault", "update"}
_CHANGING_SETS = {"add", "difference_update", "discard", "intersection_update", "symmetric_difference_update"}
_CHANGING_DEQUES = {"appendleft", "extendleft", "popleft", "rotate"}
_CHANGING = frozenset(_CHANGING_LISTS | _CHANGING_DICTS | _CHANGING_SETS | _CHANGING_DEQUES)


def check_defaults(method: Function, definition: AgentDefinition) -> Iterator[Finding]:
    """Find mutable defaults that the body changes; one that is only read does no harm."""
    for argument, default in defaulted(method):
        name = argument.arg
        if is_mutable(default) and not _is_memory(name) and _is_changed(name, method):
            yield Finding(
                code="GB301",
                severity="warning",
                agent=definition.name,
                span=span_of(definition.path, default),
                message=f"{definition.name}.{method.name} changes the default value of {name!r}, which all calls share",
                hint=f"Write `{name}=None` and make a new value in the body.",
                is_fixable=True,
                is_fix_safe=True,
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
