"""GATING: every proposal climbs the gate on the present state of the workspace; its author may mend what fails. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from graphbus_core.model.proposals import GateReport, Proposal
from graphbus_core.negotiation.admission import refuse
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    AskRepair,
    Case,
    CheckProposal,
    Gated,
    ProposalGated,
    ProposalMade,
    ProposalMerged,
    ProposalSentBack,
    Repaired,
)
from graphbus_core.negotiation.turn import Turn

CONFLICT = "G1.conflict"
"""The gate's code for a change that contradicts what was accepted meanwhile."""


def open_gate(turn: Turn) -> None:
    """Ask the gate about every proposal on which it has not spoken for this state of the workspace."""
    for case in turn.ready():
        if case.gate is None or case.gated_on != turn.state.digest:
            turn.ask(CheckProposal(case.proposal))


def note_report(turn: Turn, reply: Gated) -> Case:
    """Keep what the gate says of a proposal on the workspace as it is now."""
    turn.tell(ProposalGated(reply.proposal_id, reply.report))
    if reply.merged:
        turn.tell(ProposalMerged(reply.proposal_id, reply.merged))
    case = turn.cases[reply.proposal_id]
    return turn.change(case, gate=reply.report, gated_on=turn.state.digest, edges=reply.edges)


def take_report(turn: Turn, reply: Gated) -> None:
    """Let a proposal pass, or send it back to its author, or refuse it."""
    case = note_report(turn, reply)
    if reply.report.passed:
        return
    failure = reply.report.failure
    if case.evaluations or (failure and failure.code == CONFLICT):
        send_back(turn, case)
    elif case.repairs >= turn.state.safety.max_repairs:
        turn.close(case, "refused", failure_of(reply.report))
    else:
        turn.change(case, repairs=case.repairs + 1)
        turn.ask(AskRepair(turn.state.round, case.proposal.src, case.proposal, reply.report))


def send_back(turn: Turn, case: Case) -> None:
    """Let the author fit a proposal to what was accepted meanwhile: once, as a repair. The votes on the old text are void."""
    reason = f"after other commits it no longer passes the gate ({failure_of(case.gate)})"
    if case.gate is None or case.was_sent_back or case.repairs >= turn.state.safety.max_repairs:
        turn.close(case, "refused", f"stale: {reason}")
        return
    turn.change(
        case,
        repairs=case.repairs + 1,
        was_sent_back=True,
        evaluations=(),
        electorate=(),
        asked=(),
        judges=(),
        is_cleared=False,
        agreed=None,
    )
    turn.tell(ProposalSentBack(case.proposal_id, reason))
    turn.ask(AskRepair(turn.state.round, case.proposal.src, case.proposal, case.gate))


def failure_of(report: GateReport | None) -> str:
    """Give the code and the sentence of the rung that refused."""
    failed = report and report.failure
    return f"{failed.code}: {failed.message}" if failed else "the gate refused it"


def take_repair(turn: Turn, reply: Repaired) -> None:
    """Send a mended proposal to the gate again."""
    case = take_fitted(turn, reply)
    if case:
        turn.ask(CheckProposal(case.proposal))


def take_fitted(turn: Turn, reply: Repaired) -> Case | None:
    """Put the mended text in the place of the old one; None when there is none, or a limit forbids it.

    While commits are being made it waits for the next round: then it climbs the gate and is voted on again.
    """
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.tell(AgentFailed(case.proposal.src, "repair", reply.failure))
    if reply.proposal is None:
        turn.close(case, "refused", f"{'stale: ' if case.was_sent_back else ''}{failure_of(case.gate)}")
        return None
    mended = with_identity(reply.proposal, case.proposal)
    case = turn.change(case, proposal=mended, gated_on="")
    turn.tell(ProposalMade(mended))
    refusal = refuse(mended, turn.state.safety, turn.state.files, turn.cases)
    if refusal:
        turn.close(case, "refused", refusal)
        return None
    return case


def with_identity(mended: Proposal, old: Proposal) -> Proposal:
    """Give another text as the same proposal: what the engine has said of it stays."""
    return replace(
        mended,
        proposal_id=old.proposal_id,
        round=old.round,
        src=old.src,
        parent=old.parent,
        dependencies=old.dependencies,
        priority=old.priority,
        finding=old.finding,
    )
