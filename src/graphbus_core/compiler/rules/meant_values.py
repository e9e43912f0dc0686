"""Values that are left out or of another type: which value of the same function is meant in their place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeGuard

from msgspec.structs import replace

from graphbus_core.compiler.rules.entries import (
    Entry,
    add_entry,
    arguments_of,
    entries_of,
    rename_entries,
    written_mapping,
)
from graphbus_core.compiler.rules.names import are_near, are_one_and_many
from graphbus_core.compiler.rules.renames import giving_place, is_read
from graphbus_core.compiler.rules.token_edits import EditedSymbol, Refused, Remedy, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import Wiring, last_name
from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.findings import Finding
from graphbus_core.schema.compatibility import fit_of
from graphbus_core.schema.types import Schema, Type

# --- what is left out ---------------------------------------------------------------------------


def choose_left_out(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Give variants for a key or argument that is missing, the strongest evidence first.

    Evidence is: another key is given that nobody wants, and its value has the name that is missing; a variable has the name, or
    the record has it that the other values are taken from; and of a known type, one key alone is given that nobody wants.
    """
    name = finding.data["missing"]
    span, wanted = giving_place(finding, edits.wiring)
    symbol = edits.at(span)
    given = _entries_at(symbol, span, finding)
    parts = {entry.name: [*map(_names_of, ast.walk(entry.value))] for entry in given}
    unwanted = parts.keys() - wanted
    yield [_with(finding, instead=key) for key in sorted(unwanted) if any(name in names for names in parts[key])]
    fields = _fields_given(span, edits.wiring)
    is_used = any(name in names for all_names in parts.values() for names in all_names)
    if fields.keys() <= wanted and not is_used:
        place = edits.at_node(span.path, _mapping_at(symbol, span, finding))
        values = {name} & _bound_above(place, span)
        values |= {_beside(entry, name) for entry in given} if span == finding.span else set()
        yield [_with(finding, value=value) for value in sorted(filter(None, values))]
    elif len(unwanted) == 1 and fields[min(unwanted)].kind not in ("unknown", "any") and _is_relied_on(finding, edits):
        yield [_with(finding, instead=key) for key in unwanted]


def _is_relied_on(finding: Finding, edits: TokenEdits) -> bool:
    """Tell whether others go by the name that is missing: it is declared for a topic, or a caller reads it of the result."""
    calls = [call for agent in edits.wiring.agents.values() for call in agent.calls if call.agent == finding.agent]
    reads = [read.key for call in calls if call.method == finding.data.get("method") for read in call.reads]
    return finding.code == "GB004" or (finding.code == "GB103" and finding.data["missing"] in reads)


def _with(finding: Finding, **data: str) -> Finding:
    return replace(finding, data=finding.data | data)


def _entries_at(symbol: EditedSymbol, span: SourceSpan, finding: Finding) -> list[Entry]:
    expression = symbol.expression_at(span)
    if _is_call(expression, span, finding):
        return list(arguments_of(expression, symbol.node, symbol.tree))
    return list(entries_of(expression, symbol.node, symbol.tree))


def _is_call(expression: ast.expr, span: SourceSpan, finding: Finding) -> TypeGuard[ast.Call]:
    return finding.code == "GB110" and span == finding.span and isinstance(expression, ast.Call)


def _mapping_at(symbol: EditedSymbol, span: SourceSpan, finding: Finding) -> ast.expr:
    """Give what makes a mapping, or the call that the finding is about."""
    expression = symbol.expression_at(span)
    is_call = _is_call(expression, span, finding)
    return expression if is_call else written_mapping(expression, symbol.node, symbol.tree)


def _names_of(node: ast.AST) -> tuple[object, ...]:
    """Give the names that a value has where it comes from: `total`, `order.total` and `order["total"]`."""
    return getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "value", None)


def _bound_above(symbol: EditedSymbol, span: SourceSpan) -> set[str]:
    """Give the parameters of a method, and the names that are surely assigned above a place in it."""
    arguments = symbol.function.args
    bound = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return bound | set(_stored_above(symbol.function.body, span.line))


