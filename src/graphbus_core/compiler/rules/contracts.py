"""GB101 to GB105, GB201 and GB202: a method against the contract that its `@schema_method` declares."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.compiler.rules.names import near_match
from graphbus_core.compiler.rules.wiring import Wiring, owns
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Parameter, Returned, SourceSpan
from graphbus_core.model.findings import Finding, Related, Severity
from graphbus_core.schema.compatibility import why_not
from graphbus_core.schema.types import Field, Schema

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
        if schema is None or self._is_handler or any(not self._is_plain(parameter) for parameter in method.parameters):
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

    @staticmethod
    def _is_plain(parameter: Parameter) -> bool:
        """Parameters that cannot be given by name make the whole signature special: nothing is said about it."""
        return parameter.kind != "positional_only"

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
            is_fixable=True,
        )  # fmt: skip

    def _parameter_without_field(self, parameter: Parameter) -> Finding:
        return self._finding(
            "GB102",
            parameter.span,
            f"{self._name} needs {parameter.name!r}, which its input_schema does not declare",
            f"Add {parameter.name!r} to the input_schema, or give the parameter a default.",
            related=self._schema_place(),
            data={"parameter": parameter.name},
            is_fixable=True,
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
        missing = (
            []
            if shape.is_open
            else [field.name for field in schema.fields if field.required and field.name not in shape.names]
        )
        extra = [] if schema.is_open else [name for name in shape.names if name not in schema.names]
        pairs = _pairs(missing, sorted(extra))
        for name in missing:
            yield self._missing_key(name, pairs.get(name, ""), span)
        for name in sorted(set(extra) - set(pairs.values())):
            yield self._extra_key(name, span)
        for field in schema.fields:
            given = shape.get(field.name)
            reason = why_not(field.type, given.type, is_narrowed=True) if given else None
            if reason:
                yield self._wrong_value(field.name, reason, span)

    def _missing_key(self, name: str, meant: str, span: SourceSpan) -> Finding:
        what = (
            f"returns {meant!r} where its output_schema declares {name!r}"
            if meant
            else (f"returns no {name!r}, which its output_schema declares")
        )
        return self._finding(
            "GB103",
            span,
            f"{self._name} {what}",
            self._how_to_rename(name, meant) if meant
            else f"Return {name!r} as well, or mark it as NotRequired in the schema.",
            related=self._schema_place(),
            data={"old": meant, "new": name} if meant else {},
            is_fixable=bool(meant) and not self._callers,
        )  # fmt: skip

    def _how_to_rename(self, declared: str, returned: str) -> str:
        """Callers may read either name: which one has to change is for people to say, then."""
        if not self._callers:
            return f"Rename {returned!r} to {declared!r}."
        who = ", ".join(self._callers)
        return f"Rename {returned!r} to {declared!r}, there and in what reads the result: {who} may call it."

    def _extra_key(self, name: str, span: SourceSpan) -> Finding:
        return self._finding(
            "GB103",
            span,
            f"{self._name} returns {name!r}, which its output_schema does not declare",
            f"Add {name!r} to the output_schema, or do not return it.",
            severity="info",  # a running graph lets further fields pass
            related=self._schema_place(),
        )

    def _wrong_value(self, name: str, reason: str, span: SourceSpan) -> Finding:
        return self._finding(
            "GB103",
            span,
            f"{self._name} returns {name!r} against its output_schema: {reason}",
            "Return what is declared, or correct the schema.",
            related=self._schema_place(),
        )

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
                    is_fixable=True,
                )
        if self._method.output_schema and not self._method.has_return_annotation and self._returns_mappings():
            yield self._finding(
                "GB202",
                self._method.schema_span or self._method.span,
                f"{self._name} has no return annotation; its output_schema says that it returns a dict",
                "Annotate it: `-> dict[str, Any]`.",
                severity="info",
                is_fixable=True,
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
        is_fixable: bool = False,
    ) -> Finding:
        return Finding(
            code=code,
            severity=severity,
            agent=self._agent.name,
            span=span,
            message=message,
            hint=hint,
            related=related,
            is_fixable=is_fixable,
            data={**(data or {}), "method": self._method.name} if is_fixable else {},
        )


def _pairs(names: list[str], others: list[str]) -> dict[str, str]:
    """Give the pairs of names that may be meant to be one, each name in one pair at most."""
    found = {name: near for name in names if (near := near_match(name, others))}
    return {name: near for name, near in found.items() if near_match(near, names) == name}


def _is_known(field: Field) -> bool:
    return field.type.kind not in {"unknown", "any"}
