from __future__ import annotations

import pytest

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.proposals import Counterexample, GateReport, ProposalEvaluation
from graphbus_core.negotiation.engine import NEXT, begin, collect_records, max_questions, step, summarize
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    ApplyProposal,
    AskArbitration,
    AskEvaluations,
    AskProposals,
    AskRepair,
    ChangeApplied,
    CheckProposal,
    EvaluationMade,
    Gated,
    NegotiationState,
    NegotiationStopped,
    ProposalArbitrated,
    ProposalCase,
    ProposalCommitted,
    ProposalGated,
    ProposalMade,
    ProposalRejected,
    ProposalSentBack,
    Proposed,
    ProtocolError,
    RoundStarted,
)
from graphbus_core.negotiation.transitions import MOVES, EngineTurn, open_votes
from tests.fakes.negotiating_world import World, change, counter, draft, proposing, report

# --- the plain way ---------------------------------------------------------------------------


def test_a_proposal_that_everybody_accepts_is_committed() -> None:
    world = proposing("A", "B", "C")
    outcome = world.run()
    (commit,) = outcome.completed
    assert (commit.commit_id, commit.proposal_id, commit.proposer, commit.title) == ("C001", "P001", "A", "one")
    assert commit.evaluators == ("B", "C")
    assert (commit.consensus_type, commit.files_modified) == ("unanimous", ("a.py",))
    assert commit.resolution == {"a.py": "-0\n+1"}
    assert world.files["a.py"] == "1"


def test_the_story_of_a_round_is_told_in_order() -> None:
    world = proposing("A", "B")
    world.run()
    told = [type(item) for item in world.told]
    assert told[:6] == [RoundStarted, ProposalMade, ProposalGated, EvaluationMade, ProposalCommitted, RoundStarted]
    assert [item.round for item in world.announced(RoundStarted)] == [1, 2, 3]


def test_a_commit_tells_how_many_were_for_it() -> None:
    world = proposing("A", "B", "C", "D", "E", electorate="all", votes={"B": "reject", "E": "abstain"})
    world.run()
    (told,) = world.announced(ProposalCommitted)
    assert (told.accepts, told.votes) == (2, 3)
    assert told.commit.evaluators == ("B", "C", "D")


def test_proposals_are_numbered_by_round_and_agent_whatever_they_call_themselves() -> None:
    world = World("A", "B", "C", max_proposals_per_round=2)
    world.proposes("B", draft("b", change("b.py", "0", "1"), proposal_id="P009"))
    world.proposes("A", draft("a1"), draft("a2", change("a.py", "1", "2")))
    world.proposes("C", draft("c", change("c.py", "0", "1")), round=2)
    outcome = world.run()
    assert [(r.proposal.proposal_id, r.proposal.title, r.proposal.src) for r in outcome.records] == [
        ("P001", "a1", "A"),
        ("P002", "a2", "A"),
        ("P003", "b", "B"),
        ("P004", "c", "C"),
    ]


def test_agents_with_nothing_to_say_converge() -> None:
    ending = World("A", "B").run().ending
    assert (ending.reason, ending.rounds_executed) == ("convergence", 2)


def test_evaluations_of_one_agent_come_in_one_question_a_round() -> None:
    world = World("A", "B", "C", electorate="all")
    for name in "ABC":
        world.proposes(name, draft(name, change(f"{name.lower()}.py", "0", "1")))
    world.run()
    asked = world.questions(AskEvaluations)
    assert [(one.agent, len(one.reviews)) for one in asked] == [("A", 2), ("B", 2), ("C", 2)]


def test_an_agent_is_not_asked_to_judge_when_nothing_concerns_it() -> None:
    world = proposing("A", "B", "C", edges=(Edge("A", "B", "topic", "/T"),))
    world.edges_after["one"] = world.participants.edges
    world.run()
    assert [one.agent for one in world.questions(AskEvaluations)] == ["B"]


def test_the_graph_after_a_commit_decides_who_votes_next() -> None:
    new = (Edge("A", "C", "topic", "/T"),)
    world = proposing("A", "B", "C", edges=(Edge("A", "B", "topic", "/T"),))
    world.proposes("A", draft("two", change("a.py", "1", "2")), round=2)
    world.edges_after.update(one=new, two=new)
    world.run()
    assert [one.agent for one in world.questions(AskEvaluations)] == ["B", "C", "C"]


