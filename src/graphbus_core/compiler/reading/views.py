"""The view of a function body through which its expressions are read, and the calls of other agents in it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from graphbus_core.compiler.reading.annotations import PYDANTIC, class_of_annotation, read_type
from graphbus_core.compiler.reading.bodies import Body
from graphbus_core.compiler.reading.constants import evaluate_constant, home_of, text_of
from graphbus_core.compiler.reading.modules import (
    ClassSite,
    DefinedName,
    External,
    NameScope,
    class_chain,
    family_of,
    find_member,
    resolve,
    resolve_through,
)
from graphbus_core.compiler.reading.reaching import Reaching
from graphbus_core.compiler.reading.syntax import call_argument, parse
from graphbus_core.compiler.reading.topics import read_topic
from graphbus_core.schema.types import (
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    LIST,
    NULL,
    STR,
    UNKNOWN,
    Field,
    Schema,
    Type,
    union,
)

Node = TypeVar("Node", bound=ast.AST)
Read = TypeVar("Read")
_BARE = {"list": LIST, "dict": DICT, "set": Type("set")}


class FunctionView(msgspec.Struct, frozen=True):
    """The body of a method or function, and what is known of the names in it.

    Attributes:
        scope: The scope of its names.
        body: What one pass over the body has found.
        parameters: Parameter -> the type of its annotation.
        items: Name that a comprehension binds -> its type, while the parts of the comprehension are read.
        hops: The number of calls that were followed to this function.
        kept: Attribute of `self` that is assigned once in all of the class -> what is assigned, and the view of that method.
        typed: Attribute of `self` -> its annotation, and the scope of the annotation.
        known: What `read_once` keeps.
    """

    scope: NameScope
    body: Body
    parameters: Mapping[str, Type]
    items: Mapping[str, Type] = {}
    hops: int = 0
    kept: Mapping[str, tuple[ast.expr, FunctionView]] = {}
    typed: Mapping[str, tuple[ast.expr, NameScope]] = {}
    known: dict[tuple[object, ast.AST, int], Any] = {}

    def replace(self, **changes: Any) -> FunctionView:
        """Return a view in which something else is known, so that nothing has been read in it yet."""
        return msgspec.structs.replace(self, **changes, known={})

    def source_of(self, expression: ast.expr) -> tuple[ast.expr, FunctionView]:
        """Return the value of a local name or an attribute of `self`, and the view in which that value is written.

        If several assignments may give the value, and for any other expression, the expression itself is returned.
        """
        if isinstance(expression, ast.Name) and expression.id not in self.parameters:
            values = self.body.values_of(expression)
            return (values[0].value if len(values) == 1 else expression), self
        if isinstance(expression, ast.Attribute) and self.is_self(expression.value):
            return self.kept.get(expression.attr, (expression, self))
        return expression, self

    def is_self(self, expression: ast.expr) -> bool:
        """True for the first parameter of the method, usually `self`."""
        return isinstance(expression, ast.Name) and expression.id == self.body.self_name != ""


def read_once(
    read: Callable[[Node, FunctionView, int], Read],
) -> Callable[[Node, FunctionView, int], Read]:
    """Let a reader keep what it has read in a view: names stand for values with further names, and each is followed once."""

    def read_or_recall(node: Node, view: FunctionView, depth: int) -> Read:
        key = read, node, depth
        if key not in view.known:
            view.known[key] = read(node, view, depth)
        found: Read = view.known[key]
        return found

    return read_or_recall


def called_method(call: ast.Call, view: FunctionView) -> tuple[str, str] | None:
    """Return `(agent, method)` of `self.call("Agent", "method")` or `self.agent(Agent).method()`; `""` for a computed name.

    None for any other call.
    """
    if not isinstance(call.func, ast.Attribute):
        return None
    if view.is_self(call.func.value):
        texts = [
            _constant_text_of(call_argument(call, at, name), view) or "" for at, name in ((0, "agent"), (1, "method"))
        ]
        return (texts[0], texts[1]) if call.func.attr == "call" else None
    proxy, home = view.source_of(call.func.value)
    maker = proxy.func if isinstance(proxy, ast.Call) else None
    if not isinstance(maker, ast.Attribute) or maker.attr != "agent" or not home.is_self(maker.value):
        return None
    return _name_of_agent_class(call_argument(proxy, 0, "kind"), home), call.func.attr  # type: ignore[arg-type]


def _name_of_agent_class(expression: ast.expr | None, view: FunctionView) -> str:
    """Return the name of the agent class that an expression stands for; `""` for others, which `self.agent` refuses."""
    target = resolve_through(expression, view.scope) if expression is not None else None
    if isinstance(target, DefinedName) and isinstance(target.node, ast.ClassDef):
        return target.node.name
    return target.dotted.rpartition(".")[2] if isinstance(target, External) else ""


def _constant_text_of(expression: ast.expr | None, view: FunctionView) -> str | None:
    """Return the constant text that an expression or a local name stands for; None for anything else."""
    return text_of(local_value(expression, view), view.scope)


def local_value(expression: ast.expr | None, view: FunctionView) -> ast.expr | None:
    """Return the expression that is assigned to a local name; any other expression, or an uncertain name, unchanged."""
    return view.source_of(expression)[0] if isinstance(expression, ast.Name) else expression


def unless_changed(of: Type, name: str, view: FunctionView) -> Type:
    """Return `of`, the type of a local name; unknown for a record that may have lost keys.

    It may have, if a key is deleted or a method changes it under this name, or if a local name annotated as Any refers to it.
    """
    if of.kind != "record":
        return of
    body = view.body
    is_cut = any(each.name == name and isinstance(getattr(each.node, "ctx", None), ast.Del) for each in body.accesses)
    is_cut |= any(isinstance(each.func, ast.Attribute) and is_name(each.func.value, name) for each in body.changes)
    others = (other for other, values in body.bound.items() for value in values if value and is_name(value, name))
    is_lost = any(read_type(body.annotations.get(other), view.scope).kind == "any" for other in others)
    return UNKNOWN if is_cut or is_lost else of


def is_name(expression: ast.expr, name: str) -> bool:
    """True for this plain name."""
    return isinstance(expression, ast.Name) and expression.id == name


def class_of(expression: ast.expr, view: FunctionView) -> ClassSite | None:
    """Return the project's class of the object that a name, an attribute of `self` or a call stands for; None if not known."""
    value, home = view.source_of(expression)
    scope, named = home.scope, value.func if isinstance(value, ast.Call) else None
    if isinstance(value, ast.Name):
        is_given = value.id in home.body.parameters and value.id not in home.body.bound
        named = home.body.parameters[value.id] if is_given else home.body.annotations.get(value.id)
    elif isinstance(expression, ast.Attribute) and view.is_self(expression.value) and expression.attr in view.typed:
        named, scope = view.typed[expression.attr]
    target = resolve_through(named, scope) if named is not None else None
    is_class = isinstance(target, DefinedName) and isinstance(target.node, ast.ClassDef)
    return ClassSite(target.module, target.node) if is_class else None  # type: ignore[union-attr, arg-type]


