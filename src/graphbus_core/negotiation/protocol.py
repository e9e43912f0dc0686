"""What the engine and the world say to each other, and all that the engine knows: data only.

    engine -- questions ------> driver --> agents, gate, workspace, a person
    engine <-- replies -------- driver <--
    engine -- announcements --> driver --> the bus, for any listener

Every question has a key, and the engine awaits exactly one reply with the same key.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import (
    CommitRecord,
    Consensus,
    Ending,
    GateReport,
    Proposal,
    ProposalEvaluation,
    Status,
)

# --- questions ---------------------------------------------------------------------------------


class AskProposals(msgspec.Struct, frozen=True, tag=True):
    """Ask an agent what it would change; at most `limit` proposals are taken."""

    round: int
    agent: str
    limit: int


class AskRepair(msgspec.Struct, frozen=True, tag=True):
    """Ask the author to repair a proposal that the gate refused."""

    round: int
    agent: str
    proposal: Proposal
    report: GateReport


class GatedProposal(msgspec.Struct, frozen=True):
    """A proposal with what the gate says of it."""

    proposal: Proposal
    report: GateReport


class AskEvaluations(msgspec.Struct, frozen=True, tag=True):
    """Ask an agent what proposals break on its side: all that it votes on in a round, at once."""

    round: int
    agent: str
    reviews: tuple[GatedProposal, ...]


class AskArbitration(msgspec.Struct, frozen=True, tag=True):
    """The vote is split or too thin, or two accepted proposals contradict each other: decide; `reason` says which."""

    round: int
    arbiter: str
    review: GatedProposal
    evaluations: tuple[ProposalEvaluation, ...]
    reason: str = ""


class AskPerson(msgspec.Struct, frozen=True, tag=True):
    """Ask a person whether a proposal shall be committed.

    Attributes:
        agreed: How the agents accepted it; None for one that they rejected, and that a person may accept all the same.
        reason: Why they rejected it, or why the gate refused the person's own text; else empty.
    """

    round: int
    review: GatedProposal
    evaluations: tuple[ProposalEvaluation, ...]
    agreed: Consensus | None
    reason: str = ""


class CheckProposal(msgspec.Struct, frozen=True, tag=True):
    """Ask the gate to check a proposal on the present workspace."""

    proposal: Proposal


class ApplyProposal(msgspec.Struct, frozen=True, tag=True):
    """Ask the workspace to make a change."""

    proposal: Proposal


AgentQuestion = AskProposals | AskRepair | AskEvaluations | AskArbitration
Question = AgentQuestion | CheckProposal | ApplyProposal | AskPerson


# --- replies -----------------------------------------------------------------------------------


PersonVerdict = Literal["yes", "no", "edit", "quit"]


class Proposed(msgspec.Struct, frozen=True, tag=True):
    """What an agent would change; `failure` says why there is nothing, if it failed.

    A draft may name another draft of the same reply in its dependencies, by the `proposal_id` that its author gave to it.
    """

    agent: str
    proposals: tuple[Proposal, ...] = ()
    failure: str = ""


class Repaired(msgspec.Struct, frozen=True, tag=True):
    """The repaired proposal, or None when its author gives up."""

    proposal_id: str
    proposal: Proposal | None = None
    failure: str = ""


class Evaluated(msgspec.Struct, frozen=True, tag=True):
    """One agent's judgements; a proposal that is missing here, or is there twice, counts as an abstention."""

    agent: str
    evaluations: tuple[ProposalEvaluation, ...] = ()
    failure: str = ""


class Arbitrated(msgspec.Struct, frozen=True, tag=True):
    """The decision of an arbiter; anything but accept and reject counts as no decision."""

    proposal_id: str
    arbiter: str
    evaluation: ProposalEvaluation | None = None
    failure: str = ""


class Gated(msgspec.Struct, frozen=True, tag=True):
    """What the gate says.

    Attributes:
        edges: The graph as it would be after the change.
        merged: The files in which the change was written for an earlier text, and was merged into the present one.
    """

    proposal_id: str
    report: GateReport
    edges: tuple[Edge, ...] = ()
    merged: tuple[str, ...] = ()


class ChangeApplied(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The workspace after a change.

    Attributes:
        resolution: Path -> unified diff of every file that is really different now; empty: nothing happened.
        digest: The state of the whole workspace.
        edges: The graph as it is now.
        refusal: Why the change could not be made; empty when it was.
    """

    proposal_id: str
    digest: str
    resolution: dict[str, str] = {}
    edges: tuple[Edge, ...] = ()
    refusal: str = ""


class PersonReply(msgspec.Struct, frozen=True, tag=True):
    """The verdict of a person on a change; with `edit`, `proposal` is the person's own text in its place."""

    proposal_id: str
    verdict: PersonVerdict
    proposal: Proposal | None = None
    reason: str = ""


class NegotiationStopped(msgspec.Struct, frozen=True, tag=True):
    """The driver ends the negotiation in whatever phase it is: no budget left, a person stops it, the gate fails."""

    reason: Literal["manual", "budget", "error"]
    detail: str = ""


Reply = Proposed | Repaired | Evaluated | Arbitrated | Gated | ChangeApplied | PersonReply | NegotiationStopped


# --- announcements -----------------------------------------------------------------------------


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
    """The gate has accepted or refused a proposal."""

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
    """An arbiter has decided a dispute; when several are asked, one event for each."""

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


class NegotiationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """NEGOTIATION_COMPLETE of seed 002, 2.2; the three counts add up to the total."""

    total_proposals: int
    accepted: int
    rejected: int
    still_pending: int
    rounds: int
    commits_ready: tuple[CommitRecord, ...]


class NegotiationFinished(msgspec.Struct, frozen=True):
    """The end, once."""

    ending: Ending
    summary: NegotiationSummary


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
    | NegotiationFinished
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
    NegotiationFinished: "/Negotiation/Finished",
}
"""Announcement -> the topic on which its fields are published."""


