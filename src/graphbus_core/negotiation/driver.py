"""The driver of a negotiation: answers the questions of the engine and publishes its announcements.

    engine --question--> driver --> agents (through a QuestionAnswerer), gate, virtual workspace
    engine --announcement--> driver --> /Negotiation/... on the bus, and the transcript

A listener on the bus cannot change the outcome. No source file is written here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import SchemaConflicts
from graphbus_core.errors import NegotiationError, UsageError
from graphbus_core.llm.budget import BudgetMeter
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.negotiation import engine
from graphbus_core.negotiation.agents import ActiveAgent, ActiveAgents, AgentView, Analyses, Analysis
from graphbus_core.negotiation.asking import (
    AffordableBatch,
    Analyzed,
    AskAnalysis,
    PaidAgent,
    PreparedQuestion,
    QuestionAnswerer,
    SessionBills,
    WorkerPool,
    announce_waiting,
    answer_in_turn,
)
from graphbus_core.negotiation.backend import Backend
from graphbus_core.negotiation.freshness import SettledAgents, describe_models
from graphbus_core.negotiation.lock import settled_agents
from graphbus_core.negotiation.protocol import (
    TOPICS,
    AgentFailed,
    AgentQuestion,
    ApplyProposal,
    AskArbitration,
    AskEvaluations,
    AskPerson,
    AskProposals,
    CheckProposal,
    Command,
    Evaluated,
    NegotiationStopped,
    Participants,
    Proposed,
    ProtocolError,
    Question,
    Reply,
)
from graphbus_core.negotiation.rule_agent import FindingsCache
from graphbus_core.negotiation.session_workspace import (
    ProposalGate,
    Reviewer,
    SessionOutcome,
    SessionWorkspace,
    ask_person,
)
from graphbus_core.negotiation.sessions import SessionFolder
from graphbus_core.negotiation.transcript import RECORD_VERSION, SessionRecord, TranscriptEvent, fit_for_bus
from graphbus_core.negotiation.votes import latest_votes
from graphbus_core.schema.json import Json


class NegotiationSession:
    """One negotiation with its limits, budget, folder and bus. `analyze` comes first, then `run`, each once.

    Source: seed 001, INIT_NEGOTIATION_ENGINE.
    """

    def __init__(
        self,
        config: ResolvedBuild,
        bus: MessageBus,
        *,
        ask: QuestionAnswerer | None = None,
        clock: Callable[[], float] = time.monotonic,
        reviewer: Reviewer | None = None,
        backend: Backend | None = None,
    ) -> None:
        if config.is_reviewed and reviewer is None:
            raise UsageError("GBE148")
        self.reviewer = reviewer if config.is_reviewed else None
        self.config = config
        self.bus = bus
        self.backend = backend or Backend()
        self.meter = BudgetMeter(config.settings.budget, clock)
        self.bills = SessionBills(self.meter)
        self.folder = SessionFolder(config)
        self.settled = SettledAgents({}, "")
        self.findings = FindingsCache()
        self.settled_names: list[str] = []
        self.events: list[TranscriptEvent] = []
        self.is_stopped = False
        self.analyses = Analyses()
        self._ask = ask
        self.ended: NegotiationStopped | None = None

    def stop(self) -> None:
        """End the session before the next question; accepted proposals are kept. May be called from any thread and listener."""
        self.is_stopped = True

    def _begin(self, agents: ActiveAgents, project: Project) -> None:
        """Claim the name and the folder of the session, before the first question."""
        if self.folder.session:
            return
        settled = self.backend.settled
        if settled is None:
            settled = {} if self.config.force or not agents.models else settled_agents(self.config)
        settled = self.folder.begin(agents, project, self.backend.tape, settled)
        self.bills.prices = agents.prices
        self.settled = SettledAgents(settled, describe_models(agents.models))
        if self._ask is None:
            width = self.config.settings.llm.concurrency
            self._ask = (
                WorkerPool(max(width, 1), self.stop_reason, announce_waiting(self.bus))
                if agents.models
                else answer_in_turn
            )

    def analyze(self, agents: ActiveAgents, project: Project) -> Analyses:
        """Ask the agents for analyses of their classes, except those that have settled. Source: seed 001, AGENT_ANALYSIS_PHASE.

        Raises:
            NegotiationError: As `run`.
        """
        self._begin(agents, project)
        findings = self.findings.findings_in(project)
        batch: list[PreparedQuestion] = []
        for name, agent in agents.items():
            view = AgentView(
                name=name,
                project=project,
                findings=findings,
                intent=self.config.settings.intent,
                goals=self.config.settings.refactoring_goals,
            )
            if self.has_settled(agent, view):
                self.settled_names.append(name)
            elif self.meter.reserve_calls(1):
                break
            else:
                batch.append(PreparedQuestion(agent, AskAnalysis(name), view))
        heard: dict[str, Analyzed] = {}
        for reply in self.answer_questions(batch):
            if isinstance(reply, Analyzed):
                heard[reply.agent] = reply
            elif isinstance(reply, NegotiationStopped):
                self.ended = reply
                break
        for name in (name for name in agents if name in heard):
            self.analyses[name] = heard[name].analysis
            if heard[name].failure:
                self.publish(TOPICS[AgentFailed], AgentFailed(name, "analyze", heard[name].failure))
        return self.analyses

    def has_settled(self, agent: ActiveAgent, view: AgentView) -> bool:
        """Return whether asking the agent costs money although its inputs are those on which it had nothing to propose."""
        return isinstance(agent, PaidAgent) and self.settled.has_settled(view)

    def answer_questions(self, batch: Iterable[PreparedQuestion]) -> Iterator[Reply | Analyzed]:
        """Yield the replies as they arrive, asking as many questions at a time as the budget allows, until a stop."""
        wave = AffordableBatch(self.bills, batch)
        while True:
            for reply in (self._ask or answer_in_turn)(wave):
                self._publish_spending(reply)
                yield reply
                stopped = self.stop_reason()
                if stopped:
                    yield stopped
            if not (wave.refusal and wave.size):
                break
            wave = AffordableBatch(self.bills, wave.rest)
        refusal = wave.refusal or self.meter.overdraft
        if refusal:
            yield NegotiationStopped("budget", refusal)

    def _publish_spending(self, reply: Reply | Analyzed) -> None:
        """Publish the cost so far; not for the transcript, because the order of the answers is not reproducible."""
        spend, budget = self.bills.spend, self.config.settings.budget
        if spend.requests and not isinstance(reply, NegotiationStopped):
            amounts = {"requests": spend.requests, "cached": spend.cached, "tokens": spend.usage.total_tokens}
            money = {"cost_usd": spend.cost_usd, "unpriced": spend.unpriced, "of_usd": budget.max_usd}
            self.bus.publish("/Negotiation/Spent", {"calls": spend.calls, **amounts, **money})

    def run(
        self, project: Project, agents: ActiveAgents, conflicts: SchemaConflicts, gate: ProposalGate
    ) -> SessionOutcome:
        """Negotiate to the end and keep the session in `.graphbus/sessions/`, except in a dry run.

        After a KeyboardInterrupt the session is saved with the ending `manual`, and the exception goes on.

        Raises:
            NegotiationError: GBE402 or GBE408, the session cannot have the name that was asked for; GBE407, it cannot be kept.
            GraphBusError: A model can no longer be asked, or a change cannot be judged; the session can be resumed.

        Source: seed 001, MULTI_ROUND_NEGOTIATION_LOOP.
        """
        self._begin(agents, project)
        try:
            return self._run(self.folder.session, project, agents, conflicts, gate)
        finally:
            self.folder.release()

    def _run(
        self, session: str, project: Project, agents: ActiveAgents, conflicts: SchemaConflicts, gate: ProposalGate
    ) -> SessionOutcome:
        names, arbiters = tuple(agents), agents.arbiters
        intent = self.config.settings.intent
        who = {"backend": agents.backend, "agents": names, "arbiters": arbiters}
        started = {"session": session, **who, "intent": intent}
        is_unsafe = self.config.settings.gate.allow_unverified
        note: dict[str, Json] = {"note": self.backend.note} if self.backend.note else {}
        if self.config.settings.gate.isolation == "process":
            note["isolation"] = "process"
        if self.settled_names:
            note["at_rest"] = self.settled_names
        self.publish("/Negotiation/Started", {**started, "allow_unverified": is_unsafe, **note})
        self.meter.start()
        run = _SessionRun(self, agents, conflicts, SessionWorkspace(project, gate, self.findings))
        try:
            run.negotiate()
        finally:
            self.bills.close_all()
            if run.state.ending:
                negotiations = engine.collect_records(run.state, session)
                record = SessionRecord(
                    schema_version=RECORD_VERSION,
                    session=session,
                    backend=agents.backend,
                    models=agents.models,
                    agents=names,
                    arbiters=arbiters,
                    intent=intent,
                    negotiations=negotiations,
                    spent=self.bills.spend,
                    costs=self.bills.cost_by_proposal(negotiations.records),
                    base=dict(sorted(project.digests.items())),
                )
                self.folder.save(record, self.events)
        if failure := self.bills.final_error or run.workspace.broken:
            raise failure
        if negotiations.ending.reason == "error" and self.settled.failed:
            raise NegotiationError("GBE426", session=session, reason=next(iter(self.settled.failed.values())))
        return SessionOutcome(negotiations, run.workspace.files)

    def stop_reason(self) -> NegotiationStopped | None:
        """Return why the session stops, or None while it goes on."""
        if self.ended:
            return self.ended
        if self.is_stopped:
            return NegotiationStopped("manual", "stopped by hand")
        return NegotiationStopped("budget", self.meter.time_refusal) if self.meter.time_refusal else None

    def publish(self, topic: str, payload: Json) -> None:
        """Add an event to the transcript, and publish it; the bus gets a shortened payload if it is too large."""
        data = msgspec.json.decode(msgspec.json.encode(payload))
        self.events.append(TranscriptEvent(topic, data))
        self.bus.publish(topic, fit_for_bus(data))


class _SessionRun:
    """The loop between the engine and those who answer: it holds the state of the engine."""

    def __init__(
        self, session: NegotiationSession, agents: ActiveAgents, conflicts: SchemaConflicts, workspace: SessionWorkspace
    ) -> None:
        self.session = session
        self.agents = agents
        self.conflicts = conflicts
        self.workspace = workspace
        project = workspace.files.project
        participants = Participants(
            agents=tuple(agents), arbiters=agents.arbiters, owners=dict(project.editable), edges=project.graph.edges
        )
        self.state, self._first = engine.begin(
            participants,
            session.config.settings.safety,
            workspace.files.digest,
            is_reviewed=session.reviewer is not None,
        )

    def negotiate(self) -> None:
        """Run the engine until it has ended."""
        try:
            questions = self._announce(self._first)
            if self.session.ended:
                self._announce(self._step(self.session.ended))
            while self.state.phase != "FINISHED":
                questions = self._announce(self._answer(questions))
        except KeyboardInterrupt:
            if self.state.phase != "FINISHED":
                self._announce(self._step(NegotiationStopped("manual", "interrupted; no source file was changed")))
            raise

    def _announce(self, commands: Iterable[Command]) -> list[Question]:
        questions: list[Question] = []
        for command in commands:
            topic = TOPICS.get(type(command))
            if topic:
                self.session.publish(topic, command)
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
                yield self.workspace.check(question)
            elif isinstance(question, ApplyProposal):
                yield self.workspace.apply(question)
            elif isinstance(question, AskPerson) and self.session.reviewer:
                yield ask_person(self.session.reviewer, question, self.workspace)
            elif isinstance(question, AskEvaluations):
                self.workspace.note_evaluators(question)
        asked = [
            self._prepare(question)
            for question in questions
            if not isinstance(question, CheckProposal | ApplyProposal | AskPerson)
        ]
        settled = [each.view.name for each in asked if self._has_settled(each)]
        batch = [each for each in asked if each.view.name not in settled]
        refusal = self.session.meter.reserve_calls(len(batch))
        if refusal:
            yield NegotiationStopped("budget", refusal)
            return
        yield from (Proposed(name) for name in settled)
        yield from self._ask_agents(batch)

    def _has_settled(self, asked: PreparedQuestion) -> bool:
        return isinstance(asked.question, AskProposals) and self.session.has_settled(asked.agent, asked.view)

    def _ask_agents(self, batch: Sequence[PreparedQuestion]) -> Iterator[Reply]:
        views = {asked.view.name: asked.view for asked in batch}
        for reply in self.session.answer_questions(self._with_trials(batch)):
            if isinstance(reply, Analyzed):
                raise ProtocolError("driver", "an analysis answers no question of the engine")
            if isinstance(reply, Proposed):
                self.session.settled.note_reply(views[reply.agent], reply)
                if self._has_no_usable_reply(batch):
                    yield NegotiationStopped("error", f"no agent gave a usable answer: {reply.failure}")
                    return
            yield self.workspace.verify_evidence(reply) if isinstance(reply, Evaluated) else reply

    def _has_no_usable_reply(self, batch: Sequence[PreparedQuestion]) -> bool:
        """Return whether there was no usable answer so far and every agent asked now has failed as well."""
        settled = self.session.settled
        return not settled.has_usable_reply and all(asked.view.name in settled.failed for asked in batch)

    def _prepare(self, question: AgentQuestion) -> PreparedQuestion:
        name = question.arbiter if isinstance(question, AskArbitration) else question.agent
        limit = question.limit if isinstance(question, AskProposals) else 0
        return PreparedQuestion(self.agents[name], question, self._view(name, limit))

    def _with_trials(self, batch: Iterable[PreparedQuestion]) -> Iterator[PreparedQuestion]:
        """Yield the questions with the consequences of their proposals, computed while earlier questions are being answered.

        After the last question of a vote this process only waits for models. It uses that time to prepare possible commits.
        """
        for asked in batch:
            question = asked.question
            if isinstance(question, AskEvaluations):
                trials = [self.workspace.trial(review.proposal.proposal_id) for review in question.reviews]
                asked = asked._replace(trials=tuple(trials))  # noqa: PLW2901
            elif isinstance(question, AskArbitration):
                trial = self.workspace.trial(question.review.proposal.proposal_id)
                trial = msgspec.structs.replace(trial, dispute=question.reason)
                asked = asked._replace(trials=(trial,))  # noqa: PLW2901
            yield asked
        if self.state.phase == "EVALUATING" and self.agents.models:
            pending = [case.proposal for case in self.state.cases.values() if case.status == "pending"]
            self.workspace.look_ahead(sorted(pending, key=lambda proposal: -proposal.priority))

    def _view(self, name: str, limit: int) -> AgentView:
        settings, cases = self.session.config.settings, self.state.cases.values()
        return AgentView(
            name=name,
            project=self.workspace.files.project,
            findings=self.workspace.findings,
            conflicts=tuple(one for one in self.conflicts if name in {one.producer, one.consumer}),
            round=self.state.round,
            limit=limit,
            intent=settings.intent,
            goals=settings.refactoring_goals,
            history=tuple(engine.record_of(case) for case in cases if case.proposal.src == name),
            votes=tuple(
                engine.record_of(case)
                for case in cases
                if case.proposal.src != name and name in latest_votes(case.evaluations)
            ),
            analysis=self.session.analyses.get(name, Analysis()),
        )
