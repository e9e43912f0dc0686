"""Active agents: what they see and what they answer. They live only in Build Mode. Source: seed 002, chapter 4.

An agent of any kind answers the same five questions with typed data. It never applies a change and never decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import SchemaConflict
from graphbus_core.errors import NegotiationError, did_you_mean
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation, ProposalRecord
from graphbus_core.model.spending import Price

# --- what an agent sees ------------------------------------------------------------------------


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent makes of its own class. Source: seed 001, AGENT_ANALYSIS_PHASE.

    Attributes:
        responsibilities: What it is there for, one line each.
        dependencies: The agents that it needs.
        schema_expectations: `"Agent.method"` or topic -> the fields that it relies on, as text.
        potential_issues: What is wrong at its end, one sentence each.
    """

    responsibilities: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    schema_expectations: dict[str, str] = {}
    potential_issues: tuple[str, ...] = ()


class Analyses(dict[str, Analysis]):
    """Name -> what the agent makes of itself, in the order of activation."""


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """The world of one agent at one moment.

    Attributes:
        project: The virtual workspace, with every commit so far.
        findings: What the rules find in it, for all agents.
        conflicts: The schema conflicts of the beginning in which this agent has a part.
        limit: How many proposals would be taken.
        intent: What the person wants, in words.
        goals: `refactoring_goals` of the settings.
        history: Its own proposals so far, with what became of them.
        votes: The proposals of others on which it has voted, with what became of them.
        analysis: What it found out about itself; None while it is analysing.
    """

    name: str
    project: Project
    findings: tuple[Finding, ...] = ()
    conflicts: tuple[SchemaConflict, ...] = ()
    round: int = 0
    limit: int = 0
    intent: str = ""
    goals: tuple[str, ...] = ()
    history: tuple[ProposalRecord, ...] = ()
    votes: tuple[ProposalRecord, ...] = ()
    analysis: Analysis | None = None

    @property
    def definition(self) -> AgentDefinition | None:
        """The agent's own class; None if a change took it away."""
        return self.project.agent(self.name)

    @property
    def source(self) -> str:
        """The text of the agent's own class."""
        return self.project.span_text(self.definition.span) if self.definition else ""

    @property
    def neighbours(self) -> tuple[AgentDefinition, ...]:
        """The contracts of the agents at the other ends of its edges."""
        found = (self.project.agent(name) for name in sorted(self.project.graph.neighbours(self.name)))
        return tuple(definition for definition in found if definition)


class TriedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal with everything that is known of its consequences.

    Attributes:
        after: The project as it would be.
        diff: The unified diffs of all files.
        added: What the rules find after the change and did not find before.
        mended: What they no longer find.
        dispute: Why an arbiter is asked about it; else empty.
    """

    proposal: Proposal
    report: GateReport
    after: Project
    diff: str = ""
    added: tuple[Finding, ...] = ()
    mended: tuple[Finding, ...] = ()
    dispute: str = ""


def has_part_in(finding: Finding, agent: str) -> bool:
    """Tell whether an agent stands at one of the ends of a finding."""
    return agent == finding.agent or any(agent == related.agent for related in finding.related)


# --- what it answers ---------------------------------------------------------------------------


class ActiveAgent(Protocol):
    """One agent of a negotiation. Whatever goes wrong in it is an abstention or no proposal, never an accept."""

    @property
    def name(self) -> str:
        """The name of its class."""

    @property
    def is_arbiter(self) -> bool:
        """True for those who settle disputes."""

    def analyze(self, view: AgentView) -> Analysis:
        """Say what its class is there for, what it relies on and what is wrong with it."""

    def propose(self, view: AgentView) -> Sequence[Proposal]:
        """Give drafts, the most important first; the engine numbers them and takes `view.limit` of them."""

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Proposal | None:
        """Mend its own proposal that the gate refused, or give up."""

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> Sequence[ProposalEvaluation]:
        """Judge proposals of others: one evaluation for each."""

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Settle a dispute; only arbiters are asked."""


class ActiveAgents(dict[str, ActiveAgent]):
    """Name -> agent, in the order of activation.

    Attributes:
        models: Role (`"proposer"`, `"evaluator"`, `"arbiter"`) -> `"provider:name"`; empty for rule agents.
        prices: Role -> what its model costs, None where that is not known; empty for rule agents.
    """

    models: dict[str, str] = {}  # noqa: RUF012 - replaced, never filled
    prices: dict[str, Price | None] = {}  # noqa: RUF012 - replaced, never filled

    @property
    def backend(self) -> str:
        """Who negotiates: `"rules"`, or the models."""
        return ", ".join(dict.fromkeys(self.models.values())) or "rules"

    @property
    def arbiters(self) -> tuple[str, ...]:
        """The names of those who settle disputes, the first one first."""
        return tuple(agent.name for agent in self.values() if agent.is_arbiter)


def choose_arbiters(definitions: Iterable[AgentDefinition], config: ResolvedBuild) -> tuple[str, ...]:
    """Give the arbiters: those that the settings name, in that order, else the classes with `IS_ARBITER = True`.

    Raises:
        NegotiationError: GBE401, the settings name an agent that is not there; GBE411, they give a domain to one that is no
            arbiter.
    """
    known = {definition.name: definition for definition in definitions}
    named = config.settings.safety.arbiter_agents
    for name in named:
        if name not in known:
            raise NegotiationError("GBE401", name=name, suggestion=did_you_mean(name, known), known=", ".join(known))
    arbiters = tuple(dict.fromkeys(named)) or tuple(name for name, one in known.items() if one.is_arbiter)
    for name in config.settings.safety.arbiter_domains:
        if name not in arbiters:
            shown = ", ".join(arbiters) or "none"
            raise NegotiationError("GBE411", name=name, suggestion=did_you_mean(name, arbiters), known=shown)
    return arbiters