def name_of_result(call: ast.Call, view: FunctionView) -> str | None:
    """Return the name of the result of a call to another agent: `"Agent.method"`, or the topic of a request.

    `""` if the name is computed; None if the call gives no result of another agent.
    """
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "request" and view.is_self(function.value):
        return read_topic(local_value(call_argument(call, 0, "topic"), view), view.scope).name
    called = called_method(call, view)
    return called and (".".join(called) if all(called) else "")


def chain_of(function: DefinedName, view: FunctionView) -> Sequence[ClassSite]:
    """Return the classes in which `self.x` is looked up in a function: of the agent for its methods, else of its own class."""
    if function.owner is None:
        return ()
    if any(site.node is function.owner for site in view.scope.chain):
        return view.scope.chain
    return class_chain(view.scope.library, ClassSite(function.module, function.owner))


def function_view(function: DefinedName, caller: FunctionView) -> FunctionView:
    """Return the view of the body of a function that is called in the body of `caller`."""
    node: Any = function.node
    chain = chain_of(function, caller)
    scope = home_of(function, caller.scope)._replace(chain=chain, in_class_body=False)
    arguments = [*node.args.posonlyargs, *node.args.args]
    is_static = any(getattr(each, "id", "") == "staticmethod" for each in node.decorator_list)
    self_name = arguments[0].arg if chain and arguments and not is_static else ""
    body = Body(node, self_name)
    types = {each.arg: read_type(each.annotation, scope) for each in (*arguments, *node.args.kwonlyargs)}
    scope = scope._replace(self_name=self_name, hidden=frozenset((*body.bound, *types)))
    view = FunctionView(scope, body, types, hops=caller.hops + 1)
    is_of_class = chain is caller.scope.chain and bool(chain)
    return view.replace(kept=caller.kept, typed=caller.typed) if is_of_class else view


