"""GB110, GB111, GB120: whether the values that agents send, pass and return fit what the agents at the other end accept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from graphbus_core.compiler.rules.edges import everything_sent_to, field_names_sent, find_topic_without_field
from graphbus_core.compiler.rules.names import (
    are_near,
    are_singular_and_plural,
    choice_data,
    is_short_form,
    missing_field_data,
    near_match,
    wrong_type_data,
)
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    Demand,
    Wiring,
    accepted_fields,
    describe_publication,
    fields_required_by_signature,
    is_written_in,
    make_finding,
)
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, Call, KeyRead, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding, Related
from graphbus_core.schema.compatibility import is_disjoint, misfit_reason
from graphbus_core.schema.paths import container_of
from graphbus_core.schema.types import Field, Schema, Type

# --- GB120: error shapes ------------------------------------------------------------------------

_STATUS_KEYS = frozenset({"status", "success", "succeeded", "ok", "is_ok", "is_success"})
_ERROR_KEYS = frozenset(
    {"error", "errors", "err", "error_message", "error_msg", "error_text", "error_detail"}
    | {"err_msg", "err_text", "errmsg"}
)
_FEWEST_AGENTS = 3


class Shape(NamedTuple):
    """How a method reports failure: the field for success or failure (empty if there is none), and the field with the reason."""

    status: str
    error: str

    def __str__(self) -> str:
        return "{" + ", ".join(filter(None, self)) + "}"


def shape_of(schema: Schema) -> Shape | None:
    """Return the error shape of an output schema; None unless it has exactly one error field and at most one status field."""
    status, error = schema.names & _STATUS_KEYS, schema.names & _ERROR_KEYS
    return Shape(next(iter(status), ""), next(iter(error))) if len(error) == 1 and len(status) <= 1 else None


def check_error_shapes(wiring: Wiring) -> Iterator[Finding]:
    """Report all methods without the usual error shape in one finding.

    A shape is usual if more than half of the agents with error shapes use it, and at least three agents have one.
    """
    reporting = [
        (agent.name, f"{agent.name}.{method.name}", method.schema_span or method.span, shape)
        for agent in wiring.agents.values()
        for method in agent.methods
        if method.output_schema and is_written_in(agent, method.span) and (shape := shape_of(method.output_schema))
    ]
    agents = {name for name, *_ in reporting}
    votes = Counter(shape for _, shape in dict.fromkeys((name, shape) for name, _, _, shape in reporting))
    usual, count = votes.most_common(1)[0] if len(agents) >= _FEWEST_AGENTS else (Shape("", ""), 0)
    unusual = [each for each in reporting if _is_unusual(each[-1], usual)] if count * 2 > len(agents) else []
    if unusual:
        agent, name, span, shape = unusual[0]
        models = [each for each in reporting if each[-1] == usual]
        yield make_finding(
            "GB120",
            agent,
            span,
            f"{name} reports errors as {shape}, most other agents as {usual}",
            f"Use {usual} everywhere, so that callers can treat all agents alike.",
            related=[
                Related(agent, span, f"{name} reports {shape}") for agent, name, span, shape in (*unusual[1:], *models)
            ],
        )


def _is_unusual(shape: Shape, usual: Shape) -> bool:
    """Return whether a shape names the error field differently from the usual one, or the status field where both have one."""
    return shape.error != usual.error or bool(shape.status and usual.status and shape.status != usual.status)


# --- GB110: values that are sent or passed ------------------------------------------------------

BY_NAME = frozenset({"positional", "keyword_only"})
"""The kinds of parameters that accept an argument by name, as calls over the bus pass them."""

_Accepted = Mapping[str, tuple[Demand, bool]]
"""Name -> field, and whether it is required, for the fields that a handler accepts; see `accepted_fields`."""


def check_handoff(wiring: Wiring) -> Iterator[Finding]:
    """Compare publications with handlers, and calls with the called methods, wherever both ends are known (GB110)."""
    for handler in wiring.checked_subscriptions:
        yield from _check_event(handler, wiring)
    for agent in wiring.checked_agents:
        for call in agent.calls:
            if is_written_in(agent, call.span):
                yield from _check_call(agent, call, wiring)
        yield from _check_unstated_handoff(agent, wiring)


def _check_event(handler: AgentSubscription, wiring: Wiring) -> Iterator[Finding]:
    """Compare what a handler accepts with the type of its Topic and with each publication that reaches it."""
    yield from _check_topic_type(handler)
    accepted = accepted_fields(handler)
    if accepted:
        yield from _check_unsent_fields(handler, wiring)
    seen: set[str] = set()
    for sent in wiring.publishers(handler.topic):
        for name, demand, reason in _find_misfits(handler, sent, accepted):
            what = repr(name) if name else "the payload"
            message = f"{handler.name} takes {what} of {sent.topic!r} from {sent.agent.name}, but {reason}"
            if message not in seen:
                seen.add(message)
                hint = "Make both ends of the topic agree on one type."
                data = _data_for_annotation(handler, name, wiring) or _data_for_misfit(handler, name, accepted)
                yield make_finding(
                    "GB110", handler.agent.name, demand, message, hint, related=[describe_publication(sent)], data=data
                )


def _data_for_misfit(handler: AgentSubscription, name: str, accepted: _Accepted) -> dict[str, str]:
    """Return the data for fixing a field that does not fit a handler; the empty name stands for the whole payload."""
    return wrong_type_data(name, accepted[name][0].type if name else handler.subscription.declared_type)


def _find_misfits(
    handler: AgentSubscription, sent: AgentPublication, accepted: _Accepted
) -> Iterator[tuple[str, SourceSpan, str]]:
    """Yield name, place in the handler, and reason for each field that does not fit a handler; name `""` is the whole payload.

    If a payload is inferred, one fitting type of a union is enough, since a condition may have excluded the others.
    """
    publication = sent.publication
    for name, (demand, _) in accepted.items() if publication.payload else ():
        reason = misfit_of_field(demand.type, name, publication.payload, is_narrowed=not publication.is_declared)
        if reason:
            yield name, demand.span, reason
    if publication.payload is None or (publication.payload.fields and not accepted):
        reason = misfit_reason(handler.subscription.declared_type, publication.payload_type, is_narrowed=True)
        if reason:
            yield "", handler.subscription.span, reason


def _data_for_annotation(handler: AgentSubscription, name: str, wiring: Wiring) -> dict[str, str] | None:
    """Return the data for annotating a field with the only type that publishers declare; None if there is no such type."""
    fields = handler.subscription.fields or handler.subscription.payload.fields
    parameter = next((each for each in fields if each.name == name), None)
    declared = [each.publication for each in wiring.publishers(handler.topic) if each.publication.is_declared]
    types = {field.type for each in declared if each.payload and (field := each.payload.get(name))}
    if parameter is None or len(types) != 1 or not all(misfit_reason(parameter.type, each) for each in types):
        return None  # or the annotation fits already
    return {"annotation": str(*types), "parameter": name, "record": handler.subscription.payload.name}


def _check_topic_type(handler: AgentSubscription) -> Iterator[Finding]:
    """Find a handler whose declared type does not accept the payload type of its own Topic."""
    wanted, promised = handler.subscription.declared_type, handler.subscription.promised
    reason = misfit_reason(wanted, promised) if promised.kind != "unknown" else None
    if reason:
        message = f"{handler.name} takes what the Topic {handler.topic!r} does not promise: {reason}"
        method = handler.agent.method(handler.subscription.method)
        last = [each.name for each in method.parameters][-1:] if method else []
        data = {"annotation": str(promised), "parameter": last[0]} if last and not handler.subscription.fields else None
        hint = _advise_on_topic_type(promised, handler)
        yield make_finding("GB110", handler.agent.name, handler.subscription.span, message, hint, data=data)


def _advise_on_topic_type(promised: Type, handler: AgentSubscription) -> str:
    """Return a hint for a handler that does not accept `promised`, the payload type of its Topic."""
    names = [parameter.name for parameter in handler.subscription.fields]
    if not names:
        return f"Annotate the parameter with {promised}, or correct the Topic."
    if promised.kind == "record":
        return f"The Topic has {', '.join(field.name for field in promised.fields)}."
    return f"{names[0]!r} is taken for a field of the payload; take one parameter 'payload' to get all of it."


def misfit_of_field(wanted: Type, name: str, given: Schema | None, *, is_narrowed: bool = True) -> str | None:
    """Return why a field of the schema `given` does not fit the wanted type; None if it may fit or does not exist."""
    field = given.get(name) if given else None
    return misfit_reason(wanted, field.type, is_narrowed=is_narrowed) if field else None


def _check_unsent_fields(handler: AgentSubscription, wiring: Wiring) -> Iterator[Finding]:
    """Find fields that a handler's signature requires and that no publisher of one of the handler's topics sends."""
    wanted = fields_required_by_signature(handler)
    own = [each for each in handler.agent.subscriptions if each.method == handler.subscription.method]
    everything = everything_sent_to(handler, wiring) if wanted else None
    for demand in wanted:
        topic, sent = find_topic_without_field(handler.topic, demand.name, wiring) or ("", ())
        # a field that is sent to none of the topics is reported once, at the first subscription
        if everything and demand.name not in field_names_sent(everything):
            topic, sent = handler.topic if own[0] == handler.subscription else "", everything
        if topic:
            known = field_names_sent(sent)
            similar = near_match(demand.name, known - accepted_fields(handler).keys())
            suggestion = f"Did you mean {similar!r}?" if similar else did_you_mean(demand.name, known).strip()
            used = {*handler.subscription.named, *accepted_fields(handler)} - {demand.name}
            yield make_finding(
                "GB110",
                handler.agent.name,
                demand.span,
                f"{handler.name} needs {demand.name!r}, which no publisher of {topic!r} sends",
                suggestion
                or f"Take a field that is sent ({', '.join(sorted(known)) or 'there is none'}), or send {demand.name!r} as well.",
                related=map(describe_publication, sent),
                data={"old": demand.name, "new": similar}
                if similar
                else {"missing": demand.name, **choice_data(known, used)},
            )


def _check_call(caller: AgentDefinition, call: Call, wiring: Wiring) -> Iterator[Finding]:
    """Find a call of a method that does not exist or has no `@schema_method`, and arguments that do not fit."""
    callee = wiring.agents.get(call.agent)
    if callee is None or not call.method:
        return
    method = callee.method(call.method)
    if callee is caller:
        yield from _check_own_call(caller, call, method)
    elif method is None or not method.has_schema:
        offered = [spec.name for spec in callee.methods if spec.has_schema]
        if method:
            what = f"{callee.name}.{call.method} has no @schema_method"
            hint = f"Only methods with a schema can be called: decorate {callee.name}.{call.method}."
        else:
            what = f"{callee.name} has no method {call.method!r}"
            hint = (
                did_you_mean(call.method, offered).strip()
                or f"Call one of its methods ({', '.join(offered) or 'there is none'}), or add this one."
            )
        related = [Related(callee.name, method.span if method else callee.name_span, callee.name)]
        message = f"{caller.name} calls {callee.name}.{call.method}, but {what}"
        similar = "" if method else near_match(call.method, offered)
        data = {"new": similar} if similar else choice_data(() if method else offered, ())
        data["called"] = call.method
        yield make_finding("GB110", caller.name, call.span, message, hint, related=related, data=data)
    elif method.input_schema is not None:
        yield from _check_arguments(caller, call, callee, method, method.input_schema)


def _check_own_call(agent: AgentDefinition, call: Call, method: MethodSpec | None) -> Iterator[Finding]:
    """Find arguments that do not fit where an agent passes another agent's result to a method of its own."""
    parameters = method.parameters if method else ()
    kinds = {each.kind for each in parameters}
    if method and not kinds & {"positional_only", "var_positional"}:
        fields = tuple(Field(each.name, each.type, not each.has_default) for each in parameters if each.kind in BY_NAME)
        yield from _check_arguments(agent, call, agent, method, Schema(fields, "var_keyword" in kinds))


