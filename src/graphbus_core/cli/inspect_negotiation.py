"""`graphbus inspect-negotiation`: every proposal, every evaluation, every arbitration, every commit of a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import Role, paint, plain
from graphbus_core.cli.live import counted
from graphbus_core.editing.promotion import fate_of
from graphbus_core.errors import NegotiationError, did_you_mean
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.proposals import (
    CodeChange,
    ProposalEvaluation,
    ProposalRecord,
    RungResult,
    Status,
    VoteDecision,
)
from graphbus_core.negotiation.transcript import SessionRecord, list_sessions, load_session
from graphbus_core.settings import find_root, load

_STATUS_ROLES: dict[Status, Role] = {
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
_RUNGS = {
    "G0": "scope",
    "G1": "apply",
    "G2": "parse",
    "G3": "capability",
    "G4": "contract",
    "G5": "import",
    "G6": "tests",
}
_RUNG_WIDTH = max(map(len, _RUNGS.values()))


@click.command("inspect-negotiation", short_help="Browse proposals, votes and commits.")
@click.argument("proposal", metavar="[PROPOSAL]", default="")
@click.option("--session", default="", metavar="NAME", help="The session, e.g. S001; the last one by default.")
@click.option("--agent", default="", metavar="NAME", help="Only what this agent proposed or voted on.")
@click.option("--file", "path", default="", metavar="PATH", help="Only what wanted to change this file.")
@click.option("--status", type=click.Choice(get_args(Status)), help="Only what has come to this.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def inspect_negotiation(
    *, proposal: str, session: str, agent: str, path: str, status: Status | None, as_json: bool
) -> None:
    """List the proposals of a session, or show one PROPOSAL whole: reasons, diff, gate, votes, arbitration and commit.

    \b
    Examples:
      graphbus inspect-negotiation
      graphbus inspect-negotiation P001
      graphbus inspect-negotiation --agent OrderProcessor --status rejected
      graphbus inspect-negotiation --session S001 --json
    """
    config = _config()
    record = load_session(config.artifacts_dir, session)
    if proposal:
        found = find_proposal(record, proposal)
        if as_json:
            written = {"is_applied": record.is_applied, "session_refusal": record.refusal}
            console.emit_json({"session": record.session, **written, **msgspec.to_builtins(found)})
        else:
            _show_one(record, found, config)
        return
    chosen = tuple(select(record, agent=agent, path=path, status=status))
    if as_json:
        console.emit_json(_listed(record, chosen))
    else:
        _show_list(record, chosen, config)


def _config() -> BuildConfig:
    root = find_root([Path.cwd()])
    return BuildConfig(root=str(root), paths=(), settings=load(root))


def find_proposal(record: SessionRecord, name: str) -> ProposalRecord:
    """Give the proposal of this number.

    Raises:
        NegotiationError: GBE406, there is none.
    """
    known = {one.proposal.proposal_id: one for one in record.negotiations.records}
    return known[_known(record, "proposal", name.upper(), known)]


def select(
    record: SessionRecord, *, agent: str = "", path: str = "", status: Status | None = None
) -> Iterator[ProposalRecord]:
    """Give the proposals in which an agent had a part, that wanted to change a file, or that have come to a status.

    Raises:
        NegotiationError: GBE406, the session has no such agent or no proposal for this file.
    """
    if agent:
        _known(record, "agent", agent, record.agents)
    if path:
        path = path.removeprefix("./")
        _known(
            record, "proposal for", path, {file for one in record.negotiations.records for file in one.proposal.files}
        )
    for one in record.negotiations.records:
        has_part = {one.proposal.src, *(vote.evaluator for vote in one.evaluations)}
        if (
            (not agent or agent in has_part)
            and (not path or path in one.proposal.files)
            and status in {None, one.status}
        ):
            yield one


def _known(record: SessionRecord, kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if name in names:
        return name
    raise NegotiationError(
        "GBE406",
        session=record.session,
        kind=kind,
        name=name,
        suggestion=did_you_mean(name, names),
        known=", ".join(names) or "none",
    )


def _listed(record: SessionRecord, chosen: tuple[ProposalRecord, ...]) -> dict[str, object]:
    return {
        "session": record.session,
        "backend": record.backend,
        "agents": record.agents,
        "arbiters": record.arbiters,
        "intent": record.intent,
        "is_applied": record.is_applied,
        "refusal": record.refusal,
        "ending": record.negotiations.ending,
        "commits": record.negotiations.completed,
        "proposals": chosen,
    }


# --- as text ---------------------------------------------------------------------------------


def _fate(record: SessionRecord, config: BuildConfig) -> str:
    """Say whether the accepted changes are in the source files, by the record and by the journal of what was written."""
    fate = fate_of(config, record.session)
    if fate == "undone":
        return "written, then undone"
    if fate or record.is_applied:
        return "written to the source files"
    return f"not written: {plain(' '.join(record.refusal.split()))}" if record.refusal else "not written"


def _show_list(record: SessionRecord, chosen: tuple[ProposalRecord, ...], config: BuildConfig) -> None:
    ending = record.negotiations.ending
    detail = f" ({plain(ending.detail)})" if ending.detail else ""
    console.out(
        f"{paint(record.session, 'strong')}  {ending.proposals_made} proposed, {ending.commits_created} accepted, "
        f"{counted(ending.files_modified, 'file')}, {counted(ending.rounds_executed, 'round')}; "
        f"ended by {ending.reason.replace('_', ' ')}{detail}"
    )
    if record.negotiations.completed:
        console.out(f"accepted changes: {_fate(record, config)}")
    if record.intent:
        console.out(f"intent: {plain(record.intent)}")
    console.out()
    if not chosen:
        console.out("No proposal to show.")
        return
    headers = ("ID", "ROUND", "AGENT", "STATUS", "VOTES", "WHAT", "FILES")
    console.table(headers, [_row(one) for one in chosen], right=("ROUND",))
    others = [name for name in list_sessions(config.artifacts_dir) if name != record.session]
    console.say()
    console.say(paint(f"One whole: graphbus inspect-negotiation {chosen[0].proposal.proposal_id}", "dim"))
    if others:
        console.say(paint(f"Other sessions: {', '.join(others)}", "dim"))


def _row(one: ProposalRecord) -> tuple[str, ...]:
    proposal = one.proposal
    return (
        proposal.proposal_id,
        str(proposal.round),
        paint(plain(proposal.src), "name"),
        paint(one.status, _STATUS_ROLES[one.status]),
        _votes(one),
        plain(proposal.title or proposal.intent),
        plain(", ".join(proposal.files)),
    )


def _votes(one: ProposalRecord) -> str:
    latest = {vote.evaluator: vote for vote in one.evaluations}.values()
    decisions = [vote.decision for vote in latest if not vote.is_arbiter]
    counted = (
        f"{decisions.count('accept')}/{decisions.count('accept') + decisions.count('reject')}" if decisions else "-"
    )
    return f"{counted} {one.commit.consensus_type}" if one.commit else counted


def _show_one(record: SessionRecord, one: ProposalRecord, config: BuildConfig) -> None:
    proposal = one.proposal
    status = paint(one.status, _STATUS_ROLES[one.status])
    console.out(f"{paint(proposal.proposal_id, 'strong')}  {status}  {plain(proposal.title or proposal.intent)}")
    for label, value in _facts(record, one):
        console.out(f"  {paint(f'{label}:'.ljust(12), 'dim')} {plain(value)}")
    _section("Change")
    console.diff("\n".join(_diffs(one)).rstrip())
    if one.gate:
        _section("Gate")
        for rung in one.gate.rungs:
            console.out(f"  {_rung_line(rung)}")
    if one.evaluations:
        _section("Votes")
        for vote in one.evaluations:
            for line in _vote_lines(vote):
                console.out(line)
    _section("Outcome")
    console.out(f"  {_outcome(one)}")
    if one.commit:
        console.out(f"  {_fate(record, config)}")


def _section(title: str) -> None:
    console.out()
    console.out(paint(title, "strong"))


def _facts(record: SessionRecord, one: ProposalRecord) -> Iterator[tuple[str, str]]:
    proposal = one.proposal
    counters = [
        other.proposal.proposal_id
        for other in record.negotiations.records
        if other.proposal.parent == proposal.proposal_id
    ]
    facts = {
        "session": f"{record.session}, round {proposal.round}",
        "by": proposal.src,
        "to": proposal.dst or "",
        "affects": ", ".join(proposal.affects),
        "intent": proposal.intent,
        "mends": proposal.finding,
        "why": proposal.reason,
        "needs": ", ".join(proposal.dependencies),
        "counters": proposal.parent or "",
        "countered by": ", ".join(counters),
    }
    return ((label, value) for label, value in facts.items() if value)


def _diffs(one: ProposalRecord) -> Iterator[str]:
    """Give the diffs that were committed, or what the changes would do to the text that they were written for."""
    if one.commit:
        yield from one.commit.resolution.values()
    else:
        yield from (_diff_of(change) for change in one.proposal.code_changes)


def _diff_of(change: CodeChange) -> str:
    from graphbus_core.editing.edits import unified_diff

    old, new = (
        f"{code}\n" if code and not code.endswith("\n") else code for code in (change.old_code, change.new_code)
    )
    return unified_diff(change.file_path, old.encode(), new.encode())


def _rung_line(rung: RungResult) -> str:
    roles: dict[str, Role] = {"passed": "good", "failed": "bad", "not_run": "dim"}
    name = _RUNGS.get(rung.rung, "").ljust(_RUNG_WIDTH)
    shown = f"{paint(rung.rung, 'strong')} {name}  {paint(rung.status.replace('_', ' '), roles[rung.status])}"
    detail = " ".join(part for part in (rung.code, rung.message) if part)
    return f"{shown}  {plain(detail)}".rstrip()


def _vote_lines(vote: ProposalEvaluation) -> Iterator[str]:
    role = " (ARBITER)" if vote.is_arbiter else ""
    said = f": {plain(vote.reasoning)}" if vote.reasoning else ""
    yield f"  {paint(plain(vote.evaluator + role), 'name')}  {paint(vote.decision, _DECISION_ROLES[vote.decision])}{said}"
    for evidence in vote.evidence:
        state = "verified" if evidence.is_verified else "unsubstantiated"
        yield f"      {evidence.kind} evidence, {state}: {plain(evidence.text)}"
    for concern in vote.concerns:
        if concern not in {evidence.text for evidence in vote.evidence}:
            yield f"      concern: {plain(concern)}"
    for suggestion in vote.suggestions:
        yield f"      suggestion: {plain(suggestion)}"


def _outcome(one: ProposalRecord) -> str:
    if one.commit is None:
        return f"{one.status}: {plain(one.refusal)}" if one.refusal else one.status
    commit = one.commit
    voters = f" ({plain(', '.join(commit.evaluators))})" if commit.evaluators else ""
    return f"{commit.commit_id}: {commit.consensus_type}{voters}, changed {plain(', '.join(commit.files_modified))}"
