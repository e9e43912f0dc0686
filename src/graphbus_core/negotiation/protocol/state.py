"""Everything that the engine knows. Data only; a new state is made by every step, and none is ever changed."""

from __future__ import annotations

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
from graphbus_core.negotiation.protocol.announcements import Announcement
from graphbus_core.negotiation.protocol.keys import Key
from graphbus_core.negotiation.protocol.questions import Question
from graphbus_core.negotiation.protocol.replies import Reply

Phase = Literal["PROPOSING", "GATING", "EVALUATING", "ARBITRATING", "COMMITTING", "CONVERGING", "FINISHED"]
Command = Question | Announcement


class Ground(msgspec.Struct, frozen=True, kw_only=True):
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


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal on its way.

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
        judges: The arbiters who were asked last, in the order of their words.
        is_cleared: That it contradicts another commit of the round has been settled in its favour.
        agreed: How it was accepted, while it waits for its commit.
        turned_down: Why the votes rejected it, while a person has not seen it.
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
    judges: tuple[str, ...] = ()
    is_cleared: bool = False
    agreed: Consensus | None = None
    turned_down: str = ""
    is_approved: bool = False
    edits: int = 0
    commit: CommitRecord | None = None
    refusal: str = ""

    @property
    def proposal_id(self) -> str:
        """The proposal's number."""
        return self.proposal.proposal_id


class State(msgspec.Struct, frozen=True, kw_only=True):
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

    ground: Ground
    safety: SafetyConfig
    digest: str
    is_reviewed: bool = False
    phase: Phase = "CONVERGING"
    round: int = 0
    awaited: tuple[Key, ...] = ()
    received: dict[Key, Reply] = {}
    cases: dict[str, Case] = {}
    drafts: tuple[Proposal, ...] = ()
    quiet_rounds: int = 0
    seen: frozenset[str] = frozenset()
    is_oscillating: bool = False
    files: tuple[str, ...] = ()
    commits: tuple[CommitRecord, ...] = ()
    ending: Ending | None = None


class Step(NamedTuple):
    """The new state, and what is to be done and said, in order."""

    state: State
    commands: tuple[Command, ...]
