"""The interface of the agents in a negotiation: what they see, and what they answer. Source: seed 002, chapter 4.

Every kind of agent answers the same five questions with typed data. An agent never applies a change; the engine decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from graphbus_core.schema.json import Json
from graphbus_core.settings import place_of

# --- what an agent sees ------------------------------------------------------------------------


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about its own class. Source: seed 001, AGENT_ANALYSIS_PHASE.

    Attributes:
        responsibilities: The purposes of the class, one line each.
        dependencies: The names of the agents that the class needs.
        schema_expectations: `"Agent.method"` or topic -> the fields that the class relies on, as text.
        potential_issues: Problems in the class or at its edges, one sentence each.
    """

    responsibilities: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    schema_expectations: dict[str, str] = {}
    potential_issues: tuple[str, ...] = ()


class Analyses(dict[str, Analysis]):
    """Agent -> its analysis, in the order of activation."""


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one agent sees when it is asked a question.

    Attributes:
        name: The name of the agent.
        project: The virtual workspace, with every commit so far.
        findings: The findings of the rules in that project, for all agents.
        conflicts: The schema conflicts at the start of the session that involve this agent.
        round: The number of the round, from 1; 0 for the analysis.
        limit: The largest number of proposals that it may make now.
        intent: What the user wants, in free text.
        goals: `refactoring_goals` of the settings.
        history: Its own proposals so far, with their results.
        votes: The proposals of others on which it has voted, with their results.
        analysis: Its analysis of its own class; None while it is being asked for that.
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
        """The agent's own class; None if a change has removed it."""
        return self.project.agent(self.name)

    @property
    def source(self) -> str:
        """The source text of the agent's own class; empty if a change has removed it."""
        return self.project.span_text(self.definition.span) if self.definition else ""

    @property
    def neighbours(self) -> tuple[AgentDefinition, ...]:
        """The definitions of the agents at the other ends of its edges, by name."""
        found = (self.project.agent(name) for name in sorted(self.project.graph.neighbours(self.name)))
        return tuple(definition for definition in found if definition)


class TriedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that passed the gate, with its computed consequences.

    Attributes:
        after: The project with the change.
        diff: The unified diffs of all files.
        added: Findings of the rules that the change causes.
        removed: Findings that the change removes.
        dispute: Why an arbiter is asked about it; empty for evaluators.
    """

    proposal: Proposal
    report: GateReport
    after: Project
    diff: str = ""
    added: tuple[Finding, ...] = ()
    removed: tuple[Finding, ...] = ()
    dispute: str = ""


def has_part_in(finding: Finding, agent: str) -> bool:
    """Return whether a finding is in an agent's class, or involves the agent as the other end of an edge."""
    return agent == finding.agent or any(agent == related.agent for related in finding.related)


# --- what an agent answers ---------------------------------------------------------------------------


class ActiveAgent(Protocol):
    """One agent of a negotiation. If a method raises a GraphBusError, the agent makes no proposal or abstains."""

    @property
    def name(self) -> str:
        """The name of the agent's class."""

    @property
    def is_arbiter(self) -> bool:
        """True if the agent settles disputes, and neither proposes nor votes."""

    def analyze(self, view: AgentView) -> Analysis:
        """Return the agent's analysis of its own class."""

    def propose(self, view: AgentView) -> Sequence[Proposal]:
        """Return proposals without numbers, the most important first; the engine takes the first `view.limit` of them."""

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Proposal | None:
        """Return a new version of the agent's own proposal, which the gate refused, or None to give up."""

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> Sequence[ProposalEvaluation]:
        """Return one evaluation for each of these proposals of other agents."""

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        """Return the decision on a disputed proposal, accept or reject. Called only for arbiters."""


class ActiveAgents(dict[str, ActiveAgent]):
    """Name -> agent, in the order of activation.

    Attributes:
        models: Role (`"proposer"`, `"evaluator"`, `"arbiter"`) -> `"provider:name"`; empty for rule agents.
        prices: Role -> the price of its model, None if it is not known; empty for rule agents.
        programs: The names of the agents that programs represent.
        listeners: Called with the topic and the payload of each event of the transcript.
    """

    models: dict[str, str] = {}  # noqa: RUF012 - replaced, never filled
    prices: dict[str, Price | None] = {}  # noqa: RUF012 - replaced, never filled
    programs: tuple[str, ...] = ()
    listeners: tuple[Callable[[str, Json], object], ...] = ()

    @property
    def backend(self) -> str:
        """The names of the models, or `"rules"`; and `"programs"` if some represent agents."""
        answering = [*dict.fromkeys(self.models.values())] or ["rules"]
        return ", ".join([*answering, *(["programs"] if self.programs else [])])

    @property
    def are_recorded(self) -> bool:
        """True if some answers come from outside of GraphBus, and so are recorded for a replay."""
        return bool(self.models or self.programs)

    @property
    def arbiters(self) -> tuple[str, ...]:
        """The names of the arbiters in their order; if only one decides a dispute, it is the first."""
        return tuple(agent.name for agent in self.values() if agent.is_arbiter)


def choose_arbiters(definitions: Iterable[AgentDefinition], config: ResolvedBuild) -> tuple[str, ...]:
    """Return the names of the arbiters: those in the settings, or if there are none, the classes with `IS_ARBITER = True`.

    Raises:
        NegotiationError: GBE401, the settings name an agent that does not exist; GBE411, they give a domain to an agent that is
            not an arbiter.
    """
    known = {definition.name: definition for definition in definitions}
    named = config.settings.safety.arbiter_agents
    for name in named:
        if name not in known:
            where, near = place_of(config.root, "safety", "arbiter_agents"), did_you_mean(name, known)
            raise NegotiationError("GBE401", where=where, name=name, suggestion=near, known=", ".join(known))
    arbiters = tuple(dict.fromkeys(named)) or tuple(name for name, one in known.items() if one.is_arbiter)
    for name in config.settings.safety.arbiter_domains:
        if name not in arbiters:
            where, near = place_of(config.root, "safety", "arbiter_domains"), did_you_mean(name, arbiters)
            advice = f"Use one of the arbiters: {', '.join(arbiters)}." if arbiters else "Name an arbiter."
            raise NegotiationError("GBE411", where=where, name=name, suggestion=near, advice=advice)
    return arbiters
