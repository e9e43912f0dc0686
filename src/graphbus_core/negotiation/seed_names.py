"""The classes of Build Mode as seed 002 prints them: an engine that is fed by hand, and agents that are bound to it.

    engine = NegotiationEngine(SafetyConfig())
    hello = LLMAgent("HelloService", "I greet.", hello_source, AgentBus(), engine, client)
    printer = LLMAgent("PrinterService", "I print.", printer_source, AgentBus(), engine, client)
    engine.add_proposal(hello.propose_change("align_schema", {}))
    commits = engine.create_commits({"HelloService": hello, "PrinterService": printer})

They are views of what `graphbus build` runs: the pure engine of `engine.py`, the agents of `model_agent.py`, the workspace and
the gate. The project is held in memory, one file for each agent; no file is written, and no code of the project runs. So the
gate compares texts and contracts, and lets pass unverified what it would have to import or test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.project import Project
from graphbus_core.editing.gate import Gate
from graphbus_core.errors import raise_all
from graphbus_core.llm.client import Clients, LLMClient, RecordedClient
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import GateConfig, ResolvedBuild, SafetyConfig, Settings
from graphbus_core.model.proposals import CommitRecord, Ending, GateReport, Proposal, ProposalEvaluation
from graphbus_core.negotiation import engine, protocol
from graphbus_core.negotiation.agents import AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.model_agent import ModelAgent
from graphbus_core.negotiation.session_workspace import SessionWorkspace
from graphbus_core.negotiation.transitions import failure_of, refusal_of, remaining_proposals
from graphbus_core.schema.json import Json

_NOWHERE = "/graphbus-in-memory"
"""The root of projects that are not on the disk: no such folder needs to exist."""

AgentBus = MessageBus
"""The bus of Build Mode is that of Runtime Mode (seed 000, layer 2)."""


class AgentMemory:
    """What an agent has found out, by name. Source: seed 002, 4.1."""

    def __init__(self) -> None:
        self._values: dict[str, Json] = {}

    def store(self, key: str, value: Json) -> None:
        """Keep a value, in the place of an earlier one of this name."""
        self._values[key] = value

    def get(self, key: str) -> Json:
        """Return the value that was stored under this name, or None."""
        return self._values.get(key)


class NegotiationEngine:
    """A negotiation, round by round: proposals go in, commits come out. Source: seed 001, INIT_NEGOTIATION_ENGINE; seed 002, 6.2.

    Attributes:
        safety_config: The limits.
        last_refusal: Why `add_proposal` has returned False, naming the setting; empty after a proposal that it took.
    """

    def __init__(self, safety_config: SafetyConfig | None = None) -> None:
        self.safety_config = safety_config or SafetyConfig()
        self.last_refusal = ""
        self._sources: dict[str, bytes] = {}
        self._arbiters: tuple[str, ...] = ()
        self._drafts: list[Proposal] = []
        self._questions: list[protocol.Question] = []
        self._state: protocol.NegotiationState | None = None
        self._workspace: SessionWorkspace | None = None

    @property
    def proposals(self) -> dict[str, Proposal]:
        """Id -> proposal, of those that have come to a round, in the order of their numbers."""
        return {name: case.proposal for name, case in self._state.cases.items()} if self._state else {}

    @property
    def evaluations(self) -> dict[str, tuple[ProposalEvaluation, ...]]:
        """Id of a proposal -> all evaluations of it, in order; those of arbiters are named `"X (ARBITER)"`."""
        return {name: case.evaluations for name, case in self._state.cases.items()} if self._state else {}

    @property
    def proposal_counts(self) -> dict[str, int]:
        """Agent -> how many proposals it has made."""
        made = [proposal.src for proposal in [*self.proposals.values(), *self._drafts]]
        return {name: made.count(name) for name in dict.fromkeys(made)}

    @property
    def rounds_without_proposals(self) -> int:
        """How many rounds in a row have had no new proposal."""
        return self._state.quiet_rounds if self._state else 0

    @property
    def total_files_modified(self) -> int:
        """How many distinct files the commits have changed."""
        return len(self._state.files) if self._state else 0

    @property
    def ending(self) -> Ending | None:
        """How the negotiation ended; None while it goes on."""
        return self._state.ending if self._state else None

    @property
    def workspace(self) -> SessionWorkspace:
        """The project as the commits have made it, with the gate."""
        if self._workspace is None:
            gate = GateConfig(allow_unverified=True)
            config = ResolvedBuild(root=_NOWHERE, paths=(), settings=Settings(safety=self.safety_config, gate=gate))
            index = ModuleIndex(config.root, (), (".",), (".",))
            project = Project.of_index(config, index, cache=False).with_files(self._sources)
            self._workspace = SessionWorkspace(project, Gate(project, config, None))
        return self._workspace

    def add_agent(self, name: str, source_code: str, *, is_arbiter: bool = False) -> None:
        """Let an agent take part; `LLMAgent` does this for itself.

        Raises:
            ProtocolError: The negotiation has begun, or there is an agent of this name.
        """
        path = f"{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower()}.py"
        if self._workspace or path in self._sources:
            raise protocol.ProtocolError("driver", f"{name} is added twice, or after the negotiation has begun")
        self._sources[path] = source_code.encode()
        self._arbiters += (name,) * is_arbiter

    def can_agent_propose(self, agent_name: str) -> tuple[bool, str]:
        """Return whether an agent may make another proposal in this round, and if not, why, naming the setting."""
        if self.ending:
            return False, f"the negotiation has ended: {self.ending.reason}"
        round_ = self._state.round if self._state else 1
        made = [*self.proposals.values(), *(replace(draft, round=round_) for draft in self._drafts)]
        limit, reason = remaining_proposals(agent_name, made, round_, self.safety_config)
        return limit > 0, "" if limit > 0 else reason

    def add_proposal(self, proposal: Proposal) -> bool:
        """Take a proposal into this round if the limits and `protected_files` allow it; else see `last_refusal`."""
        is_allowed, reason = self.can_agent_propose(proposal.src)
        changed = self._state.files if self._state else ()
        self.last_refusal = reason or refusal_of(proposal, self.safety_config, changed, self.proposals)
        if is_allowed and not self.last_refusal:
            self._drafts.append(proposal)
        return not self.last_refusal

    def create_commits(self, agents: Mapping[str, LLMAgent]) -> tuple[CommitRecord, ...]:
        """Hold a round with the proposals that were added: gate, evaluations, arbitration, commits.

        Args:
            agents: Those who evaluate and arbitrate. Whoever is missing abstains.

        Returns:
            The commits of this round, whose changes are in `workspace` now.
        """
        state = self._state or self._take(self._begin())
        before, is_next_round = len(state.commits), False
        while self._questions and not is_next_round:
            questions, self._questions = self._questions, []
            for question in questions:
                state = self._take(engine.step(state, self._answer(question, agents)))
            is_next_round = any(isinstance(question, protocol.AskProposals) for question in self._questions)
        self._drafts.clear()
        return state.commits[before:]

    def check(self, proposal: Proposal) -> GateReport:
        """Let the gate check a proposal on the workspace as it is; what it knows already is not checked again.

        Raises:
            GraphBusError: The gate itself has failed.
        """
        case = self._state.cases.get(proposal.proposal_id) if self._state else None
        if case and case.gate and case.proposal == proposal:
            return case.gate
        reply = self.workspace.check(protocol.CheckProposal(proposal))
        if isinstance(reply, protocol.Gated):
            return reply.report
        raise self.workspace.broken or protocol.ProtocolError("driver", "the gate gave no report")

    def _begin(self) -> protocol.EngineStep:
        project = self.workspace.files.project
        raise_all(project.errors)
        flagged = (agent.name for agent in project.definitions if agent.is_arbiter)
        arbiters = tuple(dict.fromkeys([*self._arbiters, *flagged]))
        participants = protocol.Participants(
            agents=project.order.order, arbiters=arbiters, owners=dict(project.editable), edges=project.graph.edges
        )
        return engine.begin(participants, self.safety_config, self.workspace.files.digest)

    def _take(self, step: protocol.EngineStep) -> protocol.NegotiationState:
        self._state = step.state
        self._questions += [command for command in step.commands if isinstance(command, protocol.Question)]
        return step.state

    def _answer(self, question: protocol.Question, agents: Mapping[str, LLMAgent]) -> protocol.Reply:
        match question:
            case protocol.CheckProposal():
                reply = self.workspace.check(question)
            case protocol.ApplyProposal():
                reply = self.workspace.apply(question)
            case protocol.AskProposals(agent=name):
                reply = protocol.Proposed(name, tuple(draft for draft in self._drafts if draft.src == name))
            case protocol.AskEvaluations(agent=name, reviews=reviews):
                judge = [agents[name]] if name in agents else []
                votes = tuple(each.evaluate_proposal(one.proposal) for each in judge for one in reviews)
                reply = protocol.Evaluated(name, votes)
            case protocol.AskArbitration(arbiter=name, review=review):
                decide = agents[name].arbitrate_conflict if name in agents else None
                decision = decide and decide(review.proposal, question.evaluations, question.round)
                reply = protocol.Arbitrated(review.proposal.proposal_id, name, decision)
            case protocol.AskRepair(agent=name, proposal=refused):
                author = agents.get(name)
                mended = author.repair(author.view(), refused, question.report) if author else None
                reply = protocol.Repaired(refused.proposal_id, mended)
            case _:
                raise protocol.ProtocolError("engine", "it asks for a person, and there is none")
        return reply


class _PromptedView(AgentView, frozen=True, kw_only=True):
    """What an agent sees whose system prompt was given to it, and does not stand in its class."""

    system_prompt: str = ""

    @property
    def definition(self) -> AgentDefinition | None:
        """The agent's own class, with this system prompt."""
        found = self.project.agent(self.name)
        return replace(found, system_prompt=self.system_prompt) if found and self.system_prompt else found


