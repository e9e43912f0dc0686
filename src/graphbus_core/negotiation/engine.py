"""The negotiation as a pure state machine: (state, reply) -> (state, commands). Source: seed 002, chapters 2 and 6.

    PROPOSING -> GATING -> EVALUATING -> ARBITRATING -> COMMITTING -> CONVERGING -> FINISHED
        ^                                                                 |
        +-----------------------------------------------------------------+

Theory of operation
-------------------
The engine never asks an agent, a gate or a person itself. `begin` and `step` return *commands*: questions, which the driver has
to answer with one reply each, and announcements, which it publishes. The driver (`driver.NegotiationSession`) owns all I/O,
clocks and threads; this module, `transitions`, `votes` and `protocol` have none, and no randomness.

A phase asks all its questions when it is entered (`_ENTER`) and ends when all of them are answered. `step` only stores a reply
until the last one of the phase arrives. Then it processes all replies (`_TAKE`) in the order of the questions, not in the order
of arrival, so that the outcome cannot depend on which model answers first. A phase without questions is left at once.

COMMITTING differs: its replies lead to further questions. Proposals are committed one after another, and each commit may change a
file that the next proposal changes too, so that one must pass the gate again before its own commit.

`EngineTurn` builds the next state during one step. Only its methods change cases, and the table `MOVES` says which status may
follow which. A forbidden move raises `ProtocolError("engine")`, an unexpected reply `ProtocolError("driver")`. States are
immutable values: a caller may keep one, compare it, and continue from it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import (
    CommitRecord,
    Ending,
    LogEntry,
    Negotiations,
    ProposalRecord,
    TerminationReason,
)
from graphbus_core.negotiation import votes
from graphbus_core.negotiation.protocol import (
    ApplyProposal,
    Arbitrated,
    AskPerson,
    ChangeApplied,
    CheckProposal,
    EngineStep,
    Gated,
    NegotiationFinished,
    NegotiationState,
    NegotiationStopped,
    NegotiationSummary,
    Participants,
    PersonAnswered,
    PersonReply,
    Phase,
    ProposalCase,
    ProposalCommitted,
    ProposalMade,
    ProtocolError,
    Reply,
    Task,
    key_of,
)
from graphbus_core.negotiation.transitions import (
    EngineTurn,
    ask_arbiters,
    failure_of,
    is_decided,
    keep_report,
    open_arbitration,
    open_gate,
    open_round,
    open_votes,
    refusal_of,
    refusal_of_files,
    replace_refused_text,
    review_of,
    send_back,
    take_arbiter_vote,
    take_arbitration,
    take_evaluations,
    take_proposals,
    take_repair,
    take_report,
    with_identity,
)

NEXT: dict[Phase, Phase] = {
    "PROPOSING": "GATING",
    "GATING": "EVALUATING",
    "EVALUATING": "ARBITRATING",
    "ARBITRATING": "COMMITTING",
    "COMMITTING": "CONVERGING",
    "CONVERGING": "PROPOSING",
}
"""The phase after each phase. CONVERGING may go to FINISHED instead; so does any phase after a `NegotiationStopped`."""

# --- the two entry points -----------------------------------------------------------------------


def begin(participants: Participants, safety: SafetyConfig, digest: str, *, is_reviewed: bool = False) -> EngineStep:
    """Start a negotiation, and return its first state and commands.

    Args:
        participants: The agents, the files that they own, and the graph.
        safety: The limits.
        digest: The digest of the workspace.
        is_reviewed: Ask a person before each commit.
    """
    seen = frozenset({digest})
    turn = EngineTurn(
        NegotiationState(participants=participants, safety=safety, digest=digest, seen=seen, is_reviewed=is_reviewed)
    )
    _finish_if_due(turn)  # a limit of 0 rounds or 0 files allows no round at all
    return _enter_phases(turn)


def step(state: NegotiationState, reply: Reply) -> EngineStep:
    """Process one reply, and return the next state and its commands.

    While other questions of the phase are open, the reply is only stored, and there are no commands. A `NegotiationStopped` and
    the `quit` of a person finish the negotiation at once.

    Raises:
        ProtocolError: The driver sent a reply for which no question is open, answered a question twice, or continued after the
            end; or the engine has a bug.
    """
    if state.phase == "FINISHED":
        raise ProtocolError("driver", f"{type(reply).__name__} came after the end")
    if isinstance(reply, NegotiationStopped):
        return _stop_negotiation(state, reply)
    key = key_of(reply)
    if key not in state.awaited:
        raise ProtocolError("driver", f"nobody asked to {key.task} {key.about} while {state.phase}")
    if key in state.received:
        raise ProtocolError("driver", f"the question to {key.task} {key.about} was answered twice")
    if isinstance(reply, PersonReply) and reply.verdict == "quit":
        return _stop_negotiation(state, NegotiationStopped("manual", reply.reason or "ended in the review"))
    received = {**state.received, key: reply}
    if len(received) < len(state.awaited):
        return EngineStep(replace(state, received=received), ())
    turn = EngineTurn(replace(state, awaited=(), received={}))
    for awaited in state.awaited:
        _TAKE[state.phase, awaited.task](turn, received[awaited])
    if state.phase == "COMMITTING":  # one question at a time: a commit may make the next proposal stale
        _commit_next(turn)
    return _enter_phases(turn)


def _stop_negotiation(state: NegotiationState, reply: NegotiationStopped) -> EngineStep:
    """Return the step that finishes the negotiation now, whatever its phase; open questions are dropped."""
    turn = EngineTurn(state)
    _finish(turn, reply.reason, reply.detail)
    return turn.finish_step()


def _enter_phases(turn: EngineTurn) -> EngineStep:
    """Enter phase after phase until one asks a question or the negotiation ends."""
    while not turn.state.awaited and turn.state.phase != "FINISHED":
        turn.update_state(phase=NEXT[turn.state.phase])
        _ENTER[turn.state.phase](turn)
    return turn.finish_step()


# --- CONVERGING ------------------------------------------------------------------------------


def _end_round(turn: EngineTurn) -> None:
    """Update the number of rounds without a new proposal, and finish the negotiation if one of its ends is reached."""
    rounds = [case.proposal.round for case in turn.cases.values()]
    is_quiet = not rounds or rounds[-1] < turn.state.round  # the newest proposal is the last one
    turn.update_state(quiet_rounds=turn.state.quiet_rounds + 1 if is_quiet else 0)
    _finish_if_due(turn)


def _finish_if_due(turn: EngineTurn) -> None:
    """Finish the negotiation if the files have returned to an earlier state, or if a limit is reached.

    Finish it also if no proposal is open and `convergence_threshold` rounds have brought no new proposal.
    """
    state, safety = turn.state, turn.state.safety
    has_open = bool(state.drafts) or any(not is_decided(case) for case in state.cases.values())
    if state.is_oscillating:
        _finish(turn, "oscillation", "the files are as they were before")
    elif len(state.files) >= safety.max_total_file_changes:
        _finish(turn, "file_limit", f"max_total_file_changes is {safety.max_total_file_changes}")
    elif state.quiet_rounds >= safety.convergence_threshold and not has_open:
        _finish(
            turn, "convergence", f"{state.quiet_rounds} round{'s' * (state.quiet_rounds != 1)} without a new proposal"
        )
    elif state.round >= safety.max_negotiation_rounds:
        _finish(turn, "max_rounds", f"max_negotiation_rounds is {safety.max_negotiation_rounds}")


def _finish(turn: EngineTurn, reason: TerminationReason, detail: str) -> None:
    """Record how the negotiation ended, and announce it. Proposals that the votes rejected are closed first."""
    for case in list(turn.cases.values()):
        if case.rejection and not case.agreed and not is_decided(case):
            turn.close_case(case, "rejected", case.rejection)  # it was still open for the person of a review
    state = turn.state
    ending = Ending(
        terminated=True,
        reason=reason,
        rounds_executed=state.round,
        proposals_made=len(state.cases),
        commits_created=len(state.commits),
        files_modified=len(state.files),
        detail=detail,
    )
    turn.update_state(phase="FINISHED", awaited=(), received={}, ending=ending)
    turn.announce(NegotiationFinished(ending, summarize(turn.state)))


# --- COMMITTING --------------------------------------------------------------------------------


def _commit_next(turn: EngineTurn) -> None:
    """Advance the accepted proposals one by one, the highest priority first, until one of them leads to a question.

    In a review, the proposals that were rejected by vote follow: a person may still accept them.
    """
    agreed = [case for case in turn.cases.values() if case.agreed and case.status == "pending"]
    rejected = [case for case in turn.cases.values() if case.rejection and not case.agreed and case.status == "pending"]
    for case in [*sorted(agreed, key=lambda case: -case.proposal.priority), *rejected]:
        _advance_case(turn, case)
        if turn.state.awaited:
            return


def _advance_case(turn: EngineTurn, case: ProposalCase) -> None:
    """Ask the next question that a proposal needs before its commit, or close it if a limit forbids the commit.

    The proposal was accepted, or it was rejected by vote and a person may still accept it.
    """
    state = turn.state
    refusal = refusal_of_files(case.proposal.files, state.safety, state.files)
    is_fresh = case.gated_on == state.digest
    if refusal:
        turn.close_case(case, "rejected" if not case.agreed else "refused", case.rejection or refusal)
    elif case.agreed and not is_fresh and _handle_contradiction(turn, case):
        return  # the arbiters are asked about it, or it is closed
    elif not is_fresh:
        # An earlier commit of this round has changed the workspace, so the report of the gate no longer holds.
        turn.ask(CheckProposal(case.proposal))
    elif not case.agreed or (state.is_reviewed and not case.is_approved):
        ask_person(turn, case)
    else:
        turn.ask(ApplyProposal(case.proposal))


def _handle_contradiction(turn: EngineTurn, case: ProposalCase) -> bool:
    """Ask the arbiters about a proposal that contradicts a commit of this round; without arbiters, reject it.

    Return whether there is such a commit: one that changes the same contract element in another way.
    """
    found = None if case.is_cleared else _find_contradicting_commit(turn, case)
    if not found:
        return False
    rival, element = found
    reason = f"{rival.proposal_id}, accepted before it in this round, changes {element} in another way"
    if turn.state.participants.arbiters:
        ask_arbiters(turn, case, reason)
    else:
        turn.close_case(case, "rejected", f"{reason}, and there is no arbiter")
    return True


def _find_contradicting_commit(turn: EngineTurn, case: ProposalCase) -> tuple[CommitRecord, str] | None:
    """Return the first commit of this round that contradicts a proposal, and the contract element of both; else None."""
    changes = case.gate.schema_changes if case.gate else ()
    for commit in turn.state.commits:
        for change in commit.schema_changes:
            if commit.round == turn.state.round and any(votes.changes_contradict(change, own) for own in changes):
                return commit, change.method
    return None


def _take_contradiction_arbitration(turn: EngineTurn, reply: Arbitrated) -> None:
    """Record the decision of one arbiter about a contradiction; after the last one, keep or reject the proposal."""
    verdict = take_arbiter_vote(turn, reply)
    case = turn.cases[reply.proposal_id]
    if verdict and verdict.outcome == "accept":
        turn.update_case(case, is_cleared=True, agreed=verdict.consensus)
    elif verdict:
        turn.close_case(case, "rejected", verdict.reason)


def _take_second_report(turn: EngineTurn, reply: Gated) -> None:
    """Process the report on a proposal that was checked again, after another commit or after an edit by a person.

    If the gate refuses it, there are three cases: the edit of a person goes back to the person, a proposal that was rejected by
    vote is closed, and any other goes back to its author.
    """
    case = keep_report(turn, reply)
    if reply.report.passed:
        return
    if case.edits:
        _handle_refused_edit(turn, case)
    elif case.rejection:
        turn.close_case(case, "rejected", f"{case.rejection}; and after other commits it no longer passes the gate")
    else:
        send_back(turn, case)


def _take_applied(turn: EngineTurn, reply: ChangeApplied) -> None:
    """Record the commit, or refuse the proposal if the workspace could not apply it."""
    case = turn.cases[reply.proposal_id]
    if reply.refusal:
        turn.close_case(case, "refused", f"stale: {reply.refusal}")
    elif not reply.resolution:
        turn.close_case(case, "refused", "it changes nothing")
    else:
        _record_commit(turn, case, reply)


def _record_commit(turn: EngineTurn, case: ProposalCase, reply: ChangeApplied) -> None:
    """Close a case as accepted, add its commit to the state, announce it, and close the alternatives of the proposal.

    The changed files, the edges and the digest of the workspace in the state are updated too.
    """
    state = turn.state
    files = tuple(sorted(reply.resolution))
    commit = CommitRecord(
        commit_id=f"C{len(state.commits) + 1:03}",
        proposal_id=case.proposal_id,
        round=state.round,
        proposer=case.proposal.src,
        evaluators=_list_voters(case),
        consensus_type=case.agreed or "unanimous",
        files_modified=files,
        title=case.proposal.title,
        resolution=reply.resolution,
        schema_changes=case.gate.schema_changes if case.gate else (),
        negotiation_log=tuple(_make_log_entries(case)),
    )
    turn.set_status(case, "accepted", commit=commit)
    turn.update_state(
        commits=(*state.commits, commit),
        files=tuple(sorted({*state.files, *files})),
        participants=replace(state.participants, edges=reply.edges),
        digest=reply.digest,
        seen=state.seen | {reply.digest},
        is_oscillating=state.is_oscillating or reply.digest in state.seen,
    )
    count = votes.count_votes(case.evaluations)
    turn.announce(ProposalCommitted(commit, count.accepts, count.votes))
    _close_alternatives(turn, case)


def _list_voters(case: ProposalCase) -> tuple[str, ...]:
    """Return the agents whose last vote is accept or reject, then the arbiters that decided."""
    voters = [
        name for name, vote in votes.latest_votes(case.evaluations).items() if vote.decision in {"accept", "reject"}
    ]
    arbiters = [vote.evaluator for vote in case.evaluations if vote.is_arbiter and vote.decision != "abstain"]
    return (*voters, *dict.fromkeys(arbiters))


def _make_log_entries(case: ProposalCase) -> Iterator[LogEntry]:
    """Yield the log of a commit: the proposal, the gate, and every vote and decision."""
    yield LogEntry(actor=case.proposal.src, action="propose", text=case.proposal.reason)
    yield LogEntry(actor="gate", action="check", text="passed")  # always true: only what has passed is committed
    for vote in case.evaluations:
        yield LogEntry(actor=vote.evaluator, action=vote.decision, text=vote.reasoning)


def _close_alternatives(turn: EngineTurn, winner: ProposalCase) -> None:
    """Close the alternatives of an accepted proposal, and drop those that are still drafts.

    Alternatives are the original proposal and all its direct and indirect counter-proposals.
    """
    original = _find_original(winner, turn.cases)
    for case in list(turn.cases.values()):
        if not is_decided(case) and _find_original(case, turn.cases) == original:
            turn.close_case(case, "superseded", f"{winner.proposal_id} was accepted instead")
    other_drafts = [
        draft for draft in turn.state.drafts if _find_original(turn.cases[draft.parent or ""], turn.cases) != original
    ]
    turn.update_state(drafts=tuple(other_drafts))


def _find_original(case: ProposalCase, cases: dict[str, ProposalCase]) -> str:
    """Return the id of the proposal at the beginning of its chain of counter-proposals: its own id, if it counters none."""
    while case.proposal.parent:
        case = cases[case.proposal.parent]
    return case.proposal_id


# --- the person who reviews commits and rejected proposals ------------------------


MAX_EDITS = 3
"""How often a person may replace the text of one proposal."""


def ask_person(turn: EngineTurn, case: ProposalCase) -> None:
    """Ask a person whether to commit a proposal, with the reason if the agents rejected it or the gate refuses their edit."""
    has_failed = case.gate is not None and not case.gate.passed
    reason = failure_of(case.gate) if has_failed else case.rejection
    turn.ask(AskPerson(turn.state.round, review_of(case), case.evaluations, case.agreed, reason))


def _take_person_reply(turn: EngineTurn, reply: PersonReply) -> None:
    """Carry out the decision of a person: replace, reject or approve the proposal. No agent votes after it."""
    case = turn.cases[reply.proposal_id]
    turn.announce(PersonAnswered(case.proposal_id, reply.verdict, reply.reason))
    if reply.verdict == "edit":
        _replace_with_edit(turn, case, reply)
    elif reply.verdict == "no":
        refusal = case.rejection or "turned down by a person"
        turn.close_case(case, "rejected", f"{refusal}: {reply.reason}" if reply.reason else refusal)
    elif case.gate is None or not case.gate.passed:  # not even a person can approve what the gate refuses
        turn.close_case(case, "refused", failure_of(case.gate))
    else:
        turn.update_case(case, agreed=case.agreed or "override", is_approved=True, is_cleared=True)


def _replace_with_edit(turn: EngineTurn, case: ProposalCase, reply: PersonReply) -> None:
    """Replace the edits of a proposal by those of a person, and close it if a limit forbids them. The gate checks them next."""
    own = reply.proposal or case.proposal.with_changes(())  # without edits it is closed below: it changes nothing
    edited = with_identity(own, case.proposal)
    case = turn.update_case(
        case,
        proposal=edited,
        gated_on="",
        agreed="override",
        is_approved=True,
        is_cleared=True,
        edits=case.edits + 1,
    )
    turn.announce(ProposalMade(edited))
    refusal = refusal_of(edited, turn.state.safety, turn.state.files, turn.cases)
    if refusal:
        turn.close_case(case, "refused", refusal)


def _handle_refused_edit(turn: EngineTurn, case: ProposalCase) -> None:
    """Have the person asked again about an edit that the gate refuses. After `MAX_EDITS` edits, close the case instead."""
    if case.edits >= MAX_EDITS:
        turn.close_case(case, "refused", failure_of(case.gate))
    else:
        turn.update_case(case, is_approved=False)  # so `_advance_case` asks the person again


# --- the tables of the phases ---------------------------------------------


_ENTER: dict[Phase, Callable[[EngineTurn], None]] = {
    "PROPOSING": open_round,
    "GATING": open_gate,
    "EVALUATING": open_votes,
    "ARBITRATING": open_arbitration,
    "COMMITTING": _commit_next,
    "CONVERGING": _end_round,
}
"""Phase -> the function that asks its questions when it is entered."""

_TAKE: dict[tuple[Phase, Task], Callable[[EngineTurn, Any], object]] = {
    ("PROPOSING", "propose"): take_proposals,
    ("GATING", "gate"): take_report,
    ("GATING", "repair"): take_repair,
    ("EVALUATING", "evaluate"): take_evaluations,
    ("ARBITRATING", "arbitrate"): take_arbitration,
    ("COMMITTING", "arbitrate"): _take_contradiction_arbitration,
    ("COMMITTING", "gate"): _take_second_report,
    ("COMMITTING", "repair"): replace_refused_text,
    ("COMMITTING", "review"): _take_person_reply,
    ("COMMITTING", "apply"): _take_applied,
}
"""Phase and task of a question -> the function that processes its reply. A phase asks no other questions."""


# --- the outcome ---------------------------------------------------------------------------------


def summarize(state: NegotiationState) -> NegotiationSummary:
    """Return the numbers of proposals by their outcome; superseded and refused ones count as rejected.

    Source: seed 002, 2.2, NEGOTIATION_COMPLETE.
    """
    decided = [case for case in state.cases.values() if is_decided(case)]
    accepted = sum(case.status == "accepted" for case in decided)
    return NegotiationSummary(
        total_proposals=len(state.cases),
        accepted=accepted,
        rejected=len(decided) - accepted,
        still_pending=len(state.cases) - len(decided),
        rounds=state.round,
        commits_ready=state.commits,
    )


def collect_records(state: NegotiationState, session: str) -> Negotiations:
    """Return the records of a finished negotiation: proposals, commits and ending, under the name of its session.

    Raises:
        ProtocolError: The negotiation is not finished.
    """
    if state.ending is None:
        raise ProtocolError("driver", "it asked for the outcome before the end")
    records = tuple(record_of(case) for case in state.cases.values())
    return Negotiations(session=session, completed=state.commits, records=records, ending=state.ending)


def record_of(case: ProposalCase) -> ProposalRecord:
    """Return the record of a proposal as it stands now."""
    return ProposalRecord(
        proposal=case.proposal,
        status=case.status,
        gate=case.gate,
        evaluations=case.evaluations,
        commit=case.commit,
        refusal=case.refusal,
    )


def max_questions(safety: SafetyConfig, agents: int, arbiters: int) -> int:
    """Return the largest number of questions that a negotiation can ask its agents, analyses included.

    Every agent is asked at most twice in a round: to propose, and to evaluate. Every proposal is repaired at most `max_repairs`
    times. It is voted on at most twice: as its author made it, and as adapted to changes that were accepted before it. Each time
    it may reach the arbiters twice: after the vote, and because it contradicts another commit of the round.

    Args:
        safety: The limits.
        agents: The number of all agents, arbiters included.
        arbiters: The number of arbiters.
    """
    rounds, repairs = max(safety.max_negotiation_rounds, 0), max(safety.max_repairs, 0)
    per_agent = min(safety.max_proposals_per_agent, rounds * safety.max_proposals_per_round)
    proposals = (agents - arbiters) * max(per_agent, 0)
    judges = arbiters if safety.arbitration == "vote" else min(arbiters, 1)
    disputes = 2 * (1 + min(repairs, 1))
    return agents + 2 * rounds * (agents - arbiters) + proposals * (repairs + disputes * judges)
