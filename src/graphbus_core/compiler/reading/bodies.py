"""One pass over the body of a function: calls on `self`, bindings and loads of each name, and the keys that it uses.

Nested functions, lambdas and comprehensions are part of the pass. A name that they bind counts as bound again in the method, so
that a name that is "bound once" surely has one value.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Literal

import msgspec

from graphbus_core.compiler.reading.reaching import Reaching, reaching_values
from graphbus_core.compiler.reading.syntax import children_of, fields_of, nodes_below

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
EVENT_FIELDS = frozenset({"topic", "src", "event_id", "timestamp", "correlation_id", "causation_id", "hops"})

ANY_NAME = "*"
"""Stands in a set of names for a name that is computed, so that it may be any."""

_TYPE_PARAMETERS = ("TypeVar", "ParamSpec", "TypeVarTuple")
"""From Python 3.12 on."""
_SCOPES = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef})
_READING_METHODS = frozenset({"keys", "values", "items", "copy"})
_READING_FUNCTIONS = frozenset(
    {"print", "len", "str", "repr", "bool", "isinstance", "type", *("dict", "copy", "deepcopy")}
)
_COPYING = frozenset({"copy", "deepcopy"})
_DICT_COPYING = _COPYING | {"dict"}
CHANGING_METHODS = frozenset({"clear", "pop", "popitem", "setdefault", "update"})
_READING_ON_SELF = frozenset({"log", "publish", "request"})


class Access(msgspec.Struct, frozen=True):
    """One use of a key in the value of a name: `name[key]`, `name.payload[key]`, `name.get(key)` or `key in name`.

    Attributes:
        name: The name.
        is_payload: True if the key is used of `name.payload`.
        key: The key.
        node: The whole expression; for a key that a copy adds, the key itself.
        how: `write` includes `del`; `get` includes `pop(key, default)` and `setdefault`.
    """

    name: str
    is_payload: bool
    key: ast.expr
    node: ast.expr
    how: Literal["read", "write", "get", "in"]


class Body:
    """What one pass over a function found.

    Args:
        function: The function.
        self_name: Its first parameter if it is a method, else `""`.

    Attributes:
        calls: Calls of an attribute of `self`, by attribute and call, in the order of the source.
        returns: The `return` statements of the function itself.
        is_async: The function is an `async def`.
        is_generator: The function has a `yield`, outside of the functions inside.
        bound: Name -> the expressions assigned to it; None for a binding that is not a plain assignment.
        loads: Name -> how often its value is read.
        harmless: Name -> how many of these loads neither change the value nor pass it on.
        accesses: The keys that are used of plain names.
        aliases: Local name that holds `event.payload`, or a copy of `event.payload` or `payload` -> `event` or `payload`.
        shown: Names whose whole value is passed to something that only reads it.
        attributes: Every attribute of a plain name.
        changes: Calls that change a dict in place: of a plain name, or of its `.payload`.
        parameters: Name of a parameter -> its annotation.
        annotations: Local name -> its annotation.
        kept: Attribute of `self` -> the expressions assigned to it; None for what is no plain assignment.
        typed: Attribute of `self` -> its annotation in an assignment.
        stored: Attribute of anything else that is assigned -> the expression.
        method_calls: Calls of a method of anything but `self`.
        plain_calls: Calls of a plain name.
        functions: The functions that are defined inside, by name.
        written: Attributes that are assigned, of any object; `ANY_NAME` for a computed name.
        statements: The statements of the function.
        reaching: Use of a local name -> the assignments that reach it: the cache of `values_of`.
        is_own: True while the function itself is visited, False in the functions inside.
    """

    def __init__(self, function: FunctionNode, self_name: str) -> None:
        self.self_name = self_name
        self.calls: list[tuple[str, ast.Call]] = []
        self.returns: list[ast.Return] = []
        self.is_async = isinstance(function, ast.AsyncFunctionDef)
        self.is_generator = False
        self.bound: dict[str, list[ast.expr | None]] = {}
        self.loads: dict[str, int] = {}
        self.harmless: dict[str, int] = {}
        self.accesses: list[Access] = []
        self.aliases: dict[str, str] = {}
        self.shown: set[str] = set()
        self.attributes: list[ast.Attribute] = []
        self.changes: list[ast.Call] = []
        arguments = function.args
        listed = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.parameters = {each.arg: each.annotation for each in listed if each.annotation is not None}
        self.annotations: dict[str, ast.expr] = {}
        self.kept: dict[str, list[ast.expr | None]] = {}
        self.typed: dict[str, ast.expr] = {}
        self.stored: dict[ast.Attribute, ast.expr] = {}
        self.method_calls: list[ast.Call] = []
        self.plain_calls: list[ast.Call] = []
        self.functions: dict[str, FunctionNode] = {}
        self.written: set[str] = set()
        self._tried: list[tuple[int, int, Sequence[ast.expr | None]]] = []
        self.is_own = True
        self.statements = function.body
        self.reaching: dict[ast.AST, tuple[Reaching, ...]] = {}
        inner = self._visit_nodes(list(function.body))
        self.is_own = False
        if inner:
            self._visit_nodes(inner)
        if len(self.calls) > 1:
            self.calls.sort(key=lambda call: (call[1].lineno, call[1].col_offset))
        if len(self.returns) > 1:
            self.returns.sort(key=lambda node: (node.lineno, node.col_offset))

    def _visit_nodes(self, stack: list[ast.AST]) -> list[ast.AST]:
        """Visit these nodes and all nodes below them; `stack` is used up.

        While `is_own` is set, nodes inside of nested functions, lambdas and classes are returned instead of visited.
        """
        inner: list[ast.AST] = []
        loads, push = self.loads, stack.append
        while stack:
            node = stack.pop()
            kind = node.__class__
            if kind is ast.Name and node.ctx.__class__ is ast.Load:  # type: ignore[attr-defined]
                name: str = node.id  # type: ignore[attr-defined]
                loads[name] = loads.get(name, 0) + 1
                continue
            visit = _VISITS.get(kind)
            children = visit(self, node) if visit is not None else None
            if self.is_own and kind in _SCOPES:
                inner += children_of(node)
            elif children is not None:
                stack += children
            else:
                singles, lists = fields_of(kind)
                for field in singles:
                    child = getattr(node, field)
                    if child is not None:
                        push(child)
                for field in lists:
                    stack += getattr(node, field)
        return inner

    def bind(self, name: str, value: ast.expr | None) -> None:
        """Note a binding of a name; the value is None if it is not known."""
        self.bound.setdefault(name, []).append(value)

    def forgive(self, name: str) -> None:
        """Count one load of a name as harmless: it neither changes the value nor passes the value on."""
        self.harmless[name] = self.harmless.get(name, 0) + 1

    def catch(self, body: Sequence[ast.stmt], exceptions: Sequence[ast.expr | None]) -> None:
        """Note that these exceptions are caught in these consecutive statements; None stands for a bare `except`."""
        self._tried.append((body[0].lineno, body[-1].end_lineno or body[-1].lineno, exceptions))

    def access(
        self, container: ast.expr, key: ast.expr, node: ast.expr, how: Literal["read", "write", "get", "in"]
    ) -> None:
        """Note that a key of a plain name, or of its `.payload`, is used. Any other container is ignored."""
        root = container_root(container)
        if root is not None:
            self.accesses.append(Access(*root, key, node, how))
            self.forgive(root[0])

    def bound_once(self, name: str) -> ast.expr | None:
        """Return the only expression that is ever assigned to a name; None if there are several or it is not known."""
        values = self.bound.get(name, ())
        return values[0] if len(values) == 1 else None

    def values_of(self, use: ast.Name) -> tuple[Reaching, ...]:
        """Return the assignments that reach a use of a local name; an empty tuple if that is not certain."""
        values = self.bound.get(use.id, ())
        if not values or None in values:
            return ()
        if len(values) == 1 and not self._is_added_to(use.id):
            return (Reaching(values[0]),)  # type: ignore[arg-type]
        if use not in self.reaching:
            # a single assignment reaches the use even if the walk is not certain; its additions are not known then
            self.reaching[use] = reaching_values(use, self.statements, len(values)) or tuple(
                Reaching(each) for each in values[: len(values) == 1] if each is not None
            )
        return self.reaching[use]

    def _is_added_to(self, name: str) -> bool:
        """True when a key is stored in the value of a name, or a method changes it in place."""
        changed = (container_root(each.func.value) for each in self.changes)  # type: ignore[attr-defined]
        return (name, False) in changed or any(each.name == name and each.how == "write" for each in self.accesses)

    def caught_at(self, node: ast.expr) -> Iterator[ast.expr | None]:
        """Yield the exceptions that are caught where they are raised at this place; None stands for a bare `except`."""
        for first, last, exceptions in self._tried:
            if first <= node.lineno <= last:
                yield from exceptions

    def escapes(self, name: str) -> bool:
        """True when the value of a name is passed on, so that other code may change it."""
        return self.loads.get(name, 0) > self.harmless.get(name, 0)


def container_root(container: ast.expr) -> tuple[str, bool] | None:
    """Return the name in `name` or `name.payload`, and whether it is the payload; None for anything else."""
    if isinstance(container, ast.Name):
        return container.id, False
    if isinstance(container, ast.Attribute) and container.attr == "payload" and isinstance(container.value, ast.Name):
        return container.value.id, True
    return None


def awaited(expression: ast.expr) -> ast.expr:
    """Return the operand of an `await`, any other expression as it is."""
    return expression.value if isinstance(expression, ast.Await) else expression


def _owner_of_payload(expression: ast.expr) -> str:
    """Return the name before `.payload`: `event` for `event.payload` and `event.payload or {}`; else `""`."""
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.Or) and len(expression.values) == 2:
        empty = expression.values[1]
        if isinstance(empty, ast.Dict) and not empty.keys:
            expression = expression.values[0]
    root = container_root(expression)
    return root[0] if root and root[1] else ""


def _split_dict_copy(expression: ast.expr) -> tuple[ast.expr | None, Sequence[ast.expr | None]]:
    """Return the dict that an expression copies, and the keys that the copy adds: `{**payload, "x": 1}`, `dict(payload, x=1)`.

    A None among the keys stands for keys that are not known. If nothing is copied, the result is `(None, [])`.
    """
    if isinstance(expression, ast.Dict) and expression.keys[:1] == [None]:
        return expression.values[0], expression.keys[1:]
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.BitOr):
        return expression.left, expression.right.keys if isinstance(expression.right, ast.Dict) else [None]
    if isinstance(expression, ast.Call):
        function = expression.func
        added = [ast.Constant(each.arg) if each.arg else None for each in expression.keywords]
        if isinstance(function, ast.Attribute) and function.attr == "copy" and not expression.args:
            return function.value, added
        if len(expression.args) == 1 and getattr(function, "attr", getattr(function, "id", "")) in _DICT_COPYING:
            return expression.args[0], added
    return None, []


def reads_copy(names: Set[str], function: FunctionNode) -> bool:
    """True if keys may be read of a copy of one of these names where it is made: `dict(order)["sku"]`, `f(**order)`."""
    for node in nodes_below(function):
        copies: list[ast.expr | None] = []
        if isinstance(node, ast.Subscript | ast.Attribute):
            copies = [_split_dict_copy(node.value)[0]]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) not in (
            "dict",
            "call",
        ):
            copies = [each.value for each in node.keywords if each.arg is None]
            if getattr(node.func, "attr", "") in ("items", "values"):
                copies.append(node.func.value)  # type: ignore[attr-defined]
        if any(isinstance(each, ast.Name) and each.id in names for each in copies):
            return True
    return False


# --- visitors: each notes one kind of node and returns the children still to visit, None for all ---


def _visit_assign(body: Body, node: ast.Assign | ast.AnnAssign | ast.NamedExpr) -> Sequence[ast.AST]:
    """Note what is assigned to names and attributes; the annotation of a local name is not visited, as it does not run."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    target, value = targets[0], node.value
    if isinstance(node, ast.AnnAssign) and isinstance(target, ast.Name):
        body.annotations[target.id] = node.annotation
    for each in targets:
        if isinstance(each, ast.Attribute) and container_root(each.value) == (body.self_name, False):
            body.kept.setdefault(each.attr, []).append(value)
            if isinstance(node, ast.AnnAssign):
                body.typed[each.attr] = node.annotation
        elif isinstance(each, ast.Attribute) and value is not None:
            body.stored[each] = value
    if value is None:  # an annotation only
        return [] if isinstance(target, ast.Name) else [target]
    # `a, b = value` assigns `value[0]` and `value[1]`
    if len(targets) == 1 and isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
        for number, each in enumerate(target.elts):
            body.bind(each.id, ast.Subscript(value, ast.Constant(number), ast.Load()))  # type: ignore[attr-defined]
        return [value]
    if len(targets) > 1 or not isinstance(target, ast.Name):
        return [*targets, value]  # names in these targets are bound to unknown values
    body.bind(target.id, value)
    _note_alias(body, target.id, value)
    return [value]


