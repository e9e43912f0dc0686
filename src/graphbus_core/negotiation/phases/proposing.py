"""PROPOSING: a round begins, and every agent may say what it would change. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from graphbus_core.model.proposals import Proposal
from graphbus_core.negotiation.admission import Allowance, allowance, refuse
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    AskProposals,
    Case,
    DraftsDropped,
    ProposalMade,
    Proposed,
    RoundStarted,
)
from graphbus_core.negotiation.turn import Turn, is_decided


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
        limit = allowance_of(turn, agent, turn.state.round).limit
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


def allowance_of(turn: Turn, agent: str, round_: int) -> Allowance:
    """Give what is left of an agent's budget for a round, its counter-proposals that wait for it included."""
    made = [case.proposal for case in turn.cases.values()]
    return allowance(agent, [*made, *turn.state.drafts], round_, turn.state.safety)


def _number(turn: Turn, draft: Proposal, depth: int = 0) -> Case:
    """Give a draft its number, and refuse it at once when a limit says so."""
    state = turn.state
    refusal = refuse(draft, state.safety, state.files, turn.cases) or _refuse_circle(draft, turn.cases)
    case = Case(proposal=replace(draft, proposal_id=f"P{len(turn.cases) + 1:03}"), depth=depth)
    turn.cases[case.proposal_id] = case
    turn.tell(ProposalMade(case.proposal))
    if refusal:
        turn.close(case, "refused", refusal)
    return case


def _refuse_circle(draft: Proposal, cases: dict[str, Case]) -> str:
    """Say which dependency of a counter-proposal waits for the proposal that it counters, and so for itself."""
    return next(
        (
            f"it depends on {name}, which waits for what becomes of it"
            for name in draft.dependencies
            if draft.parent in _waits_for(name, cases)
        ),
        "",
    )


def _waits_for(name: str, cases: dict[str, Case]) -> set[str]:
    """Give the proposals on whose decision one rests, itself included, as far as they are open."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found and not is_decided(cases[one]):
            found.add(one)
            waiting += [*cases[one].proposal.dependencies, *cases[one].counters]
    return found


def _number_counter(turn: Turn, draft: Proposal) -> None:
    parent = turn.cases[draft.parent or ""]
    case = _number(turn, draft, parent.depth + 1)
    turn.change(parent, counters=(*parent.counters, case.proposal_id))


def take_proposals(turn: Turn, reply: Proposed) -> None:
    """Number the drafts of one agent, up to its limits."""
    if reply.failure:
        turn.tell(AgentFailed(reply.agent, "propose", reply.failure))
    limit, reason = allowance_of(turn, reply.agent, turn.state.round)
    numbers: dict[str, str] = {}
    for draft in reply.proposals[:limit]:
        needed = tuple(numbers.get(name, name) for name in draft.dependencies)
        own = replace(draft, src=reply.agent, round=turn.state.round, parent=None, dependencies=needed)
        numbers[draft.proposal_id] = _number(turn, own).proposal_id
    dropped = len(reply.proposals) - limit
    if dropped > 0:
        turn.tell(DraftsDropped(reply.agent, dropped, reason))
