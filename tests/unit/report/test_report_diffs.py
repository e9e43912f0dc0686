from __future__ import annotations

import pytest

from graphbus_core.cli.report.page import Line, diffs_of, read_diff, split_at_change
from tests.fakes.told_sessions import DIFF, records


def test_lines_bear_their_sign_and_their_numbers_on_both_sides() -> None:
    first, second = read_diff(DIFF)
    assert first.heading == "class Orders(GraphBusNode):"
    assert [(line.sign, line.old, line.new) for line in first.lines[2:8]] == [
        (" ", 14, 14),
        ("-", 15, 0),
        ("-", 16, 0),
        ("+", 0, 15),
        ("+", 0, 16),
        ("+", 0, 17),
    ]
    assert second.lines[-2:] == [Line("-", 41, 0, "LIMIT = 10"), Line("+", 0, 43, "LIMIT = 12")]
    assert second.ends == ["No newline at end of file"]


def test_a_removed_line_that_looks_like_a_heading_is_a_removed_line() -> None:
    (hunk,) = read_diff("--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n--- a\n-+++ b\n+@@ -1 +1 @@\n")
    assert [line.text for line in hunk.lines] == ["-- a", "+++ b", "@@ -1 +1 @@"]


@pytest.mark.parametrize("text", ["", "\n", "nothing\n+x", "@@ x @@\n+y", "+++ only"])
def test_what_is_no_difference_has_no_hunks(text: str) -> None:
    assert read_diff(text) == ()


def test_the_committed_difference_is_shown_and_else_the_proposed_one() -> None:
    accepted, superseded = records()[:2]
    (committed,) = diffs_of(accepted)
    (proposed,) = diffs_of(superseded)
    assert (committed.count_lines("+"), committed.count_lines("-"), committed.note) == (5, 3, "")
    assert (proposed.count_lines("+"), proposed.count_lines("-")) == (2, 1)
    assert proposed.note == "replace symbol in Stock.on_low"


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("LIMIT = 10", "LIMIT = 12", ("LIMIT = 1", "0", "")),
        ("f(a)", "f(a, b)", ("f(a", "", ")")),
        ("f(a, b)", "f(a)", ("f(a", ", b", ")")),
        ("one thing", "quite another", ("one thing", "", "")),
        ("", "", ("", "", "")),
    ],
)
def test_what_differs_within_a_line_is_marked_where_that_helps(old: str, new: str, parts: tuple[str, str, str]) -> None:
    assert split_at_change(old, new) == parts
