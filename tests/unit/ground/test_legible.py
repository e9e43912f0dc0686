"""Words from outside are data: no terminal obeys them, and any log and file can hold them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.errors import RunError
from graphbus_core.errors.legible import escape_to_one_line, escape_unprintable


@pytest.mark.parametrize(
    ("text", "lines", "line"),
    [
        ("", "", ""),
        ("plain – é 漢 🎉", "plain – é 漢 🎉", "plain – é 漢 🎉"),
        ("one\ntwo\tthree", "one\ntwo\tthree", r"one\ntwo\tthree"),
        ("\ud800", r"\ud800", r"\ud800"),
        ("\x1b[31m\r\0", r"\x1b[31m\r\x00", r"\x1b[31m\r\x00"),
        ("a\u202eb\u2028c", r"a\u202eb\u2028c", r"a\u202eb\u2028c"),
    ],
)
def test_what_is_no_text_for_people_is_escaped(text: str, lines: str, line: str) -> None:
    assert escape_unprintable(text) == lines
    assert escape_to_one_line(text) == line


@given(st.text() | st.text(st.characters(categories=["Cs", "Cc"])))
def test_any_text_becomes_one_that_utf_8_has_and_stays_as_it_is_then(text: str) -> None:
    for escape in (escape_unprintable, escape_to_one_line):
        escape(text).encode()
        assert escape(escape(text)) == escape(text)
    assert escape_to_one_line(text).isprintable()
    assert escape_unprintable(text).count("\n") == text.count("\n")


def test_a_refusal_is_legible_whatever_it_is_about() -> None:
    refusal = RunError("GBE620", agent="\ud800\x1b[2J", suggestion="", known="A\x07")
    assert r"\ud800\x1b[2J" in refusal.sentence
    assert r"A\x07" in refusal.hint
    assert refusal.data["agent"] == "\ud800\x1b[2J"
