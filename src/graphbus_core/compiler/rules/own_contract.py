"""GB101 to GB106, GB201, GB202: the signature and the results of a method compared with its own schemas."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.contracts import BY_NAME, misfit_of_field
from graphbus_core.compiler.rules.names import missing_field_data, near_match, wrong_type_data
from graphbus_core.compiler.rules.wiring import Wiring, is_written_in, make_finding
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Parameter, Returned, SourceSpan
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.schema.compatibility import is_disjoint, misfit_reason
from graphbus_core.schema.types import Field, Schema

_KINDS_OTHER_THAN_MAPPING = frozenset({"bool", "int", "float", "str", "bytes", "list", "tuple", "set"})
_UNKNOWN = frozenset({"unknown", "any"})


def check_contracts(wiring: Wiring) -> Iterator[Finding]:
    """Compare methods with their schemas, each method once: its results, and its signature unless it is a handler."""
    for agent in wiring.checked_agents:
        handlers = {subscription.method for subscription in agent.subscriptions}
        for method in agent.methods:
            if method.has_schema and _is_reported_at(agent, method, wiring):
                contract = _MethodContract(agent, method, wiring.callers(agent.name, method.name))
                if method.name not in handlers:
                    yield from contract.check_names_of_inputs()
                    yield from contract.check_types_of_inputs()
                    yield from contract.check_annotations()
                yield from contract.check_results()


def _is_reported_at(agent: AgentDefinition, method: MethodSpec, wiring: Wiring) -> bool:
    """Return whether a method is reported at this agent: it defines the method, or is the first heir if no agent defines it."""
    if is_written_in(agent, method.span):
        return True
    inheriting = [other for other in wiring.agents.values() if any(spec.span == method.span for spec in other.methods)]
    return inheriting[0] is agent and not any(is_written_in(other, method.span) for other in inheriting)


class _MethodContract:
    """A method with `@schema_method`; each `check_...` method yields findings about it. `callers` are named in a hint."""

    def __init__(self, agent: AgentDefinition, method: MethodSpec, callers: tuple[str, ...]) -> None:
        self._agent = agent
        self._method = method
        self._name = f"{agent.name}.{method.name}"
        self._callers = callers
        span = method.schema_span
        self._place = span or method.span
        self._schema_place = (Related(agent.name, span, f"the schema of {self._name}"),) if span else ()

    def check_names_of_inputs(self) -> Iterator[Finding]:
        """Find fields of the input schema without a parameter (GB101), and required parameters without a field (GB102)."""
        schema, parameters = self._method.input_schema, self._method.parameters
        kinds = {parameter.kind for parameter in parameters}
        if schema is None or "positional_only" in kinds:
            return
        named = {item.name: item for item in parameters if item.kind in BY_NAME}
        unmatched = [] if "var_keyword" in kinds else [field for field in schema.fields if field.name not in named]
        needed = [
            item for item in named.values() if not (item.has_default or schema.is_open or item.name in schema.names)
        ]
        pairs = _pair_similar_names([field.name for field in unmatched], [item.name for item in needed])
        if len(unmatched) == len(needed) == 1 and not is_disjoint(unmatched[0].type, needed[0].type):
            pairs = {unmatched[0].name: needed[0].name}
        for field in unmatched:
            yield self._make_unaccepted_field_finding(field, named.get(pairs.get(field.name, "")))
        for parameter in needed:
            if parameter.name not in pairs.values():
                message = f"{self._name} needs {parameter.name!r}, which its input_schema does not declare"
                hint = f"Add {parameter.name!r} to the input_schema, or give the parameter a default."
                yield self._make_finding("GB102", parameter.span, message, hint, data={"parameter": parameter.name})

    def check_types_of_inputs(self) -> Iterator[Finding]:
        """Find fields for which the schema allows values, or their absence, that the parameter does not accept (GB106)."""
        schema = self._method.input_schema or Schema()
        for parameter in self._method.parameters:
            field = schema.get(parameter.name)
            if field is None or parameter.kind not in BY_NAME:
                continue
            name, reason = f"{self._name} takes {field.name!r}", misfit_reason(parameter.type, field.type)
            if reason:
                message = f"{name} as {parameter.type}, but its input_schema says {field.type}: {reason}"
                hint = "Make the schema and the annotation say the same."
                yield self._make_finding("GB106", parameter.span, message, hint, data={"contradicted": parameter.name})
            if not (field.required or parameter.has_default):
                message = f"{name} in any case, but its input_schema lets it be left out"
                hint = f"Give {field.name!r} a default, or do not mark it as NotRequired in the schema."
                yield self._make_finding("GB106", parameter.span, message, hint)

    def _make_unaccepted_field_finding(self, field: Field, similar: Parameter | None) -> Finding:
        """Return the finding (GB101) that no parameter takes a field; `similar` is the one that may be misnamed, or None."""
        message = f"{self._name} cannot take {field.name!r}, which its input_schema declares"
        if similar is None:
            hint = f"Add a parameter {field.name!r}, or remove the field from the schema."
            return make_finding("GB101", self._agent.name, self._place, message, hint)
        hint = f"Did you mean {similar.name!r}? Give both the same name."
        related = [Related(self._agent.name, similar.span, f"the parameter {similar.name!r}")]
        data = {"field": field.name, "parameter": similar.name}
        return make_finding("GB101", self._agent.name, self._place, message, hint, related=related, data=data)

    def check_annotations(self) -> Iterator[Finding]:
        """Find parameters without an annotation for which the schema declares a type (GB201)."""
        schema = self._method.input_schema or Schema()
        for parameter in self._method.parameters:
            field = schema.get(parameter.name)
            if field and not parameter.is_annotated and parameter.kind in BY_NAME and field.type.kind not in _UNKNOWN:
                message = f"{self._name} takes {field.name!r} without an annotation; its input_schema says {field.type}"
                hint = f"Annotate it: `{field.name}: {field.type}`."
                data = {"parameter": field.name, "method": self._name}
                yield make_finding("GB201", self._agent.name, parameter.span, message, hint, data=data)

    def check_results(self) -> Iterator[Finding]:
        """Find returned values that do not fit the output schema (GB103 to GB105), and a missing return annotation (GB202)."""
        schema, returned = self._method.output_schema, self._method.returned
        found = (
            [found for each in returned for found in self._check_returned_value(schema, each)]
            if schema and schema.fields
            else []
        )
        yield from {finding.message: finding for finding in reversed(found)}.values()  # of equal ones the first
        kinds = {each.type.kind for each in returned}
        if schema and not self._method.has_return_annotation and kinds and kinds <= {"dict", "record"}:
            message = f"{self._name} has no return annotation; its output_schema says that it returns a dict"
            data = {"method": self._name}
            hint = "Annotate it: `-> dict[str, Any]`."
            yield make_finding("GB202", self._agent.name, self._place, message, hint, data=data)

    def _check_returned_value(self, schema: Schema, returned: Returned) -> Iterator[Finding]:
        """Compare one returned value with the schema: the keys of a mapping, else whether it can be a mapping at all."""
        declares = f"but its output_schema declares {schema}"
        if returned.shape is not None:
            yield from self._check_keys(schema, returned.shape, returned.span)
        elif returned.type.kind == "null":
            hint = "Return the declared fields on every path, or raise."
            yield self._make_finding("GB105", returned.span, f"{self._name} may return None, {declares}", hint)
        elif all(
            each.kind in _KINDS_OTHER_THAN_MAPPING
            for each in (returned.type.args if returned.type.kind == "union" else (returned.type,))
        ):
            hint = "Return a dict with the declared fields."
            data = {"key": schema.fields[0].name} if len(schema.fields) == 1 else None
            message = f"{self._name} returns {returned.type}, {declares}"
            yield self._make_finding("GB104", returned.span, message, hint, data=data)

    def _check_keys(self, schema: Schema, shape: Schema, span: SourceSpan) -> Iterator[Finding]:
        """Find keys of a returned mapping that are missing, not declared by the schema, or of a type that does not fit."""
        required = [field.name for field in schema.fields if field.required]
        missing = [] if shape.is_open else [name for name in required if name not in shape.names]
        extra = [] if schema.is_open else sorted(shape.names - schema.names)
        pairs = _pair_similar_names(missing, extra)
        for name in missing:
            yield self._make_missing_key_finding(name, pairs.get(name, ""), span)
        for name in extra:
            if name not in pairs.values():  # only a note, since a running graph lets further fields pass
                message = f"{self._name} returns {name!r}, which its output_schema does not declare"
                hint = f"Add {name!r} to the output_schema, or do not return it."
                yield self._make_finding("GB103", span, message, hint, severity="info")
        for field in schema.fields:
            reason = misfit_of_field(field.type, field.name, shape)
            if reason:
                message = f"{self._name} returns {field.name!r} against its output_schema: {reason}"
                hint = "Return what is declared, or correct the schema."
                yield self._make_finding("GB103", span, message, hint, data=wrong_type_data(field.name, field.type))

    def _make_missing_key_finding(self, name: str, similar: str, span: SourceSpan) -> Finding:
        """Return the finding (GB103) that a key is missing, or that the `similar` key that is returned has the wrong name."""
        if not similar:
            message = f"{self._name} returns no {name!r}, which its output_schema declares"
            hint = f"Return {name!r} as well, or mark it as NotRequired in the schema."
            data = {**missing_field_data(name, self._method.output_schema or Schema()), "method": self._method.name}
            return self._make_finding("GB103", span, message, hint, data=data)
        message = f"{self._name} returns {similar!r} where its output_schema declares {name!r}"
        hint = f"Rename {similar!r} to {name!r}."
        if self._callers:
            hint = f"{hint[:-1]}, there and in what reads the result: {', '.join(self._callers)} may call it."
        data = {"old": similar, "new": name, "method": self._method.name}
        return self._make_finding("GB103", span, message, hint, data=data)

    def _make_finding(
        self,
        code: str,
        span: SourceSpan,
        message: str,
        hint: str,
        *,
        severity: Severity = "error",
        data: dict[str, str] | None = None,
    ) -> Finding:
        """Return a finding about the method, with the place of its schema as a related place."""
        related = self._schema_place
        return make_finding(code, self._agent.name, span, message, hint, severity=severity, related=related, data=data)


def _pair_similar_names(names: list[str], others: list[str]) -> dict[str, str]:
    """Return name -> other name for each pair of similar names, neither of which is similar to a further name."""
    found = {name: near for name in names if (near := near_match(name, others))}
    return {name: near for name, near in found.items() if near_match(near, names) == name}
