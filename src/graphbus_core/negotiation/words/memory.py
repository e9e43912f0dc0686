"""What an agent remembers of the rounds before, in words: its own proposals, its votes, and what became of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphbus_core.model.proposals import ProposalEvaluation, ProposalRecord
from graphbus_core.negotiation.views import View
from graphbus_core.negotiation.words.sections import clean

_LATEST = 20
_REASON_CHARS = 400
_DECIDED = frozenset({"refused", "accepted", "rejected", "superseded"})


def memory_of(view: View, *, is_judging: bool = False) -> str:
    """Give a line or two for each proposal that the agent has made or voted on; empty when there is none.

    Who proposed what it voted on, and why, is told only after the verdict.

    Args:
        is_judging: Leave out what others say of its own open proposals: a counter-proposal that it is to judge may be theirs.
    """
    lines = [*_own(view.history[-_LATEST:], is_judging), *_voted(view.votes[-_LATEST:], view.name)]
    return "".join(f"{line}\n" for line in lines)


def _own(records: Iterable[ProposalRecord], is_judging: bool) -> Iterator[str]:
    for record in records:
        proposal = record.proposal
        counter = f", countering {proposal.parent}" if proposal.parent else ""
        yield f"You proposed {proposal.proposal_id} ({_told(proposal.title)}){counter}: {_outcome(record)}"
        for vote in record.evaluations if record.status in _DECIDED or not is_judging else ():
            yield f"  {vote.evaluator} {_decided(vote.decision)}{_because(vote.reasoning)}"


def _voted(records: Iterable[ProposalRecord], name: str) -> Iterator[str]:
    for record in records:
        mine = [vote for vote in record.evaluations if vote.evaluator == name]
        said = "; then ".join(f"you {_decided(vote.decision)}{_because(vote.reasoning)}" for vote in mine)
        proposal = record.proposal
        is_decided = record.status in _DECIDED
        whose = f" by {proposal.src} ({_told(proposal.title)})" if is_decided else ""
        others = _others(record, name) if is_decided else ""
        yield f"On {proposal.proposal_id}{whose} {said}: {_outcome(record)}{others}"


def _others(record: ProposalRecord, name: str) -> str:
    votes = [vote for vote in record.evaluations if vote.evaluator != name]
    return "".join(f"; {vote.evaluator} {_decided(vote.decision)}{_because(vote.reasoning)}" for vote in votes)


def _outcome(record: ProposalRecord) -> str:
    why = f", {_told(record.refusal)}" if record.refusal else ""
    return f"it is {record.status}{why}"


def _decided(decision: ProposalEvaluation | str) -> str:
    words = {"accept": "accepted", "reject": "rejected", "counter": "countered", "defer": "deferred"}
    return words.get(str(decision), "abstained")


def _because(reasoning: str) -> str:
    return f": {_told(reasoning)}" if reasoning else ""


def _told(text: str) -> str:
    return clean(text, _REASON_CHARS)
