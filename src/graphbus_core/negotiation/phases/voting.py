"""EVALUATING: those whom a change affects vote on it. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from graphbus_core.model.proposals import ProposalEvaluation
from graphbus_core.negotiation import votes
from graphbus_core.negotiation.phases.proposing import allowance_of
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    AskEvaluations,
    Case,
    Evaluated,
    EvaluationMade,
    ProtocolError,
    Review,
)
from graphbus_core.negotiation.turn import Turn


def open_votes(turn: Turn) -> None:
    """Put into each evaluator's inbox what it is to vote on."""
    state = turn.state
    inboxes: dict[str, list[Review]] = {name: [] for name in state.ground.agents}
    for case in turn.ready():
        review = review_of(case)
        if not case.evaluations:
            countered = turn.cases[case.proposal.parent].proposal.src if case.proposal.parent else ""
            names = votes.electorate(case, state.ground, state.safety, countered)
            turn.change(case, electorate=names, asked=names)
        for name in turn.cases[case.proposal_id].asked:
            inboxes[name].append(review)
    for name, inbox in inboxes.items():
        if inbox:
            turn.ask(AskEvaluations(state.round, name, tuple(inbox)))


def review_of(case: Case) -> Review:
    """Give what judges are shown.

    Raises:
        ProtocolError: The gate has not spoken yet: the engine broke the protocol.
    """
    if case.gate is None:
        raise ProtocolError("engine", f"{case.proposal_id} comes to a vote before the gate")
    return Review(case.proposal, case.gate)


def take_evaluations(turn: Turn, reply: Evaluated) -> None:
    """Count the votes of one agent."""
    if reply.failure:
        turn.tell(AgentFailed(reply.agent, "evaluate", reply.failure))
    for case in turn.ready():
        if reply.agent in case.asked:
            evaluation = _count_vote(turn, case, reply)
            turn.change(case, evaluations=(*case.evaluations, evaluation))
            turn.tell(EvaluationMade(evaluation))


def _count_vote(turn: Turn, case: Case, reply: Evaluated) -> ProposalEvaluation:
    """Give the vote as it counts: what cannot be carried out is no accept, and says why."""
    given = [evaluation for evaluation in reply.evaluations if evaluation.proposal_id == case.proposal_id]
    blank = ProposalEvaluation(
        proposal_id=case.proposal_id, evaluator=reply.agent, round=turn.state.round, decision="abstain", confidence=0.0
    )
    if len(given) != 1:
        missing = reply.failure or "it gave no answer"
        return replace(blank, reasoning="it gave more than one answer" if given else missing)
    vote = replace(given[0], evaluator=reply.agent, round=turn.state.round, is_arbiter=False)
    has_voted = reply.agent in votes.latest(case.evaluations)
    if vote.decision == "defer" and has_voted:
        return replace(vote, decision="abstain", concerns=(*vote.concerns, "it deferred a second time"))
    if vote.decision == "counter":
        return _take_counter(turn, case, vote, has_voted)
    return vote


def _take_counter(turn: Turn, case: Case, vote: ProposalEvaluation, has_voted: bool) -> ProposalEvaluation:
    """Queue a counter-proposal for the next round; one that may not be made leaves a plain reject."""
    draft = vote.counter_proposal
    refusal = _refuse_counter(turn, case, vote, has_voted)
    if draft is None or refusal:
        concern = f"its counter-proposal was not taken: {refusal or 'it names no change'}"
        return replace(vote, decision="reject", concerns=(*vote.concerns, concern))
    own = replace(draft, src=vote.evaluator, round=turn.state.round + 1, parent=vote.proposal_id)
    turn.set(drafts=(*turn.state.drafts, own))
    return vote


def _refuse_counter(turn: Turn, case: Case, vote: ProposalEvaluation, has_voted: bool) -> str:
    safety = turn.state.safety
    if has_voted:
        return "this is its second vote"
    if case.depth >= safety.max_back_and_forth:
        return f"max_back_and_forth is {safety.max_back_and_forth}"
    limit, reason = allowance_of(turn, vote.evaluator, turn.state.round + 1)
    return "" if limit else reason
