"""`graphbus inspect-negotiation`: every proposal, evaluation, arbitration and commit of a session; every session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import columns, counted, one_line, paint, plain
from graphbus_core.cli.negotiating import proposal_text
from graphbus_core.cli.negotiating.proposal_text import STATUS_ROLES, Shown, cost, proposal_of
from graphbus_core.editing.promotion import fate_of
from graphbus_core.errors import NegotiationError, did_you_mean
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import ProposalRecord, Status
from graphbus_core.negotiation.apply import MadeCommits, load_commits
from graphbus_core.negotiation.commit_message import models_of
from graphbus_core.negotiation.transcript import (
    Said,
    SessionRecord,
    list_sessions,
    load_session,
    load_transcript,
)
from graphbus_core.settings import find_root, load

_WIDE = 100
"""From so many columns on, a list has room for the names of files."""


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
    agent: str,
    path: str,
    number: int | None,
    status: Status | None,
    has_diff: bool,
    is_transcript: bool,
    is_overview: bool,
    as_json: bool,
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
    config = _config()
    if is_overview:
        _overview(config, as_json=as_json)
        return
    record = load_session(config.artifacts_dir, session)
    if is_transcript:
        _transcript(config, record, proposal, as_json=as_json)
        return
    if proposal:
        _one(config, record, find_proposal(record, proposal), as_json=as_json)
        return
    chosen = tuple(select(record, agent=agent, path=path, number=number, status=status))
    if as_json:
        console.emit_json(_listed(config, record, chosen))
    else:
        _show_list(record, chosen, config, has_diff=has_diff)


def _config() -> ResolvedBuild:
    root = find_root([Path.cwd()])
    return ResolvedBuild(root=str(root), paths=(), settings=load(root))


def find_proposal(record: SessionRecord, name: str) -> ProposalRecord:
    """Give the proposal of this number.

    Raises:
        NegotiationError: GBE406, there is none.
    """
    known = {one.proposal.proposal_id: one for one in record.negotiations.records}
    return known[_known(record, "proposal", name.upper(), known)]


def select(
    record: SessionRecord, *, agent: str = "", path: str = "", number: int | None = None, status: Status | None = None
) -> Iterator[ProposalRecord]:
    """Give the proposals in which an agent had a part, that wanted to change a file, of a round, or of a status.

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
            and number in {None, one.proposal.round}
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


# --- all sessions ------------------------------------------------------------------------------


def _overview(config: ResolvedBuild, *, as_json: bool) -> None:
    names = list_sessions(config.artifacts_dir)
    if not names:
        raise NegotiationError("GBE403", folder=config.artifacts_dir)
    records = tuple(_readable(config, names))
    if as_json:
        console.emit_json({"sessions": [_summed(record, config) for record in records]})
        return
    headers = ("SESSION", "ENDED BY", "PROPOSED", "ACCEPTED", "FILES", "COST", "CHANGES", "MODEL")
    rows = [_session_row(record, config) for record in records]
    console.table(headers, rows, right=("PROPOSED", "ACCEPTED", "FILES", "COST"))


def _readable(config: ResolvedBuild, names: Sequence[str]) -> Iterator[SessionRecord]:
    for name in names:
        try:
            yield load_session(config.artifacts_dir, name)
        except NegotiationError as refused:
            console.error(refused)


def _session_row(record: SessionRecord, config: ResolvedBuild) -> tuple[str, ...]:
    ending = record.negotiations.ending
    fate = _fate(record, config).partition(":")[0] if record.negotiations.completed else "-"
    return (
        paint(plain(record.session), "strong"),
        ending.reason.replace("_", " "),
        str(ending.proposals_made),
        str(ending.commits_created),
        str(ending.files_modified),
        cost(record.spent.cost_usd) or "-",
        fate.removesuffix(" to the source files"),
        plain(models_of(record)),
    )


def _summed(record: SessionRecord, config: ResolvedBuild) -> dict[str, object]:
    return {
        "session": record.session,
        "backend": record.backend,
        "models": record.models,
        "intent": record.intent,
        "is_applied": record.is_applied,
        "fate": fate_of(config, record.session),
        "refusal": record.refusal,
        "ending": record.negotiations.ending,
        "spent": record.spent,
    }


# --- what was said -----------------------------------------------------------------------------


def _transcript(config: ResolvedBuild, record: SessionRecord, proposal: str, *, as_json: bool) -> None:
    said = load_transcript(config.artifacts_dir, record.session)
    if proposal:
        name = find_proposal(record, proposal).proposal.proposal_id
        said = tuple(event for event in said if proposal_of(event) == name)
    if as_json:
        console.emit_json({"session": record.session, "events": said})
        return
    for line in lines_of(said):
        console.out(line)


def _said(config: ResolvedBuild, record: SessionRecord) -> tuple[Said, ...]:
    with suppress(NegotiationError):  # the record is what counts; the transcript only adds to it
        return load_transcript(config.artifacts_dir, record.session)
    return ()