def test_arbiters_neither_propose_nor_vote() -> None:
    world = proposing("A", "B", arbiters=("Z",), electorate="all")
    world.proposes("Z", draft("not mine to make"))
    world.run()
    assert {one.agent for one in world.questions(AskProposals) + world.questions(AskEvaluations)} == {"A", "B"}


# --- the gate --------------------------------------------------------------------------------


def test_nobody_votes_on_what_the_gate_refuses() -> None:
    world = proposing("A", "B", max_repairs=0)
    world.gate_says("one", False)
    outcome = world.run()
    assert world.questions(AskEvaluations) == []
    assert (outcome.records[0].status, outcome.records[0].refusal) == ("refused", "G1.apply: it does not apply")
    assert outcome.records[0].gate is not None


def test_a_gate_that_refuses_without_a_reason_still_refuses() -> None:
    world = proposing("A", "B", max_repairs=0)
    state, _ = begin(world.participants, world.safety, "d")
    state, _ = step(state, Proposed("A", (draft("one"),)))
    state, _ = step(state, Proposed("B"))
    state, _ = step(state, Gated("P001", GateReport(proposal_id="P001", passed=False, rungs=())))
    assert state.cases["P001"].refusal == "the gate refused it"


def test_a_refused_proposal_goes_back_to_its_author_who_may_fix_it() -> None:
    world = World("A", "B")
    world.proposes("A", draft("one", priority=7, finding="GB003"))
    world.gate_says("one", False)
    world.repairs["one"] = [draft("better", change("a.py", "0", "5"), priority=-1, parent="P777")]
    outcome = world.run()
    (record,) = outcome.records
    assert (record.status, record.proposal.title, record.proposal.src) == ("accepted", "better", "A")
    assert (record.proposal.proposal_id, record.proposal.priority, record.proposal.parent) == ("P001", 7, None)
    assert record.proposal.finding == "GB003"
    assert world.files["a.py"] == "5"
    assert outcome.ending.proposals_made == 1


def test_an_author_who_gives_up_leaves_the_gate_s_word_as_the_reason() -> None:
    world = proposing("A", "B")
    world.gate_says("one", False)
    outcome = world.run()
    assert outcome.records[0].refusal == "G1.apply: it does not apply"
    assert len(world.questions(AskRepair)) == 1


def test_a_repair_is_held_to_the_limits_as_well() -> None:
    world = proposing("A", "B", protected_files=("b.py",))
    world.gate_says("one", False)
    world.repairs["one"] = [draft("sly", change("b.py", "0", "5"))]
    outcome = world.run()
    assert outcome.records[0].refusal == "b.py is protected by protected_files"
    assert world.files["b.py"] == "0"


# --- two proposals on one text -------------------------------------------------------------


def test_the_second_of_two_accepted_proposals_climbs_the_gate_again_on_the_new_ground() -> None:
    world = World("A", "B", "C")
    world.proposes("A", draft("one", change("a.py", "0", "1")))
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    assert world.statuses() == {"one": "accepted", "two": "accepted"}
    order = [(type(q), q.proposal.title) for q in world.asked if isinstance(q, CheckProposal | ApplyProposal)]
    assert order == [
        (CheckProposal, "one"),
        (CheckProposal, "two"),
        (ApplyProposal, "one"),
        (CheckProposal, "two"),
        (ApplyProposal, "two"),
    ]


def test_what_no_longer_passes_after_an_earlier_commit_is_stale_and_may_come_again() -> None:
    world = World("A", "B", "C")
    world.proposes("A", draft("one", change("c.py", "0", "1")))
    world.proposes("B", draft("two", change("c.py", "0", "2")))
    world.gate_says("two", True, False)
    world.proposes("B", draft("two again", change("c.py", "1", "12")), round=2)
    assert world.statuses() == {"one": "accepted", "two": "refused", "two again": "accepted"}
    assert world.files["c.py"] == "12"
    (stale,) = world.announced(ProposalRejected)
    assert stale.reason == "stale: G1.apply: it does not apply"
    assert [item.reason for item in world.announced(ProposalSentBack)] == [
        "after other commits it no longer passes the gate (G1.apply: it does not apply)"
    ]


