"""One proposal of a session whole, as lines to read: reasons, diff, gate, repairs, votes, outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphbus_core.cli.console import Role, columns, folded, one_line, paint, plain
from graphbus_core.editing.rungs.codes import RUNGS
from graphbus_core.model.proposals import (
    CodeChange,
    Evidence,
    Proposal,
    ProposalEvaluation,
    ProposalRecord,
    RungResult,
    Status,
    VoteDecision,
)
from graphbus_core.model.spending import dollars
from graphbus_core.negotiation.transcript import Said, SessionRecord

STATUS_ROLES: dict[Status, Role] = {
    "accepted": "good",
    "rejected": "bad",
    "refused": "warn",
    "pending": "name",
    "countered": "accent",
    "deferred": "accent",
    "superseded": "dim",
}
_DECISION_ROLES: dict[VoteDecision, Role] = {
    "accept": "good",
    "reject": "bad",
    "counter": "accent",
    "defer": "accent",
    "abstain": "dim",
}
_RUNG_WIDTH = max(map(len, RUNGS.values()))
_STATUS_WIDTH = len("not run")


class Shown(NamedTuple):
    """A proposal and all that is known of it.

    Attributes:
        said: The events of its session, in order; empty where the transcript is gone.
        fate: Whether the accepted changes are in the source files, in words.
        git_commit: What became of its git commit, in words; empty without one.
    """

    session: SessionRecord
    record: ProposalRecord
    said: Sequence[Said]
    fate: str
    git_commit: str


def facts_of(shown: Shown) -> Iterator[str]:
    """Give the head line, and who proposed it to whom and why."""
    proposal, status = shown.record.proposal, shown.record.status
    title = plain(proposal.title or proposal.intent)
    yield f"{paint(proposal.proposal_id, 'strong')}  {paint(status, STATUS_ROLES[status])}  {title}"
    for label, value in _facts(shown.session, shown.record):
        yield from folded(f"  {paint(f'{label}:'.ljust(12), 'dim')} ", plain(value), 15)


def _facts(session: SessionRecord, one: ProposalRecord) -> Iterator[tuple[str, str]]:
    proposal = one.proposal
    counters = [
        other.proposal.proposal_id
        for other in session.negotiations.records
        if other.proposal.parent == proposal.proposal_id
    ]
    contracts = proposal.schema_changes or (one.gate.schema_changes if one.gate else ())
    facts = {
        "session": f"{session.session}, round {proposal.round}",
        "by": proposal.src,
        "to": proposal.dst or "",
        "affects": ", ".join(proposal.affects),
        "intent": proposal.intent,
        "mends": proposal.finding,
        "why": proposal.reason,
        "contracts": ", ".join(change.method for change in contracts),
        "needs": ", ".join(proposal.dependencies),
        "counters": proposal.parent or "",
        "countered by": ", ".join(counters),
        "cost": cost(session.costs.get(proposal.proposal_id)),
    }
    return ((label, value) for label, value in facts.items() if value)


def cost(usd: float | None) -> str:
    """Give dollars for people; empty for nothing, and for what is not known."""
    return dollars(usd) if usd else ""


def course_of(shown: Shown) -> Iterator[str]:
    """Give what became of it: gate, attempts before, votes, a person's word, outcome."""
    one = shown.record
    sections = {
        "Earlier attempts": _attempts(shown),
        "Gate": (rung_line(rung) for rung in (one.gate.rungs if one.gate else ())),
        "Votes": _votes(one.evaluations),
        "Review": _reviews(shown),
        "Outcome": _outcome(shown),
    }
    for title, lines in sections.items():
        found = tuple(lines)
        if found:
            yield ""
            yield paint(title, "strong")
            yield from (f"  {line}" for line in found)


# --- the change --------------------------------------------------------------------------------


def diffs_of(one: ProposalRecord) -> Iterator[str]:
    """Give the diffs that were committed, or what the changes would do to the text that they were written for."""
    if one.commit:
        yield from one.commit.resolution.values()
    else:
        yield from _wished(one.proposal)


def _wished(proposal: Proposal) -> Iterator[str]:
    for change in proposal.code_changes:
        yield _diff_of(change)


def _diff_of(change: CodeChange) -> str:
    from graphbus_core.editing.edits import unified_diff

    old, new = (
        f"{code}\n" if code and not code.endswith("\n") else code for code in (change.old_code, change.new_code)
    )
    return unified_diff(change.file_path, old.encode(), new.encode())


# --- the gate ----------------------------------------------------------------------------------


def rung_line(rung: RungResult) -> str:
    """Give one rung: its name, what it says, its code and message, and the place."""
    roles: dict[str, Role] = {"passed": "good", "failed": "bad", "not_run": "dim"}
    name = RUNGS.get(rung.rung, "").ljust(_RUNG_WIDTH)
    status = rung.status.replace("_", " ")
    place = f"({':'.join([rung.path, *([str(rung.line)] if rung.line else [])])})" if rung.path else ""
    detail = " ".join(part for part in (rung.code, rung.message, place) if part)
    gap = " " * (_STATUS_WIDTH - len(status)) if detail else ""
    return f"{paint(rung.rung, 'strong')} {name}  {paint(status, roles[rung.status])}{gap}  {plain(detail)}".rstrip()