# --- one proposal ------------------------------------------------------------------------------


def _one(config: ResolvedBuild, record: SessionRecord, found: ProposalRecord, *, as_json: bool) -> None:
    made = load_commits(config.artifacts_dir, record.session)
    commit = made.commits.get(found.proposal.proposal_id, "") if made else ""
    if as_json:
        written = {"is_applied": record.is_applied, "session_refusal": record.refusal, "git_commit": commit}
        costs = {"cost_usd": record.costs.get(found.proposal.proposal_id)}
        console.emit_json({"session": record.session, **written, **costs, **msgspec.to_builtins(found)})
        return
    git_commit = _git_commit(config, made, commit) if made and commit else ""
    shown = Shown(record, found, _said(config, record), _fate(record, config), git_commit)
    for line in proposal_text.facts_of(shown):
        console.out(line)
    _section("Change")
    console.diff("\n".join(proposal_text.diffs_of(found)).rstrip())
    for line in proposal_text.course_of(shown):
        console.out(line)


def _git_commit(config: ResolvedBuild, made: MadeCommits, commit: str) -> str:
    """Say which git commit it is, and whether it is still in the history of what is checked out."""
    where = f" on {made.branch.removeprefix('refs/heads/')}" if made.branch else ""
    return f"git commit {commit}{where}{_not_in_history(config, (commit,))}"


def _not_in_history(config: ResolvedBuild, commits: Sequence[str]) -> str:
    """Say so if what is checked out does not have these commits: they were taken back, or are on another branch."""
    from graphbus_core.editing.git import Repository

    with suppress(NegotiationError):
        repository = Repository.find(config.root)
        if repository and not all(map(repository.is_on_head, commits)):
            return ", not in the history of HEAD"
    return ""


def _section(title: str) -> None:
    console.out()
    console.out(paint(title, "strong"))


# --- the proposals of a session ----------------------------------------------------------------


def _listed(config: ResolvedBuild, record: SessionRecord, chosen: tuple[ProposalRecord, ...]) -> dict[str, object]:
    made = load_commits(config.artifacts_dir, record.session)
    return {
        "session": record.session,
        "backend": record.backend,
        "models": record.models,
        "agents": record.agents,
        "arbiters": record.arbiters,
        "intent": record.intent,
        "is_applied": record.is_applied,
        "refusal": record.refusal,
        "ending": record.negotiations.ending,
        "spent": record.spent,
        "costs": record.costs,
        "git_commits": made.commits if made else {},
        "commits": record.negotiations.completed,
        "proposals": chosen,
    }


def _fate(record: SessionRecord, config: ResolvedBuild) -> str:
    """Say whether the accepted changes are in the source files, by the record and by the journal of what was written."""
    fate = fate_of(config, record.session)
    if fate == "undone":
        return "written, then undone"
    if fate or record.is_applied:
        return "written to the source files"
    return f"not written: {one_line(record.refusal)}" if record.refusal else "not written"


def _show_list(
    record: SessionRecord, chosen: tuple[ProposalRecord, ...], config: ResolvedBuild, *, has_diff: bool
) -> None:
    for line in _head(record, config):
        console.out(line)
    console.out()
    if not chosen:
        console.out("No proposal to show.")
        return
    headers = ("ID", "ROUND", "AGENT", "STATUS", "VOTES", "WHAT", "FILES")
    shown = len(headers) - (0 < columns() < _WIDE)  # a narrow terminal has no room for the files
    console.table(headers[:shown], [_row(one)[:shown] for one in chosen], right=("ROUND",))
    for one in chosen if has_diff else ():
        _section(f"{one.proposal.proposal_id}  {plain(one.proposal.title or one.proposal.intent)}")
        console.diff("\n".join(proposal_text.diffs_of(one)).rstrip())
    others = [name for name in list_sessions(config.artifacts_dir) if name != record.session]
    console.say()
    console.say(paint(f"One whole: graphbus inspect-negotiation {chosen[0].proposal.proposal_id}", "dim"))
    if others:
        console.say(paint(f"Other sessions: {', '.join(others)}", "dim"))


def _head(record: SessionRecord, config: ResolvedBuild) -> Iterator[str]:
    ending = record.negotiations.ending
    detail = f" ({plain(ending.detail)})" if ending.detail else ""
    yield (
        f"{paint(record.session, 'strong')}  {ending.proposals_made} proposed, {ending.commits_created} accepted, "
        f"{counted(ending.files_modified, 'file')}, {counted(ending.rounds_executed, 'round')}; "
        f"ended by {ending.reason.replace('_', ' ')}{detail}"
    )
    if record.negotiations.completed:
        made = load_commits(config.artifacts_dir, record.session)
        committed = f", {counted(len(made.commits), 'git commit')}" if made else ""
        lost = _not_in_history(config, tuple(made.commits.values())[-1:]) if made else ""
        yield f"accepted changes: {_fate(record, config)}{committed}{lost}"
    if record.intent:
        yield f"intent: {plain(record.intent)}"
    if record.models:
        spent = record.spent
        price = cost(spent.cost_usd) or ("unknown cost" if spent.unpriced else "$0")
        tokens = f"{spent.usage.total_tokens:,} tokens"
        yield f"model: {plain(models_of(record))}; {counted(spent.requests, 'request')}, {tokens}, {price}"


