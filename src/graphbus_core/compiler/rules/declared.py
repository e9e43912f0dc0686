"""GB322, GB323: malformed Topics, and annotations with undefined names."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from graphbus_core.compiler.reading.constants import text_of
from graphbus_core.compiler.reading.facts import ReadFile
from graphbus_core.compiler.reading.methods import annotated_arguments
from graphbus_core.compiler.reading.modules import DefinedName, Module, NameScope, resolve_through
from graphbus_core.compiler.reading.syntax import call_argument, children_of, parse_expression, span_of
from graphbus_core.compiler.reading.topics import topic_calls
from graphbus_core.compiler.rules.wiring import last_name, make_finding
from graphbus_core.errors import did_you_mean
from graphbus_core.model.findings import Finding
from graphbus_core.model.topics import is_topic_or_pattern

_TOPIC_FORMAT = "Topics look like `/Order/Created`; `*` stands for one segment, `**` at the end for one or more."
_NO_TYPE = 'Pass a class: `Topic("/Order/Created", Order)`.'


def check_topics(file: ReadFile) -> Iterator[Finding]:
    """Find each `Topic(...)` with a malformed name or without a type."""
    scope = NameScope(file.library, file.module)
    for node in topic_calls(file.module.tree, scope, file.imports):
        for place, message, hint in _find_wrong_arguments(node, scope):
            old = place.value if isinstance(place, ast.Constant) else None
            new = f"/{old.strip('/')}" if isinstance(old, str) else ""
            data = {"old": str(old), "new": new} if is_topic_or_pattern(new) else None
            yield make_finding("GB322", "", span_of(file.module.path, place), message, hint, data=data)


def _find_wrong_arguments(call: ast.Call, scope: NameScope) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield each wrong argument of a `Topic(...)`, or the call if one is missing, with a message and a hint."""
    if any(isinstance(each, ast.Starred) or getattr(each, "arg", "") is None for each in children_of(call)):
        return  # unpacked arguments are not known
    name, payload = call_argument(call, 0, "name"), call_argument(call, 1, "payload")
    text = text_of(name, scope)
    is_computed = text is None and not (name is None or isinstance(name, ast.Constant))
    if not (is_computed or is_topic_or_pattern(text)):
        yield name or call, f"{text!r} is not a topic" if text else f"{ast.unparse(call)} has no name", _TOPIC_FORMAT
    if payload is None or _is_certainly_no_type(payload, scope):
        yield payload or call, f"{ast.unparse(call)} does not have the type of its payloads", _NO_TYPE


def _is_certainly_no_type(payload: ast.expr, scope: NameScope) -> bool:
    """Return whether an expression is certainly no type: a constant other than None, or a function or object of the project."""
    # a class with a metaclass, that is with keywords, may create types
    target = resolve_through(payload.func if isinstance(payload, ast.Call) else payload, scope)
    definition = target.node if isinstance(target, DefinedName) else None
    is_object = isinstance(payload, ast.Call) and isinstance(definition, ast.ClassDef) and not definition.keywords
    is_function = isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef) and not isinstance(payload, ast.Call)
    return is_object or is_function or (isinstance(payload, ast.Constant) and payload.value is not None)


def check_annotations(file: ReadFile) -> Iterator[Finding]:
    """Find handlers, and methods with a schema, whose annotations contain a name that the file does not define."""
    for _, definition, methods in file.agents:
        exposed = {each.name for each in definition.methods if each.has_schema}
        exposed |= {each.method for each in definition.subscriptions}
        own_methods = (each for home, each in methods if each.node.name in exposed and home.module is file.module)
        for method in own_methods:
            for place in filter(None, [*(each for _, each in annotated_arguments(method)), method.node.returns]):
                for name in sorted({each for each in names_in_annotation(place) if not _is_bound(each, file.module)}):
                    message = (
                        f"{definition.name}.{method.node.name} is annotated with {name!r}, which is not defined here"
                    )
                    hint = did_you_mean(name, file.module.bindings.first).strip() or f"Import or define {name}."
                    span = span_of(file.module.path, place)
                    yield make_finding("GB323", definition.name, span, message, hint, data={"name": name})


def names_in_annotation(annotation: ast.AST) -> Iterator[str]:
    """Yield the names in an annotation, also in parts that are written as strings, except inside `Literal` and `Annotated`."""
    if isinstance(annotation, ast.Name):
        yield annotation.id
    elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            yield from names_in_annotation(parse_expression(annotation.value))
        except SyntaxError:
            return
    elif not isinstance(annotation, ast.Subscript) or last_name(annotation.value) not in ("Literal", "Annotated"):
        for child in children_of(annotation):
            yield from names_in_annotation(child)


def _is_bound(name: str, module: Module) -> bool:
    """Return whether a name is a builtin, may come from a star import, or is bound in any scope of the file."""
    if name in module.bindings.first or hasattr(builtins, name) or module.bindings.stars:
        return True
    nodes = list(ast.walk(module.tree))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return name in stored or any(name in (getattr(node, "name", ""), getattr(node, "asname", "")) for node in nodes)
