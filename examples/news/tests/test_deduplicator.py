from __future__ import annotations

import pytest

from news.agents.deduplicator import canonical_address, similarity, title_words


@pytest.mark.parametrize(
    "url",
    [
        "https://morning.example/rates",
        "http://www.morning.example/rates/",
        "https://MORNING.example/rates?utm_source=tech#top",
    ],
)
def test_addresses_of_one_page_are_equal(url: str) -> None:
    assert canonical_address(url) == "morning.example/rates"


def test_the_path_of_an_address_keeps_its_case() -> None:
    assert canonical_address("https://a.example/News") != canonical_address("https://a.example/news")


def test_fillers_and_case_do_not_make_titles_differ() -> None:
    assert title_words("The Comet on a New Orbit") == title_words("comet, new orbit")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [({"a", "b"}, {"a", "b"}, 1.0), ({"a", "b"}, {"b", "c"}, 1 / 3), (set(), set(), 0.0), ({"a"}, set(), 0.0)],
)
def test_similarity_is_the_share_of_common_words(one: set[str], other: set[str], expected: float) -> None:
    assert similarity(frozenset(one), frozenset(other)) == pytest.approx(expected)
