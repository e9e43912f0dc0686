"""Contracts as live classes declare them, in the same terms as the compiler reads them from source text."""

from __future__ import annotations

from graphbus_core.decorators import DeclaredSchema, DeclaredTopic
from graphbus_core.model.agent import MethodSpec, SourceSpan
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.live import schema_of
from graphbus_core.schema.types import Schema

_NOWHERE = SourceSpan("", 0, 0, 0, 0)


def methods_of(node: type[GraphBusNode]) -> tuple[MethodSpec, ...]:
    """Give the methods with `@schema_method`, inherited ones included."""
    found = []
    for name in dir(node):
        declared = getattr(getattr(node, name, None), "__graphbus_schema__", None)
        if isinstance(declared, DeclaredSchema):
            found.append(
                MethodSpec(
                    name=name,
                    span=_NOWHERE,
                    has_schema=True,
                    input_schema=schema_of(declared.input_schema),
                    output_schema=schema_of(declared.output_schema),
                )
            )
    return tuple(found)


def topics_of(node: type[GraphBusNode]) -> dict[str, Schema | None]:
    """Give what `@publishes` declares on the class and its methods: topic -> payload."""
    found: dict[str, Schema | None] = {}
    for holder in (node, *(getattr(node, name, None) for name in dir(node))):
        declared = getattr(holder, "__graphbus_publishes__", ())
        for each in declared if isinstance(declared, tuple) else ():
            if isinstance(each, DeclaredTopic):
                found[each.topic] = schema_of(each.schema)
    return found
