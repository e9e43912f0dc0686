"""GB314: answers that are used before they were awaited. An `async def` gets a coroutine from `self.call` and `self.request`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from graphbus_core.compiler.reading.bodies import Function
from graphbus_core.compiler.reading.methods import Method

_ASKING = frozenset({"call", "request"})
_TAKING = _ASKING | {"publish", "log"}
_READING = frozenset(
    {"bool", "dict", "enumerate", "float", "int", "len", "list", "max", "min", "print", "range", "repr", "round", "set"}
    | {"sorted", "str", "sum", "tuple"}
)
_OF_COROUTINES = ("send", "close", "throw", "cr_", "__")
_PARTS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPERATORS = (
    *(ast.Expr, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.FormattedValue, ast.For, ast.comprehension),
    *(ast.If, ast.While, ast.Assert, ast.AugAssign, ast.Match),
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Give the nodes of a body, those of functions and classes within it left out."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def check_awaits(method: Method, own: Collection[str], is_exposed: bool) -> Iterator[tuple[ast.Call, str, str]]:
    """Find calls over the bus that nothing awaits, and awaits of what cannot be awaited.

    Args:
        method: An `async def`.
        own: The names of all methods of the agent: what it defines itself is not ours.
        is_exposed: What it returns goes over the bus.

    Yields:
        The call, what the method does wrong, and what to write instead.
    """
    if not {attribute for attribute, _ in method.body.calls} & (_TAKING | {"agent"}) - {*own}:
        return
    uses = _Uses(method, own, is_exposed)
    for node in uses.above:
        written = uses.asked(node, _ASKING) if isinstance(node, ast.Call) else ""
        if written and uses.is_read(node):
            hint = f"Write `await {written}(...)`."
            yield node, f"does not await {written}(...), which gives a coroutine", hint  # type: ignore[misc]
        elif isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            written = ast.unparse(node.value.func)
            if uses.is_own(node.value.func, _TAKING - _ASKING):
                yield node.value, f"awaits {written}(...), which gives None", f"Leave `await` out: `{written}(...)`."


class _Uses:
    """What happens to the values of expressions in an `async def`."""

    def __init__(self, method: Method, own: Collection[str], is_exposed: bool) -> None:
        self._body = method.body
        self._own = own
        self._is_exposed = is_exposed
        nodes = list(own_nodes(method.node))
        self.above = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
        arguments = method.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        self._hidden = {each.arg for each in every if each} | {*method.body.bound}

    def asked(self, call: ast.Call, attributes: Collection[str]) -> str:
        """Give what a call over the bus calls, `self.call` or `self.agent(Stock).count`; the empty text for another call."""
        function = call.func
        if not isinstance(function, ast.Attribute):
            return ""
        return ast.unparse(function) if self.is_own(function, attributes) or self._is_agent(function.value) else ""

    def is_own(self, function: ast.expr | None, attributes: Collection[str]) -> bool:
        """True for one of these attributes of `self` that the agent does not define itself."""
        if not isinstance(function, ast.Attribute) or function.attr not in attributes or function.attr in self._own:
            return False
        return getattr(function.value, "id", "") == self._body.self_name != ""

    def _is_agent(self, owner: ast.expr) -> bool:
        """True for `self.agent(...)` and for a name that was given nothing else."""
        value = self._body.bound_once(owner.id) if isinstance(owner, ast.Name) else owner
        return self.is_own(value.func if isinstance(value, ast.Call) else None, {"agent"})

    def is_read(self, node: ast.AST, is_part: bool = False) -> bool:
        """True when the value is surely taken for the answer, or dropped; in doubt it is awaited at another place.

        Args:
            node: An expression.
            is_part: What is asked about is an element of the value.
        """
        above = self.above.get(node)
        if isinstance(above, ast.keyword | ast.Starred):
            is_spread = isinstance(above, ast.Starred) or above.arg is None
            return (is_spread and not is_part) or self.is_read(above, is_part)
        if isinstance(above, ast.Call):
            return above.func is not node and self._is_taken(above, is_part)
        if isinstance(above, _PARTS):
            pairs = zip(above.keys, above.values, strict=True) if isinstance(above, ast.Dict) else ()
            is_spread = any(value is node and key is None for key, value in pairs)
            return (is_spread and not is_part) or self.is_read(above, True)
        if isinstance(above, ast.Return):
            return self._is_exposed
        return not is_part and above is not None and self._is_operand(node, above)

    def _is_operand(self, node: ast.AST, above: ast.AST) -> bool:
        if isinstance(above, ast.Attribute):
            return not above.attr.startswith(_OF_COROUTINES)
        if isinstance(above, ast.BoolOp | ast.IfExp):
            return getattr(above, "test", None) is node or self.is_read(above)
        if isinstance(above, ast.Assign | ast.AnnAssign):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            return all(self._is_target_read(target, node) for target in targets)
        return isinstance(above, _OPERATORS)

    def _is_taken(self, call: ast.Call, is_part: bool) -> bool:
        """True for a call that takes answers, not coroutines."""
        name = getattr(call.func, "id", "")
        is_builtin = name in _READING and name not in self._hidden and not is_part
        return is_builtin or bool(self.asked(call, _TAKING))

    def _is_target_read(self, target: ast.expr, value: ast.AST) -> bool:
        """The same for what is assigned: all uses of a name that is assigned once, and what is unpacked."""
        if not isinstance(target, ast.Name):
            return isinstance(target, ast.Tuple | ast.List)
        loads = [node for node in self.above if isinstance(node, ast.Name) and node.id == target.id]
        loads = [node for node in loads if isinstance(node.ctx, ast.Load)]
        is_all = self._body.bound_once(target.id) is value and len(loads) == self._body.loads.get(target.id, 0)
        return is_all and all(self.is_read(node) for node in loads)
