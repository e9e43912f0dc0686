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

_LIKE = "Topics look like `/Order/Created`; `*` stands for one segment, `**` at the end for one or more."
_NO_TYPE = 'Give a class: `Topic("/Order/Created", Order)`.'


def check_topics(file: ReadFile) -> Iterator[Finding]:
    """Find each `Topic(...)` with a malformed name or without a type."""
    scope = NameScope(file.library, file.module)
    for node in topic_calls(file.module.tree, scope, file.imports):
        for place, message, hint in _wrong_parts(node, scope):
            yield make_finding("GB322", "", span_of(file.module.path, place), message, hint)


def _wrong_parts(made: ast.Call, scope: NameScope) -> Iterator[tuple[ast.expr, str, str]]:
    """Yield the wrong arguments of a `Topic(...)` with a message and a hint; unpacked arguments are skipped."""
    if any(isinstance(each, ast.Starred) or getattr(each, "arg", "") is None for each in children_of(made)):
        return
    name, payload = call_argument(made, 0, "name"), call_argument(made, 1, "payload")
    text = text_of(name, scope)
    is_computed = text is None and not (name is None or isinstance(name, ast.Constant))
    if not (is_computed or is_topic_or_pattern(text)):
        yield name or made, f"{text!r} is no topic" if text else f"{ast.unparse(made)} has no name", _LIKE
    if payload is None or _is_value(payload, scope):
        yield payload or made, f"{ast.unparse(made)} is not given the type of its payloads", _NO_TYPE


def _is_value(payload: ast.expr, scope: NameScope) -> bool:
    """True for a constant, an object or a function of the project: certainly no type."""
    target = resolve_through(payload.func if isinstance(payload, ast.Call) else payload, scope)
    made = target.node if isinstance(target, DefinedName) else None
    is_object = isinstance(payload, ast.Call) and isinstance(made, ast.ClassDef) and not made.keywords
    is_function = isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef) and not isinstance(payload, ast.Call)
    return is_object or is_function or (isinstance(payload, ast.Constant) and payload.value is not None)


def check_annotations(file: ReadFile) -> Iterator[Finding]:
    """Find handlers and methods with a schema whose annotations hold a name that their file does not define."""
    for _, definition, methods in file.agents:
        exposed = {each.name for each in definition.methods if each.has_schema}
        exposed |= {each.method for each in definition.subscriptions}
        own = (each for home, each in methods if each.node.name in exposed and home.module is file.module)
        for method in own:
            for place in filter(None, [*(each for _, each in annotated_arguments(method)), method.node.returns]):
                for name in sorted({each for each in _names(place) if not _is_bound(each, file.module)}):
                    message = (
                        f"{definition.name}.{method.node.name} is annotated with {name!r}, which is not defined here"
                    )
                    hint = did_you_mean(name, file.module.bindings.first).strip() or f"Import or define {name}."
                    span = span_of(file.module.path, place)
                    yield make_finding("GB323", definition.name, span, message, hint, data={"name": name})


def _names(annotation: ast.AST) -> Iterator[str]:
    """The names in an annotation, also in one that is a text; without what `Literal` and `Annotated` hold."""
    if isinstance(annotation, ast.Name):
        yield annotation.id
    elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            yield from _names(parse_expression(annotation.value))
        except SyntaxError:
            return
    elif not isinstance(annotation, ast.Subscript) or last_name(annotation.value) not in ("Literal", "Annotated"):
        for child in children_of(annotation):
            yield from _names(child)


def _is_bound(name: str, module: Module) -> bool:
    """True when a name may stand for something in a file: whatever is bound anywhere in it counts."""
    if name in module.bindings.first or hasattr(builtins, name) or module.bindings.stars:
        return True
    nodes = list(ast.walk(module.tree))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    return name in stored or any(name in (getattr(node, "name", ""), getattr(node, "asname", "")) for node in nodes)
