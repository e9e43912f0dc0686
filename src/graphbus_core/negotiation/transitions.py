"""The transitions of a proposal from its draft to the decision. Pure functions, called by the engine phase by phase.

`MOVES` is the table of statuses. `EngineTurn` collects what one step changes and commands.
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
"""Status -> the statuses that may follow. A proposal whose status has no successor is decided."""


def is_decided(case: ProposalCase) -> bool:
    """True if a proposal can no longer change its status."""
    return not MOVES[case.status]


class EngineTurn:
    """One step of the engine while it is computed: the next state and the commands so far."""

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
        """Replace fields of a case, its status excepted."""
        changed = replace(case, **changes)
        self.cases[case.proposal_id] = changed
        return changed

    def set_status(self, case: ProposalCase, status: Status, **changes: Any) -> ProposalCase:
        """Change the status of a case.

        Raises:
            ProtocolError: `MOVES` does not allow it: the engine broke the protocol.
        """
        if status not in MOVES[case.status]:
            raise ProtocolError("engine", f"{case.proposal_id} is {case.status} and cannot become {status}")
        return self.update_case(case, status=status, **changes)

    def close_case(self, case: ProposalCase, status: Status, reason: str) -> None:
        """Close a proposal without a commit, and announce why."""
        self.set_status(case, status, refusal=reason)
        count = votes.count_votes(case.evaluations)
        self.announce(ProposalRejected(case.proposal_id, status, count.accepts, count.rejects, count.abstains, reason))

    def ask(self, question: Question) -> None:
        """Ask a question; the engine waits for its reply."""
        self.commands.append(question)
        self.update_state(awaited=(*self.state.awaited, key_of(question)))

    def announce(self, announcement: Announcement) -> None:
        """Add an announcement, which expects no reply."""
        self.commands.append(announcement)

    def ready_cases(self) -> list[ProposalCase]:
        """Return the pending proposals whose dependencies are in the workspace, in the order of their numbers."""
        cases = self.cases
        return [
            case
            for case in cases.values()
            if case.status == "pending" and all(cases[name].status == "accepted" for name in case.proposal.dependencies)
        ]

    def finish_step(self) -> EngineStep:
        """Return the finished step."""
        return EngineStep(self.state, tuple(self.commands))


# --- limits; source: seed 002, 6.2 to 6.4 --------------------------------------


class Allowance(NamedTuple):
    """How many more proposals an agent may make in a round, and the setting that limits it."""

    limit: int
    reason: str


def remaining_proposals(agent: str, proposals: Iterable[Proposal], round_: int, safety: SafetyConfig) -> Allowance:
    """Return how many more proposals an agent may make in a round; counter-proposals count like any other."""
    spent = Counter(proposal.round == round_ for proposal in proposals if proposal.src == agent)
    in_round = safety.max_proposals_per_round - spent[True]
    in_all = safety.max_proposals_per_agent - spent.total()
    if in_all <= in_round:
        return Allowance(max(in_all, 0), f"max_proposals_per_agent is {safety.max_proposals_per_agent}")
    return Allowance(max(in_round, 0), f"max_proposals_per_round is {safety.max_proposals_per_round}")


def refusal_of(proposal: Proposal, safety: SafetyConfig, changed: Collection[str], known: Collection[str]) -> str:
    """Return why a limit keeps a proposal from the gate, naming the setting; the empty string if none does.

    Args:
        changed: The files that the session has changed so far.
        known: The numbers of the earlier proposals.
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
    """Return why a change of these files exceeds a limit, naming the setting; the empty string if it does not."""
    if len(files) > safety.max_file_changes_per_commit:
        limit = f"max_file_changes_per_commit is {safety.max_file_changes_per_commit}"
        return f"it changes {len(files)} files, and {limit}"
    total = len({*changed, *files})
    if total > safety.max_total_file_changes:
        return f"{total} files would be changed, and max_total_file_changes is {safety.max_total_file_changes}"
    return ""


