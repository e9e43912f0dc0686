"""Which of several names is meant where none is nearly the same as the one that is written.

`choose_names` gives variants of a finding whose data names both ends, so that a mender can rename one of them. They come in
tiers; `fixes.make_fix` only tries a tier when no tier before it holds a change that works.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from msgspec.structs import replace

from graphbus_core.compiler.rules.token_edits import EditedSymbol, TokenEdits
from graphbus_core.compiler.rules.wiring import Wiring, last_name
from graphbus_core.model.findings import Finding

_KINDS = frozenset({"id", "is", "has", "s", "ms", "min", "h", "eur", "usd", "bytes"})
_COUNTING = frozenset({"all", "any", "bool", "len", "max", "min", "sum", "type"})
"""What these make of a value is another thing."""


def choose_names(finding: Finding, edits: TokenEdits) -> Iterator[list[Finding]]:
    """Give variants of a finding about a name that the other end does not have, the strongest evidence first.

    ProjectFacts: the value gets the very name where it goes to; the names have the same words but for those that say what kind of
    value it is; and a typed parameter, whose name nothing else in the project has, stands for the one key that is not taken.
    """
    old = next((finding.data[key] for key in ("old", "missing", "called") if key in finding.data), "")
    choices = finding.data["choices"].split()
    symbol = edits.at(finding.span)
    if _is_read_into(old, symbol):
        return
    node = next((each for each in symbol.nodes_at(finding.span) if isinstance(each, ast.expr)), None)
    goals = {_words(goal) for goal in _destinations_of(symbol, node)} if node else set()
    tiers = [
        [choice for choice in choices if _words(choice) in goals],
        [choice for choice in choices if _core(choice) == _core(old)],
    ]
    if finding.code == "GB110" and _is_annotated(old, symbol) and old not in _known_names(edits.wiring, finding):
        tiers.append([choice for choice in choices if choice not in finding.data["used"].split()])
    yield from ([replace(finding, data=_renamed(finding, old, choice)) for choice in tier] for tier in tiers)


def _is_read_into(name: str, symbol: EditedSymbol) -> bool:
    """Tell whether a parameter is taken for a whole payload: something is read of it."""
    nodes = ast.walk(symbol.node)
    return any(isinstance(node, ast.Attribute | ast.Subscript) and last_name(node.value) == name for node in nodes)


def _is_annotated(name: str, symbol: EditedSymbol) -> bool:
    arguments = [node for node in ast.walk(symbol.node) if isinstance(node, ast.arg)]
    return any(each.arg == name and each.annotation is not None for each in arguments)


def _renamed(finding: Finding, old: str, new: str) -> dict[str, str]:
    return {**{key: value for key, value in finding.data.items() if key != "missing"}, "old": old, "new": new}


def _core(name: str) -> tuple[str, ...]:
    """Give the words of a name without those that say what kind of value it is: `free` of `is_free`, `show` of `show_id`."""
    return tuple(word for word in _words(name) if word not in _KINDS) or (name,)


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name))


def _known_names(wiring: Wiring, finding: Finding) -> set[str]:
    """Give the names of all fields in the project, but for those that the agent of the finding reads or takes."""
    names: set[str] = set()
    for agent in wiring.agents.values():
        schemas = [each.payload for each in agent.publications]
        schemas += [schema for each in agent.methods for schema in (each.input_schema, each.output_schema)]
        schemas += [each.arguments for each in agent.calls]
        names.update(name for schema in schemas if schema for name in schema.names)
        if agent.name != finding.agent:
            names.update(field.name for each in agent.subscriptions for field in each.fields)
    return names


def _destinations_of(symbol: EditedSymbol, node: ast.AST) -> Iterator[str]:
    """Give the names that a value gets: the key, argument, variable or attribute that it becomes, also by a conversion."""
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
        if not _is_converted(node, parent):
            return
        node = parent


def _is_converted(node: ast.AST, parent: ast.AST) -> bool:
    """Tell whether a value keeps its name in what is made of it: `float(order["total"])`, `_shown(balance)`, `await …`."""
    if isinstance(parent, ast.Call):
        name = last_name(parent.func)
        return node in parent.args[:1] and name not in _COUNTING and (len(parent.args) == 1 or name == "round")
    is_key = isinstance(parent, ast.Subscript) and parent.slice is node
    return is_key or isinstance(parent, ast.Await | ast.NamedExpr)