def test_what_no_longer_applies_is_stale() -> None:
    world = World("A", "B", "C")
    world.proposes("A", draft("one", change("c.py", "0", "1")))
    world.proposes("B", draft("two", change("c.py", "0", "2")))
    assert world.statuses() == {"one": "accepted", "two": "refused"}
    assert world.announced(ProposalRejected)[0].reason == "stale: '0' is gone"


def test_the_highest_priority_is_committed_first() -> None:
    world = World("A", "B", "C")
    world.proposes("A", draft("low", change("c.py", "0", "1"), priority=1))
    world.proposes("B", draft("high", change("c.py", "0", "2"), priority=2))
    assert world.statuses() == {"low": "refused", "high": "accepted"}


def test_a_change_that_changes_nothing_is_no_commit() -> None:
    world = World("A", "B")
    world.proposes("A", draft("idle", change("a.py", "0", "0")), draft("empty"), round=1)
    outcome = world.run()
    assert outcome.completed == ()
    assert outcome.records[0].refusal == "it changes nothing"


# --- dependencies ----------------------------------------------------------------------------


def test_a_proposal_waits_until_what_it_depends_on_is_in_the_workspace() -> None:
    world = World("A", "B", max_proposals_per_round=2)
    world.proposes(
        "A",
        draft("first", proposal_id="x"),
        draft("second", change("a.py", "1", "2"), proposal_id="y", dependencies=("x",)),
    )
    outcome = world.run()
    assert [(c.proposal_id, c.round) for c in outcome.completed] == [("P001", 1), ("P002", 2)]
    assert outcome.records[1].proposal.dependencies == ("P001",)


def test_a_proposal_falls_with_what_it_depends_on() -> None:
    world = World("A", "B", max_proposals_per_round=2)
    world.proposes("A", draft("first"), draft("second", dependencies=("P001",)))
    world.votes("first", B="reject")
    outcome = world.run()
    assert outcome.records[1].refusal == "it depends on P001, which was rejected"
    assert len(world.questions(CheckProposal)) == 1


@pytest.mark.parametrize("unknown", ["P002", "P009", "x"])
def test_a_dependency_must_be_an_earlier_proposal(unknown: str) -> None:
    world = World("A", "B")
    world.proposes("A", draft("one", dependencies=(unknown,)))
    outcome = world.run()
    assert outcome.records[0].refusal == f"it depends on {unknown}, which is no earlier proposal"


# --- split votes -----------------------------------------------------------------------------


def test_the_arbiter_settles_a_tie_and_signs_the_commit() -> None:
    world = proposing("A", "B", "C", arbiters=("Z",), votes={"C": "reject"})
    world.words["one"] = "accept"
    outcome = world.run()
    assert outcome.completed[0].consensus_type == "arbiter"
    assert outcome.completed[0].evaluators == ("B", "C", "Z (ARBITER)")
    (told,) = world.announced(ProposalArbitrated)
    assert (told.arbiter, told.accepts, told.rejects) == ("Z", 1, 1)
    assert (told.evaluation.is_arbiter, told.evaluation.evaluator, told.evaluation.confidence) == (
        True,
        "Z (ARBITER)",
        1.0,
    )
    (asked,) = world.questions(AskArbitration)
    assert [vote.decision for vote in asked.evaluations] == ["accept", "reject"]


@pytest.mark.parametrize("word", ["reject", "abstain", "defer", "counter", None, "it breaks down"])
def test_whatever_the_arbiter_says_but_accept_is_a_reject(word: str | None) -> None:
    world = proposing("A", "B", "C", arbiters=("Z",), votes={"C": "reject"})
    world.words["one"] = word  # type: ignore[assignment]
    if word == "it breaks down":
        world.failures.add(("Z", "arbitrate"))
    (record,) = world.run().records
    assert (record.status, record.evaluations[-1].decision) == ("rejected", "reject")
    assert record.refusal.startswith("Z decided against it: ")
    assert ("it broke down" in record.refusal) == (word == "it breaks down")


