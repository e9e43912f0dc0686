"""The messages between the engine and its driver, and the state of the engine. This module only defines data.

    engine -- questions ------> driver --> agents, gate, workspace, a person
    engine <-- replies -------- driver <-- agents, gate, workspace, a person
    engine -- announcements --> driver --> the bus, for any listener

Every question has a key, and the engine expects exactly one reply with the same key.
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
    """Ask an agent for proposals; at most `limit` are accepted."""

    round: int
    agent: str
    limit: int


class AskRepair(msgspec.Struct, frozen=True, tag=True):
    """Ask the author of a proposal to repair it after the gate has refused it; `report` says why."""

    round: int
    agent: str
    proposal: Proposal
    report: GateReport


class GatedProposal(msgspec.Struct, frozen=True):
    """A proposal and the report of the gate on it."""

    proposal: Proposal
    report: GateReport


class AskEvaluations(msgspec.Struct, frozen=True, tag=True):
    """Ask an agent to evaluate all proposals of a round on which it votes."""

    round: int
    agent: str
    reviews: tuple[GatedProposal, ...]


class AskArbitration(msgspec.Struct, frozen=True, tag=True):
    """Ask an arbiter to decide on a proposal.

    Attributes:
        evaluations: The votes of the agents.
        reason: Why a decision is needed: a tied or close vote, too few votes, or a contradiction to an earlier commit.
    """

    round: int
    arbiter: str
    review: GatedProposal
    evaluations: tuple[ProposalEvaluation, ...]
    reason: str = ""


class AskPerson(msgspec.Struct, frozen=True, tag=True):
    """Ask a person, in a review, whether to commit a proposal.

    Attributes:
        agreed: How the agents accepted it; None if they rejected it, which the person may override.
        reason: Why the agents rejected it, or why the gate refused the text that the person has written; else empty.
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
    """Ask the workspace to apply an accepted proposal."""

    proposal: Proposal


AgentQuestion = AskProposals | AskRepair | AskEvaluations | AskArbitration
Question = AgentQuestion | CheckProposal | ApplyProposal | AskPerson


# --- replies -----------------------------------------------------------------------------------


PersonVerdict = Literal["yes", "no", "edit", "quit"]


class Proposed(msgspec.Struct, frozen=True, tag=True):
    """The drafts of an agent; if the agent failed, there are none and `failure` says why.

    A draft may depend on another draft of the same reply. It refers to that one by the `proposal_id` that the agent gave to it;
    the engine then gives both their final ids.
    """

    agent: str
    proposals: tuple[Proposal, ...] = ()
    failure: str = ""


class Repaired(msgspec.Struct, frozen=True, tag=True):
    """The repaired proposal; None if its author gives up, or failed for the reason in `failure`."""

    proposal_id: str
    proposal: Proposal | None = None
    failure: str = ""


class Evaluated(msgspec.Struct, frozen=True, tag=True):
    """The evaluations of one agent. On a proposal that is missing, or occurs twice, the agent abstains."""

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
    """The report of the gate on a proposal.

    Attributes:
        edges: The edges of the graph with the change; empty if the gate refused it.
        merged: Paths of files that have changed since the proposal was written, and into whose present text it was merged.
    """

    proposal_id: str
    report: GateReport
    edges: tuple[Edge, ...] = ()
    merged: tuple[str, ...] = ()


