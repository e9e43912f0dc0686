"""What the engine asks of agents, gate, workspace and person: each question is answered by one reply. Data only."""

from __future__ import annotations

import msgspec

from graphbus_core.model.proposals import Consensus, GateReport, Proposal, ProposalEvaluation


class AskProposals(msgspec.Struct, frozen=True, tag=True):
    """What would you change? At most `limit` proposals are taken."""

    round: int
    agent: str
    limit: int


class AskRepair(msgspec.Struct, frozen=True, tag=True):
    """The gate refused your proposal: can you mend it?"""

    round: int
    agent: str
    proposal: Proposal
    report: GateReport


class Review(msgspec.Struct, frozen=True):
    """A proposal with what the gate says of it."""

    proposal: Proposal
    report: GateReport


class AskEvaluations(msgspec.Struct, frozen=True, tag=True):
    """What do these proposals break on your side? All of one agent's inbox of a round at once."""

    round: int
    agent: str
    reviews: tuple[Review, ...]


class AskArbitration(msgspec.Struct, frozen=True, tag=True):
    """The vote is split or too thin, or two accepted proposals contradict each other: decide; `reason` says which."""

    round: int
    arbiter: str
    review: Review
    evaluations: tuple[ProposalEvaluation, ...]
    reason: str = ""


class AskPerson(msgspec.Struct, frozen=True, tag=True):
    """Shall this be committed?

    Attributes:
        agreed: How the agents accepted it; None for one that they rejected, and that a person may accept all the same.
        reason: Why they rejected it, or why the gate refused the person's own text; else empty.
    """

    round: int
    review: Review
    evaluations: tuple[ProposalEvaluation, ...]
    agreed: Consensus | None
    reason: str = ""


class CheckProposal(msgspec.Struct, frozen=True, tag=True):
    """Let the proposal climb the gate, on the workspace as it is now."""

    proposal: Proposal


class ApplyProposal(msgspec.Struct, frozen=True, tag=True):
    """Make the change in the virtual workspace."""

    proposal: Proposal


AgentQuestion = AskProposals | AskRepair | AskEvaluations | AskArbitration
Question = AgentQuestion | CheckProposal | ApplyProposal | AskPerson
