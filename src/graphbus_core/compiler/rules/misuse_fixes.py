"""Changes for what does nothing or fails when the graph runs: GB310 to GB323. Each follows from the code at the place alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from graphbus_core.compiler.reading.modules import absolute_name
from graphbus_core.compiler.rules.token_edits import EditedSymbol, Refused, Remedy, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import last_name
from graphbus_core.model.findings import Finding
from graphbus_core.model.topics import is_topic


def use_correctly(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB310: read a field of the payload by its key, and wait without stopping the other handlers."""
    symbol = edits.at(finding.span)
    node = symbol.expression_at(finding.span)
    if isinstance(node, ast.Attribute) and "key" in finding.data:
        written = f'{symbol.text_of(node.value)}["{node.attr}"]'
        symbol.replace(node, written)
        return Remedy(f"Read {written}{edits.where}", "fix_misuse")
    if not isinstance(node, ast.Call) or not isinstance(_above(symbol).get(node), ast.Expr):
        raise Refused("it is not known what to do instead")
    edits.add_import(symbol, "", "asyncio")
    symbol.replace(node.func, "await asyncio.sleep")
    return Remedy(f"Await asyncio.sleep{edits.where}", "fix_misuse")


def _above(symbol: EditedSymbol) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(symbol.node) for child in ast.iter_child_nodes(node)}


