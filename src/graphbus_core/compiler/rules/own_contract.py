"""GB101 to GB106, GB201, GB202: a method against its own contract."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.contracts import BY_NAME, misfit_of_field
from graphbus_core.compiler.rules.names import (
    data_of_missing,
    near_match,
)
from graphbus_core.compiler.rules.wiring import (
    Wiring,
    is_written_in,
    make_finding,
)
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Parameter, Returned, SourceSpan
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.schema.compatibility import is_disjoint, misfit_reason
from graphbus_core.schema.types import Field, Schema, Type

_NO_MAPPING = frozenset({"bool", "int", "float", "str", "bytes", "list", "tuple", "set"})
_OPEN = frozenset({"unknown", "any"})


def check_contracts(wiring: Wiring) -> Iterator[Finding]:
    """Compare signatures and results with schemas, each method once, where it is written."""
    for agent in wiring.asked_agents:
        handlers = {subscription.method for subscription in agent.subscriptions}
        for method in agent.methods:
            if method.has_schema and _is_reported_here(agent, method, wiring):
                contract = _Contract(agent, method, wiring.callers(agent.name, method.name))
                if method.name not in handlers:
                    yield from contract.inputs()
                    yield from contract.contradictions()
                    yield from contract.parameters_without_annotation()
                yield from contract.results()


def _is_reported_here(agent: AgentDefinition, method: MethodSpec, wiring: Wiring) -> bool:
    """An inherited method is reported at the agent that defines it, else at the first that inherits it."""
    if is_written_in(agent, method.span):
        return True
    heirs = [other for other in wiring.agents.values() if any(spec.span == method.span for spec in other.methods)]
    return heirs[0] is agent and not any(is_written_in(heir, method.span) for heir in heirs)


class _Contract:
    """One method with `@schema_method`."""

    def __init__(self, agent: AgentDefinition, method: MethodSpec, callers: tuple[str, ...]) -> None:
        self._agent = agent
        self._method = method
        self._name = f"{agent.name}.{method.name}"
        self._callers = callers
        span = method.schema_span
        self._place = span or method.span
        self._schema_place = (Related(agent.name, span, f"the schema of {self._name}"),) if span else ()

    def inputs(self) -> Iterator[Finding]:
        """Find fields that the method cannot take, and parameters that the schema cannot give."""
        schema, parameters = self._method.input_schema, self._method.parameters
        kinds = {parameter.kind for parameter in parameters}
        if schema is None or "positional_only" in kinds:
            return
        named = {item.name: item for item in parameters if item.kind in BY_NAME}
        unmatched = [] if "var_keyword" in kinds else [field for field in schema.fields if field.name not in named]
        needed = [
            item for item in named.values() if not (item.has_default or schema.is_open or item.name in schema.names)
        ]
        pairs = _pairs([field.name for field in unmatched], [item.name for item in needed])
        if len(unmatched) == len(needed) == 1 and not is_disjoint(unmatched[0].type, needed[0].type):
            pairs = {unmatched[0].name: needed[0].name}
        for field in unmatched:
            yield self._field_without_parameter(field, named.get(pairs.get(field.name, "")))
        for parameter in needed:
            if parameter.name not in pairs.values():
                message = f"{self._name} needs {parameter.name!r}, which its input_schema does not declare"
                hint = f"Add {parameter.name!r} to the input_schema, or give the parameter a default."
                yield self._finding("GB102", parameter.span, message, hint, data={"parameter": parameter.name})

    def contradictions(self) -> Iterator[Finding]:
        """Find fields that the schema allows to be what the signature does not."""
        schema = self._method.input_schema or Schema()
        for parameter in self._method.parameters:
            field = schema.get(parameter.name)
            if field is None or parameter.kind not in BY_NAME:
                continue
            name, reason = f"{self._name} takes {field.name!r}", misfit_reason(parameter.type, field.type)
            if reason:
                message = f"{name} as {parameter.type}, but its input_schema says {field.type}: {reason}"
                hint = "Make the schema and the annotation say the same."
                yield self._finding("GB106", parameter.span, message, hint, data={"contradicted": parameter.name})
            if not (field.required or parameter.has_default):
                message = f"{name} in any case, but its input_schema lets it be left out"
                hint = f"Give {field.name!r} a default, or do not mark it as NotRequired in the schema."
                yield self._finding("GB106", parameter.span, message, hint)

    def _field_without_parameter(self, field: Field, meant: Parameter | None) -> Finding:
        message = f"{self._name} cannot take {field.name!r}, which its input_schema declares"
        if meant is None:
            hint = f"Add a parameter {field.name!r}, or remove the field from the schema."
            return make_finding("GB101", self._agent.name, self._place, message, hint)
        hint = f"Did you mean {meant.name!r}? Give both the same name."
        related = [Related(self._agent.name, meant.span, f"the parameter {meant.name!r}")]
        data = {"field": field.name, "parameter": meant.name}
        return make_finding("GB101", self._agent.name, self._place, message, hint, related=related, data=data)

    def parameters_without_annotation(self) -> Iterator[Finding]:
        """Find parameters whose annotation follows from the schema and is not there."""
        schema = self._method.input_schema or Schema()
        for parameter in self._method.parameters:
            field = schema.get(parameter.name)
            if field and not parameter.is_annotated and parameter.kind in BY_NAME and field.type.kind not in _OPEN:
                message = f"{self._name} takes {field.name!r} without an annotation; its input_schema says {field.type}"
                hint = f"Annotate it: `{field.name}: {field.type}`."
                data = {"parameter": field.name, "method": self._name}
                yield make_finding("GB201", self._agent.name, parameter.span, message, hint, severity="info", data=data)

    def results(self) -> Iterator[Finding]:
        """Find results that are not what the output schema declares, and an annotation that is not there."""
        schema, returned = self._method.output_schema, self._method.returned
        found = (
            [finding for each in returned for finding in self._result(schema, each)] if schema and schema.fields else []
        )
        yield from {finding.message: finding for finding in reversed(found)}.values()
        kinds = {each.type.kind for each in returned}
        if schema and not self._method.has_return_annotation and kinds and kinds <= {"dict", "record"}:
            message = f"{self._name} has no return annotation; its output_schema says that it returns a dict"
            data = {"method": self._name}
            hint = "Annotate it: `-> dict[str, Any]`."
            yield make_finding("GB202", self._agent.name, self._place, message, hint, severity="info", data=data)

    def _result(self, schema: Schema, returned: Returned) -> Iterator[Finding]:
        declares = f"but its output_schema declares {schema}"
        if returned.shape is not None:
            yield from self._different_keys(schema, returned.shape, returned.span)
        elif returned.type.kind == "null":
            hint = "Return the declared fields on every path, or raise."
            yield self._finding("GB105", returned.span, f"{self._name} may return None, {declares}", hint)
        elif all(each.kind in _NO_MAPPING for each in _choices_of(returned.type)):
            hint = "Return a dict with the declared fields."
            yield self._finding("GB104", returned.span, f"{self._name} returns {returned.type}, {declares}", hint)

    def _different_keys(self, schema: Schema, shape: Schema, span: SourceSpan) -> Iterator[Finding]:
        required = [field.name for field in schema.fields if field.required]
        missing = [] if shape.is_open else [name for name in required if name not in shape.names]
        extra = [] if schema.is_open else sorted(shape.names - schema.names)
        pairs = _pairs(missing, extra)
        for name in missing:
            yield self._missing_key(name, pairs.get(name, ""), span)
        for name in extra:
            if name not in pairs.values():  # a running graph lets further fields pass
                message = f"{self._name} returns {name!r}, which its output_schema does not declare"
                hint = f"Add {name!r} to the output_schema, or do not return it."
                yield self._finding("GB103", span, message, hint, severity="info")
        for field in schema.fields:
            reason = misfit_of_field(field.type, field.name, shape)
            if reason:
                message = f"{self._name} returns {field.name!r} against its output_schema: {reason}"
                hint = "Return what is declared, or correct the schema."
                yield self._finding("GB103", span, message, hint, data={"unfit": field.name})

    def _missing_key(self, name: str, meant: str, span: SourceSpan) -> Finding:
        """Report a missing key. If callers read the result, people decide which name changes."""
        if not meant:
            message = f"{self._name} returns no {name!r}, which its output_schema declares"
            hint = f"Return {name!r} as well, or mark it as NotRequired in the schema."
            data = {**data_of_missing(name, self._method.output_schema or Schema()), "method": self._method.name}
            return self._finding("GB103", span, message, hint, data=data)
        message = f"{self._name} returns {meant!r} where its output_schema declares {name!r}"
        hint = f"Rename {meant!r} to {name!r}."
        if self._callers:
            hint = f"{hint[:-1]}, there and in what reads the result: {', '.join(self._callers)} may call it."
        data = {"old": meant, "new": name, "method": self._method.name}
        return self._finding("GB103", span, message, hint, data=data)

    def _finding(
        self,
        code: str,
        span: SourceSpan,
        message: str,
        hint: str,
        *,
        severity: Severity = "error",
        data: dict[str, str] | None = None,
    ) -> Finding:
        related = self._schema_place
        return make_finding(code, self._agent.name, span, message, hint, severity=severity, related=related, data=data)


def _choices_of(of: Type) -> tuple[Type, ...]:
    return of.args if of.kind == "union" else (of,)


def _pairs(names: list[str], others: list[str]) -> dict[str, str]:
    """Return the pairs of names that may be meant to be one, each name in one pair at most."""
    found = {name: near for name in names if (near := near_match(name, others))}
    return {name: near for name, near in found.items() if near_match(near, names) == name}
