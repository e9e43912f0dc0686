"""GB210, GB301, GB302: a guard, a default that is made anew for each call, an `except` that lets Ctrl-C through."""

from __future__ import annotations

import ast
import builtins

from graphbus_core.compiler.rules.defaults import defaulted, how_seen
from graphbus_core.compiler.rules.evidence import Evidence
from graphbus_core.compiler.rules.fixes.names import others
from graphbus_core.compiler.rules.fixes.rewrite import Refused, Symbol
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.model.findings import Finding, Fix

_BUILTIN = frozenset(dir(builtins))
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)
_CALLS = {"exit", "quit", "_exit", "abort", "parse_args", "parse_known_args"}
_RAISED = {"SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "BaseException", "BaseExceptionGroup"}
_ENDING = frozenset(_CALLS | _RAISED)


def make_default_in_body(finding: Finding, evidence: Evidence) -> Fix:
    """GB301: `items=[]` becomes `items=None`, and `[]` is made in the body."""
    name = finding.data["parameter"]
    symbol = Symbol.at(evidence, finding.span)
    argument, default = next((pair for pair in defaulted(symbol.function) if pair[0].arg == name), (None, None))
    if argument is None or default is None or default.lineno != default.end_lineno:
        raise Refused("the default is not written on one line")
    seen = how_seen(name, default, symbol.function)
    is_called = any(Wiring(evidence).callers(finding.agent, symbol.function.name))
    if seen == "as memory" or (seen == "as text" and is_called):
        raise Refused("somebody may rely on what is shared")
    _refuse_handlers(symbol, evidence)
    _refuse_names_of_the_class(symbol, default)
    if argument.annotation is not None:
        _allow_none(symbol, argument.annotation)
    symbol.replace_node(default, "None")
    symbol.insert_first([f"if {name} is None:", f"\t{name} = {symbol.text.of(default)}"])
    return Fix(
        title=f"Make the default of {name!r} anew in each call of {symbol.target}",
        intent="fix_default",
        changes=(symbol.change(),),
        is_safe=seen == "never",
    )


def _refuse_handlers(symbol: Symbol, evidence: Evidence) -> None:
    is_handler = any(
        subscription.method == symbol.function.name and subscription.span.path == symbol.text.source.path
        for definition in evidence.definitions
        for subscription in definition.subscriptions
    )
    if is_handler:
        raise Refused("the signature decides how the handler is called")


def _refuse_names_of_the_class(symbol: Symbol, default: ast.expr) -> None:
    """What the class body binds can be named in a default, but not in a method."""
    bound = {
        node.id
        for statement in (symbol.owner.body if symbol.owner else [])
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | {getattr(statement, "name", "") for statement in (symbol.owner.body if symbol.owner else [])}
    own = {argument.arg for argument in ast.walk(symbol.function) if isinstance(argument, ast.arg)} | {
        node.id for node in ast.walk(symbol.function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if any(isinstance(node, ast.Name) and node.id in bound | own for node in ast.walk(default)):
        raise Refused("the default names something that the body does not see")


def _allow_none(symbol: Symbol, annotation: ast.expr) -> None:
    written = symbol.text.of(annotation)
    if any(word in written for word in ("None", "Optional", "Any", "object")):
        return
    if isinstance(annotation, ast.Constant):
        if not isinstance(annotation.value, str) or f"{written[0]}{annotation.value}{written[0]}" != written:
            raise Refused("the annotation is no plain text")
        symbol.replace_text(annotation, annotation.value, f"{annotation.value} | None")
    else:
        symbol.insert(symbol.text.end(annotation), " | None")


def catch_exceptions_only(finding: Finding, evidence: Evidence) -> Fix:
    """GB302: `except:` becomes `except Exception:`."""
    symbol = Symbol.at(evidence, finding.span)
    start = symbol.text.offset(finding.span.line, finding.span.column)
    if symbol.text.utf8[start : start + 6] != b"except":
        raise Refused("the place holds no except")
    if any(_binds_exception(node) for node in ast.walk(symbol.text.tree)):
        raise Refused("Exception means something else here")
    _refuse_if_more_is_caught_on_purpose(symbol, (finding.span.line, finding.span.column))
    symbol.insert(start + 6, " Exception")
    return Fix(
        title=f"Let {symbol.target} catch exceptions only",
        intent="narrow_except",
        changes=(symbol.change(),),
    )


def _refuse_if_more_is_caught_on_purpose(symbol: Symbol, place: tuple[int, int]) -> None:
    """Give up where what is tried ends the process, parses a command line, or can be closed or cancelled."""
    for node in ast.walk(symbol.node):
        if isinstance(node, ast.Try) and any(_place(clause) == place for clause in node.handlers):
            tried = [inner for statement in node.body for inner in ast.walk(statement)]
            if any(isinstance(inner, _SUSPENDING) or _words(inner) & _ENDING for inner in tried):
                raise Refused("what is caught is no Exception")


def _place(clause: ast.ExceptHandler) -> tuple[int, int]:
    return clause.lineno, clause.col_offset


def _words(node: ast.AST) -> set[str]:
    return {getattr(node, "id", ""), getattr(node, "attr", "")}


def _binds_exception(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "Exception" and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.alias):
        return "Exception" in (node.asname or node.name, "" if node.name != "*" else "Exception")
    return "Exception" in (getattr(node, "arg", ""), getattr(node, "name", ""))


def add_guard(finding: Finding, evidence: Evidence) -> Fix:
    """GB210: refuse arguments of another type than the schema declares."""
    symbol = Symbol.at(evidence, finding.span)
    names = {
        node.id
        for node in ast.walk(symbol.text.tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    if names & {"isinstance", "TypeError", "type", *_kinds(finding).values()}:
        raise Refused("a name of the guard means something else here")
    optional = {argument.arg for argument, default in defaulted(symbol.function)}
    lines: list[str] = []
    for name, kind in _kinds(finding).items():
        wanted = "(int, float)" if kind == "float" else kind
        condition = f"not isinstance({name}, {wanted})"
        lines += [
            f"if {name} is not None and {condition}:" if name in optional else f"if {condition}:",
            f'\traise TypeError(f"{name} must be {kind}, not {{type({name}).__name__}}")',
        ]
    symbol.insert_first(lines)
    return Fix(
        title=f"Validate the input of {symbol.target}",
        intent="add_validation",
        changes=(symbol.change(),),
        affects=others(Wiring(evidence).neighbours(finding.agent), finding.agent),
    )


def _kinds(finding: Finding) -> dict[str, str]:
    """Parameter -> the name of its type."""
    pairs = (item.partition(":") for item in finding.data["kinds"].split(","))
    return {name: kind for name, _, kind in pairs}
