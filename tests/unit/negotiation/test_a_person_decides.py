"""A person's word before each commit, and on what the votes rejected."""

from __future__ import annotations

from typing import Any

import pytest

from graphbus_core.negotiation.engine import MAX_EDITS
from graphbus_core.negotiation.protocol import (
    AskEvaluations,
    AskPerson,
    AskRepair,
    CheckProposal,
    PersonAnswered,
    PersonReply,
)
from tests.fakes.negotiating_world import World, change, draft


def reviewed(*answers: PersonReply, arbiters: tuple[str, ...] = (), **safety: Any) -> World:
    world = World("A", "B", "C", arbiters=arbiters, **safety)
    world.is_reviewed = True
    world.proposes("A", draft("one"))
    world.person["one"] = list(answers)
    return world


def edit(new: str, title: str = "one") -> PersonReply:
    return PersonReply("", "edit", draft(title, change("a.py", "0", new)))


def test_a_yes_commits_as_the_agents_agreed() -> None:
    world = reviewed(PersonReply("", "yes", reason="fine"))
    (record,) = world.run().records
    assert record.commit is not None
    assert record.commit.consensus_type == "unanimous"
    (question,) = world.questions(AskPerson)
    assert (question.agreed, question.reason, len(question.evaluations)) == ("unanimous", "", 2)
    assert world.announced(PersonAnswered) == [PersonAnswered("P001", "yes", "fine")]


@pytest.mark.parametrize(
    ("reason", "shown"), [("", "turned down by a person"), ("too broad", "turned down by a person: too broad")]
)
def test_a_no_rejects(reason: str, shown: str) -> None:
    world = reviewed(PersonReply("", "no", reason=reason))
    (record,) = world.run().records
    assert (record.status, record.refusal) == ("rejected", shown)
    assert world.files["a.py"] == "0"


def test_a_person_s_text_replaces_the_proposal_climbs_the_gate_and_is_not_voted_on() -> None:
    world = reviewed(edit("7"))
    (record,) = world.run().records
    assert record.commit is not None
    assert (record.commit.consensus_type, world.files["a.py"]) == ("override", "7")
    assert (record.proposal.proposal_id, record.proposal.src) == ("P001", "A")
    assert len(world.questions(CheckProposal)) == 2
    assert len(world.questions(AskEvaluations)) == 2
    assert len(world.questions(AskPerson)) == 1


def test_a_person_s_text_that_the_gate_refuses_comes_back_with_the_reason() -> None:
    world = reviewed(edit("7"), edit("8"))
    world.gate_says("one", True, False, True)
    (record,) = world.run().records
    assert record.status == "accepted"
    assert world.files["a.py"] == "8"
    assert [question.reason for question in world.questions(AskPerson)] == ["", "G1.apply: it does not apply"]
    assert world.questions(AskRepair) == []


def test_a_person_may_try_a_few_times() -> None:
    world = reviewed(*[edit("7")] * 9)
    world.gate_says("one", True, *[False] * 9)
    (record,) = world.run().records
    assert (record.status, record.refusal) == ("refused", "G1.apply: it does not apply")
    assert len(world.questions(AskPerson)) == MAX_EDITS


def test_a_yes_to_a_text_that_the_gate_refuses_is_none() -> None:
    world = reviewed(edit("7"), PersonReply("", "yes"))
    world.gate_says("one", True, False)
    (record,) = world.run().records
    assert (record.status, record.refusal) == ("refused", "G1.apply: it does not apply")


def test_quit_ends_it_and_keeps_what_was_committed_before() -> None:
    world = reviewed(PersonReply("", "yes"))
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    world.proposes("C", draft("three", change("c.py", "0", "1")))
    world.person["two"] = [PersonReply("", "quit")]
    outcome = world.run()
    assert (outcome.ending.reason, outcome.ending.detail) == ("manual", "ended in the review")
    assert [record.status for record in outcome.records] == ["accepted", "pending", "pending"]
    assert (world.files["a.py"], world.files["b.py"]) == ("1", "0")


# --- what the votes rejected -----------------------------------------------------------------


def voted_down(*answers: PersonReply, **safety: Any) -> World:
    world = reviewed(*answers, **safety)
    world.votes("one", B="reject", C="reject")
    return world


def test_a_person_may_accept_what_the_votes_rejected() -> None:
    world = voted_down(PersonReply("", "yes"))
    (record,) = world.run().records
    assert record.commit is not None
    assert record.commit.consensus_type == "override"
    (question,) = world.questions(AskPerson)
    assert (question.agreed, question.reason) == (None, "0 for, 2 against")


def test_what_the_arbiter_rejected_is_shown_too() -> None:
    world = reviewed(PersonReply("", "yes"), arbiters=("Z",))
    world.votes("one", B="reject")
    (record,) = world.run().records
    assert record.commit is not None
    assert record.commit.consensus_type == "override"
    assert world.questions(AskPerson)[0].reason == "Z decided against it: without a reason"


def test_what_was_rejected_is_shown_after_what_was_accepted_and_gated_again() -> None:
    world = voted_down(PersonReply("", "yes"))
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    outcome = world.run()
    assert [question.review.proposal.title for question in world.questions(AskPerson)] == ["two", "one"]
    assert [commit.title for commit in outcome.completed] == ["two", "one"]
    assert [question.proposal.title for question in world.questions(CheckProposal)] == ["one", "two", "one"]


def test_what_no_longer_passes_cannot_be_accepted_after_all() -> None:
    world = voted_down(PersonReply("", "yes"))
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    world.gate_says("one", True, False)
    outcome = world.run()
    assert outcome.records[0].refusal == "0 for, 2 against; and after other commits it no longer passes the gate"
    assert world.questions(AskRepair) == []
    assert [question.review.proposal.title for question in world.questions(AskPerson)] == ["two"]


def test_nobody_is_asked_about_what_a_limit_forbids() -> None:
    world = voted_down(PersonReply("", "yes"), max_total_file_changes=1)
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    outcome = world.run()
    assert outcome.records[0].refusal == "0 for, 2 against"
    assert [question.review.proposal.title for question in world.questions(AskPerson)] == ["two"]
