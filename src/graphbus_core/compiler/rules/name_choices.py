"""Chooses the name that should replace a wrong name, if no known name is similar to the wrong one.

`choose_names` yields variants of a finding: copies whose data has the wrong name as `old` and the chosen one as `new`, for a
fixer that renames. They come in tiers; `fixes.make_fix` tries a tier only if no change of the tiers before it works.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from msgspec.structs import replace

from graphbus_core.compiler.rules.token_edits import EditedSymbol, TokenEdits
from graphbus_core.compiler.rules.wiring import Wiring, last_name
from graphbus_core.model.findings import Finding
from graphbus_core.schema.types import Type

_KIND_WORDS = frozenset({"id", "is", "has", "s", "ms", "min", "h", "eur", "usd", "bytes"})
_SUMMARIZING = frozenset({"all", "any", "bool", "len", "max", "min", "sum", "type"})
"""Builtins whose result is another quantity than the argument, so that the name of the result says nothing about the argument."""


def choose_names(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Yield tiers of variants of a finding about a name that the other end does not have, the strongest evidence first.

    1. the choices with the name of the variable, key or argument to which the value goes
    2. the choices with the same words as the wrong name, except for words such as `id` that say what kind of value it is
    3. those of `_choose_by_type`
    4. those of `_choose_unused`

    Nothing is yielded if parts of the wrong name are read, since it then seems to stand for the whole payload.
    """
    old = next((finding.data[key] for key in ("old", "missing", "called") if key in finding.data), "")
    choices = finding.data["choices"].split()
    symbol = edits.at(finding.span)
    if _has_part_read(old, symbol):
        return
    node = next((each for each in symbol.nodes_at(finding.span) if isinstance(each, ast.expr)), None)
    destinations = {_words(name) for name in _find_destinations(symbol, node)} if node else set()
    tiers = [
        [choice for choice in choices if _words(choice) in destinations],
        [choice for choice in choices if _words_without_kind(choice) == _words_without_kind(old)],
        list(_choose_by_type(finding, old, symbol, edits.wiring)),
        _choose_unused(finding, old, symbol, edits.wiring),
    ]
    data = {key: value for key, value in finding.data.items() if key != "missing"} | {"old": old}
    yield from ([replace(finding, data={**data, "new": choice}) for choice in tier] for tier in tiers)


def _choose_by_type(finding: Finding, old: str, symbol: EditedSymbol, wiring: Wiring) -> Iterator[str]:
    """Yield the choices whose type fits the use of the wrong name `old`.

    If keys of the items of `old` are read, these are the lists of records with those keys. Otherwise, if the value of `old` is
    formatted as a number and no field in the project has that name, these are the numbers that the agent does not use yet.
    """
    # `rows[].id` for the key `id` of an item of `rows`; `.?` marks a read that may not happen
    below = [
        each for each in finding.data.get("below", "").split() if each.startswith(f"{old}[].") and ".?" not in each
    ]
    parts = {each.removeprefix(f"{old}[].") for each in below}
    used = finding.data["used"].split()
    types = _find_types_of_choices(finding, wiring)
    is_formatted = old not in _collect_known_names(wiring, finding) and _is_formatted_as_number(finding, symbol, old)
    for choice in (each for each in finding.data["choices"].split() if each in types):
        is_number = types[choice].kind in ("int", "float") and choice not in used
        if _has_items_with(types[choice], parts) if parts else is_number and is_formatted:
            yield choice


def _choose_unused(finding: Finding, old: str, symbol: EditedSymbol, wiring: Wiring) -> list[str]:
    """Return the choices that the agent does not use yet, in two cases in which nothing else explains the wrong name `old`.

    For GB110: the wrong name is an annotated parameter, and no field in the project has that name. For GB111: it is the only key
    that is read from the result, and the method returns exactly what it declares. In any other case the list is empty.
    """
    choices, used = finding.data["choices"].split(), finding.data["used"].split()
    arguments = [node for node in ast.walk(symbol.node) if isinstance(node, ast.arg) and node.annotation]
    if finding.code == "GB110" and old in {each.arg for each in arguments} - _collect_known_names(wiring, finding):
        return [choice for choice in choices if choice not in used]
    return choices if finding.code == "GB111" and not used and _returns_declared_keys(finding, wiring) else []


