"""On which topics of the bus a negotiation tells what happens."""

from __future__ import annotations

from graphbus_core.negotiation.protocol import (
    AgentFailed,
    DraftsDropped,
    EvaluationMade,
    Finished,
    PersonAnswered,
    ProposalArbitrated,
    ProposalCommitted,
    ProposalGated,
    ProposalMade,
    ProposalMerged,
    ProposalPostponed,
    ProposalRejected,
    ProposalSentBack,
    RoundStarted,
)

TOPICS: dict[type, str] = {
    RoundStarted: "/Negotiation/Round",
    ProposalMade: "/Negotiation/Proposed",
    DraftsDropped: "/Negotiation/Dropped",
    AgentFailed: "/Negotiation/Failed",
    ProposalGated: "/Negotiation/Gated",
    ProposalMerged: "/Negotiation/Merged",
    ProposalSentBack: "/Negotiation/SentBack",
    EvaluationMade: "/Negotiation/Evaluated",
    ProposalPostponed: "/Negotiation/Postponed",
    ProposalArbitrated: "/Negotiation/Arbitrated",
    PersonAnswered: "/Negotiation/Reviewed",
    ProposalCommitted: "/Negotiation/Committed",
    ProposalRejected: "/Negotiation/Rejected",
    Finished: "/Negotiation/Finished",
}
"""Announcement -> the topic on which its fields are published."""
