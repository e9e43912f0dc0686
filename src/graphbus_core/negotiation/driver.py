"""The driver of a negotiation: gets the questions of the engine answered, and publishes its announcements.

    engine --question--> driver --> agents (through a QuestionAnswerer), gate, virtual workspace
    engine --announcement--> driver --> /Negotiation/... on the bus, and the transcript

A listener on the bus cannot change the outcome. No source file is written by this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import SchemaConflicts
from graphbus_core.errors import ModelError, NegotiationError, UsageError
from graphbus_core.llm.budget import BudgetMeter
from graphbus_core.llm.call_limits import limits_of
from graphbus_core.llm.providers import advice_on_form, command_to_test
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import Negotiations
from graphbus_core.negotiation import engine
from graphbus_core.negotiation.agents import ActiveAgent, ActiveAgents, AgentView, Analyses, Analysis
from graphbus_core.negotiation.asking import (
    MOST_UNUSABLE,
    AffordableBatch,
    Analyzed,
    AskAnalysis,
    PaidAgent,
    PreparedQuestion,
    QuestionAnswerer,
    SessionBills,
    WorkerPool,
    announce_retry,
    announce_waiting,
    answer_in_turn,
    fail_question,
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
    """One negotiation with its limits, budget, folder and bus. Call `analyze` once, if analyses are wanted, and then `run` once.

    Args:
        config: The settings of the build.
        bus: Gets every event of the negotiation.
        ask: Puts the questions to the agents; None: in turn for rules, with several workers for models.
        clock: Returns seconds; the time limit is measured with it.
        reviewer: Asks a person; needed if the settings say `is_reviewed`.
        backend: The models or rules; None: a new `Backend()`.

    Attributes:
        settled: The agents that need not be asked, and the replies of the others.
        settled_names: The agents that were not asked for an analysis because they have settled.
        events: The transcript so far.
        ended: Why the negotiation was stopped during the analyses, or because its models were given up; else None.
        given_up: Model -> the error with which it was given up, because it does not follow the answer format.

    Raises:
        UsageError: GBE148, a review is requested and there is no reviewer.

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
        self._answerer = ask
        self.ended: NegotiationStopped | None = None
        self.given_up: dict[str, ModelError] = {}
        self.has_arbiters = False
        self._listeners: tuple[Callable[[str, Json], object], ...] = ()

    def stop(self) -> None:
        """End the session before the next question; accepted proposals are kept. Any thread or bus listener may call it."""
        self.is_stopped = True

    def _begin_once(self, agents: ActiveAgents, project: Project) -> None:
        """Claim a session name, load the settled agents, and choose how questions are asked; the second call does nothing."""
        if self.folder.session:
            return
        settled = self.backend.settled
        if settled is None:
            settled = {} if self.config.force or not agents.models else settled_agents(self.config)
        settled = self.folder.begin(agents, project, self.backend.tape, settled)
        self.bills.models, self.bills.prices, self.has_arbiters = agents.models, agents.prices, bool(agents.arbiters)
        self.settled = SettledAgents(settled, describe_models(agents.models))
        self._listeners = agents.listeners
        if self._answerer is None:
            width = limits_of(self.config.settings.llm).concurrency
            self._answerer = (
                WorkerPool(max(width, 1), self.stop_reason, announce_waiting(self.bus), announce_retry(self.bus))
                if agents.are_recorded
                else answer_in_turn
            )

    def analyze(self, agents: ActiveAgents, project: Project) -> Analyses:
        """Ask the agents that have not settled for analyses, as far as the budget allows; return agent -> analysis.

        If the session is stopped meanwhile, `ended` says why, and `run` then finishes at once.

        Raises:
            NegotiationError: As `run`.

        Source: seed 001, AGENT_ANALYSIS_PHASE.
        """
        self._begin_once(agents, project)
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
        replies: dict[str, Analyzed] = {}
        for reply in self.answer_questions(batch):
            if isinstance(reply, Analyzed):
                replies[reply.agent] = reply
            elif isinstance(reply, NegotiationStopped):
                self.ended = reply
                break
        for name in (name for name in agents if name in replies):  # in the order of agents: that of arrival varies
            self.analyses[name] = replies[name].analysis
            if replies[name].failure:
                self.publish(TOPICS[AgentFailed], AgentFailed(name, "analyze", replies[name].failure))
        return self.analyses

    def has_settled(self, agent: ActiveAgent, view: AgentView) -> bool:
        """Return whether an agent need not be asked: its answers cost money, and it had no proposal on the same inputs before."""
        return isinstance(agent, PaidAgent) and self.settled.has_settled(view)

    def answer_questions(self, batch: Iterable[PreparedQuestion]) -> Iterator[Reply | Analyzed]:
        """Ask the questions in batches that the budget can pay for, and yield the replies as they arrive.

        If the session is stopped, a `NegotiationStopped` is among the replies; if the budget is used up, one is the last.
        """
        skipped: list[Reply | Analyzed] = []
        wave = AffordableBatch(self.bills, self._skip_given_up(batch, skipped))
        while True:
            for reply in (self._answerer or answer_in_turn)(wave):
                self._publish_spending(reply)
                yield reply
                stopped = self.stop_reason()
                if stopped:
                    yield stopped
            self._give_up_models()
            if self.ended:
                yield self.ended
            if wave.is_whole or not wave.size:  # all were asked, or not even one more can be paid for
                break
            wave = AffordableBatch(self.bills, wave.rest)  # the answers may have cost less than was set aside
        yield from skipped
        refusal = wave.refusal or self.meter.overdraft
        if refusal:
            yield NegotiationStopped("budget", refusal)

    def _skip_given_up(
        self, batch: Iterable[PreparedQuestion], skipped: list[Reply | Analyzed]
    ) -> Iterator[PreparedQuestion]:
        """Yield the questions to models that were not given up; add a failed reply to `skipped` for each of the others."""
        for asked in batch:
            error = self.given_up.get(self.bills.model_of(asked))
            if error:
                skipped.append(fail_question(asked.question, f"{error.sentence} [{error.code}]"))
            else:
                yield asked

    def _give_up_models(self) -> None:
        """Ask no longer the models with too many unusable answers; set `ended` if the session has no use for the others.

        Without an evaluator the arbiters decide, and without an arbiter the votes. Without a proposer, the proposals that were
        made are still decided.
        """
        models, new = self.bills.models, []
        for model in sorted({*models.values()} - {*self.given_up}):
            unusable = self.bills.unusable_answers(model)
            if len(unusable) >= MOST_UNUSABLE:
                reason = str(unusable[-1].data["reason"])
                advice, test = advice_on_form(model), command_to_test(model)
                error = ModelError("GBE463", model=model, count=len(unusable), reason=reason, advice=advice, test=test)
                self.given_up[model] = error
                new.append(error)
        lost = {role for role, model in models.items() if model in self.given_up}
        is_undecidable = "evaluator" in lost and ("arbiter" in lost or not self.has_arbiters)
        if new and (is_undecidable or lost == {*models}):
            self.ended = NegotiationStopped("error", f"{new[-1].data['model']} does not follow the answer format")
        elif new:
            self.publish("/Negotiation/Warned", {"warning": " ".join(error.sentence for error in new)})

    def _publish_spending(self, reply: Reply | Analyzed) -> None:
        """Publish the cost so far on the bus only: a transcript must not depend on the order of answers."""
        spend, budget = self.bills.spend, self.config.settings.budget
        if spend.requests and not isinstance(reply, NegotiationStopped):
            amounts = {"requests": spend.requests, "cached": spend.cached, "tokens": spend.usage.total_tokens}
            money = {"cost_usd": spend.cost_usd, "unpriced": spend.unpriced, "of_usd": budget.max_usd}
            self.bus.publish("/Negotiation/Spent", {"calls": spend.calls, **amounts, **money})

    def run(
        self, project: Project, agents: ActiveAgents, conflicts: SchemaConflicts, gate: ProposalGate
    ) -> SessionOutcome:
        """Negotiate to the end, and save the session in `.graphbus/sessions/` except in a dry run.

        After a KeyboardInterrupt the session is saved with the ending `manual`, and the exception is raised again.

        Raises:
            NegotiationError: GBE402 or GBE408, the session cannot have the requested name; GBE407, it cannot be saved; GBE421,
                GBE422 or GBE427, it cannot be resumed; GBE413 or GBE426, no agent gave a usable answer.
            ModelError: GBE463, a model was given up, and nothing was accepted; GBE462, every prompt was too long.
            GraphBusError: A model can no longer be asked, or a change cannot be judged. The session can be resumed.

        Source: seed 001, MULTI_ROUND_NEGOTIATION_LOOP.
        """
        self._begin_once(agents, project)
        try:
            return self._negotiate(self.folder.session, project, agents, conflicts, gate)
        finally:
            self.folder.release()

    def _negotiate(
        self, session: str, project: Project, agents: ActiveAgents, conflicts: SchemaConflicts, gate: ProposalGate
    ) -> SessionOutcome:
        """Announce a session, run the engine, save the record, and raise the error that ended the session, if there was one."""
        names, arbiters = tuple(agents), agents.arbiters
        intent = self.config.settings.intent
        participants = {"backend": agents.backend, "agents": names, "arbiters": arbiters}
        started = {"session": session, **participants, "intent": intent}
        is_unsafe = self.config.settings.gate.allow_unverified
        note: dict[str, Json] = {"note": self.backend.note} if self.backend.note else {}
        if self.config.settings.gate.isolation == "process":
            note["isolation"] = "process"
        if len(set(agents.models.values())) > 1:
            note["models"] = {**agents.models}
        if agents.programs:
            note["programs"] = [*agents.programs]
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
                    diffs=run.workspace.diffs_for_record(negotiations),
                    base=dict(sorted(project.digests.items())),
                )
                self.folder.save(record, self.events)
        if failure := self.bills.final_error or run.workspace.broken:
            raise failure
        self._give_up_models()  # if every agent has failed, the last wave was not read to its end
        self._refuse_failed_session(agents, negotiations)
        return SessionOutcome(negotiations, run.workspace.files)

    def _refuse_failed_session(self, agents: ActiveAgents, negotiations: Negotiations) -> None:
        """Raise the error of a session that ended without a result because models or programs gave no usable answer."""
        if self.format_failure and not negotiations.completed:
            raise self.format_failure
        if negotiations.ending.reason == "error" and self.settled.failed and not self.format_failure:
            if self.bills.context_error:
                raise self.bills.context_error
            session = negotiations.session
            reason = next(iter(self.settled.failed.values())).partition(" [GBE")[0]  # the sentence without its code
            if not agents.models:
                raise NegotiationError("GBE413", session=session, reason=reason)
            test = command_to_test(agents.models.get("proposer", agents.backend))
            raise NegotiationError("GBE426", session=session, reason=reason, test=test)

    @property
    def format_failure(self) -> ModelError | None:
        """The error of the first model that was given up; None if there was none."""
        return next(iter(self.given_up.values()), None)

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
        for tell in self._listeners:
            tell(topic, data)


