"""Contracts of live classes, in the terms of the compiler."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

from graphbus_core import GraphBusNode, publishes, schema_method
from graphbus_core.hosting.members import methods_of, topics_of
from graphbus_core.schema.live import schema_of
from graphbus_core.schema.types import Type

TREE = """
import dataclasses
@dataclasses.dataclass
class {name}:
    value: int
    left: Expression
    right: Expression
"""


def records_in(of: Type) -> Iterator[Type]:
    if of.kind == "record":
        yield of
    for inner in (*of.args, *(each.type for each in of.fields)):
        yield from records_in(inner)


def test_classes_that_hold_each_other_in_many_ways_are_read_to_a_bounded_size() -> None:
    names = [f"Node{number}" for number in range(8)]
    text = "".join(TREE.format(name=name) for name in names)
    module = types.ModuleType("syntax_tree")
    sys.modules[module.__name__] = module
    try:
        exec(f"from __future__ import annotations\n{text}\nExpression = {' | '.join(names)}", vars(module))
        schema = schema_of({"tree": module.Node0, "other": module.Node1, "sku": str})
    finally:
        del sys.modules[module.__name__]
    assert schema is not None
    assert 2 <= sum(1 for each in schema.fields for _ in records_in(each.type)) <= 600
    assert [(each.name, each.type.kind) for each in schema.fields] == [
        ("tree", "record"),
        ("other", "record"),
        ("sku", "str"),
    ]
    left = next(each for each in schema.fields[0].type.fields if each.name == "left").type
    assert [each.name for each in left.args] == names


def test_methods_and_topics_of_a_class_and_its_bases_are_found() -> None:
    class Base(GraphBusNode):
        @schema_method(input_schema={"a": int})
        def inherited(self, a: int) -> None: ...

    @publishes("/A/Class", {"n": int})
    class Child(Base):
        @schema_method(output_schema={"b": str})
        @publishes("/A/Method")
        def own(self) -> dict[str, str]:
            return {}

    methods = {spec.name: (str(spec.input_schema), str(spec.output_schema)) for spec in methods_of(Child)}
    assert methods == {"inherited": ("{a: int}", "None"), "own": ("None", "{b: str}")}
    assert {topic: str(schema) for topic, schema in topics_of(Child).items()} == {
        "/A/Class": "{n: int}",
        "/A/Method": "None",
    }
