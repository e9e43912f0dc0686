"""One name for a topic, a key, a parameter or an argument at all of its ends.

What is declared keeps its name. Where nothing is declared, the name that is a slip gives way: one of its words is written
nowhere else in the project. Then one end gives way to several, and at last who takes gives way to who gives.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from graphbus_core.compiler.reading.syntax import type_parameters
from graphbus_core.compiler.rules.entries import Entry, arguments_of, assigned_in, entries_of, rename_entries
from graphbus_core.compiler.rules.names import slip_of
from graphbus_core.compiler.rules.token_edits import EditedSymbol, Function, Refused, Remedy, TokenEdits, take_single
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    ProjectFacts,
    Wiring,
    last_name,
    trees_with,
)
from graphbus_core.model.agent import (
    EVENT_NAMES,
    PAYLOAD_NAMES,
    AgentDefinition,
    Call,
    MethodSpec,
    Publication,
    SourceSpan,
)
from graphbus_core.model.findings import Finding
from graphbus_core.model.topics import is_topic_or_pattern

# --- which of two names is the wrong one --------------------------------------------------------


def _is_giver_wrong(
    names: tuple[str, str],
    givers: Collection[str],
    takers: Collection[str],
    project: ProjectFacts,
    beyond: Collection[SourceSpan] = (),
) -> bool:
    """Decide between the name that is given and the one that is taken; methods `beyond` have it as their own name."""
    slip = slip_of(names, project, beyond)
    is_open = slip is None and is_topic_or_pattern(
        names[0]
    )  # a key is called as its sender calls it; nobody owns a topic
    if is_open or (not slip and len(takers) > 1 < len(givers)):
        raise Refused("either name may be meant")
    return slip == names[0] if slip else len(takers) > 1


# --- topics -------------------------------------------------------------------------------------


def rename_topic(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB001: one name for what is published and what is subscribed to."""
    old, new = finding.data["old"], finding.data["new"]
    hearing = [heard for heard in edits.wiring.subscriptions if heard.topic == old]
    sending = edits.wiring.publishers(new)
    hearers, senders = ({each.agent.name for each in ends} for ends in (hearing, sending))
    is_open = is_topic_or_pattern(old) and not any(heard.topic == new for heard in edits.wiring.subscriptions)
    if is_open and _is_giver_wrong((new, old), senders, hearers, edits.project):
        old, new = new, old
        spans = [sent.publication.span for sent in sending]
    else:
        mine = [each for each in hearing if each.agent.name == finding.agent or not edits.is_narrow]
        spans = [heard.subscription.span for heard in mine]
    for span in spans:
        rename_literal(edits, span, old, new)
    title = f"Rename the topic {old!r} to {new!r}{edits.where}"
    return Remedy(title, "align_topic", hearers | senders)