class _SessionRun:
    """Runs the engine and passes its questions to the agents, the workspace and the person; holds the state of the engine."""

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
        """Run the engine to its end; a KeyboardInterrupt finishes it with the ending `manual`, and is raised again."""
        try:
            questions = self._publish_announcements(self._first)
            if self.session.ended:
                self._publish_announcements(self._step_engine(self.session.ended))
            while self.state.phase != "FINISHED":
                questions = self._publish_announcements(self._answer_questions(questions))
        except KeyboardInterrupt:
            if self.state.phase != "FINISHED":
                self._publish_announcements(
                    self._step_engine(NegotiationStopped("manual", "interrupted; no source file was changed"))
                )
            raise

    def _publish_announcements(self, commands: Iterable[Command]) -> list[Question]:
        """Publish the announcements among the commands of the engine, and return the other commands: the questions."""
        questions: list[Question] = []
        for command in commands:
            topic = TOPICS.get(type(command))
            if topic:
                self.session.publish(topic, command)
            else:
                questions.append(command)  # type: ignore[arg-type] # TOPICS has every type of announcement
        return questions

    def _step_engine(self, reply: Reply) -> tuple[Command, ...]:
        """Pass one reply to the engine, keep its new state, and return its commands."""
        self.state, commands = engine.step(self.state, reply)
        return commands

    def _answer_questions(self, questions: Sequence[Question]) -> list[Command]:
        """Get questions answered, pass each reply to the engine, and return all its commands; stop when it is finished."""
        commands: list[Command] = []
        for reply in self._iterate_replies(questions):
            commands += self._step_engine(reply)
            if self.state.phase == "FINISHED":
                break
        return commands

    def _iterate_replies(self, questions: Sequence[Question]) -> Iterator[Reply]:
        """Yield the replies to questions: first those of workspace and person, then those of the agents, as they arrive.

        A settled agent that is asked for proposals is not called; its reply has no proposals. If the budget does not allow the
        calls of all other agents together, none is called, and a `NegotiationStopped` is yielded.
        """
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
            self._prepare_question(question)
            for question in questions
            if not isinstance(question, CheckProposal | ApplyProposal | AskPerson)
        ]
        settled = [each.view.name for each in asked if self._is_settled_author(each)]
        batch = [each for each in asked if each.view.name not in settled]
        refusal = self.session.meter.reserve_calls(len(batch))
        if refusal:
            yield NegotiationStopped("budget", refusal)
            return
        yield from (Proposed(name) for name in settled)
        yield from self._ask_agents(batch)

    def _is_settled_author(self, asked: PreparedQuestion) -> bool:
        """Return whether a question asks a settled agent for proposals."""
        return isinstance(asked.question, AskProposals) and self.session.has_settled(asked.agent, asked.view)

    def _ask_agents(self, batch: Sequence[PreparedQuestion]) -> Iterator[Reply]:
        """Ask the agents, and yield their replies. The evidence in evaluations has been verified by then.

        If the session has had no usable answer and all agents of this batch have failed, a `NegotiationStopped` ends the replies.
        """
        views = {asked.view.name: asked.view for asked in batch}
        for reply in self.session.answer_questions(self._iterate_with_trials(batch)):
            if isinstance(reply, Analyzed):
                raise ProtocolError("driver", "an analysis answers no question of the engine")
            if isinstance(reply, Proposed):
                self.session.settled.note_reply(views[reply.agent], reply)
                if self._have_all_failed(batch):
                    reason = "the prompts are too long" if self.session.bills.context_error else reply.failure
                    yield NegotiationStopped("error", f"no agent gave a usable answer: {reason}")
                    return
            yield self.workspace.verify_evidence(reply) if isinstance(reply, Evaluated) else reply

    def _have_all_failed(self, batch: Sequence[PreparedQuestion]) -> bool:
        """Return whether the session has had no usable answer, and every agent of this batch has failed."""
        settled = self.session.settled
        return not settled.has_usable_reply and all(asked.view.name in settled.failed for asked in batch)

    def _prepare_question(self, question: AgentQuestion) -> PreparedQuestion:
        """Return a question together with the agent that answers it and the view of that agent."""
        name = question.arbiter if isinstance(question, AskArbitration) else question.agent
        limit = question.limit if isinstance(question, AskProposals) else 0
        return PreparedQuestion(self.agents[name], question, self._make_view(name, limit))

    def _iterate_with_trials(self, batch: Iterable[PreparedQuestion]) -> Iterator[PreparedQuestion]:
        """Yield the questions; those about proposals that passed the gate get the consequences of these proposals.

        This generator runs while models answer earlier questions. After the last question of a vote nothing else can be done
        until the answers arrive, so it uses that time to compute the projects after possible commits.
        """
        for asked in batch:
            question = asked.question
            if isinstance(question, AskEvaluations):
                trials = [self.workspace.trial_for_voter(review.proposal.proposal_id) for review in question.reviews]
                asked = asked._replace(trials=tuple(trials))  # noqa: PLW2901
            elif isinstance(question, AskArbitration):
                trial = self.workspace.trial(question.review.proposal.proposal_id)
                trial = msgspec.structs.replace(trial, dispute=question.reason)
                asked = asked._replace(trials=(trial,))  # noqa: PLW2901
            yield asked
        if self.state.phase == "EVALUATING" and self.agents.models:
            pending = [case.proposal for case in self.state.cases.values() if case.status == "pending"]
            self.workspace.look_ahead(sorted(pending, key=lambda proposal: -proposal.priority))

    def _make_view(self, name: str, limit: int) -> AgentView:
        """Return what an agent sees if it is asked now. `limit`: the number of proposals that it may make; 0 for other tasks."""
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
