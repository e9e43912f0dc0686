"""`graphbus inspect-negotiation`: every proposal, evaluation, arbitration and commit of a session; every session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import Role, columns, counted, folded, one_line, paint, plain
from graphbus_core.editing.promotion import fate_of
from graphbus_core.editing.rungs.codes import RUNGS
from graphbus_core.errors import NegotiationError, did_you_mean
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import (
    CodeChange,
    ProposalEvaluation,
    ProposalRecord,
    RungResult,
    Status,
    VoteDecision,
)
from graphbus_core.model.spending import dollars
from graphbus_core.negotiation.apply import MadeCommits, load_commits
from graphbus_core.negotiation.commit_message import models_of
from graphbus_core.negotiation.transcript import Said, SessionRecord, list_sessions, load_session, load_transcript
from graphbus_core.settings import find_root, load

_WIDE = 100
"""From so many columns on, a list has room for the names of files."""
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
_RUNG_ROLES: dict[str, Role] = {"passed": "good", "failed": "bad", "not_run": "dim"}
_RUNG_WIDTH = max(map(len, RUNGS.values()))


class _Session(NamedTuple):
    """A session as it is kept, the settings of its project, and the git commits that were made of it."""

    config: ResolvedBuild
    record: SessionRecord
    made: MadeCommits | None

    @property
    def fate(self) -> str:
        """Whether the accepted changes are in the source files, by the record and by the journal of what was written."""
        fate = fate_of(self.config, self.record.session)
        if fate == "undone":
            return "written, then undone"
        if fate or self.record.is_applied:
            return "written to the source files"
        return f"not written: {one_line(self.record.refusal)}" if self.record.refusal else "not written"

    @property
    def written(self) -> dict[str, object]:
        """What JSON says of that."""
        return {"is_applied": self.record.is_applied, "refusal": self.record.refusal}

    def not_in_history(self, commits: Sequence[str]) -> str:
        """Say so if what is checked out does not have these commits: they were taken back, or are on another branch."""
        from graphbus_core.editing.git import Repository

        with suppress(NegotiationError):
            repository = Repository.find(self.config.root)
            if repository and not all(map(repository.is_on_head, commits)):
                return ", not in the history of HEAD"
        return ""


@click.command("inspect-negotiation", short_help="Browse proposals, votes and commits.")
@click.argument("proposal", metavar="[PROPOSAL]", default="")
@click.option("--session", default="", metavar="SESSION", help="The session, e.g. S001; the last one by default.")
@click.option("--agent", default="", metavar="AGENT", help="Only what this agent proposed or voted on.")
@click.option("--file", "path", default="", metavar="PATH", help="Only what wanted to change this file.")
@click.option(
    "--round", "number", type=click.IntRange(min=1), metavar="N", help="Only what was proposed in this round."
)
@click.option("--status", type=click.Choice(get_args(Status)), help="Only what has come to this.")
@click.option("--diff", "has_diff", is_flag=True, help="Show what each of them changes.")
@click.option("--transcript", "is_transcript", is_flag=True, help="Show everything that was said, in its order.")
@click.option("--sessions", "is_overview", is_flag=True, help="List all sessions.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def inspect_negotiation(
    *,
    proposal: str,
    session: str,
    has_diff: bool,
    is_transcript: bool,
    is_overview: bool,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List the proposals of a session, or show one PROPOSAL whole: reasons, diff, gate, votes, arbitration and commit.

    Exit status: 0 done; 5 there is no such session, proposal or agent.

    \b
    Examples:
      graphbus inspect-negotiation
      graphbus inspect-negotiation P001
      graphbus inspect-negotiation --agent OrderProcessor --status rejected --diff
      graphbus inspect-negotiation --session S001 --json
      graphbus inspect-negotiation --sessions
    """
    root = find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(), settings=load(root))
    if is_overview:
        _overview(config, as_json=as_json)
        return
    record = load_session(config.artifacts_dir, session)
    kept = _Session(config, record, load_commits(config.artifacts_dir, record.session))
    one = _find(record, proposal) if proposal else None
    if is_transcript:
        said = load_transcript(config.artifacts_dir, record.session)
        chosen = [event for event in said if one is None or _about(event) == one.proposal.proposal_id]
        console.result({"session": record.session, "events": chosen}, map(line_of, chosen), as_json=as_json)
    elif one:
        console.result(_document(kept, one), _whole(kept, one), as_json=as_json)
    else:
        found = tuple(_select(record, **wanted))
        if as_json:
            console.emit_json(_listed(kept, found))
        else:
            _show_list(kept, found, has_diff=has_diff)