def _note_alias(body: Body, name: str, value: ast.expr) -> None:
    """Note that `name` holds a payload or a copy of one, and which keys the copy adds; ignore any other value."""
    copied, added = _split_dict_copy(value)
    root = container_root(copied) if copied is not None else None
    owner = root[0] if root else _owner_of_payload(value)
    if not owner or None in added:
        return
    body.aliases[name] = owner
    if root is None or root[1]:  # the load of a plain name is counted when the copying expression is visited
        body.forgive(owner)
    for key in filter(None, added):
        body.accesses.append(Access(name, False, key, key, "write"))


def _visit_attribute(body: Body, node: ast.Attribute) -> None:
    """Note an attribute. Reading a field of an event is harmless; through `__dict__`, any attribute may be assigned."""
    value = node.value
    if node.ctx.__class__ is not ast.Load:
        body.written.add(node.attr)
    elif node.attr == "__dict__":
        body.written.add(ANY_NAME)
    if isinstance(value, ast.Name):
        body.attributes.append(node)
        if node.ctx.__class__ is ast.Load and node.attr in EVENT_FIELDS:
            body.forgive(value.id)


def _visit_loop(body: Body, node: ast.For | ast.AsyncFor) -> Sequence[ast.AST]:
    """Note the loop variable: if nothing else binds it, its value is an item of the iterable."""
    _note_read_only(body, node.iter)
    is_plain = isinstance(node.target, ast.Name)
    if is_plain:
        body.bind(node.target.id, ast.Starred(node.iter, ast.Load()))  # type: ignore[attr-defined]
    return [*([] if is_plain else [node.target]), node.iter, *node.body, *node.orelse]