def test_without_an_arbiter_a_tie_is_a_reject() -> None:
    world = proposing("A", "B", "C", votes={"C": "reject"})
    outcome = world.run()
    (told,) = world.announced(ProposalRejected)
    assert (told.status, told.accepts, told.rejects, told.abstains) == ("rejected", 1, 1, 0)
    assert outcome.records[0].refusal == "1 for, 1 against"


def test_a_veto_is_heard_before_a_counter_proposal() -> None:
    world = proposing("A", "B", "C", "D")
    proof = Counterexample("contract", "GB003", is_verified=True)
    veto = ProposalEvaluation(proposal_id="", evaluator="", round=0, decision="reject", evidence=(proof,))
    world.votes("one", B=counter("other"), C=veto)
    assert world.statuses() == {"one": "rejected", "other": "accepted"}


# --- failures and nonsense -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "task", "status"), [("A", "propose", ""), ("A", "repair", "refused"), ("B", "evaluate", "accepted")]
)
def test_an_agent_that_breaks_down_proposes_nothing_or_abstains_and_says_why(
    agent: str, task: str, status: str
) -> None:
    world = proposing("A", "B", "C")
    world.failures.add((agent, task))
    if task == "repair":
        world.gate_says("one", False)
    records = world.run().records
    assert [record.status for record in records] == ([status] if status else [])
    assert world.announced(AgentFailed)[0] == AgentFailed(agent, task, "it broke down")  # type: ignore[arg-type]
    votes = [(vote.decision, vote.reasoning) for record in records for vote in record.evaluations]
    assert (("abstain", "it broke down") in votes) == (task == "evaluate")


@pytest.mark.parametrize(("count", "why"), [(0, "it gave no answer"), (2, "it gave more than one answer")])
def test_none_or_two_answers_are_an_abstention(count: int, why: str) -> None:
    world = proposing("A", "B")
    state, commands = begin(world.participants, world.safety, "d")
    vote = ProposalEvaluation(proposal_id="P001", evaluator="B", round=1, decision="accept")
    for reply in (Proposed("A", (draft("one"),)), Proposed("B"), Gated("P001", report("P001"))):
        state, commands = step(state, reply)
    (question,) = [one for one in commands if isinstance(one, AskEvaluations)]
    state, _ = step(state, type(world.answer(question))("B", (vote,) * count))  # type: ignore[call-arg, arg-type]
    case = state.cases["P001"]
    assert (case.status, case.evaluations[0].decision, case.evaluations[0].reasoning) == ("rejected", "abstain", why)


# --- how it ends -----------------------------------------------------------------------------


def test_it_stops_when_the_files_are_as_they_were_before() -> None:
    world = World("A", "B", max_proposals_per_agent=9)
    for round_, (old, new) in enumerate((("0", "1"), ("1", "0"), ("0", "1")), start=1):
        world.proposes("A", draft(f"{old}{new}", change("a.py", old, new)), round=round_)
    outcome = world.run()
    assert (outcome.ending.reason, outcome.ending.rounds_executed, outcome.ending.commits_created) == (
        "oscillation",
        2,
        2,
    )


@pytest.mark.parametrize("reason", ["manual", "budget", "error"])
def test_the_world_may_stop_it_and_what_was_committed_stays(reason: str) -> None:
    world = proposing("A", "B")
    world.proposes("A", draft("two", change("a.py", "1", "2")), round=2)
    state, commands = begin(world.participants, world.safety, world.digest)
    while state.round < 2:
        for question in world.note(commands):
            state, commands = step(state, world.answer(question))
    state, commands = step(state, NegotiationStopped(reason, "for a reason"))  # type: ignore[arg-type]
    outcome = collect_records(state, "S007")
    assert (outcome.ending.reason, outcome.ending.detail) == (reason, "for a reason")
    assert (outcome.session, len(outcome.completed)) == ("S007", 1)
    assert summarize(state).still_pending == 0


def test_convergence_waits_for_what_is_still_open() -> None:
    world = proposing("A", "B", "C", convergence_threshold=1, votes={"B": ["defer", "accept"]})
    outcome = world.run()
    assert outcome.ending.reason == "convergence"
    assert outcome.records[0].status == "accepted"


