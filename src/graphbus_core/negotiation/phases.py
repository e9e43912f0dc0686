"""What happens in each phase: the questions on entering it, and what each reply does. Pure.

`engine.py` holds the tables that say which function is for which phase and reply.
"""

from __future__ import annotations

from msgspec.structs import replace

from graphbus_core.model.proposals import CommitRecord, GateReport, Proposal, ProposalEvaluation, Status
from graphbus_core.negotiation import votes
from graphbus_core.negotiation.admission import Allowance, allowance, refuse, refuse_files
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    Applied,
    ApplyProposal,
    Arbitrated,
    AskArbitration,
    AskEvaluations,
    AskProposals,
    AskRepair,
    Case,
    CheckProposal,
    DraftsDropped,
    Evaluated,
    EvaluationMade,
    Gated,
    ProposalArbitrated,
    ProposalCommitted,
    ProposalGated,
    ProposalMade,
    ProposalPostponed,
    Proposed,
    ProtocolError,
    Repaired,
    Review,
    RoundStarted,
)
from graphbus_core.negotiation.turn import Turn, is_decided

# --- PROPOSING -------------------------------------------------------------------------------


def open_round(turn: Turn) -> None:
    """Begin a round: reopen, number the counter-proposals of the last round, and ask every agent that may still propose."""
    turn.set(round=turn.state.round + 1)
    turn.tell(RoundStarted(turn.state.round))
    _reopen(turn)
    drafts = turn.state.drafts
    turn.set(drafts=())
    for draft in drafts:
        _number_counter(turn, draft)
    for agent in turn.state.ground.voters:
        limit = _allowance(turn, agent, turn.state.round).limit
        if limit:
            turn.ask(AskProposals(turn.state.round, agent, limit))


def _reopen(turn: Turn) -> None:
    """Put what was deferred, or countered in vain, before its evaluators again; drop what has lost a dependency."""
    cases = turn.cases
    for case in list(cases.values()):
        if case.status == "deferred" or (case.status == "countered" and _is_countered_in_vain(case, cases)):
            turn.move(case, "pending")
        elif case.status == "pending":
            lost = [cases[name] for name in case.proposal.dependencies if cases[name].status != "accepted"]
            lost = [other for other in lost if is_decided(other)]
            if lost:
                turn.close(case, "rejected", f"it depends on {lost[0].proposal_id}, which was {lost[0].status}")


def _is_countered_in_vain(case: Case, cases: dict[str, Case]) -> bool:
    return bool(case.counters) and all(is_decided(cases[name]) for name in case.counters)


def _allowance(turn: Turn, agent: str, round_: int) -> Allowance:
    made = [case.proposal for case in turn.cases.values()]
    return allowance(agent, [*made, *turn.state.drafts], round_, turn.state.safety)


def _number(turn: Turn, draft: Proposal, depth: int = 0) -> Case:
    """Give a draft its number, and refuse it at once when a limit says so."""
    state = turn.state
    refusal = refuse(draft, state.safety, state.files, turn.cases)
    case = Case(proposal=replace(draft, proposal_id=f"P{len(turn.cases) + 1:03}"), depth=depth)
    turn.cases[case.proposal_id] = case
    turn.tell(ProposalMade(case.proposal))
    if refusal:
        turn.close(case, "refused", refusal)
    return case


def _number_counter(turn: Turn, draft: Proposal) -> None:
    parent = turn.cases[draft.parent or ""]
    case = _number(turn, draft, parent.depth + 1)
    turn.change(parent, counters=(*parent.counters, case.proposal_id))


def take_proposals(turn: Turn, reply: Proposed) -> None:
    """Number the drafts of one agent, up to its limits."""
    if reply.failure:
        turn.tell(AgentFailed(reply.agent, "propose", reply.failure))
    limit, reason = _allowance(turn, reply.agent, turn.state.round)
    numbers: dict[str, str] = {}
    for draft in reply.proposals[:limit]:
        needed = tuple(numbers.get(name, name) for name in draft.dependencies)
        own = replace(draft, src=reply.agent, round=turn.state.round, parent=None, dependencies=needed)
        numbers[draft.proposal_id] = _number(turn, own).proposal_id
    dropped = len(reply.proposals) - limit
    if dropped > 0:
        turn.tell(DraftsDropped(reply.agent, dropped, reason))


# --- GATING ----------------------------------------------------------------------------------


def open_gate(turn: Turn) -> None:
    """Ask the gate about every proposal on which it has not spoken for this state of the workspace."""
    for case in turn.ready():
        if case.gate is None or case.gated_on != turn.state.digest:
            turn.ask(CheckProposal(case.proposal))


def _note_report(turn: Turn, reply: Gated) -> Case:
    turn.tell(ProposalGated(reply.proposal_id, reply.report))
    case = turn.cases[reply.proposal_id]
    return turn.change(case, gate=reply.report, gated_on=turn.state.digest, edges=reply.edges)