class ChangeApplied(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The workspace after a change.

    Attributes:
        resolution: Path -> unified diff of each file that has changed; empty if the change had no effect.
        digest: The digest of the whole workspace now.
        edges: The edges of the graph now.
        refusal: Why the change could not be made; empty when it was.
    """

    proposal_id: str
    digest: str
    resolution: dict[str, str] = {}
    edges: tuple[Edge, ...] = ()
    refusal: str = ""


class PersonReply(msgspec.Struct, frozen=True, tag=True):
    """The decision of a person on a change; for `edit`, `proposal` has the edits that the person wants instead."""

    proposal_id: str
    verdict: PersonVerdict
    proposal: Proposal | None = None
    reason: str = ""


class NegotiationStopped(msgspec.Struct, frozen=True, tag=True):
    """The driver ends the negotiation, in any phase: the budget is used up, a person stops it, or an error occurs."""

    reason: Literal["manual", "budget", "error"]
    detail: str = ""


Reply = Proposed | Repaired | Evaluated | Arbitrated | Gated | ChangeApplied | PersonReply | NegotiationStopped


# --- announcements -----------------------------------------------------------------------------


class RoundStarted(msgspec.Struct, frozen=True):
    """A round begins; rounds count from 1."""

    round: int


class ProposalMade(msgspec.Struct, frozen=True):
    """A new proposal has received its number, or an existing one a new text, by a repair or by a person."""

    proposal: Proposal


class DraftsDropped(msgspec.Struct, frozen=True):
    """`count` proposals of an agent were ignored because of a limit; `reason` names the setting."""

    agent: str
    count: int
    reason: str


class AgentFailed(msgspec.Struct, frozen=True):
    """An agent gave no usable answer to a task, and so makes no proposal or abstains."""

    agent: str
    task: Task
    reason: str


class ProposalGated(msgspec.Struct, frozen=True):
    """The gate has accepted or refused a proposal."""

    proposal_id: str
    report: GateReport


class ProposalMerged(msgspec.Struct, frozen=True):
    """These files have changed since a proposal was written, and it was merged into their present text."""

    proposal_id: str
    files: tuple[str, ...]


class ProposalSentBack(msgspec.Struct, frozen=True):
    """A proposal conflicts with a later commit. Its author may adapt it, once; then it is voted on again."""

    proposal_id: str
    reason: str


class EvaluationMade(msgspec.Struct, frozen=True):
    """An agent has evaluated a proposal; the evaluation is shown as the engine counts it."""

    evaluation: ProposalEvaluation


class ProposalPostponed(msgspec.Struct, frozen=True):
    """A proposal was countered or deferred; a later round decides it."""

    proposal_id: str
    status: Status
    reason: str


class ProposalArbitrated(msgspec.Struct, frozen=True):
    """One arbiter has decided a dispute. `accepts` and `rejects` count the votes of the agents."""

    proposal_id: str
    arbiter: str
    evaluation: ProposalEvaluation
    accepts: int
    rejects: int


class PersonAnswered(msgspec.Struct, frozen=True):
    """A person has decided on a change."""

    proposal_id: str
    verdict: PersonVerdict
    reason: str


class ProposalCommitted(msgspec.Struct, frozen=True):
    """An accepted change was applied to the workspace; `votes` counts accepts and rejects together."""

    commit: CommitRecord
    accepts: int
    votes: int


class ProposalRejected(msgspec.Struct, frozen=True):
    """A proposal is closed without a commit: rejected by vote, refused by a limit or the gate, or superseded."""

    proposal_id: str
    status: Status
    accepts: int
    rejects: int
    abstains: int
    reason: str


class NegotiationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a finished negotiation. `accepted`, `rejected` and `still_pending` add up to `total_proposals`.

    Source: seed 002, 2.2.
    """

    total_proposals: int
    accepted: int
    rejected: int
    still_pending: int
    rounds: int
    commits_ready: tuple[CommitRecord, ...]


class NegotiationFinished(msgspec.Struct, frozen=True):
    """The negotiation has ended; announced once."""

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
    """The key that a question and its reply share: the task, and the agent or proposal (or both) that it is about."""

    task: Task
    about: str


class ProtocolError(Exception):
    """The engine or its driver broke the protocol. The bug is in GraphBus or in a program that embeds it, never in the input.

    Attributes:
        culprit: Which of the two broke the protocol.
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
"""Type of a question or reply -> its task, and the attributes that hold the agent or the proposal id for its key."""


def key_of(message: Question | Reply) -> QuestionKey:
    """Return the key of a question or reply; raise KeyError for `NegotiationStopped`, which may come at any time."""
    task, about = KEYS[type(message)]
    return QuestionKey(task, " by ".join(attrgetter(name)(message) for name in about))


# --- the state of the engine -------------------------------------------------------------------


Phase = Literal["PROPOSING", "GATING", "EVALUATING", "ARBITRATING", "COMMITTING", "CONVERGING", "FINISHED"]
Command = Question | Announcement


class Participants(msgspec.Struct, frozen=True, kw_only=True):
    """The agents of a negotiation, the files that they own, and the graph.

    Attributes:
        agents: The names of all agents, arbiters included, in the order of activation.
        arbiters: The names of the agents that settle disputes, and neither propose nor vote; the first one may decide alone.
        owners: Relative path -> the agents whose classes are in that file.
        edges: The edges of the graph now; a commit may change them.
    """

    agents: tuple[str, ...]
    arbiters: tuple[str, ...] = ()
    owners: dict[str, tuple[str, ...]] = {}
    edges: tuple[Edge, ...] = ()

    @property
    def voters(self) -> tuple[str, ...]:
        """The names of the agents that propose and vote: all but the arbiters."""
        return tuple(name for name in self.agents if name not in self.arbiters)


class ProposalCase(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal and what has happened to it so far.

    Attributes:
        depth: Its distance from the original in a chain of counter-proposals; 0 for an original.
        repairs: How often its author has repaired it.
        edges: The edges of the graph with the change.
        gate: The last report of the gate on it; None before the first.
        gated_on: The digest of the workspace on which the gate checked it.
        electorate: The agents that may vote on it.
        evaluations: All votes and decisions, in order; only the last vote of each agent counts.
        asked: The agents to ask for the next vote: the electorate, and after a postponement those that countered or deferred.
        counters: The ids of the proposals that counter it.
        was_sent_back: Its author has been asked to adapt it to later commits; that happens only once.
        asked_arbiters: The arbiters that were asked last, in the order in which their decisions are counted.
        is_cleared: It may be committed although it contradicts another commit of the round: the arbiters or a person decided so.
        agreed: How it was accepted; None if it was not.
        rejection: Why it was rejected by vote; a person may still override that in a review.
        is_approved: A person has accepted it as it is.
        edits: How often a person has replaced its text.
        refusal: Why it was closed without a commit; else empty.
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
    """The whole state of a negotiation, an immutable value: every step makes a new one.

    Attributes:
        digest: The digest of the workspace; `seen` holds all digests so far.
        is_reviewed: A person is asked before each commit.
        awaited: The keys of the questions of this phase, in the order in which their replies will be processed.
        received: The replies to them so far.
        cases: Proposal id -> case, in the order of the numbers.
        drafts: Counter-proposals for the next round; `parent` is the proposal that one counters.
        quiet_rounds: The number of rounds without a new proposal since the last proposal.
        is_oscillating: The workspace has returned to an earlier state.
        files: The paths of the files changed so far.
        ending: How the negotiation ended; None while it goes on.
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
    """The result of a step: the new state, and the commands that the driver must carry out, in this order."""

    state: NegotiationState
    commands: tuple[Command, ...]
