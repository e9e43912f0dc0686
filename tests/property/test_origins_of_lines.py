"""Diffs that a session keeps lead from text to text, and each line keeps the step that wrote it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.editing.edits import unified_diff
from graphbus_core.negotiation.provenance import BEFORE, LineOrigin, _apply_diff, _FileVersion, lines_of

LINES = st.lists(st.sampled_from(["", "a", "b", "@@ -1 +1 @@", "--- x", "+++ y", "\\ z", " c", "tab\there", "end\r"]))
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@given(TEXTS, TEXTS)
def test_a_kept_diff_leads_from_the_text_before_to_the_text_after(before: str, after: str) -> None:
    old, new = lines_of(before.encode()), lines_of(after.encode())
    diff = unified_diff("a.py", before.encode(), after.encode())
    patched = _apply_diff(old, diff) if diff else old
    assert patched is not None
    assert list(patched) == new


@given(TEXTS, TEXTS, TEXTS)
def test_a_diff_for_another_text_is_noticed_or_gives_nothing_that_is_taken_for_the_end(
    before: str, after: str, other: str
) -> None:
    diff = unified_diff("a.py", before.encode(), after.encode())
    patched = _apply_diff(lines_of(other.encode()), diff)
    assert patched is None or len(patched) - len(lines_of(other.encode())) == len(lines_of(after.encode())) - len(
        lines_of(before.encode())
    )


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_every_line_has_an_origin_and_an_unchanged_text_keeps_them(texts: list[str]) -> None:
    versions = [lines_of(text.encode()) for text in texts]
    text = _FileVersion(versions[0], [BEFORE] * len(versions[0]))
    for number, lines in enumerate(versions[1:], 1):
        text = text.make_next(lines, LineOrigin("since", f"S{number:03}"))
        assert len(text.origins) == len(lines)
        assert text.make_next(lines, BEFORE).origins == text.origins
        steps = {origin.session for origin in text.origins}
        assert steps <= {"", *(f"S{step:03}" for step in range(1, number + 1))}
