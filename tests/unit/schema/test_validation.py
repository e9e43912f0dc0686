"""Values against types: what fits, and what is said of the rest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from graphbus_core.schema.json import freeze
from graphbus_core.schema.types import ANY, BOOL, BYTES, DICT, FLOAT, INT, LIST, NULL, STR, UNKNOWN, Field, Schema, Type
from graphbus_core.schema.validation import problems_in, problems_of
from graphbus_core.schema.values import has_nan_or_infinity

ITEM = Type("record", name="Item", fields=(Field("sku", STR), Field("qty", INT, required=False)))
LISTS = Type("list", args=(INT,))
OPTIONAL = Type("union", args=(STR, NULL))
CHOICE = Type("literal", values=("a", 1, None))

TYPES: list[tuple[Type, list[Any], list[Any]]] = [
    (UNKNOWN, [None, 1, object()], []),
    (ANY, [None, 1, object()], []),
    (Type("result", name="Pricing.quote", values=("amount",)), [None, 1, object()], []),
    (NULL, [None], [0, "", False]),
    (BOOL, [True, False], [0, 1, None]),
    (INT, [0, -3, 10**30], [True, 1.0, "1", None]),
    (FLOAT, [0.5, 1, -2], [True, "1", None]),
    (STR, ["", "x"], [b"x", 1, None]),
    (BYTES, [b"x"], ["x"]),
    (LIST, [[], (), [None]], [{}, "x", {1}]),
    (LISTS, [[], [1], (1, 2), freeze([1])], [["x"], [1, None], "1"]),
    (Type("set", args=(INT,)), [{1}, frozenset({1}), [1]], [{"x"}, "x"]),
    (Type("tuple"), [(), [1]], ["x", None]),
    (Type("tuple", args=(INT, STR)), [(1, "x"), [1, "x"]], [(1,), (1, 2), "1x"]),
    (DICT, [{}, MappingProxyType({}), freeze({"a": 1})], [[], "x"]),
    (Type("dict", args=(STR, INT)), [{}, {"a": 1}], [{"a": "x"}, {1: 1}, []]),
    (OPTIONAL, [None, "x"], [1]),
    (CHOICE, ["a", 1, None], ["b", True, 1.0, [], 2]),
    (ITEM, [{"sku": "x"}, {"sku": "x", "qty": 1, "more": 2}], [{}, {"sku": 1}, {"sku": "x", "qty": "1"}, None, []]),
]


@pytest.mark.parametrize(("wanted", "good", "bad"), TYPES, ids=[str(row[0]) + row[0].kind for row in TYPES])
def test_a_type_accepts_and_refuses(wanted: Type, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert problems_in(wanted, value) == ()
    for value in bad:
        assert problems_in(wanted, value), value


@dataclasses.dataclass
class Order:
    sku: str
    qty: int


class Struct(msgspec.Struct):
    sku: str
    qty: int


def test_typed_objects_are_looked_into() -> None:
    check = partial(problems_of, Schema((Field("sku", STR), Field("qty", INT))))
    for kind in (Order, Struct):
        assert check(kind("x", 1)) == ()
        assert [problem.path for problem in check(kind("x", "1"))] == ["qty"]
    assert check(object())[0].path == "the value"


@pytest.mark.parametrize(
    ("wanted", "value", "told"),
    [
        (INT, "x", ["f: expected int, got str 'x'"]),
        (INT, None, ["f: expected int, got None"]),
        (LISTS, [1, "x", 2, None], ["f[1]: expected int, got str 'x'", "f[3]: expected int, got None"]),
        (LISTS, "x", ["f: expected list[int], got str 'x'"]),
        (Type("list", args=(ITEM,)), [{"sku": 1}], ["f[0].sku: expected str, got int 1"]),
        (ITEM, {"skuu": "x"}, ["f.sku: expected str, got nothing. Is it 'skuu'?"]),
        (ITEM, 3, ["f: expected Item, got int 3"]),
        (Type("dict", args=(STR, INT)), {"a": "x"}, ["f.a: expected int, got str 'x'"]),
        (Type("dict", args=(STR, INT)), {1: 1}, ["f: expected dict[str, int], got dict {1: 1}"]),
        (OPTIONAL, 3, ["f: expected str | None, got int 3"]),
        (Type("union", args=(ITEM, NULL)), {"sku": 1}, ["f.sku: expected str, got int 1"]),
        (Type("union", args=(STR, INT)), [], ["f: expected str | int, got list []"]),
        (Type("tuple", args=(INT,)), (1, 2), ["f: expected tuple[int], got tuple (1, 2)"]),
        (CHOICE, "b", ["f: expected Literal['a', 1, None], got str 'b'"]),
        (INT, "y" * 100, ["f: expected int, got str '" + "y" * 56 + "..."]),
    ],
)
def test_a_refusal_names_path_expected_and_got(wanted: Type, value: Any, told: list[str]) -> None:
    assert [str(problem) for problem in problems_of(Schema((Field("f", wanted),)), {"f": value})] == told


def test_a_closed_schema_refuses_other_names_and_an_open_one_does_not() -> None:
    fields = (Field("sku", STR), Field("qty", INT, required=False))
    given = {"sku": "x", "qtyy": 1}
    assert problems_of(Schema(fields), given) == ()
    assert problems_of(Schema(fields, is_open=True), given, is_closed=True) == ()
    (problem,) = problems_of(Schema(fields), given, is_closed=True)
    assert str(problem) == "qtyy: expected one of sku, qty, got an unknown name. Did you mean 'qty'?"
    assert str(problems_of(Schema(), {"x": 1}, is_closed=True)[0]) == "x: expected no argument, got an unknown name"


def test_any_mapping_is_looked_into_as_a_dict() -> None:
    given: Mapping[str, Any] = MappingProxyType({"sku": "x"})
    assert problems_of(Schema((Field("sku", STR),)), given) == ()


def test_what_is_told_can_be_written_anywhere_and_obeyed_nowhere() -> None:
    names = ["\ud800", "\x1b[2J", "a\nb", "x" * 500]
    check = partial(problems_of, Schema(tuple(Field(name, INT) for name in names)), is_closed=True)
    for given in ({}, dict.fromkeys(names, "\ud800\x1b"), {name + "!": 1 for name in names}):
        told = "; ".join(map(str, check(given)))
        assert told.isprintable()
        assert told.encode()
    assert check({})[2].path == "a\\nb"


DEEP: list[object] = [math.nan]
for _ in range(5_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "is_so"),
    [
        (math.nan, True),
        (-math.inf, True),
        ({"a": [1, {"b": (2.0, math.inf)}]}, True),
        (DEEP, True),
        ({"a": [1.5, "nan", None, True, {}]}, False),
        (1e308, False),
    ],
)
def test_what_json_has_no_number_for_is_found(value: object, is_so: bool) -> None:
    assert has_nan_or_infinity(value) is is_so