def take_report(turn: Turn, reply: Gated) -> None:
    """Let a proposal pass, or send it back to its author, or refuse it."""
    case = _note_report(turn, reply)
    if reply.report.passed:
        return
    if case.evaluations:
        turn.close(case, "refused", f"stale: it no longer passes the gate ({_failure(reply.report)})")
    elif case.repairs >= turn.state.safety.max_repairs:
        turn.close(case, "refused", _failure(reply.report))
    else:
        turn.change(case, repairs=case.repairs + 1)
        turn.ask(AskRepair(turn.state.round, case.proposal.src, case.proposal, reply.report))


def _failure(report: GateReport | None) -> str:
    failed = report and report.failure
    return f"{failed.code}: {failed.message}" if failed else "the gate refused it"


def take_repair(turn: Turn, reply: Repaired) -> None:
    """Send a mended proposal to the gate again."""
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.tell(AgentFailed(case.proposal.src, "repair", reply.failure))
    if reply.proposal is None:
        turn.close(case, "refused", _failure(case.gate))
        return
    old = case.proposal
    mended = replace(
        reply.proposal,
        proposal_id=old.proposal_id,
        round=old.round,
        src=old.src,
        parent=old.parent,
        dependencies=old.dependencies,
        priority=old.priority,
        finding=old.finding,
    )
    case = turn.change(case, proposal=mended)
    turn.tell(ProposalMade(mended))
    refusal = refuse(mended, turn.state.safety, turn.state.files, turn.cases)
    if refusal:
        turn.close(case, "refused", refusal)
    else:
        turn.ask(CheckProposal(mended))


# --- EVALUATING ------------------------------------------------------------------------------


def open_votes(turn: Turn) -> None:
    """Put into each evaluator's inbox what it is to vote on."""
    state = turn.state
    inboxes: dict[str, list[Review]] = {name: [] for name in state.ground.agents}
    for case in turn.ready():
        review = _review(case)
        if not case.evaluations:
            countered = turn.cases[case.proposal.parent].proposal.src if case.proposal.parent else ""
            names = votes.electorate(case, state.ground, state.safety, countered)
            turn.change(case, electorate=names, asked=names)
        for name in turn.cases[case.proposal_id].asked:
            inboxes[name].append(review)
    for name, inbox in inboxes.items():
        if inbox:
            turn.ask(AskEvaluations(state.round, name, tuple(inbox)))


def _review(case: Case) -> Review:
    if case.gate is None:
        raise ProtocolError("engine", f"{case.proposal_id} comes to a vote before the gate")
    return Review(case.proposal, case.gate)


def take_evaluations(turn: Turn, reply: Evaluated) -> None:
    """Count the votes of one agent."""
    if reply.failure:
        turn.tell(AgentFailed(reply.agent, "evaluate", reply.failure))
    for case in turn.ready():
        if reply.agent in case.asked:
            evaluation = _count_vote(turn, case, reply)
            turn.change(case, evaluations=(*case.evaluations, evaluation))
            turn.tell(EvaluationMade(evaluation))


def _count_vote(turn: Turn, case: Case, reply: Evaluated) -> ProposalEvaluation:
    """Give the vote as it counts: what cannot be carried out is no accept, and says why."""
    given = [evaluation for evaluation in reply.evaluations if evaluation.proposal_id == case.proposal_id]
    blank = ProposalEvaluation(
        proposal_id=case.proposal_id, evaluator=reply.agent, round=turn.state.round, decision="abstain", confidence=0.0
    )
    if len(given) != 1:
        missing = reply.failure or "it gave no answer"
        return replace(blank, reasoning="it gave more than one answer" if given else missing)
    vote = replace(given[0], evaluator=reply.agent, round=turn.state.round, is_arbiter=False)
    has_voted = reply.agent in votes.latest(case.evaluations)
    if vote.decision == "defer" and has_voted:
        return replace(vote, decision="abstain", concerns=(*vote.concerns, "it deferred a second time"))
    if vote.decision == "counter":
        return _take_counter(turn, case, vote, has_voted)
    return vote


def _take_counter(turn: Turn, case: Case, vote: ProposalEvaluation, has_voted: bool) -> ProposalEvaluation:
    """Queue a counter-proposal for the next round; one that may not be made leaves a plain reject."""
    draft = vote.counter_proposal
    refusal = _refuse_counter(turn, case, vote, has_voted)
    if draft is None or refusal:
        concern = f"its counter-proposal was not taken: {refusal or 'it names no change'}"
        return replace(vote, decision="reject", concerns=(*vote.concerns, concern))
    own = replace(draft, src=vote.evaluator, round=turn.state.round + 1, parent=vote.proposal_id)
    turn.set(drafts=(*turn.state.drafts, own))
    return vote