def _visit_comprehension(body: Body, node: ast.comprehension) -> Sequence[ast.AST]:
    """Note the variable of a comprehension, as that of a loop."""
    _note_read_only(body, node.iter)
    is_plain = isinstance(node.target, ast.Name)
    if is_plain:
        body.bind(node.target.id, ast.Starred(node.iter, ast.Load()))  # type: ignore[attr-defined]
    return [*([] if is_plain else [node.target]), node.iter, *node.ifs]


def _visit_subscript(body: Body, node: ast.Subscript) -> None:
    """Note the key in `name[key]`; an assignment or `del` is a write."""
    how: Literal["read", "write"] = "read" if node.ctx.__class__ is ast.Load else "write"
    body.access(node.value, node.slice, node, how)


def _visit_compare(body: Body, node: ast.Compare) -> None:
    """Note the key in `key in name`."""
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        body.access(node.comparators[0], node.left, node, "in")


def _visit_call(body: Body, node: ast.Call) -> None:
    """Note a call, as a call of a plain name, of a method of `self` or of another method, and the keys that it uses."""
    function = node.func
    _note_read_only(body, *(keyword.value for keyword in node.keywords if keyword.arg is None))  # `**name` copies
    if _only_reads(function):
        _note_read_only_arguments(body, node)
    elif isinstance(function, ast.Name):
        _visit_plain_call(body, node, function.id)
    elif isinstance(function, ast.Attribute):
        value = function.value
        if function.attr in CHANGING_METHODS and container_root(value) is not None:
            body.changes.append(node)
            _note_read_only(body, *[value] * (function.attr == "update"))
            if function.attr in ("pop", "setdefault") and node.args:
                # `pop(key)` without a default fails for a missing key
                is_read = function.attr == "pop" and len(node.args) == 1
                body.access(value, node.args[0], node, "read" if is_read else "get")
        if isinstance(value, ast.Name) and value.id == body.self_name and body.self_name:
            body.calls.append((function.attr, node))
            if function.attr in _READING_ON_SELF:
                _note_read_only_arguments(body, node)
            return
        body.method_calls.append(node)
        if function.attr == "get" and node.args:
            body.access(value, node.args[0], node, "get")
        elif function.attr in _READING_METHODS and isinstance(value, ast.Name) and not node.args:
            body.shown.add(value.id)
            body.forgive(value.id)


