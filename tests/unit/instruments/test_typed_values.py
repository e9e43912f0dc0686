"""What is typed at the prompt: words, data as JSON or pairs, and how both are completed."""

from __future__ import annotations

import pytest

from graphbus_core.cli.running.typed_values import describe_fields, field_words, pretty, read_value, snippet
from graphbus_core.schema.types import BOOL, INT, STR, Field, Schema, Type

LINE = Type("record", name="Line", fields=(Field("sku", STR), Field("note", STR, required=False)))
ORDER = Schema(
    (
        Field("order_id", STR),
        Field("count", INT),
        Field("paid", BOOL),
        Field("kind", Type("literal", values=("fast", "slow"))),
        Field("gift", Type("union", args=(Type("null"), STR))),
        Field("lines", Type("list", args=(LINE,))),
        Field("tags", Type("list", args=(STR,))),
        Field("extra", Type("dict")),
        Field("rest", Type("unknown")),
        Field("later", STR, required=False),
    )
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("  ", None),
        ("3", 3),
        ('{"a": 1}', {"a": 1}),
        ('["a"]', ["a"]),
        ("order_id=1001", {"order_id": "1001"}),
        ('order_id="1001"', {"order_id": "1001"}),
        ("order_id='10 01'", {"order_id": "10 01"}),
        ("count=3 paid=true", {"count": 3, "paid": True}),
        ("count=many", {"count": "many"}),
        ("unheard=3", {"unheard": 3}),
        ('lines=[{"sku": "a b"}]', {"lines": [{"sku": "a b"}]}),
        ("order_id=", {"order_id": ""}),
        ("order_id= count=1", {"order_id": "", "count": 1}),
        (r'later="x\" y"  count=1', {"later": 'x" y', "count": 1}),
        ('lines=[{"b": 1}, 2] count=1', {"lines": [{"b": 1}, 2], "count": 1}),
    ],
)
def test_data_is_json_or_pairs_and_text_where_the_schema_wants_text(text: str, value: object) -> None:
    assert read_value(text, ORDER) == value


@pytest.mark.parametrize("text", ["words", "{", '{"a": 1} b', "a=1 b", "=1", 'a="b', "a=[1, 2", 'a={"b": [1}'])
def test_data_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|key=value"):
        read_value(text, None)


def test_a_quote_that_is_not_closed_is_refused() -> None:
    with pytest.raises(ValueError, match="is not closed"):
        read_value("a='b", None)


def test_a_snippet_has_every_field_that_is_needed() -> None:
    assert snippet(ORDER) == (
        '{"order_id": "", "count": 0, "paid": false, "kind": "fast", "gift": "", "lines": [{"sku": ""}], '
        '"tags": [], "extra": {}, "rest": null}'
    )


@pytest.mark.parametrize(
    ("line", "text", "words"),
    [
        ("call A.b co", "co", ["count="]),
        ("call A.b count=1 co", "co", []),
        ('call A.b { "co', '"co', ['"count":']),
        ('call A.b { "count": 1, "co', '"co', []),
    ],
)
def test_names_of_fields_are_completed_once(line: str, text: str, words: list[str]) -> None:
    assert field_words(ORDER, line, text) == words


def test_long_values_are_folded_and_schemas_told_in_words() -> None:
    assert pretty({"a": 1}) == '{"a": 1}'
    assert pretty({"a": "x" * 80}).count("\n") == 2
    assert describe_fields(None) == ""
    assert describe_fields(Schema((Field("a", STR), Field("b", INT, required=False)))) == "a: str, b?: int"