# --- which reply belongs to which question -----------------------------------------------------


Task = Literal["analyze", "propose", "repair", "gate", "evaluate", "arbitrate", "review", "apply"]


class QuestionKey(NamedTuple):
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
    PersonReply: ("review", ("proposal_id",)),
    Gated: ("gate", ("proposal_id",)),
    ChangeApplied: ("apply", ("proposal_id",)),
}
"""Question or reply -> its task, and where the names of what it is about are found."""


def key_of(message: Question | Reply) -> QuestionKey:
    """Give the key that joins a question and its reply; a `NegotiationStopped` has none, because it is welcome at any time."""
    task, about = KEYS[type(message)]
    return QuestionKey(task, " by ".join(attrgetter(name)(message) for name in about))


# --- the state of the engine -------------------------------------------------------------------


Phase = Literal["PROPOSING", "GATING", "EVALUATING", "ARBITRATING", "COMMITTING", "CONVERGING", "FINISHED"]
Command = Question | Announcement


class Participants(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes part, and what belongs to whom.

    Attributes:
        agents: All names in the order of activation, the arbiters among them.
        arbiters: Those who settle disputes, the first one first; they neither propose nor vote.
        owners: Relative path -> the agents whose classes are in that file.
        edges: The graph as it is now; a commit may change it.
    """

    agents: tuple[str, ...]
    arbiters: tuple[str, ...] = ()
    owners: dict[str, tuple[str, ...]] = {}
    edges: tuple[Edge, ...] = ()

    @property
    def voters(self) -> tuple[str, ...]:
        """Those who propose and vote."""
        return tuple(name for name in self.agents if name not in self.arbiters)


class ProposalCase(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal and what has happened to it so far.

    Attributes:
        depth: How many counter-proposals deep it is.
        repairs: How often its author has mended it.
        edges: The graph as it would be after it.
        gated_on: The state of the workspace on which the gate spoke.
        electorate: Who votes on it.
        evaluations: All votes as counted, in order; the last one of an agent holds.
        asked: Who is to vote now, or once more when it is reopened.
        counters: The proposals that counter it.
        was_sent_back: Its author has fitted it to what was accepted meanwhile.
        asked_arbiters: The arbiters who were asked last, in the order of their words.
        is_cleared: That it contradicts another commit of the round has been settled in its favour.
        agreed: How it was accepted, while it waits for its commit.
        rejection: Why the votes rejected it, while a person has not seen it.
        is_approved: A person wants it as it is.
        edits: How often a person has put another text in its place.
    """

    proposal: Proposal
    status: Status = "pending"
    depth: int = 0
    repairs: int = 0
    gate: GateReport | None = None
    gated_on: str = ""
    edges: tuple[Edge, ...] = ()
    electorate: tuple[str, ...] = ()
    evaluations: tuple[ProposalEvaluation, ...] = ()
    asked: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    was_sent_back: bool = False
    asked_arbiters: tuple[str, ...] = ()
    is_cleared: bool = False
    agreed: Consensus | None = None
    rejection: str = ""
    is_approved: bool = False
    edits: int = 0
    commit: CommitRecord | None = None
    refusal: str = ""

    @property
    def proposal_id(self) -> str:
        """The proposal's number."""
        return self.proposal.proposal_id


class NegotiationState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the engine knows. A new one is made by every step; none is ever changed.

    Attributes:
        is_reviewed: A person is asked before each commit.
        awaited: The keys of the open questions, in the order in which their replies will be processed.
        received: The replies so far.
        cases: Proposal id -> case, in the order of the numbers.
        drafts: Counter-proposals that enter in the next round, their parents set.
        quiet_rounds: Rounds in a row without a new proposal.
        digest: The state of the workspace; `seen` are all states so far.
        is_oscillating: The workspace has come back to an earlier state.
        files: The files that were changed so far.
    """

    participants: Participants
    safety: SafetyConfig
    digest: str
    is_reviewed: bool = False
    phase: Phase = "CONVERGING"
    round: int = 0
    awaited: tuple[QuestionKey, ...] = ()
    received: dict[QuestionKey, Reply] = {}
    cases: dict[str, ProposalCase] = {}
    drafts: tuple[Proposal, ...] = ()
    quiet_rounds: int = 0
    seen: frozenset[str] = frozenset()
    is_oscillating: bool = False
    files: tuple[str, ...] = ()
    commits: tuple[CommitRecord, ...] = ()
    ending: Ending | None = None


class EngineStep(NamedTuple):
    """The new state, and what is to be done and said, in order."""

    state: NegotiationState
    commands: tuple[Command, ...]
