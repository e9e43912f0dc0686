"""Rules of voting: who votes, how votes are counted, when which arbiters decide. Pure. Source: seed 002, 6.6, and docs/adr.

veto           -> reject        a verified objection, or an owner of a touched file
too few votes  -> arbiter       fewer than half the electorate; without an arbiter: reject
no reject      -> accept        unanimous
no accept      -> reject
tie, or close  -> arbiter       without an arbiter: a tie is a reject, else the majority
otherwise      -> the majority
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Literal, NamedTuple

from graphbus_core.model.artifacts import Edge
from graphbus_core.model.config import SafetyConfig
from graphbus_core.model.proposals import Consensus, Counterexample, Proposal, ProposalEvaluation, SchemaChange
from graphbus_core.negotiation.protocol import Participants, ProposalCase
from graphbus_core.schema.types import Field, Schema

Outcome = Literal["accept", "reject", "arbitrate"]


class VoteCount(NamedTuple):
    """The counted votes on one proposal; accepts and rejects are valid votes, everything else is an abstention."""

    accepts: int
    rejects: int
    abstains: int

    @property
    def votes(self) -> int:
        """The number of valid votes."""
        return self.accepts + self.rejects

    def __str__(self) -> str:
        abstained = f", {self.abstains} abstained" if self.abstains else ""
        return f"{self.accepts} for, {self.rejects} against{abstained}"


class VotingResult(NamedTuple):
    """The outcome of the votes on a proposal, and why."""

    outcome: Outcome
    reason: str
    consensus: Consensus | None = None


def latest_votes(evaluations: Iterable[ProposalEvaluation]) -> dict[str, ProposalEvaluation]:
    """Return the last vote of each evaluator, by name; decisions of arbiters are no votes."""
    return {evaluation.evaluator: evaluation for evaluation in evaluations if not evaluation.is_arbiter}


def count_votes(evaluations: Iterable[ProposalEvaluation]) -> VoteCount:
    """Count the last vote of each evaluator. Anything but accept and reject is an abstention, never an accept."""
    decisions = [evaluation.decision for evaluation in latest_votes(evaluations).values()]
    accepts, rejects = decisions.count("accept"), decisions.count("reject")
    return VoteCount(accepts, rejects, len(decisions) - accepts - rejects)


def decide_by_votes(case: ProposalCase, participants: Participants, safety: SafetyConfig) -> VotingResult:
    """Return the outcome of the votes on a proposal, by the table at the head of this module."""
    veto = find_veto(case, participants)
    if veto:
        return VotingResult("reject", veto)
    count = count_votes(case.evaluations)
    electorate = len(case.electorate)
    if 2 * count.votes < electorate:
        return _without_quorum(f"only {count.votes} of {electorate} voted", participants)
    if not electorate:
        return _without_quorum("nobody could vote on it", participants)
    if count.rejects == 0:
        return VotingResult("accept", str(count), "unanimous")
    if count.accepts == 0:
        return VotingResult("reject", str(count))
    return _settle_conflict(count, participants, safety)


def _without_quorum(why: str, participants: Participants) -> VotingResult:
    return (
        VotingResult("arbitrate", why)
        if participants.arbiters
        else VotingResult("reject", f"{why}, and there is no arbiter")
    )


def _settle_conflict(count: VoteCount, participants: Participants, safety: SafetyConfig) -> VotingResult:
    is_close = abs(count.accepts - count.rejects) <= 1
    if is_close and safety.require_arbiter_on_conflict and participants.arbiters:
        return VotingResult("arbitrate", str(count))
    if count.accepts > count.rejects:
        return VotingResult("accept", str(count), "majority")
    return VotingResult("reject", str(count))


def find_veto(case: ProposalCase, participants: Participants) -> str:
    """Return the reason of the vote that rejects the proposal alone; the empty string without such a vote."""
    owners = _owners_of(case.proposal, participants)
    for name, evaluation in latest_votes(case.evaluations).items():
        if evaluation.decision != "reject":
            continue
        for evidence in evaluation.evidence:
            if evidence.is_verified:
                return f"{name} proved that it breaks something: {_shown(evidence)}"
        if name in owners:
            return f"{name} owns a file that it would change, and rejects it"
    return ""


def _shown(evidence: Counterexample) -> str:
    return evidence.detail or evidence.text


def arbiters_for(case: ProposalCase, participants: Participants, safety: SafetyConfig) -> tuple[str, ...]:
    """Return the arbiters who decide a dispute: all of them with `arbitration = "vote"`, else one. Source: seed 002, 6.7."""
    if safety.arbitration == "vote":
        return participants.arbiters
    if safety.arbitration == "domain":
        responsible = (name for name in participants.arbiters if _is_domain(case, safety.arbiter_domains.get(name, ())))
        return tuple(responsible)[:1] or participants.arbiters[:1]
    return participants.arbiters[:1]


def _is_domain(case: ProposalCase, patterns: Collection[str]) -> bool:
    """Return whether a glob matches the intent, the rule code, a file or a contract element of a proposal."""
    proposal = case.proposal
    words = [
        proposal.intent,
        proposal.finding,
        *(change.method for change in (case.gate.schema_changes if case.gate else ())),
    ]
    is_named = any(fnmatchcase(word, pattern) for pattern in patterns for word in words if word)
    return is_named or any(path_matches(path, patterns) for path in proposal.files)


def path_matches(path: str, patterns: Collection[str]) -> bool:
    """Return whether a glob matches the path, its file name or one of the folders above it."""
    parts = normpath(path).split("/")
    names = {parts[-1], *("/".join(parts[: count + 1]) for count in range(len(parts)))}
    return any(fnmatchcase(name, normpath(pattern)) for pattern in patterns for name in names)


def decide_by_arbiters(words: Sequence[ProposalEvaluation]) -> VotingResult:
    """Return the decision of the arbiters: the majority of their accepts and rejects; a tie or no decision is a reject."""
    accepts = sum(word.decision == "accept" for word in words)
    rejects = sum(word.decision == "reject" for word in words)
    if accepts > rejects:
        return VotingResult("accept", f"{accepts} for, {rejects} against", "arbiter")
    reasons = "; ".join(f"{word.agent}: {word.reasoning or 'without a reason'}" for word in words)
    if len(words) == 1:
        return VotingResult(
            "reject", f"{words[0].agent} decided against it: {words[0].reasoning or 'without a reason'}"
        )
    return VotingResult("reject", f"the arbiters do not accept it ({accepts} for, {rejects} against): {reasons}")


def changes_contradict(one: SchemaChange, other: SchemaChange) -> bool:
    """Return whether two changes alter one contract element in different ways.

    For a topic only the fields that both changes alter are compared: handlers may read different fields, and publishers may
    send different ones. Whether publishers and handlers still fit together is checked by the gate.
    """
    if one.method != other.method:
        return False
    if not one.method.startswith("/"):
        return (one.input_schema_after, one.output_schema_after) != (
            other.input_schema_after,
            other.output_schema_after,
        )
    mine, its = (_difference(change.output_schema_before, change.output_schema_after) for change in (one, other))
    return bool(mine.keys() & its.keys()) and not (mine.items() <= its.items() or its.items() <= mine.items())


def _difference(before: Schema | None, after: Schema | None) -> dict[str, Field | None]:
    """Return the fields that a change adds or alters, by name; None for one that it removes."""
    was, now = before or Schema(), after or Schema()
    return {name: now.get(name) for name in sorted(was.names | now.names) if was.get(name) != now.get(name)}


def electorate_of(
    case: ProposalCase, participants: Participants, safety: SafetyConfig, countered: str = ""
) -> tuple[str, ...]:
    """Return who votes on a proposal, the most affected first: `max_votes_per_proposal` cuts off the end.

    Args:
        countered: The author of the proposal that this one counters.
    """
    excluded = {case.proposal.src, *participants.arbiters}
    if safety.electorate == "all":
        return tuple(name for name in participants.agents if name not in excluded)
    groups = _affected(case, participants, countered)
    ranked = [name for group in groups for name in participants.agents if name in group and name not in excluded]
    if not ranked:
        near = neighbours_of(case.proposal.src, participants.edges)
        everybody = [name for name in participants.agents if name not in excluded]
        ranked = [name for name in everybody if name in near] or everybody
    return tuple(dict.fromkeys(ranked))[: safety.max_votes_per_proposal]


def _affected(case: ProposalCase, participants: Participants, countered: str) -> tuple[set[str], ...]:
    """Return the affected agents in groups: first those that follow from the change itself, last those that its author names."""
    proposal = case.proposal
    owners = _owners_of(proposal, participants)
    return (
        {change.target.partition(".")[0] for change in proposal.code_changes} & owners,
        owners | {countered},
        ends_of_changed_edges(case, participants.edges),
        {proposal.dst or "", *proposal.affects},
    )


def neighbours_of(name: str, edges: Iterable[Edge]) -> frozenset[str]:
    """Return the agents at the other ends of an agent's edges."""
    pairs = [(edge.source, edge.target) for edge in edges]
    return frozenset(other for one, other in [*pairs, *((b, a) for a, b in pairs)] if one == name)


def ends_of_changed_edges(case: ProposalCase, before: tuple[Edge, ...]) -> set[str]:
    """Return the agents at both ends of each edge that appears, disappears or has a contract that changes."""
    changed = {change.method for change in case.gate.schema_changes} if case.gate else set()
    moved = set(before) ^ set(case.edges)
    touched = moved | {edge for edge in before if _carries(edge, changed)}
    return {end for edge in touched for end in (edge.source, edge.target)}


def _carries(edge: Edge, changed: set[str]) -> bool:
    """Return whether an edge belongs to one of the changed topics, `Agent.method`s or agents."""
    if edge.source in changed or edge.target in changed:
        return True
    if edge.kind == "depends_on":
        return any(name.startswith(f"{edge.source}.") for name in changed)
    return edge.label in changed or f"{edge.source}.{edge.label}" in changed


def _owners_of(proposal: Proposal, participants: Participants) -> set[str]:
    """Return the agents whose classes are in the files that a proposal changes."""
    return {name for path in proposal.files for name in participants.owners.get(path, ())}