# --- PROPOSING ---------------------------------------------------------------------------------


def open_round(turn: EngineTurn) -> None:
    """Begin a round: reopen postponed proposals, number the counters of the last round, ask all who may still propose."""
    turn.update_state(round=turn.state.round + 1)
    turn.announce(RoundStarted(turn.state.round))
    _reopen(turn)
    drafts = turn.state.drafts
    turn.update_state(drafts=())
    for draft in drafts:
        _number_counter(turn, draft)
    for agent in turn.state.participants.voters:
        limit = _allowance_of(turn, agent, turn.state.round).limit
        if limit:
            turn.ask(AskProposals(turn.state.round, agent, limit))


def _reopen(turn: EngineTurn) -> None:
    """Reopen deferred proposals and those whose counters all failed; reject those with a dependency that was not accepted."""
    cases = turn.cases
    for case in list(cases.values()):
        if case.status == "deferred" or (case.status == "countered" and _is_countered_in_vain(case, cases)):
            turn.set_status(case, "pending")
        elif case.status == "pending":
            lost = [cases[name] for name in case.proposal.dependencies if cases[name].status != "accepted"]
            lost = [other for other in lost if is_decided(other)]
            if lost:
                turn.close_case(case, "rejected", f"it depends on {lost[0].proposal_id}, which was {lost[0].status}")


def _is_countered_in_vain(case: ProposalCase, cases: dict[str, ProposalCase]) -> bool:
    return bool(case.counters) and all(is_decided(cases[name]) for name in case.counters)


def _allowance_of(turn: EngineTurn, agent: str, round_: int) -> Allowance:
    """Return how many more proposals an agent may make in a round; its counters that wait for that round count."""
    made = [case.proposal for case in turn.cases.values()]
    return remaining_proposals(agent, [*made, *turn.state.drafts], round_, turn.state.safety)


def _number(turn: EngineTurn, draft: Proposal, depth: int = 0) -> ProposalCase:
    """Number a draft, and refuse it at once if a limit forbids it."""
    state = turn.state
    refusal = refusal_of(draft, state.safety, state.files, turn.cases) or _refuse_circle(draft, turn.cases)
    case = ProposalCase(proposal=replace(draft, proposal_id=f"P{len(turn.cases) + 1:03}"), depth=depth)
    turn.cases[case.proposal_id] = case
    turn.announce(ProposalMade(case.proposal))
    if refusal:
        turn.close_case(case, "refused", refusal)
    return case


def _refuse_circle(draft: Proposal, cases: dict[str, ProposalCase]) -> str:
    """Refuse a counter-proposal that depends on a proposal which itself waits for the countered one: neither could ever go on."""
    return next(
        (
            f"it depends on {name}, which waits for the decision on it"
            for name in draft.dependencies
            if draft.parent in _waits_for(name, cases)
        ),
        "",
    )


