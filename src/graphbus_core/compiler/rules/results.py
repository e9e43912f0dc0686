"""Replaces types of the kind `result` by what the called method or the handler of a request returns.

Type("result", name="Pricing.quote", values=("amount",))   ->   float, if Pricing.quote declares {amount: float}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec.structs import replace

from graphbus_core.model.agent import AgentDefinition, Call, MethodSpec, Publication, Returned
from graphbus_core.schema.types import ITEM, UNKNOWN, Field, Schema, Type, union

_MOST_STEPS = 4
"""From the result of one method to that of another which it returns."""


class Results:
    """What each method and each request of a graph gives.

    Args:
        agents: The definitions by name, as they were read.
    """

    def __init__(self, agents: Mapping[str, AgentDefinition]) -> None:
        self._agents = agents

    def method(self, name: str) -> MethodSpec | None:
        """Return the method `"Agent.method"`, or the one that answers requests on a topic; None if there is not exactly one."""
        if name.startswith("/"):
            answering = self.responders(name)
            return self.method(".".join(answering[0])) if len(answering) == 1 else None
        agent, _, method = name.rpartition(".")
        return self._agents[agent].method(method) if agent in self._agents else None

    def responders(self, topic: str) -> tuple[tuple[str, str], ...]:
        """Return agent and method of the handlers that answer requests: those of this exact topic; if several, not `-> None`."""
        exact = self._handlers.get(topic, [])
        return tuple(each for each in exact if len(exact) == 1 or self._may_answer(".".join(each)))

    def _may_answer(self, name: str) -> bool:
        spec = self.method(name)
        return spec is None or not spec.has_return_annotation or spec.returns.kind != "null"

    @cached_property
    def _handlers(self) -> dict[str, list[tuple[str, str]]]:
        handlers: dict[str, list[tuple[str, str]]] = {}
        for agent in self._agents.values():
            for each in agent.subscriptions:
                handlers.setdefault(each.topic, []).append((agent.name, each.method))
        return handlers

    def type_of(self, name: str, steps: int = 0) -> Type:
        """Return what a method or a request gives: what is declared, else what can be read; unknown if neither is known."""
        spec = self.method(name)
        if spec is None or steps > _MOST_STEPS:
            return UNKNOWN
        if spec.output_schema is not None and spec.output_schema.fields:
            return UNKNOWN if spec.output_schema.is_open else Type("record", fields=spec.output_schema.fields)
        if spec.has_return_annotation and spec.returns.kind not in ("unknown", "any", "dict"):
            return spec.returns
        shapes = [self.resolved(each.type, steps + 1) for each in spec.returned]
        if not shapes or any(each.kind != "record" for each in shapes):
            return spec.returns if spec.has_return_annotation else union(*shapes) if shapes else UNKNOWN
        fields: dict[str, Field] = {}
        for each in (field for shape in shapes for field in shape.fields):
            known = fields.get(each.name, each)
            fields[each.name] = Field(
                each.name, union(known.type, each.type), all(each.name in _names(of) for of in shapes)
            )
        return Type("record", fields=tuple(fields.values()))

    def resolved(self, of: Type, steps: int = 0) -> Type:
        """Return the type with all results in it replaced."""
        if not _has_result(of):
            return of
        if of.kind != "result":
            args = tuple(self.resolved(each, steps) for each in of.args)
            fields = tuple(replace(each, type=self.resolved(each.type, steps)) for each in of.fields)
            return union(*args) if of.kind == "union" else replace(of, args=args, fields=fields)
        found = self.type_of(of.name, steps)
        for key in of.values:
            found = _entry_of(found, str(key))
        return found

    def resolved_agent(self, agent: AgentDefinition) -> AgentDefinition:
        """Return the definition with all results in it replaced."""
        if not agent.calls and not any(each.is_request for each in agent.publications):
            return agent
        return replace(
            agent,
            methods=tuple(replace(each, returned=tuple(map(self._returned, each.returned))) for each in agent.methods),
            publications=tuple(map(self._publication, agent.publications)),
            calls=tuple(map(self._call, agent.calls)),
        )

    def _returned(self, returned: Returned) -> Returned:
        schema, of = self._schema(returned.shape), self.resolved(returned.type)
        if schema is returned.shape:
            return replace(returned, type=of)
        return replace(returned, shape=schema, type=Type("record", fields=schema.fields) if schema else of)

    def _publication(self, sent: Publication) -> Publication:
        schema = self._schema(sent.payload)
        whole = sent.payload.rest if sent.payload and not sent.payload.fields and schema is None else ()
        return replace(sent, payload=schema, type=self.resolved(whole[0] if whole else sent.type))

    def _call(self, call: Call) -> Call:
        schema = self._schema(call.arguments) or Schema(is_open=True)
        spec = self.method(f"{call.agent}.{call.method}") if call.agent else None
        named = {each.name for each in schema.fields}
        # what is given twice keeps its number, as what is too much does: no method takes it
        names = {at: each.name for at, each in enumerate(spec.parameters) if each.name not in named} if spec else {}
        fields = tuple(
            replace(each, name=names.get(int(each.name), each.name)) if each.name.isdecimal() else each
            for each in schema.fields
        )
        return replace(
            call, arguments=Schema(fields, rest=call.arguments.rest), has_unknown=call.has_unknown or schema.is_open
        )

    def _schema(self, schema: Schema | None) -> Schema | None:
        """The fields, with those of results among them; None for a result alone that is no mapping of known fields."""
        if schema is None or not (schema.rest or any(_has_result(each.type) for each in schema.fields)):
            return schema
        fields = {each.name: replace(each, type=self.resolved(each.type)) for each in schema.fields}
        rest = [self.resolved(each) for each in schema.rest]
        if not schema.fields and len(rest) == 1 and rest[0].kind != "record":
            return None
        further: Iterable[Field] = (each for of in rest for each in of.fields)
        is_open = any(of.kind != "record" for of in rest) or (schema.is_open and not schema.rest)
        return Schema(tuple(({each.name: each for each in further} | fields).values()), is_open)


def _names(of: Type) -> frozenset[str]:
    return frozenset(field.name for field in of.fields if field.required)


def container_of(of: Type, path: str) -> tuple[Type, str]:
    """Return what holds the last key of a path such as `bookings[].text`, and that key."""
    *parts, key = path.replace(ITEM, f".{ITEM}").split(".")
    for part in parts:
        of = _entry_of(of, part)
    return of, key


def _entry_of(of: Type, key: str) -> Type:
    """Return what is below a key, or `ITEM` for an item; unknown where that is not known."""
    if key == ITEM:
        return of.args[0] if of.kind in ("list", "set") and of.args else UNKNOWN
    field = next((field.type for field in of.fields if field.name == key), UNKNOWN)
    return of.args[1] if of.kind == "dict" and of.args else field


def _has_result(of: Type) -> bool:
    return of.kind == "result" or any(map(_has_result, of.args)) or any(_has_result(each.type) for each in of.fields)
