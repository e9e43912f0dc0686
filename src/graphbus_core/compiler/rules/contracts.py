"""GB101 to GB105, GB110, GB120, GB201, GB202: a method against its own contract, and contracts against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from graphbus_core.compiler.rules.edges import described, everything_sent_to, sent_names
from graphbus_core.compiler.rules.names import are_near, are_one_and_many, is_short_form, near_match
from graphbus_core.compiler.rules.wiring import Heard, Wiring, accepted_fields, declared_demands, owns, report
from graphbus_core.errors import did_you_mean
from graphbus_core.model.agent import AgentDefinition, Call, MethodSpec, Parameter, Returned, SourceSpan
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.schema.compatibility import why_not
from graphbus_core.schema.types import Field, Schema

_STATUS_KEYS = frozenset({"status", "success", "succeeded", "ok", "is_ok", "is_success"})
_ERROR_KEYS = frozenset({"error", "errors", "err", "error_message", "error_msg", "err_msg", "errmsg"})
_FEWEST_AGENTS = 3


class Shape(NamedTuple):
    """How a method says that it failed: the field that tells success from failure (empty: none) and the one with the reason."""

    status: str
    error: str

    def __str__(self) -> str:
        return "{" + ", ".join(filter(None, self)) + "}"

    def differs(self, usual: Shape) -> bool:
        """True when another name is used for the same thing."""
        return self.error != usual.error or bool(self.status and usual.status and self.status != usual.status)


class Reporting(msgspec.Struct, frozen=True):
    """A method that declares how it reports errors."""

    agent: AgentDefinition
    method: MethodSpec
    shape: Shape

    def __str__(self) -> str:
        return f"{self.agent.name}.{self.method.name}"


def check_error_shapes(wiring: Wiring) -> Iterator[Finding]:
    """Find agents that do not report errors like most others; silent without a clear majority."""
    if not any(True for agent in wiring.asked for _ in _reports_of(agent)):
        return
    reporting = tuple(error_reports(wiring))
    usual = _usual_shape(reporting)
    odd = [each for each in reporting if usual and each.shape.differs(usual)]
    if not odd or usual is None:
        return
    first = odd[0]
    models = [each for each in reporting if each.shape == usual]
    yield report(
        "GB120",
        first.agent.name,
        first.method.schema_span or first.method.span,
        f"{first} reports errors as {first.shape}, most other agents as {usual}",
        f"Use {usual} everywhere, so that callers can treat all agents alike.",
        severity="info",
        related=tuple(
            Related(each.agent.name, each.method.schema_span or each.method.span, f"{each} reports {each.shape}")
            for each in [*odd[1:], *models]
        ),
        data={"status": usual.status, "error": usual.error},
    )


def error_reports(wiring: Wiring) -> Iterator[Reporting]:
    """Give every method whose output schema has exactly one field for the reason of a failure."""
    for agent in wiring.agents.values():
        yield from _reports_of(agent)


def _reports_of(agent: AgentDefinition) -> Iterator[Reporting]:
    for method in agent.methods:
        shape = shape_of(method.output_schema) if method.output_schema and owns(agent, method.span) else None
        if shape:
            yield Reporting(agent, method, shape)


def shape_of(schema: Schema) -> Shape | None:
    """Give the shape that an output schema declares; None when it is not clear which fields serve for it."""
    status, error = schema.names & _STATUS_KEYS, schema.names & _ERROR_KEYS
    return Shape(next(iter(status), ""), next(iter(error))) if len(error) == 1 and len(status) <= 1 else None


def _usual_shape(reporting: tuple[Reporting, ...]) -> Shape | None:
    """Give the shape that more than half of the agents use, of at least three; None without one."""
    votes = Counter({(each.agent.name, each.shape): 1 for each in reporting})
    shapes = Counter(shape for _, shape in votes)
    agents = {each.agent.name for each in reporting}
    if len(agents) < _FEWEST_AGENTS:
        return None
    shape, count = shapes.most_common(1)[0]
    return shape if count * 2 > len(agents) else None


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
                yield report("GB110", heard.agent.name, demand.span, message, hint, related=(described(sent),))


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
        yield report(
            "GB110",
            heard.agent.name,
            demand.span,
            f"{heard.name} needs {demand.name!r}, which no publisher of {heard.topic!r} sends",
            hint or f"What is sent: {', '.join(sorted(known)) or 'nothing'}.",
            related=map(described, sent),
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
    return report(
        "GB110",
        caller.name,
        call.span,
        f"{caller.name} calls {callee.name}.{call.method}, but {what}",
        hint,
        related=(Related(callee.name, method.span if method else callee.name_span, callee.name),),
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
        yield report(
            "GB110",
            caller.name,
            call.span,
            f"{caller.name} gives {name} its {field!r} {what}",
            f"Give both the same name, {near!r} or {field!r}." if near else f"Pass {field!r} as well.",
            related=(taken,),
            data={"old": field, "new": near, "agent": callee.name, "method": method.name} if near else None,
        )
    for field in unknown:
        if field not in renamed.values():
            hint = did_you_mean(field, wanted.names).strip() or f"It takes {wanted}."
            yield report(
                "GB110",
                caller.name,
                call.span,
                f"{caller.name} gives {name} {field!r}, which it does not take",
                hint,
                related=(taken,),
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
            yield report(
                "GB110", caller.name, call.span, message, "Pass what the input_schema declares.", related=(taken,)
            )


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
        return report(
            "GB110", self.consumer.name,
            parameter.span if parameter else self.takes.span,
            f"{target} takes {wanted!r} where {source} gives {given!r}",
            f"Give both the same name, {given!r}." if is_sure
            else f"If the one feeds the other, give both the same name, {given!r}.",
            related=(Related(self.producer.name, self.gives.schema_span or self.gives.span,
                             f"{source} gives {self.gives.output_schema}"),),
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


_BY_NAME = frozenset({"positional", "keyword_only"})
_NO_MAPPING = frozenset({"bool", "int", "float", "str", "bytes", "list", "tuple", "set"})


def check_contracts(wiring: Wiring) -> Iterator[Finding]:
    """Compare signatures and results with schemas, each method once, where it is written."""
    for agent in wiring.asked:
        handlers = {subscription.method for subscription in agent.subscriptions}
        for method in agent.methods:
            if method.has_schema and _is_reported_here(agent, method, wiring):
                callers = tuple(caller.name for caller in wiring.callers(agent.name, method.name))
                contract = _Contract(agent, method, is_handler=method.name in handlers, callers=callers)
                yield from contract.inputs()
                yield from contract.results()
                yield from contract.annotations()


def _is_reported_here(agent: AgentDefinition, method: MethodSpec, wiring: Wiring) -> bool:
    """An inherited method is reported at the agent that defines it, else at the first that inherits it."""
    if owns(agent, method.span):
        return True
    heirs = [other for other in wiring.agents.values() if any(spec.span == method.span for spec in other.methods)]
    return heirs[0] is agent and not any(owns(heir, method.span) for heir in heirs)


class _Contract:
    """One method with `@schema_method`."""

    def __init__(
        self, agent: AgentDefinition, method: MethodSpec, *, is_handler: bool, callers: tuple[str, ...]
    ) -> None:
        self._agent = agent
        self._method = method
        self._name = f"{agent.name}.{method.name}"
        self._is_handler = is_handler
        self._callers = callers

    # --- GB101, GB102 -------------------------------------------------------------------

    def inputs(self) -> Iterator[Finding]:
        """Find fields that the method cannot take, and parameters that the schema cannot give."""
        schema, method = self._method.input_schema, self._method
        if (
            schema is None
            or self._is_handler
            or any(parameter.kind == "positional_only" for parameter in method.parameters)
        ):
            return
        parameters = {item.name: item for item in method.parameters if item.kind in _BY_NAME}
        takes_more = any(item.kind == "var_keyword" for item in method.parameters)
        unmatched = [] if takes_more else [field for field in schema.fields if field.name not in parameters]
        needed = (
            []
            if schema.is_open
            else [item for item in parameters.values() if not item.has_default and item.name not in schema.names]
        )
        pairs = _pairs([field.name for field in unmatched], [item.name for item in needed])
        for field in unmatched:
            yield self._field_without_parameter(field, pairs.get(field.name, ""))
        for parameter in needed:
            if parameter.name not in pairs.values():
                yield self._parameter_without_field(parameter)

    def _field_without_parameter(self, field: Field, meant: str) -> Finding:
        parameter = next((item for item in self._method.parameters if item.name == meant), None)
        return self._finding(
            "GB101",
            self._method.schema_span or self._method.span,
            f"{self._name} cannot take {field.name!r}, which its input_schema declares",
            f"Did you mean {meant!r}? Give both the same name." if meant
            else f"Add a parameter {field.name!r}, or remove the field from the schema.",
            related=(Related(self._agent.name, parameter.span, f"the parameter {meant!r}"),) if parameter else (),
            data={"field": field.name, "parameter": meant, "required": str(field.required)},
        )  # fmt: skip

    def _parameter_without_field(self, parameter: Parameter) -> Finding:
        return self._finding(
            "GB102",
            parameter.span,
            f"{self._name} needs {parameter.name!r}, which its input_schema does not declare",
            f"Add {parameter.name!r} to the input_schema, or give the parameter a default.",
            related=self._schema_place(),
            data={"parameter": parameter.name},
        )

    # --- GB103, GB104, GB105 ------------------------------------------------------------

    def results(self) -> Iterator[Finding]:
        """Find results that are not what the output schema declares."""
        schema = self._method.output_schema
        if schema is None or not schema.fields:
            return
        seen: set[str] = set()
        for returned in self._method.returned:
            for finding in self._result(schema, returned):
                if finding.message not in seen:
                    seen.add(finding.message)
                    yield finding

    def _result(self, schema: Schema, returned: Returned) -> Iterator[Finding]:
        if returned.shape is not None:
            yield from self._different_keys(schema, returned.shape, returned.span)
        elif returned.type.kind == "null":
            yield self._finding(
                "GB105",
                returned.span,
                f"{self._name} may return None, but its output_schema declares {schema}",
                "Return the declared fields on every path, or raise.",
                related=self._schema_place(),
            )
        elif returned.type.kind in _NO_MAPPING:
            yield self._finding(
                "GB104",
                returned.span,
                f"{self._name} returns {returned.type}, but its output_schema declares {schema}",
                "Return a dict with the declared fields.",
                related=self._schema_place(),
            )

    def _different_keys(self, schema: Schema, shape: Schema, span: SourceSpan) -> Iterator[Finding]:
        declared, returned = schema.names, shape.names
        required = [field.name for field in schema.fields if field.required]
        missing = [] if shape.is_open else [name for name in required if name not in returned]
        extra = [] if schema.is_open else sorted(returned - declared)
        pairs = _pairs(missing, extra)
        place = self._schema_place()
        for name in missing:
            yield self._missing_key(name, pairs.get(name, ""), span)
        for name in extra:
            if name not in pairs.values():
                message = f"{self._name} returns {name!r}, which its output_schema does not declare"
                hint = f"Add {name!r} to the output_schema, or do not return it."
                # a running graph lets further fields pass
                yield self._finding("GB103", span, message, hint, severity="info", related=place)
        for field in schema.fields:
            given = shape.get(field.name)
            reason = why_not(field.type, given.type, is_narrowed=True) if given else None
            if reason:
                message = f"{self._name} returns {field.name!r} against its output_schema: {reason}"
                yield self._finding(
                    "GB103", span, message, "Return what is declared, or correct the schema.", related=place
                )

    def _missing_key(self, name: str, meant: str, span: SourceSpan) -> Finding:
        """Callers may read either name: which one has to change is for people to say, then."""
        what = f"returns no {name!r}, which its output_schema declares"
        hint = f"Return {name!r} as well, or mark it as NotRequired in the schema."
        if meant:
            what = f"returns {meant!r} where its output_schema declares {name!r}"
            hint = f"Rename {meant!r} to {name!r}."
        if meant and self._callers:
            who = ", ".join(self._callers)
            hint = f"Rename {meant!r} to {name!r}, there and in what reads the result: {who} may call it."
        data = {"old": meant, "new": name} if meant and not self._callers else None
        return self._finding("GB103", span, f"{self._name} {what}", hint, related=self._schema_place(), data=data)

    # --- GB201, GB202 -------------------------------------------------------------------

    def annotations(self) -> Iterator[Finding]:
        """Find parameters and results whose annotation follows from the schema and is not there."""
        schema = self._method.input_schema
        for parameter in self._method.parameters if schema and not self._is_handler else ():
            field = schema.get(parameter.name) if schema else None
            if field and not parameter.is_annotated and parameter.kind in _BY_NAME and _is_known(field):
                yield self._finding(
                    "GB201",
                    parameter.span,
                    f"{self._name} takes {parameter.name!r} without an annotation; its input_schema says {field.type}",
                    f"Annotate it: `{parameter.name}: {field.type}`.",
                    severity="info",
                    data={"parameter": parameter.name},
                )
        if self._method.output_schema and not self._method.has_return_annotation and self._returns_mappings():
            yield self._finding(
                "GB202",
                self._method.schema_span or self._method.span,
                f"{self._name} has no return annotation; its output_schema says that it returns a dict",
                "Annotate it: `-> dict[str, Any]`.",
                severity="info",
                data={"method": self._method.name},
            )

    def _returns_mappings(self) -> bool:
        """True when every way out is known to give a mapping."""
        kinds = {returned.type.kind for returned in self._method.returned}
        return bool(kinds) and kinds <= {"dict", "record"}

    # ------------------------------------------------------------------------------------

    def _schema_place(self) -> tuple[Related, ...]:
        span = self._method.schema_span
        return (Related(self._agent.name, span, f"the schema of {self._name}"),) if span else ()

    def _finding(
        self,
        code: str,
        span: SourceSpan,
        message: str,
        hint: str,
        *,
        severity: Severity = "error",
        related: tuple[Related, ...] = (),
        data: dict[str, str] | None = None,
    ) -> Finding:
        data = {**data, "method": self._method.name} if data else None
        return report(code, self._agent.name, span, message, hint, severity=severity, related=related, data=data)


def _pairs(names: list[str], others: list[str]) -> dict[str, str]:
    """Give the pairs of names that may be meant to be one, each name in one pair at most."""
    found = {name: near for name in names if (near := near_match(name, others))}
    return {name: near for name, near in found.items() if near_match(near, names) == name}


def _is_known(field: Field) -> bool:
    return field.type.kind not in {"unknown", "any"}
