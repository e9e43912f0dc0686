from __future__ import annotations

import pytest

from news.agents.classifier import ELSEWHERE, section_of


@pytest.mark.parametrize(
    ("title", "summary", "section"),
    [
        ("Telescope finds a comet on a new orbit", "Researchers followed it.", "science"),
        ("Central bank holds rates", "Inflation slows.", "business"),
        ("An open-source battery", "", "technology"),
        ("A quiet day in town", "Nothing happened.", ELSEWHERE),
        ("", "", ELSEWHERE),
    ],
)
def test_an_article_is_filed_by_its_keywords(title: str, summary: str, section: str) -> None:
    assert section_of(title, summary) == section


def test_a_word_of_the_title_counts_as_much_as_two_of_the_summary() -> None:
    assert section_of("A museum opens", "The software was late.") == "culture"


def test_of_two_equal_sections_the_first_in_the_table_wins() -> None:
    assert section_of("Bank and browser", "") == "technology"


def test_a_keyword_inside_another_word_does_not_count() -> None:
    assert section_of("Filmed in a banker's chipped cup", "") == ELSEWHERE