def _check_arguments(
    caller: AgentDefinition, call: Call, callee: AgentDefinition, method: MethodSpec, wanted: Schema
) -> Iterator[Finding]:
    """Find arguments of a call that are missing, misnamed, not accepted, or of a type that does not fit the schema `wanted`."""
    name, place = f"{callee.name}.{method.name}", method.span if callee is caller else method.schema_span or method.span
    related = [Related(callee.name, place, f"{name} takes {wanted}")]
    for what, hint, data in _find_wrong_arguments(call, wanted):
        message = f"{caller.name} gives {name} {what}"
        more = {"agent": callee.name, "method": method.name} if "new" in data else {}
        yield make_finding("GB110", caller.name, call.span, message, hint, related=related, data=data | more)


def _find_wrong_arguments(call: Call, wanted: Schema) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield what is wrong with an argument, such as `no 'sku'`, a hint, and the data for a fix."""
    given = call.arguments
    unknown = [] if wanted.is_open else [each.name for each in given.fields if each.name not in wanted.names]
    missing = [field.name for field in wanted.fields if field.required and field.name not in given.names]
    renamed = {} if call.has_unknown else {field: near_match(field, unknown) for field in missing}
    is_single = bool(renamed) and len(missing) == len(unknown) == 1
    # one is missing and one is not accepted: if the types allow, they are the same argument, however different their names are
    if is_single and _may_be_same_field(wanted.get(missing[0]), given.get(unknown[0])):
        renamed = dict(zip(missing, unknown, strict=True))
    for field, near in renamed.items():
        if near:
            hint = f"Give both the same name, {near!r} or {field!r}."
            yield f"{near!r} instead of {field!r}", hint, {"old": field, "new": near}
        else:
            yield f"no {field!r}", f"Pass {field!r} as well.", missing_field_data(field, wanted)
    for field in (each for each in unknown if each not in renamed.values()):
        what = f"{field!r}, which it does not take"
        if field.isdecimal():  # a position that could not be given the name of a parameter
            what = f"an argument at position {int(field) + 1}, which it does not take, or which is named as well"
        yield what, did_you_mean(field, wanted.names).strip() or f"Pass only what it takes: {wanted}.", {}
    for each in wanted.fields:
        reason = misfit_of_field(each.type, each.name, given)
        if reason:
            data = wrong_type_data(each.name, each.type)
            yield f"an unfit {each.name!r}: {reason}", "Pass what the input_schema declares.", data


# --- GB111: keys that are read from results -----------------------------------------------------


def check_results(wiring: Wiring) -> Iterator[Finding]:
    """Find keys that callers read from results and answers, but that the other end neither declares nor returns (GB111)."""
    for agent in wiring.checked_agents:
        sources = [(f"{each.agent}.{each.method}", each.span, each.reads) for each in agent.calls]
        sources += [(each.topic, each.span, each.reads) for each in agent.publications if each.is_request]
        for name, span, reads in sources:
            if reads and is_written_in(agent, span):
                yield from _check_result_reads(agent.name, name, reads, wiring)


def _check_result_reads(reader: str, name: str, reads: tuple[KeyRead, ...], wiring: Wiring) -> Iterator[Finding]:
    """Find keys of a result that do not exist, keys that are read as attributes, and attributes that are read as keys.

    A key that is returned but not declared exists. An optional read, as by `get`, is reported only if a field has a similar name.

    Args:
        reader: The agent that reads.
        name: The result: `"Agent.method"`, or the topic of a request.
        reads: The keys that are read.
        wiring: The graph.
    """
    whole, method = wiring.results.type_of(name), wiring.results.method(name)
    if method is None:
        return
    returned = {key for each in method.returned if each.shape for key in each.shape.names}
    for read in {each.key: each for each in reversed(reads)}.values():
        container, key = container_of(whole, read.key)
        wrong = _describe_wrong_access(read, key, method, container, wiring)
        if wrong:
            what, why, hint = wrong
            message = f"{reader} reads {what} of what {name} gives, but {why}"
            data = {"access": hint.partition("`")[2].partition("`")[0]}
            yield make_finding("GB111", reader, read.span, message, hint, data=data)
            continue
        declared = [field.name for field in container.fields]
        similar = near_match(key, declared)
        if (
            container.kind == "record"
            and key not in {*declared, *(returned if key == read.key else ())}
            and (similar or not read.is_optional)
        ):
            message = f"{reader} reads {read.key!r} of what {name} gives, which has no such key"
            hint = (
                f"Did you mean {similar!r}?"
                if similar
                else f"Read one of its keys: {', '.join(declared) or 'there is none'}."
            )
            data = (
                {"old": key, "new": similar}
                if similar
                else {
                    "old": key,
                    "of": name,
                    "below": " ".join(each.key for each in reads),
                    **choice_data(declared, {each.key for each in reads} - {read.key}),
                }
            )
            place = method.schema_span or method.span
            related = [Related(name.partition(".")[0], place, f"{name} gives {whole}")]
            yield make_finding("GB111", reader, read.span, message, hint, related=related, data=data)


def _describe_wrong_access(
    read: KeyRead, key: str, method: MethodSpec, container: Type, wiring: Wiring
) -> tuple[str, str, str] | None:
    """Return what is read, why it fails and a hint, for a key of an object or an attribute of a dict; None if it may work.

    `key` is the last part of the path `read.key`, and `container` is the type of the value that should have the key.
    """
    if read.key != key:  # below another key
        return None
    names = [field.name for field in container.fields]
    similar = key if key in names else near_match(key, names)
    result = method.returns
    has_attributes = wiring.has_attributes(result.name) if result.kind == "record" else None
    if not read.is_optional and has_attributes and method.has_return_annotation:
        return f"the key {key!r}", f"{result.name} objects have attributes, no keys", f"Write `.{similar or key}`."
    is_dict = all(each.type.kind in ("dict", "record") and not each.type.name for each in method.returned)
    if read.is_attribute and key in names and method.returned and is_dict and not has_attributes:
        return f"the attribute {key!r}", "that is a dict", f"Write `[{key!r}]`."
    return None


# --- results that no code passes on -------------------------------------------------------------
#
# HelloService.generate_message returns {message: str}, PrinterService.print_message takes {msg: str}, and one depends on
# the other (seed 002, 5.1). No code passes the result on, so the pair is only reported if all of this holds: the schemas
# are equal except for one pair of similar names; no call or event shows where the input comes from; and no other method
# could be its source. Only a short form (msg of message) is enough evidence for a fix. Other similar names may mean
# different things and are reported as a note; singular and plural are never reported.


def _check_unstated_handoff(consumer: AgentDefinition, wiring: Wiring) -> Iterator[Finding]:
    """Find a method that seems to take the result of another agent's method, although one field has only a similar name there."""
    for taker in consumer.methods:
        wanted = taker.input_schema if is_written_in(consumer, taker.span) else None
        if wanted and not _has_other_source(consumer, taker, wiring):
            pairs = [
                (producer, giver, renamed)
                for producer in wiring.partners(consumer.name)
                for giver in producer.methods
                if giver.output_schema and (renamed := _find_renamed_field(wanted, giver.output_schema)) is not None
            ]
            if len(pairs) == 1 and pairs[0][2] and not are_singular_and_plural(*pairs[0][2]):
                yield _make_renamed_field_finding(consumer, taker, *pairs[0])


