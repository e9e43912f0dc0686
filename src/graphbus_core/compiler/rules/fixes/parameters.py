"""GB101, GB102, GB110: parameters, the fields of input schemas, and the names that they share."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from graphbus_core.compiler.reading.syntax import type_parameters
from graphbus_core.compiler.rules.evidence import Evidence, trees_with
from graphbus_core.compiler.rules.fixes.names import names_method, others
from graphbus_core.compiler.rules.fixes.rewrite import Function, Refused, Symbol
from graphbus_core.compiler.rules.wiring import Wiring
from graphbus_core.model.agent import EVENT_NAMES, PAYLOAD_NAMES, AgentDefinition, Call, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding, Fix

_REFLECTING = frozenset({"locals", "vars", "eval", "exec", "globals"})


def add_or_rename_parameter(finding: Finding, evidence: Evidence) -> Fix:
    """GB101: give the parameter the name of the field, or add a parameter for it."""
    field, parameter = finding.data["field"], finding.data["parameter"]
    symbol = Symbol.at(evidence, finding.span)
    if parameter:
        _refuse_if_passed_by_name(symbol, parameter, evidence)
        rename_parameter(symbol, parameter, field)
        title = f"Rename the parameter {parameter!r} of {symbol.target} to {field!r}"
    else:
        _add_parameter(symbol, field, is_required=finding.data["required"] == "True")
        title = f"Let {symbol.target} take {field!r}"
    return _fix(title, symbol, finding, evidence)


def add_field(finding: Finding, evidence: Evidence) -> Fix:
    """GB102: declare the parameter in the input schema."""
    name = finding.data["parameter"]
    symbol = Symbol.at(evidence, finding.span)
    argument = argument_of(symbol.function, name)
    kind = symbol.text.of(argument.annotation) if argument.annotation else "object"
    if isinstance(argument.annotation, ast.Constant):
        raise Refused("the annotation is written as text")
    if argument.annotation and type_parameters(symbol.function) & _names_in(argument.annotation):
        raise Refused("the decorator does not know the types of the signature")
    display = schema_display(symbol.function, "input_schema", 0)
    quote = "'" if display.keys and display.keys[0] and symbol.text.of(display.keys[0])[:1] == "'" else '"'
    _add_entry(symbol, display, f"{quote}{name}{quote}: {kind}")
    return _fix(f"Declare {name!r} in the input_schema of {symbol.target}", symbol, finding, evidence)


def rename_to_producers_name(finding: Finding, evidence: Evidence) -> Fix:
    """GB110: let the consumer's parameter bear the name that the producer uses."""
    old, new = finding.data["old"], finding.data["new"]
    agent, method = _consumer(finding, evidence)
    if any(call.arguments.get(old) for call in _calls_of(agent, method, evidence)):
        return _rename_argument(finding, evidence)
    symbol = Symbol.at(evidence, _inside(method))
    is_handler = any(subscription.method == method.name for subscription in agent.subscriptions)
    if is_handler and len(method.parameters) < 3 and new in EVENT_NAMES | PAYLOAD_NAMES:
        raise Refused("the handler would be called with something else")
    _refuse_if_passed_by_name(symbol, old, evidence)
    rename_parameter(symbol, old, new)
    if method.has_schema:
        _rename_field(symbol, old, new)
    title = f"Rename the parameter {old!r} of {symbol.target} to {new!r}"
    return _fix(title, symbol, finding, evidence)


def _fix(title: str, symbol: Symbol, finding: Finding, evidence: Evidence) -> Fix:
    owners = [
        each.name for each in evidence.definitions if each.path == symbol.text.source.path and _holds(each, symbol)
    ]
    neighbours = [name for owner in [finding.agent, *owners] for name in Wiring(evidence).neighbours(owner)]
    named = [related.agent for related in finding.related]
    return Fix(
        title=title,
        intent="align_schema",
        changes=(symbol.change(),),
        affects=others([*owners, *neighbours, *named], finding.agent),
    )


