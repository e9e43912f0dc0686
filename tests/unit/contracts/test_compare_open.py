"""Schemas that may hold more than they list: what cannot be seen is not called breaking."""

from __future__ import annotations

import pytest

from graphbus_core.contracts.differences import Difference, differences, type_differences
from graphbus_core.schema.types import INT, NULL, STR, Field, Schema, Type, union

A, B = Field("a", INT), Field("b", STR)
MAYBE = Field("b", STR, required=False)


def told(found: tuple[Difference, ...]) -> list[tuple[str, str, bool, bool]]:
    return [(each.kind, each.path, each.is_breaking, each.is_certain) for each in found]


CASES = {
    "arguments that were let in are refused": (
        Schema((A,), is_open=True), Schema((A,)), "input", [("closed", "", True, True)]),
    "further arguments are let in": (Schema((A,)), Schema((A,), is_open=True), "input", [("opened", "", False, True)]),
    "a result may hold more": (Schema((A,)), Schema((A,), is_open=True), "output", [("opened", "", False, True)]),
    "a result holds no more": (Schema((A,), is_open=True), Schema((A,)), "output", [("closed", "", False, True)]),
    "a field may still be there": (
        Schema((A, B), is_open=True), Schema((A,), is_open=True), "output", [("removed", "b", False, False)]),
    "an argument is still let in": (
        Schema((A, B), is_open=True), Schema((A,), is_open=True), "input", [("removed", "b", False, True)]),
    "who gave it already may have given another type": (
        Schema((A,), is_open=True), Schema((A, MAYBE), is_open=True), "input", [("added", "b", False, False)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_listed_is_taken_into_account(case: str) -> None:
    before, after, side, expected = CASES[case]
    assert (
        told(differences(before, after, "input" if side == "input" else "output", is_closed=side == "input"))
        == expected
    )


def test_inside_of_optional_and_fixed_containers_the_field_is_named() -> None:
    old = union(Type("record", fields=(A, B)), NULL)
    new = union(Type("record", fields=(A, Field("b", INT))), NULL)
    assert told(type_differences(old, new, "output", "answer")) == [("type", "answer.b", True, True)]
    pair = type_differences(Type("tuple", (INT, STR)), Type("tuple", (INT, INT)), "input", "answer")
    assert told(pair) == [("type", "answer[1]", True, True)]


def test_two_names_of_one_shape_are_one_type() -> None:
    old, new = (Type("record", name=name, fields=(A,)) for name in ("Old", "New"))
    assert type_differences(old, new, "output", "answer") == ()
    assert type_differences(union(old, STR), union(new, STR), "output", "answer") == ()