def name_topic(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB312: subscribe to the one published topic whose last words are those of the handler's name."""
    symbol = edits.at(finding.span)
    words = [word for word in symbol.function.name.lower().split("_") if word not in ("", "on", "handle")]
    topic = take_single([each for each in edits.wiring.topics if is_topic(each) and _ends_with(each, words)])
    node = symbol.expression_at(finding.span)
    if isinstance(node, ast.Call):
        symbol.insert_before_end(node, f'"{topic}"')
    else:
        symbol.insert_behind(node, f'("{topic}")')
    return Remedy(f"Subscribe {symbol.target} to {topic!r}", "align_topic")


def _ends_with(topic: str, words: list[str]) -> bool:
    spoken = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", topic)]
    return bool(words) and spoken[-len(words) :] == words


def unpack_topics(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB313: give several topics one by one."""
    symbol = edits.at(finding.span)
    node = symbol.expression_at(finding.span)
    if isinstance(node, ast.Name):
        symbol.replace(node, f"*{node.id}")
    else:
        symbol.replace(node, symbol.text_of(node)[1:-1].strip().rstrip(","))
    return Remedy(f"Give the topics of {symbol.target} one by one", "fix_misuse")


def await_answer(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB314: await an answer, or leave `await` out where there is none."""
    symbol, instead = edits.at(finding.span), finding.data["instead"]
    node = symbol.expression_at(finding.span)
    if "await" in instead:
        written = symbol.text_of(node)
        symbol.replace(node, f"(await {written})" if instead.startswith("(") else f"await {written}")
    else:
        waiting = next(each for each in ast.walk(symbol.node) if isinstance(each, ast.Await) and each.value is node)
        symbol.replace(waiting, symbol.text_of(node))
    return Remedy(f"Write `{instead}`{edits.where}", "fix_misuse")


def make_without_arguments(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB315: take a bus away that nothing uses, and let what may be None be None."""
    symbol, needed = edits.at(finding.span), finding.data["needed"].split()
    arguments = [*symbol.function.args.args, *symbol.function.args.kwonlyargs]
    for before, argument in pairwise(arguments):
        if argument.arg in needed and "None" in (symbol.text_of(argument.annotation) if argument.annotation else ""):
            symbol.insert_behind(argument, " = None")
        elif argument.arg in needed:
            _pass_no_longer(argument.arg, symbol)
            symbol.remove(argument, behind=before)
    return Remedy(f"Let {finding.agent} be made without arguments", "fix_misuse")


def _pass_no_longer(name: str, symbol: EditedSymbol) -> None:
    """Take a name out of `super().__init__(...)`; it may be used for nothing else."""
    above = _above(symbol)
    for use in (node for node in above if isinstance(node, ast.Name) and node.id == name):
        call = above[use]
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "super().__init__" or len(call.args) != 1:
            raise Refused("the parameter is used")
        symbol.replace(call, "super().__init__()")


def start_later(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB316: publish in `on_start` what needs nothing that only the constructor knows."""
    symbol = edits.at(finding.span)
    body = symbol.function.body
    statement = take_single([each for each in body if isinstance(each, ast.Expr) and _holds(each, finding)])
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
    starting = [each for each in owner.body if getattr(each, "name", "") == "on_start"]
    written = symbol.text_of(statement)
    symbol.remove(statement, behind=body[body.index(statement) - 1])
    if starting:
        edits.at_node(finding.span.path, starting[0]).insert_last(written)
    elif list(map(last_name, owner.bases)) == ["GraphBusNode"]:
        step = " " * symbol.node.col_offset
        lines = ["", "", f"{step}def on_start(self) -> None:", f"{step}{step}{written}"]
        edits.at(edits.wiring.agents[finding.agent].name_span).insert_behind(symbol.function, "\n".join(lines))
    else:
        raise Refused("a base may have another on_start")
    return Remedy(f"Publish in {finding.agent}.on_start", "fix_misuse")


def _holds(statement: ast.stmt, finding: Finding) -> bool:
    return (statement.lineno, statement.col_offset) == (finding.span.line, finding.span.column)


def order_decorators(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB317: put the decorator right above the `def`, below `@classmethod`."""
    symbol = edits.at(finding.span)
    decorators = symbol.function.decorator_list
    moved = next(each for each in decorators if symbol.expression_at(finding.span) is each)
    for place, meant in zip(decorators, [*(each for each in decorators if each is not moved), moved], strict=True):
        if place is not meant:
            symbol.replace(place, symbol.text_of(meant))
    return Remedy(f"Put @{finding.data['moved']} right above {symbol.target}", "fix_misuse")


def decorate_override(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB318: decorate an override like the method of the base."""
    symbol, decorator = edits.at(finding.span), finding.data["decorator"]
    edits.add_import(symbol, "graphbus_core", decorator.partition("(")[0])
    symbol.insert_line_above(f"@{decorator}")
    return Remedy(f"Decorate {symbol.target} like the method that it overrides", "fix_misuse")


def take_fields_alone(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB321: leave out the event, which nothing uses."""
    symbol, event = edits.at(finding.span), finding.data["event"]
    if any(isinstance(node, ast.Name) and node.id == event for node in ast.walk(symbol.node)):
        raise Refused("the event is used")
    pairs = pairwise(symbol.function.args.args)
    before, argument = take_single([(before, argument) for before, argument in pairs if argument.arg == event])
    symbol.remove(argument, behind=before)
    return Remedy(f"Take the fields alone in {symbol.target}", "fix_misuse")


def import_class(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB323: import the one class of the project that has the name."""
    symbol, name = edits.at(finding.span), finding.data["name"]
    module = take_single(list(_modules_with(name, edits)))
    home = edits.project.source(finding.span.path)
    package = home.module if home.path.endswith("__init__.py") else home.module.rpartition(".")[0]
    imports = [node for node in symbol.tree.body if isinstance(node, ast.ImportFrom)]
    written = [
        "." * node.level + (node.module or "")
        for node in imports
        if absolute_name(node.module or "", node.level, package) == module
    ]
    edits.add_import(symbol, (written or [module])[0], name)
    return Remedy(f"Import {name}{edits.where}", "fix_misuse")


def _modules_with(name: str, edits: TokenEdits) -> Iterator[str]:
    for file in edits.project.index.files:
        if f"class {name}".encode() in edits.project.source(file.path).data:
            body = edits.tree(file.path).body
            yield from (file.module for node in body if isinstance(node, ast.ClassDef) and node.name == name)
