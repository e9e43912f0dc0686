"""Carries out what the engine asks: agents, gate and workspace on one side, the bus on the other.

    engine --question--> driver --> agents (through an Ask), gate, virtual workspace
    engine --announcement--> driver --> /Negotiation/... on the bus, and the transcript

Nothing that a listener on the bus does can change the outcome. No source file is written here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.conflicts import SchemaConflicts
from graphbus_core.compiler.project import Project
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import UsageError
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.proposals import Json, Negotiations, Proposal
from graphbus_core.negotiation import engine
from graphbus_core.negotiation.agents import ActiveAgents, Analyses
from graphbus_core.negotiation.asking import Ask, Asked, ask_in_turn, study
from graphbus_core.negotiation.budget import Meter
from graphbus_core.negotiation.finding import find_for_agents
from graphbus_core.negotiation.person import Reviewer, ask_person
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    AgentQuestion,
    ApplyProposal,
    AskArbitration,
    AskEvaluations,
    AskPerson,
    AskProposals,
    CheckProposal,
    Command,
    DraftsDropped,
    Evaluated,
    EvaluationMade,
    Finished,
    Ground,
    PersonAnswered,
    ProposalArbitrated,
    ProposalCommitted,
    ProposalGated,
    ProposalMade,
    ProposalMerged,
    ProposalPostponed,
    ProposalRejected,
    ProposalSentBack,
    Question,
    Reply,
    RoundStarted,
    Stopped,
)
from graphbus_core.negotiation.table import Gate, Table
from graphbus_core.negotiation.transcript import (
    RECORD_VERSION,
    Said,
    SessionRecord,
    choose_session,
    claim_session,
    fit_for_bus,
    release_session,
    save_session,
)
from graphbus_core.negotiation.views import Analysis, View

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
    Finished: "/Negotiation/Finished",
}
"""Announcement -> the topic on which its fields are published."""


class Outcome(NamedTuple):
    """What came of it, and the workspace that holds every accepted change."""

    negotiations: Negotiations
    workspace: Workspace


class Negotiation:
    """A session before and while it runs: its limits, its budget and the bus that carries it.

    Source: seed 001, INIT_NEGOTIATION_ENGINE.
    """

    def __init__(
        self,
        config: BuildConfig,
        bus: MessageBus,
        *,
        ask: Ask = ask_in_turn,
        clock: Callable[[], float] = time.monotonic,
        reviewer: Reviewer | None = None,
    ) -> None:
        if config.is_reviewed and reviewer is None:
            raise UsageError("GBE148")
        self.reviewer = reviewer if config.is_reviewed else None
        self.config = config
        self.bus = bus
        self.ask = ask
        self.meter = Meter(config.settings.budget, clock)
        self.said: list[Said] = []
        self.is_stopped = False
        self.analyses = Analyses()

    def stop(self) -> None:
        """End the session before the next question, keeping what was accepted. Safe from any thread and any listener."""
        self.is_stopped = True

    def analyze(self, agents: ActiveAgents, project: Project) -> Analyses:
        """Let every agent read its own class, in the order of activation. Source: seed 001, AGENT_ANALYSIS_PHASE."""
        findings = find_for_agents(project)
        for name, agent in agents.items():
            if self.meter.reserve(1):
                break
            view = View(name=name, project=project, findings=findings, intent=self.config.settings.intent)
            self.analyses[name], why = study(agent, view)
            if why:
                self.tell(TOPICS[AgentFailed], AgentFailed(name, "analyze", why))
        return self.analyses

    def run(self, project: Project, agents: ActiveAgents, conflicts: SchemaConflicts, gate: Gate) -> Outcome:
        """Negotiate to the end and keep the session in `.graphbus/sessions/`, except in a dry run.

        A KeyboardInterrupt goes up, after what was said until then is kept with the reason `manual`.

        Raises:
            NegotiationError: GBE402 or GBE408, the session cannot have the name that was asked for; GBE407, it cannot be kept.

        Source: seed 001, MULTI_ROUND_NEGOTIATION_LOOP.
        """
        begin = choose_session if self.config.dry_run else claim_session
        session = begin(self.config.artifacts_dir, self.config.session)
        try:
            return self._run(session, project, agents, conflicts, gate)
        finally:
            if not self.config.dry_run:
                release_session(self.config.artifacts_dir, session)

    def _run(
        self, session: str, project: Project, agents: ActiveAgents, conflicts: SchemaConflicts, gate: Gate
    ) -> Outcome:
        names, arbiters = tuple(agents), agents.arbiters
        intent = self.config.settings.intent
        started = {
            "session": session,
            "backend": agents.backend,
            "agents": names,
            "arbiters": arbiters,
            "intent": intent,
        }
        is_unsafe = self.config.settings.gate.allow_unverified
        self.tell("/Negotiation/Started", {**started, "allow_unverified": is_unsafe})
        self.meter.start()
        run = _Run(self, agents, conflicts, Table(project, gate))
        try:
            run.negotiate()
        finally:
            if run.state.ending and not self.config.dry_run:
                record = SessionRecord(
                    schema_version=RECORD_VERSION,
                    session=session,
                    backend=agents.backend,
                    models=agents.models,
                    agents=names,
                    arbiters=arbiters,
                    intent=intent,
                    negotiations=engine.conclude(run.state, session),
                )
                save_session(self.config.artifacts_dir, record, self.said)
        return Outcome(engine.conclude(run.state, session), run.table.workspace)

    def why_stopped(self) -> Stopped | None:
        """Say why no further answer is waited for, if so."""
        if self.is_stopped:
            return Stopped("manual", "stopped by hand")
        return Stopped("budget", self.meter.lateness) if self.meter.lateness else None

    def tell(self, topic: str, payload: Json) -> None:
        """Write an event into the transcript and publish it, shortened if it is too large for the bus."""
        data = msgspec.json.decode(msgspec.json.encode(payload))
        self.said.append(Said(topic, data))
        self.bus.publish(topic, fit_for_bus(data))


def negotiate(  # noqa: PLR0917 - the products of six stages
    project: Project,
    config: BuildConfig,
    agents: ActiveAgents,
    conflicts: SchemaConflicts,
    gate: Gate,
    bus: MessageBus,
) -> Outcome:
    """Run one session whole: analysis and negotiation."""
    session = Negotiation(config, bus)
    session.analyze(agents, project)
    return session.run(project, agents, conflicts, gate)


class _Run:
    """One session from its first command to its end: the engine's state, and who answers its questions."""

    def __init__(self, session: Negotiation, agents: ActiveAgents, conflicts: SchemaConflicts, table: Table) -> None:
        self.session = session
        self.agents = agents
        self.conflicts = conflicts
        self.table = table
        project = table.workspace.project
        owners = {path: project.owners(path) for path in project.agent_files}
        ground = Ground(agents=tuple(agents), arbiters=agents.arbiters, owners=owners, edges=project.graph.edges)
        self.state, self._first = engine.begin(
            ground, session.config.settings.safety, table.workspace.digest, is_reviewed=session.reviewer is not None
        )

    def negotiate(self) -> None:
        """Run the engine until it has ended."""
        try:
            questions = self._announce(self._first)
            while self.state.phase != "FINISHED":
                questions = self._announce(self._answer(questions))
        except KeyboardInterrupt:
            if self.state.phase != "FINISHED":
                self._announce(self._step(Stopped("manual", "interrupted; no source file was changed")))
            raise

    def _announce(self, commands: Iterable[Command]) -> list[Question]:
        questions: list[Question] = []
        for command in commands:
            topic = TOPICS.get(type(command))
            if topic:
                self.session.tell(topic, command)
            else:
                questions.append(command)  # type: ignore[arg-type] # TOPICS has every announcement
        return questions

    def _step(self, reply: Reply) -> tuple[Command, ...]:
        self.state, commands = engine.step(self.state, reply)
        return commands

    def _answer(self, questions: Sequence[Question]) -> list[Command]:
        commands: list[Command] = []
        for reply in self._replies(questions):
            commands += self._step(reply)
            if self.state.phase == "FINISHED":
                break
        return commands

    def _replies(self, questions: Sequence[Question]) -> Iterator[Reply]:
        for question in questions:
            if isinstance(question, CheckProposal):
                yield self.table.check(question)
            elif isinstance(question, ApplyProposal):
                yield self.table.apply(question)
            elif isinstance(question, AskPerson) and self.session.reviewer:
                yield ask_person(self.session.reviewer, question, self.table)
        batch = [
            self._prepare(question)
            for question in questions
            if not isinstance(question, CheckProposal | ApplyProposal | AskPerson)
        ]
        refusal = self.session.meter.reserve(len(batch))
        if refusal:
            yield Stopped("budget", refusal)
        else:
            yield from self._heard(batch)

    def _heard(self, batch: Sequence[Asked]) -> Iterator[Reply]:
        """Give the answers as they come, and a stop between two of them; after a stop nobody asks for more."""
        for reply in self.session.ask(batch):
            yield self.table.weighed(reply) if isinstance(reply, Evaluated) else reply
            stopped = self.session.why_stopped()
            if stopped:
                yield stopped

    def _prepare(self, question: AgentQuestion) -> Asked:
        name, proposals = _addressed(question)
        limit = question.limit if isinstance(question, AskProposals) else 0
        trials = tuple(self.table.trials[proposal.proposal_id] for proposal in proposals)
        return Asked(self.agents[name], question, self._view(name, limit), trials)

    def _view(self, name: str, limit: int) -> View:
        settings = self.session.config.settings
        return View(
            name=name,
            project=self.table.workspace.project,
            findings=self.table.findings,
            conflicts=tuple(one for one in self.conflicts if name in {one.producer, one.consumer}),
            round=self.state.round,
            limit=limit,
            intent=settings.intent,
            goals=settings.refactoring_goals,
            history=tuple(engine.record_of(case) for case in self.state.cases.values() if case.proposal.src == name),
            analysis=self.session.analyses.get(name, Analysis()),
        )


def _addressed(question: AgentQuestion) -> tuple[str, tuple[Proposal, ...]]:
    if isinstance(question, AskEvaluations):
        return question.agent, tuple(review.proposal for review in question.reviews)
    if isinstance(question, AskArbitration):
        return question.arbiter, (question.review.proposal,)
    return question.agent, ()