def _attempts(shown: Shown) -> Iterator[str]:
    """Give what the gate refused before the proposal was as it is now: all but its last climb."""
    title = shown.record.proposal.title
    climbs: list[str] = []
    for event in _about(shown.said, shown.record.proposal.proposal_id):
        if "proposal" in event:
            title = event["proposal"].get("title", "")
        if "report" in event:
            climbs.append(_refused(event["report"], title))
    yield from (line for line in climbs[:-1] if line)


def _refused(report: Mapping[str, Any], title: str) -> str:
    failure = next((rung for rung in report["rungs"] if rung["status"] == "failed"), None)
    if not failure:
        return ""
    detail = " ".join(part for part in (failure.get("code", ""), failure.get("message", "")) if part)
    return f"{paint('refused', 'bad')}  {plain(title)}: {plain(detail)}"


def _about(said: Sequence[Said], proposal_id: str) -> Iterator[Mapping[str, Any]]:
    """Give the payloads of the events about a proposal."""
    return (event.payload for event in said if proposal_of(event) == proposal_id)


def proposal_of(event: Said) -> str:
    """Give the proposal that an event is about; empty for none."""
    payload = event.payload if isinstance(event.payload, dict) else {}
    for key in ("proposal", "evaluation", "commit"):
        if isinstance(payload.get(key), dict):
            return str(payload[key].get("proposal_id", ""))
    return str(payload.get("proposal_id", ""))


# --- votes -------------------------------------------------------------------------------------


def _votes(votes: Sequence[ProposalEvaluation]) -> Iterator[str]:
    width = max((len(_voter(vote)) for vote in votes), default=0)
    return (line for vote in votes for line in _vote_lines(vote, width))


def _voter(vote: ProposalEvaluation) -> str:
    return plain(f"{vote.evaluator}{' (ARBITER)' if vote.is_arbiter else ''}")


def _vote_lines(vote: ProposalEvaluation, width: int) -> Iterator[str]:
    """Give one judgement: who, what, how sure, why; then what it expects, what it rests on and what it would rather have."""
    sure = f" ({vote.confidence:.0%} sure)" if vote.confidence < 1 else ""
    name = paint(_voter(vote).ljust(width), "name")
    head = f"{name}  {paint(vote.decision, _DECISION_ROLES[vote.decision])}{sure}"
    if vote.reasoning and columns() and len(vote.reasoning) > columns() // 3:
        yield f"{head}:"
        yield from folded("    ", plain(vote.reasoning), 4, outer=2)
    else:
        yield f"{head}: {plain(vote.reasoning)}" if vote.reasoning else head
    yield from (f"    {line}" for line in (*_impact(vote), *_evidence(vote), *_wishes(vote)))


def _impact(vote: ProposalEvaluation) -> Iterator[str]:
    impact = vote.impact_assessment
    expected = [
        "breaks contracts" if impact.breaks_contracts else "",
        f"{impact.estimated_risk} risk" if impact.estimated_risk != "low" else "",
        f"affects {', '.join(impact.affects_dependencies)}" if impact.affects_dependencies else "",
    ]
    if any(expected):
        yield f"expects: {plain(', '.join(part for part in expected if part))}"


def _evidence(vote: ProposalEvaluation) -> Iterator[str]:
    for evidence in vote.evidence:
        yield from _proof(evidence)
    known = {evidence.text for evidence in vote.evidence}
    yield from (f"concern: {plain(concern)}" for concern in vote.concerns if concern not in known)


def _proof(evidence: Evidence) -> Iterator[str]:
    state = "verified" if evidence.is_verified else "unsubstantiated"
    first, *more = evidence.text.strip().split("\n")
    if more:  # a test: code on lines of its own
        yield f"{evidence.kind} evidence, {state}:"
        yield from (f"  {plain(line)}".rstrip() for line in (first, *more))
    else:
        yield f"{evidence.kind} evidence, {state}: {plain(first)}"
    if evidence.detail:
        yield f"  {one_line(evidence.detail)}"


def _wishes(vote: ProposalEvaluation) -> Iterator[str]:
    yield from (f"suggestion: {plain(suggestion)}" for suggestion in vote.suggestions)
    counter = vote.counter_proposal
    if counter:
        files = f" ({', '.join(counter.files)})" if counter.code_changes else ""
        yield f"counter-proposal: {plain(counter.title or counter.intent)}{plain(files)}"
        if counter.reason:
            yield f"  {one_line(counter.reason)}"


# --- a person, and the outcome ------------------------------------------------------------------


def _reviews(shown: Shown) -> Iterator[str]:
    for event in _about(shown.said, shown.record.proposal.proposal_id):
        if "verdict" in event:
            reason = event.get("reason", "")
            yield f"a person said {plain(event['verdict'])}{f': {plain(reason)}' if reason else ''}"


def _outcome(shown: Shown) -> Iterator[str]:
    one = shown.record
    if one.commit is None:
        yield f"{one.status}: {plain(one.refusal)}" if one.refusal else one.status
        return
    commit = one.commit
    voters = f" ({plain(', '.join(commit.evaluators))})" if commit.evaluators else ""
    told = f"{commit.commit_id}: {commit.consensus_type}{voters}, changed {plain(', '.join(commit.files_modified))}"
    yield from folded("", told, 2, outer=2)
    if shown.git_commit:
        yield plain(shown.git_commit)
    yield shown.fate