def test_a_quiet_round_does_not_end_it_while_an_original_waits_for_its_second_vote() -> None:
    world = proposing("A", "B", "C", convergence_threshold=1, votes={"B": [counter("other"), "accept"]})
    world.votes("other", A=["defer", "reject"])
    outcome = world.run()
    assert {r.proposal.title: r.status for r in outcome.records} == {"one": "accepted", "other": "rejected"}
    assert (outcome.completed[0].round, outcome.ending.reason) == (4, "convergence")


def test_the_summary_counts_what_is_still_open() -> None:
    world = proposing("A", "B", "C", max_negotiation_rounds=1)
    world.proposes("B", draft("two", change("b.py", "0", "1")))
    world.proposes("C", draft("three", change("c.py", "0", "1")))
    world.votes("one", B="defer")
    world.votes("two", A="reject", C="reject")
    world.run()
    assert world.state is not None
    summary = summarize(world.state)
    assert (summary.total_proposals, summary.accepted, summary.rejected, summary.still_pending) == (3, 1, 1, 1)
    assert (summary.rounds, [commit.title for commit in summary.commits_ready]) == (1, ["three"])


# --- whose mistake it is ---------------------------------------------------------------------


def test_an_answer_that_nobody_asked_for_and_a_second_one_are_the_driver_s_mistake() -> None:
    state, _ = begin(World("A", "B").participants, World("A").safety, "d")
    with pytest.raises(
        ProtocolError, match="driver broke the protocol: nobody asked to propose X while PROPOSING"
    ) as info:
        step(state, Proposed("X"))
    assert info.value.culprit == "driver"
    with pytest.raises(ProtocolError, match="nobody asked to apply P001"):
        step(state, ChangeApplied(proposal_id="P001", digest="d"))
    state, _ = step(state, Proposed("A"))
    with pytest.raises(ProtocolError, match="the question to propose A was answered twice"):
        step(state, Proposed("A"))
    with pytest.raises(ProtocolError, match="before the end"):
        collect_records(state, "S001")


def test_a_decided_proposal_cannot_be_decided_again() -> None:

    world = proposing("A", "B")
    world.run()
    assert isinstance(world.state, NegotiationState)
    turn = EngineTurn(world.state)
    with pytest.raises(
        ProtocolError, match="the engine broke the protocol: P001 is accepted and cannot become rejected"
    ):
        turn.set_status(turn.cases["P001"], "rejected")


def test_nothing_comes_to_a_vote_before_the_gate() -> None:

    world = World("A", "B")
    turn = EngineTurn(NegotiationState(participants=world.participants, safety=world.safety, digest="d"))
    turn.cases["P001"] = ProposalCase(proposal=draft("one", proposal_id="P001"))
    with pytest.raises(ProtocolError, match="P001 comes to a vote before the gate"):
        open_votes(turn)


def test_a_state_is_never_changed_by_a_step() -> None:
    world = World("A", "B")
    state, _ = begin(world.participants, world.safety, "d")
    before = repr(state)
    middle, _ = step(state, Proposed("A", (draft("one"),)))
    kept = repr(middle)
    step(middle, Proposed("B"))
    assert (repr(state), repr(middle)) == (before, kept)


def test_the_phases_go_round_and_only_open_statuses_have_successors() -> None:
    assert list(NEXT) == ["PROPOSING", "GATING", "EVALUATING", "ARBITRATING", "COMMITTING", "CONVERGING"]
    assert list(NEXT.values()) == [*list(NEXT)[1:], "PROPOSING"]
    assert {status for status, following in MOVES.items() if following} == {"pending", "countered", "deferred"}


def test_the_bound_of_calls_is_what_its_limits_say() -> None:
    assert max_questions(World("A").safety, 4, 0) == 4 + 2 * 10 * 4 + 4 * 3 * 2
    assert max_questions(World("A").safety, 5, 1) == 5 + 2 * 10 * 4 + 4 * 3 * (2 + 4)
    assert max_questions(World("A").safety, 6, 2) == 6 + 2 * 10 * 4 + 4 * 3 * (2 + 4)
    assert max_questions(World("A", arbitration="vote").safety, 6, 2) == 6 + 2 * 10 * 4 + 4 * 3 * (2 + 4 * 2)
    assert max_questions(World("A", max_negotiation_rounds=1, max_repairs=0).safety, 3, 1) == 3 + 2 * 2 + 2 * 2
