"""COMMITTING: the accepted proposals enter the workspace one after another. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from graphbus_core.model.proposals import CommitRecord
from graphbus_core.negotiation import votes
from graphbus_core.negotiation.admission import refuse_files
from graphbus_core.negotiation.phases.arbitrating import ask_judges, hear_judge
from graphbus_core.negotiation.phases.gating import note_report, send_back
from graphbus_core.negotiation.phases.reviewing import ask_person, take_edited_report
from graphbus_core.negotiation.protocol import (
    Applied,
    ApplyProposal,
    Arbitrated,
    Case,
    CheckProposal,
    Gated,
    ProposalCommitted,
)
from graphbus_core.negotiation.turn import Turn, is_decided


def commit_next(turn: Turn) -> None:
    """Take the accepted proposals one after another, the highest priority first, until there is something to ask.

    In a review those that the votes rejected come after them.
    """
    agreed = [case for case in turn.cases.values() if case.agreed and case.status == "pending"]
    rejected = [
        case for case in turn.cases.values() if case.turned_down and not case.agreed and case.status == "pending"
    ]
    for case in [*sorted(agreed, key=lambda case: -case.proposal.priority), *rejected]:
        _advance(turn, case)
        if turn.state.awaited:
            return


def _advance(turn: Turn, case: Case) -> None:
    """Ask what stands between a proposal and its commit, or refuse it."""
    state = turn.state
    refusal = refuse_files(case.proposal.files, state.safety, state.files)
    is_fresh = case.gated_on == state.digest
    if refusal:
        turn.close(case, "rejected" if not case.agreed else "refused", case.turned_down or refusal)
    elif case.agreed and not is_fresh and _contradicts(turn, case):
        return
    elif not is_fresh:
        # An earlier commit of this round may have moved the ground under it: the gate speaks again.
        turn.ask(CheckProposal(case.proposal))
    elif not case.agreed or (state.is_reviewed and not case.is_approved):
        ask_person(turn, case)
    else:
        turn.ask(ApplyProposal(case.proposal))


def _contradicts(turn: Turn, case: Case) -> bool:
    """Let the arbiters settle it when an earlier commit of this round makes something else of the same contract element."""
    found = None if case.is_cleared else _find_rival(turn, case)
    if not found:
        return False
    rival, element = found
    reason = f"{rival.proposal_id}, accepted before it in this round, changes {element} in another way"
    if turn.state.ground.arbiters:
        ask_judges(turn, case, reason)
    else:
        turn.close(case, "rejected", f"{reason}, and there is no arbiter")
    return True


def _find_rival(turn: Turn, case: Case) -> tuple[CommitRecord, str] | None:
    wanted = case.gate.schema_changes if case.gate else ()
    for commit in turn.state.commits:
        for change in commit.schema_changes:
            if commit.round == turn.state.round and any(votes.contradict(change, own) for own in wanted):
                return commit, change.method
    return None


def take_clash_word(turn: Turn, reply: Arbitrated) -> None:
    """Go on with a proposal that contradicts an earlier commit, or reject it, as the arbiters say."""
    verdict = hear_judge(turn, reply)
    case = turn.cases[reply.proposal_id]
    if verdict and verdict.outcome == "accept":
        turn.change(case, is_cleared=True, agreed=verdict.consensus)
    elif verdict:
        turn.close(case, "rejected", verdict.reason)


def take_second_report(turn: Turn, reply: Gated) -> None:
    """Send back what an earlier commit of the round has made stale, and a person's own text to the person."""
    case = note_report(turn, reply)
    if reply.report.passed:
        return
    if case.edits:
        take_edited_report(turn, case)
    elif case.turned_down:
        turn.close(case, "rejected", f"{case.turned_down}; and after other commits it no longer passes the gate")
    else:
        send_back(turn, case)


def take_applied(turn: Turn, reply: Applied) -> None:
    """Record the commit."""
    case = turn.cases[reply.proposal_id]
    if reply.refusal:
        turn.close(case, "refused", f"stale: {reply.refusal}")
    elif not reply.resolution:
        turn.close(case, "refused", "it changes nothing")
    else:
        _commit(turn, case, reply)


def _commit(turn: Turn, case: Case, reply: Applied) -> None:
    state = turn.state
    files = tuple(sorted(reply.resolution))
    commit = CommitRecord(
        commit_id=f"C{len(state.commits) + 1:03}",
        proposal_id=case.proposal_id,
        round=state.round,
        proposer=case.proposal.src,
        evaluators=_who_voted(case),
        consensus_type=case.agreed or "unanimous",
        files_modified=files,
        title=case.proposal.title,
        resolution=reply.resolution,
        schema_changes=case.gate.schema_changes if case.gate else (),
    )
    turn.move(case, "accepted", commit=commit)
    turn.set(
        commits=(*state.commits, commit),
        files=tuple(sorted({*state.files, *files})),
        ground=replace(state.ground, edges=reply.edges),
        digest=reply.digest,
        seen=state.seen | {reply.digest},
        is_oscillating=state.is_oscillating or reply.digest in state.seen,
    )
    count = votes.tally(case.evaluations)
    turn.tell(ProposalCommitted(commit, count.accepts, count.votes))
    _supersede(turn, case)


def _who_voted(case: Case) -> tuple[str, ...]:
    voters = [name for name, vote in votes.latest(case.evaluations).items() if vote.decision in {"accept", "reject"}]
    judges = [
        f"{vote.evaluator} (ARBITER)" for vote in case.evaluations if vote.is_arbiter and vote.decision != "abstain"
    ]
    return (*voters, *dict.fromkeys(judges))


def _supersede(turn: Turn, winner: Case) -> None:
    """Close the other proposals of the same matter: a proposal and all counters to it are alternatives."""
    matter = _root(winner, turn.cases)
    for case in list(turn.cases.values()):
        if not is_decided(case) and _root(case, turn.cases) == matter:
            turn.close(case, "superseded", f"{winner.proposal_id} was accepted instead")
    kept = [draft for draft in turn.state.drafts if _root(turn.cases[draft.parent or ""], turn.cases) != matter]
    turn.set(drafts=tuple(kept))


def _root(case: Case, cases: dict[str, Case]) -> str:
    while case.proposal.parent:
        case = cases[case.proposal.parent]
    return case.proposal_id
