"""What the engine costs for each reply among a hundred agents, and a whole negotiation of the shop between rule agents."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stdout, suppress
from pathlib import Path

from msgspec.structs import replace
from stopwatch import Row, medians, process, report, timed

from graphbus_core.build import run_build_pipeline
from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import detect_conflicts
from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.artifacts import Edge
from graphbus_core.model.config import BuildConfig, ResolvedBuild, SafetyConfig
from graphbus_core.model.proposals import CodeChange, GateReport, Proposal, ProposalEvaluation, RungResult
from graphbus_core.negotiation import engine
from graphbus_core.negotiation.backend import activate_agents
from graphbus_core.negotiation.driver import NegotiationSession
from graphbus_core.negotiation.protocol import (
    KEYS,
    ApplyProposal,
    AskEvaluations,
    AskProposals,
    ChangeApplied,
    CheckProposal,
    Command,
    Evaluated,
    Gated,
    Participants,
    Proposed,
    Reply,
)
from graphbus_core.settings import resolve_build

AGENTS = 100
LIMIT_S = 0.001


def ring(count: int) -> Participants:
    """So many agents, one file each, everybody heard by the next two."""
    names = tuple(f"Agent{number:03}" for number in range(count))
    edges = [Edge(names[i], names[(i + step) % count], "topic", f"/T{i}") for i in range(count) for step in (1, 2)]
    return Participants(agents=names, owners={f"{name}.py": (name,) for name in names}, edges=tuple(edges))


def reply_to(command: Command, participants: Participants) -> Reply:
    """Everybody proposes in every round, everything passes, everybody accepts."""
    if isinstance(command, AskProposals):
        change = CodeChange(
            file_path=f"{command.agent}.py", target="", change_type="modify", new_code=str(command.round)
        )
        return Proposed(
            command.agent,
            (Proposal(proposal_id="", round=0, src="", intent="x", code_change=change),),
        )
    if isinstance(command, CheckProposal):
        proposal_id = command.proposal.proposal_id
        rungs = (RungResult(rung="G0", status="passed"),)
        return Gated(proposal_id, GateReport(proposal_id=proposal_id, passed=True, rungs=rungs), participants.edges)
    if isinstance(command, AskEvaluations):
        ids = [review.proposal.proposal_id for review in command.reviews]
        votes = [ProposalEvaluation(proposal_id=i, evaluator="", round=0, decision="accept") for i in ids]
        return Evaluated(command.agent, tuple(votes))
    assert isinstance(command, ApplyProposal)
    proposal = command.proposal
    digest = f"{proposal.proposal_id}"
    return ChangeApplied(
        proposal_id=proposal.proposal_id, digest=digest, resolution={proposal.files[0]: "-+"}, edges=participants.edges
    )


def engine_s_per_reply() -> float:
    """Time inside the engine alone, shared out over the replies of one negotiation."""
    participants = ring(AGENTS)
    safety = SafetyConfig(max_negotiation_rounds=5, max_total_file_changes=1000)
    spent, replies = 0.0, 0
    state, commands = engine.begin(participants, safety, "start")
    while state.phase != "FINISHED":
        questions = [command for command in commands if type(command) in KEYS]
        commands = ()
        for question in questions:
            reply = reply_to(question, participants)
            started = time.perf_counter()
            state, more = engine.step(state, reply)
            spent += time.perf_counter() - started
            replies += 1
            commands = (*commands, *more)
    assert len(state.commits) == AGENTS * safety.max_proposals_per_agent, len(state.commits)
    return spent / replies


class OpenGate:
    """Lets everything pass that applies: what is left is the negotiation itself."""

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        workspace.preview_files(proposal.code_changes)
        rungs = (RungResult(rung="G1", status="passed"),)
        return GateReport(proposal_id=proposal.proposal_id, passed=True, rungs=rungs)


def talk(config: ResolvedBuild) -> object:
    """Read the project, let its rule agents negotiate to the end, write nothing."""
    project = Project.read(config, cache=False)
    agents = activate_agents(project.definitions, project.order.order, config)
    session = NegotiationSession(config, MessageBus())
    session.analyze(agents, project)
    outcome = session.run(project, agents, detect_conflicts(project), OpenGate())
    assert outcome.negotiations.converged
    return outcome


def shop() -> list[Row]:
    """The shop that `graphbus init` makes, negotiated without and with every rung of the gate."""
    from graphbus_core.cli import main as graphbus

    with tempfile.TemporaryDirectory() as name, chdir(name), redirect_stdout(io.StringIO()):
        assert graphbus(["init", "shop"]) == 0
        folder = Path(name, "shop")
        static = BuildConfig(paths=(str(folder / "agents"),), dry_run=True, force=True)
        whole = replace(static, enable_agents=True)
        config = resolve_build(whole)
        talked = medians({"talk": timed(lambda: talk(config)), "static": timed(lambda: run_build_pipeline(static))})
        tests = process([sys.executable, "-m", "pytest", "-q"], folder, PYTHONDONTWRITEBYTECODE="1")
        gated = medians({"whole": timed(lambda: run_build_pipeline(whole)), "tests": lambda: quietly(tests)}, 3)
    return [
        Row("negotiation of the shop, its code not run", talked["talk"], talked["static"], "static build"),
        Row("negotiation of the shop, whole, with its tests", gated["whole"], gated["tests"], "its tests once"),
    ]


def quietly(measure: Callable[[], float]) -> float:
    """A run of tests that fail, as those of the shop do before the negotiation."""
    started = time.perf_counter()
    with suppress(subprocess.CalledProcessError):
        measure()
    return time.perf_counter() - started


def main() -> list[Row]:
    """Measure and print."""
    took = medians({"engine": engine_s_per_reply})
    per_reply = Row(f"engine, one reply among {AGENTS} agents", took["engine"], LIMIT_S, "limit", 1.0, "1 ms")
    return report("Negotiation", [per_reply, *shop()])


if __name__ == "__main__":
    main()
