"""What a provider says of a failure is shown without keys, on one line, and not without end."""

from __future__ import annotations

import pytest

from graphbus_core.llm.providers import Provider, Told, explain, scrub

KEY = "0123456789-key"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"bad {KEY}.", "bad ***"),
        (f"twice {KEY}{KEY}", "twice ******"),
        ("Incorrect API key provided: sk-proj-ab*****yz. See", "Incorrect API key provided: *** See"),
        ("gsk_abcdefgh1234 and AIzaSyAbcdefgh", "*** and ***"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("two\n  lines\tand\x1b[31m colour", "two lines and[31m colour"),
        ("ask-me-anything stays", "ask-me-anything stays"),
    ],
)
def test_keys_and_odd_signs_are_taken_out(text: str, shown: str) -> None:
    assert scrub(text, KEY) == shown


def test_a_long_reason_is_cut() -> None:
    assert len(scrub("word " * 1000, KEY)) == 301


def test_a_short_or_missing_key_does_not_riddle_the_text() -> None:
    assert scrub("a bad key", "") == "a bad key"
    assert scrub("a bad key", "a") == "a bad key"


def test_a_failure_without_words_is_told_by_its_status() -> None:
    provider = Provider("far", "openai", "https://models.example.org/v1")
    assert explain(Told("status", 418), provider, "x", 1.0, KEY).sentence == "far refuses the request: status 418."
    refused = explain(Told("key", 401, "no"), provider, "x", 1.0, KEY)
    assert refused.sentence == "far does not accept the key in no variable, as `key_env` is not set: no."


@pytest.mark.parametrize(
    ("status", "may_be_billed"), [(429, False), (500, False), (529, False), (504, True), (524, True)]
)
def test_what_a_gateway_gave_up_may_have_been_answered_and_billed(status: int, may_be_billed: bool) -> None:
    provider = Provider("far", "openai", "https://models.example.org/v1")
    error = explain(Told("status", status), provider, "x", 1.0, KEY)
    assert (error.is_transient, error.may_be_billed) == (True, may_be_billed)
