"""What an agent sees when it is asked: the project as it is now, and the changes that it is to judge."""

from __future__ import annotations

import msgspec

from graphbus_core.compiler.conflicts import SchemaConflict
from graphbus_core.compiler.project import Project
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import GateReport, Proposal, ProposalRecord


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


class View(msgspec.Struct, frozen=True, kw_only=True):
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


class Trial(msgspec.Struct, frozen=True, kw_only=True):
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


def concerns(finding: Finding, agent: str) -> bool:
    """Tell whether an agent stands at one of the ends of a finding."""
    return agent == finding.agent or any(agent == related.agent for related in finding.related)