def _waits_for(name: str, cases: dict[str, ProposalCase]) -> set[str]:
    """Return the open proposals that must be decided before this one can be, itself included."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found and not is_decided(cases[one]):
            found.add(one)
            waiting += [*cases[one].proposal.dependencies, *cases[one].counters]
    return found


def _number_counter(turn: EngineTurn, draft: Proposal) -> None:
    parent = turn.cases[draft.parent or ""]
    case = _number(turn, draft, parent.depth + 1)
    turn.update_case(parent, counters=(*parent.counters, case.proposal_id))


def take_proposals(turn: EngineTurn, reply: Proposed) -> None:
    """Number the drafts of one agent, up to its limits."""
    if reply.failure:
        turn.announce(AgentFailed(reply.agent, "propose", reply.failure))
    limit, reason = _allowance_of(turn, reply.agent, turn.state.round)
    numbers: dict[str, str] = {}
    for draft in reply.proposals[:limit]:
        needed = tuple(numbers.get(name, name) for name in draft.dependencies)
        own = replace(draft, src=reply.agent, round=turn.state.round, parent=None, dependencies=needed)
        numbers[draft.proposal_id] = _number(turn, own).proposal_id
    dropped = len(reply.proposals) - limit
    if dropped > 0:
        turn.announce(DraftsDropped(reply.agent, dropped, reason))


# --- GATING ------------------------------------------------------------------------------------


CONFLICT = "G1.conflict"
"""The code with which the gate refuses a change that conflicts with a commit of this session."""


def open_gate(turn: EngineTurn) -> None:
    """Ask the gate about every proposal that it has not checked on the present workspace."""
    for case in turn.ready_cases():
        if case.gate is None or case.gated_on != turn.state.digest:
            turn.ask(CheckProposal(case.proposal))


def keep_report(turn: EngineTurn, reply: Gated) -> ProposalCase:
    """Store and announce the report of the gate; it holds for the present workspace."""
    turn.announce(ProposalGated(reply.proposal_id, reply.report))
    if reply.merged:
        turn.announce(ProposalMerged(reply.proposal_id, reply.merged))
    case = turn.cases[reply.proposal_id]
    return turn.update_case(case, gate=reply.report, gated_on=turn.state.digest, edges=reply.edges)


def take_report(turn: EngineTurn, reply: Gated) -> None:
    """Process a report of the gate: the proposal passes, goes back to its author for a repair, or is refused."""
    case = keep_report(turn, reply)
    if reply.report.passed:
        return
    failure = reply.report.failure
    if case.evaluations or (failure and failure.code == CONFLICT):
        send_back(turn, case)
    elif case.repairs >= turn.state.safety.max_repairs:
        turn.close_case(case, "refused", failure_of(reply.report))
    else:
        turn.update_case(case, repairs=case.repairs + 1)
        turn.ask(AskRepair(turn.state.round, case.proposal.src, case.proposal, reply.report))


def send_back(turn: EngineTurn, case: ProposalCase) -> None:
    """Ask the author to adapt a proposal to later commits. Allowed once; the votes on the old text are void."""
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
    """Return `code: message` of the rung that refused."""
    failed = report and report.failure
    return f"{failed.code}: {failed.message}" if failed else "the gate refused it"


def take_repair(turn: EngineTurn, reply: Repaired) -> None:
    """Send a repaired proposal to the gate again."""
    case = replace_refused_text(turn, reply)
    if case:
        turn.ask(CheckProposal(case.proposal))


def replace_refused_text(turn: EngineTurn, reply: Repaired) -> ProposalCase | None:
    """Replace the text of a proposal by the repaired one; None if there is none, or a limit forbids it.

    During COMMITTING the repaired proposal waits for the next round, in which it passes the gate and is voted on again.
    """
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.announce(AgentFailed(case.proposal.src, "repair", reply.failure))
    if reply.proposal is None:
        turn.close_case(case, "refused", f"{'stale: ' if case.was_sent_back else ''}{failure_of(case.gate)}")
        return None
    mended = with_identity(reply.proposal, case.proposal)
    case = turn.update_case(case, proposal=mended, gated_on="")
    turn.announce(ProposalMade(mended))
    refusal = refusal_of(mended, turn.state.safety, turn.state.files, turn.cases)
    if refusal:
        turn.close_case(case, "refused", refusal)
        return None
    return case


def with_identity(mended: Proposal, old: Proposal) -> Proposal:
    """Return `mended` under the number, round, author and relations of `old`, which only the engine assigns."""
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


# --- EVALUATING --------------------------------------------------------------------------------


def open_votes(turn: EngineTurn) -> None:
    """Ask each evaluator, in one question, about all proposals that it votes on in this round."""
    state = turn.state
    inboxes: dict[str, list[GatedProposal]] = {name: [] for name in state.participants.agents}
    for case in turn.ready_cases():
        review = review_of(case)
        if not case.evaluations:
            countered = turn.cases[case.proposal.parent].proposal.src if case.proposal.parent else ""
            names = votes.electorate_of(case, state.participants, state.safety, countered)
            turn.update_case(case, electorate=names, asked=names)
        for name in turn.cases[case.proposal_id].asked:
            inboxes[name].append(review)
    for name, inbox in inboxes.items():
        if inbox:
            turn.ask(AskEvaluations(state.round, name, tuple(inbox)))


def review_of(case: ProposalCase) -> GatedProposal:
    """Return a proposal with its report, as evaluators and arbiters get it.

    Raises:
        ProtocolError: The gate has not checked it yet: the engine broke the protocol.
    """
    if case.gate is None:
        raise ProtocolError("engine", f"{case.proposal_id} comes to a vote before the gate")
    return GatedProposal(case.proposal, case.gate)


def take_evaluations(turn: EngineTurn, reply: Evaluated) -> None:
    """Record the votes of one agent."""
    if reply.failure:
        turn.announce(AgentFailed(reply.agent, "evaluate", reply.failure))
    for case in turn.ready_cases():
        if reply.agent in case.asked:
            evaluation = _count_vote(turn, case, reply)
            turn.update_case(case, evaluations=(*case.evaluations, evaluation))
            turn.announce(EvaluationMade(evaluation))


def _count_vote(turn: EngineTurn, case: ProposalCase, reply: Evaluated) -> ProposalEvaluation:
    """Return the vote as it is counted. An answer that cannot be used becomes an abstention or a reject, and says why."""
    given = [evaluation for evaluation in reply.evaluations if evaluation.proposal_id == case.proposal_id]
    blank = ProposalEvaluation(
        proposal_id=case.proposal_id, evaluator=reply.agent, round=turn.state.round, decision="abstain", confidence=0.0
    )
    if len(given) != 1:
        missing = reply.failure or "it gave no answer"
        return replace(blank, reasoning="it gave more than one answer" if given else missing)
    vote = replace(given[0], evaluator=reply.agent, round=turn.state.round, is_arbiter=False)
    has_voted = reply.agent in votes.latest_votes(case.evaluations)
    if vote.decision == "defer" and has_voted:
        return replace(vote, decision="abstain", concerns=(*vote.concerns, "it deferred a second time"))
    if vote.decision == "counter":
        return _take_counter(turn, case, vote, has_voted)
    return vote


def _take_counter(
    turn: EngineTurn, case: ProposalCase, vote: ProposalEvaluation, has_voted: bool
) -> ProposalEvaluation:
    """Queue a counter-proposal for the next round; if it is not allowed, the vote is a plain reject."""
    draft = vote.counter_proposal
    refusal = _refuse_counter(turn, case, vote, has_voted)
    if draft is None or refusal:
        concern = f"its counter-proposal was not taken: {refusal or 'it names no change'}"
        return replace(vote, decision="reject", concerns=(*vote.concerns, concern))
    own = replace(draft, src=vote.evaluator, round=turn.state.round + 1, parent=vote.proposal_id)
    turn.update_state(drafts=(*turn.state.drafts, own))
    return vote


def _refuse_counter(turn: EngineTurn, case: ProposalCase, vote: ProposalEvaluation, has_voted: bool) -> str:
    safety = turn.state.safety
    if has_voted:
        return "this is its second vote"
    if case.depth >= safety.max_back_and_forth:
        return f"max_back_and_forth is {safety.max_back_and_forth}"
    limit, reason = _allowance_of(turn, vote.evaluator, turn.state.round + 1)
    return "" if limit else reason


# --- ARBITRATING -------------------------------------------------------------------------------


def open_arbitration(turn: EngineTurn) -> None:
    """Decide each proposal by its votes, and ask the arbiters where the votes leave it open."""
    for case in turn.ready_cases():
        if not _postpone(turn, case):
            _conclude(turn, case)


def _postpone(turn: EngineTurn, case: ProposalCase) -> bool:
    """Postpone a proposal that was countered or deferred, unless a veto rejects it now; True if it is postponed."""
    decisions = {name: vote.decision for name, vote in votes.latest_votes(case.evaluations).items()}
    undecided = tuple(name for name, decision in decisions.items() if decision in {"counter", "defer"})
    if not undecided or votes.find_veto(case, turn.state.participants):
        return False
    status: Status = "countered" if "counter" in decisions.values() else "deferred"
    turn.set_status(case, status, asked=undecided)
    turn.announce(ProposalPostponed(case.proposal_id, status, f"by {', '.join(undecided)}"))
    return True


def _conclude(turn: EngineTurn, case: ProposalCase) -> None:
    verdict = votes.decide_by_votes(case, turn.state.participants, turn.state.safety)
    if verdict.outcome == "arbitrate":
        ask_arbiters(turn, case, f"the votes leave it open: {verdict.reason}")
    else:
        _settle(turn, case, verdict)


def _settle(turn: EngineTurn, case: ProposalCase, verdict: votes.VotingResult) -> None:
    """Mark an accepted proposal for its commit, and close a rejected one; in a review a person may still accept that."""
    if verdict.outcome == "accept":
        turn.update_case(case, agreed=verdict.consensus)
    elif turn.state.is_reviewed:
        turn.update_case(case, rejection=verdict.reason)
    else:
        turn.close_case(case, "rejected", verdict.reason)


def take_arbitration(turn: EngineTurn, reply: Arbitrated) -> None:
    """Carry out the decision of the arbiters, once all who were asked have answered."""
    verdict = take_arbiter_vote(turn, reply)
    if verdict:
        _settle(turn, turn.cases[reply.proposal_id], verdict)


def ask_arbiters(turn: EngineTurn, case: ProposalCase, reason: str) -> None:
    """Ask the arbiters who are responsible for this proposal."""
    arbiters = votes.arbiters_for(case, turn.state.participants, turn.state.safety)
    turn.update_case(case, asked_arbiters=arbiters)
    for arbiter in arbiters:
        turn.ask(AskArbitration(turn.state.round, arbiter, review_of(case), case.evaluations, reason))


def take_arbiter_vote(turn: EngineTurn, reply: Arbitrated) -> votes.VotingResult | None:
    """Record the decision of an arbiter; after the last one, return the result of all of them, before that None."""
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.announce(AgentFailed(reply.arbiter, "arbitrate", reply.failure))
    word = _binding_vote(turn, reply, is_alone=len(case.asked_arbiters) == 1)
    count = votes.count_votes(case.evaluations)
    case = turn.update_case(case, evaluations=(*case.evaluations, word))
    turn.announce(ProposalArbitrated(case.proposal_id, reply.arbiter, word, count.accepts, count.rejects))
    if reply.arbiter != case.asked_arbiters[-1]:
        return None
    return votes.decide_by_arbiters(case.evaluations[-len(case.asked_arbiters) :])


def _binding_vote(turn: EngineTurn, reply: Arbitrated, *, is_alone: bool) -> ProposalEvaluation:
    """Return the decision as it counts: without a clear one, a single arbiter rejects and one of several abstains."""
    no_word: VoteDecision = "reject" if is_alone else "abstain"
    doubt = "when in doubt, reject" if is_alone else "it does not count"
    said = reply.evaluation or ProposalEvaluation(
        proposal_id=reply.proposal_id,
        evaluator=reply.arbiter,
        round=turn.state.round,
        decision=no_word,
        reasoning=f"the arbiter gave no answer{f' ({reply.failure})' if reply.failure else ''}; {doubt}",
    )
    return replace(
        said,
        proposal_id=reply.proposal_id,
        evaluator=reply.arbiter,
        round=turn.state.round,
        decision=said.decision if said.decision in {"accept", "reject"} else no_word,
        confidence=1.0,
        is_arbiter=True,
        counter_proposal=None,
    )
