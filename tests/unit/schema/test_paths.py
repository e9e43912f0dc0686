"""Types of what is read by paths, and values whose classes only derive from builtin ones."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

from graphbus_core.schema.objects import needs_making
from graphbus_core.schema.paths import type_of_paths
from graphbus_core.schema.types import UNKNOWN, Field, Type
from graphbus_core.schema.values import members_of


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ({}, UNKNOWN),
        ({"[]": True}, UNKNOWN),
        ({"?": True}, UNKNOWN),
        ({"sku": False}, Type("record", fields=(Field("sku", UNKNOWN, required=False),))),
        (
            {"items[].sku": True},
            Type("record", fields=(Field("items", Type("list", (Type("record", fields=(Field("sku", UNKNOWN),)),))),)),
        ),
    ],
)
def test_paths_make_the_type_of_what_they_are_read_from(paths: dict[str, bool], expected: Type) -> None:
    assert type_of_paths(paths) == expected


class Tags(set[str]):
    def __iter__(self) -> Any:
        raise AssertionError


class Fixed(frozenset[str]):
    pass


@pytest.mark.parametrize("value", [{"a"}, Tags({"a"}), Fixed({"a"}), ["a"], ("a",)])
def test_the_members_of_a_set_are_read_without_its_own_code(value: object) -> None:
    found = members_of(value)
    assert found is not None
    assert list(found) == ["a"]


class Order(TypedDict):
    sku: str


def test_what_is_nested_without_end_is_not_made() -> None:
    kind: Any = Order
    assert needs_making(list[Order]) == needs_making(Order)
    for _ in range(200):
        kind = list[kind]
    assert not needs_making(kind)
