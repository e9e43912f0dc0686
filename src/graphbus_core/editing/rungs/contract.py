"""Rung G4: what a change does to the contracts between agents, computed from both versions of the project.

A payload, schema or call that could be determined before the change must still be known after it. Otherwise a change could switch
off the checks of an edge by writing it so that it cannot be read.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.again import check_again
from graphbus_core.editing.rungs.codes import Refusal
from graphbus_core.errors import BuildError
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Publication, Returned, SourceSpan, Subscription
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import SchemaChange
from graphbus_core.schema.types import UNKNOWN, Field, Schema, Type

_Item = TypeVar("_Item", Publication, Subscription)

_VAGUE_KINDS = frozenset({"unknown", "any", "result"})
"""Kinds of types that say nothing about a value."""
_LOGGING_FUNCTIONS = frozenset(
    {"print", "len", "str", "repr", "bool", "isinstance", "type"}
    | {"debug", "info", "warning", "error", "exception", "critical", "log"}
)
"""Functions that show a payload or look at it as a whole, and need no key of it."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Loss(NamedTuple):
    """Something that is no longer known: the subject of a sentence, and its place."""

    what: str
    span: SourceSpan


def check_known(before: Project, after: Project) -> Refusal | None:
    """Refuse a change after which something is unknown that was known before: the first of `_find_losses`."""
    for loss in _find_losses(before, after):
        message = (
            f"{loss.what} could no longer be determined from the code, so that it could not be checked. "
            "Write it with constants and annotations that can be read."
        )
        return Refusal("G4.unknown", message, loss.span.path, loss.span.line)
    return None


def _find_losses(before: Project, after: Project) -> Iterator[_Loss]:
    """Yield the payloads, topics, schemas, calls and needed fields of which less is known after the change than before."""
    for old in before.wiring.agents.values():  # unlike `definitions`, with the results of other agents filled in
        new = after.wiring.agents.get(old.name)
        if new is not None and (new is not old and new != old):
            yield from _find_losses_in_publications(old, new)
            yield from _find_losses_in_handlers(old, new, after)
            yield from _find_losses_in_methods(old, new)
            yield from _find_losses_in_calls(old, new)
    yield from _find_losses_of_topics(before, after)


# --- publications ---------------------------------------------------------------------------------


def _find_losses_in_publications(old: AgentDefinition, new: AgentDefinition) -> Iterator[_Loss]:
    """Yield the payloads that an agent publishes of which less is known than before, and a topic that is computed now."""
    was, now = _group_by_topic(old.publications), _group_by_topic(new.publications)
    for topic in was.keys() & now.keys() - {""}:
        if _rate_knowledge(now[topic]) < _rate_knowledge(was[topic]):
            yield _Loss(f"The payload that {new.name} publishes to {topic!r}", _find_least_known(now[topic]).span)
        yield from _find_losses_in_declarations(f"{new.name} declares for {topic!r}", was[topic], now[topic])
    for topic, computed in _find_newly_computed_topic(was, now):
        yield _Loss(f"The topic that {new.name} publishes to instead of {topic!r}", computed.span)


def _find_losses_in_declarations(what: str, was: list[Publication], now: list[Publication]) -> Iterator[_Loss]:
    """Yield the declared payloads of a topic that are gone or of which less is known; `what` names agent and topic."""
    before, after = ([each for each in found if each.is_declared and each.payload] for found in (was, now))
    if before and not after:
        yield _Loss(f"The payload that {what}", now[0].span)
    for old, new in zip(before, after, strict=False):
        yield from _find_losses_in_schema(f"The payload that {what}", old.payload, new.payload, new.span)


def _find_losses_of_topics(before: Project, after: Project) -> Iterator[_Loss]:
    """Yield the topics with subscribers of whose payloads less is known than before, over all publishers.

    So a new agent that publishes an unknown payload counts, too.
    """
    was, now = (
        _group_by_topic(each for agent in project.wiring.agents.values() for each in agent.publications)
        for project in (before, after)
    )
    subscribed = {each.topic for agent in after.definitions for each in agent.subscriptions}
    for topic in was.keys() & now.keys() & subscribed - {""}:
        if _rate_knowledge(now[topic]) < _rate_knowledge(was[topic]):
            yield _Loss(f"The payload of {topic!r}", _find_least_known(now[topic]).span)


