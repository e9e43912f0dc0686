"""GB001, GB003, GB004, GB101 to GB103, GB110, GB120: one name for a topic, key, field or parameter at both ends."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from graphbus_core.compiler.reading.syntax import type_parameters
from graphbus_core.compiler.rules.contracts import Reporting, Shape, error_reports
from graphbus_core.compiler.rules.fixes.rewrite import Function, Refused, Symbol
from graphbus_core.compiler.rules.wiring import Evidence, Wiring, trees_with
from graphbus_core.model.agent import EVENT_NAMES, PAYLOAD_NAMES, AgentDefinition, Call, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding, Fix
from graphbus_core.schema.compatibility import is_disjoint


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
    _refuse_if_called(finding.agent, finding.data["method"], evidence)
    _rename_key(symbol, displays[0], old, new)
    return Fix(
        title=f"Return {new!r} instead of {old!r} in {symbol.target}",
        intent="align_schema",
        changes=(symbol.change(),),
        affects=others(Wiring(evidence).neighbours(finding.agent), finding.agent),
    )


def _refuse_if_called(agent: str, method: str, evidence: Evidence) -> None:
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
    return any(node not in dropped and _names_method(node, method) for node in ast.walk(tree))


def _names_method(node: ast.AST, method: str) -> bool:
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


_REFLECTING = frozenset({"locals", "vars", "eval", "exec", "globals"})


def add_or_rename_parameter(finding: Finding, evidence: Evidence) -> Fix:
    """GB101: give the parameter the name of the field, or add a parameter for it."""
    field, parameter = finding.data["field"], finding.data["parameter"]
    symbol = Symbol.at(evidence, finding.span)
    if parameter:
        _refuse_if_passed_by_name(symbol, parameter, evidence)
        _rename_parameter(symbol, parameter, field)
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
    symbol = Symbol.of_method(evidence, method)
    is_handler = any(subscription.method == method.name for subscription in agent.subscriptions)
    if is_handler and len(method.parameters) < 3 and new in EVENT_NAMES | PAYLOAD_NAMES:
        raise Refused("the handler would be called with something else")
    _refuse_if_passed_by_name(symbol, old, evidence)
    _rename_parameter(symbol, old, new)
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


def _rename_parameter(symbol: Symbol, old: str, new: str) -> None:
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
        if any(_names_method(node, method) and _passes(node, parameter) for node in ast.walk(tree)):
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
        _refuse_if_called(each.agent.name, each.method.name, evidence)
        changes.append(_adopt(each, usual, models[0], words, evidence).change())
    neighbours = [name for each in odd for name in wiring.neighbours(each.agent.name)]
    return Fix(
        title=f"Report errors as {usual} in {', '.join(map(str, odd))}",
        intent="align_schema",
        changes=tuple(changes),
        affects=others([*neighbours, *(each.agent.name for each in reporting)], finding.agent),
    )


def _adopt(odd: Reporting, usual: Shape, model: Reporting, words: Words, evidence: Evidence) -> Symbol:
    symbol = Symbol.of_method(evidence, odd.method)
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
        for display in _returned(Symbol.of_method(evidence, model.method)):
            entries = {name: value for name, _, value in _entries(display, {usual.status: "", usual.error: ""})}
            status, error = entries.get(usual.status), entries.get(usual.error)
            if isinstance(status, ast.Constant) and isinstance(status.value, str):
                is_success = error is None or (isinstance(error, ast.Constant) and error.value in (None, ""))
                found[is_success].add(status.value)
    return {truth: words.pop() for truth, words in found.items() if len(words) == 1}


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
