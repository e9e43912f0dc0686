"""Facts for whoever listens; nothing is awaited. Data only."""

from __future__ import annotations

import msgspec

from graphbus_core.model.proposals import CommitRecord, Ending, GateReport, Proposal, ProposalEvaluation, Status
from graphbus_core.negotiation.protocol.keys import Task
from graphbus_core.negotiation.protocol.replies import PersonVerdict


class RoundStarted(msgspec.Struct, frozen=True):
    """A round begins; rounds count from 1."""

    round: int


class ProposalMade(msgspec.Struct, frozen=True):
    """A proposal has its number, a repaired one its new text."""

    proposal: Proposal


class DraftsDropped(msgspec.Struct, frozen=True):
    """An agent proposed more than its limits allow; `reason` names the setting."""

    agent: str
    count: int
    reason: str


class AgentFailed(msgspec.Struct, frozen=True):
    """An agent gave no usable answer: no proposal, or an abstention."""

    agent: str
    task: Task
    reason: str


class ProposalGated(msgspec.Struct, frozen=True):
    """The gate has spoken."""

    proposal_id: str
    report: GateReport


class ProposalMerged(msgspec.Struct, frozen=True):
    """A proposal was written for an earlier text of these files, and was merged into the present one."""

    proposal_id: str
    files: tuple[str, ...]


class ProposalSentBack(msgspec.Struct, frozen=True):
    """What was accepted meanwhile contradicts a proposal: its author may fit it, once, and it is voted on again."""

    proposal_id: str
    reason: str


class EvaluationMade(msgspec.Struct, frozen=True):
    """A vote as it is counted."""

    evaluation: ProposalEvaluation


class ProposalPostponed(msgspec.Struct, frozen=True):
    """Countered or deferred: decided in a later round."""

    proposal_id: str
    status: Status
    reason: str


class ProposalArbitrated(msgspec.Struct, frozen=True):
    """An arbiter has spoken in a dispute; when several are asked, each does."""

    proposal_id: str
    arbiter: str
    evaluation: ProposalEvaluation
    accepts: int
    rejects: int


class PersonAnswered(msgspec.Struct, frozen=True):
    """A person has looked at a change."""

    proposal_id: str
    verdict: PersonVerdict
    reason: str


class ProposalCommitted(msgspec.Struct, frozen=True):
    """An accepted change is in the workspace; `votes` are those that were for or against."""

    commit: CommitRecord
    accepts: int
    votes: int


class ProposalRejected(msgspec.Struct, frozen=True):
    """A proposal is closed without a change: rejected by vote, refused by a limit or the gate, or superseded."""

    proposal_id: str
    status: Status
    accepts: int
    rejects: int
    abstains: int
    reason: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """NEGOTIATION_COMPLETE of seed 002, 2.2; the three counts add up to the total."""

    total_proposals: int
    accepted: int
    rejected: int
    still_pending: int
    rounds: int
    commits_ready: tuple[CommitRecord, ...]


class Finished(msgspec.Struct, frozen=True):
    """The end, once."""

    ending: Ending
    summary: Summary


Announcement = (
    RoundStarted
    | ProposalMade
    | DraftsDropped
    | AgentFailed
    | ProposalGated
    | ProposalMerged
    | ProposalSentBack
    | EvaluationMade
    | ProposalPostponed
    | ProposalArbitrated
    | PersonAnswered
    | ProposalCommitted
    | ProposalRejected
    | Finished
)
