"""Code and pages keep to the terms of docs/dictionary.md, and the pages for users stay short enough to be read."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.weight import words_of_pages

ROOT = Path(__file__).parents[2]
DICTIONARY = ROOT / "docs" / "dictionary.md"
NOT_YET = {"jail"}
"""Given-up words that the source or its pages still use. This set only becomes smaller."""
USER_WORDS = 40_000
CODE = re.compile(r"^(`{3,}).*?^\1|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
"""What is no prose on a page: blocks and spans of code, notes for scripts, addresses of links."""


def rows() -> list[list[str]]:
    """The rows of the table: a term, its meaning, and the words that were given up for it."""
    lines = DICTIONARY.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]


def given_up(words: set[str]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(map(re.escape, sorted(words)))})s?\b", re.IGNORECASE)


def words_given_up() -> set[str]:
    return {word.strip() for _, _, words in rows() for word in words.split(",") if word.strip()}


def prose_of_source(path: Path) -> Iterator[tuple[int, str]]:
    """The comments and sentences of a module with their lines, without backticked names and fields of f-strings."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if tokenize.tok_name[token.type] in ("COMMENT", "STRING", "FSTRING_MIDDLE") and " " in token.string:
                yield token.start[0], re.sub(r"`[^`]*`|\{[^{}]*\}", "", token.string)


def found_in_source(pattern: re.Pattern[str]) -> Iterator[str]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        if pattern.search(path.read_text(encoding="utf-8")):
            for line, text in prose_of_source(path):
                yield from (f"{path.relative_to(ROOT)}:{line}: {word[0]}" for word in pattern.finditer(text))


def found_in_pages(pattern: re.Pattern[str]) -> Iterator[str]:
    pages = {
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs/rules").glob("*.md"),
    }
    for path in sorted(pages - {DICTIONARY}):
        text = CODE.sub("", path.read_text(encoding="utf-8"))
        yield from (f"{path.relative_to(ROOT)}: {word[0]}" for word in pattern.finditer(text))


def test_each_term_stands_once_with_its_meaning() -> None:
    terms = [term for term, _, _ in rows()]
    assert 40 <= len(terms) <= 50
    assert len(terms) == len({*terms})
    assert [term for term, meaning, _ in rows() if not meaning.endswith(".")] == []
    assert {word.lower() for word in words_given_up()} & {*terms} == set()


def test_no_comment_docstring_or_message_uses_a_word_that_was_given_up() -> None:
    assert list(found_in_source(given_up(words_given_up() - NOT_YET))) == []


def test_words_that_nothing_uses_any_more_are_not_excused() -> None:
    used = {word.rpartition(" ")[2].lower().removesuffix("s") for word in found_in_source(given_up(NOT_YET))}
    assert used == NOT_YET, "take what is gone out of NOT_YET"


def test_no_page_uses_a_word_that_was_given_up() -> None:
    assert list(found_in_pages(given_up(words_given_up() - NOT_YET))) == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('"""Ring the doorbell."""', True),
        ("# one of the Doorbells", True),
        ('raise ValueError("no doorbell")', True),
        ('"""`doorbell` is data."""', False),
        ("doorbell = 1", False),
        ('"""doorbellish"""', False),
    ],
)
def test_words_are_found_in_prose_and_not_in_names(tmp_path: Path, text: str, is_found: bool) -> None:
    (tmp_path / "a.py").write_text(text + "\n", encoding="utf-8")
    pattern = given_up({"doorbell"})
    assert any(pattern.search(prose) for _, prose in prose_of_source(tmp_path / "a.py")) is is_found


def test_the_pages_for_users_can_be_read() -> None:
    assert words_of_pages(ROOT)[0] <= USER_WORDS