def _returns_declared_keys(finding: Finding, wiring: Wiring) -> bool:
    """Return whether the method that the finding names always returns exactly the keys that its output schema declares."""
    method = wiring.results.method(finding.data["of"])
    if method is None or method.output_schema is None or not method.returned:
        return False
    shapes = [each.shape for each in method.returned]
    return all(shape and not shape.is_open and shape.names == method.output_schema.names for shape in shapes)


def _find_types_of_choices(finding: Finding, wiring: Wiring) -> dict[str, Type]:
    """Return name -> type for the keys of the result that a finding is about, or of the publications to which it refers."""
    if "of" in finding.data:
        return {field.name: field.type for field in wiring.results.type_of(finding.data["of"]).fields}
    spans = [each.span for each in finding.related]
    sent = [each.publication.payload for each in wiring.publications if each.publication.span in spans]
    return {field.name: field.type for payload in sent if payload for field in payload.fields}


def _has_items_with(choice: Type, keys: set[str]) -> bool:
    """Return whether a type is a list of records that have all of these keys."""
    return choice.kind == "list" and any(keys <= {field.name for field in item.fields} for item in choice.args)


def _is_formatted_as_number(finding: Finding, symbol: EditedSymbol, name: str) -> bool:
    """Return whether `log("%d", value)` or the like formats the value at the finding, or a variable `name`, as a number."""
    nodes = [*symbol.nodes_at(finding.span)]
    values = [*nodes, *(each for each in ast.walk(symbol.node) if getattr(each, "slice", None) in nodes)]
    for call in (each for each in ast.walk(symbol.node) if isinstance(each, ast.Call) and len(each.args) > 1):
        template = getattr(call.args[0], "value", None)
        places = re.findall(r"%[\d.]*[a-z]", template) if isinstance(template, str) else []
        for place, value in zip(places, call.args[1:], strict=False):
            if place[-1] in "df" and (value in values or getattr(value, "id", "") == name):
                return True
    return False


def _has_part_read(name: str, symbol: EditedSymbol) -> bool:
    """Return whether an attribute or item of a variable with this name is read: it then holds a whole payload, not a field."""
    nodes = ast.walk(symbol.node)
    return any(isinstance(node, ast.Attribute | ast.Subscript) and last_name(node.value) == name for node in nodes)


def _words_without_kind(name: str) -> tuple[str, ...]:
    """Return the words of a name without `is`, `id` and the like: `("free",)` for `is_free`; the name if no word is left."""
    return tuple(word for word in _words(name) if word not in _KIND_WORDS) or (name,)


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case: `("order", "id")` for `orderId` and for `order_id`."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name))


def _collect_known_names(wiring: Wiring, finding: Finding) -> set[str]:
    """Return the names of all fields in the project, but not those that only parameters of the finding's agent have."""
    names: set[str] = set()
    for agent in wiring.agents.values():
        schemas = [each.payload for each in agent.publications]
        schemas += [schema for each in agent.methods for schema in (each.input_schema, each.output_schema)]
        schemas += [each.arguments for each in agent.calls]
        names.update(name for schema in schemas if schema for name in schema.names)
        if agent.name != finding.agent:
            names.update(field.name for each in agent.subscriptions for field in each.fields)
    return names


def _find_destinations(symbol: EditedSymbol, node: ast.AST) -> Iterator[str]:
    """Yield the names of the keys, arguments, variables and attributes to which the value of a node goes, perhaps converted."""
    above = {child: parent for parent in ast.walk(symbol.node) for child in ast.iter_child_nodes(parent)}
    while (parent := above.get(node)) is not None:
        if isinstance(parent, ast.Dict):
            keys = [key for key, value in zip(parent.keys, parent.values, strict=True) if value is node]
            yield from (str(key.value) for key in keys if isinstance(key, ast.Constant))
        elif isinstance(parent, ast.keyword):
            yield parent.arg or ""
        elif isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            yield from filter(None, map(last_name, targets))
        if not _keeps_quantity(node, parent):
            return
        node = parent


def _keeps_quantity(node: ast.AST, parent: ast.AST) -> bool:
    """Return whether the parent has the value of `node`, perhaps converted (`float(total)`), or is the item at the key `node`."""
    if isinstance(parent, ast.Call):
        name = last_name(parent.func)
        return node in parent.args[:1] and name not in _SUMMARIZING and (len(parent.args) == 1 or name == "round")
    is_key = isinstance(parent, ast.Subscript) and parent.slice is node
    return is_key or isinstance(parent, ast.Await | ast.NamedExpr)
