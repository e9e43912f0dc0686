"""GB001, GB003, GB004, GB103: another name for a topic or a key, written as a literal."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from graphbus_core.compiler.rules.evidence import Evidence, trees_with
from graphbus_core.compiler.rules.fixes.rewrite import Refused, Symbol
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding, Fix


def rename_topic(finding: Finding, evidence: Evidence) -> Fix:
    """GB001: give the subscription, or the one publication, the name of the other end."""
    wrong, right = finding.data["old"], finding.data["new"]
    place = finding.span
    affected = [related.agent for related in finding.related]
    if finding.data["rename"] == "publisher":
        wrong, right = right, wrong
        place = finding.related[0].span
        affected += [heard.agent.name for heard in Wiring(evidence).hearers(right)]
    symbol = Symbol.at(evidence, place)
    symbol.replace_text(_at(symbol, place), wrong, right)
    return Fix(
        title=f"Rename the topic {wrong!r} to {right!r} in {symbol.target}",
        intent="align_topic",
        changes=(symbol.change(),),
        affects=others(affected, finding.agent),
    )


def rename_key_read(finding: Finding, evidence: Evidence) -> Fix:
    """GB003: read the key that is sent, at every place where the handler reads the other one."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = Symbol.at(evidence, finding.span)
    definition = next(each for each in evidence.definitions if each.name == finding.agent)
    places = {
        (read.span.line, read.span.column)
        for subscription in definition.subscriptions
        for read in subscription.reads
        if read.key == old and read.span.path == finding.span.path
    }
    for node in ast.walk(symbol.function):
        if isinstance(node, ast.expr) and (node.lineno, node.col_offset) in places and _is_text(node, old):
            symbol.replace_text(node, old, new)
    return Fix(
        title=f"Read {new!r} instead of {old!r} in {symbol.target}",
        intent="align_schema",
        changes=(symbol.change(),),
        affects=others([related.agent for related in finding.related], finding.agent),
    )


def rename_key_sent(finding: Finding, evidence: Evidence) -> Fix:
    """GB004: send the key under the name that the other publishers or the declaration give it."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = Symbol.at(evidence, finding.span)
    _rename_key(symbol, _display(symbol, finding.span), old, new)
    wiring = Wiring(evidence)
    topics = {
        sent.topic for sent in wiring.sent if finding.span in (sent.publication.payload_span, sent.publication.span)
    }
    hearers = [heard.agent.name for topic in topics for heard in wiring.hearers(topic)]
    return Fix(
        title=f"Send {new!r} instead of {old!r} in {symbol.target}",
        intent="align_schema",
        changes=(symbol.change(),),
        affects=others([*hearers, *(related.agent for related in finding.related)], finding.agent),
    )


def rename_key_returned(finding: Finding, evidence: Evidence) -> Fix:
    """GB103: return the key under the name that the output schema gives it."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = Symbol.at(evidence, finding.span)
    displays = list(_displays_returned(symbol, finding.span))
    if len(displays) != 1:
        raise Refused("what is returned is no single display")
    refuse_if_called(finding.agent, finding.data["method"], evidence)
    _rename_key(symbol, displays[0], old, new)
    return Fix(
        title=f"Return {new!r} instead of {old!r} in {symbol.target}",
        intent="align_schema",
        changes=(symbol.change(),),
        affects=others(Wiring(evidence).neighbours(finding.agent), finding.agent),
    )


def refuse_if_called(agent: str, method: str, evidence: Evidence) -> None:
    """Give up when something in the project may read the result of a method: it would get another one.

    Raises:
        Refused: An agent calls it or may do so, or some file does, by its name or by `call("Agent", "method")`.
    """
    if any(Wiring(evidence).callers(agent, method)):
        raise Refused("an agent may read the result")
    for tree in trees_with([method], evidence):
        if tree is None or _may_read_result(tree, method):
            raise Refused("a file may read the result")


def _may_read_result(tree: ast.Module, method: str) -> bool:
    """Tell whether a method is called or named, other than by a statement that calls it and drops what it gives."""
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    calls = (value.value if isinstance(value, ast.Await) else value for value in statements)
    dropped = {call for call in calls if isinstance(call, ast.Call) and _called(call) == method}
    return any(node not in dropped and names_method(node, method) for node in ast.walk(tree))


def names_method(node: ast.AST, method: str) -> bool:
    """Tell whether a node is a call of a method, or a call that is given its name as a text."""
    if not isinstance(node, ast.Call):
        return False
    is_given = any(isinstance(value, ast.Constant) and value.value == method for value in node.args)
    return is_given or _called(node) == method


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def others(names: Iterable[str], owner: str) -> tuple[str, ...]:
    """Give the names but for the owner's, each once, sorted."""
    return tuple(sorted({name for name in names if name and name != owner}))


def _at(symbol: Symbol, span: SourceSpan) -> ast.expr:
    """Give the expression that covers exactly a span."""
    for node in ast.walk(symbol.node):
        if isinstance(node, ast.expr) and _covers(node, span):
            return node
    raise Refused("the place holds no expression")


def _covers(node: ast.expr, span: SourceSpan) -> bool:
    place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    return place == (span.line, span.column, span.end_line, span.end_column)


def _is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text and isinstance(node.value, str)


def _display(symbol: Symbol, span: SourceSpan) -> ast.Dict:
    node = _at(symbol, span)
    if isinstance(node, ast.Name):
        node = _assigned_once(symbol, node.id)
    if not isinstance(node, ast.Dict):
        raise Refused("the payload is no display")
    return node


def _displays_returned(symbol: Symbol, span: SourceSpan) -> Iterator[ast.Dict]:
    for node in ast.walk(symbol.function):
        if isinstance(node, ast.Return) and node.value and (node.lineno, node.col_offset) == (span.line, span.column):
            value = _assigned_once(symbol, node.value.id) if isinstance(node.value, ast.Name) else node.value
            if isinstance(value, ast.Dict):
                yield value


def _assigned_once(symbol: Symbol, name: str) -> ast.expr:
    """Give the display that a local name is bound to, if it is bound once and only ever sent or returned whole."""
    bindings = [
        node
        for node in ast.walk(symbol.function)
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
    ]
    uses = [node for node in ast.walk(symbol.function) if isinstance(node, ast.Name) and node.id == name]
    for node in ast.walk(symbol.function):
        if isinstance(node, ast.Assign) and node.targets == bindings and len(uses) == 2:
            return node.value
    raise Refused("the name is used for more than this")


def _rename_key(symbol: Symbol, display: ast.Dict, old: str, new: str) -> None:
    keys = [key for key in display.keys if key is not None and _is_text(key, old)]
    if len(keys) != 1 or any(key is not None and _is_text(key, new) for key in display.keys):
        raise Refused("the key is not written once")
    symbol.replace_text(keys[0], old, new)
