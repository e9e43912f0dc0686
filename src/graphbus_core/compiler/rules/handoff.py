"""GB110: what one agent gives does not fit what another takes, along events, calls and dependencies."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from graphbus_core.compiler.rules.demands import accepted_fields, declared_demands
from graphbus_core.compiler.rules.names import are_near, are_one_and_many, is_short_form, near_match
from graphbus_core.compiler.rules.reads import described, everything_sent_to, sent_names
from graphbus_core.compiler.rules.wiring import Heard, Wiring, owns
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, Call, MethodSpec, SourceSpan
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.schema.compatibility import why_not
from graphbus_core.schema.types import Field, Schema


def check_handoff(wiring: Wiring) -> Iterator[Finding]:
    """Compare what is handed over with what is taken, wherever both ends are known."""
    for heard in wiring.asked_heard:
        yield from _event(heard, wiring)
    for agent in wiring.asked:
        for call in agent.calls:
            if owns(agent, call.span):
                yield from _call(agent, call, wiring)
    for pair in _handed_on(wiring):
        yield pair.finding()


def _finding(
    agent: str,
    span: SourceSpan,
    message: str,
    hint: str,
    related: tuple[Related, ...],
    *,
    severity: Severity = "error",
    data: dict[str, str] | None = None,
) -> Finding:
    return Finding(
        code="GB110",
        severity=severity,
        agent=agent,
        span=span,
        message=message,
        hint=hint,
        related=related,
        is_fixable=bool(data),
        data=data or {},
    )


# --- events -------------------------------------------------------------------------------


def _event(heard: Heard, wiring: Wiring) -> Iterator[Finding]:
    yield from _missing_fields(heard, wiring)
    seen: set[str] = set()
    for sent in wiring.publishers(heard.topic) if heard.topic else ():
        payload = sent.publication.payload
        for demand in accepted_fields(heard) if payload else ():
            given = payload.get(demand.name) if payload else None
            reason = why_not(demand.type, given.type, is_narrowed=True) if given else None
            message = f"{heard.name} takes {demand.name!r} of {sent.topic!r} from {sent.agent.name}, but {reason}"
            if reason and message not in seen:
                seen.add(message)
                hint = "Make both ends of the topic agree on one type."
                yield _finding(heard.agent.name, demand.span, message, hint, (described(sent),))


def _missing_fields(heard: Heard, wiring: Wiring) -> Iterator[Finding]:
    """Fields that the signature of a handler asks for and that no publisher sends at all."""
    wanted = list(declared_demands(heard))
    sent = everything_sent_to(heard, wiring) if wanted else None
    if not sent:
        return
    known = sent_names(sent)
    free = known - {demand.name for demand in accepted_fields(heard)}
    for demand in wanted:
        if demand.name in known:
            continue
        meant = near_match(demand.name, free)
        hint = f"Did you mean {meant!r}?" if meant else did_you_mean(demand.name, known).strip()
        yield _finding(
            heard.agent.name,
            demand.span,
            f"{heard.name} needs {demand.name!r}, which no publisher of {heard.topic!r} sends",
            hint or f"What is sent: {', '.join(sorted(known)) or 'nothing'}.",
            tuple(described(each) for each in sent),
            data={"old": demand.name, "new": meant} if meant and demand.is_parameter else None,
        )


# --- calls --------------------------------------------------------------------------------


def _call(caller: AgentDefinition, call: Call, wiring: Wiring) -> Iterator[Finding]:
    callee = wiring.agents.get(call.agent)
    if callee is None or not call.method:
        return
    method = callee.method(call.method)
    if method is None or not method.has_schema:
        yield _not_callable(caller, call, callee, method)
    elif method.input_schema is not None:
        yield from _arguments(caller, call, callee, method, method.input_schema)


def _not_callable(caller: AgentDefinition, call: Call, callee: AgentDefinition, method: MethodSpec | None) -> Finding:
    offered = [spec.name for spec in callee.methods if spec.has_schema]
    if method is None:
        what = f"{callee.name} has no method {call.method!r}"
        hint = did_you_mean(call.method, offered).strip() or f"It offers: {', '.join(offered) or 'nothing'}."
    else:
        what = f"{callee.name}.{call.method} has no @schema_method"
        hint = f"Only methods with a schema can be called: decorate {callee.name}.{call.method}."
    return _finding(
        caller.name,
        call.span,
        f"{caller.name} calls {callee.name}.{call.method}, but {what}",
        hint,
        (Related(callee.name, method.span if method else callee.name_span, callee.name),),
    )


def _arguments(
    caller: AgentDefinition, call: Call, callee: AgentDefinition, method: MethodSpec, wanted: Schema
) -> Iterator[Finding]:
    given = call.arguments
    name = f"{callee.name}.{method.name}"
    taken = Related(callee.name, method.schema_span or method.span, f"{name} takes {wanted}")
    unknown = [] if wanted.is_open else [field.name for field in given.fields if field.name not in wanted.names]
    missing = [] if call.has_unknown else [
        field.name for field in wanted.fields if field.required and field.name not in given.names
    ]  # fmt: skip
    renamed = {field: near for field in missing if (near := near_match(field, unknown))}
    for field in missing:
        near = renamed.get(field, "")
        what = f"as {near!r}" if near else "not at all"
        yield _finding(
            caller.name,
            call.span,
            f"{caller.name} gives {name} its {field!r} {what}",
            f"Give both the same name, {near!r} or {field!r}." if near else f"Pass {field!r} as well.",
            (taken,),
            data={"old": field, "new": near, "agent": callee.name, "method": method.name} if near else None,
        )
    for field in unknown:
        if field not in renamed.values():
            hint = did_you_mean(field, wanted.names).strip() or f"It takes {wanted}."
            yield _finding(
                caller.name, call.span, f"{caller.name} gives {name} {field!r}, which it does not take", hint, (taken,)
            )
    yield from _argument_types(caller, call, name, wanted, taken)


def _argument_types(
    caller: AgentDefinition, call: Call, name: str, wanted: Schema, taken: Related
) -> Iterator[Finding]:
    for field in wanted.fields:
        given = call.arguments.get(field.name)
        reason = why_not(field.type, given.type, is_narrowed=True) if given else None
        if reason:
            message = f"{caller.name} gives {name} an unfit {field.name!r}: {reason}"
            yield _finding(caller.name, call.span, message, "Pass what the input_schema declares.", (taken,))


# --- results that are handed on without a word in the code ------------------------------------
#
# HelloService.generate_message gives {message: str}, PrinterService.print_message takes {msg: str}, and one depends on the
# other (seed 002, 5.1). Nothing in the code says that the one feeds the other, so it is only reported when all of this
# holds: the two schemas are the same but for one pair of names that are nearly the same; no call or event shows where the
# input comes from; and no other method comes into question. Only a short form, msg of message, is evidence enough to mend
# it: what is nearly the same otherwise may well be another thing, so that it is a note; singular and plural surely are two.


class _Pair(msgspec.Struct, frozen=True):
    producer: AgentDefinition
    gives: MethodSpec
    consumer: AgentDefinition
    takes: MethodSpec
    renamed: tuple[tuple[str, str], ...]

    def finding(self) -> Finding:
        wanted, given = self.renamed[0]
        source, target = f"{self.producer.name}.{self.gives.name}", f"{self.consumer.name}.{self.takes.name}"
        parameter = next((item for item in self.takes.parameters if item.name == wanted), None)
        is_sure = is_short_form(wanted, given)
        return _finding(
            self.consumer.name,
            parameter.span if parameter else self.takes.span,
            f"{target} takes {wanted!r} where {source} gives {given!r}",
            f"Give both the same name, {given!r}." if is_sure
            else f"If the one feeds the other, give both the same name, {given!r}.",
            (Related(self.producer.name, self.gives.schema_span or self.gives.span, f"{source} gives "
                     f"{self.gives.output_schema}"),),
            severity="warning" if is_sure else "info",
            data={"old": wanted, "new": given, "agent": self.consumer.name, "method": self.takes.name} if is_sure else None,
        )  # fmt: skip


def _handed_on(wiring: Wiring) -> Iterator[_Pair]:
    for consumer in wiring.asked:
        for takes in consumer.methods:
            if not takes.input_schema or not owns(consumer, takes.span) or _is_fed_otherwise(consumer, takes, wiring):
                continue
            candidates = list(_candidates(consumer, takes, takes.input_schema, wiring))
            if len(candidates) == 1 and any(not are_one_and_many(*pair) for pair in candidates[0].renamed):
                yield candidates[0]


def _is_fed_otherwise(consumer: AgentDefinition, takes: MethodSpec, wiring: Wiring) -> bool:
    """True when a call or an event shows, or may show, where the method gets its input from."""
    is_handler = any(subscription.method == takes.name for subscription in consumer.subscriptions)
    possible = {(agent, method) for agent in ("", consumer.name) for method in ("", takes.name)}
    return is_handler or bool(possible & wiring.called)


def _candidates(consumer: AgentDefinition, takes: MethodSpec, wanted: Schema, wiring: Wiring) -> Iterator[_Pair]:
    """Every method of an agent at the other end of a dependency whose result has just as many fields, named alike."""
    for producer in wiring.partners(consumer.name):
        for gives in producer.methods:
            renamed = _correspondence(wanted, gives.output_schema) if gives.output_schema else None
            if renamed is not None:
                yield _Pair(producer, gives, consumer, takes, renamed)


def _correspondence(wanted: Schema, given: Schema) -> tuple[tuple[str, str], ...] | None:
    """Pair the fields of two schemas: the same names, and at most one pair of names that are nearly the same.

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
    return tuple((want.name, have.name) for want, have in zip(mine, theirs, strict=True))


def _fits(wanted: Field, given: Field) -> bool:
    is_known = not {wanted.type.kind, given.type.kind} & {"unknown", "any"}
    return is_known and why_not(wanted.type, given.type) is None
