"""Fixes for code that has no effect or fails when the graph runs: GB310, GB312 to GB324.

Each public function makes the edits for one finding; it raises `Refused` if they cannot be made with certainty.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from graphbus_core.compiler.reading.modules import Bindings, absolute_name
from graphbus_core.compiler.rules.renames import parameter_of, rename_parameter
from graphbus_core.compiler.rules.token_edits import EditedSymbol, Refused, Remedy, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import last_name
from graphbus_core.model.agent import EVENT_NAMES, PAYLOAD_NAMES
from graphbus_core.model.findings import Finding
from graphbus_core.model.topics import is_topic
from graphbus_core.schema.compatibility import misfit_reason


def fix_event_use(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB310: correct a wrong use of an event. The data of the finding says which one.

    parameter: a parameter gets the event by mistake, so it is renamed to a field of the payload
    key: an attribute is read of the event, so the field of that name is read instead
    blocking: `time.sleep` is called, so `asyncio.sleep` is awaited instead
    """
    symbol = edits.at(finding.span)
    if "parameter" in finding.data:
        return _rename_parameter_to_field(finding, symbol, edits)
    node = symbol.expression_at(finding.span)
    if isinstance(node, ast.Attribute) and "key" in finding.data:
        written = f'{symbol.text_of(node.value)}["{node.attr}"]'
        symbol.replace(node, written)
        return Remedy(f"Read {written}{edits.where}", "fix_misuse")
    if not isinstance(node, ast.Call) or not isinstance(_map_parents(symbol).get(node), ast.Expr):
        raise Refused("it is not known what to do instead")
    edits.add_import(symbol, "", "asyncio")
    symbol.replace(node.func, "await asyncio.sleep")
    return Remedy(f"Await asyncio.sleep{edits.where}", "fix_misuse")


def _rename_parameter_to_field(finding: Finding, symbol: EditedSymbol, edits: TokenEdits) -> Remedy:
    """Rename a parameter that gets the event, but has another type, to the only field of the payload with that type.

    If that field is named like a parameter for the event or payload, the parameter is annotated as `Event` instead.
    """
    old = finding.data["parameter"]
    agent = edits.wiring.agents[finding.agent]
    method = take_single([each for each in agent.methods if any(one.span == finding.span for one in each.parameters)])
    wanted = take_single([each.type for each in method.parameters if each.name == old])
    topics = [each.topic for each in agent.subscriptions if each.method == method.name]
    payloads = [each.publication.payload for topic in topics for each in edits.wiring.publishers(topic)]
    fields = [field for payload in payloads if payload for field in payload.fields]
    new = take_single(sorted({field.name for field in fields if misfit_reason(wanted, field.type) is None}))
    if new in EVENT_NAMES | PAYLOAD_NAMES:
        return _annotate_as_event(symbol, old, new, edits)
    rename_parameter(symbol, old, new, edits.project)
    return Remedy(f"Rename the parameter {old!r} of {symbol.target} to {new!r}", "align_schema")


def _annotate_as_event(symbol: EditedSymbol, event: str, field: str, edits: TokenEdits) -> Remedy:
    """Annotate the parameter `event` as `Event`, and replace each use of it in the body by a read of the payload's field."""
    annotation = parameter_of(symbol.function, event).annotation
    if annotation is None:
        raise Refused("it is not annotated")
    edits.add_import(symbol, "graphbus_core", "Event")
    symbol.replace(annotation, "Event")
    for node in (inner for statement in symbol.function.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Name) and node.id == event:
            if not isinstance(node.ctx, ast.Load):
                raise Refused("the name is bound again")
            symbol.replace(node, f'{event}["{field}"]')
    return Remedy(f"Take {event!r} of {symbol.target} as the event", "fix_misuse")


def _map_parents(symbol: EditedSymbol) -> dict[ast.AST, ast.AST]:
    """Return node -> its parent, for the nodes of a method or class."""
    return {child: node for node in ast.walk(symbol.node) for child in ast.iter_child_nodes(node)}


