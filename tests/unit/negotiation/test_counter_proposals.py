"""Counter-proposals and deferrals: what becomes of the original, and that nothing waits forever."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from graphbus_core.model.proposals import Counterexample, ProposalEvaluation
from graphbus_core.negotiation.engine import begin, step
from graphbus_core.negotiation.protocol import (
    AskEvaluations,
    AskProposals,
    AskRepair,
    Gated,
    GatedProposal,
    NegotiationState,
    ProposalPostponed,
    Proposed,
)
from tests.fakes.negotiating_world import World, change, counter, draft, proposing, report

# --- counter-proposals and deferrals ---------------------------------------------------------


def test_an_accepted_counter_proposal_supersedes_the_original() -> None:
    world = proposing("A", "B", "C", votes={"B": counter("other")})
    outcome = world.run()
    original, other = outcome.records
    assert (original.status, original.refusal) == ("superseded", "P002 was accepted instead")
    assert (other.status, other.proposal.parent, other.proposal.src, other.proposal.round) == (
        "accepted",
        "P001",
        "B",
        2,
    )
    assert world.files["a.py"] == "2"
    assert [(p.proposal_id, p.status, p.reason) for p in world.announced(ProposalPostponed)] == [
        ("P001", "countered", "by B")
    ]


def test_three_services_settle_on_the_original_after_a_counter_proposal() -> None:
    """Source: seed 002, 5.2: three rounds, two proposals, one commit."""
    world = World("Order", "Inventory", "Payment")
    world.proposes("Order", draft("status", change("order.py", "0", "1")))
    world.votes("status", Inventory=[counter("success"), "accept"], Payment="accept")
    world.votes("success", Order="reject", Payment="reject")
    outcome = world.run()
    assert [record.status for record in outcome.records] == ["accepted", "rejected"]
    (commit,) = outcome.completed
    assert (commit.round, commit.consensus_type, commit.evaluators) == (3, "unanimous", ("Inventory", "Payment"))
    second = [one for one in world.questions(AskEvaluations) if one.round == 3]
    assert [one.agent for one in second] == ["Inventory"]


def test_a_second_counter_by_the_same_agent_is_a_reject() -> None:
    world = proposing("A", "B", "C", votes={"B": [counter("other"), counter("again")], "C": "reject"})
    world.votes("other", A="reject", C="reject")
    outcome = world.run()
    assert [record.proposal.title for record in outcome.records] == ["one", "other"]
    last = outcome.records[0].evaluations[-1]
    assert (last.decision, last.concerns) == (
        "reject",
        ("its counter-proposal was not taken: this is its second vote",),
    )


@pytest.mark.parametrize(
    ("safety", "why"),
    [
        ({"max_back_and_forth": 0}, "max_back_and_forth is 0"),
        ({"max_proposals_per_agent": 0}, "max_proposals_per_agent is 0"),
        ({"max_proposals_per_round": 0}, "max_proposals_per_round is 0"),
    ],
)
def test_a_counter_beyond_a_limit_is_a_reject_that_names_the_setting(safety: dict[str, int], why: str) -> None:
    world = World("A", "B", "C")
    state, _ = begin(world.participants, world.safety, "d")
    for reply in (Proposed("A", (draft("one"),)), Proposed("B"), Proposed("C"), Gated("P001", report("P001"))):
        state, _ = step(state, reply)
    state = replace(state, safety=World(**safety).safety)
    world.votes("one", B=counter("other"))
    for name in "BC":
        (question,) = [q for q in _inboxes(state) if q.agent == name]
        state, _ = step(state, world.answer(question))
    vote = state.cases["P001"].evaluations[0]
    assert (vote.decision, vote.concerns) == ("reject", (f"its counter-proposal was not taken: {why}",))


def _inboxes(state: NegotiationState) -> list[AskEvaluations]:
    cases = state.cases.values()
    return [
        AskEvaluations(
            1,
            name,
            tuple(GatedProposal(case.proposal, report(case.proposal_id)) for case in cases if name in case.asked),
        )
        for name in "BC"
    ]


def test_a_counter_that_names_no_change_is_a_reject() -> None:
    world = proposing("A", "B", "C", "D", votes={"B": "counter", "C": "reject"})
    outcome = world.run()
    assert outcome.records[0].evaluations[0].concerns == ("its counter-proposal was not taken: it names no change",)
    assert outcome.records[0].status == "rejected"


def test_a_counter_proposal_costs_its_author_s_budget_of_the_next_round() -> None:
    world = proposing("A", "B", "C", votes={"B": counter("other")})
    world.proposes("B", draft("one more", change("b.py", "0", "1")), round=2)
    world.run()
    assert [one.agent for one in world.questions(AskProposals) if one.round == 2] == ["A", "C"]


def test_two_counters_of_one_agent_in_one_round_are_held_to_the_limit_of_a_round() -> None:
    world = proposing("A", "B", "C", electorate="all")
    world.proposes("C", draft("two", change("c.py", "0", "1")))
    world.votes("one", B=counter("other"))
    world.votes("two", B=counter("another"))
    outcome = world.run()
    assert [record.proposal.title for record in outcome.records] == ["one", "two", "other"]
    vote = next(vote for vote in outcome.records[1].evaluations if vote.evaluator == "B")
    assert (vote.decision, vote.concerns[0]) == (
        "reject",
        "its counter-proposal was not taken: max_proposals_per_round is 1",
    )


def test_a_counter_to_a_counter_settles_the_whole_matter() -> None:
    world = proposing("A", "B", "C", electorate="all", votes={"B": counter("two")})
    world.votes("two", C=counter("three"))
    assert world.statuses() == {"one": "superseded", "two": "superseded", "three": "accepted"}


def test_of_two_accepted_counters_the_first_wins() -> None:
    world = proposing("A", "B", "C", votes={"B": counter("two"), "C": counter("three")})
    assert world.statuses() == {"one": "superseded", "two": "accepted", "three": "superseded"}


def test_a_counter_that_wins_ends_the_counters_to_its_rivals() -> None:
    world = proposing("A", "B", "C", "D", electorate="all", votes={"B": counter("two"), "C": counter("three")})
    world.votes("two", D=counter("four"))
    outcome = world.run()
    assert {r.proposal.title: r.status for r in outcome.records} == {
        "one": "superseded",
        "two": "superseded",
        "three": "accepted",
    }


def test_an_original_comes_back_when_its_counter_is_refused_by_a_limit() -> None:
    bad = replace(counter("bad"), counter_proposal=draft("bad", change("c.py", "0", "1")))
    world = proposing("A", "B", "C", protected_files=("c.py",), votes={"B": [bad, "accept"]})
    outcome = world.run()
    assert {r.proposal.title: r.status for r in outcome.records} == {"one": "accepted", "bad": "refused"}
    assert outcome.completed[0].round == 3


def test_what_is_deferred_is_judged_once_more_by_those_who_deferred() -> None:
    world = proposing("A", "B", "C", votes={"B": ["defer", "accept"]})
    outcome = world.run()
    assert (outcome.records[0].status, outcome.completed[0].round) == ("accepted", 2)
    assert [(one.round, one.agent) for one in world.questions(AskEvaluations)] == [(1, "B"), (1, "C"), (2, "B")]
    assert world.announced(ProposalPostponed)[0] == ProposalPostponed("P001", "deferred", "by B")


def test_who_defers_twice_abstains() -> None:
    world = proposing("A", "B", votes={"B": "defer"})
    outcome = world.run()
    last = outcome.records[0].evaluations[-1]
    assert (last.decision, last.concerns) == ("abstain", ("it deferred a second time",))
    assert outcome.records[0].status == "rejected"


def test_what_was_deferred_climbs_the_gate_again_when_the_ground_has_moved() -> None:
    world = World("A", "B", "C")
    world.proposes("A", draft("one", change("a.py", "0", "1")))
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    world.votes("one", C=["defer", "accept"])
    world.gate_says("one", True, False)
    outcome = world.run()
    assert outcome.records[0].refusal == "stale: G1.apply: it does not apply"
    assert len(world.questions(AskRepair)) == 1


# --- waiting that could have no end ----------------------------------------------------------


def test_a_counter_that_needs_what_it_counters_is_refused_at_once() -> None:
    """The one would wait for the other until the last round."""
    world = proposing("A", "B", votes={"B": [counter("other", dependencies=("P001",)), "accept"]})
    outcome = world.run()
    assert [record.status for record in outcome.records] == ["accepted", "refused"]
    assert outcome.records[1].refusal == "it depends on P001, which waits for the decision on it"
    assert (outcome.ending.reason, outcome.ending.rounds_executed) == ("convergence", 4)


def test_a_counter_that_needs_what_needs_what_it_counters_is_refused_at_once() -> None:
    world = World("A", "B", max_proposals_per_round=2)
    world.proposes("A", draft("one"), draft("two", change("a.py", "1", "2"), dependencies=("P001",)))
    world.votes("one", B=[counter("other", dependencies=("P002",)), "accept"])
    outcome = world.run()
    assert [record.status for record in outcome.records] == ["accepted", "accepted", "refused"]
    assert outcome.records[2].refusal == "it depends on P002, which waits for the decision on it"


def test_a_counter_that_needs_what_waits_for_another_counter_is_refused_at_once() -> None:
    """P002 waits for its counter P003, which needs P001: a counter to P001 must not need P002."""
    world = proposing("A", "B", "C", electorate="all")
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    world.votes("one", B="abstain", C=[counter("three", dependencies=("P002",)), "accept"])
    world.votes("two", A=[counter("four", dependencies=("P001",)), "accept"], C="abstain")
    outcome = world.run()
    assert outcome.ending.reason == "convergence"
    assert [record.status for record in outcome.records[:2]] == ["accepted", "accepted"]
    assert outcome.records[3].refusal == "it depends on P002, which waits for the decision on it"


def test_a_negotiation_does_not_converge_while_a_counter_proposal_waits_for_its_number() -> None:
    """The veto of C decides the original; what B has in its place enters in the next round all the same."""
    veto = ProposalEvaluation(
        proposal_id="",
        evaluator="",
        round=0,
        decision="reject",
        evidence=(Counterexample("test", "x", is_verified=True),),
    )
    world = World("A", "B", "C", convergence_threshold=1, max_proposals_per_round=2)
    one = draft("one", change("a.py", "0", "1"), dependencies=("P001",))
    world.proposes("A", draft("zero", change("c.py", "0", "1")), one)
    world.votes("one", B=counter("other"), C=veto)
    assert world.statuses() == {"zero": "accepted", "one": "rejected", "other": "accepted"}


def test_a_counter_may_need_what_was_accepted_before() -> None:
    world = World("A", "B")
    world.proposes("A", draft("zero", change("b.py", "0", "1")))
    world.proposes("A", draft("one"), round=2)
    world.votes("one", B=counter("other", dependencies=("P001",)))
    assert world.statuses() == {"zero": "accepted", "one": "superseded", "other": "accepted"}


def test_a_counter_may_need_what_rests_on_another_in_two_ways() -> None:
    """What is open is looked at once, however many ways lead to it."""
    world = World("A", "B", "C", max_proposals_per_round=3)
    zero = draft("zero", change("b.py", "0", "1"), proposal_id="x")
    two = draft("two", change("b.py", "1", "2"), proposal_id="y", dependencies=("x",))
    three = draft("three", change("c.py", "0", "1"), proposal_id="z", dependencies=("x", "y"))
    world.proposes("A", zero, two, three)
    world.proposes("B", draft("one"))
    world.votes("zero", B="defer", C="defer")
    world.votes("one", A=counter("other", dependencies=("P003",)), C="abstain")
    assert world.statuses()["one"] in {"countered", "rejected", "accepted", "superseded"}
