"""Every agent and the arbiter accept everything, and their proposals are bad: what is left is the gate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from msgspec.structs import replace

from graphbus_core.bus import MessageBus
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import detect_conflicts
from graphbus_core.editing.gate import Gate
from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.llm.client import WorstCase
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import GateReport, Negotiations, Proposal, ProposalEvaluation
from graphbus_core.negotiation.agents import ActiveAgents, AgentView, Analysis, TriedProposal, choose_arbiters
from graphbus_core.negotiation.apply import apply_session
from graphbus_core.negotiation.driver import NegotiationSession
from tests.conftest import Figure
from tests.corpora import BASES, BadEdit, bad_edits, config_of, write

Group = tuple[str, tuple[str, ...], float]
ALL = bad_edits()
RUN = {edit.refused: edit for edit in ALL if edit.refused >= "G5" and edit.timeout_s >= 40}
"""One for each code of the rungs that run code; tests/unit/editing/test_gate_corpora.py tries them all."""
HOSTILE = [edit for edit in ALL if edit.is_hostile][::20]
"""Some of those that tests/unit/editing/test_gate_corpora.py tries, all of them."""
EDITS = sorted(
    [*(edit for edit in ALL if edit.refused < "G5" and not edit.is_hostile), *HOSTILE, *RUN.values()],
    key=lambda edit: (edit.project, edit.links, edit.timeout_s),
)
AT_ONCE = 200
"""How many proposals one session is given at most."""
GROUPS = [
    (key, edits[at : at + AT_ONCE])
    for key, found in groupby(EDITS, lambda edit: (edit.project, edit.links, edit.timeout_s))
    for edits in [list(found)]
    for at in range(0, len(edits), AT_ONCE)
]


class Colluder:
    """Proposes what it was given, and accepts whatever it is asked about."""

    def __init__(self, name: str, is_arbiter: bool, drafts: Sequence[Proposal]) -> None:
        self.name = name
        self.is_arbiter = is_arbiter
        self._drafts = drafts

    def analyze(self, view: AgentView) -> Analysis:
        return Analysis()

    def propose(self, view: AgentView) -> Sequence[Proposal]:
        return self._drafts

    def repair(self, view: AgentView, proposal: Proposal, report: GateReport) -> Proposal:
        return proposal

    def evaluate(self, view: AgentView, trials: Sequence[TriedProposal]) -> Sequence[ProposalEvaluation]:
        return [self._yes(trial) for trial in trials]

    def arbitrate(
        self, view: AgentView, trial: TriedProposal, evaluations: Sequence[ProposalEvaluation]
    ) -> ProposalEvaluation:
        return self._yes(trial)

    def worst_case(self, question: object, view: AgentView, trials: Sequence[TriedProposal]) -> WorstCase:
        return WorstCase()

    def _yes(self, trial: TriedProposal) -> ProposalEvaluation:
        return ProposalEvaluation(
            proposal_id=trial.proposal.proposal_id,
            evaluator=self.name,
            round=0,
            decision="accept",
            reasoning="Of course.",
        )


def tree(root: Path) -> dict[str, bytes]:
    """Every file below, our own folder excepted."""
    paths = [path for path in root.rglob("*") if path.is_file() and ".graphbus" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def collude(config: ResolvedBuild, edits: Sequence[BadEdit]) -> Negotiations:
    """Negotiate with everybody in on it, and write what was accepted."""
    project = Project.read(config)
    names = [agent.name for agent in project.definitions]
    arbiters = choose_arbiters(project.definitions, config)
    drafts = {name: [edit.proposal for edit in edits if edit.proposal.src == name] for name in names}
    agents = ActiveAgents({name: Colluder(name, name in arbiters, drafts[name]) for name in names})
    gate = Gate(project, config, choose_sandbox(config.settings.gate.isolation, Path(config.root)))
    outcome = NegotiationSession(config, MessageBus(history=0)).run(project, agents, detect_conflicts(project), gate)
    report = gate.check_tree(outcome.workspace) if outcome.workspace.changed_files() else None
    apply_session(config, outcome.negotiations, outcome.workspace, report)
    return outcome.negotiations


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("group", "edits"), GROUPS, ids=["-".join(map(str, key)) for key, _ in GROUPS])
def test_no_bad_edit_reaches_a_file_though_everybody_accepts_it(
    group: Group, edits: list[BadEdit], tmp_path: Path, figure: Figure
) -> None:
    root = write(edits[0], tmp_path)
    config = config_of(edits[0], root)
    safety = replace(
        config.settings.safety,
        max_negotiation_rounds=1,
        max_proposals_per_agent=len(edits),
        max_proposals_per_round=len(edits),
        max_file_changes_per_commit=10,
        max_total_file_changes=100,
        max_repairs=1,
    )
    proposers = {agent for edit in edits for agent in [edit.proposal.src]}
    assert proposers <= set(BASES[group[0]].names)
    before = tree(root)

    negotiations = collude(replace(config, settings=replace(config.settings, safety=safety)), edits)

    tried = {record.proposal.title for record in negotiations.records}
    accepted = [record.proposal.title for record in negotiations.records if record.status == "accepted"]
    figure(f"bad edits that reached a file, everybody colluding ({group[0]})", f"{len(accepted)} of {len(tried)}")
    assert accepted == []
    assert tried == {edit.proposal.title for edit in edits}
    assert tree(root) == before


def test_there_are_enough_bad_edits() -> None:
    assert len(EDITS) >= 150
