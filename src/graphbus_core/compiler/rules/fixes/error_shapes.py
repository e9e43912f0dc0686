"""GB120: all agents report errors in the shape that most of them use: one change over several files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.rules.error_shapes import Reporting, Shape, error_reports
from graphbus_core.compiler.rules.evidence import Evidence
from graphbus_core.compiler.rules.fixes.names import others, refuse_if_called
from graphbus_core.compiler.rules.fixes.parameters import schema_display
from graphbus_core.compiler.rules.fixes.rewrite import Refused, Symbol
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.model.agent import SourceSpan
from graphbus_core.model.findings import Finding, Fix
from graphbus_core.schema.compatibility import is_disjoint

Words = dict[bool, str]
"""What the usual status says for success (True) and failure (False)."""


def adopt_usual_shape(finding: Finding, evidence: Evidence) -> Fix:
    """Rename the fields in the schemas and in what is returned; translate True and False where the status is a text."""
    usual = Shape(finding.data["status"], finding.data["error"])
    wiring = Wiring(evidence)
    reporting = list(error_reports(wiring))
    odd = [each for each in reporting if each.shape.differs(usual)]
    models = [each for each in reporting if each.shape == usual]
    words = _words(models, usual, evidence)
    changes = []
    for each in odd:
        refuse_if_called(each.agent.name, each.method.name, evidence)
        changes.append(_adopt(each, usual, models[0], words, evidence).change())
    neighbours = [name for each in odd for name in wiring.neighbours(each.agent.name)]
    return Fix(
        title=f"Report errors as {usual} in {', '.join(map(str, odd))}",
        intent="align_schema",
        changes=tuple(changes),
        affects=others([*neighbours, *(each.agent.name for each in reporting)], finding.agent),
    )


def _adopt(odd: Reporting, usual: Shape, model: Reporting, words: Words, evidence: Evidence) -> Symbol:
    symbol = _symbol(odd, evidence)
    renamed = {old: new for old, new in zip(odd.shape, usual, strict=True) if old and new and old != new}
    translated = {old for old, new in renamed.items() if _is_translated(odd, old, model, new)}
    if translated - {odd.shape.status} or (translated and set(words) != {True, False}):
        raise Refused("the values cannot be translated")
    schema = schema_display(symbol.function, "output_schema", 1)
    for name, key, value in _entries(schema, renamed):
        symbol.replace_text(key, name, renamed[name])
        if name in translated:
            symbol.replace_node(value, "str")
    for display in _returned(symbol):
        for name, key, value in _entries(display, renamed):
            symbol.replace_text(key, name, renamed[name])
            if name in translated:
                symbol.replace_node(value, f'"{words[_truth(value)]}"')
    return symbol


def _is_translated(odd: Reporting, old: str, model: Reporting, new: str) -> bool:
    """True when the field holds truth values here and texts there; other differences cannot be bridged."""
    mine = odd.method.output_schema.get(old) if odd.method.output_schema else None
    theirs = model.method.output_schema.get(new) if model.method.output_schema else None
    if mine is None or theirs is None or not is_disjoint(mine.type, theirs.type):
        return False
    if (mine.type.kind, theirs.type.kind) != ("bool", "str"):
        raise Refused("the values are of different types")
    return True


def _truth(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
        return value.value
    raise Refused("the status is computed")


def _words(models: list[Reporting], usual: Shape, evidence: Evidence) -> Words:
    """Give the one word for success and the one for failure that all who use the usual shape agree on."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for model in models if usual.status else ():
        for display in _returned(_symbol(model, evidence)):
            entries = {name: value for name, _, value in _entries(display, {usual.status: "", usual.error: ""})}
            status, error = entries.get(usual.status), entries.get(usual.error)
            if isinstance(status, ast.Constant) and isinstance(status.value, str):
                is_success = error is None or (isinstance(error, ast.Constant) and error.value in (None, ""))
                found[is_success].add(status.value)
    return {truth: words.pop() for truth, words in found.items() if len(words) == 1}


def _symbol(reporting: Reporting, evidence: Evidence) -> Symbol:
    span = reporting.method.span
    inside = SourceSpan(span.path, span.end_line, max(span.end_column - 1, 0), span.end_line, span.end_column)
    return Symbol.at(evidence, inside)


def _returned(symbol: Symbol) -> Iterator[ast.Dict]:
    """Give every dict display that the method returns.

    Raises:
        Refused: It returns something else as well.
    """
    for node in ast.walk(symbol.function):
        if isinstance(node, ast.Return):
            if not isinstance(node.value, ast.Dict):
                raise Refused("what is returned is no display")
            yield node.value


def _entries(display: ast.Dict, names: dict[str, str]) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    for key, value in zip(display.keys, display.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value in names:
            yield key.value, key, value
