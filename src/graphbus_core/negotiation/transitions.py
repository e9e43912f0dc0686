"""What may become of a proposal, from its draft to the decision: the moves, and the phases that decide. Pure."""

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
    Case,
    CheckProposal,
    Command,
    DraftsDropped,
    Evaluated,
    EvaluationMade,
    Gated,
    ProposalArbitrated,
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
    Review,
    RoundStarted,
    State,
    Step,
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
"""What may become of a proposal. A status without successors is decided, once and for all."""


def is_decided(case: Case) -> bool:
    """True if a proposal can no longer change its status."""
    return not MOVES[case.status]


class Turn:
    """One step in the making: the state that becomes the next one, and the commands so far."""

    def __init__(self, state: State) -> None:
        self.state = replace(state, cases=dict(state.cases))
        self.commands: list[Command] = []

    @property
    def cases(self) -> dict[str, Case]:
        """The cases of the state in the making, in the order of their numbers."""
        return self.state.cases

    def set(self, **changes: Any) -> None:
        """Replace fields of the state."""
        self.state = replace(self.state, **changes)

    def change(self, case: Case, **changes: Any) -> Case:
        """Replace fields of a case, its status excepted."""
        changed = replace(case, **changes)
        self.cases[case.proposal_id] = changed
        return changed

    def move(self, case: Case, status: Status, **changes: Any) -> Case:
        """Give a case its next status.

        Raises:
            ProtocolError: `MOVES` does not allow it: the engine broke the protocol.
        """
        if status not in MOVES[case.status]:
            raise ProtocolError("engine", f"{case.proposal_id} is {case.status} and cannot become {status}")
        return self.change(case, status=status, **changes)

    def close(self, case: Case, status: Status, reason: str) -> None:
        """Decide a proposal against a change."""
        self.move(case, status, refusal=reason)
        count = votes.tally(case.evaluations)
        self.tell(ProposalRejected(case.proposal_id, status, count.accepts, count.rejects, count.abstains, reason))

    def ask(self, question: Question) -> None:
        """Put a question whose reply will be awaited."""
        self.commands.append(question)
        self.set(awaited=(*self.state.awaited, key_of(question)))

    def tell(self, announcement: Announcement) -> None:
        """Announce a fact."""
        self.commands.append(announcement)

    def ready(self) -> list[Case]:
        """Give the pending proposals whose dependencies are in the workspace, in the order of their numbers."""
        cases = self.cases
        return [
            case
            for case in cases.values()
            if case.status == "pending" and all(cases[name].status == "accepted" for name in case.proposal.dependencies)
        ]

    def done(self) -> Step:
        """Return the finished step."""
        return Step(self.state, tuple(self.commands))


# --- what the limits let in; source: seed 002, 6.2 to 6.4 --------------------------------------


class Allowance(NamedTuple):
    """How many more proposals an agent may make in a round, and which setting says so."""

    limit: int
    reason: str


def allowance(agent: str, proposals: Iterable[Proposal], round_: int, safety: SafetyConfig) -> Allowance:
    """Give what is left of an agent's budget for a round; counter-proposals count like any other."""
    spent = Counter(proposal.round == round_ for proposal in proposals if proposal.src == agent)
    in_round = safety.max_proposals_per_round - spent[True]
    in_all = safety.max_proposals_per_agent - spent.total()
    if in_all <= in_round:
        return Allowance(max(in_all, 0), f"max_proposals_per_agent is {safety.max_proposals_per_agent}")
    return Allowance(max(in_round, 0), f"max_proposals_per_round is {safety.max_proposals_per_round}")


def refuse(proposal: Proposal, safety: SafetyConfig, changed: Collection[str], known: Collection[str]) -> str:
    """Say why a proposal may not go to the gate, naming the setting, or give the empty string.

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
    return refuse_files(proposal.files, safety, changed)


def refuse_files(files: Collection[str], safety: SafetyConfig, changed: Collection[str]) -> str:
    """Say why a change of these files would go beyond a limit, or give the empty string."""
    if len(files) > safety.max_file_changes_per_commit:
        limit = f"max_file_changes_per_commit is {safety.max_file_changes_per_commit}"
        return f"it changes {len(files)} files, and {limit}"
    total = len({*changed, *files})
    if total > safety.max_total_file_changes:
        return f"{total} files would be changed, and max_total_file_changes is {safety.max_total_file_changes}"
    return ""


# --- PROPOSING ---------------------------------------------------------------------------------


def open_round(turn: Turn) -> None:
    """Begin a round: reopen, number the counter-proposals of the last round, and ask every agent that may still propose."""
    turn.set(round=turn.state.round + 1)
    turn.tell(RoundStarted(turn.state.round))
    _reopen(turn)
    drafts = turn.state.drafts
    turn.set(drafts=())
    for draft in drafts:
        _number_counter(turn, draft)
    for agent in turn.state.participants.voters:
        limit = _allowance_of(turn, agent, turn.state.round).limit
        if limit:
            turn.ask(AskProposals(turn.state.round, agent, limit))


def _reopen(turn: Turn) -> None:
    """Reopen what was deferred, and what was countered without success; reject what has lost a dependency."""
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


def _allowance_of(turn: Turn, agent: str, round_: int) -> Allowance:
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
    limit, reason = _allowance_of(turn, reply.agent, turn.state.round)
    numbers: dict[str, str] = {}
    for draft in reply.proposals[:limit]:
        needed = tuple(numbers.get(name, name) for name in draft.dependencies)
        own = replace(draft, src=reply.agent, round=turn.state.round, parent=None, dependencies=needed)
        numbers[draft.proposal_id] = _number(turn, own).proposal_id
    dropped = len(reply.proposals) - limit
    if dropped > 0:
        turn.tell(DraftsDropped(reply.agent, dropped, reason))


# --- GATING ------------------------------------------------------------------------------------


CONFLICT = "G1.conflict"
"""The gate's code for a change that contradicts what was accepted meanwhile."""


