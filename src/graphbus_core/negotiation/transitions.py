"""The transitions of a proposal from its draft to the decision. The engine calls these functions phase by phase; they do no I/O.

`MOVES` is the table of statuses. `EngineTurn` collects the new state and the commands of one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import GateReport, Proposal, ProposalEvaluation, Status, VoteDecision
from graphbus_core.negotiation import votes
from graphbus_core.negotiation.protocol import (
    AgentFailed,
    Announcement,
    Arbitrated,
    AskArbitration,
    AskEvaluations,
    AskProposals,
    AskRepair,
    CheckProposal,
    Command,
    DraftsDropped,
    EngineStep,
    Evaluated,
    EvaluationMade,
    Gated,
    GatedProposal,
    NegotiationState,
    ProposalArbitrated,
    ProposalCase,
    ProposalGated,
    ProposalMade,
    ProposalMerged,
    ProposalPostponed,
    ProposalRejected,
    ProposalSentBack,
    Proposed,
    ProtocolError,
    Question,
    Repaired,
    RoundStarted,
    key_of,
)
from graphbus_core.negotiation.votes import path_matches

MOVES: dict[Status, frozenset[Status]] = {
    "pending": frozenset({"refused", "accepted", "rejected", "countered", "deferred", "superseded"}),
    "countered": frozenset({"pending", "superseded"}),
    "deferred": frozenset({"pending", "superseded"}),
    "accepted": frozenset(),
    "rejected": frozenset(),
    "refused": frozenset(),
    "superseded": frozenset(),
}
"""Status -> the statuses that may follow it. A proposal is decided if no other status may follow."""


def is_decided(case: ProposalCase) -> bool:
    """True if a proposal can no longer change its status."""
    return not MOVES[case.status]


class EngineTurn:
    """One step of the engine while it is computed: the next state, a changed copy of the last one, and the commands so far."""

    def __init__(self, state: NegotiationState) -> None:
        self.state = replace(state, cases=dict(state.cases))
        self.commands: list[Command] = []

    @property
    def cases(self) -> dict[str, ProposalCase]:
        """The cases of the next state, in the order of their numbers."""
        return self.state.cases

    def update_state(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def update_case(self, case: ProposalCase, **changes: Any) -> ProposalCase:
        """Replace fields of a case, and return the new case. The status is changed only by `set_status`."""
        changed = replace(case, **changes)
        self.cases[case.proposal_id] = changed
        return changed

    def set_status(self, case: ProposalCase, status: Status, **changes: Any) -> ProposalCase:
        """Change the status of a case and other fields, and return the new case.

        Raises:
            ProtocolError: `MOVES` does not allow the change, so the engine has a bug.
        """
        if status not in MOVES[case.status]:
            raise ProtocolError("engine", f"{case.proposal_id} is {case.status} and cannot become {status}")
        return self.update_case(case, status=status, **changes)

    def close_case(self, case: ProposalCase, status: Status, reason: str) -> None:
        """Close a proposal without a commit, and announce why. `MOVES` must allow the status, as for `set_status`."""
        self.set_status(case, status, refusal=reason)
        count = votes.count_votes(case.evaluations)
        self.announce(ProposalRejected(case.proposal_id, status, count.accepts, count.rejects, count.abstains, reason))

    def ask(self, question: Question) -> None:
        """Add a question to the commands; the phase ends only after its reply."""
        self.commands.append(question)
        self.update_state(awaited=(*self.state.awaited, key_of(question)))

    def announce(self, announcement: Announcement) -> None:
        """Add an announcement, which expects no reply."""
        self.commands.append(announcement)

    def ready_cases(self) -> list[ProposalCase]:
        """Return the pending proposals whose dependencies are all accepted, in the order of their numbers."""
        cases = self.cases
        return [
            case
            for case in cases.values()
            if case.status == "pending" and all(cases[name].status == "accepted" for name in case.proposal.dependencies)
        ]

    def finish_step(self) -> EngineStep:
        """Return the new state with all commands."""
        return EngineStep(self.state, tuple(self.commands))


# --- limits --------------------------------------------------------------------


class Allowance(NamedTuple):
    """The number of proposals that an agent may still make in a round, and the setting that limits it, as text."""

    limit: int
    reason: str


def remaining_proposals(agent: str, proposals: Iterable[Proposal], round_: int, safety: SafetyConfig) -> Allowance:
    """Return how many proposals an agent may still make in a round.

    Args:
        proposals: All proposals so far, counter-proposals included; those of other agents are ignored.
    """
    spent = Counter(proposal.round == round_ for proposal in proposals if proposal.src == agent)  # True: of this round
    in_round = safety.max_proposals_per_round - spent[True]
    in_all = safety.max_proposals_per_agent - spent.total()
    if in_all <= in_round:
        return Allowance(max(in_all, 0), f"max_proposals_per_agent is {safety.max_proposals_per_agent}")
    return Allowance(max(in_round, 0), f"max_proposals_per_round is {safety.max_proposals_per_round}")


def refusal_of(proposal: Proposal, safety: SafetyConfig, changed: Collection[str], known: Collection[str]) -> str:
    """Return why a proposal must not go to the gate; empty if it may. The reason names the setting if one forbids it.

    Args:
        proposal: The proposal.
        safety: The limits.
        changed: The files that the session has changed so far.
        known: The ids of the earlier proposals.
    """
    if not proposal.code_changes:
        return "it changes nothing"
    protected = next((path for path in proposal.files if path_matches(path, safety.protected_files)), None)
    if protected:
        return f"{protected} is protected by protected_files"
    unknown = next((name for name in proposal.dependencies if name not in known), None)
    if unknown is not None:
        return f"it depends on {unknown or 'something unnamed'}, which is no earlier proposal"
    return refusal_of_files(proposal.files, safety, changed)


def refusal_of_files(files: Collection[str], safety: SafetyConfig, changed: Collection[str]) -> str:
    """Return which limit a change of these files exceeds; empty if none. `changed` are the files that the session has changed."""
    if len(files) > safety.max_file_changes_per_commit:
        limit = f"max_file_changes_per_commit is {safety.max_file_changes_per_commit}"
        return f"it changes {len(files)} files, and {limit}"
    total = len({*changed, *files})
    if total > safety.max_total_file_changes:
        return f"{total} files would be changed, and max_total_file_changes is {safety.max_total_file_changes}"
    return ""


# --- PROPOSING ---------------------------------------------------------------------------------


def open_round(turn: EngineTurn) -> None:
    """Begin a round: reopen postponed proposals, add the queued counter-proposals, and ask each agent that may propose."""
    turn.update_state(round=turn.state.round + 1)
    turn.announce(RoundStarted(turn.state.round))
    _reopen_postponed(turn)
    drafts = turn.state.drafts
    turn.update_state(drafts=())
    for draft in drafts:
        _add_counter_case(turn, draft)
    for agent in turn.state.participants.voters:
        limit = _count_allowance(turn, agent, turn.state.round).limit
        if limit:
            turn.ask(AskProposals(turn.state.round, agent, limit))


def _reopen_postponed(turn: EngineTurn) -> None:
    """Reopen deferred proposals, and countered ones whose counter-proposals are all decided.

    Close a pending proposal if one of its dependencies was decided and not accepted.
    """
    cases = turn.cases
    for case in list(cases.values()):
        if case.status == "deferred" or (case.status == "countered" and _have_all_counters_ended(case, cases)):
            turn.set_status(case, "pending")
        elif case.status == "pending":
            needed = [cases[name] for name in case.proposal.dependencies]
            lost = [other for other in needed if is_decided(other) and other.status != "accepted"]
            if lost:
                turn.close_case(case, "rejected", f"it depends on {lost[0].proposal_id}, which was {lost[0].status}")


def _have_all_counters_ended(case: ProposalCase, cases: dict[str, ProposalCase]) -> bool:
    """True if all counter-proposals of a case are decided; False while it has none, because they are still drafts."""
    return bool(case.counters) and all(is_decided(cases[name]) for name in case.counters)


def _count_allowance(turn: EngineTurn, agent: str, round_: int) -> Allowance:
    """Return how many proposals an agent may still make in a round. Its counter-proposals that are still drafts count too."""
    made = [case.proposal for case in turn.cases.values()]
    return remaining_proposals(agent, [*made, *turn.state.drafts], round_, turn.state.safety)


def _add_case(turn: EngineTurn, draft: Proposal, depth: int = 0) -> ProposalCase:
    """Give a draft its number, announce it, and add and return its case, which is closed at once if a limit forbids it."""
    state = turn.state
    refusal = refusal_of(draft, state.safety, state.files, turn.cases) or _refusal_of_deadlock(draft, turn.cases)
    case = ProposalCase(proposal=replace(draft, proposal_id=f"P{len(turn.cases) + 1:03}"), depth=depth)
    turn.cases[case.proposal_id] = case
    turn.announce(ProposalMade(case.proposal))
    if refusal:
        turn.close_case(case, "refused", refusal)
    return case


def _refusal_of_deadlock(draft: Proposal, cases: dict[str, ProposalCase]) -> str:
    """Return why a counter-proposal could never be decided; empty if it could, and for an original.

    The countered proposal waits for its counter-proposals. So a counter-proposal must not depend on a proposal that waits for
    the countered one: each would wait for the other.
    """
    return next(
        (
            f"it depends on {name}, which waits for the decision on it"
            for name in draft.dependencies
            if draft.parent in _find_blocking_proposals(name, cases)
        ),
        "",
    )


def _find_blocking_proposals(name: str, cases: dict[str, ProposalCase]) -> set[str]:
    """Return the ids of the open proposals for which a proposal waits, directly or indirectly, and its own id.

    A proposal waits for its dependencies and for its counter-proposals.
    """
    found: set[str] = set()
    to_visit = [name]
    while to_visit:
        one = to_visit.pop()
        if one not in found and not is_decided(cases[one]):
            found.add(one)
            to_visit += [*cases[one].proposal.dependencies, *cases[one].counters]
    return found


def _add_counter_case(turn: EngineTurn, draft: Proposal) -> None:
    """Give a counter-proposal its number, and add it to the counters of the proposal that it counters."""
    parent = turn.cases[draft.parent or ""]
    case = _add_case(turn, draft, parent.depth + 1)
    turn.update_case(parent, counters=(*parent.counters, case.proposal_id))


def take_proposals(turn: EngineTurn, reply: Proposed) -> None:
    """Add the drafts of one agent as proposals, up to its limits. Announce if it failed, and how many drafts were dropped."""
    if reply.failure:
        turn.announce(AgentFailed(reply.agent, "propose", reply.failure))
    limit, reason = _count_allowance(turn, reply.agent, turn.state.round)
    final_ids: dict[str, str] = {}  # the id that the agent gave to a draft -> its final id
    for draft in reply.proposals[:limit]:
        needed = tuple(final_ids.get(name, name) for name in draft.dependencies)
        # Fields that an agent must not choose are overwritten.
        own = replace(draft, src=reply.agent, round=turn.state.round, parent=None, dependencies=needed)
        final_ids[draft.proposal_id] = _add_case(turn, own).proposal_id
    dropped = len(reply.proposals) - limit
    if dropped > 0:
        turn.announce(DraftsDropped(reply.agent, dropped, reason))


# --- GATING ------------------------------------------------------------------------------------


CONFLICT = "G1.conflict"
"""The code with which the gate refuses a change that conflicts with a commit of this session."""


def open_gate(turn: EngineTurn) -> None:
    """Ask the gate to check every ready proposal that it has not checked on the present workspace."""
    for case in turn.ready_cases():
        if case.gate is None or case.gated_on != turn.state.digest:
            turn.ask(CheckProposal(case.proposal))


def keep_report(turn: EngineTurn, reply: Gated) -> ProposalCase:
    """Store and announce a report of the gate on the present workspace, and return the new case."""
    turn.announce(ProposalGated(reply.proposal_id, reply.report))
    if reply.merged:
        turn.announce(ProposalMerged(reply.proposal_id, reply.merged))
    case = turn.cases[reply.proposal_id]
    return turn.update_case(case, gate=reply.report, gated_on=turn.state.digest, edges=reply.edges)


def take_report(turn: EngineTurn, reply: Gated) -> None:
    """Process a report of the gate. Ask the author to repair a refused proposal, or close it if no repair is left."""
    case = keep_report(turn, reply)
    if reply.report.passed:
        return
    failure = reply.report.failure
    if case.evaluations or (failure and failure.code == CONFLICT):  # it was right before a later commit
        send_back(turn, case)
    elif case.repairs >= turn.state.safety.max_repairs:
        turn.close_case(case, "refused", failure_of(reply.report))
    else:
        turn.update_case(case, repairs=case.repairs + 1)
        turn.ask(AskRepair(turn.state.round, case.proposal.src, case.proposal, reply.report))


def send_back(turn: EngineTurn, case: ProposalCase) -> None:
    """Ask the author to adapt a proposal to later commits, and discard the votes on its old text.

    If the author was asked for that before, or if no repair is left, close the proposal instead.
    """
    reason = f"after other commits it no longer passes the gate ({failure_of(case.gate)})"
    if case.gate is None or case.was_sent_back or case.repairs >= turn.state.safety.max_repairs:
        turn.close_case(case, "refused", f"stale: {reason}")
        return
    turn.update_case(
        case,
        repairs=case.repairs + 1,
        was_sent_back=True,
        evaluations=(),
        electorate=(),
        asked=(),
        asked_arbiters=(),
        is_cleared=False,
        agreed=None,
    )
    turn.announce(ProposalSentBack(case.proposal_id, reason))
    turn.ask(AskRepair(turn.state.round, case.proposal.src, case.proposal, case.gate))


def failure_of(report: GateReport | None) -> str:
    """Return `code: message` of the rung that refused a proposal, or a general sentence if the report names none."""
    failed = report and report.failure
    return f"{failed.code}: {failed.message}" if failed else "the gate refused it"


def take_repair(turn: EngineTurn, reply: Repaired) -> None:
    """Ask the gate to check a repaired proposal; close it if there is no repair."""
    case = replace_refused_text(turn, reply)
    if case:
        turn.ask(CheckProposal(case.proposal))


def replace_refused_text(turn: EngineTurn, reply: Repaired) -> ProposalCase | None:
    """Replace a refused proposal by its repaired version, and return the new case.

    If the author gives up, or if a limit forbids the new version, close the case and return None. During COMMITTING the repaired
    proposal waits for the next round, in which it is checked and voted on again.
    """
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.announce(AgentFailed(case.proposal.src, "repair", reply.failure))
    if reply.proposal is None:
        turn.close_case(case, "refused", f"{'stale: ' if case.was_sent_back else ''}{failure_of(case.gate)}")
        return None
    repaired = with_identity(reply.proposal, case.proposal)
    case = turn.update_case(case, proposal=repaired, gated_on="")
    turn.announce(ProposalMade(repaired))
    refusal = refusal_of(repaired, turn.state.safety, turn.state.files, turn.cases)
    if refusal:
        turn.close_case(case, "refused", refusal)
        return None
    return case


def with_identity(repaired: Proposal, old: Proposal) -> Proposal:
    """Return `repaired` with the fields of `old` that an author must not change: number, round, author, parent and others."""
    return replace(
        repaired,
        proposal_id=old.proposal_id,
        round=old.round,
        src=old.src,
        parent=old.parent,
        dependencies=old.dependencies,
        priority=old.priority,
        finding=old.finding,
    )


# --- EVALUATING --------------------------------------------------------------------------------


def open_votes(turn: EngineTurn) -> None:
    """Choose the electorate of each proposal without votes, and ask each evaluator one question about all its proposals.

    After a postponement only the agents in `asked` vote again.
    """
    state = turn.state
    inboxes: dict[str, list[GatedProposal]] = {name: [] for name in state.participants.agents}
    for case in turn.ready_cases():
        review = review_of(case)
        if not case.evaluations:
            countered_author = turn.cases[case.proposal.parent].proposal.src if case.proposal.parent else ""
            electorate = votes.electorate_of(case, state.participants, state.safety, countered_author)
            turn.update_case(case, electorate=electorate, asked=electorate)
        for name in turn.cases[case.proposal_id].asked:
            inboxes[name].append(review)
    for name, inbox in inboxes.items():
        if inbox:
            turn.ask(AskEvaluations(state.round, name, tuple(inbox)))


def review_of(case: ProposalCase) -> GatedProposal:
    """Return a proposal with its report, for evaluators and arbiters.

    Raises:
        ProtocolError: The gate has not checked it yet, so the engine has a bug.
    """
    if case.gate is None:
        raise ProtocolError("engine", f"{case.proposal_id} comes to a vote before the gate")
    return GatedProposal(case.proposal, case.gate)


def take_evaluations(turn: EngineTurn, reply: Evaluated) -> None:
    """Record and announce the votes of one agent on all proposals about which it was asked. Announce if it failed."""
    if reply.failure:
        turn.announce(AgentFailed(reply.agent, "evaluate", reply.failure))
    for case in turn.ready_cases():
        if reply.agent in case.asked:
            evaluation = _normalize_vote(turn, case, reply)
            turn.update_case(case, evaluations=(*case.evaluations, evaluation))
            turn.announce(EvaluationMade(evaluation))


def _normalize_vote(turn: EngineTurn, case: ProposalCase, reply: Evaluated) -> ProposalEvaluation:
    """Return the vote of an agent on one proposal as it is counted.

    A missing or repeated vote becomes an abstention, and so does a second `defer`. A counter-proposal is queued for the next
    round; if it is not allowed, the vote becomes a reject. The reasoning or the concerns of the vote say why it was changed.
    """
    found = [evaluation for evaluation in reply.evaluations if evaluation.proposal_id == case.proposal_id]
    blank = ProposalEvaluation(
        proposal_id=case.proposal_id, evaluator=reply.agent, round=turn.state.round, decision="abstain", confidence=0.0
    )
    if len(found) != 1:
        why_missing = reply.failure or "it gave no answer"
        return replace(blank, reasoning="it gave more than one answer" if found else why_missing)
    vote = replace(found[0], evaluator=reply.agent, round=turn.state.round, is_arbiter=False)
    has_voted = reply.agent in votes.latest_votes(case.evaluations)
    if vote.decision == "defer" and has_voted:
        return replace(vote, decision="abstain", concerns=(*vote.concerns, "it deferred a second time"))
    if vote.decision == "counter":
        return _queue_counter(turn, case, vote, has_voted)
    return vote


def _queue_counter(
    turn: EngineTurn, case: ProposalCase, vote: ProposalEvaluation, has_voted: bool
) -> ProposalEvaluation:
    """Queue the counter-proposal of a vote for the next round, and return the vote.

    If the counter-proposal is missing or not allowed, return a reject instead, whose last concern says why.
    """
    draft = vote.counter_proposal
    refusal = _refusal_of_counter(turn, case, vote, has_voted)
    if draft is None or refusal:
        concern = f"its counter-proposal was not taken: {refusal or 'it names no change'}"
        return replace(vote, decision="reject", concerns=(*vote.concerns, concern))
    own = replace(draft, src=vote.evaluator, round=turn.state.round + 1, parent=vote.proposal_id)
    turn.update_state(drafts=(*turn.state.drafts, own))
    return vote


def _refusal_of_counter(turn: EngineTurn, case: ProposalCase, vote: ProposalEvaluation, has_voted: bool) -> str:
    """Return why a counter-proposal is not allowed; empty if it is."""
    safety = turn.state.safety
    if has_voted:
        return "this is its second vote"
    if case.depth >= safety.max_back_and_forth:
        return f"max_back_and_forth is {safety.max_back_and_forth}"
    limit, reason = _count_allowance(turn, vote.evaluator, turn.state.round + 1)
    return "" if limit else reason


# --- ARBITRATING -------------------------------------------------------------------------------


def open_arbitration(turn: EngineTurn) -> None:
    """Postpone or decide each proposal by its votes, or ask the arbiters about it."""
    for case in turn.ready_cases():
        if not _postpone_if_undecided(turn, case):
            _decide_or_ask_arbiters(turn, case)


def _postpone_if_undecided(turn: EngineTurn, case: ProposalCase) -> bool:
    """Postpone a proposal that an agent countered or deferred, and return True. Return False if there is none, or a veto."""
    decisions = {name: vote.decision for name, vote in votes.latest_votes(case.evaluations).items()}
    undecided = tuple(name for name, decision in decisions.items() if decision in {"counter", "defer"})
    if not undecided or votes.find_veto(case, turn.state.participants):
        return False
    status: Status = "countered" if "counter" in decisions.values() else "deferred"
    turn.set_status(case, status, asked=undecided)
    turn.announce(ProposalPostponed(case.proposal_id, status, f"by {', '.join(undecided)}"))
    return True


def _decide_or_ask_arbiters(turn: EngineTurn, case: ProposalCase) -> None:
    """Carry out the result of the votes on a proposal; if they leave it open, ask the arbiters."""
    verdict = votes.decide_by_votes(case, turn.state.participants, turn.state.safety)
    if verdict.outcome == "arbitrate":
        ask_arbiters(turn, case, f"the votes leave it open: {verdict.reason}")
    else:
        _carry_out_result(turn, case, verdict)


def _carry_out_result(turn: EngineTurn, case: ProposalCase, verdict: votes.VotingResult) -> None:
    """Mark an accepted proposal for its commit, or close a rejected one. In a review the person decides on that one."""
    if verdict.outcome == "accept":
        turn.update_case(case, agreed=verdict.consensus)
    elif turn.state.is_reviewed:
        turn.update_case(case, rejection=verdict.reason)
    else:
        turn.close_case(case, "rejected", verdict.reason)


def take_arbitration(turn: EngineTurn, reply: Arbitrated) -> None:
    """Record the decision of one arbiter; after the last one, carry out the result."""
    verdict = take_arbiter_vote(turn, reply)
    if verdict:
        _carry_out_result(turn, turn.cases[reply.proposal_id], verdict)


def ask_arbiters(turn: EngineTurn, case: ProposalCase, reason: str) -> None:
    """Ask the responsible arbiters to decide on a proposal that the gate has checked; `reason` says why that is needed."""
    arbiters = votes.arbiters_for(case, turn.state.participants, turn.state.safety)
    turn.update_case(case, asked_arbiters=arbiters)
    for arbiter in arbiters:
        turn.ask(AskArbitration(turn.state.round, arbiter, review_of(case), case.evaluations, reason))


def take_arbiter_vote(turn: EngineTurn, reply: Arbitrated) -> votes.VotingResult | None:
    """Record the decision of one arbiter; return None while others are missing, then the result of all of them."""
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.announce(AgentFailed(reply.arbiter, "arbitrate", reply.failure))
    decision = _make_binding_vote(turn, reply, is_alone=len(case.asked_arbiters) == 1)
    count = votes.count_votes(case.evaluations)
    case = turn.update_case(case, evaluations=(*case.evaluations, decision))
    turn.announce(ProposalArbitrated(case.proposal_id, reply.arbiter, decision, count.accepts, count.rejects))
    if reply.arbiter != case.asked_arbiters[-1]:  # the engine processes replies in the order of the questions
        return None
    return votes.decide_by_arbiters(case.evaluations[-len(case.asked_arbiters) :])


def _make_binding_vote(turn: EngineTurn, reply: Arbitrated, *, is_alone: bool) -> ProposalEvaluation:
    """Return the decision of an arbiter as it is counted.

    A missing decision, and one that is neither accept nor reject, is counted as a reject if the arbiter `is_alone`, and as an
    abstention if several arbiters were asked.
    """
    default: VoteDecision = "reject" if is_alone else "abstain"
    doubt = "when in doubt, reject" if is_alone else "it does not count"
    evaluation = reply.evaluation or ProposalEvaluation(
        proposal_id=reply.proposal_id,
        evaluator=reply.arbiter,
        round=turn.state.round,
        decision=default,
        reasoning=f"the arbiter gave no answer{f' ({reply.failure})' if reply.failure else ''}; {doubt}",
    )
    return replace(
        evaluation,
        proposal_id=reply.proposal_id,
        evaluator=reply.arbiter,
        round=turn.state.round,
        decision=evaluation.decision if evaluation.decision in {"accept", "reject"} else default,
        confidence=1.0,
        is_arbiter=True,
        counter_proposal=None,
    )