def _holds(agent: AgentDefinition, symbol: Symbol) -> bool:
    return agent.name == symbol.target.split(".")[-2 if "." in symbol.target else -1]


def _inside(method: MethodSpec) -> SourceSpan:
    """A place that is surely in the method: its end, since its start may be that of a decorator."""
    span = method.span
    return SourceSpan(span.path, span.end_line, max(span.end_column - 1, 0), span.end_line, span.end_column)


def _consumer(finding: Finding, evidence: Evidence) -> tuple[AgentDefinition, MethodSpec]:
    agent = finding.data.get("agent", finding.agent)
    named = finding.data.get("method")
    for definition in evidence.definitions:
        for method in definition.methods if definition.name == agent else ():
            if method.name == named if named else any(item.span == finding.span for item in method.parameters):
                return definition, method
    raise Refused("the consumer is gone")


def _calls_of(agent: AgentDefinition, method: MethodSpec, evidence: Evidence) -> list[Call]:
    return [
        call
        for each in evidence.definitions
        for call in each.calls
        if call.agent == agent.name and call.method == method.name
    ]


def _rename_argument(finding: Finding, evidence: Evidence) -> Fix:
    """Others pass the argument under its declared name: then this call is the odd one."""
    declared, passed = finding.data["old"], finding.data["new"]
    symbol = Symbol.at(evidence, finding.span)
    place = (finding.span.line, finding.span.column, finding.span.end_line, finding.span.end_column)
    for node in ast.walk(symbol.node):
        if isinstance(node, ast.Call) and place == (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset):
            for keyword in node.keywords:
                if keyword.arg == passed:
                    start = symbol.text.start(keyword)
                    symbol.replace(start, start + len(passed.encode()), declared)
    title = f"Pass {declared!r} instead of {passed!r} in {symbol.target}"
    return _fix(title, symbol, finding, evidence)


# --- renaming ---------------------------------------------------------------------------------


def argument_of(function: Function, name: str) -> ast.arg:
    """Give the parameter of this name.

    Raises:
        Refused: There is none.
    """
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.arg == name:
            return argument
    raise Refused(f"there is no parameter {name}")


def rename_parameter(symbol: Symbol, old: str, new: str) -> None:
    """Rename a parameter and every use of it in the body.

    Raises:
        Refused: The new name is taken, the old one means several things, or the body looks names up as text.
    """
    function = symbol.function
    argument = argument_of(function, old)
    uses = list(_uses(function, old, new))
    start = symbol.text.start(argument)
    symbol.replace(start, start + len(old.encode()), new)
    for use in uses:
        if symbol.text.of(use) != old:
            raise Refused("a use is not where the tree says")
        symbol.replace_node(use, new)


