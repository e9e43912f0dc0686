"""Replaces types of the kind `result` by the type that the called method or the handler of a request returns.

Type("result", name="Pricing.quote", values=("amount",))   ->   float, if Pricing.quote declares {amount: float}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec.structs import replace

from graphbus_core.model.agent import AgentDefinition, Call, MethodSpec, Publication, Returned
from graphbus_core.schema.paths import type_at
from graphbus_core.schema.types import UNKNOWN, Field, Schema, Type, union

_MOST_STEPS = 4
"""How many methods are followed, each of which returns the result of the next; the limit also ends cycles."""


class Results:
    """The types that the methods and requests of a graph return. A `name` is `"Agent.method"` or the topic of a request.

    Args:
        agents: The definitions by name, as they were read.
    """

    def __init__(self, agents: Mapping[str, AgentDefinition]) -> None:
        self._agents = agents

    def method(self, name: str) -> MethodSpec | None:
        """Return the method of this name, or the only one that answers requests on this topic; None if none or several do."""
        if name.startswith("/"):
            answering = self.responders(name)
            return self.method(".".join(answering[0])) if len(answering) == 1 else None
        agent, _, method = name.rpartition(".")
        return self._agents[agent].method(method) if agent in self._agents else None

    def responders(self, topic: str) -> tuple[tuple[str, str], ...]:
        """Return `(agent, method)` of the handlers of exactly this topic; one with `-> None` counts only if it is alone."""
        exact = self._handlers.get(topic, [])
        return tuple(each for each in exact if len(exact) == 1 or self._may_answer(".".join(each)))

    def _may_answer(self, name: str) -> bool:
        """Return False if a method is annotated `-> None`, else True."""
        spec = self.method(name)
        return spec is None or not spec.has_return_annotation or spec.returns.kind != "null"

    @cached_property
    def _handlers(self) -> dict[str, list[tuple[str, str]]]:
        """Topic or pattern of a subscription -> `(agent, method)` of its handlers."""
        handlers: dict[str, list[tuple[str, str]]] = {}
        for agent in self._agents.values():
            for each in agent.subscriptions:
                handlers.setdefault(each.topic, []).append((agent.name, each.method))
        return handlers

    def type_of(self, name: str, steps: int = 0) -> Type:
        """Return the type of a method's result: the declared one, else that of the values that it returns.

        It is `UNKNOWN` if neither can be read, if the declared schema allows further keys, or after too many steps.

        Args:
            name: `"Agent.method"`.
            steps: The number of methods that were followed so far.
        """
        spec = self.method(name)
        if spec is None or steps > _MOST_STEPS:
            return UNKNOWN
        if spec.output_schema is not None and spec.output_schema.fields:
            return UNKNOWN if spec.output_schema.is_open else Type("record", fields=spec.output_schema.fields)
        if spec.has_return_annotation and spec.returns.kind not in ("unknown", "any", "dict"):
            return spec.returns
        shapes = [self.resolve(each.type, steps + 1) for each in spec.returned]
        if not shapes or any(each.kind != "record" for each in shapes):
            return spec.returns if spec.has_return_annotation else union(*shapes) if shapes else UNKNOWN
        # all returned values are mappings: join their fields; one that some of them lack is optional
        fields: dict[str, Field] = {}
        for each in (field for shape in shapes for field in shape.fields):
            known = fields.get(each.name, each)
            is_required = all(each.name in _required_names(shape) for shape in shapes)
            fields[each.name] = Field(each.name, union(known.type, each.type), is_required)
        return Type("record", fields=tuple(fields.values()))

    def resolve(self, unresolved: Type, steps: int = 0) -> Type:
        """Return a type in which all results are replaced; `steps` counts the methods that were followed so far."""
        if not _has_result(unresolved):
            return unresolved
        if unresolved.kind != "result":
            args = tuple(self.resolve(each, steps) for each in unresolved.args)
            fields = tuple(replace(each, type=self.resolve(each.type, steps)) for each in unresolved.fields)
            return union(*args) if unresolved.kind == "union" else replace(unresolved, args=args, fields=fields)
        found = self.type_of(unresolved.name, steps)
        return type_at(found, tuple(map(str, unresolved.values)))  # the path to the part of the result that is used

    def resolve_agent(self, agent: AgentDefinition) -> AgentDefinition:
        """Return a definition in which all results in methods, publications and calls are replaced."""
        if not agent.calls and not any(each.is_request for each in agent.publications):
            return agent
        return replace(
            agent,
            methods=tuple(map(self._resolve_method, agent.methods)),
            publications=tuple(map(self._resolve_publication, agent.publications)),
            calls=tuple(map(self._resolve_call, agent.calls)),
        )

    def _resolve_method(self, method: MethodSpec) -> MethodSpec:
        """Return a method with the results in its returned values replaced."""
        return replace(method, returned=tuple(map(self._resolve_returned, method.returned)))

    def _resolve_returned(self, returned: Returned) -> Returned:
        """Return a returned value with the results in it replaced; if its shape changes, its type is made from the new shape."""
        schema, resolved = self._resolve_schema(returned.shape), self.resolve(returned.type)
        if schema is returned.shape:
            return replace(returned, type=resolved)
        return replace(returned, shape=schema, type=Type("record", fields=schema.fields) if schema else resolved)

    def _resolve_publication(self, sent: Publication) -> Publication:
        """Return a publication with results replaced.

        If the payload is nothing but one result whose fields are not known, it becomes None, and `type` the type of the result.
        """
        schema = self._resolve_schema(sent.payload)
        whole = sent.payload.rest if sent.payload and not sent.payload.fields and schema is None else ()
        return replace(sent, payload=schema, type=self.resolve(whole[0] if whole else sent.type))

    def _resolve_call(self, call: Call) -> Call:
        """Return a call with results in its arguments replaced, and positional arguments named like their parameters."""
        schema = self._resolve_schema(call.arguments) or Schema(is_open=True)
        spec = self.method(f"{call.agent}.{call.method}") if call.agent else None
        named = {each.name for each in schema.fields}
        # a positional argument keeps its number if it is also passed by name or has no parameter; rules then report it
        names = {at: each.name for at, each in enumerate(spec.parameters) if each.name not in named} if spec else {}
        fields = tuple(
            replace(each, name=names.get(int(each.name), each.name)) if each.name.isdecimal() else each
            for each in schema.fields
        )
        return replace(
            call, arguments=Schema(fields, rest=call.arguments.rest), has_unknown=call.has_unknown or schema.is_open
        )

    def _resolve_schema(self, schema: Schema | None) -> Schema | None:
        """Return a schema with results replaced, and with the fields of each result that it unpacks.

        Return None if the schema is None, or is nothing but one unpacked result whose fields are not known.
        """
        if schema is None or not (schema.rest or any(_has_result(each.type) for each in schema.fields)):
            return schema
        fields = {each.name: replace(each, type=self.resolve(each.type)) for each in schema.fields}
        rest = [self.resolve(each) for each in schema.rest]
        if not schema.fields and len(rest) == 1 and rest[0].kind != "record":
            return None
        further: Iterable[Field] = (each for part in rest for each in part.fields)
        is_open = any(part.kind != "record" for part in rest) or (schema.is_open and not schema.rest)
        return Schema(tuple(({each.name: each for each in further} | fields).values()), is_open)


def _required_names(record: Type) -> frozenset[str]:
    """Return the names of the required fields of a record."""
    return frozenset(field.name for field in record.fields if field.required)


def _has_result(tested: Type) -> bool:
    """Return whether a type is of the kind `result` or contains such a type."""
    if tested.kind == "result":
        return True
    return any(map(_has_result, tested.args)) or any(_has_result(each.type) for each in tested.fields)
