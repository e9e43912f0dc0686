"""An engine and agents for use from a program, one round at a time: the classes of Build Mode with their original names.

    engine = NegotiationEngine(SafetyConfig())
    hello = LLMAgent("HelloService", "I greet.", hello_source, AgentBus(), engine, client)
    printer = LLMAgent("PrinterService", "I print.", printer_source, AgentBus(), engine, client)
    engine.add_proposal(hello.propose_change("align_schema", {}))
    commits = engine.create_commits({"HelloService": hello, "PrinterService": printer})

They use what `graphbus build` runs: the pure engine of `engine.py`, the agents of `model_agent.py`, the workspace and the gate.
The project is held in memory, one file for each agent; no file is written, and no code of the project runs. Therefore the gate
only compares texts and contracts, and accepts without a check what it would have to import or test.
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

_VIRTUAL_ROOT = "/graphbus-in-memory"
"""The root of a project in memory; no such folder needs to exist."""

AgentBus = MessageBus
"""Another name of `MessageBus`: Build Mode and Runtime Mode use the same bus."""


class AgentMemory:
    """Values that an agent has stored under names. Source: seed 002, 4.1."""

    def __init__(self) -> None:
        self._values: dict[str, Json] = {}

    def store(self, key: str, value: Json) -> None:
        """Store a value; it replaces an earlier one of this name."""
        self._values[key] = value

    def get(self, key: str) -> Json:
        """Return the value stored under a name; None if there is none."""
        return self._values.get(key)


class NegotiationEngine:
    """A negotiation, round by round: add agents, add proposals, and call `create_commits` for each round.

    Attributes:
        safety_config: The limits.
        last_refusal: Why the last `add_proposal` returned False, naming the setting; empty if it returned True.

    Source: seed 001, INIT_NEGOTIATION_ENGINE; seed 002, 6.2.
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
        """Id -> proposal, in the order of the numbers. A proposal gets its number, and is included, when its round begins."""
        return {name: case.proposal for name, case in self._state.cases.items()} if self._state else {}

    @property
    def evaluations(self) -> dict[str, tuple[ProposalEvaluation, ...]]:
        """Proposal id -> all its evaluations, in order; in those of arbiters, `agent` is `"X (ARBITER)"`."""
        return {name: case.evaluations for name, case in self._state.cases.items()} if self._state else {}

    @property
    def proposal_counts(self) -> dict[str, int]:
        """Agent -> the number of its proposals, those for the next round included."""
        made = [proposal.src for proposal in [*self.proposals.values(), *self._drafts]]
        return {name: made.count(name) for name in dict.fromkeys(made)}

    @property
    def rounds_without_proposals(self) -> int:
        """The number of rounds since the last new proposal."""
        return self._state.quiet_rounds if self._state else 0

    @property
    def total_files_modified(self) -> int:
        """The number of distinct files that the commits have changed."""
        return len(self._state.files) if self._state else 0

    @property
    def ending(self) -> Ending | None:
        """How the negotiation ended; None while it goes on."""
        return self._state.ending if self._state else None

    @property
    def workspace(self) -> SessionWorkspace:
        """The project with the commits so far, and the gate. At the first access it is built from the agents added until then."""
        if self._workspace is None:
            gate = GateConfig(allow_unverified=True)
            config = ResolvedBuild(
                root=_VIRTUAL_ROOT, paths=(), settings=Settings(safety=self.safety_config, gate=gate)
            )
            index = ModuleIndex(config.root, (), (".",), (".",))
            project = Project.of_index(config, index, cache=False).with_files(self._sources)
            self._workspace = SessionWorkspace(project, Gate(project, config, None))
        return self._workspace

    def add_agent(self, name: str, source_code: str, *, is_arbiter: bool = False) -> None:
        """Add an agent with the source of its class to the negotiation. `LLMAgent` calls this for itself.

        Raises:
            ProtocolError: The workspace exists already, or there is an agent whose name leads to the same file name.
        """
        path = f"{re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', name).lower()}.py"
        if self._workspace or path in self._sources:
            raise protocol.ProtocolError("driver", f"{name} is added twice, or after the negotiation has begun")
        self._sources[path] = source_code.encode()
        self._arbiters += (name,) * is_arbiter

    def can_agent_propose(self, agent_name: str) -> tuple[bool, str]:
        """Return whether an agent may make another proposal in this round, and why not; the reason is empty if it may."""
        if self.ending:
            return False, f"the negotiation has ended: {self.ending.reason}"
        round_ = self._state.round if self._state else 1
        made = [*self.proposals.values(), *(replace(draft, round=round_) for draft in self._drafts)]
        limit, reason = remaining_proposals(agent_name, made, round_, self.safety_config)
        return limit > 0, "" if limit > 0 else reason

    def add_proposal(self, proposal: Proposal) -> bool:
        """Add a proposal to this round and return True, or return False and set `last_refusal` if a setting forbids it."""
        is_allowed, reason = self.can_agent_propose(proposal.src)
        changed = self._state.files if self._state else ()
        self.last_refusal = reason or refusal_of(proposal, self.safety_config, changed, self.proposals)
        if is_allowed and not self.last_refusal:
            self._drafts.append(proposal)
        return not self.last_refusal

    def create_commits(self, agents: Mapping[str, LLMAgent]) -> tuple[CommitRecord, ...]:
        """Run a round with the added proposals: gate, evaluations, arbitration and commits.

        Args:
            agents: Name -> agent, for evaluations, arbitration and repairs. An agent that is missing abstains.

        Returns:
            The commits of this round, whose changes are now in `workspace`.

        Raises:
            ModelError: A model gave no usable answer.
            GraphBusError: The source of an agent cannot be read.
        """
        # The first step asks for proposals, as each round does at its beginning.
        state = self._state or self._accept_step(self._begin_negotiation())
        before, is_next_round = len(state.commits), False
        while self._questions and not is_next_round:
            questions, self._questions = self._questions, []
            for question in questions:
                state = self._accept_step(engine.step(state, self._answer_question(question, agents)))
            is_next_round = any(isinstance(question, protocol.AskProposals) for question in self._questions)
        self._drafts.clear()
        return state.commits[before:]

    def check(self, proposal: Proposal) -> GateReport:
        """Return the report of the gate on a proposal: the known one if there is one, else from a check in the present workspace.

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

    def _begin_negotiation(self) -> protocol.EngineStep:
        """Start the engine with the added agents, and return its first step; raise the errors of unreadable sources."""
        project = self.workspace.files.project
        raise_all(project.errors)
        flagged = (agent.name for agent in project.definitions if agent.is_arbiter)
        arbiters = tuple(dict.fromkeys([*self._arbiters, *flagged]))
        participants = protocol.Participants(
            agents=project.order.order, arbiters=arbiters, owners=dict(project.editable), edges=project.graph.edges
        )
        return engine.begin(participants, self.safety_config, self.workspace.files.digest)

    def _accept_step(self, step: protocol.EngineStep) -> protocol.NegotiationState:
        """Keep the state and the questions of a step, and return the state."""
        self._state = step.state
        self._questions += [command for command in step.commands if isinstance(command, protocol.Question)]
        return step.state

    def _answer_question(self, question: protocol.Question, agents: Mapping[str, LLMAgent]) -> protocol.Reply:
        """Return the reply to a question: from the workspace, from the added proposals, or from one of the agents.

        For an agent that is missing in `agents`, the reply is empty: no votes, no decision or no repair.
        """
        match question:
            case protocol.CheckProposal():
                reply = self.workspace.check(question)
            case protocol.ApplyProposal():
                reply = self.workspace.apply(question)
            case protocol.AskProposals(agent=name):
                reply = protocol.Proposed(name, tuple(draft for draft in self._drafts if draft.src == name))
            case protocol.AskEvaluations(agent=name, reviews=reviews):
                evaluators = [agents[name]] if name in agents else []
                votes = tuple(each.evaluate_proposal(one.proposal) for each in evaluators for one in reviews)
                reply = protocol.Evaluated(name, votes)
            case protocol.AskArbitration(arbiter=name, review=review):
                decide = agents[name].arbitrate_conflict if name in agents else None
                decision = decide and decide(review.proposal, question.evaluations, question.round)
                reply = protocol.Arbitrated(review.proposal.proposal_id, name, decision)
            case protocol.AskRepair(agent=name, proposal=refused):
                author = agents.get(name)
                repaired = author.repair(author.view(), refused, question.report) if author else None
                reply = protocol.Repaired(refused.proposal_id, repaired)
            case _:
                raise protocol.ProtocolError("engine", "it asks for a person, and there is none")
        return reply


class _PromptedView(AgentView, frozen=True, kw_only=True):
    """What an agent sees if its system prompt was passed to `LLMAgent` and is not in the source of its class."""

    system_prompt: str = ""

    @property
    def definition(self) -> AgentDefinition | None:
        """The agent's own class, with that system prompt; None if a change has removed the class."""
        found = self.project.agent(self.name)
        return replace(found, system_prompt=self.system_prompt) if found and self.system_prompt else found


