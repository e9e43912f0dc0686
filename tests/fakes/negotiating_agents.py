"""Agents and gates for negotiations over a real project: they do what a test tells them to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import detect_conflicts
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import EditError
from graphbus_core.model.config import ResolvedBuild, Settings
from graphbus_core.model.proposals import CodeChange, GateReport, Proposal, ProposalEvaluation, RungResult
from graphbus_core.negotiation.agents import ActiveAgents, AgentView, Analysis, TriedProposal
from graphbus_core.negotiation.asking import PreparedQuestion, answer_question
from graphbus_core.negotiation.driver import NegotiationSession
from graphbus_core.negotiation.protocol import Reply
from graphbus_core.negotiation.session_workspace import SessionOutcome


class ScriptedAgent:
    """Proposes what it was given round by round, and votes as it was told; it keeps everything that it was shown.

    A script entry that is an exception is raised; anything else is given back as it is, right or wrong.
    """

    def __init__(self, name: str, *, is_arbiter: bool = False) -> None:
        self.name = name
        self.is_arbiter = is_arbiter
        self.drafts: dict[int, Any] = {}
        self.vote: Any = "accept"
        self.word: Any = "reject"
        self.repaired: Any = None
        self.analysis: Any = Analysis(responsibilities=("something",))
        self.views: list[AgentView] = []
        self.trials: list[TriedProposal] = []

    def analyze(self, view: AgentView) -> Any:
        return self._say(view, self.analysis)

    def propose(self, view: AgentView) -> Any:
        return self._say(view, self.drafts.get(view.round, ()))

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Any:
        return self._say(view, self.repaired)

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> Any:
        self.trials += trials
        if isinstance(self.vote, str):
            return self._say(view, tuple(self._evaluation(trial, self.vote) for trial in trials))
        return self._say(view, self.vote)

    def arbitrate(self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]) -> Any:
        self.trials.append(trial)
        if isinstance(self.word, str):
            return self._say(view, self._evaluation(trial, self.word))
        return self._say(view, self.word)

    def _say(self, view: AgentView, what: Any) -> Any:
        self.views.append(view)
        if isinstance(what, BaseException):
            raise what
        return what(view) if callable(what) else what

    def _evaluation(self, trial: TriedProposal, decision: Any) -> ProposalEvaluation:
        return ProposalEvaluation(
            proposal_id=trial.proposal.proposal_id, evaluator=self.name, round=0, decision=decision, reasoning="as told"
        )


class OpenGate:
    """Lets everything pass that applies."""

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        try:
            workspace.preview_project(proposal.code_changes)
        except EditError as error:
            rung = RungResult(rung="G1", status="failed", code="G1.apply", message=error.sentence)
            return GateReport(proposal_id=proposal.proposal_id, passed=False, rungs=(rung,))
        rungs = (RungResult(rung="G1", status="passed"),)
        return GateReport(proposal_id=proposal.proposal_id, passed=True, rungs=rungs)


class BrokenGate:
    """Raises what it is given."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        raise self.error


def ask_backwards(batch: Sequence[PreparedQuestion]) -> Iterator[Reply]:
    """Answer the last question first."""
    for asked in reversed(list(batch)):
        yield answer_question(asked)


class Scene:
    """A project on disk, scripted agents over it (`Judge` is an arbiter), and what a test may change before it runs.

    Attributes:
        heard: Every event of the negotiation with its payload, in order.
        options: For the `NegotiationSession`.
    """

    def __init__(
        self, root: Path, *names: str, is_reviewed: bool = False, dry_run: bool = False, **settings: Any
    ) -> None:
        self.config = ResolvedBuild(
            root=str(root),
            paths=(str(root / "agents"),),
            settings=Settings(**settings),
            is_reviewed=is_reviewed,
            dry_run=dry_run,
        )
        self.project = Project.read(self.config, cache=False)
        self.gate: Any = OpenGate()
        self.bus = MessageBus()
        self.heard: list[tuple[str, Any]] = []
        self.agents = {name: ScriptedAgent(name, is_arbiter=name == "Judge") for name in names}
        self.options: dict[str, Any] = {}

    def run(self, reviewer: Any = None) -> SessionOutcome:
        self.bus.subscribe(
            "/Negotiation/*", lambda topic, payload: self.heard.append((topic, payload)), shape="topic_payload"
        )
        self.session = NegotiationSession(self.config, self.bus, reviewer=reviewer, **self.options)
        agents = ActiveAgents(self.agents)
        self.session.analyze(agents, self.project)
        return self.session.run(self.project, agents, detect_conflicts(self.project), self.gate)

    @property
    def topics(self) -> list[str]:
        return [topic.removeprefix("/Negotiation/") for topic, _ in self.heard]


def negotiate(project: Project, agents: ActiveAgents) -> SessionOutcome:
    """Run one session whole, with a gate that lets pass what applies."""
    session = NegotiationSession(project.config, MessageBus())
    session.analyze(agents, project)
    return session.run(project, agents, detect_conflicts(project), OpenGate())


def replace_text(path: str, old: str, new: str, **fields: Any) -> Proposal:
    """A draft that replaces a piece of text in a file."""
    change = CodeChange(
        file_path=path, target="", change_type="modify", operation="search_replace", old_code=old, new_code=new
    )
    return Proposal(
        proposal_id="", round=0, src="", intent="test", title=f"replace {old}", code_change=change, **fields
    )
