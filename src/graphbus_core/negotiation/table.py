"""The table at which a session takes place: the virtual workspace, the gate, and what is known of each proposal's consequences.

Answers the questions of the engine that no agent answers. No source file is written here.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from typing import Protocol, runtime_checkable

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.editing.edits import unified_diff
from graphbus_core.editing.rungs.ground import State
from graphbus_core.editing.rungs.objection import Objection
from graphbus_core.editing.rungs.trials import Trials
from graphbus_core.editing.workspace import Workspace, state_digest
from graphbus_core.errors import EditError, GraphBusError
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import Evidence, GateReport, Proposal, ProposalEvaluation
from graphbus_core.negotiation.counterexamples import broken_for
from graphbus_core.negotiation.finding import Found
from graphbus_core.negotiation.protocol import (
    Applied,
    ApplyProposal,
    AskEvaluations,
    CheckProposal,
    Evaluated,
    Gated,
    Reply,
    Stopped,
)
from graphbus_core.negotiation.views import Trial


class Gate(Protocol):
    """What must be passed before a vote; `editing.gate.Gate` is one."""

    def check(self, proposal: Proposal, workspace: Workspace) -> GateReport:
        """Let a proposal climb, on the workspace as it is now."""


@runtime_checkable
class Trying(Protocol):
    """A gate that can run the test of an objection, too."""

    @property
    def trials(self) -> Trials:
        """Where code is run."""


MAX_TESTS = 3
"""The tests of how many evaluators are run for one proposal: of those who were asked first."""


class _Tried:
    """A proposal that passed the gate, and the projects without and with it; what the rules find is asked when it is needed."""

    def __init__(self, found: Found, proposal: Proposal, report: GateReport, before: Project, after: Project) -> None:
        self._found = found
        self.proposal = proposal
        self.report = report
        self.before = before
        self.after = after

    @cached_property
    def trial(self) -> Trial:
        """All of it for those who judge."""
        old, new = self._found.of(self.before), self._found.of(self.after, self.before)
        were, are = {finding.key for finding in old}, {finding.key for finding in new}
        return Trial(
            proposal=self.proposal,
            report=self.report,
            after=self.after,
            diff="".join(_diffs(self.before, self.after, self.proposal.files).values()),
            added=tuple(finding for finding in new if finding.key not in were),
            mended=tuple(finding for finding in old if finding.key not in are),
        )


class Table:
    """The workspace of one session, and the trials of its proposals.

    Attributes:
        broken: Why a change could not be judged at all; then the session has come to no result, and nothing of it may land.
    """

    def __init__(self, project: Project, gate: Gate, found: Found | None = None) -> None:
        self.gate = gate
        self.workspace = Workspace(project)
        self._found = found or Found()
        self._tried: dict[str, _Tried] = {}
        self._may_test: dict[str, list[str]] = {}
        self.broken: GraphBusError | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the rules find in the workspace as it is now, for agents."""
        return self._found.of(self.workspace.project)

    def trial(self, proposal_id: str) -> Trial:
        """Give the consequences of a proposal, on the workspace on which it last passed the gate."""
        return self._tried[proposal_id].trial

    def check(self, question: CheckProposal) -> Reply:
        """Let a proposal climb the gate; a gate that breaks down ends the session."""
        proposal = question.proposal
        try:
            report = self.gate.check(proposal, self.workspace)
            edges = self._try(proposal, report).graph.edges if report.passed else ()
            merged = self.workspace.merged(proposal.code_changes) if report.passed else ()
        except GraphBusError as error:
            return self._stop(proposal.proposal_id, error)
        return Gated(proposal.proposal_id, report, edges, merged)

    def _stop(self, proposal_id: str, error: GraphBusError) -> Stopped:
        self.broken = error
        return Stopped("error", f"the gate broke down on {proposal_id}: {error.sentence}")

    def _try(self, proposal: Proposal, report: GateReport) -> Project:
        """Keep what the change would lead to, for those who will judge it."""
        before, after = self.workspace.project, self.workspace.applied(proposal.code_changes)
        self._tried[proposal.proposal_id] = _Tried(self._found, proposal, report, before, after)
        return after

    def apply(self, question: ApplyProposal) -> Reply:
        """Make an accepted change in the workspace."""
        proposal = question.proposal
        before = self.workspace.project
        refusal = ""
        try:
            self.workspace.commit(proposal)
        except EditError as error:
            refusal = error.sentence
        after = self.workspace.project
        return Applied(
            proposal_id=proposal.proposal_id,
            digest=self.workspace.digest,
            resolution=_diffs(before, after, proposal.files),
            edges=after.graph.edges,
            refusal=refusal,
        )

    def sides(self, proposal: Proposal) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Give the files of a change by path: as they are, and as they would be; nothing for the latter when it does not fit."""
        before = {path: self.workspace.data(path) for path in proposal.files if self.workspace.has(path)}
        try:
            return before, self.workspace.edited(proposal.code_changes)
        except EditError:
            return before, {}

    def diff(self, proposal: Proposal) -> str:
        """Give the unified diffs of a change against the workspace as it is now."""
        before, after = self.sides(proposal)
        return "".join(unified_diff(path, before[path], data) for path, data in sorted(after.items()))

    def expect(self, question: AskEvaluations) -> None:
        """Note who is asked about a proposal: the tests of those who are asked first may be run."""
        for review in question.reviews:
            asked = self._may_test.setdefault(review.proposal.proposal_id, [])
            if question.agent not in asked and len(asked) < MAX_TESTS:
                asked.append(question.agent)

    def weighed(self, reply: Evaluated) -> Evaluated | Stopped:
        """Let no agent vouch for its own evidence: only what was computed or run here is a verified objection."""
        votes: list[ProposalEvaluation] = []
        for vote in reply.evaluations:
            try:
                votes.append(self._weigh(reply.agent, vote))
            except GraphBusError as error:
                return self._stop(vote.proposal_id, error)
        return msgspec.structs.replace(reply, evaluations=tuple(votes))

    def _weigh(self, agent: str, vote: ProposalEvaluation) -> ProposalEvaluation:
        evidence: list[Evidence] = []
        has_tested = agent not in self._may_test.get(vote.proposal_id, ()) or vote.decision != "reject"
        for item in vote.evidence:
            if item.kind == "contract":
                objection = self._check_contract(agent, vote.proposal_id, item.text)
            elif has_tested:
                objection = Objection(False, "the test was not run")
            else:
                objection, has_tested = self._run_test(vote.proposal_id, item.text), True
            evidence.append(msgspec.structs.replace(item, is_verified=objection.holds, detail=objection.detail))
        doubts = tuple(f"unsubstantiated: {item.detail}" for item in evidence if not item.is_verified)
        if vote.decision == "reject" and not evidence:
            doubts = ("unsubstantiated: it comes without evidence",)
        return msgspec.structs.replace(vote, evidence=tuple(evidence), concerns=(*vote.concerns, *doubts))

    def _check_contract(self, agent: str, proposal_id: str, text: str) -> Objection:
        """An objection about a contract holds if it states what the change takes from its author, or what the rules find."""
        tried = self._tried.get(proposal_id)
        if tried is None:
            return Objection(False, "nothing is known of the change")
        said = " ".join(text.split())
        found = (one.message for one in tried.trial.added if " ".join(one.message.split()) in said)
        facts = (one.sentence for one in broken_for(agent, tried.before, tried.after) if one.is_stated_in(said))
        fact = next(chain(found, facts), "")
        return Objection(bool(fact), fact or "neither the rules nor the contracts show such a thing after the change")

    def _run_test(self, proposal_id: str, text: str) -> Objection:
        tried = self._tried.get(proposal_id)
        if tried is None or not isinstance(self.gate, Trying):
            return Objection(False, "nothing can be run here")
        before = self.workspace.changed()
        after = self.workspace.changed(self.workspace.edited(tried.proposal.code_changes))
        base, head = (
            State(state_digest(side), {path: now for path, (_, now) in side.items()}) for side in (before, after)
        )
        return self.gate.trials.objections.try_out(base, head, tried.after, text)


def _diffs(before: Project, after: Project, paths: Iterable[str]) -> dict[str, str]:
    """Give the unified diff of every file that is different."""
    texts = ((path, before.source(path).data, after.source(path).data) for path in paths) if after is not before else ()
    return {path: unified_diff(path, old, new) for path, old, new in texts if old != new}