def rename_requested(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB005: request what an agent answers."""
    old, new = finding.data["old"], finding.data["new"]
    rename_literal(edits, finding.span, old, new)
    hearers = {heard.agent.name for heard in edits.wiring.subscribers(new)}
    return Remedy(f"Request {new!r} instead of {old!r}{edits.where}", "align_topic", hearers)


def rename_literal(edits: TokenEdits, span: SourceSpan, old: str, new: str) -> None:
    """Change the text at a place or in a call there, or the constant of the file that a name there stands for."""
    symbol = edits.at(span)
    node = _written(symbol.expression_at(span), symbol.tree, old)
    edits.at(SourceSpan(span.path, node.lineno, node.col_offset, 0, 0)).replace_text(node, old, new)


def _written(expression: ast.expr, tree: ast.Module, text: str) -> ast.Constant:
    """Give the literal in which a call, a name, an attribute or an entry of a constant dict has its text."""
    if isinstance(expression, ast.Constant | ast.Call):
        return _literal(expression, text)
    base = expression.value if isinstance(expression, ast.Subscript) else expression
    return _literal(take_single([value for name, value in assigned_in(tree) if name == last_name(base)]), text)


def _literal(expression: ast.expr, text: str) -> ast.Constant:
    return take_single([node for node in ast.walk(expression) if isinstance(node, ast.Constant) and node.value == text])


# --- keys of payloads ---------------------------------------------------------------------------


def rename_key_of_result(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB111: read the key that the other end declares, wherever the agent reads the other one of this result."""
    old, new = finding.data["old"], finding.data["new"]
    agent = edits.wiring.agents[finding.agent]
    sources: list[Call | Publication] = [*agent.calls, *agent.publications]
    read = [(_source(each), read) for each in sources for read in each.reads]
    mine = take_single([pair for pair in read if pair[1].span == finding.span][:1])
    for source, each in read:
        if (source, each.key) == (mine[0], mine[1].key):
            _rename_key_at(edits, each.span, old, new)
    return Remedy(f"Read {new!r} instead of {old!r}{edits.where}", "align_schema")


def _rename_key_at(edits: TokenEdits, span: SourceSpan, old: str, new: str) -> None:
    """Change the key or the attribute that is read at a place."""
    symbol = edits.at(span)
    node = symbol.expression_at(span)
    if isinstance(node, ast.Attribute) and node.attr == old:
        symbol.replace_attribute(node, new)
    else:
        symbol.replace_text(_literal(node, old), old, new)


def _source(given: Call | Publication) -> tuple[str, ...]:
    return (given.agent, given.method) if isinstance(given, Call) else (given.topic,)


def rename_key(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB003, GB110: one name for what is sent and what handlers read or take as a parameter."""
    old, new = finding.data["old"], finding.data["new"]
    wiring = edits.wiring
    heard = _handler(finding, wiring)
    reaching = _reaching(heard, wiring)
    sent = [each for each in reaching if new in _sent_keys(each)]
    odd = _misnamed(reaching, old, new)
    hearers = _hearers(sent, wiring)
    asking = [each for each in hearers if old in _asked(each) and not _is_sent(old, each, odd, wiring)]
    is_declared = any(each.publication.is_declared for each in sent)
    is_settled = is_declared or any(new in _asked(each) for each in hearers)
    senders, askers = {each.agent.name for each in sent}, {each.agent.name for each in asking}
    own = [field.span for each in asking for field in each.subscription.fields if field.name == old]
    beyond = [edits.at(span).span for span in own]
    is_typed = old not in heard.subscription.named
    if not is_settled and (is_typed or _is_giver_wrong((new, old), senders, askers, edits.project, beyond)):
        _rename_ends(edits, sent, (), new, old)
        title = f"Send {old!r} instead of {new!r}{edits.where}"
        return Remedy(title, "align_schema", {each.agent.name for each in hearers})
    _rename_ends(edits, odd, [heard] if edits.is_narrow and not odd else asking, old, new)
    is_parameter = any(field.span == finding.span for field in heard.subscription.fields)
    what = f"Rename the parameter {old!r} of {heard.name} to" if is_parameter else f"Read {new!r} instead of"
    title = f"{what} {new!r}" if is_parameter else f"{what} {old!r}{edits.where}"
    return Remedy(title, "align_schema", senders)


def rename_key_sent(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB004: send the key under the name that the other publishers or the declaration give it, and read it under this name."""
    old, new = finding.data["old"], finding.data["new"]
    wiring = edits.wiring
    mine = _publication(finding, wiring)
    sent = wiring.publishers(mine.topic)
    odd = _misnamed(sent, old, new) or [mine]
    readers = [heard for heard in wiring.subscribers(mine.topic) if old in _asked(heard)]
    if any(_is_sent(old, heard, odd, wiring) for heard in readers):
        raise Refused("the other name is sent as well")
    _rename_ends(edits, odd, readers, old, new)
    affected = {heard.agent.name for heard in wiring.subscribers(mine.topic)}
    return Remedy(f"Send {new!r} instead of {old!r}{edits.where}", "align_schema", affected)


def _misnamed(sent: Iterable[AgentPublication], old: str, new: str) -> list[AgentPublication]:
    """Give what is sent under a name against a declaration that has the other one."""
    known = [each for each in sent if each.publication.payload]
    is_declared = any(each.publication.is_declared and new in _sent_keys(each) for each in known)
    return [each for each in known if is_declared and not each.publication.is_declared and old in _sent_keys(each)]


def _rename_ends(
    edits: TokenEdits, sent: Iterable[AgentPublication], readers: Iterable[AgentSubscription], old: str, new: str
) -> None:
    for each in sent:
        _rename_sent(edits, each, old, new)
    for heard in readers:
        _rename_read(edits, heard, old, new)


def rename_key_returned(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB103: return the key under the name that the output schema gives it, unless something may read the other one."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = edits.at(finding.span)
    found = [
        each for each in entries_of(symbol.expression_at(finding.span), symbol.node, symbol.tree) if each.name == old
    ]
    if is_read(finding.data["method"], old, len(found), edits.project):
        raise Refused("something may read the other key")
    rename_entries(edits, symbol.path, found, old, new)
    title = f"Return {new!r} instead of {old!r}{edits.where}"
    return Remedy(title, "align_schema", edits.wiring.neighbours(finding.agent))


def is_read(method: str, key: str, known: int, project: ProjectFacts) -> bool:
    """Tell whether something may read a key of what a method returns: it is mentioned more often than where it is returned."""
    if not any(True for _ in _calls_of(method, project, dropped=False)):
        return False
    word = re.compile(rf"\b{re.escape(key)}\b".encode())
    return sum(len(word.findall(project.source(file.path).data)) for file in project.index.files) > known


def _handler(finding: Finding, wiring: Wiring) -> AgentSubscription:
    """Give the handler that a finding is about, with one of its topics."""
    return take_single(_handlers(finding, wiring)[:1])


def _handlers(finding: Finding, wiring: Wiring) -> list[AgentSubscription]:
    mine = [(heard, heard.subscription) for heard in wiring.subscriptions if heard.agent.name == finding.agent]
    spans = [
        (heard, (own.span, *(read.span for read in own.reads), *(each.span for each in own.fields)))
        for heard, own in mine
    ]
    return [heard for heard, places in spans if finding.span in places]


def giving_place(finding: Finding, wiring: Wiring) -> tuple[SourceSpan, frozenset[str]]:
    """Give where something is missing, and what is wanted there under its own name.

    That is at the finding, or where the only event is sent that reaches its handler.
    """
    if "wanted" in finding.data:
        return finding.span, frozenset(finding.data["wanted"].split())
    heard = _handlers(finding, wiring)
    sent = take_single(_reaching(heard[0], wiring)) if heard else _publication(finding, wiring)
    known = [*map(_asked, wiring.subscribers(sent.topic)), *map(_declared_keys, wiring.publishers(sent.topic))]
    return sent.publication.payload_span or finding.span, frozenset().union(*known)


def _publication(finding: Finding, wiring: Wiring) -> AgentPublication:
    found = (
        each for each in wiring.publications if finding.span in (each.publication.payload_span, each.publication.span)
    )
    return take_single(list(found)[:1])


def _declared_keys(sent: AgentPublication) -> frozenset[str]:
    return _sent_keys(sent) if sent.publication.is_declared else frozenset()


def _hearers(sent: Iterable[AgentPublication], wiring: Wiring) -> list[AgentSubscription]:
    """Give each handler that hears one of these, once."""
    found = (heard for each in sent for heard in wiring.subscribers(each.topic))
    return list({(heard.agent.name, heard.subscription.method): heard for heard in found}.values())


def _reaching(heard: AgentSubscription, wiring: Wiring) -> list[AgentPublication]:
    """Give what reaches a handler by any of its topics."""
    mine = (each for each in heard.agent.subscriptions if each.method == heard.subscription.method)
    return list({sent: None for each in mine for sent in wiring.publishers(each.topic)})


def _is_sent(key: str, heard: AgentSubscription, odd: Collection[AgentPublication], wiring: Wiring) -> bool:
    """Tell whether a handler gets a key from others than those that are `odd`."""
    return any(key in _sent_keys(each) and each not in odd for each in _reaching(heard, wiring))


def _sent_keys(sent: AgentPublication) -> frozenset[str]:
    return sent.publication.payload.names if sent.publication.payload else frozenset()


def _asked(heard: AgentSubscription) -> frozenset[str]:
    """All keys that a handler names, those of its payload class included."""
    return heard.subscription.named | {field.name for field in heard.subscription.payload.fields}


def _rename_read(edits: TokenEdits, heard: AgentSubscription, old: str, new: str) -> None:
    subscription = heard.subscription
    reads = [read.span for read in subscription.reads if read.key == old]
    if old not in subscription.named or old in {field.name for field in subscription.payload.fields}:
        raise Refused("the key belongs to a class")
    for span in reads:
        _rename_key_at(edits, span, old, new)
    for field in subscription.fields:
        if field.name == old:
            if len(subscription.fields) < 3 and new in EVENT_NAMES | PAYLOAD_NAMES:
                raise Refused("the handler would be called with something else")
            _rename_parameter(edits.at(field.span), old, new, edits.project)


def _rename_sent(edits: TokenEdits, sent: AgentPublication, old: str, new: str) -> None:
    span = sent.publication.payload_span
    if span is None:
        raise Refused("there is no payload")
    symbol = edits.at(span)
    rename_entries(edits, span.path, entries_of(symbol.expression_at(span), symbol.node, symbol.tree), old, new)


# --- parameters and arguments -------------------------------------------------------------------

REFLECTING = frozenset({"locals", "vars", "eval", "exec", "globals"})


def rename_to_field(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB101: give the parameter the name of the field."""
    symbol = edits.at(finding.span)
    old, new = finding.data["parameter"], finding.data["field"]
    if any(old in call.arguments.names for _, call in _calls(finding.agent, symbol.function.name, edits)):
        return _rename_field(symbol, new, old)
    _rename_parameter(symbol, old, new, edits.project)
    title = f"Rename the parameter {old!r} of {symbol.target} to {new!r}"
    return Remedy(title, "align_schema", edits.wiring.neighbours(finding.agent))


def rename_handed_over(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB110: one name for what is given and what is taken; the arguments of a call bear the names that are declared."""
    if "called" in finding.data:
        return _rename_called(finding, edits)
    if "agent" not in finding.data:
        return rename_key(finding, edits)
    old, new = finding.data["old"], finding.data["new"]
    callee, method = _consumer(finding, edits.project)
    calls = _calls(callee.name, method.name, edits)
    odd = [(agent, call) for agent, call in calls if new in call.arguments.names]
    is_theirs = len({agent.name for agent, _ in odd}) > 1 and not any(old in call.arguments.names for _, call in calls)
    mine = [call for _, call in odd if call.span == finding.span]
    if mine and new in {parameter.name for parameter in method.parameters}:
        return _rename_field(edits.of(method), old, new)
    if is_theirs or not mine or new not in {each.name for each in _arguments_at(edits, mine[0])}:
        return _rename_to_producers_name(finding, edits)
    for agent, call in odd:
        if agent.name == finding.agent or not edits.is_narrow:
            rename_entries(edits, call.span.path, _arguments_at(edits, call), new, old)
    affected = {callee.name, *(agent.name for agent, _ in odd)}
    return Remedy(f"Pass {old!r} instead of {new!r}{edits.where}", "align_schema", affected)


def _rename_called(finding: Finding, edits: TokenEdits) -> Remedy:
    """Call the method that is there."""
    old, new = finding.data["called"], finding.data["new"]
    symbol = edits.at(finding.span)
    node = symbol.expression_at(finding.span)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == old:
        symbol.replace_attribute(node.func, new)
    else:
        symbol.replace_text(_literal(node, old), old, new)
    return Remedy(f"Call {new!r} instead of {old!r}{edits.where}", "align_schema")


def pass_one_by_one(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB110: pass what stands behind `**` by the names that are declared."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = edits.at(finding.span)
    node = symbol.expression_at(finding.span)
    call = take_single([each for each in edits.wiring.agents[finding.agent].calls if each.span == finding.span])
    keywords = node.keywords if isinstance(node, ast.Call) else []
    spread = take_single([each for each in keywords if each.arg is None])
    names = sorted(call.arguments.names - {each.arg for each in keywords})
    if new not in names or (len(names) > 1 and not isinstance(spread.value, ast.Name)):
        raise Refused("it would be evaluated more than once")
    value = symbol.text_of(spread.value)
    symbol.replace(spread, ", ".join(f'{old if name == new else name}={value}["{name}"]' for name in names))
    return Remedy(f"Pass {value}[{new!r}] as {old!r}{edits.where}", "align_schema", {finding.data["agent"]})


def _arguments_at(edits: TokenEdits, call: Call) -> list[Entry]:
    symbol = edits.at(call.span)
    node = symbol.expression_at(call.span)
    return list(arguments_of(node, symbol.node, symbol.tree)) if isinstance(node, ast.Call) else []


def _calls(agent: str, method: str, edits: TokenEdits) -> list[tuple[AgentDefinition, Call]]:
    calls = ((caller, call) for caller in edits.project.definitions for call in caller.calls)
    return [(caller, call) for caller, call in calls if (call.agent, call.method) == (agent, method)]


def _rename_field(symbol: EditedSymbol, old: str, new: str) -> Remedy:
    """Let the schema say what parameter and calls say."""
    keys = [key for key in schema_display(symbol.function).keys if isinstance(key, ast.Constant) and key.value == old]
    symbol.replace_text(take_single(keys), old, new)
    return Remedy(f"Declare {new!r} instead of {old!r} in {symbol.target}", "align_schema")


def _rename_to_producers_name(finding: Finding, edits: TokenEdits) -> Remedy:
    """Let the consumer's parameter, and its field in the schema, bear the name that the producer uses."""
    old, new = finding.data["old"], finding.data["new"]
    agent, method = _consumer(finding, edits.project)
    symbol = edits.of(method)
    _rename_parameter(symbol, old, new, edits.project)
    if method.has_schema:
        _rename_field(symbol, old, new)
    title = f"Rename the parameter {old!r} of {symbol.target} to {new!r}"
    neighbours = (*edits.wiring.neighbours(finding.agent), *edits.wiring.neighbours(agent.name))
    return Remedy(title, "align_schema", (agent.name, *neighbours))


def _consumer(finding: Finding, project: ProjectFacts) -> tuple[AgentDefinition, MethodSpec]:
    agent = next(each for each in project.definitions if each.name == finding.data["agent"])
    method = agent.method(finding.data["method"])
    if method is None:
        raise Refused("the consumer is gone")
    return agent, method


def _rename_parameter(symbol: EditedSymbol, old: str, new: str, project: ProjectFacts) -> None:
    """Rename a parameter that no call may pass by name, and every use of it in the body."""
    for call in _calls_of(symbol.function.name, project):
        if call is None or any(keyword.arg in (old, None) for keyword in call.keywords):
            raise Refused("the parameter may be passed by name")
    taken = type_parameters(symbol.function) | {argument.arg for argument in _arguments(symbol.function)}
    for node in (inner for statement in symbol.function.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Name):
            taken |= {node.id} - {old}
            if node.id == old:
                symbol.replace(node, new)
        elif old in (bound := _names_bound_by(node)):
            raise Refused("the name means something else as well")
        else:
            taken |= bound
    if taken & {new, *REFLECTING}:
        raise Refused("the new name is taken, or names are looked up as text")
    symbol.replace_name(parameter_of(symbol.function, old), old, new)


def _names_bound_by(node: ast.AST) -> frozenset[str]:
    """The plain names in the fields of a node: of definitions, clauses, patterns, imports and `global`."""
    if isinstance(node, ast.Attribute | ast.keyword | ast.Constant):
        return frozenset()
    values = chain.from_iterable(each if isinstance(each, list) else [each] for each in vars(node).values())
    return frozenset(value for value in values if isinstance(value, str))


def _calls_of(method: str, project: ProjectFacts, *, dropped: bool = True) -> Iterator[ast.Call | None]:
    """Give every call in the project that is of a method of this name or is given the name; None for what may be one.

    Without those whose result is `dropped`: a statement calls the method and does nothing with what it gives.
    """
    for tree in trees_with([method], project):
        if tree is None:
            yield None
        nodes = list(ast.walk(tree)) if tree else []
        values = [node.value for node in nodes if isinstance(node, ast.Expr)]
        alone = {value.value if isinstance(value, ast.Await) else value for value in values}
        for node in nodes:
            if isinstance(node, ast.Call):
                is_method = last_name(node.func) == method
                if (is_method and (dropped or node not in alone)) or method in map(_constant, node.args):
                    yield node
    yield from (None for agent in project.definitions for call in agent.calls if not call.method)


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _arguments(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def parameter_of(function: Function, name: str) -> ast.arg:
    """Give the parameter of a name."""
    return take_single([argument for argument in _arguments(function) if argument.arg == name])


def schema_display(function: Function) -> ast.Dict:
    """Give the display of the input schema that stands in the decorator."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and last_name(decorator.func) == "schema_method":
            named = [keyword.value for keyword in decorator.keywords if keyword.arg == "input_schema"]
            for schema in (*decorator.args[:1], *named):
                if isinstance(schema, ast.Dict):
                    return schema
    raise Refused("the schema does not stand in the decorator")
