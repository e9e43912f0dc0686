"""The rules of voting: which agents vote, how votes are counted, and when which arbiters decide. All functions are pure.

The first line that applies decides:

veto           -> reject        a reject with verified evidence, or by an owner of a file that the proposal changes
too few votes  -> arbiter       fewer than half of the electorate, or no electorate; without an arbiter: reject
no reject      -> accept        unanimous
no accept      -> reject
tie, or close  -> arbiter       a difference of at most one, if `require_arbiter_on_conflict` is set and there is an arbiter
otherwise      -> the majority  a tie is a reject

Source: seed 002, 6.6, and docs/adr.
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
    """The counted votes on one proposal. Only accepts and rejects are votes; every other evaluation is an abstention."""

    accepts: int
    rejects: int
    abstains: int

    @property
    def votes(self) -> int:
        """The number of accepts and rejects together."""
        return self.accepts + self.rejects

    def __str__(self) -> str:
        abstained = f", {self.abstains} abstained" if self.abstains else ""
        return f"{self.accepts} for, {self.rejects} against{abstained}"


class VotingResult(NamedTuple):
    """The outcome of the votes on a proposal, why, and for an accept the kind of consensus."""

    outcome: Outcome
    reason: str
    consensus: Consensus | None = None


def latest_votes(evaluations: Iterable[ProposalEvaluation]) -> dict[str, ProposalEvaluation]:
    """Return the last vote of each evaluator, by name; decisions of arbiters are left out."""
    return {evaluation.evaluator: evaluation for evaluation in evaluations if not evaluation.is_arbiter}


def count_votes(evaluations: Iterable[ProposalEvaluation]) -> VoteCount:
    """Count the last vote of each evaluator. Everything but accept and reject is an abstention."""
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
        return _decide_too_few_votes(f"only {count.votes} of {electorate} voted", participants)
    if not electorate:
        return _decide_too_few_votes("nobody could vote on it", participants)
    if count.rejects == 0:
        return VotingResult("accept", str(count), "unanimous")
    if count.accepts == 0:
        return VotingResult("reject", str(count))
    return _decide_mixed_votes(count, participants, safety)


def _decide_too_few_votes(why: str, participants: Participants) -> VotingResult:
    """Return the result for too few votes: the arbiters decide; without arbiters the proposal is rejected. `why` says how few."""
    return (
        VotingResult("arbitrate", why)
        if participants.arbiters
        else VotingResult("reject", f"{why}, and there is no arbiter")
    )


def _decide_mixed_votes(count: VoteCount, participants: Participants, safety: SafetyConfig) -> VotingResult:
    """Return the result for votes with both accepts and rejects: the last two lines of the table."""
    is_close = abs(count.accepts - count.rejects) <= 1
    if is_close and safety.require_arbiter_on_conflict and participants.arbiters:
        return VotingResult("arbitrate", str(count))
    if count.accepts > count.rejects:
        return VotingResult("accept", str(count), "majority")
    return VotingResult("reject", str(count))


def find_veto(case: ProposalCase, participants: Participants) -> str:
    """Return why a single vote rejects the proposal; empty if there is no such vote.

    A reject does so if its evidence was verified, or if its author owns a file that the proposal changes.
    """
    owners = _owners_of(case.proposal, participants)
    for name, evaluation in latest_votes(case.evaluations).items():
        if evaluation.decision != "reject":
            continue
        for evidence in evaluation.evidence:
            if evidence.is_verified:
                return f"{name} proved that it breaks something: {_describe_evidence(evidence)}"
        if name in owners:
            return f"{name} owns a file that it would change, and rejects it"
    return ""


def _describe_evidence(evidence: Counterexample) -> str:
    """Return what the verification found, or else what the agent wrote."""
    return evidence.detail or evidence.text


def arbiters_for(case: ProposalCase, participants: Participants, safety: SafetyConfig) -> tuple[str, ...]:
    """Return the arbiters that decide a dispute; empty if the negotiation has none. Source: seed 002, 6.7.

    With `arbitration = "vote"` all of them decide. With `"domain"` it is the first one whose domain includes the proposal; if
    there is no such arbiter, and with any other value, it is the first of all.
    """
    if safety.arbitration == "vote":
        return participants.arbiters
    if safety.arbitration == "domain":
        responsible = (
            name for name in participants.arbiters if _is_in_domain(case, safety.arbiter_domains.get(name, ()))
        )
        return tuple(responsible)[:1] or participants.arbiters[:1]
    return participants.arbiters[:1]


def _is_in_domain(case: ProposalCase, patterns: Collection[str]) -> bool:
    """Return whether one of the globs matches the intent, the rule code, a file or a contract element of a proposal."""
    proposal = case.proposal
    words = [
        proposal.intent,
        proposal.finding,
        *(change.method for change in (case.gate.schema_changes if case.gate else ())),
    ]
    is_named = any(fnmatchcase(word, pattern) for pattern in patterns for word in words if word)
    return is_named or any(path_matches(path, patterns) for path in proposal.files)


def path_matches(path: str, patterns: Collection[str]) -> bool:
    """Return whether one of the globs matches a path, its file name or one of the folders above it."""
    parts = normpath(path).split("/")
    names = {parts[-1], *("/".join(parts[: count + 1]) for count in range(len(parts)))}
    return any(fnmatchcase(name, normpath(pattern)) for pattern in patterns for name in names)


def decide_by_arbiters(decisions: Sequence[ProposalEvaluation]) -> VotingResult:
    """Return the result of the decisions of arbiters, at least one: the majority of accepts and rejects; a tie is a reject."""
    accepts = sum(each.decision == "accept" for each in decisions)
    rejects = sum(each.decision == "reject" for each in decisions)
    if accepts > rejects:
        return VotingResult("accept", f"{accepts} for, {rejects} against", "arbiter")
    reasons = "; ".join(f"{each.agent}: {each.reasoning or 'without a reason'}" for each in decisions)
    if len(decisions) == 1:
        return VotingResult(
            "reject", f"{decisions[0].agent} decided against it: {decisions[0].reasoning or 'without a reason'}"
        )
    return VotingResult("reject", f"the arbiters do not accept it ({accepts} for, {rejects} against): {reasons}")


def changes_contradict(one: SchemaChange, other: SchemaChange) -> bool:
    """Return whether two changes alter one contract element in different ways.

    Two changes of a method do so if the schemas after them differ. Two changes of a topic do so if both change one field, and
    neither includes all changes of the other: handlers may read different fields, and publishers may send different ones. The
    gate checks whether handlers and publishers still fit together.
    """
    if one.method != other.method:
        return False
    if not one.method.startswith("/"):  # a method and not a topic
        return (one.input_schema_after, one.output_schema_after) != (
            other.input_schema_after,
            other.output_schema_after,
        )
    fields, other_fields = (
        _changed_fields(change.output_schema_before, change.output_schema_after) for change in (one, other)
    )
    has_common = bool(fields.keys() & other_fields.keys())
    return has_common and not (fields.items() <= other_fields.items() or other_fields.items() <= fields.items())


def _changed_fields(before: Schema | None, after: Schema | None) -> dict[str, Field | None]:
    """Return name -> new field for each field that a change adds or alters, and name -> None for each that it removes."""
    was, now = before or Schema(), after or Schema()
    return {name: now.get(name) for name in sorted(was.names | now.names) if was.get(name) != now.get(name)}


def electorate_of(
    case: ProposalCase, participants: Participants, safety: SafetyConfig, countered: str = ""
) -> tuple[str, ...]:
    """Return the agents that vote on a proposal, the most affected first, at most `max_votes_per_proposal` of them.

    If no agent is affected, the neighbours of the author vote. If the author has no neighbours, all agents vote. With
    `electorate = "all"` all agents vote, and their number is not limited. The author and the arbiters never vote.

    Args:
        case: The proposal, checked by the gate.
        participants: The agents and the graph before the change.
        safety: The limits.
        countered: The author of the proposal that this one counters; empty for an original.
    """
    excluded = {case.proposal.src, *participants.arbiters}
    if safety.electorate == "all":
        return tuple(name for name in participants.agents if name not in excluded)
    groups = _group_affected_agents(case, participants, countered)
    ranked = [name for group in groups for name in participants.agents if name in group and name not in excluded]
    if not ranked:
        near = neighbours_of(case.proposal.src, participants.edges)
        everybody = [name for name in participants.agents if name not in excluded]
        ranked = [name for name in everybody if name in near] or everybody
    return tuple(dict.fromkeys(ranked))[: safety.max_votes_per_proposal]


def _group_affected_agents(case: ProposalCase, participants: Participants, countered: str) -> tuple[set[str], ...]:
    """Return the affected agents in groups, the most affected first.

    The groups are the owners of changed symbols, the owners of changed files with the countered author, the agents at changed
    edges, and the agents that the author names. They may overlap, and may contain an empty name.
    """
    proposal = case.proposal
    owners = _owners_of(proposal, participants)
    return (
        {change.target.partition(".")[0] for change in proposal.code_changes} & owners,
        owners | {countered},
        ends_of_changed_edges(case, participants.edges),
        {proposal.dst or "", *proposal.affects},
    )


def neighbours_of(name: str, edges: Iterable[Edge]) -> frozenset[str]:
    """Return the agents with which an agent shares an edge, in either direction."""
    pairs = [(edge.source, edge.target) for edge in edges]
    return frozenset(other for one, other in [*pairs, *((b, a) for a, b in pairs)] if one == name)


def ends_of_changed_edges(case: ProposalCase, before: tuple[Edge, ...]) -> set[str]:
    """Return the agents at both ends of each edge that a change adds, removes, or gives another contract."""
    changed = {change.method for change in case.gate.schema_changes} if case.gate else set()
    added_or_removed = set(before) ^ set(case.edges)
    touched = added_or_removed | {edge for edge in before if _has_changed_contract(edge, changed)}
    return {end for edge in touched for end in (edge.source, edge.target)}


def _has_changed_contract(edge: Edge, changed: set[str]) -> bool:
    """Return whether the contract of an edge is among the changed elements: topics, `Agent.method`s and agents."""
    if edge.source in changed or edge.target in changed:
        return True
    if edge.kind == "depends_on":  # a declared dependency relies on every method of the other agent
        return any(name.startswith(f"{edge.source}.") for name in changed)
    return edge.label in changed or f"{edge.source}.{edge.label}" in changed


def _owners_of(proposal: Proposal, participants: Participants) -> set[str]:
    """Return the agents whose classes are in the files that a proposal changes."""
    return {name for path in proposal.files for name in participants.owners.get(path, ())}
