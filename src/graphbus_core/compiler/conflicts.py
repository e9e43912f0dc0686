"""Where the ends of an edge disagree: the schema conflicts that a negotiation starts from. Source: seed 001, stage 11."""

from __future__ import annotations

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules import check
from graphbus_core.model.findings import Finding

BETWEEN_AGENTS = ("GB001", "GB003", "GB004", "GB110", "GB120")
"""The rules that compare what one agent gives with what another one takes."""


class SchemaConflict(msgspec.Struct, frozen=True):
    """What one agent gives does not fit what another one takes.

    Attributes:
        producer: Who gives; empty when nobody does.
        consumer: Who takes.
        issue: What does not fit, one sentence.
        suggested_fix: What to do about it.
        code: The rule that found it.
    """

    producer: str
    consumer: str
    issue: str
    suggested_fix: str
    code: str
    finding: Finding


class SchemaConflicts(tuple[SchemaConflict, ...]):
    """All conflicts of a project, by place."""

    __slots__ = ()


def detect_conflicts(project: Project) -> SchemaConflicts:
    """Compare the ends of every edge of the graph."""
    found = check(project, select=BETWEEN_AGENTS, wiring=project.wiring)
    return SchemaConflicts(_conflict(finding, project) for finding in found)


def _conflict(finding: Finding, project: Project) -> SchemaConflict:
    """Each end of the edge by its role: who publishes or is depended on is the producer."""
    other = next((related.agent for related in finding.related if related.agent != finding.agent), "")
    gives = bool(other) and other in project.graph.consumers(finding.agent)
    takes = bool(other) and other in project.graph.providers(finding.agent)
    producer, consumer = (finding.agent, other) if gives and not takes else (other, finding.agent)
    return SchemaConflict(producer, consumer, finding.message, finding.hint, finding.code, finding)
