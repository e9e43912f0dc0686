"""Dollars, as people read them."""

import pytest

from graphbus_core.model.spending import format_usd


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "unknown"),
        (0, "$0"),
        (0.00004, "< $0.0001"),
        (0.0123, "$0.0123"),
        (0.25, "$0.25"),
        (1.5, "$1.50"),
        (1234.5, "$1,234.50"),
    ],
)
def test_dollars_show_what_a_small_session_costs(usd: float | None, shown: str) -> None:
    assert format_usd(usd) == shown
