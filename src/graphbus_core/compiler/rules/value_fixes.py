"""Fixes for values that are missing or have the wrong type. The value to use is taken from the same function.

The `choose_...` functions yield tiers of variants of a finding, which `fixes.make_fix` tries one by one. A variant is a copy of
the finding whose data has the value to use. The public functions that return a `Remedy` make the edits for one variant.
"""

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
    makes_a_mapping,
    rename_entries,
    written_mapping,
)
from graphbus_core.compiler.rules.names import are_near, are_singular_and_plural, near_match_in_closed_set
from graphbus_core.compiler.rules.renames import find_place_to_add, is_read_anywhere
from graphbus_core.compiler.rules.token_edits import EditedSymbol, Refused, Remedy, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import Wiring, last_name
from graphbus_core.model.agent import AgentDefinition, SourceSpan
from graphbus_core.model.findings import Finding
from graphbus_core.schema.compatibility import fit_of
from graphbus_core.schema.types import Schema, Type

# --- missing values -----------------------------------------------------------------------------


def choose_missing_value(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Yield tiers of variants for a missing key or argument, the strongest evidence first.

    The data of each variant has one of these keys, which `supply_missing_value` reads. The tiers are in this order:

    instead: a given key that nobody needs, if its value comes from a variable or attribute with the missing name
    whole: another variable, which may hold the whole record; only if a payload lacks several keys
    value: a variable with the missing name, or a field of that name in the record from which the other values are taken
    instead, with weaker evidence: the only given key that nobody needs, if its type is known or it fills the only gap
    """
    name = finding.data["missing"]
    span, wanted = find_place_to_add(finding, edits.wiring)
    symbol = edits.at(span)
    entries = _find_entries(symbol, span, finding)
    parts = {entry.name: [*map(_name_parts_of, ast.walk(entry.value))] for entry in entries}
    unwanted = parts.keys() - wanted
    yield [_with_data(finding, instead=key) for key in sorted(unwanted) if any(name in names for names in parts[key])]
    fields = _find_given_fields(span, edits.wiring)
    if "wanted" not in finding.data and len(wanted - fields.keys()) > 1:  # it is a payload, not arguments or a result
        yield [_with_data(finding, whole=each) for each in sorted(_find_other_records(symbol, span))]
    is_used = any(name in names for all_names in parts.values() for names in all_names)
    if fields.keys() <= wanted and not is_used:
        place = edits.at_node(span.path, _find_mapping(symbol, span, finding))
        values = {name} & _names_bound_above(place, span)
        values |= {_write_read_of_other_field(entry, name) for entry in entries} if span == finding.span else set()
        yield [_with_data(finding, value=value) for value in sorted(filter(None, values))]
    elif len(unwanted) == 1 and min(unwanted) in fields and (name in parts or _is_used_by_others(finding, edits)):
        is_unique = {*fields, name} - unwanted == wanted and not unwanted & _find_keys_given_elsewhere(
            span, edits.wiring
        )
        if is_unique or fields[min(unwanted)].kind not in ("unknown", "any"):
            yield [_with_data(finding, instead=key) for key in unwanted]


_DUMPING = frozenset({"_asdict", "as_dict", "dict", "model_dump", "to_dict"})
"""Methods that convert a record to a dict."""


def _find_other_records(symbol: EditedSymbol, span: SourceSpan) -> Iterator[str]:
    """Yield each other variable as source text, converted like the payload at a place: `quote.to_dict()`."""
    sent = symbol.expression_at(span)
    for name in _names_bound_above(symbol, span) - {"self"}:
        if isinstance(sent, ast.Call) and isinstance(sent.func, ast.Attribute) and sent.func.attr in _DUMPING:
            yield symbol.text_of(sent).replace(symbol.text_of(sent.func.value), name, 1)
        elif isinstance(sent, ast.Call) and len(sent.args) == 1 and last_name(sent.func) == "asdict":
            yield f"{symbol.text_of(sent.func)}({name})"
        else:
            yield name


def _is_used_by_others(finding: Finding, edits: TokenEdits) -> bool:
    """Return whether other agents use the missing name: publishers are compared, or a caller reads the name from the result."""
    calls = [call for agent in edits.wiring.agents.values() for call in agent.calls if call.agent == finding.agent]
    reads = [read.key for call in calls if call.method == finding.data.get("method") for read in call.reads]
    return finding.code == "GB004" or (finding.code == "GB103" and finding.data["missing"] in reads)


def _with_data(finding: Finding, **data: str) -> Finding:
    """Return a copy of a finding with further data."""
    return replace(finding, data=finding.data | data)


def _find_entries(symbol: EditedSymbol, span: SourceSpan, finding: Finding) -> list[Entry]:
    """Return the entries of the mapping at a place; or if the finding is about the call there, its arguments."""
    expression = symbol.expression_at(span)
    if _is_call_of_finding(expression, span, finding):
        return list(arguments_of(expression, symbol.node, symbol.tree))
    return list(entries_of(expression, symbol.node, symbol.tree))


def _is_call_of_finding(expression: ast.expr, span: SourceSpan, finding: Finding) -> TypeGuard[ast.Call]:
    """Return whether an expression at a place is the call whose arguments a finding is about, and not a mapping."""
    return finding.code == "GB110" and span == finding.span and isinstance(expression, ast.Call)


def _find_mapping(symbol: EditedSymbol, span: SourceSpan, finding: Finding) -> ast.expr:
    """Return the display or call that makes the mapping at a place; or if the finding is about the call there, that call."""
    expression = symbol.expression_at(span)
    is_call = _is_call_of_finding(expression, span, finding)
    return expression if is_call else written_mapping(expression, symbol.node, symbol.tree)


def _name_parts_of(node: ast.AST) -> tuple[object, ...]:
    """Return the name, attribute and constant of one node: `total` in `total`, `order.total` and `order["total"]`."""
    return getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "value", None)


def _names_bound_above(symbol: EditedSymbol, span: SourceSpan) -> set[str]:
    """Return the parameters of a method, and the names that are surely assigned before the line of a place in it."""
    arguments = symbol.function.args
    bound = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return bound | set(_names_assigned_above(symbol.function.body, span.line))


def _names_assigned_above(body: list[ast.stmt], line: int) -> Iterator[str]:
    """Yield the names that a block assigns before a line; an inner block counts only if the line is in it."""
    for statement in body:
        is_around = statement.lineno < line <= (statement.end_lineno or 0)
        if is_around or (statement.lineno < line and isinstance(statement, ast.Assign | ast.AnnAssign)):
            targets = [getattr(statement, "target", None), *getattr(statement, "targets", ())]
            nodes = [node for head in targets if head for node in ast.walk(head)]
            yield from (node.id for node in nodes if isinstance(node, ast.Name))
        for owner in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            for block in (getattr(owner, field, None) for field in ("body", "orelse", "finalbody")):
                if is_around and block and block[0].lineno <= line <= (block[-1].end_lineno or 0):
                    yield from _names_assigned_above(block, line)


def _write_read_of_other_field(entry: Entry, name: str) -> str:
    """Return source text that reads a field as an entry reads its own: `order.qty` for `sku=order.sku`; else `""`."""
    value = entry.value
    if isinstance(value, ast.Attribute | ast.Subscript) and last_name(value.value) not in ("", "self"):
        source = ast.unparse(value.value)
        if isinstance(value, ast.Attribute) and value.attr == entry.name:
            return f"{source}.{name}"
        if isinstance(value, ast.Subscript) and getattr(value.slice, "value", None) == entry.name:
            return f'{source}["{name}"]'
    return ""


def _find_keys_given_elsewhere(span: SourceSpan, wiring: Wiring) -> set[str]:
    """Return the keys that agents send, pass or return at any other place."""
    schemas = [schema for agent in wiring.agents.values() for where, schema in _given_schemas(agent) if where != span]
    return {name for schema in schemas if schema for name in schema.names}


def _find_given_fields(span: SourceSpan, wiring: Wiring) -> dict[str, Type]:
    """Return name -> type for the fields that are sent, passed or returned at a place, those of unpacked mappings included."""
    schemas = (schema for agent in wiring.agents.values() for where, schema in _given_schemas(agent) if where == span)
    return {field.name: field.type for schema in schemas if schema for field in schema.fields}


def _given_schemas(agent: AgentDefinition) -> Iterator[tuple[SourceSpan | None, Schema | None]]:
    """Yield `(place, schema)` for each payload, the arguments of each call, and each result of an agent; None: not known."""
    yield from ((each.payload_span, each.payload) for each in agent.publications)
    yield from ((each.span, each.arguments) for each in agent.calls)
    yield from ((each.span, each.shape) for method in agent.methods for each in method.returned)


def count_unknown(wiring: Wiring) -> tuple[int, int]:
    """Return the number of payloads of unknown type, and that number plus all other unknown, open or doubtful values.

    A value is doubtful if it may or may not fit the declared type. A fix that raises either number only hides the finding.
    """
    schemas = [schema for agent in wiring.agents.values() for _, schema in _given_schemas(agent) if schema]
    types = [field.type for schema in schemas for field in schema.fields]
    payload_types = [each.publication.type for each in wiring.publications if each.publication.payload is None]
    doubtful = sum(fit_of(wanted, each).verdict == "unknown" for wanted, each in _pair_declared_and_sent_types(wiring))
    unknown = [sum(each.kind == "unknown" for each in group) for group in (payload_types, types)]
    return unknown[0], sum(unknown) + sum(each.is_open for each in schemas) + doubtful


def _pair_declared_and_sent_types(wiring: Wiring) -> Iterator[tuple[Type, Type]]:
    """Yield `(declared type, sent type)` for each field of a payload that a declaration for the same topic has as well."""
    payloads = [(each.topic, each.publication.is_declared, each.publication.payload) for each in wiring.publications]
    declared = [(topic, payload) for topic, is_declared, payload in payloads if is_declared and payload]
    for topic, is_declared, payload in payloads:
        for field in payload.fields if payload and not is_declared else ():
            wanted = (each.get(field.name) for other, each in declared if other == topic)
            yield from ((each.type, field.type) for each in wanted if each)


def supply_missing_value(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB003, GB004, GB103, GB110: send, pass or return the missing key. The data of the variant has one of these keys:

    whole: send this variable as the payload; refused if the payload is a display or a call of a class, which may lack a key
    value: add an entry with this source text
    instead: rename this key to the missing one; refused if the method returns it and other code may read it
    """
    name, (span, _) = finding.data["missing"], find_place_to_add(finding, edits.wiring)
    symbol = edits.at(span)
    if "whole" in finding.data:
        return _send_other_record(finding.data["whole"], span, edits)
    if "value" in finding.data:
        mapping = _find_mapping(symbol, span, finding)
        add_entry(edits.at_node(span.path, mapping), mapping, name, finding.data["value"])
        return Remedy(f"Give {name!r} as well{edits.where}", "align_schema")
    old = finding.data["instead"]
    is_returned = finding.code == "GB103" and not _is_used_by_others(finding, edits)
    if is_returned and is_read_anywhere(finding.data["method"], old, 1, edits.project):
        raise Refused("something may read the other key")
    rename_entries(edits, span.path, _find_entries(symbol, span, finding), old, name)
    return Remedy(f"Give {name!r} instead of {old!r}{edits.where}", "align_schema")


def _send_other_record(name: str, span: SourceSpan, edits: TokenEdits) -> Remedy:
    """Send a variable instead of the payload at a place; Refused if the payload is written key by key and may lack one."""
    symbol = edits.at(span)
    sent = symbol.expression_at(span)
    written = written_mapping(sent, symbol.node, symbol.tree)
    if isinstance(written, ast.Dict) or (isinstance(written, ast.Call) and makes_a_mapping(written)):
        raise Refused("a key of it may have been left out")
    symbol.replace(sent, name)
    return Remedy(f"Send {name}{edits.where}", "align_schema")


# --- values of another type ---------------------------------------------------------------------


def choose_fitting_value(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Yield one tier of variants with a `value`, as source text, to replace a value of the wrong type.

    Candidates are parts of the value, reads of another field of the same record, corrected strings, and variables with the wanted
    name. If the whole payload is wrong and its fields are declared, they are all variables of the method.
    """
    name, span = finding.data["unfit"], _find_value_place(finding, edits.wiring)
    symbol = edits.at(span)
    value = _find_value(symbol, span, name, finding, edits.wiring)
    found = {
        *_unwrap_value(value, name, symbol),
        *_write_read_of_wanted_name(value, name, symbol),
        *_correct_texts(value, finding, symbol),
    }
    sent = [each.publication.type for each in edits.wiring.publications if each.publication.payload_span == span]
    if not name and any(each.kind == "tuple" and each.name for each in sent):
        found.add(f"{symbol.text_of(value)}._asdict()")
    if isinstance(value, ast.Constant | ast.List | ast.Tuple):
        found = found or {name} & _names_bound_above(symbol, span)
    if isinstance(value, ast.Name) and (are_near(value.id, name) or are_singular_and_plural(value.id, name)):
        found.add(name)
    if isinstance(value, ast.Name) and not name and _is_record_declared(finding, edits.wiring):
        found |= _names_bound_above(symbol, span) - {value.id}
    yield [_with_data(finding, value=each) for each in sorted(found)]


def _correct_texts(value: ast.expr, finding: Finding, symbol: EditedSymbol) -> Iterator[str]:
    """Yield the value as source text, with a misspelled string replaced by the similar one that the declared type allows."""
    known, written = finding.data.get("texts", "").split("\n"), symbol.text_of(value)
    parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    for part in (each for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)):
        similar, old = near_match_in_closed_set(str(part.value), known), symbol.text_of(part)
        if similar and written.count(old) == 1:
            yield written.replace(old, old.replace(str(part.value), similar))


def _is_record_declared(finding: Finding, wiring: Wiring) -> bool:
    """Return whether a declaration for the finding's topic has known fields. Few variables have those, so any may be tried."""
    sent = [
        each.publication for each in wiring.publications if each.agent.name in (finding.agent, finding.related[0].agent)
    ]
    topics = {each.topic for each in sent if finding.span in (each.payload_span, each.span)}
    return any(each.is_declared and each.payload and each.topic in topics for each in sent)


def _find_value_place(finding: Finding, wiring: Wiring) -> SourceSpan:
    """Return the place of the value: the finding's, or for a finding at a handler that of the related payload."""
    places = [where for agent in wiring.agents.values() for where, _ in _given_schemas(agent)]
    if finding.span in places:
        return finding.span
    other = finding.related[0]
    sent = [each.publication for each in wiring.publications if each.agent.name == other.agent]
    return take_single([each.payload_span for each in sent if each.span == other.span and each.payload_span])


def _find_value(symbol: EditedSymbol, span: SourceSpan, name: str, finding: Finding, wiring: Wiring) -> ast.expr:
    """Return the value of the key or argument `name` at a place; for the empty name, the whole expression there."""
    if not name:
        return symbol.expression_at(span)
    named = [each.value for each in _find_entries(symbol, span, finding) if each.name == name]
    return take_single(named or _find_positional_argument(symbol, span, name, wiring))


def _find_positional_argument(symbol: EditedSymbol, span: SourceSpan, name: str, wiring: Wiring) -> list[ast.expr]:
    """Return a list with the argument that the call at a place passes by position to this parameter; it may be empty."""
    calls = [call for agent in wiring.agents.values() for call in agent.calls if call.span == span]
    methods = [wiring.results.method(f"{call.agent}.{call.method}") for call in calls]
    expression = symbol.expression_at(span)
    positional = expression.args if isinstance(expression, ast.Call) and last_name(expression.func) != "call" else []
    names = [each.name for method in methods[:1] if method for each in method.parameters]
    return [value for parameter, value in zip(names, positional, strict=False) if parameter == name]


def _unwrap_value(value: ast.expr, name: str, symbol: EditedSymbol) -> Iterator[str]:
    """Yield the value unwrapped or converted, as source text: `seat` for `str(seat)` and `[seat]`, `3` for `"3"`, `"3"` for `3`.

    A part is yielded if it is called `name`, or if it has no name; for the empty name, if it is a variable.
    """
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
        if name in (_last_key_or_name(part), "") and (name or isinstance(part, ast.Name)):
            yield symbol.text_of(part)


def _last_key_or_name(expression: ast.expr) -> object:
    """Return the constant key of `record[key]`, or None if it is no constant; else the last name of the expression, or `""`."""
    if isinstance(expression, ast.Subscript):
        return getattr(expression.slice, "value", None)
    return last_name(expression)


def _write_read_of_wanted_name(value: ast.expr, name: str, symbol: EditedSymbol) -> Iterator[str]:
    """Yield source text that reads the field `name` of the same record: `order["total"]` for the value `order["id"]`."""
    if isinstance(value, ast.Attribute) and name:
        yield f"{symbol.text_of(value.value)}.{name}"
    elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) and name:
        written = symbol.text_of(value.slice)
        yield f"{symbol.text_of(value.value)}[{written.replace(str(value.slice.value), name)}]"


def replace_value(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB004, GB103, GB110: replace a value of the wrong type with the `value` of the variant."""
    name, value, span = finding.data["unfit"], finding.data["value"], _find_value_place(finding, edits.wiring)
    symbol = edits.at(span)
    symbol.replace(_find_value(symbol, span, name, finding, edits.wiring), value)
    what = f" as {name!r}" if name else ""
    return Remedy(f"Give {value}{what}{edits.where}", "align_schema")
