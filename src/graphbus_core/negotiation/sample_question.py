"""One real question for a model, an evaluation: for `graphbus doctor --test`, and for estimates of the length of prompts.

It is asked as in a session: by the same prompt builder, sent back once if it is malformed, and read by the same parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec.structs import replace

from graphbus_core.compiler.project import Project
from graphbus_core.editing.workspace import Workspace
from graphbus_core.errors import EditError, GraphBusError, ModelError
from graphbus_core.llm.budget import Bill
from graphbus_core.llm.client import Clients, LLMClient
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import CodeChange, GateReport, Proposal, ProposalEvaluation
from graphbus_core.negotiation.agents import AgentView, TriedProposal
from graphbus_core.negotiation.asking import OnWait, PreparedQuestion, WorkerPool
from graphbus_core.negotiation.backend import activate_agents
from graphbus_core.negotiation.protocol import AskEvaluations, CheckProposal, Evaluated, GatedProposal
from graphbus_core.negotiation.rule_agent import find_for_agents
from graphbus_core.negotiation.session_workspace import SessionWorkspace

_SHOP = '''\
"""A small shop."""

from graphbus_core import Event, GraphBusNode, subscribe


class Orders(GraphBusNode):
    """Takes orders and publishes them."""

    def place(self, sku: str, amount: int) -> None:
        self.publish("/Order/Placed", {"sku": sku, "amount": amount})


class Stock(GraphBusNode):
    """Counts what was ordered."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: dict[str, int] = {}

    @subscribe("/Order/Placed")
    def on_placed(self, event: Event) -> None:
        self.ordered[event["sku"]] = self.ordered.get(event["sku"], 0) + event["amount"]
'''
_METHOD = "_name_in_log"


class SampleQuestion(NamedTuple):
    """An evaluation that an agent of a project can be asked for.

    Attributes:
        view: What the voter sees.
        trial: The proposal of one of its neighbours that it judges: a new method that nothing uses.
        is_about_project: False if the question is about the small built-in shop.
    """

    view: AgentView
    trial: TriedProposal
    is_about_project: bool = True


class SampleAnswer(NamedTuple):
    """The outcome of a sample question.

    Attributes:
        vote: The vote; None if no answer could be used.
        unusable: Why each unusable answer could not be used.
        failure: Why there is no vote; empty if there is one.
    """

    vote: ProposalEvaluation | None
    unusable: tuple[str, ...]
    failure: str


class _PassingGate:
    """A gate that passes everything unread: the proposal is only shown to a model."""

    def check(self, proposal: Proposal, _workspace: Workspace) -> GateReport:
        return GateReport(proposal_id=proposal.proposal_id, passed=True, rungs=())


def make_sample_question(project: Project, agent: str = "") -> SampleQuestion | None:
    """Return a sample question for an agent; None if there is none.

    Args:
        project: The project.
        agent: The name of the agent, which may be an arbiter; empty: of those with neighbours the one with the longest source.
    """
    for voter in sorted(project.definitions, key=lambda agent: agent.span.line - agent.span.end_line):
        if voter.name != agent if agent else voter.is_arbiter:
            continue
        others = [each.name for each in project.definitions if agent and each.name != agent]
        for name in (*sorted(project.graph.neighbours(voter.name)), *others):
            author = project.agent(name)
            trial = _try_change(project, author, voter.name) if author else None
            if trial:
                findings, settings = find_for_agents(project), project.config.settings
                wishes = {"intent": settings.intent, "goals": settings.refactoring_goals}
                return SampleQuestion(AgentView(name=voter.name, project=project, findings=findings, **wishes), trial)  # type: ignore[arg-type]
    return None


def _try_change(project: Project, author: AgentDefinition, voter: str) -> TriedProposal | None:
    """Return a proposal of one agent that affects another one, with its consequences; None if it cannot be applied."""
    code = f'def {_METHOD}(self) -> str:\n    """Return the name for lines of the log."""\n    return "{author.name}"\n'
    change = CodeChange(
        file_path=author.path,
        target=f"{author.name}.{_METHOD}",
        change_type="add",
        operation="add_symbol",
        new_code=code,
    )
    proposal = Proposal(
        proposal_id="P001",
        round=1,
        src=author.name,
        intent="refactor",
        code_change=change,
        affects=(voter,),
        title="Add the name for the log",
        reason="Lines of the log can then say which agent wrote them.",
    )
    workspace = SessionWorkspace(project, _PassingGate())
    try:
        workspace.check(CheckProposal(proposal))
        return workspace.trial(proposal.proposal_id)
    except (EditError, KeyError):
        return None


@contextmanager
def sample_question_for(config: ResolvedBuild, agent: str = "") -> Iterator[SampleQuestion]:
    """Make a sample question about the project, as `make_sample_question`.

    It is about a small built-in shop where there is no project file, the agents cannot be read, or there is no such agent; a
    class of the shop then has the name of the agent.
    """
    own = None
    with suppress(GraphBusError):
        project = Project.read(config, cache=False) if Path(config.root, "pyproject.toml").is_file() else None
        own = make_sample_question(project, agent) if project and not project.errors else None
    if own:
        yield own
        return
    with TemporaryDirectory(prefix="graphbus-") as folder:
        shop = _SHOP if agent in ("", "Orders") else re.sub(r"\bStock\b", agent, _SHOP)
        Path(folder, "shop.py").write_text(shop, encoding="utf-8")
        project = Project.read(replace(config, root=folder, paths=(folder,)), cache=False)
        question = make_sample_question(project, agent)
        if question is None:
            raise AssertionError("the built-in shop has two neighbours")
        yield question._replace(is_about_project=False)


def ask_sample_question(question: SampleQuestion, client: LLMClient, on_wait: OnWait) -> SampleAnswer:
    """Ask a model as a session would, with the settings of the project, and return its vote or why there is none.

    Raises:
        ModelError: The model cannot be asked at all.
    """
    project, proposal, voter = question.view.project, question.trial.proposal, question.view.name
    agents = activate_agents(project.definitions, project.order.order, project.config, Clients(client, client, client))
    bill = Bill()
    asked = AskEvaluations(1, voter, (GatedProposal(proposal, question.trial.report),))
    prepared = PreparedQuestion(agents[voter], asked, question.view, (question.trial,), bill)
    (reply,) = WorkerPool(1, lambda: None, on_wait)([prepared])
    if bill.final_error:
        raise bill.final_error
    if not isinstance(reply, Evaluated):
        raise ModelError("GBE448", provider=client.model, reason="the thread that asked it has ended")
    vote = next((each for each in reply.evaluations if each.proposal_id == proposal.proposal_id), None)
    return SampleAnswer(vote, tuple(answer.reason for answer in bill.unusable), reply.failure)