def add_topic(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB312: subscribe to the only published topic that ends with the words of the handler's name."""
    symbol = edits.at(finding.span)
    words = [word for word in symbol.function.name.lower().split("_") if word not in ("", "on", "handle")]
    topic = take_single([each for each in edits.wiring.topics if is_topic(each) and _ends_with(each, words)])
    node = symbol.expression_at(finding.span)
    if isinstance(node, ast.Call):
        symbol.insert_before_end(node, f'"{topic}"')
    else:
        symbol.insert_after(node, f'("{topic}")')
    return Remedy(f"Subscribe {symbol.target} to {topic!r}", "align_topic")


def correct_topic_name(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB322: correct the name of a Topic, which begins with a slash and does not end with one."""
    symbol, new = edits.at(finding.span), finding.data["new"]
    symbol.replace_text(symbol.expression_at(finding.span), finding.data["old"], new)
    return Remedy(f"Name the Topic {new!r}{edits.where}", "align_topic", is_safe=True)


def import_right_name(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB319: import the right name of GraphBus, and replace the wrong name wherever the file uses it."""
    symbol, new = edits.at(finding.span), finding.data["name"]
    statement = symbol.node
    if not isinstance(statement, ast.ImportFrom) or len(Bindings(symbol.tree.body).rebound):
        raise Refused("it is not imported by a statement of its own")  # or a name of the file is bound twice
    (alias,) = [each for each in statement.names if each.name == finding.data["old"]]
    if finding.data["home"] == (statement.module or ""):
        symbol.replace_name(alias, alias.name, new)
    elif len(statement.names) == 1:
        symbol.replace(statement, f"from graphbus_core import {new}" + (f" as {alias.asname}" if alias.asname else ""))
    else:
        raise Refused("other names are imported from there as well")
    uses = [each for each in ast.walk(symbol.tree) if isinstance(each, ast.Name) and each.id == alias.name]
    for use in uses if not alias.asname else ():
        edits.at_node(symbol.path, use).replace(use, new)
    return Remedy(f"Import {new}{edits.where}", "fix_misuse", is_safe=True)


def _ends_with(topic: str, words: list[str]) -> bool:
    """Return whether a topic ends with these words, which are in lower case: `/Order/WasPlaced` ends with `["was", "placed"]`."""
    topic_words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", topic)]
    return bool(words) and topic_words[-len(words) :] == words


def unpack_topics(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB313: unpack a list of topics into separate arguments, or correct the key under which a topic is looked up."""
    symbol = edits.at(finding.span)
    node = symbol.expression_at(finding.span)
    if "old" in finding.data and isinstance(node, ast.Subscript):
        symbol.replace_text(node.slice, finding.data["old"], finding.data["new"])
        return Remedy(f"Look up {finding.data['new']!r} instead of {finding.data['old']!r}{edits.where}", "align_topic")
    if isinstance(node, ast.Name):
        symbol.replace(node, f"*{node.id}")
    else:
        symbol.replace(node, symbol.text_of(node)[1:-1].strip().rstrip(","))
    return Remedy(f"Give the topics of {symbol.target} one by one", "fix_misuse")


def await_answer(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB314: await an answer, or remove the `await` before a call that returns None; `instead` in the data says which."""
    symbol, instead = edits.at(finding.span), finding.data["instead"]
    node = symbol.expression_at(finding.span)
    if "await" in instead:
        written = symbol.text_of(node)
        symbol.replace(node, f"(await {written})" if instead.startswith("(") else f"await {written}")
    else:
        waiting = next(each for each in ast.walk(symbol.node) if isinstance(each, ast.Await) and each.value is node)
        symbol.replace(waiting, symbol.text_of(node))
    return Remedy(f"Write `{instead}`{edits.where}", "fix_misuse")


def remove_needed_arguments(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB315: give parameters that may be None this default, and remove others, which may only be passed to `super().__init__`."""
    symbol, needed = edits.at(finding.span), finding.data["needed"].split()
    arguments = [*symbol.function.args.args, *symbol.function.args.kwonlyargs]
    for before, argument in pairwise(arguments):
        if argument.arg in needed and "None" in (symbol.text_of(argument.annotation) if argument.annotation else ""):
            symbol.insert_after(argument, " = None")
        elif argument.arg in needed:
            _remove_from_super_call(argument.arg, symbol)
            symbol.remove(argument, previous=before)
    return Remedy(f"Let {finding.agent} be made without arguments", "fix_misuse")


def _remove_from_super_call(name: str, symbol: EditedSymbol) -> None:
    """Replace `super().__init__(name)` by a call without arguments, for a parameter `name`; Refused if it has any other use."""
    parents = _map_parents(symbol)
    for use in (node for node in parents if isinstance(node, ast.Name) and node.id == name):
        call = parents[use]
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "super().__init__" or len(call.args) != 1:
            raise Refused("the parameter is used")
        symbol.replace(call, "super().__init__()")


def move_to_on_start(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB316: move a statement from the constructor to `on_start`; refused if it uses local names or a base may have another."""
    symbol = edits.at(finding.span)
    body = symbol.function.body
    place = finding.span.line, finding.span.column
    statements = [each for each in body if isinstance(each, ast.Expr)]
    statement = take_single([each for each in statements if (each.lineno, each.col_offset) == place])
    local = {each.arg for each in ast.walk(symbol.function.args) if isinstance(each, ast.arg)}
    local |= {
        each.id for each in ast.walk(symbol.node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    used = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
    owner = symbol.owner
    if (
        not isinstance(owner, ast.ClassDef)
        or body[0] is statement
        or used & (local - {symbol.function.args.args[0].arg})
    ):
        raise Refused("it needs what only the constructor knows")
    on_start_methods = [each for each in owner.body if getattr(each, "name", "") == "on_start"]
    written = symbol.text_of(statement)
    symbol.remove(statement, previous=body[body.index(statement) - 1])
    if on_start_methods:
        edits.at_node(finding.span.path, on_start_methods[0]).insert_last(written)
    elif list(map(last_name, owner.bases)) == ["GraphBusNode"]:
        step = " " * symbol.node.col_offset
        lines = ["", "", f"{step}def on_start(self) -> None:", f"{step}{step}{written}"]
        edits.at(edits.wiring.agents[finding.agent].name_span).insert_after(symbol.function, "\n".join(lines))
    else:
        raise Refused("a base may have another on_start")
    return Remedy(f"Publish in {finding.agent}.on_start", "fix_misuse")


def order_decorators(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB317: move the decorator below the other ones, right above the `def`."""
    symbol = edits.at(finding.span)
    decorators = symbol.function.decorator_list
    moved = next(each for each in decorators if symbol.expression_at(finding.span) is each)
    for place, decorator in zip(decorators, [*(each for each in decorators if each is not moved), moved], strict=True):
        if place is not decorator:
            symbol.replace(place, symbol.text_of(decorator))
    return Remedy(f"Put @{finding.data['moved']} right above {symbol.target}", "fix_misuse")


def decorate_override(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB318: give an override the decorator of the method that it overrides."""
    symbol, decorator = edits.at(finding.span), finding.data["decorator"]
    edits.add_import(symbol, "graphbus_core", decorator.partition("(")[0])
    symbol.insert_line_above(f"@{decorator}")
    return Remedy(f"Decorate {symbol.target} like the method that it overrides", "fix_misuse")


def remove_event_parameter(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB321: remove the event parameter; refused if the body uses it."""
    symbol, event = edits.at(finding.span), finding.data["event"]
    if any(isinstance(node, ast.Name) and node.id == event for node in ast.walk(symbol.node)):
        raise Refused("the event is used")
    pairs = pairwise(symbol.function.args.args)
    before, argument = take_single([(before, argument) for before, argument in pairs if argument.arg == event])
    symbol.remove(argument, previous=before)
    return Remedy(f"Take the fields alone in {symbol.target}", "fix_misuse")


def fix_agent_by_name(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB324: write `self.call("Agent", "method", ...)`; if there are positional arguments, pass the class to `self.agent`."""
    symbol, name = edits.at(finding.span), finding.data["name"]
    node, parents = symbol.expression_at(finding.span), _map_parents(symbol)
    agent = parents[node]
    method = parents[agent]
    call = parents.get(method)
    if isinstance(method, ast.Attribute) and isinstance(call, ast.Call) and call.func is method and not call.args:
        owner = ast.unparse(agent).partition(".agent(")[0]
        arguments = ", ".join([f'"{name}", "{method.attr}"', *map(symbol.text_of, call.keywords)])
        symbol.replace(call, f"{owner}.call({arguments})")
    else:
        _import_class(name, symbol, edits)
        symbol.replace(node, name)
    return Remedy(f"Name {name} as a run accepts it{edits.where}", "fix_misuse")


def import_class(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB323: import the only class of the project that has the name."""
    _import_class(finding.data["name"], edits.at(finding.span), edits)
    return Remedy(f"Import {finding.data['name']}{edits.where}", "fix_misuse")


def _import_class(name: str, symbol: EditedSymbol, edits: TokenEdits) -> None:
    """Import the only class of the project that has a name, from its module as other imports of the file write it."""
    module = take_single(list(_modules_defining(name, edits)))
    home = symbol.source
    package = home.module if home.path.endswith("__init__.py") else home.module.rpartition(".")[0]
    imports = [node for node in symbol.tree.body if isinstance(node, ast.ImportFrom)]
    written = [
        "." * node.level + (node.module or "")
        for node in imports
        if absolute_name(node.module or "", node.level, package) == module
    ]
    edits.add_import(symbol, (written or [module])[0], name)


def _modules_defining(name: str, edits: TokenEdits) -> Iterator[str]:
    """Yield the dotted name of the module of each class with this name at the top level of a file of the project."""
    for file in edits.project.index.files:
        if f"class {name}".encode() in edits.project.source(file.path).data:
            body = edits.tree(file.path).body
            yield from (file.module for node in body if isinstance(node, ast.ClassDef) and node.name == name)
