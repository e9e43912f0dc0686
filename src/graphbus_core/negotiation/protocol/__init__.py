"""What the engine and the world say to each other: data only.

    engine -- questions ------> driver --> agents, gate, workspace, a person
    engine <-- replies -------- driver <--
    engine -- announcements --> driver --> the bus, for whoever listens

Every question has a key, and exactly one reply with the same key is awaited for it.
"""

from __future__ import annotations

from graphbus_core.negotiation.protocol.announcements import (
    AgentFailed,
    Announcement,
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
    Summary,
)
from graphbus_core.negotiation.protocol.keys import (
    KEYS,
    Key,
    ProtocolError,
    Task,
    key_of,
)
from graphbus_core.negotiation.protocol.questions import (
    AgentQuestion,
    ApplyProposal,
    AskArbitration,
    AskEvaluations,
    AskPerson,
    AskProposals,
    AskRepair,
    CheckProposal,
    Question,
    Review,
)
from graphbus_core.negotiation.protocol.replies import (
    Answered,
    Applied,
    Arbitrated,
    Evaluated,
    Gated,
    PersonVerdict,
    Proposed,
    Repaired,
    Reply,
    Stopped,
)
from graphbus_core.negotiation.protocol.state import (
    Case,
    Command,
    Ground,
    Phase,
    State,
    Step,
)

__all__ = [
    "KEYS",
    "AgentFailed",
    "AgentQuestion",
    "Announcement",
    "Answered",
    "Applied",
    "ApplyProposal",
    "Arbitrated",
    "AskArbitration",
    "AskEvaluations",
    "AskPerson",
    "AskProposals",
    "AskRepair",
    "Case",
    "CheckProposal",
    "Command",
    "DraftsDropped",
    "Evaluated",
    "EvaluationMade",
    "Finished",
    "Gated",
    "Ground",
    "Key",
    "PersonAnswered",
    "PersonVerdict",
    "Phase",
    "ProposalArbitrated",
    "ProposalCommitted",
    "ProposalGated",
    "ProposalMade",
    "ProposalMerged",
    "ProposalPostponed",
    "ProposalRejected",
    "ProposalSentBack",
    "Proposed",
    "ProtocolError",
    "Question",
    "Repaired",
    "Reply",
    "Review",
    "RoundStarted",
    "State",
    "Step",
    "Stopped",
    "Summary",
    "Task",
    "key_of",
]
