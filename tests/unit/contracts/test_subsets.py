"""Whether every value of one type is a value of another, case by case: what the walk through two schemas seldom asks."""

from __future__ import annotations

import pytest

from graphbus_core.contracts.subsets import refusal
from graphbus_core.model.schema import ANY, BOOL, DICT, INT, LIST, NULL, STR, UNKNOWN, Field, Type, union


def record(*fields: Field) -> Type:
    return Type("record", fields=fields)


def tuple_of(*args: Type) -> Type:
    return Type("tuple", args)


def words(*values: str | bool) -> Type:
    return Type("literal", values=values)


MUST, MAY = Field("a", INT), Field("a", INT, required=False)
MAP = Type("dict", (STR, INT))

REFUSED = {
    "a field is not sent": (record(MUST), record(), "a is not sent"),
    "a field may be missing": (record(MUST), record(MAY), "a may be missing"),
    "a field has another type": (record(MUST), record(Field("a", STR)), "a: int is taken, str may be sent"),
    "one of the two truths": (words(True), BOOL, "False may be sent"),
    "None is no word": (words("a"), NULL, "None may be sent"),
    "one place of a tuple": (tuple_of(INT, INT), tuple_of(INT, STR), "in its items, int is taken, str may be sent"),
    "another length": (tuple_of(INT), tuple_of(INT, INT), "may be sent"),
    "a list may have any length": (tuple_of(INT), Type("list", (INT,)), "may be sent"),
    "a set is none in JSON": (LIST, Type("set", (INT,)), "may be sent"),
    "keys that are no text": (Type("dict", (INT, INT)), record(MUST), "may be sent"),
    "no mapping at all": (MAP, INT, "may be sent"),
    "an entry of a record": (MAP, record(Field("a", STR)), "in its entries, int is taken, str may be sent"),
    "a mapping may lack the field": (record(MUST), MAP, "may be sent"),
    "a mapping may hold the field with another type": (record(MAY), Type("dict", (STR, STR)), "in its entries"),
}
TAKEN = {
    "what may be missing may be missing": (record(MAY), record()),
    "more than is looked at": (record(MAY), record(MUST, Field("b", STR))),
    "both truths": (words(True, False), BOOL),
    "a mapping for what may be missing": (record(MAY), MAP),
    "any mapping": (DICT, record(MUST)),
    "any list": (LIST, Type("list", (INT,))),
    "a tuple in the place of a list": (Type("list", (union(INT, STR),)), tuple_of(INT, STR)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_value_that_is_refused_is_given_as_a_reason(case: str) -> None:
    takes, sent, reason = REFUSED[case]
    found = refusal(takes, sent)
    assert found is not None
    assert found.is_certain
    assert reason in found.reason


@pytest.mark.parametrize("case", TAKEN)
def test_where_none_is_refused_there_is_no_reason(case: str) -> None:
    assert refusal(*TAKEN[case]) is None


@pytest.mark.parametrize("takes", [INT, union(INT, STR), words("a"), MAP, LIST])
def test_what_is_not_known_is_never_refused_for_certain(takes: Type) -> None:
    found = refusal(takes, UNKNOWN)
    assert found is None or not found.is_certain
    assert refusal(UNKNOWN, takes) is None
    assert refusal(ANY, takes) is None


def test_a_certain_reason_comes_before_one_that_is_not() -> None:
    found = refusal(record(MUST, Field("b", INT)), record(Field("a", UNKNOWN), Field("b", STR)))
    assert found is not None
    assert found.is_certain
