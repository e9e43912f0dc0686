"""ARBITRATING: the votes come to a conclusion, or the arbiters are asked. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from graphbus_core.model.proposals import ProposalEvaluation, Status, VoteDecision
from graphbus_core.negotiation import votes
from graphbus_core.negotiation.phases.voting import review_of
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    Arbitrated,
    AskArbitration,
    Case,
    ProposalArbitrated,
    ProposalPostponed,
)
from graphbus_core.negotiation.turn import Turn


def open_arbitration(turn: Turn) -> None:
    """Draw the conclusion from the votes on each proposal; ask the arbiters where they leave it open."""
    for case in turn.ready():
        if not _postpone(turn, case):
            _conclude(turn, case)


def _postpone(turn: Turn, case: Case) -> bool:
    """Put off what was countered or deferred, unless a veto settles it now."""
    decisions = {name: vote.decision for name, vote in votes.latest(case.evaluations).items()}
    undecided = tuple(name for name, decision in decisions.items() if decision in {"counter", "defer"})
    if not undecided or votes.find_veto(case, turn.state.ground):
        return False
    status: Status = "countered" if "counter" in decisions.values() else "deferred"
    turn.move(case, status, asked=undecided)
    turn.tell(ProposalPostponed(case.proposal_id, status, f"by {', '.join(undecided)}"))
    return True


def _conclude(turn: Turn, case: Case) -> None:
    verdict = votes.decide(case, turn.state.ground, turn.state.safety)
    if verdict.outcome == "arbitrate":
        ask_judges(turn, case, f"the votes leave it open: {verdict.reason}")
    else:
        _settle(turn, case, verdict)


def _settle(turn: Turn, case: Case, verdict: votes.Verdict) -> None:
    """Let an accepted proposal wait for its commit, and close a rejected one; in a review a person may still want it."""
    if verdict.outcome == "accept":
        turn.change(case, agreed=verdict.consensus)
    elif turn.state.is_reviewed:
        turn.change(case, turned_down=verdict.reason)
    else:
        turn.close(case, "rejected", verdict.reason)


def take_arbitration(turn: Turn, reply: Arbitrated) -> None:
    """Do as the arbiters say, once all who were asked have spoken."""
    verdict = hear_judge(turn, reply)
    if verdict:
        _settle(turn, turn.cases[reply.proposal_id], verdict)


def ask_judges(turn: Turn, case: Case, reason: str) -> None:
    """Put a dispute before the arbiters whose it is."""
    judges = votes.judges_of(case, turn.state.ground, turn.state.safety)
    turn.change(case, judges=judges)
    for judge in judges:
        turn.ask(AskArbitration(turn.state.round, judge, review_of(case), case.evaluations, reason))


def hear_judge(turn: Turn, reply: Arbitrated) -> votes.Verdict | None:
    """Keep the word of an arbiter; give what all words come to after the last one."""
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.tell(AgentFailed(reply.arbiter, "arbitrate", reply.failure))
    word = _binding_word(turn, reply, is_alone=len(case.judges) == 1)
    count = votes.tally(case.evaluations)
    case = turn.change(case, evaluations=(*case.evaluations, word))
    turn.tell(ProposalArbitrated(case.proposal_id, reply.arbiter, word, count.accepts, count.rejects))
    if reply.arbiter != case.judges[-1]:
        return None
    return votes.settle(case.evaluations[-len(case.judges) :])


def _binding_word(turn: Turn, reply: Arbitrated, *, is_alone: bool) -> ProposalEvaluation:
    """Give an arbiter's evaluation; what is no accept is a reject, or nothing where several are asked."""
    no_word: VoteDecision = "reject" if is_alone else "abstain"
    doubt = "when in doubt, reject" if is_alone else "it does not count"
    said = reply.evaluation or ProposalEvaluation(
        proposal_id=reply.proposal_id,
        evaluator=reply.arbiter,
        round=turn.state.round,
        decision=no_word,
        reasoning=f"the arbiter gave no answer{f' ({reply.failure})' if reply.failure else ''}; {doubt}",
    )
    return replace(
        said,
        proposal_id=reply.proposal_id,
        evaluator=reply.arbiter,
        round=turn.state.round,
        decision=said.decision if said.decision in {"accept", "reject"} else no_word,
        confidence=1.0,
        is_arbiter=True,
        counter_proposal=None,
    )
