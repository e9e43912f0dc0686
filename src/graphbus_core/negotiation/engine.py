"""The negotiation as a pure state machine: (state, reply) -> (state, commands). Source: seed 002, chapters 2 and 6.

    PROPOSING -> GATING -> EVALUATING -> ARBITRATING -> COMMITTING -> CONVERGING -> FINISHED
        ^                                                                 |
        +-----------------------------------------------------------------+

Each phase asks its questions on entering and ends when all are answered. The replies are processed in the order of the questions,
whatever the order of their arrival, and only then are commands given: so the outcome cannot depend on who was faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import Ending, Negotiations, ProposalRecord, TerminationReason
from graphbus_core.negotiation.phases import arbitrating, committing, gating, proposing, reviewing, voting
from graphbus_core.negotiation.protocol import (
    Answered,
    Case,
    Finished,
    Ground,
    Phase,
    ProtocolError,
    Reply,
    State,
    Step,
    Stopped,
    Summary,
    Task,
    key_of,
)
from graphbus_core.negotiation.turn import Turn, is_decided

NEXT: dict[Phase, Phase] = {
    "PROPOSING": "GATING",
    "GATING": "EVALUATING",
    "EVALUATING": "ARBITRATING",
    "ARBITRATING": "COMMITTING",
    "COMMITTING": "CONVERGING",
    "CONVERGING": "PROPOSING",
}
"""The phase after each phase; CONVERGING may go to FINISHED instead, and so may any phase after a `Stopped`."""

# --- the two entrances -----------------------------------------------------------------------


def begin(ground: Ground, safety: SafetyConfig, digest: str, *, is_reviewed: bool = False) -> Step:
    """Open a negotiation on a workspace in the state `digest`; with `is_reviewed` a person is asked before each commit."""
    seen = frozenset({digest})
    turn = Turn(State(ground=ground, safety=safety, digest=digest, seen=seen, is_reviewed=is_reviewed))
    _finish_if_due(turn)
    return _go_on(turn)


def step(state: State, reply: Reply) -> Step:
    """Take one reply. Commands come when all questions of a phase are answered.

    Raises:
        ProtocolError: The reply is not awaited: the driver broke the protocol.
    """
    if state.phase == "FINISHED":
        raise ProtocolError("driver", f"{type(reply).__name__} came after the end")
    if isinstance(reply, Stopped):
        return _stop(state, reply)
    key = key_of(reply)
    if key not in state.awaited:
        raise ProtocolError("driver", f"nobody asked to {key.task} {key.about} while {state.phase}")
    if key in state.received:
        raise ProtocolError("driver", f"the question to {key.task} {key.about} was answered twice")
    if isinstance(reply, Answered) and reply.verdict == "quit":
        return _stop(state, Stopped("manual", reply.reason or "ended in the review"))
    received = {**state.received, key: reply}
    if len(received) < len(state.awaited):
        return Step(replace(state, received=received), ())
    turn = Turn(replace(state, awaited=(), received={}))
    for awaited in state.awaited:
        _TAKE[state.phase, awaited.task](turn, received[awaited])
    if state.phase == "COMMITTING":  # one after another: what is committed decides on what comes next
        committing.commit_next(turn)
    return _go_on(turn)


def _stop(state: State, reply: Stopped) -> Step:
    turn = Turn(state)
    _finish(turn, reply.reason, reply.detail)
    return turn.done()


def _go_on(turn: Turn) -> Step:
    """Enter phase after phase until one has something to ask."""
    while not turn.state.awaited and turn.state.phase != "FINISHED":
        turn.set(phase=NEXT[turn.state.phase])
        _ENTER[turn.state.phase](turn)
    return turn.done()


# --- CONVERGING ------------------------------------------------------------------------------


def _converge(turn: Turn) -> None:
    rounds = [case.proposal.round for case in turn.cases.values()]
    is_quiet = not rounds or rounds[-1] < turn.state.round
    turn.set(quiet_rounds=turn.state.quiet_rounds + 1 if is_quiet else 0)
    _finish_if_due(turn)


def _finish_if_due(turn: Turn) -> None:
    state, safety = turn.state, turn.state.safety
    has_open = bool(state.drafts) or any(not is_decided(case) for case in state.cases.values())
    if state.is_oscillating:
        _finish(turn, "oscillation", "the files are as they were before")
    elif len(state.files) >= safety.max_total_file_changes:
        _finish(turn, "file_limit", f"max_total_file_changes is {safety.max_total_file_changes}")
    elif state.quiet_rounds >= safety.convergence_threshold and not has_open:
        _finish(turn, "convergence", f"{state.quiet_rounds} quiet round{'s' * (state.quiet_rounds != 1)}")
    elif state.round >= safety.max_negotiation_rounds:
        _finish(turn, "max_rounds", f"max_negotiation_rounds is {safety.max_negotiation_rounds}")


def _finish(turn: Turn, reason: TerminationReason, detail: str) -> None:
    for case in list(turn.cases.values()):
        if case.turned_down and not case.agreed and not is_decided(case):
            turn.close(case, "rejected", case.turned_down)  # nobody has wanted it after all
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
    turn.set(phase="FINISHED", awaited=(), received={}, ending=ending)
    turn.tell(Finished(ending, summarize(turn.state)))


_ENTER: dict[Phase, Callable[[Turn], None]] = {
    "PROPOSING": proposing.open_round,
    "GATING": gating.open_gate,
    "EVALUATING": voting.open_votes,
    "ARBITRATING": arbitrating.open_arbitration,
    "COMMITTING": committing.commit_next,
    "CONVERGING": _converge,
}
"""What each phase asks and says on entering."""

_TAKE: dict[tuple[Phase, Task], Callable[[Turn, Any], object]] = {
    ("PROPOSING", "propose"): proposing.take_proposals,
    ("GATING", "gate"): gating.take_report,
    ("GATING", "repair"): gating.take_repair,
    ("EVALUATING", "evaluate"): voting.take_evaluations,
    ("ARBITRATING", "arbitrate"): arbitrating.take_arbitration,
    ("COMMITTING", "arbitrate"): committing.take_clash_word,
    ("COMMITTING", "gate"): committing.take_second_report,
    ("COMMITTING", "repair"): gating.take_fitted,
    ("COMMITTING", "review"): reviewing.take_answer,
    ("COMMITTING", "apply"): committing.take_applied,
}
"""What a reply does in a phase; no other replies exist there."""


# --- what came of it -------------------------------------------------------------------------


def summarize(state: State) -> Summary:
    """Count the proposals by what became of them: NEGOTIATION_COMPLETE of seed 002, 2.2."""
    decided = [case for case in state.cases.values() if is_decided(case)]
    accepted = sum(case.status == "accepted" for case in decided)
    return Summary(
        total_proposals=len(state.cases),
        accepted=accepted,
        rejected=len(decided) - accepted,
        still_pending=len(state.cases) - len(decided),
        rounds=state.round,
        commits_ready=state.commits,
    )


def conclude(state: State, session: str) -> Negotiations:
    """Give the whole story of a finished negotiation.

    Raises:
        ProtocolError: It is not finished.
    """
    if state.ending is None:
        raise ProtocolError("driver", "it asks for the outcome before the end")
    records = tuple(record_of(case) for case in state.cases.values())
    return Negotiations(session=session, completed=state.commits, records=records, ending=state.ending)


def record_of(case: Case) -> ProposalRecord:
    """Give a proposal's story so far."""
    return ProposalRecord(
        proposal=case.proposal,
        status=case.status,
        gate=case.gate,
        evaluations=case.evaluations,
        commit=case.commit,
        refusal=case.refusal,
    )


def call_bound(safety: SafetyConfig, agents: int, arbiters: int) -> int:
    """Give how many questions a negotiation of so many agents can put to them at most, their analyses included.

    Every agent is asked at most twice in a round, to propose and to evaluate its inbox; every proposal is repaired at most
    `max_repairs` times, and comes before the arbiters at most twice for each of its texts that is voted on: after the vote, and
    because it contradicts another commit of the round. The second such text is the one that was fitted to what was accepted.

    Args:
        agents: All agents, the arbiters among them.
        arbiters: How many of them settle disputes.
    """
    rounds, repairs = max(safety.max_negotiation_rounds, 0), max(safety.max_repairs, 0)
    per_agent = min(safety.max_proposals_per_agent, rounds * safety.max_proposals_per_round)
    proposals = (agents - arbiters) * max(per_agent, 0)
    judges = arbiters if safety.arbitration == "vote" else min(arbiters, 1)
    disputes = 2 * (1 + min(repairs, 1))
    return agents + 2 * rounds * (agents - arbiters) + proposals * (repairs + disputes * judges)