def _visit_plain_call(body: Body, node: ast.Call, name: str) -> None:
    """Note a call of a plain name, and the attribute that is assigned by `setattr`, or may be by `vars`."""
    body.plain_calls.append(node)
    if name in ("setattr", "vars"):
        written = node.args[1] if len(node.args) > 1 else None
        body.written.add(str(written.value) if isinstance(written, ast.Constant) else ANY_NAME)


def _only_reads(function: ast.expr) -> bool:
    """True for the functions listed as not changing their arguments, such as `len`, `dict` and `copy.copy`."""
    if isinstance(function, ast.Name):
        return function.id in _READING_FUNCTIONS
    is_copy = isinstance(function, ast.Attribute) and function.attr in _COPYING
    return is_copy and isinstance(function.value, ast.Name) and function.value.id == "copy"  # type: ignore[attr-defined]


def _note_read_only_arguments(body: Body, node: ast.Call) -> None:
    _note_read_only(body, *node.args, *(keyword.value for keyword in node.keywords if keyword.arg))


def _note_read_only(body: Body, *values: ast.expr | None) -> None:
    """Note that the whole value of each name among `values` is passed to something that only reads it."""
    for value in values:
        if isinstance(value, ast.Name):
            body.shown.add(value.id)
            body.forgive(value.id)