class LLMAgent(ModelAgent):
    """An agent that answers for one class by asking a model; it asks a second time if the first answer is malformed.

    Attributes:
        llm: The client of the model. Without an `llm_client`, every question raises `ModelError`.
        memory: `"code_analysis"` -> the result of `analyze_code`.

    Source: seed 002, 4.1.
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
        """Return what the agent sees of the project now, for a question with this intent in this round."""
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
        """Ask for an analysis of the class, store it in `memory`, publish it on the bus, and return it as a JSON object.

        Its keys are responsibilities, dependencies, schema_expectations and potential_issues.

        Raises:
            ModelError: There is no usable answer.
        """
        analysis: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(self.analyze(self.view())))
        self.memory.store("code_analysis", analysis)
        self.bus.publish("/Negotiation/Analyzed", {"agent": self.name, "analysis": analysis})
        return analysis

    def propose_change(self, intent: str, context: Mapping[str, Json]) -> Proposal | None:
        """Ask for one proposal that serves an intent, to which `context` is added as JSON; None if there is nothing to propose.

        Raises:
            ModelError: There is no usable answer.
        """
        wish = f"{intent}\n{msgspec.json.encode(context).decode()}" if context else intent
        drafts = self.propose(self.view(wish))
        return drafts[0] if drafts else None

    def evaluate_proposal(self, proposal: Proposal) -> ProposalEvaluation:
        """Ask the model for an evaluation of a proposal; if the gate refuses the proposal, return a reject without asking.

        Raises:
            ModelError: There is no usable answer.
        """
        report = self.negotiation_engine.check(proposal)
        if report.passed:
            return self.evaluate(self.view(), [self._trial_of(proposal)])[0]
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
        """Ask for the decision on a disputed proposal that passed the gate; `agent` of the result is `"X (ARBITER)"`.

        Raises:
            ModelError: There is no usable answer.
        """
        self.negotiation_engine.check(proposal)  # makes sure that its trial exists
        return self.arbitrate(self.view(round_num=round_num), self._trial_of(proposal), evaluations)

    def _trial_of(self, proposal: Proposal) -> TriedProposal:
        """Return a proposal that passed the gate, with its consequences."""
        return self.negotiation_engine.workspace.trial(proposal.proposal_id)
