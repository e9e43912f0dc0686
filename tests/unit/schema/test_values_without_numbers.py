"""NaN and Infinity are no numbers of JSON: they are found wherever they are."""

from __future__ import annotations

import math

import pytest

from graphbus_core.schema.values import has_no_number

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
    assert has_no_number(value) is is_so