def _visit_dict(body: Body, node: ast.Dict) -> None:
    """Note that `{**name}` only copies the value of the name."""
    _note_read_only(body, *(value for key, value in zip(node.keys, node.values, strict=True) if key is None))


def _visit_operation(body: Body, node: ast.BinOp) -> None:
    """Note that `name | other` only copies a dict; other types may define `|` in another way."""
    if isinstance(node.op, ast.BitOr):
        _note_read_only(body, node.left, node.right)


def _visit_formatted(body: Body, node: ast.FormattedValue) -> None:
    _note_read_only(body, node.value)


def _visit_return(body: Body, node: ast.Return) -> None:
    """Note a `return`, unless it is in a function inside; the value of a returned name counts as only read."""
    if body.is_own:
        body.returns.append(node)
    _note_read_only(body, node.value)


def _visit_yield(body: Body, node: ast.Yield | ast.YieldFrom) -> None:
    body.is_generator = body.is_generator or body.is_own


def _visit_try(body: Body, node: ast.Try) -> None:
    """Note what the handlers of a `try` catch in its body, and the names that they bind."""
    body.catch(node.body, [handler.type for handler in node.handlers])
    for handler in node.handlers:
        if handler.name:
            body.bind(handler.name, None)


def _visit_with(body: Body, node: ast.With | ast.AsyncWith) -> None:
    """Note the exceptions that `with suppress(...)` catches in its body."""
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and "suppress" in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")):
            body.catch(node.body, call.args)


def _visit_import(body: Body, node: ast.Import | ast.ImportFrom) -> None:
    for alias in node.names:
        body.bind(alias.asname or alias.name.partition(".")[0], None)


def _visit_global(body: Body, node: ast.Global | ast.Nonlocal) -> None:
    for name in node.names:
        body.bind(name, None)


def _visit_function(body: Body, node: FunctionNode) -> None:
    body.functions[node.name] = node
    body.bind(node.name, None)


def _make_binding_visitor(field: str) -> Callable[[Body, ast.AST], None]:
    """Return a visitor that binds the name in this field of a node, if there is one, to an unknown value."""

    def visit(body: Body, node: ast.AST) -> None:
        name = getattr(node, field)
        if name:
            body.bind(name, None)

    return visit


_VISITS: dict[type, Callable[[Body, Any], Any]] = {
    ast.AnnAssign: _visit_assign,
    ast.Assign: _visit_assign,
    ast.AsyncFor: _visit_loop,
    ast.AsyncFunctionDef: _visit_function,
    ast.AsyncWith: _visit_with,
    ast.Attribute: _visit_attribute,
    ast.BinOp: _visit_operation,
    ast.Call: _visit_call,
    ast.ClassDef: _make_binding_visitor("name"),
    ast.Compare: _visit_compare,
    ast.Dict: _visit_dict,
    ast.For: _visit_loop,
    ast.FormattedValue: _visit_formatted,
    ast.FunctionDef: _visit_function,
    ast.Global: _visit_global,
    ast.Import: _visit_import,
    ast.ImportFrom: _visit_import,
    ast.MatchAs: _make_binding_visitor("name"),
    ast.MatchMapping: _make_binding_visitor("rest"),
    ast.MatchStar: _make_binding_visitor("name"),
    ast.Name: _make_binding_visitor("id"),
    ast.NamedExpr: _visit_assign,
    ast.Nonlocal: _visit_global,
    ast.Return: _visit_return,
    ast.Subscript: _visit_subscript,
    ast.Try: _visit_try,
    ast.TryStar: _visit_try,
    ast.With: _visit_with,
    ast.Yield: _visit_yield,
    ast.YieldFrom: _visit_yield,
    ast.comprehension: _visit_comprehension,
    ast.arg: _make_binding_visitor("arg"),
    **{getattr(ast, kind): _make_binding_visitor("name") for kind in _TYPE_PARAMETERS if hasattr(ast, kind)},
}
