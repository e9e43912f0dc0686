"""Fixes that give a topic, key, parameter or argument the same name at all of its ends.

Which of two names is kept is decided in this order: the declared one; if the other one is misspelled (it has a word that occurs
nowhere else in the project); if several agents use it and a single agent uses the other; if the producer uses it.

Each public function whose docstring begins with a rule makes the edits for one finding. It raises `Refused` if an edit is not
certain to be right.
In the data of a finding, `old` is the wrong name and `new` the one that the other end has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from graphbus_core.compiler.reading.syntax import type_parameters
from graphbus_core.compiler.rules.entries import Entry, arguments_of, assigned_in, entries_of, rename_entries
from graphbus_core.compiler.rules.names import are_near, find_misspelled_name
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

# --- which of two names is wrong ----------------------------------------------------------------


def _is_producer_wrong(
    names: tuple[str, str],
    producers: Collection[str],
    consumers: Collection[str],
    project: ProjectFacts,
    ignored: Collection[SourceSpan] = (),
) -> bool:
    """Return whether the producer's name, the first of two, is wrong and not the consumer's; Refused if either may be.

    `producers` and `consumers` are the agents that use each name; `ignored` is that of `find_misspelled_name`.
    """
    misspelled = find_misspelled_name(names, project, ignored)
    # if neither word occurs elsewhere, the producer's name of a key is kept; for a topic, that would be arbitrary
    is_undecided = misspelled is None and is_topic_or_pattern(names[0])
    if is_undecided or (not misspelled and len(consumers) > 1 < len(producers)):
        raise Refused("either name may be right")
    return misspelled == names[0] if misspelled else len(consumers) > 1


# --- topics -------------------------------------------------------------------------------------


def rename_topic(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB001: rename the topic of the subscriptions to the published one; or the reverse, if the published one is wrong."""
    old, new = finding.data["old"], finding.data["new"]
    subscriptions = [handler for handler in edits.wiring.subscriptions if handler.topic == old]
    publications = edits.wiring.publishers(new)
    subscribers, publishers = ({each.agent.name for each in ends} for ends in (subscriptions, publications))
    may_rename_published = is_topic_or_pattern(old) and new not in {each.topic for each in edits.wiring.subscriptions}
    if may_rename_published and _is_producer_wrong((new, old), publishers, subscribers, edits.project):
        old, new = new, old
        spans = [sent.publication.span for sent in publications]
    else:
        to_rename = [each for each in subscriptions if each.agent.name == finding.agent or not edits.is_narrow]
        spans = [handler.subscription.span for handler in to_rename]
    for span in spans:
        rename_literal(edits, span, old, new)
    title = f"Rename the topic {old!r} to {new!r}{edits.where}"
    return Remedy(title, "align_topic", subscribers | publishers)