def _group_by_topic(found: Iterable[_Item]) -> dict[str, list[_Item]]:
    """Return topic -> its publications or subscriptions; those with a computed topic are under `""`."""
    topics: dict[str, list[_Item]] = {}
    for each in found:
        topics.setdefault(each.topic, []).append(each)
    return topics


def _find_newly_computed_topic(
    was: Mapping[str, list[_Item]], now: Mapping[str, list[_Item]]
) -> Iterator[tuple[str, _Item]]:
    """Yield (topic, item) if a topic is computed now that was a constant: the topic, and an item with a computed topic.

    That is so if more items have a computed topic than before, and some topic has fewer items. At most one pair is yielded.
    """
    fewer = sorted(topic for topic in was if topic and len(now.get(topic, ())) < len(was[topic]))
    computed = now.get("", [])
    if fewer and len(computed) > len(was.get("", ())):
        yield fewer[0], computed[-1]


def _rate_knowledge(publications: list[Publication]) -> int:
    """Return how much is known of the least known payload: 2 for all keys, 1 for some, 0 for nothing.

    If some of the payloads are declared, only these count.
    """
    declared = [each for each in publications if each.is_declared and each.payload is not None]
    return min(_rate_payload_knowledge(each.payload) for each in declared or publications)


def _rate_payload_knowledge(payload: Schema | None) -> int:
    """Return 2 if all keys of a payload are known, 1 if some may be missing, 0 for None, an unknown payload."""
    return 0 if payload is None else 1 if payload.is_open else 2


def _find_least_known(publications: list[Publication]) -> Publication:
    """Return the publication of whose payload the least is known."""
    return min(publications, key=lambda each: _rate_payload_knowledge(each.payload))


# --- subscriptions --------------------------------------------------------------------------------


def _find_losses_in_handlers(old: AgentDefinition, new: AgentDefinition, after: Project) -> Iterator[_Loss]:
    """Yield the handlers whose needed fields were known and are not now, and a subscribed topic that is computed now.

    A new handler counts if the fields of all handlers of its topic were known. One that only logs the payload needs no field.
    """
    was, now = _group_by_topic(old.subscriptions), _group_by_topic(new.subscriptions)
    for topic in was.keys() & now.keys() - {""}:
        before = {each.method: each for each in was[topic]}
        were_all_known = all(map(_is_fully_known, was[topic]))
        for each in now[topic]:
            known = before.get(each.method)
            what = f"The fields that {new.name}.{each.method} needs from {topic!r}"
            is_less_known = not _is_fully_known(each) and (_is_fully_known(known) if known else were_all_known)
            if (is_less_known and not _only_logs_payload(each, new, after)) or (
                known and _takes_any_field_now(known, each)
            ):
                yield _Loss(what, each.span)
            elif known and known.declared_schema is not None:
                yield from _find_losses_in_fields(what, known.declared_schema, _make_needed_schema(each), each.span)
    for topic, computed in _find_newly_computed_topic(was, now):
        yield _Loss(f"The topic that {new.name}.{computed.method} subscribes to instead of {topic!r}", computed.span)


def _is_fully_known(subscription: Subscription) -> bool:
    """True if all fields that a handler needs are known: it takes none, declares them, or reads constant keys only."""
    return subscription.shape == "nothing" or subscription.declared_schema is not None or subscription.reads_all_known


def _make_needed_schema(subscription: Subscription) -> Schema:
    """Return the declared schema of a handler, else a schema of the keys that it reads."""
    keys = dict.fromkeys(read.key for read in subscription.reads)
    return subscription.declared_schema or Schema(tuple(Field(key, UNKNOWN) for key in keys))


def _takes_any_field_now(known: Subscription, subscription: Subscription) -> bool:
    """True if the handler now has a `**rest` parameter in place of a named one."""
    names, now = ({each.name for each in side.fields if each.kind != "var_keyword"} for side in (known, subscription))
    has_rest = len(subscription.fields) > len(now)
    return has_rest and len(known.fields) == len(names) and bool(names - now)


