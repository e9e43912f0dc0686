"""Several arbiters, proposals that contradict each other, and proposals that others have overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.proposals import RungResult, SchemaChange
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    AskArbitration,
    AskEvaluations,
    AskRepair,
    CheckProposal,
    Gated,
    ProposalArbitrated,
    ProposalMerged,
    ProposalSentBack,
)
from graphbus_core.schema.types import Field, Schema, Type
from tests.fakes.negotiating_world import World, change, draft, proposing, report

ACCEPT, REJECT = "accept", "reject"


def split(arbiters: tuple[str, ...], **safety: object) -> World:
    """One for, one against."""
    return proposing("A", "B", "C", arbiters=arbiters, **safety, votes={"C": "reject"})


def schema(**fields: str) -> Schema:
    return Schema(fields=tuple(Field(name, Type(kind=kind)) for name, kind in fields.items()))  # type: ignore[arg-type]


# --- several arbiters ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((ACCEPT, ACCEPT, ACCEPT), "accepted"),
        ((ACCEPT, REJECT, ACCEPT), "accepted"),
        ((ACCEPT, REJECT, REJECT), "rejected"),
        ((ACCEPT, None, None), "accepted"),
        ((ACCEPT, "counter", "defer"), "accepted"),
        ((ACCEPT, REJECT, None), "rejected"),
        ((ACCEPT, REJECT, "abstain"), "rejected"),
        ((None, None, None), "rejected"),
        (("defer", "counter", "abstain"), "rejected"),
    ],
)
def test_arbiters_who_vote_decide_by_the_majority_of_their_valid_words(words: tuple[str, ...], status: str) -> None:
    world = split(("X", "Y", "Z"), arbitration="vote")
    for name, word in zip("XYZ", words, strict=True):
        world.words[name, "one"] = word  # type: ignore[assignment]
    (record,) = world.run().records
    assert record.status == status
    assert [item.arbiter for item in world.announced(ProposalArbitrated)] == ["X", "Y", "Z"]
    if record.commit:
        judges = [f"{name} (ARBITER)" for name, word in zip("XYZ", words, strict=True) if word in {ACCEPT, REJECT}]
        assert record.commit.evaluators == ("B", "C", *judges)
        assert record.commit.consensus_type == "arbiter"


def test_the_reason_of_several_arbiters_names_each() -> None:
    world = split(("Y", "Z"), arbitration="vote")
    world.words["Y", "one"] = "accept"
    (record,) = world.run().records
    assert record.refusal == "the arbiters do not accept it (1 for, 1 against): Y: because; Z: without a reason"


def test_an_arbiter_that_breaks_down_does_not_count_among_several() -> None:
    world = split(("Y", "Z"), arbitration="vote")
    world.words["one"] = "accept"
    world.failures = {("Y", "arbitrate")}
    (record,) = world.run().records
    assert record.status == "accepted"
    assert world.announced(AgentFailed) == [AgentFailed("Y", "arbitrate", "it broke down")]
    assert [(vote.evaluator, vote.decision) for vote in record.evaluations if vote.is_arbiter] == [
        ("Y (ARBITER)", "abstain"),
        ("Z (ARBITER)", "accept"),
    ]


def test_the_first_arbiter_in_order_whose_domain_it_is_decides() -> None:
    domains = {"Z": ("te*",), "Y": ("test",), "X": ("nothing",)}
    world = split(("X", "Y", "Z"), arbitration="domain", arbiter_domains=domains)
    world.run()
    assert [one.arbiter for one in world.questions(AskArbitration)] == ["Y"]


def test_a_contract_element_may_be_a_domain() -> None:
    world = split(("Y", "Z"), arbitration="domain", arbiter_domains={"Z": ("/Order/*",)})
    world.schema_changes["one"] = (SchemaChange(method="/Order/Created", output_schema_after=schema(sku="str")),)
    world.run()
    assert [one.arbiter for one in world.questions(AskArbitration)] == ["Z"]


def test_an_arbiter_is_told_why_it_is_asked() -> None:
    world = split(("Z",))
    world.run()
    assert world.questions(AskArbitration)[0].reason == "the votes leave it open: 1 for, 1 against"


# --- what others have overtaken --------------------------------------------------------------


def overtaken(**safety: object) -> World:
    """`two` no longer passes the gate when `one` is in the workspace."""
    world = World("A", "B", "C", **safety)
    world.proposes("A", draft("one", change("c.py", "0", "1")))
    world.proposes("B", draft("two", change("c.py", "0", "2")))
    world.gate_says("two", True, False)
    return world


def test_a_proposal_that_an_earlier_commit_has_made_stale_goes_back_once_and_is_voted_on_again() -> None:
    world = overtaken()
    world.repairs["two"] = [draft("two, fitted", change("c.py", "1", "12"))]
    outcome = world.run()
    two = outcome.records[1]
    assert (two.status, two.proposal.title, two.proposal.proposal_id) == ("accepted", "two, fitted", "P002")
    assert two.commit is not None
    assert two.commit.round == 2
    assert world.files["c.py"] == "12"
    assert [(item.proposal_id) for item in world.announced(ProposalSentBack)] == ["P002"]
    asked = [(q.round, q.agent, [r.proposal.title for r in q.reviews]) for q in world.questions(AskEvaluations)]
    assert (2, "C", ["two, fitted"]) in asked
    assert {vote.round for vote in two.evaluations} == {2}


def test_a_proposal_that_is_stale_a_second_time_is_refused() -> None:
    world = overtaken()
    world.repairs["two"] = [draft("two, fitted", change("c.py", "1", "12"))]
    world.proposes("A", draft("three", change("c.py", "1", "13"), priority=5), round=2)
    world.gate_says("two, fitted", True, False)
    outcome = world.run()
    assert [(record.proposal.title, record.status) for record in outcome.records] == [
        ("one", "accepted"),
        ("two, fitted", "refused"),
        ("three", "accepted"),
    ]
    assert outcome.records[1].refusal.startswith("stale: after other commits it no longer passes the gate")
    assert len(world.questions(AskRepair)) == 1


def test_going_back_counts_as_a_repair() -> None:
    world = overtaken(max_repairs=0)
    world.repairs["two"] = [draft("two, fitted", change("c.py", "1", "12"))]
    outcome = world.run()
    assert outcome.records[1].status == "refused"
    assert world.questions(AskRepair) == []


def test_a_fitted_text_is_held_to_the_limits() -> None:
    world = overtaken(protected_files=("b.py",))
    world.repairs["two"] = [draft("sly", change("b.py", "0", "1"))]
    outcome = world.run()
    assert outcome.records[1].refusal == "b.py is protected by protected_files"


def test_an_author_who_fails_to_fit_it_loses_it() -> None:
    world = overtaken()
    world.failures = {("B", "repair")}
    outcome = world.run()
    assert outcome.records[1].refusal == "stale: G1.apply: it does not apply"
    assert AgentFailed("B", "repair", "it broke down") in world.announced(AgentFailed)


def test_a_conflict_before_any_vote_goes_back_once_too() -> None:
    conflict = RungResult(rung="G1", status="failed", code="G1.conflict", message="both changed it")

    class Contradicted(World):
        def _check(self, question: CheckProposal) -> Gated:
            proposal_id = question.proposal.proposal_id
            refused = report(proposal_id, passed=False)
            return Gated(proposal_id, type(refused)(proposal_id=proposal_id, passed=False, rungs=(conflict,)))

    world = Contradicted("A", "B", max_repairs=5)
    world.proposes("A", draft("one"))
    world.repairs["one"] = [draft("again")] * 5
    world.repairs["again"] = [draft("again")] * 5
    (record,) = world.run().records
    assert len(world.questions(AskRepair)) == 1
    assert record.refusal.startswith("stale: after other commits")


def test_a_merge_is_told() -> None:
    class Merging(World):
        def _check(self, question: CheckProposal) -> Gated:
            proposal_id = question.proposal.proposal_id
            return Gated(proposal_id, report(proposal_id), self.participants.edges, ("a.py",))

    world = Merging("A", "B")
    world.proposes("A", draft("one"))
    world.run()
    assert world.announced(ProposalMerged) == [ProposalMerged("P001", ("a.py",))]


# --- two answers to one question -------------------------------------------------------------


def contradicting(arbiters: tuple[str, ...] = (), same: bool = False, **safety: object) -> World:
    """Two accepted proposals of one round change the same contract element."""
    edges = (Edge("A", "C", "topic", "/T"), Edge("B", "C", "topic", "/T"))
    world = World("A", "B", "C", arbiters=arbiters, edges=edges, **safety)
    world.proposes("A", draft("one", change("a.py", "0", "1"), priority=1))
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    world.schema_changes["one"] = (SchemaChange(method="/T", output_schema_after=schema(sku="str")),)
    other = schema(sku="str") if same else schema(sku="int")
    world.schema_changes["two"] = (SchemaChange(method="/T", output_schema_after=other),)
    return world


def test_without_an_arbiter_the_second_of_two_contradicting_proposals_is_rejected_naming_the_first() -> None:
    outcome = contradicting().run()
    assert [record.status for record in outcome.records] == ["accepted", "rejected"]
    assert outcome.records[1].refusal == (
        "P001, accepted before it in this round, changes /T in another way, and there is no arbiter"
    )


@pytest.mark.parametrize(("word", "status"), [("accept", "accepted"), ("reject", "rejected"), (None, "rejected")])
def test_the_arbiter_settles_which_of_two_contradicting_proposals_holds(word: str | None, status: str) -> None:
    world = contradicting(("Z",))
    world.words["two"] = word  # type: ignore[assignment]
    outcome = world.run()
    assert [record.status for record in outcome.records] == ["accepted", status]
    (question,) = world.questions(AskArbitration)
    assert question.reason == "P001, accepted before it in this round, changes /T in another way"
    if status == "accepted":
        assert outcome.completed[1].consensus_type == "arbiter"
        assert outcome.completed[1].evaluators[-1] == "Z (ARBITER)"
        gated = [q.proposal.title for q in world.questions(CheckProposal)]
        assert gated == ["one", "two", "two"]


def test_all_arbiters_vote_on_a_contradiction() -> None:
    world = contradicting(("Y", "Z"), arbitration="vote")
    world.words.update({("Y", "two"): "accept", ("Z", "two"): "accept"})
    assert [record.status for record in world.run().records] == ["accepted", "accepted"]


def test_what_the_arbiter_lets_through_must_still_pass_the_gate() -> None:
    world = contradicting(("Z",), max_repairs=0)
    world.words["two"] = "accept"
    world.gate_says("two", True, False)
    assert [record.status for record in world.run().records] == ["accepted", "refused"]


def test_two_proposals_that_agree_on_a_contract_element_contradict_nothing() -> None:
    world = contradicting(("Z",), same=True)
    assert [record.status for record in world.run().records] == ["accepted", "accepted"]
    assert world.questions(AskArbitration) == []


def test_a_change_of_the_same_element_in_a_later_round_contradicts_nothing() -> None:
    world = contradicting(("Z",))
    world.drafts["B", 2] = world.drafts.pop(("B", 1))
    assert [record.status for record in world.run().records] == ["accepted", "accepted"]
    assert world.questions(AskArbitration) == []


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"input_schema_after": schema(sku="str")}, {"input_schema_after": schema(count="int")}),
        ({"input_schema_after": schema(sku="str")}, {"output_schema_after": schema(count="int")}),
        ({"output_schema_after": schema(count="int")}, {"input_schema_after": schema(sku="str")}),
    ],
)
def test_what_one_handler_reads_contradicts_neither_what_another_reads_nor_what_is_sent(one: Any, two: Any) -> None:
    """Whether they still fit each other is for the gate to say, which speaks again."""
    world = contradicting()
    world.schema_changes["one"] = (SchemaChange(method="/T", **one),)
    world.schema_changes["two"] = (SchemaChange(method="/T", **two),)
    assert [record.status for record in world.run().records] == ["accepted", "accepted"]


def test_two_publishers_that_each_send_more_fields_of_their_own_contradict_nothing() -> None:
    world = contradicting()
    world.schema_changes["one"] = (
        SchemaChange(
            method="/T", output_schema_before=schema(id="str"), output_schema_after=schema(id="str", sku="str")
        ),
    )
    world.schema_changes["two"] = (
        SchemaChange(
            method="/T",
            output_schema_before=schema(id="str", at="int"),
            output_schema_after=schema(id="str", at="int", sku="str"),
        ),
    )
    assert [record.status for record in world.run().records] == ["accepted", "accepted"]


def test_of_several_changes_of_one_element_none_is_overlooked() -> None:
    """A publisher that hears its own topic changes both sides of it."""
    world = contradicting()
    heard = SchemaChange(method="/T", input_schema_after=schema(sku="bool"))
    world.schema_changes["one"] = (*world.schema_changes["one"], heard)
    world.schema_changes["two"] = (*world.schema_changes["two"], heard)
    assert [record.status for record in world.run().records] == ["accepted", "rejected"]


def test_the_bound_of_calls_holds_where_every_dispute_that_there_can_be_takes_place() -> None:
    """Two votes and two contradictions of one proposal, each before the arbiter."""
    world = contradicting(("Z",), max_proposals_per_agent=2)
    world.votes("two", A="reject")
    world.votes("two, fitted", A="reject")
    world.words.update({"two": "accept", "two, fitted": "accept"})
    world.gate_says("two", True, False)
    world.repairs["two"] = [draft("two, fitted", change("b.py", "0", "1"))]
    world.schema_changes["two, fitted"] = world.schema_changes["two"]
    world.proposes("A", draft("three", change("a.py", "1", "2"), priority=1), round=2)
    world.schema_changes["three"] = world.schema_changes["one"]
    outcome = world.run()
    assert [record.status for record in outcome.records] == ["accepted", "accepted", "accepted"]
    assert [question.review.proposal.title for question in world.questions(AskArbitration)] == [
        *["two"] * 2,
        *["two, fitted"] * 2,
    ]
