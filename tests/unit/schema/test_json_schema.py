"""Types as JSON Schema, word for word; that it is true stands in tests/property/test_exported_schemas_are_true.py."""

from __future__ import annotations

import pytest

from graphbus_core.schema.json_schema import Writer
from graphbus_core.schema.types import ANY, BOOL, BYTES, DICT, FLOAT, INT, LIST, NULL, STR, UNKNOWN, Field, Schema, Type

ITEM = Type("record", name="Item", fields=(Field("sku", STR), Field("qty", INT, required=False)))
IN_PLACE = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "qty": {"type": "integer"}},
    "required": ["sku"],
}


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (UNKNOWN, {}),
        (ANY, {}),
        (STR, {"type": "string"}),
        (BYTES, {"type": "string", "contentEncoding": "base64"}),
        (Type("union", (STR, NULL)), {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Type("union"), {"not": {}}),
        (Type("literal", values=("a", 1)), {"enum": ["a", 1]}),
        (Type("literal"), {"not": {}}),
        (LIST, {"type": "array"}),
        (Type("list", (INT,)), {"type": "array", "items": {"type": "integer"}}),
        (Type("set", (INT,)), {"type": "array", "items": {"type": "integer"}}),
        (Type("tuple"), {"type": "array"}),
        (
            Type("tuple", (INT, FLOAT)),
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "number"}], "minItems": 2, "maxItems": 2},
        ),
        (DICT, {"type": "object"}),
        (Type("dict", (STR, ANY)), {"type": "object"}),
        (Type("dict", (STR, BOOL)), {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (
            Type("dict", (Type("literal", values=("a", "b")), STR)),
            {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "string"}},
        ),
        (ITEM, IN_PLACE),
    ],
    ids=str,
)
def test_types_are_described_as_json_schema(what: Type, expected: dict[str, object]) -> None:
    assert Writer().value(what) == expected


def test_draft_07_writes_tuples_in_its_own_way() -> None:
    assert Writer(dialect="draft-07").value(Type("tuple", (INT,))) == {
        "type": "array",
        "items": [{"type": "integer"}],
        "minItems": 1,
        "maxItems": 1,
    }


def test_a_record_may_stand_elsewhere() -> None:
    writer = Writer(lambda record: f"#/$defs/{record.name}")
    assert writer.value(ITEM) == {"$ref": "#/$defs/Item"}
    assert writer.record(ITEM) == IN_PLACE


OPEN, NEEDED, OPTIONAL = (
    Schema((Field("a", INT),), is_open=True),
    Schema((Field("a", INT),)),
    Schema((Field("a", INT, required=False),)),
)
A = {"properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("side", "schema", "expected"),
    [
        ("arguments", NEEDED, {"type": "object", **A, "required": ["a"], "additionalProperties": False}),
        ("arguments", OPEN, {"type": "object", **A, "required": ["a"]}),
        ("arguments", Schema(), {"type": "object", "additionalProperties": False}),
        ("result", NEEDED, {"type": "object", **A, "required": ["a"]}),
        ("result", OPTIONAL, {"type": "object", **A}),
        ("result", Schema(), {"type": ["object", "null"]}),
        ("payload", NEEDED, {"type": "object", **A, "required": ["a"]}),
        ("payload", OPTIONAL, {"type": ["object", "null"], **A}),
    ],
)
def test_what_is_not_listed_may_come_where_a_running_graph_lets_it(
    side: str, schema: Schema, expected: dict[str, object]
) -> None:
    assert getattr(Writer(), side)(schema) == expected