def _row(one: ProposalRecord) -> tuple[str, ...]:
    proposal = one.proposal
    return (
        proposal.proposal_id,
        str(proposal.round),
        paint(plain(proposal.src), "name"),
        paint(one.status, STATUS_ROLES[one.status]),
        _votes(one),
        plain(proposal.title or proposal.intent),
        plain(", ".join(proposal.files)),
    )


def _votes(one: ProposalRecord) -> str:
    latest = {vote.evaluator: vote for vote in one.evaluations}.values()
    decisions = [vote.decision for vote in latest if not vote.is_arbiter]
    said = f"{decisions.count('accept')}/{decisions.count('accept') + decisions.count('reject')}" if decisions else "-"
    return f"{said} {one.commit.consensus_type}" if one.commit else said


# --- the events of a session, one line each ----------------------------------------------------

_KIND_WIDTH = 10


def line_of(event: Said) -> str:
    """Give an event as a line: its kind, and what is worth knowing of it."""
    kind = event.topic.rpartition("/")[2]
    try:
        told = _TOLD.get(kind, _as_it_is)(event.payload)
    except (KeyError, TypeError, AttributeError):  # of another version, or cut for the bus
        told = _as_it_is(event.payload)
    return f"{paint(kind.ljust(_KIND_WIDTH), 'dim')}  {one_line(told)}"


def _as_it_is(payload: Any) -> str:
    return msgspec.json.encode(payload).decode()


def _started(payload: Mapping[str, Any]) -> str:
    agents = payload.get("agents", ())
    return ", ".join(agents) if isinstance(agents, list) else _as_it_is(payload)


def _proposed(payload: Mapping[str, Any]) -> str:
    proposal = payload["proposal"]
    return f"{proposal['proposal_id']} {proposal['src']}: {proposal.get('title') or proposal['intent']}"


def _gated(payload: Mapping[str, Any]) -> str:
    report = payload["report"]
    failed = [rung for rung in report["rungs"] if rung["status"] == "failed"]
    why = " ".join(f"{rung.get('code', rung['rung'])} {rung.get('message', '')}" for rung in failed)
    return f"{payload['proposal_id']} {'passed' if report['passed'] else f'refused: {why}'}"


def _evaluated(payload: Mapping[str, Any]) -> str:
    vote = payload["evaluation"]
    return f"{vote['proposal_id']} {vote['evaluator']}: {vote['decision']}{_because(vote.get('reasoning'))}"


def _arbitrated(payload: Mapping[str, Any]) -> str:
    vote = payload["evaluation"]
    count = f"{payload['accepts']} for, {payload['rejects']} against"
    return (
        f"{payload['proposal_id']} {payload['arbiter']} ({count}): {vote['decision']}{_because(vote.get('reasoning'))}"
    )


def _committed(payload: Mapping[str, Any]) -> str:
    commit = payload["commit"]
    return f"{commit['proposal_id']} {commit['commit_id']}: {commit['consensus_type']}, {', '.join(commit['files_modified'])}"


def _finished(payload: Mapping[str, Any]) -> str:
    ending = payload["ending"]
    return f"{ending['reason'].replace('_', ' ')}{_because(ending.get('detail'))}"


def _because(reason: object) -> str:
    return f": {reason}" if reason else ""


def _of(*keys: str) -> Callable[[Mapping[str, Any]], str]:
    """Tell the values of these keys, the last one as a reason."""

    def told(payload: Mapping[str, Any]) -> str:
        *first, last = (payload.get(key, "") for key in keys)
        return " ".join(str(value) for value in first) + _because(last)

    return told


_TOLD: dict[str, Callable[[Any], str]] = {
    "Started": _started,
    "Round": lambda payload: str(payload["round"]),
    "Proposed": _proposed,
    "Dropped": _of("agent", "count", "reason"),
    "Failed": _of("agent", "task", "reason"),
    "Gated": _gated,
    "Merged": lambda payload: f"{payload['proposal_id']} into {', '.join(payload['files'])}",
    "SentBack": _of("proposal_id", "reason"),
    "Evaluated": _evaluated,
    "Postponed": _of("proposal_id", "status", "reason"),
    "Arbitrated": _arbitrated,
    "Reviewed": _of("proposal_id", "verdict", "reason"),
    "Committed": _committed,
    "Rejected": _of("proposal_id", "status", "reason"),
    "Finished": _finished,
}


def lines_of(said: tuple[Said, ...]) -> Iterator[str]:
    """Give all of them."""
    return map(line_of, said)
