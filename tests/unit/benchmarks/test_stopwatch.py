"""The benchmarks' tables say what was measured: alternating, medians, ratios, limits kept or missed."""

from __future__ import annotations

import pytest

from benchmarks.stopwatch import Row, at_most, markdown, medians, shown


def test_measurements_alternate_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    values = {"a": iter([100.0, 1.0, 5.0, 3.0]), "b": iter([100.0, 2.0, 2.0, 9.0])}

    def take(name: str) -> float:
        order.append(name)
        return next(values[name])

    assert medians({"a": lambda: take("a"), "b": lambda: take("b")}, rounds=3) == {"a": 3.0, "b": 2.0}
    assert order == ["a", "b"] * 4


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (Row("x", 2.0, 1.0, "peer", 2.0), True),
        (Row("x", 2.1, 1.0, "peer", 2.0), False),
        (Row("x", 9.0, 1.0, "peer"), True),
        (at_most("x", 0.105, 0.050, "bare", 0.060), True),
        (at_most("x", 0.115, 0.050, "bare", 0.060), False),
    ],
)
def test_a_limit_is_kept_up_to_and_including_it(row: Row, kept: bool) -> None:
    assert row.is_kept is kept


def test_a_missed_limit_stands_out_in_the_table() -> None:
    table = markdown([Row("publish", 3e-6, 1e-6, "direct call", 2.0), at_most("build", 0.07, 0.05, "bare", 0.060)])
    assert table.splitlines()[2:] == [
        "| publish | 3 µs | direct call 1 µs | 3.00 | ≤ 2 × | **no** |",
        "| build | 70 ms | bare 50 ms | 1.40 | bare + 60 ms | yes |",
    ]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "s", "1.5 s"),
        (0.0123, "s", "12.3 ms"),
        (3.16e-7, "s", "316 ns"),
        (10.25e6, "B", "10.2 MB"),
        (7, "packages", "7 packages"),
    ],
)
def test_a_quantity_is_shown_in_the_unit_that_fits(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text
