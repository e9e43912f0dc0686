"""GB322, GB323: a `Topic` that is none, and annotations that name nothing."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from graphbus_core.compiler.reading.annotations import text_of
from graphbus_core.compiler.reading.facts import ReadFile
from graphbus_core.compiler.reading.methods import annotated_arguments
from graphbus_core.compiler.reading.modules import (
    FUNCTIONS,
    External,
    Module,
    ModuleRef,
    Scope,
    Symbol,
    resolve_through,
)
from graphbus_core.compiler.reading.syntax import call_argument, children_of, parse_expression, span_of
from graphbus_core.compiler.rules.wiring import last_name, report
from graphbus_core.errors import did_you_mean
from graphbus_core.model.findings import Finding, Severity
from graphbus_core.model.topics import is_topic_or_pattern

_TOPICS = (External("graphbus_core.Topic"), External("graphbus_core.model.topics.Topic"))
_NO_TYPES = frozenset({"typing.Callable", "collections.abc.Callable", "builtins.complex", "builtins.type"})
_LIKE = "Topics look like `/Order/Created`; `*` stands for one segment, `**` at the end for one or more."


def check_topics(file: ReadFile) -> Iterator[Finding]:
    """Find each `Topic(...)` whose name or type cannot be, and, as a note, one whose name is computed."""
    scope = Scope(file.library, file.module)
    is_named = any(name.endswith(".Topic") for name in file.imports) or b"graphbus_core" in file.module.source.data
    for node in ast.walk(file.module.tree) if is_named and b"Topic" in file.module.source.data else ():
        made = node.func if isinstance(node, ast.Call) else None
        made = made.value if isinstance(made, ast.Subscript) else made
        if isinstance(node, ast.Call) and made is not None and resolve_through(made, scope) in _TOPICS:
            is_hidden = any(isinstance(each, ast.Starred) for each in node.args) or any(
                not each.arg for each in node.keywords
            )
            for place, message, hint in () if is_hidden else _wrong_parts(node, scope):
                severity: Severity = "info" if message.endswith("computed") else "error"
                yield report("GB322", "", span_of(file.module.path, place), message, hint, severity=severity)


def _wrong_parts(made: ast.Call, scope: Scope) -> Iterator[tuple[ast.expr, str, str]]:
    name, payload = call_argument(made, 0, "name"), call_argument(made, 1, "payload")
    text = text_of(name, scope)
    if text is None and not (isinstance(name, ast.Constant) or name is None):
        yield (
            name,
            f"the topic {ast.unparse(name)} is computed",
            "What it publishes and hears is not checked: write a constant.",
        )
    elif not is_topic_or_pattern(text or ""):
        yield name or made, f"{text!r} is no topic" if text else "a Topic is given no name", _LIKE
    wrong = _no_type(payload, scope) if payload else "nothing"
    if wrong:
        message = f"{ast.unparse(made)} is given {wrong} where the type of its payloads belongs"
        yield payload or made, message, 'Give a class: `Topic("/Order/Created", Order)`.'


def _no_type(payload: ast.expr, scope: Scope) -> str:
    """Say what stands there instead of a type; the empty text for a type and for what is not known."""
    if isinstance(payload, ast.Constant):
        return (
            ""
            if payload.value is None
            else f"the {'text' if isinstance(payload.value, str) else 'value'} {payload.value!r}"
        )
    called = payload.func if isinstance(payload, ast.Call) else payload
    target = resolve_through(called.value if isinstance(called, ast.Subscript) else called, scope)
    if isinstance(target, External):
        is_function = target.dotted.startswith("builtins.") and not isinstance(
            getattr(builtins, target.dotted[9:]), type
        )
        return ast.unparse(payload) if target.dotted in _NO_TYPES or is_function else ""
    if isinstance(target, Symbol) and isinstance(target.node, ast.ClassDef):
        return f"an object of {target.node.name}" if isinstance(payload, ast.Call) and not target.node.keywords else ""
    is_function = isinstance(target, Symbol) and isinstance(target.node, FUNCTIONS) and payload is called
    return ast.unparse(payload) if is_function or isinstance(target, ModuleRef) else ""


def check_annotations(file: ReadFile) -> Iterator[Finding]:
    """Find handlers and methods with a schema whose annotations hold a name that their file does not define."""
    for _, definition, methods in file.agents:
        exposed = {each.name for each in definition.methods if each.has_schema}
        exposed |= {each.method for each in definition.subscriptions}
        for home, method in methods:
            if method.node.name in exposed and home.module is file.module:
                annotations = [*(each for _, each in annotated_arguments(method)), method.node.returns]
                for place in filter(None, annotations):
                    for name in sorted({each for each in _names(place) if not _is_bound(each, home.module)}):
                        message = (
                            f"{home.node.name}.{method.node.name} is annotated with {name!r}, which is not defined here"
                        )
                        hint = did_you_mean(name, home.module.bindings.first).strip() or f"Import or define {name}."
                        yield report("GB323", definition.name, span_of(home.module.path, place), message, hint)


def _names(annotation: ast.AST) -> Iterator[str]:
    """The names in an annotation, also in one that is a text; without what `Literal` and `Annotated` hold."""
    if isinstance(annotation, ast.Name):
        yield annotation.id
    elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            yield from _names(parse_expression(annotation.value))
        except SyntaxError:
            return
    else:
        named = annotation.value if isinstance(annotation, ast.Subscript) else None
        is_data = named is not None and last_name(named) in ("Literal", "Annotated")
        for child in [named] if named and is_data else children_of(annotation):
            yield from _names(child)


def _is_bound(name: str, module: Module) -> bool:
    """True when a name may stand for something in a file: whatever is bound anywhere in it counts."""
    bindings = module.bindings
    if name in bindings.first or hasattr(builtins, name) or bindings.stars or name in bindings.rebound:
        return True
    bound = (getattr(node, field, "") for node in ast.walk(module.tree) for field in ("name", "asname", "arg"))
    stored = (
        node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    )
    return name in {each for each in bound if isinstance(each, str)} or name in stored
