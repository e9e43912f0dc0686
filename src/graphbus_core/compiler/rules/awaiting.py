"""GB314: answers that are used without being awaited. In an `async def`, `self.call` and `self.request` return coroutines.

"Read" means here that a coroutine is used as if it were the answer, or dropped. Both are errors: nothing can await it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.reading.annotations import read_type
from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    ClassSite,
    DefinedName,
    NameScope,
    class_chain,
    find_member,
    resolve_through,
)
from graphbus_core.compiler.reading.syntax import call_argument, own_nodes

_ANSWERED = frozenset({"call", "request"})
"""Methods of an agent that return an answer, which must be awaited."""
_SENDING = frozenset({"publish", "log"})
"""Methods of an agent that return None."""
_READING = frozenset(
    {"bool", "dict", "float", "int", "len", "list", "max", "min", "print", "set", "sorted", "str", "sum"}
)
"""Builtins that use the value of an argument."""
_REDUCING = frozenset({"max", "min", "sorted", "sum"})
"""Builtins that take several answers in one list."""
_ADDING_METHODS = frozenset({"add", "append", "insert", "setdefault"})
_CONTAINERS = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_COROUTINE_ATTRIBUTES = ("send", "close", "throw", "cr_", "__")
_TIGHT_BINDING = (ast.Attribute, ast.Subscript)
"""These bind closer than `await`."""
_OPERATIONS = (
    *(ast.Expr, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.FormattedValue, ast.For, ast.comprehension),
    *(ast.If, ast.While, ast.Assert, ast.AugAssign, ast.Match),
)


def check_awaits(
    method: MethodSource, own_methods: frozenset[str], is_exposed: bool, scope: NameScope
) -> Iterator[tuple[ast.Call, str, str]]:
    """Find calls over the bus that nothing awaits, and awaits of `self.publish` and `self.log`, which return None.

    Args:
        method: An `async def`.
        own_methods: The names of the methods of the agent. If it defines `call`, `publish` or the like itself, those are skipped.
        is_exposed: True if the method is a handler or has a schema, so that its result goes over the bus.
        scope: The scope of the class that contains the method.

    Yields:
        The call, the predicate of a message, such as `awaits self.log(...), which gives None`, and a hint.
    """
    names = (_ANSWERED | _SENDING | {"agent"}) - own_methods
    if names.isdisjoint(attribute for attribute, _ in method.body.calls):
        return
    uses = _Uses(method, own_methods, is_exposed, scope)
    for node in uses.above:
        if isinstance(node, ast.Call) and uses.is_bus_call(node) and uses.is_read(node):
            written = f"await {uses.write_awaitable(node, scope)}"
            hint = f"`({written})`" if isinstance(uses.above[node], _TIGHT_BINDING) else f"`{written}`"
            message = f"does not await {ast.unparse(node.func)}(...), which gives a coroutine"
            yield node, message, f"Write {hint}."
        elif (
            isinstance(node, ast.Call) and uses.is_node_call(node, _SENDING) and isinstance(uses.above[node], ast.Await)
        ):
            written = ast.unparse(node.func)
            yield node, f"awaits {written}(...), which gives None", f"Leave `await` out: `{written}(...)`."


class _Uses:
    """How the values of expressions in an `async def` are used. `above` maps each node of the method to its parent."""

    def __init__(self, method: MethodSource, own_methods: frozenset[str], is_exposed: bool, scope: NameScope) -> None:
        self._scope = scope._replace(self_name=method.body.self_name)
        self._body = method.body
        self._own_methods = own_methods
        self._is_exposed = is_exposed
        self.above = {child: node for node in own_nodes(method.node) for child in ast.iter_child_nodes(node)}

    def is_node_call(self, value: ast.expr | None, attributes: frozenset[str]) -> bool:
        """Return whether a value is a call on `self` of one of these methods of `GraphBusNode`, unless the agent overrides it."""
        function = value.func if isinstance(value, ast.Call) else None
        if not isinstance(function, ast.Attribute) or function.attr not in attributes - self._own_methods:
            return False
        return getattr(function.value, "id", "") == self._body.self_name != ""

    def is_bus_call(self, call: ast.Call) -> bool:
        """Return whether a call gets an answer over the bus: `self.call`, `self.request`, or a method of `self.agent(...)`."""
        return self.is_node_call(call, _ANSWERED) or self.is_node_call(self._proxy_of(call), frozenset({"agent"}))

    def _proxy_of(self, call: ast.Call) -> ast.expr | None:
        """Return the object whose method is called; for a local name, the only expression assigned to it, or None."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        return self._body.bound_once(owner.id) if isinstance(owner, ast.Name) else owner

    def write_awaitable(self, call: ast.Call, scope: NameScope) -> str:
        """Return the call in a form that type checkers accept after `await`.

        They refuse `self.agent(X).m(...)` if `m` is a plain `def`; the result is then `self.call("X", "m", ...)`.
        """
        proxy, name = self._proxy_of(call), call.func.attr  # type: ignore[attr-defined]
        agent_argument = call_argument(proxy, 0, "kind") if isinstance(proxy, ast.Call) else None
        target = resolve_through(agent_argument, scope) if agent_argument is not None else None
        if not isinstance(target, DefinedName) or not isinstance(target.node, ast.ClassDef):
            return f"{ast.unparse(call.func)}(...)"
        method = find_member(class_chain(scope.library, ClassSite(target.module, target.node)), name)
        is_async = isinstance(getattr(method, "node", None), ast.AsyncFunctionDef)
        by_name = f'{self._body.self_name}.call("{target.node.name}", "{name}", ...)'
        return f"{ast.unparse(call.func)}(...)" if is_async else by_name

    def is_read(self, node: ast.AST) -> bool:
        """Return whether the value of an expression is surely used as the answer, or dropped; False if it may yet be awaited."""
        above = self.above.get(node)
        if isinstance(above, ast.Call) and above.func is not node:
            is_builtin = getattr(above.func, "id", "") in _READING - {*self._body.bound}
            return is_builtin or self._is_sent(node)
        if isinstance(above, ast.Return):
            return self._is_exposed
        return above is not None and (self._is_used_by_parent(node, above) or self._is_sent(node))

    def _is_sent(self, node: ast.AST) -> bool:
        """Return whether a value, or a container with it, is published, returned over the bus, or passed as a typed argument.

        A value that is assigned to a local name counts if the name is used in one of these ways.
        """
        above = self.above.get(node)
        if isinstance(above, ast.Return):
            return self._is_exposed
        if isinstance(above, _CONTAINERS):
            return self._is_sent(above) or self._is_combined(above)
        if isinstance(above, ast.keyword | ast.Starred | ast.IfExp):
            return self._is_sent(above) and not isinstance(above, ast.Starred)  # `*` unpacks the value itself
        if isinstance(above, ast.Call):
            is_passed_on = (
                self.is_bus_call(above) or self.is_node_call(above, _SENDING) or self._is_typed_argument(node, above)
            )
            return above.func is not node and (is_passed_on or self._adds_to_sent(above))
        targets = above.targets if isinstance(above, ast.Assign) else [getattr(above, "target", None)]
        return isinstance(above, ast.Assign | ast.AnnAssign) and any(map(self._is_target_sent, targets))

    def _is_combined(self, container: ast.AST) -> bool:
        """Return whether a container other than a dict is the argument of a builtin such as `sum`, which uses its items."""
        above = self.above.get(container)
        is_builtin = isinstance(above, ast.Call) and getattr(above.func, "id", "") in _REDUCING - {*self._body.bound}
        return is_builtin and not isinstance(container, ast.Dict | ast.DictComp)

    def _adds_to_sent(self, call: ast.Call) -> bool:
        """Return whether a call such as `prices.append(value)` adds to a container that the method sends or sums up."""
        function = call.func
        is_adding = isinstance(function, ast.Attribute) and function.attr in _ADDING_METHODS
        return is_adding and self._is_target_sent(function.value)  # type: ignore[attr-defined]

    def _is_typed_argument(self, value: ast.AST, call: ast.Call) -> bool:
        """Return whether an argument of a call has a declared type, by a parameter or by a field of a TypedDict or dataclass."""
        target = resolve_through(call.func, self._scope)
        node = target.node if isinstance(target, DefinedName) else None
        if isinstance(target, DefinedName) and isinstance(node, FUNCTIONS):
            home = self._scope.within(target.module)
            skipped = int(isinstance(call.func, ast.Attribute) and target.owner is not None)  # `self` of a method
            listed = [*node.args.posonlyargs, *node.args.args][skipped:] + node.args.kwonlyargs
            types = {each.arg: read_type(each.annotation, home) for each in listed}
        else:
            types = {field.name: field.type for field in read_type(call.func, self._scope).fields}
        place = call.args.index(value) if value in call.args else len(types)
        name = value.arg if isinstance(value, ast.keyword) else next(iter([*types][place:]), None)
        return name in types and types[name].kind not in ("unknown", "any")

    def _is_target_sent(self, target: ast.expr | None) -> bool:
        """Return whether a target is a local name, perhaps indexed, that is bound once and later sent or combined."""
        while isinstance(target, ast.Subscript):
            target = target.value
        if not isinstance(target, ast.Name) or len(self._body.bound.get(target.id, ())) != 1:
            return False
        names = (node for node in self.above if isinstance(node, ast.Name) and node.id == target.id)
        is_list = not isinstance(self._body.bound_once(target.id), ast.Dict | ast.DictComp | ast.Call)
        loads = [node for node in names if isinstance(node.ctx, ast.Load)]
        return any(self._is_sent(node) or (is_list and self._is_combined(node)) for node in loads)

    def _is_used_by_parent(self, node: ast.AST, above: ast.AST) -> bool:
        """Return whether the parent `above` reads the value of `node`, as an operator, a condition or an attribute does."""
        if isinstance(above, ast.Attribute):
            return not above.attr.startswith(_COROUTINE_ATTRIBUTES)
        if isinstance(above, ast.BoolOp | ast.IfExp):
            return getattr(above, "test", None) is node or self.is_read(above)
        if isinstance(above, ast.Assign | ast.AnnAssign):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            return all(self._is_target_read(target, node) for target in targets)
        return isinstance(above, _OPERATIONS)

    def _is_target_read(self, target: ast.expr, value: ast.AST) -> bool:
        """Return whether a value assigned to `target` is surely read: it is unpacked, or every use of the target reads it."""
        if not isinstance(target, ast.Name):
            return isinstance(target, ast.Tuple | ast.List)
        names = (node for node in self.above if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        loads = [node for node in names if node.id == target.id]
        # `loads` lacks the uses in inner functions, which `self._body.loads` counts
        has_all_uses = self._body.bound_once(target.id) is value and len(loads) == self._body.loads.get(target.id, 0)
        return has_all_uses and all(map(self.is_read, loads))
