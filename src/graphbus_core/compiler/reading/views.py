"""The view of a function body through which its expressions are read, and the calls of other agents in it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from graphbus_core.compiler.reading.annotations import read_type
from graphbus_core.compiler.reading.bodies import Body
from graphbus_core.compiler.reading.constants import text_of
from graphbus_core.compiler.reading.modules import (
    ClassSite,
    DefinedName,
    External,
    NameScope,
    class_chain,
    resolve_through,
)
from graphbus_core.compiler.reading.syntax import call_argument
from graphbus_core.compiler.reading.topics import read_topic
from graphbus_core.schema.types import DICT, LIST, UNKNOWN, Field, Type, union

_BARE = {"list": LIST, "dict": DICT, "set": Type("set")}


class FunctionView(msgspec.Struct, frozen=True):
    """The body of a method or function, and what is known of the names in it.

    Attributes:
        scope: Where it stands.
        body: What it binds.
        parameters: What its parameters are annotated with.
        items: The names that a comprehension binds, while its parts are read.
        hops: How many functions without annotation lead here.
        kept: Attribute of `self` that is assigned once in all of the class -> what is assigned, and the view of that method.
        typed: Attribute of `self` -> its annotation, and where that is written.
    """

    scope: NameScope
    body: Body
    parameters: Mapping[str, Type]
    items: Mapping[str, Type] = {}
    hops: int = 0
    kept: Mapping[str, tuple[ast.expr, FunctionView]] = {}
    typed: Mapping[str, tuple[ast.expr, NameScope]] = {}

    def source_of(self, expression: ast.expr) -> tuple[ast.expr, FunctionView]:
        """Return what is assigned to a local name or an attribute of `self`, if only once, and the view that it is read in."""
        if isinstance(expression, ast.Name) and expression.id not in self.parameters:
            values = self.body.values_of(expression)
            return (values[0].value if len(values) == 1 else expression), self
        if isinstance(expression, ast.Attribute) and self.is_self(expression.value):
            return self.kept.get(expression.attr, (expression, self))
        return expression, self

    def is_self(self, expression: ast.expr) -> bool:
        """True for the first parameter of a method."""
        return isinstance(expression, ast.Name) and expression.id == self.body.self_name != ""


def called_method(call: ast.Call, view: FunctionView) -> tuple[str, str] | None:
    """Return agent and method of `self.call("Agent", "method")` and `self.agent(Agent).method()`, empty for what is computed.

    None for a call that is none of these.
    """
    if not isinstance(call.func, ast.Attribute):
        return None
    if view.is_self(call.func.value):
        given = [_local_text(call_argument(call, at, name), view) or "" for at, name in ((0, "agent"), (1, "method"))]
        return (given[0], given[1]) if call.func.attr == "call" else None
    proxy, home = view.source_of(call.func.value)
    maker = proxy.func if isinstance(proxy, ast.Call) else None
    if not isinstance(maker, ast.Attribute) or maker.attr != "agent" or not home.is_self(maker.value):
        return None
    return _class_name(call_argument(proxy, 0, "kind"), home), call.func.attr  # type: ignore[arg-type]


def _class_name(expression: ast.expr | None, view: FunctionView) -> str:
    """Return the name of an agent class; the empty text for anything else, which a running graph refuses."""
    target = resolve_through(expression, view.scope) if expression is not None else None
    if isinstance(target, DefinedName) and isinstance(target.node, ast.ClassDef):
        return target.node.name
    return target.dotted.rpartition(".")[2] if isinstance(target, External) else ""


def _local_text(expression: ast.expr | None, view: FunctionView) -> str | None:
    """Return a constant text, also that of a local name; None for anything else."""
    return text_of(local_value(expression, view), view.scope)


def local_value(expression: ast.expr | None, view: FunctionView) -> ast.expr | None:
    """Return the expression that a local name stands for, or the expression itself."""
    return view.source_of(expression)[0] if isinstance(expression, ast.Name) else expression


def unless_changed(of: Type, name: str, view: FunctionView) -> Type:
    """Return the type; unknown for a record from which a key is removed by this name, or that also has a name of type Any."""
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
    """The class of the project whose object a name, an attribute of `self` or a call surely gives."""
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
    """Return the name of the result of a call, `"Agent.method"` or a topic; empty if it is computed; None for another call."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "request" and view.is_self(function.value):
        return read_topic(local_value(call_argument(call, 0, "topic"), view), view.scope).name
    asked = called_method(call, view)
    return asked and (".".join(asked) if all(asked) else "")


def chain_of(function: DefinedName, view: FunctionView) -> Sequence[ClassSite]:
    """Return the classes in which `self` of a function is looked up: those of the agent, or of the class with the function."""
    if function.owner is None:
        return ()
    if any(site.node is function.owner for site in view.scope.chain):
        return view.scope.chain
    return class_chain(view.scope.library, ClassSite(function.module, function.owner))


def decorators_of(function: DefinedName, view: FunctionView) -> frozenset[str]:
    """Return the dotted names of the decorators of a function, empty for those of the project."""
    node: Any = function.node
    scope = view.scope.within(function.module)
    named = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    targets = [resolve_through(each, scope) for each in named]
    return frozenset(each.dotted if isinstance(each, External) else "" for each in targets)


def certain_type(found: Type, *, is_display: bool = True) -> Type:
    """Return the type of a mutable value that may have changed: of a display only the kind of its container."""
    if found.kind == "union":
        return union(*(certain_type(each, is_display=is_display) for each in found.args))
    if found.kind == "record":
        return found if found.name else DICT
    is_of_class = bool(found.args) and found.args[0].kind == "record" and bool(found.args[0].name)
    return _BARE.get(found.kind, found) if is_display and not is_of_class else found


def touch_field(fields: dict[str, Field], key: str, *, is_written: bool, is_certain: bool) -> None:
    """Update a field whose key is used somewhere: a write may add or replace it, and what is read may be changed."""
    field = fields.get(key)
    if is_written:
        fields[key] = Field(key, UNKNOWN, is_certain or (field is not None and field.required))
    elif field is not None:
        fields[key] = Field(key, certain_type(field.type), field.required)


def without_none(of: Type) -> Type:
    """Return the type of a value that is not None."""
    return union(*(each for each in of.args if each.kind != "null")) if of.kind == "union" and of.args else of


def chain_of_record(record: Type, view: FunctionView) -> Sequence[ClassSite]:
    """Return the class of a record and its bases, if it goes by its own name in the file that is read; else nothing."""
    is_class = record.kind == "record" and record.name.isidentifier()
    target = resolve_through(ast.Name(record.name), view.scope) if is_class else None
    if not isinstance(target, DefinedName) or not isinstance(target.node, ast.ClassDef):
        return ()
    return class_chain(view.scope.library, ClassSite(target.module, target.node))