def _only_logs_payload(subscription: Subscription, agent: AgentDefinition, project: Project) -> bool:
    """True if the handler only reads constant keys of its payload, and passes the whole only to logs and the like."""
    method = agent.method(subscription.method)
    if method is None or subscription.shape not in ("event", "payload", "event_payload", "topic_payload"):
        return False
    try:
        tree = project.source(method.span.path).parse()
    except BuildError:
        return False
    lines = range(method.span.line, method.span.end_line + 1)
    function = next((node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS) and node.lineno in lines), None)
    return function is not None and _are_names_only_logged(function, {each.name for each in method.parameters})


def _are_names_only_logged(function: ast.AST, names: set[str]) -> bool:
    """True if a function uses these names only to read constant keys, or as arguments of logs and the like."""
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in names]
    return all(isinstance(node.ctx, ast.Load) and _is_key_read_or_logged(node, parents) for node in uses)


def _is_key_read_or_logged(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:  # noqa: PLR0911 - one line for each kind of use
    """True if `node`, the payload or the event, is used only to read a constant key, or passed to a log or the like."""
    match parents.get(node):
        case ast.Attribute(attr="payload") as payload:  # event.payload
            return _is_key_read_or_logged(payload, parents)
        case ast.Attribute(attr="get") as get:  # payload.get("key")
            call = parents.get(get)
            return isinstance(call, ast.Call) and bool(call.args) and isinstance(call.args[0], ast.Constant)
        case ast.Attribute(ctx=ast.Load()) as field:  # event.topic, but no other method
            return not isinstance(parents.get(field), ast.Call)
        case ast.Subscript(value=value, slice=ast.Constant()):  # payload["key"]
            return value is node
        case ast.Compare(left=ast.Constant()) | ast.FormattedValue():  # "key" in payload, f"{payload}"
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
            return node in arguments and name in _LOGGING_FUNCTIONS
    return False


# --- methods and calls --------------------------------------------------------------------------


def _find_losses_in_methods(old: AgentDefinition, new: AgentDefinition) -> Iterator[_Loss]:
    """Yield the input and output schemas, return types and results of methods of which less is known than before."""
    for was in old.methods:
        now = new.method(was.name)
        if not was.has_schema or now is None:
            continue
        what = f"{new.name}.{was.name}"
        span = now.schema_span or now.span
        yield from _find_losses_in_schema(f"The input schema of {what}", was.input_schema, now.input_schema, span)
        yield from _find_losses_in_schema(f"The output schema of {what}", was.output_schema, now.output_schema, span)
        if was.returns.kind not in _VAGUE_KINDS and now.returns.kind in _VAGUE_KINDS:
            yield _Loss(f"The annotated return type of {what}", now.span)
        if _is_result_known(was) and not _is_result_known(now):
            yield _Loss(f"The result of {what}", next(each.span for each in now.returned if not _is_known_return(each)))


def _is_result_known(method: MethodSpec) -> bool:
    """True if no `return` of a method gives a value with unknown fields."""
    return all(map(_is_known_return, method.returned))


def _is_known_return(returned: Returned) -> bool:
    """True for a `return` whose value has no unknown fields."""
    of, shape = returned.type, returned.shape
    return of.kind not in _VAGUE_KINDS and (of.kind != "dict" or bool(of.args)) and (shape is None or not shape.is_open)


def _find_losses_in_calls(old: AgentDefinition, new: AgentDefinition) -> Iterator[_Loss]:
    """Yield the calls with an unknown argument if the arguments of this method were known, and calls that are computed now.

    The agent or method of a computed call is not constant. It counts only if some known call is made in fewer places.
    """
    was, now = (Counter((each.agent, each.method, each.has_unknown) for each in agent.calls) for agent in (old, new))
    known = {(agent, method) for agent, method, has_unknown in was if not has_unknown}
    for each in new.calls:
        key = (each.agent, each.method, each.has_unknown)
        is_more = each.has_unknown and now[key] > was[key]
        is_computed = not each.agent or not each.method
        if is_more and (_has_fewer_known_calls(was, now) if is_computed else key[:2] in known):
            what = "The method" if is_computed else f"An argument of {each.agent}.{each.method}"
            yield _Loss(f"{what} that {new.name} calls", each.span)


def _has_fewer_known_calls(was: Mapping[tuple[str, str, bool], int], now: Mapping[tuple[str, str, bool], int]) -> bool:
    """True if a known call is made in fewer places than before."""
    return any(now.get(key, 0) < count for key, count in was.items() if not key[2])


# --- schemas ------------------------------------------------------------------------------------


def _find_losses_in_schema(what: str, was: Schema | None, now: Schema | None, span: SourceSpan) -> Iterator[_Loss]:
    """Yield a schema of whose fields fewer are known than before, else the fields of whose types less is known.

    `what` is the subject of the sentence.
    """
    if was is not None and _rate_payload_knowledge(now) < _rate_payload_knowledge(was):
        yield _Loss(what, span)
    elif was is not None and now is not None:
        yield from _find_losses_in_fields(what, was, now, span)


def _find_losses_in_fields(what: str, was: Schema, now: Schema, span: SourceSpan) -> Iterator[_Loss]:
    """Yield the fields in both schemas whose type says less than before."""
    for field in now.fields:
        known = was.get(field.name)
        if known is not None and _rate_detail(field.type) < _rate_detail(known.type):
            yield _Loss(f"{what}, field {field.name!r},", span)


def _rate_detail(found: Type) -> int:
    """Return how much a type says: 0 nothing, 1 the kind of value, 2 also what is in it."""
    if found.kind in _VAGUE_KINDS:
        return 0
    return 2 if found.args or found.fields or found.values else 1


def check_agents(before: Project, after: Project, free: Container[str] = ()) -> Refusal | None:
    """Refuse a change that makes agents unreadable, or changes the set of agents (except `free` ones), arbiters or prompts."""
    known = {(error.code, str(error)) for error in before.errors}
    for error in after.errors:
        if (error.code, str(error)) not in known:
            where = error.where
            return Refusal("G4.agents", error.sentence, where.path if where else "", where.line if where else 0)
    names = [
        sorted(agent.name for agent in project.definitions if agent.name not in free) for project in (before, after)
    ]
    if names[0] != names[1]:
        changed = ", ".join(sorted(set(names[0]) ^ set(names[1])))
        return Refusal("G4.agents", f"These agents would appear or disappear: {changed}.")
    for old in before.definitions:
        new = after.agent(old.name)
        if new and (new.is_arbiter, new.system_prompt) != (old.is_arbiter, old.system_prompt):
            code, what = (
                ("G3.prompt", "prompt") if new.is_arbiter == old.is_arbiter else ("G3.arbiter", "role as arbiter")
            )
            return Refusal(code, f"The {what} of {old.name} would change.", new.path, new.span.line)
    return None


def check_findings(before: tuple[Finding, ...], after: tuple[Finding, ...]) -> Refusal | None:
    """Refuse the first new finding of the rules; findings of severity `info` do not count."""
    known = Counter(finding.key for finding in before)
    for finding in after:
        if known[finding.key] > 0:
            known[finding.key] -= 1
        elif finding.severity != "info":
            message = f"{finding.code}: {finding.message}"
            message = f"{message}. {finding.hint}" if finding.hint else message
            return Refusal("G4.finding", message, finding.span.path, finding.span.line)
    return None


def check_edges(before: Project, after: Project, declared: tuple[SchemaChange, ...]) -> Refusal | None:
    """Refuse a change if an agent loses its subscription to a topic that is still published, and `declared` lacks the topic."""
    kept = {(edge.source, edge.target, edge.label) for edge in after.graph.edges if edge.kind == "topic"}
    published = {(agent.name, item.topic) for agent in after.definitions for item in agent.publications}
    names = {change.method for change in declared}
    for edge in before.graph.edges:
        is_lost = edge.kind == "topic" and (edge.source, edge.target, edge.label) not in kept
        if is_lost and (edge.source, edge.label) in published and edge.label not in names:
            agent = after.agent(edge.target)
            message = f"{edge.target} would no longer get {edge.label!r}, which {edge.source} still publishes."
            return Refusal("G4.edge", message, agent.path if agent else "", agent.span.line if agent else 0)
    return None


_DEFAULT_RULES = tuple(code for code, rule in rules.REGISTER.items() if rule.is_default)


def findings_of(project: Project) -> tuple[Finding, ...]:
    """Return the findings of the default rules, whichever rules the project selects; `ignore` comments are respected."""
    return rules.check(project, select=_DEFAULT_RULES)


def findings_after(project: Project, before: Project, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings after a change; only agents that the change affects are checked again.

    Args:
        project: The project after the change.
        before: The project before it.
        found: The findings before it.
    """
    return check_again(project, before, found, select=_DEFAULT_RULES)


def check_declared(declared: tuple[SchemaChange, ...], actual: tuple[SchemaChange, ...]) -> Refusal | None:
    """Refuse contract changes that a proposal does not declare; one that declares nothing may change any contract."""
    names = {change.method for change in declared}
    undeclared = [change.method for change in actual if declared and change.method not in names]
    if undeclared:
        return Refusal("G4.undeclared", f"These contracts would change, but are not declared: {', '.join(undeclared)}.")
    return None


def schema_changes(before: Project, after: Project) -> tuple[SchemaChange, ...]:
    """Return every part of a contract that differs: a method, a topic, or an agent if something else in its contract differs.

    Agents that appear or disappear are left out.
    """
    found: list[SchemaChange] = []
    for old in before.definitions:
        new = after.agent(old.name)
        if new and new.contract_digest != old.contract_digest:
            found += list(_find_schema_changes(old, new)) or [SchemaChange(method=old.name)]
    return tuple(sorted(found, key=lambda change: change.method))


def _find_schema_changes(old: AgentDefinition, new: AgentDefinition) -> Iterator[SchemaChange]:
    """Yield the methods and topics of an agent whose schemas, payloads or reads differ."""
    specs = {spec.name: spec for spec in old.methods if spec.has_schema}
    fresh = {spec.name: spec for spec in new.methods if spec.has_schema}
    for name in sorted(specs.keys() | fresh.keys()):
        was, now = specs.get(name), fresh.get(name)
        change = SchemaChange(
            method=f"{old.name}.{name}",
            input_schema_before=was.input_schema if was else None,
            input_schema_after=now.input_schema if now else None,
            output_schema_before=was.output_schema if was else None,
            output_schema_after=now.output_schema if now else None,
        )
        if not was or not now or (was.input_schema, was.output_schema) != (now.input_schema, now.output_schema):
            yield change
    for topic, (sent_before, sent_after) in _changed_topics(_payloads_by_topic(old), _payloads_by_topic(new)):
        yield SchemaChange(method=topic, output_schema_before=sent_before, output_schema_after=sent_after)
    for topic, (read_before, read_after) in _changed_topics(_reads_by_topic(old), _reads_by_topic(new)):
        yield SchemaChange(method=topic, input_schema_before=read_before, input_schema_after=read_after)


def _changed_topics(
    before: Mapping[str, list[Schema]], after: Mapping[str, list[Schema]]
) -> Iterator[tuple[str, tuple[Schema | None, Schema | None]]]:
    """Yield (topic, (schema before, schema after)) for each topic whose schemas differ; None where it has none.

    Of several schemas of a topic, the first is given.
    """
    for topic in sorted(before.keys() | after.keys()):
        was, now = before.get(topic, []), after.get(topic, [])
        if Counter(map(str, was)) != Counter(map(str, now)):
            yield topic, (was[0] if was else None, now[0] if now else None)


def _payloads_by_topic(agent: AgentDefinition) -> dict[str, list[Schema]]:
    """Return the payloads that an agent publishes, by topic; an open schema for an unknown one."""
    found: dict[str, list[Schema]] = {}
    for item in agent.publications:
        if item.topic:
            found.setdefault(item.topic, []).append(item.payload or Schema(is_open=True))
    return found


def _reads_by_topic(agent: AgentDefinition) -> dict[str, list[Schema]]:
    """Return the fields that the handlers of an agent need, by topic: their parameters and the keys that they read."""
    found: dict[str, list[Schema]] = {}
    for item in agent.subscriptions:
        if item.topic:
            named = [Field(field.name, field.type, not field.has_default) for field in item.fields]
            keys = {read.key: Field(read.key, UNKNOWN, not read.is_optional) for read in item.reads}
            schema = Schema((*named, *(keys[key] for key in sorted(keys))), is_open=not item.reads_all_known)
            found.setdefault(item.topic, []).append(schema)
    return found
