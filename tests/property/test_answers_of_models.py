"""Whatever a model writes, it is read or refused with sentences; nothing else happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphbus_core.compiler.project import Project
from graphbus_core.model.proposals import ProposalEvaluation
from graphbus_core.negotiation import answers
from graphbus_core.negotiation.answer_format import edit_text, fence_code
from graphbus_core.negotiation.answer_rules import EXAMPLES
from graphbus_core.negotiation.answers import MAX_FAULTS, MalformedAnswer
from graphbus_core.negotiation.prompts import fence_data
from tests.fakes import model_texts as texts
from tests.unit.negotiation.prompted_shop import shop, trial_of, view_of

_PIECES = st.sampled_from(
    [
        *(
            "## ",
            "# ",
            "### ",
            "analysis",
            "proposal",
            "nothing",
            "evaluation",
            "decision",
            "edit ",
            "evidence ",
            "P001",
        ),
        *(
            "title: ",
            "decision: ",
            "accept",
            "reject",
            "counter",
            "defer",
            "depends on: ",
            "1",
            "2",
            "P9",
            "confidence: ",
        ),
        *("replace_symbol ", "search_replace ", "add_import ", "delete_symbol ", "agents/order.py ", "Order.total"),
        *("```", "````", "~~~", "old", "new", "diff", "python", "test", "contract", "import os", "@@\n-a\n+b"),
        *("\n", "\n\n", " ", "  ", ":", "*", "`", "\r\n", "\t", "\x00", "\ud800", "\u202e", "é"),
    ]
)
_TEXTS = st.one_of(st.lists(_PIECES, max_size=40).map("".join), st.text(max_size=200))
_MUTATED = st.builds(
    lambda text, at, piece: text[: at % (len(text) + 1)] + piece + text[at % (len(text) + 1) :],
    st.sampled_from(["\n".join(EXAMPLES.values()), *EXAMPLES.values()]),
    st.integers(0, 5000),
    _PIECES,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return shop(tmp_path_factory.mktemp("shop"))


def _faults(read: Callable[[str], object], text: str) -> tuple[str, ...]:
    try:
        read(text)
    except MalformedAnswer as malformed:
        return malformed.faults or ("",)
    return ()


@given(text=st.one_of(_TEXTS, _MUTATED))
@example(text="#" * 10_000)
@example(text="- " * 5_000 + ":")
@example(text="**" * 5_000)
@example(text="## evaluation " + "P1 " * 5_000)
def test_any_text_is_read_or_malformed(base: Project, text: str) -> None:
    view, trials = view_of(base), (trial_of(base),)
    old = trials[0].proposal
    readers = (
        answers.read_analysis,
        lambda said: answers.read_drafts(said, view),
        lambda said: answers.read_repair(said, view, old),
        lambda said: answers.read_evaluations(said, view, trials),
        lambda said: answers.read_decision(said, view, trials[0]),
    )
    for read in readers:
        faults = _faults(read, text)
        assert len(faults) <= MAX_FAULTS
        assert all(fault and len(fault) < 1_000 for fault in faults)


@given(text=st.one_of(_TEXTS, _MUTATED))
def test_an_accept_was_written_as_one(base: Project, text: str) -> None:
    trials = (trial_of(base),)
    votes: tuple[ProposalEvaluation, ...]
    try:
        votes = answers.read_evaluations(text, view_of(base), trials)
    except MalformedAnswer as malformed:
        votes = malformed.usable
    if any(vote.decision == "accept" for vote in votes):
        assert "accept" in text.lower()
        assert "decision" in text.lower()


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=200))
def test_code_comes_out_as_it_went_in(base: Project, code: str) -> None:
    if not code.strip():
        return
    text = f"## proposal\ntitle: x\n### edit add_import agents/order.py\n{fence_code('python', code)}"
    (draft,) = answers.read_drafts(text, view_of(base))
    assert draft.code_change.new_code == (code if code.endswith("\n") else code + "\n")
    again = f"## proposal\ntitle: x\n{edit_text(draft.code_change)}"
    assert answers.read_drafts(again, view_of(base))[0].code_changes == draft.code_changes


@given(st.text(max_size=100))
def test_data_cannot_close_its_own_marks(text: str) -> None:
    shown = fence_data(text, "data")
    opening = shown.partition("\n")[0]
    mark = opening.removeprefix("<<data ").partition(":")[0]
    assert shown.count(mark) == 2
    assert shown.endswith(f"<<end {mark}>>\n")


@given(st.sampled_from(["accept", "reject", "defer"]), st.floats(0, 1), st.text(max_size=50))
def test_a_written_evaluation_is_read_as_written(base: Project, word: str, confidence: float, reasoning: str) -> None:
    said = " ".join(part for part in reasoning.split() if part.isalnum())
    text = texts.evaluation("P001", word, said, confidence=round(confidence, 3))
    (vote,) = answers.read_evaluations(text, view_of(base), (trial_of(base),))
    assert (vote.decision, vote.confidence) == (word, round(confidence, 3))
