"""Which reply belongs to which question, and what it is called when they do not fit."""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, NamedTuple

from graphbus_core.negotiation.protocol.questions import (
    ApplyProposal,
    AskArbitration,
    AskEvaluations,
    AskPerson,
    AskProposals,
    AskRepair,
    CheckProposal,
    Question,
)
from graphbus_core.negotiation.protocol.replies import (
    Answered,
    Applied,
    Arbitrated,
    Evaluated,
    Gated,
    Proposed,
    Repaired,
    Reply,
)

Task = Literal["analyze", "propose", "repair", "gate", "evaluate", "arbitrate", "review", "apply"]


class Key(NamedTuple):
    """Joins a reply to its question: the task, and the agent or the proposal that it is about, or both."""

    task: Task
    about: str


class ProtocolError(Exception):
    """The engine and its driver disagree on whose turn it is: a mistake in GraphBus, never in its input.

    Attributes:
        culprit: Which of the two broke the rules.
    """

    def __init__(self, culprit: Literal["engine", "driver"], what: str) -> None:
        super().__init__(f"the {culprit} broke the protocol: {what}")
        self.culprit = culprit


KEYS: dict[type, tuple[Task, tuple[str, ...]]] = {
    AskProposals: ("propose", ("agent",)),
    AskRepair: ("repair", ("proposal.proposal_id",)),
    AskEvaluations: ("evaluate", ("agent",)),
    AskArbitration: ("arbitrate", ("review.proposal.proposal_id", "arbiter")),
    AskPerson: ("review", ("review.proposal.proposal_id",)),
    CheckProposal: ("gate", ("proposal.proposal_id",)),
    ApplyProposal: ("apply", ("proposal.proposal_id",)),
    Proposed: ("propose", ("agent",)),
    Repaired: ("repair", ("proposal_id",)),
    Evaluated: ("evaluate", ("agent",)),
    Arbitrated: ("arbitrate", ("proposal_id", "arbiter")),
    Answered: ("review", ("proposal_id",)),
    Gated: ("gate", ("proposal_id",)),
    Applied: ("apply", ("proposal_id",)),
}
"""Question or reply -> its task, and where the names of what it is about are found."""


def key_of(message: Question | Reply) -> Key:
    """Give the key that joins a question and its reply; a `Stopped` has none, because it is welcome at any time."""
    task, about = KEYS[type(message)]
    return Key(task, " by ".join(attrgetter(name)(message) for name in about))
