"""GB110, GB111, GB120: contracts of agents against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from graphbus_core.compiler.rules.edges import everything_sent_to, lacking_topic, sent_names
from graphbus_core.compiler.rules.names import (
    are_near,
    are_one_and_many,
    choices_of,
    data_of_missing,
    is_short_form,
    near_match,
)
from graphbus_core.compiler.rules.results import container_of
from graphbus_core.compiler.rules.wiring import (
    AgentPublication,
    AgentSubscription,
    Demand,
    Wiring,
    accepted_fields,
    declared_demands,
    described,
    is_written_in,
    make_finding,
)
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, Call, KeyRead, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding, Related
from graphbus_core.schema.compatibility import is_disjoint, misfit_reason
from graphbus_core.schema.types import Field, Schema, Type

# --- GB120: error shapes ------------------------------------------------------------------------

_STATUS_KEYS = frozenset({"status", "success", "succeeded", "ok", "is_ok", "is_success"})
_ERROR_KEYS = frozenset(
    {
        "error",
        "errors",
        "err",
        "error_message",
        "error_msg",
        "error_text",
        "error_detail",
        "err_msg",
        "err_text",
        "errmsg",
    }
)
_FEWEST_AGENTS = 3


class Shape(NamedTuple):
    """How a method says that it failed: the field that tells success from failure (empty: none) and the one with the reason."""

    status: str
    error: str

    def __str__(self) -> str:
        return "{" + ", ".join(filter(None, self)) + "}"


def shape_of(schema: Schema) -> Shape | None:
    """Return the shape that an output schema declares; None when it is not clear which fields serve for it."""
    status, error = schema.names & _STATUS_KEYS, schema.names & _ERROR_KEYS
    return Shape(next(iter(status), ""), next(iter(error))) if len(error) == 1 and len(status) <= 1 else None


def check_error_shapes(wiring: Wiring) -> Iterator[Finding]:
    """Find agents that do not report errors like more than half of at least three agents."""
    reporting = [
        (agent.name, f"{agent.name}.{method.name}", method.schema_span or method.span, shape)
        for agent in wiring.agents.values()
        for method in agent.methods
        if method.output_schema and is_written_in(agent, method.span) and (shape := shape_of(method.output_schema))
    ]
    agents = {name for name, *_ in reporting}
    votes = Counter(shape for _, shape in dict.fromkeys((name, shape) for name, _, _, shape in reporting))
    usual, count = votes.most_common(1)[0] if len(agents) >= _FEWEST_AGENTS else (Shape("", ""), 0)
    odd = [each for each in reporting if _differs(each[-1], usual)] if count * 2 > len(agents) else []
    if odd:
        agent, name, span, shape = odd[0]
        models = [each for each in reporting if each[-1] == usual]
        yield make_finding(
            "GB120",
            agent,
            span,
            f"{name} reports errors as {shape}, most other agents as {usual}",
            f"Use {usual} everywhere, so that callers can treat all agents alike.",
            severity="info",
            related=[
                Related(agent, span, f"{name} reports {shape}") for agent, name, span, shape in (*odd[1:], *models)
            ],
        )


def _differs(shape: Shape, usual: Shape) -> bool:
    """True when another name is used for the same thing."""
    return shape.error != usual.error or bool(shape.status and usual.status and shape.status != usual.status)


# --- GB110: what is given and what is taken -----------------------------------------------------

BY_NAME = frozenset({"positional", "keyword_only"})
"""The kinds of parameters that can be given by name, as all arguments of a call over the bus are."""


def check_handoff(wiring: Wiring) -> Iterator[Finding]:
    """Compare what is handed over with what is taken, wherever both ends are known."""
    for heard in wiring.asked_subscriptions:
        yield from _event(heard, wiring)
    for agent in wiring.asked_agents:
        for call in agent.calls:
            if is_written_in(agent, call.span):
                yield from _call(agent, call, wiring)
        yield from _handed_on(agent, wiring)


def _event(heard: AgentSubscription, wiring: Wiring) -> Iterator[Finding]:
    yield from _against_promise(heard)
    accepted = accepted_fields(heard)
    if accepted:
        yield from _unsent_fields(heard, wiring)
    seen: set[str] = set()
    for sent in wiring.publishers(heard.topic):
        for name, demand, reason in _misfits(heard, sent, accepted):
            what = repr(name) if name else "the payload"
            message = f"{heard.name} takes {what} of {sent.topic!r} from {sent.agent.name}, but {reason}"
            if message not in seen:
                seen.add(message)
                hint = "Make both ends of the topic agree on one type."
                data = _against_declaration(heard, name, wiring) or {"unfit": name}
                yield make_finding(
                    "GB110", heard.agent.name, demand, message, hint, related=[described(sent)], data=data
                )


def _misfits(
    heard: AgentSubscription, sent: AgentPublication, accepted: Mapping[str, tuple[Demand, bool]]
) -> Iterator[tuple[str, SourceSpan, str]]:
    """Return what of an event does not fit its handler: its name, where it is taken, and why. What is declared is no guess.

    The name is empty for the whole payload.
    """
    publication = sent.publication
    for name, (demand, _) in accepted.items() if publication.payload else ():
        reason = misfit_of_field(demand.type, name, publication.payload, is_narrowed=not publication.is_declared)
        if reason:
            yield name, demand.span, reason
    if publication.payload is None or (publication.payload.fields and not accepted):
        reason = misfit_reason(heard.subscription.declared_type, publication.payload_type, is_narrowed=True)
        if reason:
            yield "", heard.subscription.span, reason


def _against_declaration(heard: AgentSubscription, name: str, wiring: Wiring) -> dict[str, str] | None:
    """Give the type that is declared for a parameter of a handler and that it does not take, for a fix."""
    parameter = next((each for each in heard.subscription.fields if each.name == name), None)
    declared = [each.publication for each in wiring.publishers(heard.topic) if each.publication.is_declared]
    given = {field.type for each in declared if each.payload and (field := each.payload.get(name))}
    if parameter is None or len(given) != 1 or not all(misfit_reason(parameter.type, each) for each in given):
        return None
    return {"annotation": str(*given), "parameter": name}


def _against_promise(heard: AgentSubscription) -> Iterator[Finding]:
    """Find a handler that takes something else than the Topic that it listens to promises."""
    wanted, promised = heard.subscription.declared_type, heard.subscription.promised
    reason = misfit_reason(wanted, promised) if promised.kind != "unknown" else None
    if reason:
        message = f"{heard.name} takes what the Topic {heard.topic!r} does not promise: {reason}"
        method = heard.agent.method(heard.subscription.method)
        last = [each.name for each in method.parameters][-1:] if method else []
        data = {"annotation": str(promised), "parameter": last[0]} if last and not heard.subscription.fields else None
        yield make_finding(
            "GB110", heard.agent.name, heard.subscription.span, message, _how_to_take(promised, heard), data=data
        )


def _how_to_take(promised: Type, heard: AgentSubscription) -> str:
    names = [parameter.name for parameter in heard.subscription.fields]
    if not names:
        return f"Annotate the parameter with {promised}, or correct the Topic."
    if promised.kind == "record":
        return f"The Topic has {', '.join(field.name for field in promised.fields)}."
    return f"{names[0]!r} is taken for a field of the payload; take one parameter 'payload' to get all of it."


def misfit_of_field(wanted: Type, name: str, given: Schema | None, *, is_narrowed: bool = True) -> str | None:
    """Describe why the field of a name does not fit a type; None where it may, or is not given."""
    field = given.get(name) if given else None
    return misfit_reason(wanted, field.type, is_narrowed=is_narrowed) if field else None


def _unsent_fields(heard: AgentSubscription, wiring: Wiring) -> Iterator[Finding]:
    """Fields that the signature of a handler asks for and that no publisher sends at all."""
    wanted = declared_demands(heard)
    own = [each for each in heard.agent.subscriptions if each.method == heard.subscription.method]
    everything = everything_sent_to(heard, wiring) if wanted else None
    for demand in wanted:
        topic, sent = lacking_topic(heard.topic, demand.name, wiring) or ("", ())
        if everything and demand.name not in sent_names(everything):  # by none of its topics: that is said once
            topic, sent = heard.topic if own[0] == heard.subscription else "", everything
        if topic:
            known = sent_names(sent)
            meant = near_match(demand.name, known - accepted_fields(heard).keys())
            guess = f"Did you mean {meant!r}?" if meant else did_you_mean(demand.name, known).strip()
            used = {*heard.subscription.named, *accepted_fields(heard)} - {demand.name}
            yield make_finding(
                "GB110",
                heard.agent.name,
                demand.span,
                f"{heard.name} needs {demand.name!r}, which no publisher of {topic!r} sends",
                guess or f"What is sent: {', '.join(sorted(known)) or 'nothing'}.",
                related=map(described, sent),
                data={"old": demand.name, "new": meant}
                if meant
                else {"missing": demand.name, **choices_of(known, used)},
            )


def _call(caller: AgentDefinition, call: Call, wiring: Wiring) -> Iterator[Finding]:
    callee = wiring.agents.get(call.agent)
    if callee is None or not call.method:
        return
    method = callee.method(call.method)
    if callee is caller:
        yield from _own_call(caller, call, method)
    elif method is None or not method.has_schema:
        offered = [spec.name for spec in callee.methods if spec.has_schema]
        if method:
            what = f"{callee.name}.{call.method} has no @schema_method"
            hint = f"Only methods with a schema can be called: decorate {callee.name}.{call.method}."
        else:
            what = f"{callee.name} has no method {call.method!r}"
            hint = did_you_mean(call.method, offered).strip() or f"It offers: {', '.join(offered) or 'nothing'}."
        related = [Related(callee.name, method.span if method else callee.name_span, callee.name)]
        message = f"{caller.name} calls {callee.name}.{call.method}, but {what}"
        meant = "" if method else near_match(call.method, offered)
        data = {"new": meant} if meant else choices_of(() if method else offered, ())
        data["called"] = call.method
        yield make_finding("GB110", caller.name, call.span, message, hint, related=related, data=data)
    elif method.input_schema is not None:
        name = f"{callee.name}.{method.name}"
        taken = Related(callee.name, method.schema_span or method.span, f"{name} takes {method.input_schema}")
        for message, hint, near in _arguments(call, name, method.input_schema):
            old, _, new = near.partition(" ")
            pair = {"old": old, "new": new, "agent": callee.name, "method": method.name} if new else None
            if not new and old in method.input_schema.names:
                pair = {"unfit": old} if near.endswith(" ") else data_of_missing(old, method.input_schema)
            yield make_finding(
                "GB110", caller.name, call.span, f"{caller.name} gives {message}", hint, related=[taken], data=pair
            )


def _own_call(agent: AgentDefinition, call: Call, method: MethodSpec | None) -> Iterator[Finding]:
    """Compare what another agent gave with the parameters of an own method that it is handed on to."""
    parameters = method.parameters if method else ()
    kinds = {each.kind for each in parameters}
    if method is None or kinds & {"positional_only", "var_positional"}:
        return
    fields = tuple(Field(each.name, each.type, not each.has_default) for each in parameters if each.kind in BY_NAME)
    taken = Related(agent.name, method.span, f"{agent.name}.{method.name} takes {Schema(fields)}")
    for message, hint, _ in _arguments(call, f"{agent.name}.{method.name}", Schema(fields, "var_keyword" in kinds)):
        yield make_finding("GB110", agent.name, call.span, f"{agent.name} gives {message}", hint, related=[taken])


def _arguments(call: Call, name: str, wanted: Schema) -> Iterator[tuple[str, str, str]]:
    """Return what is wrong with each argument: message, hint, `"declared given"` for near names, `"declared"` for none."""
    given = call.arguments.names
    unknown = (
        [] if wanted.is_open else [field.name for field in call.arguments.fields if field.name not in wanted.names]
    )
    missing = [field.name for field in wanted.fields if field.required and field.name not in given]
    renamed = {} if call.has_unknown else {field: near_match(field, unknown) for field in missing}
    if (
        renamed
        and len(missing) == len(unknown) == 1
        and _may_be_one(wanted.get(missing[0]), call.arguments.get(unknown[0]))
    ):
        renamed = dict(zip(missing, unknown, strict=True))  # it can be nothing else
    for field, near in renamed.items():
        if near:
            yield (
                f"{name} its {field!r} as {near!r}",
                f"Give both the same name, {near!r} or {field!r}.",
                f"{field} {near}",
            )
        else:
            yield f"{name} its {field!r} not at all", f"Pass {field!r} as well.", field
    for field in unknown:
        if field not in renamed.values():
            hint = did_you_mean(field, wanted.names).strip() or f"It takes {wanted}."
            if (
                field.isdecimal()
            ):  # of those by position, which have the names of parameters where there are any for them
                what = f"an argument at place {int(field) + 1}, which it does not take, or which is named as well"
            else:
                what = f"{field!r}, which it does not take"
            yield f"{name} {what}", hint, ""
    for each in wanted.fields:
        reason = misfit_of_field(each.type, each.name, call.arguments)
        if reason:
            yield f"{name} an unfit {each.name!r}: {reason}", "Pass what the input_schema declares.", f"{each.name} "


# --- GB111: what is read of results -----------------------------------------------------------------


def check_results(wiring: Wiring) -> Iterator[Finding]:
    """Compare the keys that are read of results and answers with what the other end declares."""
    for agent in wiring.asked_agents:
        asked = [(f"{each.agent}.{each.method}", each.span, each.reads) for each in agent.calls]
        asked += [(each.topic, each.span, each.reads) for each in agent.publications if each.is_request]
        for name, span, reads in asked:
            if reads and is_written_in(agent, span):
                yield from _unknown_keys(agent.name, name, reads, wiring)


def _unknown_keys(reader: str, name: str, reads: tuple[KeyRead, ...], wiring: Wiring) -> Iterator[Finding]:
    """What is returned though it is not declared can be read as well; what may be missing is meant if it is nearly a field."""
    whole, method = wiring.results.type_of(name), wiring.results.method(name)
    if method is None:
        return
    returned = {key for each in method.returned if each.shape for key in each.shape.names}
    for read in {each.key: each for each in reversed(reads)}.values():
        given, key = container_of(whole, read.key)
        wrong = _wrong_access(read, key, method, given, wiring)
        if wrong:
            what, why, hint = wrong
            yield make_finding(
                "GB111", reader, read.span, f"{reader} reads {what} of what {name} gives, but {why}", hint
            )
            continue
        declared = [field.name for field in given.fields]
        meant = near_match(key, declared)
        if (
            given.kind == "record"
            and key not in {*declared, *(returned if key == read.key else ())}
            and (meant or not read.is_optional)
        ):
            message = f"{reader} reads {read.key!r} of what {name} gives, which has no such key"
            hint = f"Did you mean {meant!r}?" if meant else f"What is there: {', '.join(declared) or 'nothing'}."
            data = (
                {"old": key, "new": meant}
                if meant
                else {"old": key, **choices_of(declared, {each.key for each in reads} - {read.key})}
            )
            place = method.schema_span or method.span
            related = [Related(name.partition(".")[0], place, f"{name} gives {whole}")]
            yield make_finding("GB111", reader, read.span, message, hint, related=related, data=data)


def _wrong_access(
    read: KeyRead, key: str, method: MethodSpec, given: Type, wiring: Wiring
) -> tuple[str, str, str] | None:
    """Describe what is read, why a key of an object or an attribute of a dict fails, and what to write; None where it may not."""
    if read.key != key:
        return None
    names = [field.name for field in given.fields]
    meant = key if key in names else near_match(key, names)
    is_attribute, of = read.is_optional and read.is_guarded, method.returns
    has_attributes = wiring.has_attributes(of.name) if of.kind == "record" else None
    if not read.is_optional and has_attributes and method.has_return_annotation:
        return f"the key {key!r}", f"{of.name} objects have attributes, no keys", f"Write `.{meant or key}`."
    is_dict = all(each.type.kind in ("dict", "record") and not each.type.name for each in method.returned)
    if is_attribute and key in names and method.returned and is_dict and not has_attributes:
        return f"the attribute {key!r}", "that is a dict", f"Write `[{key!r}]`."
    return None


# --- results that are handed on without a word in the code ------------------------------------
#
# HelloService.generate_message gives {message: str}, PrinterService.print_message takes {msg: str}, and one depends on the
# other (seed 002, 5.1). Nothing in the code says that the one feeds the other, so it is only reported when all of this
# holds: the two schemas are the same but for one pair of names that are nearly the same; no call or event shows where the
# input comes from; and no other method comes into question. Only a short form, msg of message, is evidence enough to mend
# it: what is nearly the same otherwise may well be another thing, so that it is a note; singular and plural surely are two.


def _handed_on(consumer: AgentDefinition, wiring: Wiring) -> Iterator[Finding]:
    for takes in consumer.methods:
        if (
            takes.input_schema
            and is_written_in(consumer, takes.span)
            and not _is_fed_otherwise(consumer, takes, wiring)
        ):
            pairs = [
                (producer, gives, renamed)
                for producer in wiring.partners(consumer.name)
                for gives in producer.methods
                if gives.output_schema
                and (renamed := _correspondence(takes.input_schema, gives.output_schema)) is not None
            ]
            if len(pairs) == 1 and pairs[0][2] and not are_one_and_many(*pairs[0][2]):
                yield _other_name(consumer, takes, *pairs[0])


def _is_fed_otherwise(consumer: AgentDefinition, takes: MethodSpec, wiring: Wiring) -> bool:
    """True when a call or an event shows, or may show, where the method gets its input from."""
    is_handler = any(subscription.method == takes.name for subscription in consumer.subscriptions)
    possible = {(agent, method) for agent in ("", consumer.name) for method in ("", takes.name)}
    return is_handler or bool(possible & wiring.called_methods)


def _correspondence(wanted: Schema, given: Schema) -> tuple[str, ...] | None:
    """Return the one pair of names that are nearly the same in two schemas, which else have the same fields; `()` for no pair.

    None unless every field has exactly one partner and every type is known and fits.
    """
    if len(wanted.fields) != len(given.fields) or wanted.is_open or given.is_open:
        return None
    mine = [field for field in wanted.fields if field.name not in given.names]
    theirs = [field for field in given.fields if field.name not in wanted.names]
    same = [(field, other) for field in wanted.fields if (other := given.get(field.name))]
    if len(mine) > 1 or not all(_fits(want, have) for want, have in [*same, *zip(mine, theirs, strict=True)]):
        return None
    if mine and not are_near(mine[0].name, theirs[0].name):
        return None
    return (mine[0].name, theirs[0].name) if mine else ()


def _fits(wanted: Field, given: Field) -> bool:
    is_known = not {wanted.type.kind, given.type.kind} & {"unknown", "any"}
    return is_known and misfit_reason(wanted.type, given.type) is None


def _other_name(
    consumer: AgentDefinition, takes: MethodSpec, producer: AgentDefinition, gives: MethodSpec, pair: tuple[str, ...]
) -> Finding:
    wanted, given = pair
    source, target = f"{producer.name}.{gives.name}", f"{consumer.name}.{takes.name}"
    is_sure = is_short_form(wanted, given)
    hint = f"give both the same name, {given!r}."
    return make_finding(
        "GB110",
        consumer.name,
        next((item.span for item in takes.parameters if item.name == wanted), takes.span),
        f"{target} takes {wanted!r} where {source} gives {given!r}",
        f"G{hint[1:]}" if is_sure else f"If the one feeds the other, {hint}",
        related=[Related(producer.name, gives.schema_span or gives.span, f"{source} gives {gives.output_schema}")],
        severity="warning" if is_sure else "info",
        data={"old": wanted, "new": given, "agent": consumer.name, "method": takes.name} if is_sure else None,
    )


def _may_be_one(one: Field | None, other: Field | None) -> bool:
    """Return whether two fields may be meant to be one, as far as their types say."""
    return one is not None and other is not None and not is_disjoint(one.type, other.type)