def _stored_above(body: list[ast.stmt], line: int) -> Iterator[str]:
    """Give what the statements of a block assign above a line; of blocks inside, only the one that the line is in counts."""
    for statement in body:
        is_around = statement.lineno < line <= (statement.end_lineno or 0)
        if is_around or (statement.lineno < line and isinstance(statement, ast.Assign | ast.AnnAssign)):
            heads = [getattr(statement, "target", None), *getattr(statement, "targets", ())]
            nodes = [node for head in heads if head for node in ast.walk(head)]
            yield from (node.id for node in nodes if isinstance(node, ast.Name))
        for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for block in (getattr(owner, field, None) for field in ("body", "orelse", "finalbody")):
                if is_around and block and block[0].lineno <= line <= (block[-1].end_lineno or 0):
                    yield from _stored_above(block, line)


def _beside(entry: Entry, name: str) -> str:
    """Give `line["qty"]` beside `sku=line["sku"]`, and `order.qty` beside `sku=order.sku`."""
    value = entry.value
    if isinstance(value, ast.Attribute | ast.Subscript) and last_name(value.value) not in ("", "self"):
        source = ast.unparse(value.value)
        if isinstance(value, ast.Attribute) and value.attr == entry.name:
            return f"{source}.{name}"
        if isinstance(value, ast.Subscript) and getattr(value.slice, "value", None) == entry.name:
            return f'{source}["{name}"]'
    return ""


def _fields_given(span: SourceSpan, wiring: Wiring) -> dict[str, Type]:
    """Give name -> type of all that is given at a place, what stands behind `**` included."""
    schemas = (schema for agent in wiring.agents.values() for where, schema in _given(agent) if where == span)
    return {field.name: field.type for schema in schemas if schema for field in schema.fields}


def _given(agent: AgentDefinition) -> Iterator[tuple[SourceSpan | None, Schema | None]]:
    yield from ((each.payload_span, each.payload) for each in agent.publications)
    yield from ((each.span, each.arguments) for each in agent.calls)
    yield from ((each.span, each.shape) for method in agent.methods for each in method.returned)


def count_unknown(wiring: Wiring) -> int:
    """Count the values that agents give and whose type is not known, or that may contradict what is declared."""
    given = [schema for agent in wiring.agents.values() for _, schema in _given(agent) if schema]
    types = [field.type for schema in given for field in schema.fields]
    types += [each.publication.type for each in wiring.publications if each.publication.payload is None]
    doubtful = sum(fit_of(wanted, each).verdict == "unknown" for wanted, each in _declared_and_sent(wiring))
    return sum(each.kind == "unknown" for each in types) + sum(each.is_open for each in given) + doubtful


def _declared_and_sent(wiring: Wiring) -> Iterator[tuple[Type, Type]]:
    """Give the type that is declared for each field of a topic, and the one that is sent there."""
    payloads = [(each.topic, each.publication.is_declared, each.publication.payload) for each in wiring.publications]
    declared = [(topic, payload) for topic, is_declared, payload in payloads if is_declared and payload]
    for topic, is_declared, payload in payloads:
        for field in payload.fields if payload and not is_declared else ():
            wanted = (each.get(field.name) for other, each in declared if other == topic)
            yield from ((each.type, field.type) for each in wanted if each)