def open_gate(turn: Turn) -> None:
    """Ask the gate about every proposal that it has not checked on the present workspace."""
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
    """Accept the report of the gate: the proposal passes, goes back to its author, or is refused."""
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
    """Send a repaired proposal to the gate again."""
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


# --- EVALUATING --------------------------------------------------------------------------------


def open_votes(turn: Turn) -> None:
    """Put into each evaluator's inbox what it is to vote on."""
    state = turn.state
    inboxes: dict[str, list[Review]] = {name: [] for name in state.participants.agents}
    for case in turn.ready():
        review = review_of(case)
        if not case.evaluations:
            countered = turn.cases[case.proposal.parent].proposal.src if case.proposal.parent else ""
            names = votes.electorate(case, state.participants, state.safety, countered)
            turn.change(case, electorate=names, asked=names)
        for name in turn.cases[case.proposal_id].asked:
            inboxes[name].append(review)
    for name, inbox in inboxes.items():
        if inbox:
            turn.ask(AskEvaluations(state.round, name, tuple(inbox)))


def review_of(case: Case) -> Review:
    """Give what judges are shown.

    Raises:
        ProtocolError: The gate has not checked it yet: the engine broke the protocol.
    """
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
    limit, reason = _allowance_of(turn, vote.evaluator, turn.state.round + 1)
    return "" if limit else reason


# --- ARBITRATING -------------------------------------------------------------------------------


def open_arbitration(turn: Turn) -> None:
    """Draw the conclusion from the votes on each proposal; ask the arbiters where they leave it open."""
    for case in turn.ready():
        if not _postpone(turn, case):
            _conclude(turn, case)


def _postpone(turn: Turn, case: Case) -> bool:
    """Put off what was countered or deferred, unless a veto settles it now."""
    decisions = {name: vote.decision for name, vote in votes.latest(case.evaluations).items()}
    undecided = tuple(name for name, decision in decisions.items() if decision in {"counter", "defer"})
    if not undecided or votes.find_veto(case, turn.state.participants):
        return False
    status: Status = "countered" if "counter" in decisions.values() else "deferred"
    turn.move(case, status, asked=undecided)
    turn.tell(ProposalPostponed(case.proposal_id, status, f"by {', '.join(undecided)}"))
    return True


def _conclude(turn: Turn, case: Case) -> None:
    verdict = votes.decide(case, turn.state.participants, turn.state.safety)
    if verdict.outcome == "arbitrate":
        ask_judges(turn, case, f"the votes leave it open: {verdict.reason}")
    else:
        _settle(turn, case, verdict)


def _settle(turn: Turn, case: Case, verdict: votes.Verdict) -> None:
    """Let an accepted proposal wait for its commit, and close a rejected one; in a review a person may still want it."""
    if verdict.outcome == "accept":
        turn.change(case, agreed=verdict.consensus)
    elif turn.state.is_reviewed:
        turn.change(case, turned_down=verdict.reason)
    else:
        turn.close(case, "rejected", verdict.reason)


def take_arbitration(turn: Turn, reply: Arbitrated) -> None:
    """Carry out the decision of the arbiters, once all who were asked have answered."""
    verdict = hear_judge(turn, reply)
    if verdict:
        _settle(turn, turn.cases[reply.proposal_id], verdict)


def ask_judges(turn: Turn, case: Case, reason: str) -> None:
    """Put a dispute before the arbiters whose it is."""
    judges = votes.judges_of(case, turn.state.participants, turn.state.safety)
    turn.change(case, judges=judges)
    for judge in judges:
        turn.ask(AskArbitration(turn.state.round, judge, review_of(case), case.evaluations, reason))


def hear_judge(turn: Turn, reply: Arbitrated) -> votes.Verdict | None:
    """Keep the decision of an arbiter; after the last one, return the verdict of all."""
    case = turn.cases[reply.proposal_id]
    if reply.failure:
        turn.tell(AgentFailed(reply.arbiter, "arbitrate", reply.failure))
    word = _binding_word(turn, reply, is_alone=len(case.judges) == 1)
    count = votes.tally(case.evaluations)
    case = turn.change(case, evaluations=(*case.evaluations, word))
    turn.tell(ProposalArbitrated(case.proposal_id, reply.arbiter, word, count.accepts, count.rejects))
    if reply.arbiter != case.judges[-1]:
        return None
    return votes.settle(case.evaluations[-len(case.judges) :])


def _binding_word(turn: Turn, reply: Arbitrated, *, is_alone: bool) -> ProposalEvaluation:
    """Give an arbiter's evaluation; what is no accept is a reject, or nothing where several are asked."""
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
