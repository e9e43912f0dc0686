"""GB314: answers that are used before they were awaited. An `async def` gets a coroutine from `self.call` and `self.request`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.reading.methods import MethodSource
from graphbus_core.compiler.reading.modules import (
    ClassSite,
    DefinedName,
    NameScope,
    class_chain,
    find_member,
    resolve_through,
)
from graphbus_core.compiler.reading.syntax import call_argument, own_nodes

_ASKING = frozenset({"call", "request"})
_SAYING = frozenset({"publish", "log"})
_READING = frozenset(
    {"bool", "dict", "float", "int", "len", "list", "max", "min", "print", "set", "sorted", "str", "sum"}
)
_OF_COROUTINES = ("send", "close", "throw", "cr_", "__")
_BINDING = (ast.Attribute, ast.Subscript)
"""These bind closer than `await`."""
_OPERATIONS = (
    *(ast.Expr, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.FormattedValue, ast.For, ast.comprehension),
    *(ast.If, ast.While, ast.Assert, ast.AugAssign, ast.Match),
)


def check_awaits(
    method: MethodSource, own: frozenset[str], is_exposed: bool, scope: NameScope
) -> Iterator[tuple[ast.Call, str, str]]:
    """Find calls over the bus that nothing awaits, and awaits of what cannot be awaited.

    Args:
        method: An `async def`.
        own: The names of all methods of the agent: what it defines itself is not ours.
        is_exposed: What it returns goes over the bus.
        scope: The class in which it stands.

    Yields:
        The call, what the method does wrong, and what to write instead.
    """
    if {attribute for attribute, _ in method.body.calls}.isdisjoint((_ASKING | _SAYING | {"agent"}) - own):
        return
    uses = _Uses(method, own, is_exposed)
    for node in uses.above:
        if isinstance(node, ast.Call) and uses.is_asked(node) and uses.is_read(node):
            written = f"await {uses.awaitable(node, scope)}"
            hint = f"`({written})`" if isinstance(uses.above[node], _BINDING) else f"`{written}`"
            message = f"does not await {ast.unparse(node.func)}(...), which gives a coroutine"
            yield node, message, f"Write {hint}."
        elif isinstance(node, ast.Call) and uses.is_own(node, _SAYING) and isinstance(uses.above[node], ast.Await):
            written = ast.unparse(node.func)
            yield node, f"awaits {written}(...), which gives None", f"Leave `await` out: `{written}(...)`."


class _Uses:
    """What happens to the values of expressions in an `async def`."""

    def __init__(self, method: MethodSource, own: frozenset[str], is_exposed: bool) -> None:
        self._body = method.body
        self._own = own
        self._is_exposed = is_exposed
        self.above = {child: node for node in own_nodes(method.node) for child in ast.iter_child_nodes(node)}

    def is_own(self, value: ast.expr | None, attributes: frozenset[str]) -> bool:
        """True for a call of one of these attributes of `self` that the agent does not define itself."""
        function = value.func if isinstance(value, ast.Call) else None
        if not isinstance(function, ast.Attribute) or function.attr not in attributes - self._own:
            return False
        return getattr(function.value, "id", "") == self._body.self_name != ""

    def is_asked(self, call: ast.Call) -> bool:
        """True for a call that another agent answers, also by `self.agent(...)` or a name for that."""
        return self.is_own(call, _ASKING) or self.is_own(self._proxy_of(call), frozenset({"agent"}))

    def _proxy_of(self, call: ast.Call) -> ast.expr | None:
        """The `self.agent(...)` whose method is called, also by a local name."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        return self._body.bound_once(owner.id) if isinstance(owner, ast.Name) else owner

    def awaitable(self, call: ast.Call, scope: NameScope) -> str:
        """Return the call in a form that type checkers let be awaited: `self.agent(X).m(...)` has the type of `m`."""
        proxy, name = self._proxy_of(call), call.func.attr  # type: ignore[attr-defined]
        given = call_argument(proxy, 0, "kind") if isinstance(proxy, ast.Call) else None
        target = resolve_through(given, scope) if given is not None else None
        if not isinstance(target, DefinedName) or not isinstance(target.node, ast.ClassDef):
            return f"{ast.unparse(call.func)}(...)"
        method = find_member(class_chain(scope.library, ClassSite(target.module, target.node)), name)
        is_async = isinstance(getattr(method, "node", None), ast.AsyncFunctionDef)
        by_name = f'{self._body.self_name}.call("{target.node.name}", "{name}", ...)'
        return f"{ast.unparse(call.func)}(...)" if is_async else by_name

    def is_read(self, node: ast.AST) -> bool:
        """True when the value of an expression is surely taken for the answer, or dropped; in doubt it is awaited elsewhere."""
        above = self.above.get(node)
        if isinstance(above, ast.Call):
            is_builtin = getattr(above.func, "id", "") in _READING - {*self._body.bound}
            return above.func is not node and (is_builtin or self.is_asked(above) or self.is_own(above, _SAYING))
        if isinstance(above, ast.Dict):
            return isinstance(self.above.get(above), ast.Return | ast.Call) and self.is_read(above)
        if isinstance(above, ast.Return):
            return self._is_exposed
        return above is not None and self._is_operand(node, above)

    def _is_operand(self, node: ast.AST, above: ast.AST) -> bool:
        if isinstance(above, ast.Attribute):
            return not above.attr.startswith(_OF_COROUTINES)
        if isinstance(above, ast.BoolOp | ast.IfExp):
            return getattr(above, "test", None) is node or self.is_read(above)
        if isinstance(above, ast.Assign | ast.AnnAssign):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            return all(self._is_target_read(target, node) for target in targets)
        return isinstance(above, _OPERATIONS)

    def _is_target_read(self, target: ast.expr, value: ast.AST) -> bool:
        """The same for what is assigned: all uses of a name that is assigned once, and what is unpacked."""
        if not isinstance(target, ast.Name):
            return isinstance(target, ast.Tuple | ast.List)
        names = (node for node in self.above if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        loads = [node for node in names if node.id == target.id]
        is_all = self._body.bound_once(target.id) is value and len(loads) == self._body.loads.get(target.id, 0)
        return is_all and all(map(self.is_read, loads))