def give_as_well(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB003, GB004, GB103, GB110: send, pass or return what is wanted: under its right name, or besides what is given."""
    name, (span, _) = finding.data["missing"], giving_place(finding, edits.wiring)
    symbol = edits.at(span)
    if "value" in finding.data:
        mapping = _mapping_at(symbol, span, finding)
        add_entry(edits.at_node(span.path, mapping), mapping, name, finding.data["value"])
        return Remedy(f"Give {name!r} as well{edits.where}", "align_schema")
    old = finding.data["instead"]
    is_returned = finding.code == "GB103" and not _is_relied_on(finding, edits)
    if is_returned and is_read(finding.data["method"], old, 1, edits.project):
        raise Refused("something may read the other key")
    rename_entries(edits, span.path, _entries_at(symbol, span, finding), old, name)
    return Remedy(f"Give {name!r} instead of {old!r}{edits.where}", "align_schema")


# --- what is of another type --------------------------------------------------------------------


def choose_fitting(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Give variants for a value of another type: what it is made of, the field of its name, the variable of its name."""
    name, span = finding.data["unfit"], _place_of_value(finding, edits.wiring)
    symbol = edits.at(span)
    value = _value_at(symbol, span, name, finding)
    found = {*_inner(value, name, symbol), *_fields(value, name, symbol)}
    if isinstance(value, ast.Name) and (are_near(value.id, name) or are_one_and_many(value.id, name)):
        found.add(name)
    if isinstance(value, ast.Name) and not name and _wants_record(finding, edits.wiring):
        found |= _bound_above(symbol, span) - {value.id}
    yield [_with(finding, value=each) for each in sorted(found)]


def _wants_record(finding: Finding, wiring: Wiring) -> bool:
    """Tell whether a declaration of the agent says that a whole payload is of a class, which hardly two variables are of."""
    sent = [
        each.publication for each in wiring.publications if each.agent.name in (finding.agent, finding.related[0].agent)
    ]
    topics = {each.topic for each in sent if finding.span in (each.payload_span, each.span)}
    return any(each.is_declared and each.payload and each.topic in topics for each in sent)


def _place_of_value(finding: Finding, wiring: Wiring) -> SourceSpan:
    """Give where the value is made: at the finding, or at the publisher that a handler's finding speaks of."""
    places = [where for agent in wiring.agents.values() for where, _ in _given(agent)]
    if finding.span in places:
        return finding.span
    other = finding.related[0]
    sent = [each.publication for each in wiring.publications if each.agent.name == other.agent]
    return take_single([each.payload_span for each in sent if each.span == other.span and each.payload_span])


def _value_at(symbol: EditedSymbol, span: SourceSpan, name: str, finding: Finding) -> ast.expr:
    if not name:
        return symbol.expression_at(span)
    return take_single([each.value for each in _entries_at(symbol, span, finding) if each.name == name])


def _inner(value: ast.expr, name: str, symbol: EditedSymbol) -> Iterator[str]:
    """Give `seat` for `str(seat)` and `[seat]`, the record for one of its fields, and 3 for "3"."""
    parts: list[ast.expr] = []
    if isinstance(value, ast.Call):
        parts = value.args if len(value.args) == 1 and not value.keywords else []
    elif isinstance(value, ast.List | ast.Tuple | ast.Set):
        parts = value.elts if len(value.elts) == 1 else []
    elif isinstance(value, ast.Attribute | ast.Subscript) and not name:
        parts = [value.value] if isinstance(value.value, ast.Name) else []
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        with suppress(ValueError):
            yield str(int(value.value)) if value.value.lstrip("-").isdigit() else str(float(value.value))
    elif isinstance(value, ast.Constant) and type(value.value) in (int, float):
        yield f'"{symbol.text_of(value)}"'
    for part in parts:
        if name in (_key_or_name(part), "") and (name or isinstance(part, ast.Name)):
            yield symbol.text_of(part)


def _key_or_name(expression: ast.expr) -> object:
    if isinstance(expression, ast.Subscript):
        return getattr(expression.slice, "value", None)
    return last_name(expression)


def _fields(value: ast.expr, name: str, symbol: EditedSymbol) -> Iterator[str]:
    """Give `order["total"]` for `order["name"]` where a total belongs."""
    if isinstance(value, ast.Attribute) and name:
        yield f"{symbol.text_of(value.value)}.{name}"
    elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) and name:
        written = symbol.text_of(value.slice)
        yield f"{symbol.text_of(value.value)}[{written.replace(str(value.slice.value), name)}]"


def replace_value(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB004, GB103, GB110: give the value that is meant."""
    name, value, span = finding.data["unfit"], finding.data["value"], _place_of_value(finding, edits.wiring)
    symbol = edits.at(span)
    symbol.replace(_value_at(symbol, span, name, finding), value)
    what = f" as {name!r}" if name else ""
    return Remedy(f"Give {value}{what}{edits.where}", "align_schema")