def _uses(function: Function, old: str, new: str) -> Iterator[ast.Name]:
    inner_arguments: set[str] = {*type_parameters(function)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            if node.id == new or node.id in _REFLECTING:
                raise Refused(f"{node.id} is used in the body")
            if node.id == old and not any(node is part for part in _signature(function)):
                yield node
        elif isinstance(node, ast.arg) and node is not argument_of(function, old):
            inner_arguments.add(node.arg)
        elif isinstance(node, ast.Global | ast.Nonlocal) and {old, new} & set(node.names):
            raise Refused("the name is declared global")
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name in {old, new}:
            raise Refused("the name is bound again")
    if {old, new} & inner_arguments or _is_bound_in_comprehension(function, old):
        raise Refused("the name means something else as well")


def _signature(function: Function) -> set[ast.AST]:
    """Decorators, type parameters, annotations and defaults: names there belong to the surroundings."""
    outside: list[ast.AST] = [*function.decorator_list, *getattr(function, "type_params", ())]
    outside += [*filter(None, [function.returns]), *function.args.defaults, *filter(None, function.args.kw_defaults)]
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    outside += [argument.annotation for argument in arguments if argument.annotation]
    return {node for part in outside for node in ast.walk(part)}


def _is_bound_in_comprehension(function: Function, name: str) -> bool:
    return any(
        isinstance(target, ast.Name) and target.id == name
        for node in ast.walk(function)
        if isinstance(node, ast.comprehension)
        for target in ast.walk(node.target)
    )


def _rename_field(symbol: Symbol, old: str, new: str) -> None:
    display = schema_display(symbol.function, "input_schema", 0)
    for key in display.keys:
        if isinstance(key, ast.Constant) and key.value == old:
            symbol.replace_text(key, old, new)
            return
    raise Refused("the schema does not name the field")


def schema_display(function: Function, name: str, position: int) -> ast.Dict:
    """Give the dict display of a schema that stands in the decorator.

    Raises:
        Refused: It stands elsewhere.
    """
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and _last_word(decorator.func) == "schema_method":
            given = dict(enumerate(decorator.args))
            named = {keyword.arg: keyword.value for keyword in decorator.keywords}
            schema = named.get(name, given.get(position))
            if isinstance(schema, ast.Dict):
                return schema
    raise Refused("the schema does not stand in the decorator")


def _last_word(expression: ast.expr) -> str:
    return getattr(expression, "attr", "") or getattr(expression, "id", "")


def _refuse_if_passed_by_name(symbol: Symbol, parameter: str, evidence: Evidence) -> None:
    """Give up when something in the project calls the method, or may do so, and names the parameter, or may do so."""
    method = symbol.function.name
    for tree in trees_with([method], evidence):
        if tree is None:
            raise Refused("a file that may pass it cannot be read")
        if any(names_method(node, method) and _passes(node, parameter) for node in ast.walk(tree)):
            raise Refused("the parameter is passed by name")
    computed = [call for each in evidence.definitions for call in each.calls if not (call.agent and call.method)]
    if any(call.method in ("", method) and (call.has_unknown or call.arguments.get(parameter)) for call in computed):
        raise Refused("a computed call may pass the parameter")


def _passes(call: ast.AST, parameter: str) -> bool:
    return isinstance(call, ast.Call) and any(keyword.arg in (parameter, None) for keyword in call.keywords)


# --- adding ---------------------------------------------------------------------------------


def _add_parameter(symbol: Symbol, name: str, *, is_required: bool) -> None:
    function = symbol.function
    arguments = [*function.args.posonlyargs, *function.args.args]
    if not name.isidentifier() or not arguments or (is_required and function.args.defaults):
        raise Refused("there is no place for the parameter")
    if any(isinstance(node, ast.Name | ast.arg) and name in (getattr(node, "id", ""), getattr(node, "arg", ""))
           for node in ast.walk(function)):  # fmt: skip
        raise Refused("the name is taken")
    display = schema_display(function, "input_schema", 0)
    kind = next(
        value
        for key, value in zip(display.keys, display.values, strict=True)
        if isinstance(key, ast.Constant)
        and key.value == name
        and isinstance(value, ast.Name | ast.Subscript | ast.BinOp)
    )
    if symbol.type_parameters & _names_in(kind):
        raise Refused("the type means something else in the signature")
    last = function.args.defaults[-1] if function.args.defaults else arguments[-1]
    written = f", {name}: {symbol.text.of(kind)}"
    symbol.insert(symbol.text.end(last), written if is_required else f"{written} | None = None")


def _names_in(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _add_entry(symbol: Symbol, display: ast.Dict, entry: str) -> None:
    """Add an entry to a dict display, below the last one if each has its own line."""
    if not display.values:
        symbol.insert(symbol.text.start(display) + 1, entry)
        return
    last_key = display.keys[-1] or display.values[-1]
    line_start = symbol.text.offset(last_key.lineno, 0)
    before = symbol.text.utf8[line_start : symbol.text.start(last_key)].decode()
    separator = ", " if before.strip() else f",{symbol.newline}{before}"
    symbol.insert(symbol.text.end(display.values[-1]), separator + entry)