class LLMAgent(ModelAgent):
    """An agent that speaks for one class through a model. Source: seed 002, 4.1; its methods ask the model once or twice.

    Attributes:
        llm: Who answers; None: nobody, and every question ends in `ModelError`.
        memory: `"code_analysis"` -> what `analyze_code` has found out.
    """

    def __init__(  # noqa: PLR0917 - the arguments of the seed, in its order
        self,
        name: str,
        system_prompt: str,
        source_code: str,
        bus: AgentBus | None = None,
        negotiation_engine: NegotiationEngine | None = None,
        llm_client: LLMClient | None = None,
        *,
        is_arbiter: bool = False,
    ) -> None:
        self.llm: LLMClient = llm_client or RecordedClient("none:none")
        super().__init__(name, Clients(self.llm, self.llm, self.llm), is_arbiter=is_arbiter)
        self.system_prompt = system_prompt
        self.source_code = source_code
        self.bus = bus or AgentBus()
        self.negotiation_engine = negotiation_engine or NegotiationEngine()
        self.memory = AgentMemory()
        self.negotiation_engine.add_agent(name, source_code, is_arbiter=is_arbiter)

    def view(self, intent: str = "", round_num: int = 0) -> AgentView:
        """Return what the agent sees of the project now."""
        workspace = self.negotiation_engine.workspace
        return _PromptedView(
            name=self.name,
            project=workspace.files.project,
            findings=workspace.findings,
            round=round_num,
            limit=1,
            intent=intent,
            analysis=msgspec.convert(self.memory.get("code_analysis") or {}, Analysis),
            system_prompt=self.system_prompt,
        )

    def analyze_code(self) -> dict[str, Json]:
        """Ask what the class does, needs and lacks: responsibilities, dependencies, schema_expectations, potential_issues.

        Raises:
            ModelError: There is no usable answer.
        """
        analysis: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self.analyze(self.view())))
        self.memory.store("code_analysis", analysis)
        self.bus.publish("/Negotiation/Analyzed", {"agent": self.name, "analysis": analysis})
        return analysis

    def propose_change(self, intent: str, context: Mapping[str, Json]) -> Proposal | None:
        """Ask for one change that serves an intent; None when the agent has nothing to propose.

        Raises:
            ModelError: There is no usable answer.
        """
        wish = f"{intent}\n{msgspec.json.encode(context).decode()}" if context else intent
        drafts = self.propose(self.view(wish))
        return drafts[0] if drafts else None

    def evaluate_proposal(self, proposal: Proposal) -> ProposalEvaluation:
        """Ask what a proposal of another agent breaks; one that the gate refuses is rejected without a question.

        Raises:
            ModelError: There is no usable answer.
        """
        report = self.negotiation_engine.check(proposal)
        if report.passed:
            return self.evaluate(self.view(), [self._tried(proposal)])[0]
        return ProposalEvaluation(
            proposal_id=proposal.proposal_id,
            evaluator=self.name,
            round=proposal.round,
            decision="reject",
            reasoning=failure_of(report),
        )

    def arbitrate_conflict(
        self, proposal: Proposal, evaluations: Sequence[ProposalEvaluation], round_num: int
    ) -> ProposalEvaluation:
        """Ask for the binding decision on a proposal that passed the gate; the evaluator is `"X (ARBITER)"`.

        Raises:
            ModelError: There is no usable answer.
        """
        self.negotiation_engine.check(proposal)
        return self.arbitrate(self.view(round_num=round_num), self._tried(proposal), evaluations)

    def _tried(self, proposal: Proposal) -> TriedProposal:
        return self.negotiation_engine.workspace.trial(proposal.proposal_id)