def _has_other_source(consumer: AgentDefinition, taker: MethodSpec, wiring: Wiring) -> bool:
    """Return whether an event or a call is the source of the method's input, or a call with a computed name may be."""
    is_handler = any(subscription.method == taker.name for subscription in consumer.subscriptions)
    possible = {(agent, method) for agent in ("", consumer.name) for method in ("", taker.name)}
    return is_handler or bool(possible & wiring.called_methods)


def _find_renamed_field(wanted: Schema, given: Schema) -> tuple[str, ...] | None:
    """Return `(wanted name, given name)` of the one field whose similar names differ in two schemas; `()` if all are equal.

    None unless all other fields have the same names in both schemas, and all types are known and fit.
    """
    if len(wanted.fields) != len(given.fields) or wanted.is_open or given.is_open:
        return None
    mine = [field for field in wanted.fields if field.name not in given.names]
    theirs = [field for field in given.fields if field.name not in wanted.names]
    same = [(field, other) for field in wanted.fields if (other := given.get(field.name))]
    if len(mine) > 1 or not all(_surely_fits(want, have) for want, have in [*same, *zip(mine, theirs, strict=True)]):
        return None
    if mine and not are_near(mine[0].name, theirs[0].name):
        return None
    return (mine[0].name, theirs[0].name) if mine else ()