def rename_requested(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB005: request the similar topic that an agent handles."""
    old, new = finding.data["old"], finding.data["new"]
    rename_literal(edits, finding.span, old, new)
    handlers = {handler.agent.name for handler in edits.wiring.subscribers(new)}
    return Remedy(f"Request {new!r} instead of {old!r}{edits.where}", "align_topic", handlers)


def rename_literal(edits: TokenEdits, span: SourceSpan, old: str, new: str) -> None:
    """Change a string at a place, in a call there, or in the constant named there; Refused if it is not written once."""
    symbol = edits.at(span)
    node = _find_literal(symbol.expression_at(span), symbol.tree, old)
    edits.at(SourceSpan(span.path, node.lineno, node.col_offset, 0, 0)).replace_text(node, old, new)


def _find_literal(expression: ast.expr, tree: ast.Module, text: str) -> ast.Constant:
    """Return the only literal with this text in a constant or call; Refused if there is not exactly one.

    For a name, or an item of a dict, the literal is searched in the value that the file assigns to the name or dict.
    """
    if isinstance(expression, ast.Constant | ast.Call):
        return _find_text(expression, text)
    base = expression.value if isinstance(expression, ast.Subscript) else expression
    return _find_text(take_single([value for name, value in assigned_in(tree) if name == last_name(base)]), text)


def _find_text(expression: ast.expr, text: str) -> ast.Constant:
    """Return the only literal with this text in or below an expression; Refused if there is not exactly one."""
    return take_single([node for node in ast.walk(expression) if isinstance(node, ast.Constant) and node.value == text])


# --- keys of results and payloads ---------------------------------------------------------------


def rename_key_of_result(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB111: at every place where the agent reads this key of this result, rename the key or change the kind of access."""
    if "access" in finding.data:
        return _change_accesses(finding, _find_reads_of_same_key(finding, edits), edits)
    old, new = finding.data["old"], finding.data["new"]
    for span in _find_reads_of_same_key(finding, edits):
        _rename_key_at(edits, span, old, new)
    return Remedy(f"Read {new!r} instead of {old!r}{edits.where}", "align_schema")


def _find_reads_of_same_key(finding: Finding, edits: TokenEdits) -> Iterator[SourceSpan]:
    """Yield every place where the agent of a finding reads the same key of the same result, the finding's own place included."""
    agent = edits.wiring.agents[finding.agent]
    sources: list[Call | Publication] = [*agent.calls, *agent.publications]
    read = [(_key_of_source(each), read) for each in sources for read in each.reads]
    wanted_source, wanted = take_single([pair for pair in read if pair[1].span == finding.span][:1])
    yield from (each.span for source, each in read if (source, each.key) == (wanted_source, wanted.key))


def _change_accesses(finding: Finding, spans: Iterable[SourceSpan], edits: TokenEdits) -> Remedy:
    """Write the finding's `access` at these places: `.name` instead of a key, or `["name"]` instead of an attribute."""
    access = finding.data["access"].replace("'", '"')
    kind = ast.Attribute if access.startswith("[") else ast.Subscript
    for span in spans:
        symbol = edits.at(span)
        read = symbol.expression_at(span)
        for node in ast.walk(symbol.node):
            if isinstance(node, kind) and read in (node, getattr(node, "slice", None)):
                symbol.replace(node, symbol.text_of(node.value) + access)
    return Remedy(f"Write `{access}`{edits.where}", "align_schema")


def _rename_key_at(edits: TokenEdits, span: SourceSpan, old: str, new: str) -> None:
    """Change the key or the attribute that is read at a place."""
    symbol = edits.at(span)
    node = symbol.expression_at(span)
    if isinstance(node, ast.Attribute) and node.attr == old:
        symbol.replace_attribute(node, new)
    else:
        symbol.replace_text(_find_text(node, old), old, new)


def _key_of_source(given: Call | Publication) -> tuple[str, ...]:
    """Return what two sources of the same result have in common: agent and method of a call, or the topic of a request."""
    return (given.agent, given.method) if isinstance(given, Call) else (given.topic,)


def rename_key(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB003, GB110: rename a key where it is read or where it is sent; the head of this module says which name is kept.

    If the data of the finding has `part` or `access`, only one read is corrected: its last part, such as `sku` of `line["sku"]`.
    """
    if "part" in finding.data:
        old, new = finding.data["part"], finding.data["new"]
        _rename_key_at(edits, finding.span, old, new)
        return Remedy(f"Read {new!r} instead of {old!r}{edits.where}", "align_schema")
    if "access" in finding.data:
        return _change_accesses(finding, [finding.span], edits)
    old, new = finding.data["old"], finding.data["new"]
    wiring = edits.wiring
    handler = _find_first_subscription(finding, wiring)
    reaching = _publications_reaching(handler, wiring)
    sent = [each for each in reaching if new in _keys_sent_in(each)]
    misnamed = _find_misnamed_publications(reaching, old, new)
    handlers = _find_reached_handlers(sent, wiring)
    users = (each for each in handlers if old in _keys_used_by(each))
    reading = [each for each in users if not _is_sent_by_others(old, each, misnamed, wiring)]  # these may be renamed
    is_declared = any(each.publication.is_declared for each in sent)
    is_settled = is_declared or any(new in _keys_used_by(each) for each in handlers)
    senders, readers = {each.agent.name for each in sent}, {each.agent.name for each in reading}
    parameters = [field.span for each in reading for field in each.subscription.fields if field.name == old]
    own_methods = [edits.at(span).span for span in parameters]
    is_typed = old not in handler.subscription.named  # a field of the payload class, which is not renamed
    names = (new, old)
    if not is_settled and (is_typed or _is_producer_wrong(names, senders, readers, edits.project, own_methods)):
        _rename_ends(edits, sent, (), new, old)
        title = f"Send {old!r} instead of {new!r}{edits.where}"
        return Remedy(title, "align_schema", {each.agent.name for each in handlers})
    _rename_ends(edits, misnamed, [handler] if edits.is_narrow and not misnamed else reading, old, new)
    is_parameter = any(field.span == finding.span for field in handler.subscription.fields)
    what = f"Rename the parameter {old!r} of {handler.name} to" if is_parameter else f"Read {new!r} instead of"
    title = f"{what} {new!r}" if is_parameter else f"{what} {old!r}{edits.where}"
    return Remedy(title, "align_schema", senders)


def rename_key_sent(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB004: rename a key that is sent to the name that other publishers or a declaration have, also where handlers read it."""
    old, new = finding.data["old"], finding.data["new"]
    wiring = edits.wiring
    publication = _find_publication(finding, wiring)
    sent = wiring.publishers(publication.topic)
    misnamed = _find_misnamed_publications(sent, old, new) or [publication]
    readers = [handler for handler in wiring.subscribers(publication.topic) if old in _keys_used_by(handler)]
    if any(_is_sent_by_others(old, handler, misnamed, wiring) for handler in readers):
        raise Refused("the other name is sent as well")
    _rename_ends(edits, misnamed, readers, old, new)
    affected = {handler.agent.name for handler in wiring.subscribers(publication.topic)}
    return Remedy(f"Send {new!r} instead of {old!r}{edits.where}", "align_schema", affected)


def _find_misnamed_publications(sent: Iterable[AgentPublication], old: str, new: str) -> list[AgentPublication]:
    """Return those of the publications that send `old`, if a declaration among them has `new`; else an empty list."""
    known = [each for each in sent if each.publication.payload]
    is_declared = any(each.publication.is_declared and new in _keys_sent_in(each) for each in known)
    return [each for each in known if is_declared and not each.publication.is_declared and old in _keys_sent_in(each)]


def _rename_ends(
    edits: TokenEdits, sent: Iterable[AgentPublication], readers: Iterable[AgentSubscription], old: str, new: str
) -> None:
    """Rename a key in the payloads of publications and in the bodies and signatures of handlers."""
    for each in sent:
        _rename_sent_key(edits, each, old, new)
    for handler in readers:
        _rename_read_key(edits, handler, old, new)


def rename_key_returned(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB103: rename a returned key to the name that the output schema declares; refused if other code may read the old name."""
    old, new = finding.data["old"], finding.data["new"]
    symbol = edits.at(finding.span)
    found = [
        each for each in entries_of(symbol.expression_at(finding.span), symbol.node, symbol.tree) if each.name == old
    ]
    if is_read_anywhere(finding.data["method"], old, len(found), edits.project):
        raise Refused("something may read the other key")
    rename_entries(edits, symbol.path, found, old, new)
    title = f"Return {new!r} instead of {old!r}{edits.where}"
    return Remedy(title, "align_schema", edits.wiring.neighbours(finding.agent))


def is_read_anywhere(method: str, key: str, known: int, project: ProjectFacts) -> bool:
    """Return whether code may read a key of a method's result.

    That is so if a result is used and the files contain the key as a word more often than the `known` times that return it.
    """
    if not any(True for _ in _find_calls_in_files(method, project, with_unused=False)):
        return False
    word = re.compile(rf"\b{re.escape(key)}\b".encode())
    return sum(len(word.findall(project.source(file.path).data)) for file in project.index.files) > known


def _find_first_subscription(finding: Finding, wiring: Wiring) -> AgentSubscription:
    """Return the first subscription of the handler that a finding is about."""
    return take_single(_find_subscriptions(finding, wiring)[:1])


def _find_subscriptions(finding: Finding, wiring: Wiring) -> list[AgentSubscription]:
    """Return the subscriptions of the handler that has the place of a finding: its decorator, a read, or a parameter."""
    pairs = [(handler, handler.subscription) for handler in wiring.subscriptions if handler.agent.name == finding.agent]
    spans = [
        (handler, (own.span, *(read.span for read in own.reads), *(each.span for each in own.fields)))
        for handler, own in pairs
    ]
    return [handler for handler, places in spans if finding.span in places]


def find_place_to_add(finding: Finding, wiring: Wiring) -> tuple[SourceSpan, frozenset[str]]:
    """Return the place where a missing field must be added, and the names of all fields that are needed there.

    The place is that of the finding, or the payload of the only publication that reaches the handler at the finding; Refused if
    several publications reach it.
    """
    if "wanted" in finding.data:
        return finding.span, frozenset(finding.data["wanted"].split())
    found = _find_subscriptions(finding, wiring)
    sent = take_single(_publications_reaching(found[0], wiring)) if found else _find_publication(finding, wiring)
    known = [*map(_keys_used_by, wiring.subscribers(sent.topic))]
    place = sent.publication.payload_span
    others = [each for each in wiring.publishers(sent.topic) if each.publication.payload_span != place]
    return place or finding.span, frozenset().union(*known, *map(_keys_sent_in, others))


def _find_publication(finding: Finding, wiring: Wiring) -> AgentPublication:
    """Return the publication whose place, or whose payload's place, is that of a finding."""
    found = (
        each for each in wiring.publications if finding.span in (each.publication.payload_span, each.publication.span)
    )
    return take_single(list(found)[:1])


def _find_reached_handlers(sent: Iterable[AgentPublication], wiring: Wiring) -> list[AgentSubscription]:
    """Return one subscription of each handler that at least one of these publications reaches."""
    found = (handler for each in sent for handler in wiring.subscribers(each.topic))
    return list({(handler.agent.name, handler.subscription.method): handler for handler in found}.values())


def _publications_reaching(handler: AgentSubscription, wiring: Wiring) -> list[AgentPublication]:
    """Return the publications that reach a handler on any of its topics."""
    subscriptions = (each for each in handler.agent.subscriptions if each.method == handler.subscription.method)
    return list({sent: None for each in subscriptions for sent in wiring.publishers(each.topic)})


def _is_sent_by_others(
    key: str, handler: AgentSubscription, excluded: Collection[AgentPublication], wiring: Wiring
) -> bool:
    """Return whether any publication but the `excluded` ones sends a key to a handler."""
    return any(key in _keys_sent_in(each) and each not in excluded for each in _publications_reaching(handler, wiring))


def _keys_sent_in(sent: AgentPublication) -> frozenset[str]:
    """Return the known keys of a publication's payload."""
    return sent.publication.payload.names if sent.publication.payload else frozenset()


def _keys_used_by(handler: AgentSubscription) -> frozenset[str]:
    """Return all keys that a handler reads or has as parameters or as fields of its payload class."""
    return handler.subscription.named | {field.name for field in handler.subscription.payload.fields}


def _rename_read_key(edits: TokenEdits, handler: AgentSubscription, old: str, new: str) -> None:
    """Rename a key where a handler reads it, and the parameter with its name; Refused if it is a field of the payload class."""
    subscription = handler.subscription
    reads = [read.span for read in subscription.reads if read.key == old]
    if old not in subscription.named or old in {field.name for field in subscription.payload.fields}:
        raise Refused("the key belongs to a class")
    for span in reads:
        _rename_key_at(edits, span, old, new)
    for field in subscription.fields:
        if field.name == old:
            if len(subscription.fields) < 3 and new in EVENT_NAMES | PAYLOAD_NAMES:
                raise Refused("the handler would be called with something else")
            rename_parameter(edits.at(field.span), old, new, edits.project)


def _rename_sent_key(edits: TokenEdits, sent: AgentPublication, old: str, new: str) -> None:
    """Rename a key in the payload of a publication; Refused if the payload has both names, or no place in the source."""
    span = sent.publication.payload_span
    if span is None or new in _keys_sent_in(sent):
        raise Refused("there is no payload, or it has both keys")
    symbol = edits.at(span)
    rename_entries(edits, span.path, entries_of(symbol.expression_at(span), symbol.node, symbol.tree), old, new)


# --- parameters and arguments -------------------------------------------------------------------

REFLECTING = frozenset({"locals", "vars", "eval", "exec", "globals"})
"""Builtins that may look up a local name by a string, which a rename does not change."""


def rename_to_field(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB101: rename the parameter to the field, or if callers pass the parameter's name, the field to the parameter."""
    symbol = edits.at(finding.span)
    old, new = finding.data["parameter"], finding.data["field"]
    passed = [call.arguments.names for _, call in _find_calls(finding.agent, symbol.function.name, edits)]
    if any(old in names for names in passed):
        return _rename_schema_field(symbol, new, old)
    if not are_near(old, new) and not any(new in names for names in passed):
        raise Refused("no call shows which of two names is right")
    rename_parameter(symbol, old, new, edits.project)
    title = f"Rename the parameter {old!r} of {symbol.target} to {new!r}"
    return Remedy(title, "align_schema", edits.wiring.neighbours(finding.agent))


def rename_handed_over(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB110: rename an argument, the field of the schema, or the parameter, so that caller and method use the same name.

    The arguments are renamed; or the method's parameter, if several agents pass the same name or the call does not spell it out.
    If the data of the finding has `called`, the name of the called method is corrected; without `agent`, see `rename_key`.
    """
    if "called" in finding.data:
        return _rename_called_method(finding, edits)
    if "agent" not in finding.data:
        return rename_key(finding, edits)
    old, new = finding.data["old"], finding.data["new"]
    callee, method = _find_called_method(finding, edits.project)
    calls = _find_calls(callee.name, method.name, edits)
    misnamed = [(agent, call) for agent, call in calls if new in call.arguments.names]
    is_old_passed = any(old in call.arguments.names for _, call in calls)
    is_common_name = len({agent.name for agent, _ in misnamed}) > 1 and not is_old_passed
    at_finding = [call for _, call in misnamed if call.span == finding.span]
    if at_finding and new in {parameter.name for parameter in method.parameters}:  # only the schema has the other name
        return _rename_schema_field(edits.of(method), old, new)
    if is_common_name or not at_finding or new not in {each.name for each in _find_arguments(edits, at_finding[0])}:
        return _rename_in_called_method(finding, edits)
    for agent, call in misnamed:
        if agent.name == finding.agent or not edits.is_narrow:
            rename_entries(edits, call.span.path, _find_arguments(edits, call), new, old)
    affected = {callee.name, *(agent.name for agent, _ in misnamed)}
    return Remedy(f"Pass {old!r} instead of {new!r}{edits.where}", "align_schema", affected)


def _rename_called_method(finding: Finding, edits: TokenEdits) -> Remedy:
    """Correct the name of the called method: the attribute in `self.agent(X).name`, or the string in `self.call("X", "name")`."""
    old, new = finding.data["called"], finding.data["new"]
    symbol = edits.at(finding.span)
    node = symbol.expression_at(finding.span)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == old:
        symbol.replace_attribute(node.func, new)
    else:
        symbol.replace_text(_find_text(node, old), old, new)
    return Remedy(f"Call {new!r} instead of {old!r}{edits.where}", "align_schema")


def pass_one_by_one(finding: Finding, edits: TokenEdits) -> Remedy:
    """GB110: replace the `**mapping` of a call by one argument for each key, with the declared names.

    Refused if the mapping has several keys but is no variable, or if no method returns the key, so that the schema may be wrong.
    """
    old, new = finding.data["old"], finding.data["new"]
    symbol = edits.at(finding.span)
    node = symbol.expression_at(finding.span)
    call = take_single([each for each in edits.wiring.agents[finding.agent].calls if each.span == finding.span])
    keywords = node.keywords if isinstance(node, ast.Call) else []
    unpacked = take_single([each for each in keywords if each.arg is None])
    names = sorted(call.arguments.names - {each.arg for each in keywords})
    if new not in names or (len(names) > 1 and not isinstance(unpacked.value, ast.Name)):
        raise Refused("it would be evaluated more than once")
    methods = [method for agent in edits.wiring.agents.values() for method in agent.methods]
    if not any(each.shape and new in each.shape.names for method in methods for each in method.returned):
        raise Refused("the schema of what is passed may be wrong: nothing returns the key")
    value = symbol.text_of(unpacked.value)
    symbol.replace(unpacked, ", ".join(f'{old if name == new else name}={value}["{name}"]' for name in names))
    return Remedy(f"Pass {value}[{new!r}] as {old!r}{edits.where}", "align_schema", {finding.data["agent"]})


def _find_arguments(edits: TokenEdits, call: Call) -> list[Entry]:
    """Return the keyword arguments of a call as entries; empty if the place of the call is not a call expression."""
    symbol = edits.at(call.span)
    node = symbol.expression_at(call.span)
    return list(arguments_of(node, symbol.node, symbol.tree)) if isinstance(node, ast.Call) else []


def _find_calls(agent: str, method: str, edits: TokenEdits) -> list[tuple[AgentDefinition, Call]]:
    """Return `(caller, call)` for each call over the bus of a method."""
    calls = ((caller, call) for caller in edits.project.definitions for call in caller.calls)
    return [(caller, call) for caller, call in calls if (call.agent, call.method) == (agent, method)]


def _rename_schema_field(symbol: EditedSymbol, old: str, new: str) -> Remedy:
    """Rename a field of the input schema in the decorator of a method; Refused if the field is not written there exactly once."""
    keys = [key for key in schema_display(symbol.function).keys if isinstance(key, ast.Constant) and key.value == old]
    symbol.replace_text(take_single(keys), old, new)
    return Remedy(f"Declare {new!r} instead of {old!r} in {symbol.target}", "align_schema")


def _rename_in_called_method(finding: Finding, edits: TokenEdits) -> Remedy:
    """Rename the parameter of the called method, and the field in its schema, to the name that callers pass."""
    old, new = finding.data["old"], finding.data["new"]
    agent, method = _find_called_method(finding, edits.project)
    symbol = edits.of(method)
    rename_parameter(symbol, old, new, edits.project)
    if method.has_schema:
        _rename_schema_field(symbol, old, new)
    title = f"Rename the parameter {old!r} of {symbol.target} to {new!r}"
    neighbours = (*edits.wiring.neighbours(finding.agent), *edits.wiring.neighbours(agent.name))
    return Remedy(title, "align_schema", (agent.name, *neighbours))


def _find_called_method(finding: Finding, project: ProjectFacts) -> tuple[AgentDefinition, MethodSpec]:
    """Return the called agent and method, which the data of a finding names; Refused if the method does not exist."""
    agent = next(each for each in project.definitions if each.name == finding.data["agent"])
    method = agent.method(finding.data["method"])
    if method is None:
        raise Refused("the consumer is gone")
    return agent, method


def rename_parameter(symbol: EditedSymbol, old: str, new: str, project: ProjectFacts) -> None:
    """Rename a parameter and every use of it in the body.

    Refused if a call may pass the parameter by name, if either name has another meaning in the method, or if the body may look up
    names as strings (see `REFLECTING`).
    """
    for call in _find_calls_in_files(symbol.function.name, project):
        if call is None or any(keyword.arg in (old, None) for keyword in call.keywords):
            raise Refused("the parameter may be passed by name")
    used_names = type_parameters(symbol.function) | {argument.arg for argument in _parameters_of(symbol.function)}
    for node in (inner for statement in symbol.function.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Name):
            used_names |= {node.id} - {old}
            if node.id == old:
                symbol.replace(node, new)
        elif old in (bound := _names_bound_by(node)):
            raise Refused("the name means something else as well")
        else:
            used_names |= bound
    if used_names & {new, *REFLECTING}:
        raise Refused("the new name is taken, or names are looked up as text")
    symbol.replace_name(parameter_of(symbol.function, old), old, new)


def _names_bound_by(node: ast.AST) -> frozenset[str]:
    """Return the names that a node binds by plain strings: definitions, `except ... as`, patterns, imports and `global`."""
    if isinstance(node, ast.Attribute | ast.keyword | ast.Constant):
        return frozenset()
    values = chain.from_iterable(each if isinstance(each, list) else [each] for each in vars(node).values())
    return frozenset(value for value in values if isinstance(value, str))


def _find_calls_in_files(method: str, project: ProjectFacts, *, with_unused: bool = True) -> Iterator[ast.Call | None]:
    """Yield every call in the project of a method with this name, or with the name as an argument, such as that of `self.call`.

    None stands for calls that cannot be read: those in an unreadable file, and those of a computed method.
    Without `with_unused`, calls of the method that are statements of their own are left out: nothing uses their results.
    """
    for tree in trees_with([method], project):
        if tree is None:
            yield None
        nodes = list(ast.walk(tree)) if tree else []
        values = [node.value for node in nodes if isinstance(node, ast.Expr)]
        unused = {value.value if isinstance(value, ast.Await) else value for value in values}
        for node in nodes:
            if isinstance(node, ast.Call):
                is_method = last_name(node.func) == method
                if (is_method and (with_unused or node not in unused)) or method in map(_constant_value, node.args):
                    yield node
    yield from (None for agent in project.definitions for call in agent.calls if not call.method)


def _constant_value(node: ast.expr) -> object:
    """Return the value of a constant; None for any other expression."""
    return node.value if isinstance(node, ast.Constant) else None


def _parameters_of(function: Function) -> list[ast.arg]:
    """Return the parameters of a function except `*args` and `**kwargs`."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def parameter_of(function: Function, name: str) -> ast.arg:
    """Return the parameter with this name; Refused if there is none."""
    return take_single([argument for argument in _parameters_of(function) if argument.arg == name])


def schema_display(function: Function) -> ast.Dict:
    """Return the dict display of the input schema in the `@schema_method` decorator; Refused if there is none."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and last_name(decorator.func) == "schema_method":
            named = [keyword.value for keyword in decorator.keywords if keyword.arg == "input_schema"]
            for schema in (*decorator.args[:1], *named):
                if isinstance(schema, ast.Dict):
                    return schema
    raise Refused("the schema is not written in the decorator")