def decorators_of(function: DefinedName, view: FunctionView) -> frozenset[str]:
    """Return the dotted names of the decorators of a function; `""` stands for those that the project defines."""
    node: Any = function.node
    scope = view.scope.within(function.module)
    named = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    targets = [resolve_through(each, scope) for each in named]
    return frozenset(each.dotted if isinstance(each, External) else "" for each in targets)


NO_BODY = Body(parse("def _(): ...").body[0], "")  # type: ignore[arg-type]
"""An empty body, in which displays outside of functions are read: it has no local names."""
_LONGEST_CONSTANT = 40  # characters; a longer text is prose, and its exact value does not matter
_LITERALS: dict[type, Type] = {str: STR, int: INT, float: FLOAT, bool: BOOL, bytes: BYTES, type(None): NULL}


def type_of_constant(expression: ast.expr, scope: NameScope) -> Type:
    """Return the type of a constant expression, with the value of a short text or a number; unknown for other expressions."""
    value = evaluate_constant(expression, scope)
    if isinstance(value, str | int) and len(str(value)) <= _LONGEST_CONSTANT:
        return Type(_LITERALS[type(value)].kind, values=(value,))
    return _LITERALS.get(type(value), UNKNOWN)


def record_of(schema: Schema | None) -> Type | None:
    """Return the record with the fields of a schema; None unless it has fields and all of them are known."""
    return Type("record", fields=schema.fields) if schema and schema.fields and not schema.is_open else None


def fields_of_record(of: Type) -> Schema | None:
    """Return the fields of a record, also of one that may be None, as `**None` would fail at run time; None for other types."""
    record = without_none(of)
    return Schema(record.fields) if record.kind == "record" else None


def certain_type(found: Type, *, is_display: bool = True) -> Type:
    """Return the part of a type that remains certain if the value may have been changed in place.

    A record without a class becomes a dict. A list, dict or set that is made by a display (`is_display`) loses the type of its
    items, unless they are objects of a class; any other one keeps it, because its declaration is trusted.
    """
    if found.kind == "union":
        return union(*(certain_type(each, is_display=is_display) for each in found.args))
    if found.kind == "record":
        return found if found.name else DICT
    is_of_class = bool(found.args) and found.args[0].kind == "record" and bool(found.args[0].name)
    return _BARE.get(found.kind, found) if is_display and not is_of_class else found


def touch_field(fields: dict[str, Field], key: str, *, is_written: bool, is_certain: bool) -> None:
    """Update the field of a key that is used: a write adds or replaces the field; after a read, the value may have changed."""
    field = fields.get(key)
    if is_written:
        fields[key] = Field(key, UNKNOWN, is_certain or (field is not None and field.required))
    elif field is not None:
        fields[key] = Field(key, certain_type(field.type), field.required)


def without_none(of: Type) -> Type:
    """Return the type without None, if it is a union with None."""
    return union(*(each for each in of.args if each.kind != "null")) if of.kind == "union" and of.args else of


def chain_of_record(record: Type, view: FunctionView) -> Sequence[ClassSite]:
    """Return the class of a record and its bases; none unless the file that is read knows the class by its own name."""
    is_class = record.kind == "record" and record.name.isidentifier()
    target = resolve_through(ast.Name(record.name), view.scope) if is_class else None
    if not isinstance(target, DefinedName) or not isinstance(target.node, ast.ClassDef):
        return ()
    return class_chain(view.scope.library, ClassSite(target.module, target.node))


def find_project_member(expression: ast.Attribute, view: FunctionView) -> DefinedName | None:
    """Return the method or property of the project that an attribute stands for; None for anything else."""
    found = resolve(expression, view.scope)
    site = class_of(expression.value, view) if found is None else None
    if site is not None:
        found = find_member(class_chain(view.scope.library, site), expression.attr)
    return found if isinstance(found, DefinedName) else None


def converts_values(named: ast.expr, view: FunctionView) -> bool:
    """True if `named` stands for a class of pydantic, which converts a text or number to the declared type."""
    site = class_of_annotation(named, view.scope)
    return site is not None and not PYDANTIC.isdisjoint(family_of(view.scope.library, site).external)


def unshared_values(name: ast.Name, view: FunctionView) -> tuple[Reaching, ...]:
    """Return the assignments that reach a use of a local name; none if the value may be changed under another name."""
    is_shared = name.id in view.parameters or view.body.escapes(name.id)
    values = () if is_shared else view.body.values_of(name)
    return () if any(isinstance(each.value, ast.Name) for each in values) else values
