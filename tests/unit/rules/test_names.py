"""Which names are so near that one may be a wrong spelling of the other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.compiler.rules.names import are_near, are_near_topics, edit_distance, near_match, near_topic


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("skuu", "sku"),
        ("orderId", "order_id"),
        ("OrderID", "order_id"),
        ("items", "item"),
        ("recieved", "received"),
        ("quantitiy", "quantity"),
        ("total_prise", "total_price"),
        ("msg", "message"),
        ("qty", "quantity"),
        ("amt", "amount"),
        ("desc", "description"),
        ("error_msg", "error_message"),
        ("rsku_code", "srku_code"),
    ],
)
def test_slips_separators_and_abbreviations_are_near(one: str, other: str) -> None:
    assert are_near(one, other)
    assert are_near(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("min_price", "max_price"),
        ("item1", "item2"),
        ("item", "item1"),
        ("cost", "post"),
        ("count", "amount"),
        ("order", "order_id"),
        ("id", "order_id"),
        ("start", "stop"),
        ("width", "height"),
        ("x", "y"),
        ("a", "ab"),
        ("to", "from"),
        ("source_id", "target_id"),
        ("ok", "error"),
        ("status", "state"),
    ],
)
def test_names_that_mean_different_things_are_not_near(one: str, other: str) -> None:
    assert not are_near(one, other)
    assert not are_near(other, one)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("/Inventory/Updatd", "/Inventory/Updated", True),
        ("/inventory/updated", "/Inventory/Updated", True),
        ("/InventoryUpdated", "/Inventory/Updated", True),
        ("/Order/Placed", "/Order/Paid", False),
        ("/Order/Created", "/Order/Cancelled", False),
        ("/Order/Created", "/Stock/Created", False),
        ("/Order/*", "/Order/A", False),
        ("/Order/Created", "/Order/Created/Again", False),
        ("/Shard/1", "/Shard/2", False),
    ],
)
def test_topics_are_near_when_one_segment_is_nearly_the_same(one: str, other: str, expected: bool) -> None:
    assert are_near_topics(one, other) is expected
    assert are_near_topics(other, one) is expected


def test_a_match_that_is_not_the_only_one_is_none() -> None:
    assert near_match("sku", ["skuu", "qty"]) == "skuu"
    assert near_match("sku", ["skuu", "skus"]) == ""
    assert near_match("sku", ["sku"]) == ""
    assert near_topic("/A/Updatd", ["/A/Updated", "/B/Updated"]) == "/A/Updated"
    assert near_topic("/A/Updatd", ["/A/Updated", "/A/Updat"]) == ""


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("", "", 0), ("a", "", 1), ("ab", "ba", 1), ("abc", "abd", 1), ("kitten", "sitting", 3)],
)
def test_the_distance_counts_edits_and_swaps(one: str, other: str, expected: int) -> None:
    assert edit_distance(one, other) == expected


WORDS = st.text("abc_", max_size=6)


@given(WORDS, WORDS)
def test_the_distance_is_symmetric_and_zero_only_for_the_same_word(one: str, other: str) -> None:
    assert edit_distance(one, other) == edit_distance(other, one)
    assert (edit_distance(one, other) == 0) == (one == other)