def _surely_fits(wanted: Field, given: Field) -> bool:
    """Return whether the types of both fields are known and the given field's type fits the wanted one."""
    is_known = not {wanted.type.kind, given.type.kind} & {"unknown", "any"}
    return is_known and misfit_reason(wanted.type, given.type) is None


def _make_renamed_field_finding(
    consumer: AgentDefinition, taker: MethodSpec, producer: AgentDefinition, giver: MethodSpec, pair: tuple[str, ...]
) -> Finding:
    """Return the finding that two methods name one field differently; it has a fix only if one name is short for the other.

    `taker` is the method that takes the first name of `pair`, and `giver` the method whose result has the second.
    """
    wanted, given = pair
    source, target = f"{producer.name}.{giver.name}", f"{consumer.name}.{taker.name}"
    is_sure = is_short_form(wanted, given)
    hint = f"give both the same name, {given!r}."
    return make_finding(
        "GB110",
        consumer.name,
        next((item.span for item in taker.parameters if item.name == wanted), taker.span),
        f"{target} takes {wanted!r} where {source} gives {given!r}",
        f"G{hint[1:]}" if is_sure else f"If the one feeds the other, {hint}",
        related=[Related(producer.name, giver.schema_span or giver.span, f"{source} gives {giver.output_schema}")],
        severity="warning" if is_sure else "info",
        data={"old": wanted, "new": given, "agent": consumer.name, "method": taker.name} if is_sure else None,
    )


def _may_be_same_field(one: Field | None, other: Field | None) -> bool:
    """Return whether both fields exist and their types have values in common, so that one may be the other misnamed."""
    return one is not None and other is not None and not is_disjoint(one.type, other.type)