def _refuse_counter(turn: Turn, case: Case, vote: ProposalEvaluation, has_voted: bool) -> str:
    safety = turn.state.safety
    if has_voted:
        return "this is its second vote"
    if case.depth >= safety.max_back_and_forth:
        return f"max_back_and_forth is {safety.max_back_and_forth}"
    limit, reason = _allowance(turn, vote.evaluator, turn.state.round + 1)
    return "" if limit else reason


# --- ARBITRATING -----------------------------------------------------------------------------


def open_arbitration(turn: Turn) -> None:
    """Draw the conclusion from the votes on each proposal; ask the arbiter where they leave it open."""
    for case in turn.ready():
        if not _postpone(turn, case):
            _conclude(turn, case)


def _postpone(turn: Turn, case: Case) -> bool:
    """Put off what was countered or deferred, unless a veto settles it now."""
    decisions = {name: vote.decision for name, vote in votes.latest(case.evaluations).items()}
    undecided = tuple(name for name, decision in decisions.items() if decision in {"counter", "defer"})
    if not undecided or votes.find_veto(case, turn.state.ground):
        return False
    status: Status = "countered" if "counter" in decisions.values() else "deferred"
    turn.move(case, status, asked=undecided)
    turn.tell(ProposalPostponed(case.proposal_id, status, f"by {', '.join(undecided)}"))
    return True


def _conclude(turn: Turn, case: Case) -> None:
    ground = turn.state.ground
    verdict = votes.decide(case, ground, turn.state.safety)
    if verdict.outcome == "accept":
        turn.change(case, agreed=verdict.consensus)
    elif verdict.outcome == "reject":
        turn.close(case, "rejected", verdict.reason)
    else:
        turn.ask(AskArbitration(turn.state.round, ground.arbiters[0], _review(case), case.evaluations))


def take_arbitration(turn: Turn, reply: Arbitrated) -> None:
    """Do as the arbiter says."""
    case = turn.cases[reply.proposal_id]
    arbiter = turn.state.ground.arbiters[0]
    if reply.failure:
        turn.tell(AgentFailed(arbiter, "arbitrate", reply.failure))
    word = _binding_word(turn, reply, arbiter)
    count = votes.tally(case.evaluations)
    case = turn.change(case, evaluations=(*case.evaluations, word))
    turn.tell(ProposalArbitrated(case.proposal_id, arbiter, word, count.accepts, count.rejects))
    if word.decision == "accept":
        turn.change(case, agreed="arbiter")
    else:
        turn.close(case, "rejected", f"{arbiter} decided against it: {word.reasoning or 'without a reason'}")


def _binding_word(turn: Turn, reply: Arbitrated, arbiter: str) -> ProposalEvaluation:
    """Give the arbiter's evaluation; whatever is not an accept is a reject."""
    said = reply.evaluation or ProposalEvaluation(
        proposal_id=reply.proposal_id,
        evaluator=arbiter,
        round=turn.state.round,
        decision="reject",
        reasoning=f"the arbiter gave no answer{f' ({reply.failure})' if reply.failure else ''}; when in doubt, reject",
    )
    decision = "accept" if said.decision == "accept" else "reject"
    return replace(
        said,
        proposal_id=reply.proposal_id,
        evaluator=arbiter,
        round=turn.state.round,
        decision=decision,
        confidence=1.0,
        is_arbiter=True,
        counter_proposal=None,
    )


# --- COMMITTING ------------------------------------------------------------------------------


def commit_next(turn: Turn) -> None:
    """Take the accepted proposals one after another, the highest priority first, until there is something to ask."""
    agreed = [case for case in turn.cases.values() if case.agreed and case.status == "pending"]
    for case in sorted(agreed, key=lambda case: -case.proposal.priority):
        refusal = refuse_files(case.proposal.files, turn.state.safety, turn.state.files)
        if refusal:
            turn.close(case, "refused", refusal)
            continue
        # An earlier commit of this round may have moved the ground under it: the gate speaks again.
        is_fresh = case.gated_on == turn.state.digest
        turn.ask(ApplyProposal(case.proposal) if is_fresh else CheckProposal(case.proposal))
        return


def take_second_report(turn: Turn, reply: Gated) -> None:
    """Refuse what an earlier commit of the round has made stale."""
    case = _note_report(turn, reply)
    if not reply.report.passed:
        turn.close(
            case,
            "refused",
            f"stale: after the commits of this round it no longer passes the gate ({_failure(reply.report)})",
        )
    commit_next(turn)


def take_applied(turn: Turn, reply: Applied) -> None:
    """Record the commit, and go on with the next one."""
    case = turn.cases[reply.proposal_id]
    if reply.refusal:
        turn.close(case, "refused", f"stale: {reply.refusal}")
    elif not reply.resolution:
        turn.close(case, "refused", "it changes nothing")
    else:
        _commit(turn, case, reply)
    commit_next(turn)


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
    return (*voters, *(f"{vote.evaluator} (ARBITER)" for vote in case.evaluations if vote.is_arbiter))


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
