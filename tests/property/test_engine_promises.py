"""What holds for every negotiation, whatever its agents, its gate and its arbiter do."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode

from graphbus_core.negotiation.engine import MAX_EDITS, begin, max_questions, step, summarize
from graphbus_core.negotiation.protocol import (
    ApplyProposal,
    AskPerson,
    AskProposals,
    AskRepair,
    CheckProposal,
    EvaluationMade,
    NegotiationFinished,
    NegotiationStopped,
    PersonAnswered,
    ProposalCommitted,
    ProposalMade,
    ProposalPostponed,
    ProposalRejected,
    ProposalSentBack,
    ProtocolError,
    Reply,
)
from graphbus_core.negotiation.votes import path_matches
from tests.fakes.negotiating_world import AGENT_QUESTIONS, QUESTIONS, Adversary

SMALL = st.integers(0, 4)

limits = st.fixed_dictionaries(
    {},
    optional={
        "max_negotiation_rounds": st.integers(0, 6),
        "convergence_threshold": st.integers(1, 3),
        "max_proposals_per_agent": st.integers(0, 6),
        "max_proposals_per_round": st.integers(0, 3),
        "max_back_and_forth": SMALL,
        "require_arbiter_on_conflict": st.booleans(),
        "max_file_changes_per_commit": st.integers(0, 2),
        "max_total_file_changes": st.integers(0, 5),
        "protected_files": st.sampled_from([(), ("protected.py",), ("a.py", "miss*")]),
        "electorate": st.sampled_from(["affected", "all"]),
        "max_votes_per_proposal": SMALL,
        "max_repairs": st.integers(0, 3),
        "arbitration": st.sampled_from(["first", "domain", "vote"]),
        "arbiter_domains": st.sampled_from([{}, {"Z": ("a.py", "/T")}, {"Y": ("any*",), "Z": ("b.py",)}]),
    },
)
names = st.sampled_from([("A",), ("A", "B"), ("A", "B", "C"), ("A", "B", "C", "D", "E")])
arbiters = st.sampled_from([(), ("Z",), ("Y", "Z"), ("X", "Y", "Z")])


@st.composite
def adversaries(draw: st.DrawFn) -> Adversary:
    seed, is_reviewed = draw(st.integers(0, 2**32)), draw(st.booleans())
    return Adversary(seed, draw(names), draw(arbiters), is_reviewed=is_reviewed, **draw(limits))


@given(adversaries())
def test_every_negotiation_ends_within_the_bound_of_calls(world: Adversary) -> None:
    world.run()
    calls = [question for question in world.asked if isinstance(question, AGENT_QUESTIONS)]
    analyses = len(world.participants.agents)
    assert len(calls) + analyses <= max_questions(world.safety, analyses, len(world.participants.arbiters))


@given(adversaries())
def test_every_negotiation_ends_within_a_bound_of_questions_of_any_kind(world: Adversary) -> None:
    """Gate and workspace are asked about each proposal a bounded number of times in a round, a person a few times in all."""
    world.run()
    safety, voters = world.safety, len(world.participants.voters)
    proposals = voters * max(safety.max_proposals_per_agent, 0)
    rounds = max(safety.max_negotiation_rounds, 0)
    checks = proposals * (2 * rounds + safety.max_repairs + MAX_EDITS)
    asked_of_persons = proposals * (MAX_EDITS + 1)
    assert len(world.questions(CheckProposal)) <= checks
    assert len(world.questions(ApplyProposal)) <= proposals
    assert len(world.questions(AskPerson)) <= asked_of_persons * world.is_reviewed
    repairs = Counter(question.proposal.proposal_id for question in world.questions(AskRepair))
    assert all(count <= safety.max_repairs for count in repairs.values())
    back = Counter(item.proposal_id for item in world.announced(ProposalSentBack))
    assert all(count == 1 for count in back.values())


@given(adversaries())
def test_no_limit_is_ever_exceeded(world: Adversary) -> None:
    safety = world.safety
    outcome = world.run()
    proposals = [record.proposal for record in outcome.records]
    assert outcome.ending.rounds_executed <= safety.max_negotiation_rounds
    assert all(count <= safety.max_proposals_per_agent for count in Counter(p.src for p in proposals).values())
    assert all(
        count <= safety.max_proposals_per_round for count in Counter((p.src, p.round) for p in proposals).values()
    )
    for commit in outcome.completed:
        assert len(commit.files_modified) <= safety.max_file_changes_per_commit
        assert not any(path_matches(path, safety.protected_files) for path in commit.files_modified)
    assert (
        len({path for commit in outcome.completed for path in commit.files_modified}) <= safety.max_total_file_changes
    )
    assert all(question.limit >= 1 for question in world.questions(AskProposals))
    assert not {p.src for p in proposals} & set(world.participants.arbiters)


@given(adversaries())
def test_a_chain_of_counter_proposals_is_never_deeper_than_allowed(world: Adversary) -> None:
    outcome = world.run()
    parents = {record.proposal.proposal_id: record.proposal.parent for record in outcome.records}
    for direct in parents.values():
        depth, parent = 0, direct
        while parent:
            depth, parent = depth + 1, parents[parent]
        assert depth <= world.safety.max_back_and_forth


@given(adversaries(), st.integers(0, 2**32))
def test_the_order_in_which_answers_arrive_changes_nothing(world: Adversary, seed: int) -> None:
    again = world.again()
    first, second = world.run(), again.run(shuffle=Random(seed))
    assert encode(first) == encode(second)
    assert world.files == again.files
    assert world.told == again.told


@given(adversaries())
def test_every_commit_stands_for_a_real_change_and_nothing_else_changes(world: Adversary) -> None:
    outcome = world.run()
    for commit in outcome.completed:
        assert commit.files_modified == tuple(sorted(commit.resolution))
        assert commit.files_modified
    touched = {path for commit in outcome.completed for path in commit.files_modified}
    assert {path for path in world.files if world.files[path] != world.original.get(path)} <= touched
    accepted = {record.proposal.proposal_id: record.commit for record in outcome.records if record.status == "accepted"}
    assert accepted == {commit.proposal_id: commit for commit in outcome.completed}


@given(adversaries())
def test_a_proposal_is_decided_once(world: Adversary) -> None:
    outcome = world.run()
    closings = [item.proposal_id for item in world.announced(ProposalRejected)]
    closings += [item.commit.proposal_id for item in world.announced(ProposalCommitted)]
    assert len(closings) == len(set(closings))
    decided = [
        record for record in outcome.records if record.status in {"accepted", "rejected", "refused", "superseded"}
    ]
    assert sorted(closings) == sorted(record.proposal.proposal_id for record in decided)


@given(adversaries())
def test_nothing_is_committed_that_did_not_pass_the_gate_and_a_vote(world: Adversary) -> None:
    outcome = world.run()
    for record in outcome.records:
        if record.status == "accepted":
            assert record.gate is not None
            assert record.gate.passed
            assert record.commit is not None
            votes = {vote.evaluator: vote.decision for vote in record.evaluations if not vote.is_arbiter}
            words = [vote.decision for vote in record.evaluations if vote.is_arbiter]
            accepts, rejects = list(votes.values()).count("accept"), list(votes.values()).count("reject")
            consensus = record.commit.consensus_type
            assert record.proposal.src not in votes
            if consensus == "override":
                assert record.proposal.proposal_id in {
                    item.proposal_id for item in world.announced(PersonAnswered) if item.verdict in {"yes", "edit"}
                }
            elif consensus == "arbiter":
                assert "accept" in words
            else:
                assert accepts > rejects


@given(adversaries())
def test_in_a_review_nothing_is_committed_without_a_person(world: Adversary) -> None:
    outcome = world.run()
    if world.is_reviewed:
        wanted = {item.proposal_id for item in world.announced(PersonAnswered) if item.verdict in {"yes", "edit"}}
        assert {commit.proposal_id for commit in outcome.completed} <= wanted
        unwanted = {item.proposal_id for item in world.announced(PersonAnswered) if item.verdict == "no"}
        assert not {commit.proposal_id for commit in outcome.completed} & unwanted
    else:
        assert world.questions(AskPerson) == []


@given(adversaries())
def test_the_same_replies_once_more_give_the_same_states(world: Adversary) -> None:
    """What a replay and a resumed session rest on: the engine is nothing but its replies."""
    replies: list[Reply] = []
    answer = world.answer
    world.answer = lambda question: replies.append(answer(question)) or replies[-1]  # type: ignore[method-assign, func-returns-value]
    world.run()
    state, commands = begin(world.participants, world.safety, world.again().digest, is_reviewed=world.is_reviewed)
    said = list(commands)
    for reply in replies:
        if state.phase != "FINISHED":
            state, commands = step(state, reply)
            said += commands
    assert state == world.state
    assert [command for command in said if not isinstance(command, QUESTIONS)] == world.told


@given(adversaries())
def test_an_evaluator_that_fails_never_accepts(world: Adversary) -> None:
    """Every agent breaks down when asked to judge: so nothing at all can be accepted."""
    world.failures = {(name, task) for name in world.participants.agents for task in ("evaluate", "arbitrate")}
    told = type(world).__mro__[1]
    world._evaluate = told._evaluate.__get__(world)  # type: ignore[method-assign]
    world._arbitrate = told._arbitrate.__get__(world)  # type: ignore[method-assign]
    world.is_reviewed = False
    outcome = world.run()
    assert outcome.completed == ()
    assert world.files == world.original
    assert all(item.evaluation.decision == "abstain" for item in world.announced(EvaluationMade))


@given(adversaries())
def test_a_proposal_never_wins_while_what_it_depends_on_has_not(world: Adversary) -> None:
    outcome = world.run()
    order = [commit.proposal_id for commit in outcome.completed]
    for record in outcome.records:
        if record.status == "accepted":
            before = order[: order.index(record.proposal.proposal_id)]
            assert set(record.proposal.dependencies) <= set(before)


@given(adversaries())
def test_of_a_proposal_and_its_counters_at_most_one_wins(world: Adversary) -> None:
    outcome = world.run()
    parents = {record.proposal.proposal_id: record.proposal.parent for record in outcome.records}

    def root(name: str) -> str:
        parent = parents[name]
        return root(parent) if parent else name

    winners = Counter(root(commit.proposal_id) for commit in outcome.completed)
    assert all(count == 1 for count in winners.values())


@given(adversaries())
def test_the_summary_adds_up_and_comes_once_at_the_end(world: Adversary) -> None:
    outcome = world.run()
    assert world.state is not None
    summary = summarize(world.state)
    assert (
        summary.total_proposals == summary.accepted + summary.rejected + summary.still_pending == len(outcome.records)
    )
    assert summary.accepted == len(summary.commits_ready) == outcome.ending.commits_created
    assert [type(item) for item in world.told].count(NegotiationFinished) == 1
    assert isinstance(world.told[-1], NegotiationFinished)
    assert world.told[-1].ending == outcome.ending
    assert len(world.announced(ProposalMade)) >= outcome.ending.proposals_made
    assert {item.status for item in world.announced(ProposalPostponed)} <= {"countered", "deferred"}


@given(adversaries(), st.integers(0, 40), st.sampled_from(["manual", "budget", "error"]))
def test_a_stop_at_any_moment_keeps_what_was_committed(world: Adversary, moment: int, reason: str) -> None:
    answered: list[object] = []
    reference = world.again()
    whole = reference.run()

    def answer(question: object) -> object:
        if len(answered) == moment:
            world.stop_at = (type(question), NegotiationStopped(reason, "enough"))  # type: ignore[arg-type]
        answered.append(question)
        return Adversary.answer(world, question)

    world.answer = answer  # type: ignore[method-assign, assignment]
    outcome = world.run()
    assert outcome.completed == whole.completed[: len(outcome.completed)]
    assert outcome.ending.reason in {reason, whole.ending.reason}
    assert outcome.ending.terminated
    assert world.state is not None
    with pytest.raises(ProtocolError, match="the driver broke the protocol: NegotiationStopped came after the end"):
        step(world.state, NegotiationStopped("manual"))


@settings(max_examples=20)
@given(adversaries())
def test_the_same_answers_give_the_same_bytes(world: Adversary) -> None:
    again = world.again()
    assert encode(world.run()) == encode(again.run())
