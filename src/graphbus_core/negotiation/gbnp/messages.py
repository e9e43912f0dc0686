"""The parameters and results of the methods of the protocol.

What a result contains is data of the negotiation itself: `Proposal`, `ProposalEvaluation` and `Analysis`. scripts/schemas.py
makes the JSON Schema of all messages from these classes. An unknown field is ignored, so that a later version may add some.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.compiler.stages import SchemaConflict
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.digests import sha256_hex
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation, Status
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal, has_part_in

VERSION = 1
"""The version of the wire: it changes when a program written for the last one could misunderstand a message."""
SCHEMA_VERSION = "1.0"
"""The version of the schema: its second number changes when a field or a method is added."""
MAX_LINE_BYTES = 1 << 20
"""The largest size of a message, its line end included."""
MAX_DEPTH = 64
"""How deeply arrays and objects may be nested."""

Role = Literal["member", "arbiter"]
ROLES: tuple[Role, Role] = ("member", "arbiter")
"""The role of an agent: `ROLES[is_arbiter]`."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `agent/hello`, the first request.

    Attributes:
        protocol: The highest version of the wire that the host speaks.
        schema: The version of the schema that the host writes.
        host: `"graphbus"` and its version.
        agent: The name of the class that the program represents.
        role: What the host will ask it to do.
    """

    protocol: int
    schema: str
    host: str
    agent: str
    role: Role


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `agent/hello`.

    Attributes:
        protocol: The version of the wire that the program chooses, at most that of the host.
        agent: The name of the class, as in the question.
        capabilities: The methods that it answers: `"analyze"`, `"propose"`, `"repair"`, `"evaluate"`, `"arbitrate"`. With
            `"events"` it gets `session/event`. Names that the host does not know are ignored.
        program: The name and version of the program, for people.
    """

    protocol: int
    agent: str
    capabilities: tuple[str, ...]
    program: str = ""


class Symbol(msgspec.Struct, frozen=True, kw_only=True):
    """The class of an agent or one of its methods, as a proposal would replace it.

    Attributes:
        target: `"Class"` or `"Class.method"`; the `target` of a change.
        line: Its first line in the file, from 1.
        text: Its text from the first decorator on; the `old_code` of a change.
        sha256: The digest of the text; the `base_sha256` of a change.
    """

    target: str
    line: int
    text: str
    sha256: str


class OwnSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of an agent's class: the path of its file, relative to the project, and its symbols, the class first."""

    file_path: str
    symbols: tuple[Symbol, ...]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of an earlier proposal; `reason` says why it was closed without a commit."""

    proposal: Proposal
    status: Status
    reason: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent sees when it is asked. Every question has the whole of it, so a program need not remember anything.

    Attributes:
        round: The number of the round, from 1; 0 for an analysis.
        limit: The largest number of proposals that the agent may make now.
        intent: What the user wants, in free text; `goals` are the goals in the settings.
        files: The files that its proposals may change without naming another agent in `dst` or `affects`.
        definition: The agent's class as GraphBus has read it; null if a change has removed it, as is `source`.
        neighbours: The classes at the other ends of its edges.
        findings: The findings of the rules in which the agent has a part.
        conflicts: The conflicts between its contracts and those of others at the start of the session.
        history: Its own earlier proposals.
        votes: The proposals of others on which it has voted.
        analysis: Its analysis; null while it is asked for that.
    """

    agent: str
    round: int
    limit: int
    intent: str
    goals: tuple[str, ...]
    files: tuple[str, ...]
    definition: AgentDefinition | None
    source: OwnSource | None
    neighbours: tuple[AgentDefinition, ...]
    findings: tuple[Finding, ...]
    conflicts: tuple[SchemaConflict, ...]
    history: tuple[Outcome, ...]
    votes: tuple[Outcome, ...]
    analysis: Analysis | None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that passed the gate, with its computed consequences.

    Attributes:
        report: What the gate has found.
        diff: The unified diffs of all files.
        added: Findings of the rules that the change causes; `removed` are those that it removes.
        no_longer: What handlers and methods no longer do after the change, a sentence each.
    """

    proposal: Proposal
    report: GateReport
    diff: str
    added: tuple[Finding, ...]
    removed: tuple[Finding, ...]
    no_longer: tuple[str, ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `agent/analyze` and `agent/propose`."""

    view: View


class RepairQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `agent/repair`: the agent's own proposal, and the report of the gate that refused it."""

    view: View
    proposal: Proposal
    report: GateReport


class EvaluationQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `agent/evaluate`: proposals of other agents."""

    view: View
    trials: tuple[Trial, ...]


class ArbitrationQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `agent/arbitrate`: a disputed proposal, the votes on it, and why a decision is needed."""

    view: View
    trial: Trial
    evaluations: tuple[ProposalEvaluation, ...]
    reason: str


class Farewell(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of `agent/bye`: why the session ends."""

    reason: str


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the notification `session/event`: one event of the transcript, for example `/Negotiation/Committed`."""

    topic: str
    payload: dict[str, Any]


class Proposals(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `agent/propose`, the most important proposal first."""

    proposals: tuple[Proposal, ...]


class RepairedProposal(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `agent/repair`; null if the agent gives the proposal up."""

    proposal: Proposal | None


class Evaluations(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `agent/evaluate`; on a proposal that is missing the agent abstains."""

    evaluations: tuple[ProposalEvaluation, ...]


class Arbitration(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `agent/arbitrate`."""

    evaluation: ProposalEvaluation


class Nothing(msgspec.Struct, frozen=True):
    """An empty result."""


class Method(NamedTuple):
    """The types of a request and of its answer; `capability` is the name by which a program says that it answers the method."""

    params: type[msgspec.Struct]
    result: type[msgspec.Struct]
    capability: str = ""


HELLO, BYE, EVENT = "agent/hello", "agent/bye", "session/event"
METHODS: dict[str, Method] = {
    HELLO: Method(Hello, Welcome),
    "agent/analyze": Method(Question, Analysis, "analyze"),
    "agent/propose": Method(Question, Proposals, "propose"),
    "agent/repair": Method(RepairQuestion, RepairedProposal, "repair"),
    "agent/evaluate": Method(EvaluationQuestion, Evaluations, "evaluate"),
    "agent/arbitrate": Method(ArbitrationQuestion, Arbitration, "arbitrate"),
    BYE: Method(Farewell, Nothing),
}
"""Method -> its types. `session/event` is a notification, with the parameters `SessionEvent`."""


def view_of(view: AgentView) -> View:
    """Return what an agent sees in the form of the protocol."""
    definition = view.definition
    return View(
        agent=view.name,
        round=view.round,
        limit=view.limit,
        intent=view.intent,
        goals=view.goals,
        files=tuple(path for path, owners in sorted(view.project.editable.items()) if view.name in owners),
        definition=definition,
        source=_source_of(view, definition) if definition else None,
        neighbours=view.neighbours,
        findings=tuple(finding for finding in view.findings if has_part_in(finding, view.name)),
        conflicts=view.conflicts,
        history=tuple(Outcome(proposal=one.proposal, status=one.status, reason=one.refusal) for one in view.history),
        votes=tuple(Outcome(proposal=one.proposal, status=one.status, reason=one.refusal) for one in view.votes),
        analysis=view.analysis if view.round else None,
    )


def _source_of(view: AgentView, definition: AgentDefinition) -> OwnSource:
    """Return the class and the methods of an agent with the digests that a change of them needs."""
    spans = {definition.name: definition.span}
    spans |= {
        f"{definition.name}.{method.name}": method.span
        for method in definition.methods
        if method.span.path == definition.path  # an inherited one is not part of the class
    }
    symbols = []
    for target, span in spans.items():
        text = view.project.span_text(span)
        symbols.append(Symbol(target=target, line=span.line, text=text, sha256=sha256_hex(text.encode())))
    return OwnSource(file_path=definition.path, symbols=tuple(symbols))


def trial_of(trial: TriedProposal) -> Trial:
    """Return a proposal with its consequences in the form of the protocol."""
    return Trial(
        proposal=trial.proposal,
        report=trial.report,
        diff=trial.diff,
        added=trial.added,
        removed=trial.removed,
        no_longer=trial.report.removed,
    )