def _find(record: SessionRecord, name: str) -> ProposalRecord:
    known = {one.proposal.proposal_id: one for one in record.negotiations.records}
    return known[_known(record, "proposal", name.upper(), known)]


def _select(
    record: SessionRecord, *, agent: str, path: str, number: int | None, status: Status | None
) -> Iterator[ProposalRecord]:
    """Give the proposals in which an agent had a part, that wanted to change a file, of a round, or of a status.

    Raises:
        NegotiationError: GBE406, the session has no such agent or no proposal for this file.
    """
    records, path = record.negotiations.records, path.removeprefix("./")
    if agent:
        _known(record, "agent", agent, record.agents)
    if path:
        _known(record, "proposal for", path, {file for one in records for file in one.proposal.files})
    for one in records:
        has_part = {"", one.proposal.src, *(vote.evaluator for vote in one.evaluations)}
        is_wanted = number in {None, one.proposal.round} and status in {None, one.status}
        if is_wanted and agent in has_part and path in ("", *one.proposal.files):
            yield one


def _known(record: SessionRecord, kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if name in names:
        return name
    suggestion, listed = did_you_mean(name, names), ", ".join(names) or "none"
    raise NegotiationError("GBE406", session=record.session, kind=kind, name=name, suggestion=suggestion, known=listed)


# --- all sessions ------------------------------------------------------------------------------


def _overview(config: ResolvedBuild, *, as_json: bool) -> None:
    names = list_sessions(config.artifacts_dir)
    if not names:
        raise NegotiationError("GBE403", folder=config.artifacts_dir)
    sessions = [_Session(config, record, None) for record in _readable(config, names)]
    if as_json:
        console.emit_json({"sessions": [_summed(session) for session in sessions]})
        return
    headers = ("SESSION", "ENDED BY", "PROPOSED", "ACCEPTED", "FILES", "COST", "CHANGES", "MODEL")
    console.table(headers, map(_session_row, sessions), right=("PROPOSED", "ACCEPTED", "FILES", "COST"))


def _readable(config: ResolvedBuild, names: Sequence[str]) -> Iterator[SessionRecord]:
    for name in names:
        try:
            yield load_session(config.artifacts_dir, name)
        except NegotiationError as refused:
            console.error(refused)


def _session_row(session: _Session) -> tuple[str, ...]:
    record, ending = session.record, session.record.negotiations.ending
    fate = session.fate.partition(":")[0] if record.negotiations.completed else "-"
    return (
        paint(plain(record.session), "strong"),
        ending.reason.replace("_", " "),
        str(ending.proposals_made),
        str(ending.commits_created),
        str(ending.files_modified),
        _cost(record.spent.cost_usd) or "-",
        fate.removesuffix(" to the source files"),
        plain(models_of(record)),
    )


def _summed(session: _Session) -> dict[str, object]:
    record = session.record
    return {
        **{name: getattr(record, name) for name in ("session", "backend", "models", "intent")},
        **session.written,
        "fate": fate_of(session.config, record.session),
        "ending": record.negotiations.ending,
        "spent": record.spent,
    }


# --- the proposals of a session ----------------------------------------------------------------


def _listed(session: _Session, chosen: tuple[ProposalRecord, ...]) -> dict[str, object]:
    record, made = session.record, session.made
    return {
        **{name: getattr(record, name) for name in ("session", "backend", "models", "agents", "arbiters", "intent")},
        **session.written,
        "ending": record.negotiations.ending,
        "spent": record.spent,
        "costs": record.costs,
        "git_commits": made.commits if made else {},
        "commits": record.negotiations.completed,
        "proposals": chosen,
    }


def _show_list(session: _Session, chosen: tuple[ProposalRecord, ...], *, has_diff: bool) -> None:
    console.out_all(_head(session))
    console.out()
    if not chosen:
        console.out("No proposal to show.")
        return
    headers = ("ID", "ROUND", "AGENT", "STATUS", "VOTES", "WHAT", "FILES")
    shown = len(headers) - (0 < columns() < _WIDE)  # a narrow terminal has no room for the files
    console.table(headers[:shown], [_row(one)[:shown] for one in chosen], right=("ROUND",))
    for one in chosen if has_diff else ():
        title = f"{one.proposal.proposal_id}  {plain(one.proposal.title or one.proposal.intent)}"
        console.out_all(_section(title, _diff_lines(one)))
    others = [name for name in list_sessions(session.config.artifacts_dir) if name != session.record.session]
    console.say()
    console.say(paint(f"One whole: graphbus inspect-negotiation {chosen[0].proposal.proposal_id}", "dim"))
    if others:
        console.say(paint(f"Other sessions: {', '.join(others)}", "dim"))


def _head(session: _Session) -> Iterator[str]:
    record, made, ending = session.record, session.made, session.record.negotiations.ending
    detail = f" ({plain(ending.detail)})" if ending.detail else ""
    yield (
        f"{paint(record.session, 'strong')}  {ending.proposals_made} proposed, {ending.commits_created} accepted, "
        f"{counted(ending.files_modified, 'file')}, {counted(ending.rounds_executed, 'round')}; "
        f"ended by {ending.reason.replace('_', ' ')}{detail}"
    )
    if record.negotiations.completed:
        committed = f", {counted(len(made.commits), 'git commit')}" if made else ""
        lost = session.not_in_history(tuple(made.commits.values())[-1:]) if made else ""
        yield f"accepted changes: {session.fate}{committed}{lost}"
    if record.intent:
        yield f"intent: {plain(record.intent)}"
    if record.models:
        spent = record.spent
        price = _cost(spent.cost_usd) or ("unknown cost" if spent.unpriced else "$0")
        tokens = f"{spent.usage.total_tokens:,} tokens"
        yield f"model: {plain(models_of(record))}; {counted(spent.requests, 'request')}, {tokens}, {price}"


def _row(one: ProposalRecord) -> tuple[str, ...]:
    proposal = one.proposal
    latest = {vote.evaluator: vote for vote in one.evaluations}.values()
    votes = [vote.decision for vote in latest if not vote.is_arbiter]
    tally = f"{votes.count('accept')}/{votes.count('accept') + votes.count('reject')}" if votes else "-"
    return (
        proposal.proposal_id,
        str(proposal.round),
        paint(plain(proposal.src), "name"),
        paint(one.status, _STATUS_ROLES[one.status]),
        f"{tally} {one.commit.consensus_type}" if one.commit else tally,
        plain(proposal.title or proposal.intent),
        plain(", ".join(proposal.files)),
    )


# --- one proposal ------------------------------------------------------------------------------


def _document(session: _Session, one: ProposalRecord) -> dict[str, Any]:
    record, made, name = session.record, session.made, one.proposal.proposal_id
    return {
        "session": record.session,
        "is_applied": record.is_applied,
        "session_refusal": record.refusal,
        "git_commit": made.commits.get(name, "") if made else "",
        "cost_usd": record.costs.get(name),
        **msgspec.to_builtins(one),
    }


def _whole(session: _Session, one: ProposalRecord) -> Iterator[str]:
    """Give one proposal: what it is and why, what it changes, and what became of it."""
    payloads = tuple(_payloads(session, one.proposal.proposal_id))
    title = plain(one.proposal.title or one.proposal.intent)
    yield f"{paint(one.proposal.proposal_id, 'strong')}  {paint(one.status, _STATUS_ROLES[one.status])}  {title}"
    for label, value in _facts(session.record, one).items():
        if value:
            yield from console.fact(label, plain(value), 12)
    yield from _section("Change", _diff_lines(one))
    sections = {
        "Earlier attempts": _attempts(one, payloads),
        "Gate": (_rung_line(rung) for rung in (one.gate.rungs if one.gate else ())),
        "Votes": _votes(one.evaluations),
        "Review": _reviews(payloads),
        "Outcome": _outcome(session, one),
    }
    for name, lines in sections.items():
        found = [f"  {line}" for line in lines]
        if found:
            yield from _section(name, found)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", paint(title, "strong"))
    yield from lines


def _payloads(session: _Session, proposal_id: str) -> Iterator[Mapping[str, Any]]:
    """Give what was said of a proposal; the record is what counts, so that a transcript that is gone changes nothing."""
    with suppress(NegotiationError):
        said = load_transcript(session.config.artifacts_dir, session.record.session)
        yield from (event.payload for event in said if _about(event) == proposal_id)


def _about(event: Said) -> str:
    """Give the proposal that an event is about; empty for none."""
    payload = event.payload if isinstance(event.payload, dict) else {}
    inner = (payload.get(key) for key in ("proposal", "evaluation", "commit"))
    holder = next((each for each in inner if isinstance(each, dict)), payload)
    return str(holder.get("proposal_id", ""))


def _facts(session: SessionRecord, one: ProposalRecord) -> dict[str, str]:
    proposal = one.proposal
    records = session.negotiations.records
    counters = [each.proposal.proposal_id for each in records if each.proposal.parent == proposal.proposal_id]
    contracts = proposal.schema_changes or (one.gate.schema_changes if one.gate else ())
    return {
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
        "cost": _cost(session.costs.get(proposal.proposal_id)),
    }


def _cost(usd: float | None) -> str:
    """Give dollars for people; empty for nothing, and for what is not known."""
    return dollars(usd) if usd else ""


def _diff_lines(one: ProposalRecord) -> Iterator[str]:
    """Give the diffs that were committed, or what the changes would do to the text that they were written for."""
    found = one.commit.resolution.values() if one.commit else map(_wished, one.proposal.code_changes)
    return console.diff_lines("\n".join(found).rstrip())


def _wished(change: CodeChange) -> str:
    from graphbus_core.editing.edits import unified_diff

    texts = (f"{code}\n" if code and code[-1] != "\n" else code for code in (change.old_code, change.new_code))
    return unified_diff(change.file_path, *(text.encode() for text in texts))


def _rung_line(rung: RungResult) -> str:
    """Give one rung: its name, what it says, its code and message, and the place."""
    status = rung.status.replace("_", " ")
    place = f"({rung.path}{f':{rung.line}' if rung.line else ''})" if rung.path else ""
    detail = " ".join(filter(None, (rung.code, rung.message, place)))
    gap = " " * (len("not run") - len(status)) if detail else ""
    name = f"{paint(rung.rung, 'strong')} {RUNGS.get(rung.rung, ''):<{_RUNG_WIDTH}}"
    return f"{name}  {paint(status, _RUNG_ROLES[rung.status])}{gap}  {plain(detail)}".rstrip()


def _attempts(one: ProposalRecord, payloads: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Give what the gate refused before the proposal was as it is now: all but its last climb."""
    title = one.proposal.title
    climbs: list[tuple[str, Mapping[str, Any]]] = []
    for payload in payloads:
        title = payload["proposal"].get("title", "") if "proposal" in payload else title
        if "report" in payload:
            climbs.append((title, payload["report"]))
    for called, report in climbs[:-1]:
        if not report["passed"]:
            yield f"{paint('refused', 'bad')}  {plain(called)}: {plain(_failure(report))}"


def _failure(report: Mapping[str, Any]) -> str:
    failed = (rung for rung in report["rungs"] if rung["status"] == "failed")
    return "; ".join(f"{rung.get('code', rung['rung'])} {rung.get('message', '')}" for rung in failed)


def _votes(votes: Sequence[ProposalEvaluation]) -> Iterator[str]:
    """Give each judgement: who, what, how sure, why; then what it expects, what it rests on, what it would rather have."""
    names = [plain(f"{vote.evaluator}{' (ARBITER)' if vote.is_arbiter else ''}") for vote in votes]
    for name, vote in zip(names, votes, strict=True):
        sure = f" ({vote.confidence:.0%} sure)" if vote.confidence < 1 else ""
        decision = paint(vote.decision, _DECISION_ROLES[vote.decision])
        head = f"{paint(name.ljust(max(map(len, names))), 'name')}  {decision}{sure}"
        if vote.reasoning and columns() and len(vote.reasoning) > columns() // 3:
            yield f"{head}:"
            yield from folded("    ", plain(vote.reasoning), 4, outer=2)
        else:
            yield f"{head}: {plain(vote.reasoning)}" if vote.reasoning else head
        yield from (f"    {line}" for line in (*_impact(vote), *_evidence(vote), *_wishes(vote)))


def _impact(vote: ProposalEvaluation) -> Iterator[str]:
    impact = vote.impact_assessment
    expected = ["breaks contracts"] if impact.breaks_contracts else []
    expected += [f"{impact.estimated_risk} risk"] if impact.estimated_risk != "low" else []
    expected += [f"affects {', '.join(impact.affects_dependencies)}"] if impact.affects_dependencies else []
    if expected:
        yield f"expects: {plain(', '.join(expected))}"


def _evidence(vote: ProposalEvaluation) -> Iterator[str]:
    for evidence in vote.evidence:
        head = f"{evidence.kind} evidence, {'verified' if evidence.is_verified else 'unsubstantiated'}:"
        first, *more = evidence.text.strip().split("\n")
        yield head if more else f"{head} {plain(first)}"
        if more:  # a test: code on lines of its own
            yield from (f"  {plain(line)}".rstrip() for line in (first, *more))
        if evidence.detail:
            yield f"  {one_line(evidence.detail)}"
    known = {evidence.text for evidence in vote.evidence}
    yield from (f"concern: {plain(concern)}" for concern in vote.concerns if concern not in known)


def _wishes(vote: ProposalEvaluation) -> Iterator[str]:
    yield from (f"suggestion: {plain(suggestion)}" for suggestion in vote.suggestions)
    counter = vote.counter_proposal
    if counter:
        files = f" ({', '.join(counter.files)})" if counter.code_changes else ""
        yield f"counter-proposal: {plain(counter.title or counter.intent)}{plain(files)}"
        if counter.reason:
            yield f"  {one_line(counter.reason)}"


def _reviews(payloads: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for payload in payloads:
        if "verdict" in payload:
            reason = f": {plain(payload['reason'])}" if payload.get("reason") else ""
            yield f"a person said {plain(payload['verdict'])}{reason}"


def _outcome(session: _Session, one: ProposalRecord) -> Iterator[str]:
    commit, made = one.commit, session.made
    if commit is None:
        yield f"{one.status}: {plain(one.refusal)}" if one.refusal else one.status
        return
    voters = f" ({plain(', '.join(commit.evaluators))})" if commit.evaluators else ""
    told = f"{commit.commit_id}: {commit.consensus_type}{voters}, changed {plain(', '.join(commit.files_modified))}"
    yield from folded("", told, 2, outer=2)
    committed = made.commits.get(one.proposal.proposal_id, "") if made else ""
    if made and committed:
        where = f" on {made.branch.removeprefix('refs/heads/')}" if made.branch else ""
        yield plain(f"git commit {committed}{where}{session.not_in_history((committed,))}")
    yield session.fate


# --- the events of a session, one line each ----------------------------------------------------

_TOLD = {
    "Started": "{agents}",
    "Round": "{round}",
    "Proposed": "{proposal[proposal_id]} {proposal[src]}: {proposal[title]}",
    "Dropped": "{agent} {count}: {reason}",
    "Failed": "{agent} {task}: {reason}",
    "Merged": "{proposal_id} into {files}",
    "SentBack": "{proposal_id}: {reason}",
    "Evaluated": "{evaluation[proposal_id]} {evaluation[evaluator]}: {evaluation[decision]}: {evaluation[reasoning]}",
    "Postponed": "{proposal_id} {status}: {reason}",
    "Arbitrated": "{proposal_id} {arbiter} ({accepts} for, {rejects} against): "
    "{evaluation[decision]}: {evaluation[reasoning]}",
    "Reviewed": "{proposal_id} {verdict}: {reason}",
    "Committed": "{commit[proposal_id]} {commit[commit_id]}: {commit[consensus_type]}, {commit[files_modified]}",
    "Rejected": "{proposal_id} {status}: {reason}",
    "Finished": "{ending[reason]}: {ending[detail]}",
}
_OPTIONAL = ("reason", "reasoning", "detail")


def line_of(event: Said) -> str:
    """Give an event as a line: its kind, and what is worth knowing of it."""
    kind = event.topic.rpartition("/")[2]
    try:
        told = _gated(event.payload) if kind == "Gated" else _TOLD[kind].format_map(_legible(event.payload))
    except (KeyError, TypeError, AttributeError, ValueError):  # of another version, or cut for the bus
        told = msgspec.json.encode(event.payload).decode()
    return f"{paint(kind.ljust(10), 'dim')}  {one_line(told.removesuffix(': '))}"


def _gated(payload: Mapping[str, Any]) -> str:
    report = payload["report"]
    return f"{payload['proposal_id']} {'passed' if report['passed'] else f'refused: {_failure(report)}'}"


def _legible(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Join lists of words; what may be left out is empty, and the title of a proposal at least its intent."""
    found: dict[str, Any] = {**dict.fromkeys(_OPTIONAL, ""), "title": payload.get("intent", "")}
    for key, value in payload.items():
        if isinstance(value, dict):
            found[key] = _legible(value)
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            found[key] = ", ".join(value)
        elif value not in (None, ""):
            found[key] = value
    return found
