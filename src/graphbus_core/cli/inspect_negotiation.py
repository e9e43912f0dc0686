"""`graphbus inspect-negotiation`: show proposals, votes, arbitration and commits of a session, or list all sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from graphbus_core.cli import console
from graphbus_core.cli.console import Role, pluralize, sanitize, sanitize_line, style, terminal_width, wrap_lines
from graphbus_core.cli.report.story import ProposalStory, Story, diff_of, load_story
from graphbus_core.editing.rungs.codes import RUNGS
from graphbus_core.errors import NegotiationError, UsageError, did_you_mean
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import GateReport, ProposalEvaluation, ProposalRecord, RungResult, Status
from graphbus_core.model.spending import format_usd
from graphbus_core.negotiation.apply import MadeCommits, load_commits
from graphbus_core.negotiation.commit_message import models_of
from graphbus_core.negotiation.transcript import list_sessions, load_transcript
from graphbus_core.settings import find_root, load

_WIDE = 100
"""From so many columns on, a list has room for the names of files."""
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("accepted", "accept", "passed"), "good"),
    **dict.fromkeys(("rejected", "reject", "failed"), "bad"),
    **dict.fromkeys(("countered", "deferred", "counter", "defer"), "accent"),
    **dict.fromkeys(("superseded", "abstain", "not_run"), "dim"),
    "refused": "warn",
    "pending": "name",
}
"""Status, decision or result of a rung -> how it is painted."""
_RUNG_WIDTH = max(map(len, RUNGS.values()))


@click.command("inspect-negotiation", short_help="Show the proposals, votes and commits of a session.")
@click.argument("proposal", metavar="[PROPOSAL]", default="")
@click.option("--session", default="", metavar="SESSION", help="The session, e.g. S001 (the last one).")
@click.option("--agent", default="", metavar="AGENT", help="Show only what this agent proposed or voted on.")
@click.option("--file", "path", default="", metavar="PATH", help="Show only proposals that change this file.")
@click.option("--round", "number", type=click.IntRange(min=1), metavar="N", help="Show only proposals of this round.")
@click.option("--status", type=click.Choice(get_args(Status)), help="Show only proposals with this status.")
@click.option("--diff", "has_diff", is_flag=True, help="Show the diff of each proposal.")
@click.option("--transcript", "is_transcript", is_flag=True, help="Show the session as it was printed while it ran.")
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
    """List the proposals of a session, or show one PROPOSAL in full: reasons, diff, gate, votes, arbitration and commit.

    `graphbus report` writes a session as an HTML page; `graphbus why` starts from a line of code.

    Exit status: 0 done; 2 wrong usage; 5 there is no such session, proposal or agent.

    \b
    Examples:
      graphbus inspect-negotiation
      graphbus inspect-negotiation P001
      graphbus inspect-negotiation --agent OrderProcessor --status rejected --diff
      graphbus inspect-negotiation --session S001 --json
      graphbus inspect-negotiation --sessions
    """
    if (is_overview or is_transcript) and (proposal or any(wanted.values())):
        option = "--sessions" if is_overview else "--transcript"
        raise UsageError("GBE132", option=option, other="PROPOSAL or a filter", reason="it always shows everything")
    root = find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(), settings=load(root))
    if is_overview:
        _show_sessions(config, as_json=as_json)
        return
    story = load_story(config, session)
    if is_transcript:
        _show_transcript(config, story.record.session, as_json=as_json)
        return
    made = load_commits(config.artifacts_dir, story.record.session)
    if proposal:
        name = _known(story, "proposal", proposal.upper(), story.by_name)
        case = story.by_name[name]
        document = {**_applied(story, "session_refusal"), **_document(story, case, made)}
        console.print_result(document, _whole(config, story, case, made), as_json=as_json)
        return
    chosen = [case for case in story.cases if _is_wanted(case, **_checked(story, **wanted))]
    if as_json:
        console.emit_json(_listed(story, chosen, made))
    else:
        _show_list(config, story, chosen, made, has_diff=has_diff)


def _checked(story: Story, *, agent: str, path: str, **others: Any) -> dict[str, Any]:
    """Return the filters; an agent or a file that the session does not contain is refused."""
    path = path.removeprefix("./")
    if agent:
        _known(story, "agent", agent, story.record.agents)
    if path:
        _known(story, "proposal for", path, story.files)
    return {"agent": agent, "path": path, **others}


def _is_wanted(case: ProposalStory, *, agent: str, path: str, number: int | None, status: Status | None) -> bool:
    has_part = {"", case.proposal.src, *(vote.agent for vote in case.record.evaluations)}
    is_right = number in {None, case.proposal.round} and status in {None, case.record.status}
    return is_right and agent in has_part and path in ("", *case.proposal.files)


def _known(story: Story, kind: str, name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if name in names:
        return name
    session, suggestion, listed = story.record.session, did_you_mean(name, names), ", ".join(names) or "none"
    raise NegotiationError("GBE406", session=session, kind=kind, name=name, suggestion=suggestion, known=listed)


def _fate(story: Story) -> str:
    """Say whether the accepted changes are in the source files, by the record and the journal."""
    if story.fate == "undone":
        return "written, then undone"
    if story.fate or story.record.is_applied:
        return "written to the source files"
    return f"not written: {sanitize_line(story.record.refusal)}" if story.record.refusal else "not written"


def _applied(story: Story, refusal: str = "refusal") -> dict[str, object]:
    return {"session": story.record.session, "is_applied": story.record.is_applied, refusal: story.record.refusal}


def _not_in_history(config: ResolvedBuild, commits: Sequence[str]) -> str:
    """Return a remark if the history of HEAD does not contain these commits: reverted, or on another branch."""
    from graphbus_core.editing.git import Repository

    with suppress(NegotiationError):
        repository = Repository.find(config.root)
        if repository and not all(map(repository.is_on_head, commits)):
            return ", not in the history of HEAD"
    return ""


# --- all sessions, and one as it went ------------------------------------------------------------


def _show_sessions(config: ResolvedBuild, *, as_json: bool) -> None:
    names = list_sessions(config.artifacts_dir)
    if not names:
        raise NegotiationError("GBE403", folder=config.artifacts_dir)
    stories: list[Story] = []
    for name in names:
        try:
            stories.append(load_story(config, name, has_transcript=False))
        except NegotiationError as refused:
            console.print_error(refused)
    if as_json:
        console.emit_json({"sessions": [_summed(story) for story in stories]})
        return
    headers = ("SESSION", "ENDED BY", "PROPOSED", "ACCEPTED", "FILES", "COST", "CHANGES", "MODEL")
    console.print_table(headers, map(_session_row, stories), right=("PROPOSED", "ACCEPTED", "FILES", "COST"))


def _session_row(story: Story) -> tuple[str, ...]:
    record, ending = story.record, story.record.negotiations.ending
    fate = _fate(story).partition(":")[0] if record.negotiations.completed else "-"
    counts = (ending.proposals_made, ending.commits_created, ending.files_modified)
    return (
        style(sanitize(record.session), "strong"),
        ending.reason.replace("_", " "),
        *map(str, counts),
        _cost(record.spent.cost_usd) or "-",
        fate.removesuffix(" to the source files"),
        sanitize(models_of(record)),
    )


def _summed(story: Story) -> dict[str, object]:
    record = story.record
    told = {name: getattr(record, name) for name in ("backend", "models", "intent", "spent")}
    return {**_applied(story), **told, "fate": story.fate, "ending": record.negotiations.ending}


def _show_transcript(config: ResolvedBuild, session: str, *, as_json: bool) -> None:
    from graphbus_core.cli.live import NegotiationLines

    said, live = load_transcript(config.artifacts_dir, session), NegotiationLines()
    try:
        lines = [] if as_json else [line for event in said for line in live.lines(event.topic, event.payload)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise NegotiationError("GBE405", session=session, reason=f"its transcript is damaged ({error})") from error
    console.print_result({"session": session, "events": said}, lines, as_json=as_json)


# --- the proposals of a session ----------------------------------------------------------------


def _listed(story: Story, chosen: Iterable[ProposalStory], made: MadeCommits | None) -> dict[str, object]:
    record = story.record
    return {
        **_summed(story),
        **{name: getattr(record, name) for name in ("agents", "arbiters", "costs")},
        "git_commits": made.commits if made else {},
        "commits": record.negotiations.completed,
        "proposals": [case.record for case in chosen],
    }


def _show_list(
    config: ResolvedBuild, story: Story, chosen: Sequence[ProposalStory], made: MadeCommits | None, *, has_diff: bool
) -> None:
    console.print_lines(_head(config, story, made))
    console.print_line()
    if not chosen:
        console.print_line("No proposal to show.")
        return
    headers = ("ID", "ROUND", "AGENT", "STATUS", "VOTES", "WHAT", "FILES")
    shown = len(headers) - (0 < terminal_width() < _WIDE)  # a narrow terminal has no room for the files
    console.print_table(headers[:shown], [_row(case)[:shown] for case in chosen], right=("ROUND",))
    for case in chosen if has_diff else ():
        console.print_lines(_section(f"{case.name}  {sanitize(case.title)}", _diff_lines(case.record)))
    others = [name for name in list_sessions(config.artifacts_dir) if name != story.record.session]
    console.print_note()
    console.print_note(style(f"One whole: graphbus inspect-negotiation {chosen[0].name}", "dim"))
    if others:
        console.print_note(style(f"Other sessions: {', '.join(others)}", "dim"))


def _head(config: ResolvedBuild, story: Story, made: MadeCommits | None) -> Iterator[str]:
    record, ending, spent = story.record, story.record.negotiations.ending, story.record.spent
    detail = f" ({sanitize(ending.detail)})" if ending.detail else ""
    yield (
        f"{style(record.session, 'strong')}  {ending.proposals_made} proposed, {ending.commits_created} accepted, "
        f"{pluralize(ending.files_modified, 'file')}, {pluralize(ending.rounds_executed, 'round')}; "
        f"ended by {ending.reason.replace('_', ' ')}{detail}"
    )
    if record.negotiations.completed:
        committed = f", {pluralize(len(made.commits), 'git commit')}" if made else ""
        lost = _not_in_history(config, tuple(made.commits.values())[-1:]) if made else ""
        yield f"accepted changes: {_fate(story)}{committed}{lost}"
    if record.intent:
        yield f"intent: {sanitize(record.intent)}"
    if record.models:
        price = _cost(spent.cost_usd) or ("unknown cost" if spent.unpriced else "$0")
        tokens = f"{spent.usage.total_tokens:,} tokens"
        yield f"model: {sanitize(models_of(record))}; {pluralize(spent.requests, 'request')}, {tokens}, {price}"


def _row(case: ProposalStory) -> tuple[str, ...]:
    proposal, commit = case.proposal, case.record.commit
    accepts, has_voters = case.count("accept"), any(not vote.is_arbiter for vote in case.votes)
    tally = f"{accepts}/{accepts + case.count('reject')}" if has_voters else "-"
    return (
        case.name,
        str(proposal.round),
        style(sanitize(proposal.src), "name"),
        style(case.record.status, _ROLES[case.record.status]),
        f"{tally} {commit.consensus_type}" if commit else tally,
        sanitize(case.title),
        sanitize(", ".join(proposal.files)),
    )


# --- one proposal ------------------------------------------------------------------------------


def _document(story: Story, case: ProposalStory, made: MadeCommits | None) -> dict[str, Any]:
    commit = made.commits.get(case.name, "") if made else ""
    return {"git_commit": commit, "cost_usd": story.record.costs.get(case.name), **msgspec.to_builtins(case.record)}


def _whole(config: ResolvedBuild, story: Story, case: ProposalStory, made: MadeCommits | None) -> Iterator[str]:
    """Yield one proposal in full: what it is and why, what it changes, and its outcome."""
    record = case.record
    yield f"{style(case.name, 'strong')}  {style(record.status, _ROLES[record.status])}  {sanitize(case.title)}"
    for label, value in _facts(story, case).items():
        if value:
            yield from console.labelled_lines(label, sanitize(value), 12)
    yield from _section("Change", _diff_lines(record))
    sections = {
        "Earlier attempts": (f"{style('refused', 'bad')}  {sanitize(_failures(each))}" for each in case.reports[:-1]),
        "Gate": (_rung_line(rung) for rung in (record.gate.rungs if record.gate else ())),
        "Votes": _votes(record.evaluations),
        "Review": (sanitize(step.text) for step in case.steps if step.text.startswith("A person")),
        "Outcome": _outcome(config, story, record, made),
    }
    for name, lines in sections.items():
        found = [f"  {line}" for line in lines]
        if found:
            yield from _section(name, found)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", style(title, "strong"))
    yield from lines


def _facts(story: Story, case: ProposalStory) -> dict[str, str]:
    proposal, gate = case.proposal, case.record.gate
    contracts = proposal.schema_changes or (gate.schema_changes if gate else ())
    return {
        "session": f"{story.record.session}, round {proposal.round}",
        "by": proposal.src,
        "to": proposal.dst or "",
        "affects": ", ".join(proposal.affects),
        "intent": proposal.intent,
        "mends": proposal.finding,
        "why": proposal.reason,
        "contracts": ", ".join(change.method for change in contracts),
        "needs": ", ".join(proposal.dependencies),
        "counters": proposal.parent or "",
        "countered by": ", ".join(story.counters(case.name)),
        "cost": _cost(story.record.costs.get(case.name)),
    }


def _cost(usd: float | None) -> str:
    """Return an amount as text; empty for zero and for an unknown amount."""
    return format_usd(usd) if usd else ""


def _diff_lines(one: ProposalRecord) -> Iterator[str]:
    """Yield the diffs that were committed, otherwise those of the proposed changes."""
    found = one.commit.resolution.values() if one.commit else map(diff_of, one.proposal.code_changes)
    return console.diff_lines("\n".join(found).rstrip())


def _rung_line(rung: RungResult) -> str:
    """Return the line of one rung: name, result, code, message and place."""
    status = rung.status.replace("_", " ")
    place = f"({rung.path}{f':{rung.line}' if rung.line else ''})" if rung.path else ""
    detail = " ".join(filter(None, (rung.code, rung.message, place)))
    gap = " " * (len("not run") - len(status)) if detail else ""
    name = f"{style(rung.rung, 'strong')} {RUNGS.get(rung.rung, ''):<{_RUNG_WIDTH}}"
    return f"{name}  {style(status, _ROLES[rung.status])}{gap}  {sanitize(detail)}".rstrip()


def _failures(report: GateReport) -> str:
    failed = (rung for rung in report.rungs if rung.status == "failed")
    return "; ".join(f"{rung.code or rung.rung} {rung.message}" for rung in failed)


def _votes(votes: Sequence[ProposalEvaluation]) -> Iterator[str]:
    """Yield each vote: evaluator, decision, confidence and reason; then its impact, evidence and suggestions."""
    names = [sanitize(vote.evaluator) for vote in votes]
    for name, vote in zip(names, votes, strict=True):
        sure = f" ({vote.confidence:.0%} sure)" if vote.confidence < 1 else ""
        decision = style(vote.decision, _ROLES[vote.decision])
        head = f"{style(name.ljust(max(map(len, names))), 'name')}  {decision}{sure}"
        yield f"{head}: {sanitize(vote.reasoning)}" if vote.reasoning else head
        yield from (f"    {line}" for line in (*_impact(vote), *_evidence(vote), *_wishes(vote)))


def _impact(vote: ProposalEvaluation) -> Iterator[str]:
    impact = vote.impact_assessment
    expected = ["breaks contracts"] if impact.breaks_contracts else []
    expected += [f"{impact.estimated_risk} risk"] if impact.estimated_risk != "low" else []
    expected += [f"affects {', '.join(impact.affects_dependencies)}"] if impact.affects_dependencies else []
    if expected:
        yield f"expects: {sanitize(', '.join(expected))}"


def _evidence(vote: ProposalEvaluation) -> Iterator[str]:
    for evidence in vote.evidence:
        head = f"{evidence.kind} evidence, {'verified' if evidence.is_verified else 'unsubstantiated'}:"
        first, *more = evidence.text.strip().split("\n")
        yield head if more else f"{head} {sanitize(first)}"
        if more:  # evidence that is a test has several lines of code
            yield from (f"  {sanitize(line)}".rstrip() for line in (first, *more))
        if evidence.detail:
            yield f"  {sanitize_line(evidence.detail)}"
    known = {evidence.text for evidence in vote.evidence}
    yield from (f"concern: {sanitize(concern)}" for concern in vote.concerns if concern not in known)


def _wishes(vote: ProposalEvaluation) -> Iterator[str]:
    yield from (f"suggestion: {sanitize(suggestion)}" for suggestion in vote.suggestions)
    counter = vote.counter_proposal
    if counter:
        yield f"counter-proposal: {sanitize(counter.title or counter.intent)}"


def _outcome(config: ResolvedBuild, story: Story, one: ProposalRecord, made: MadeCommits | None) -> Iterator[str]:
    commit = one.commit
    if commit is None:
        yield f"{one.status}: {sanitize(one.refusal)}" if one.refusal else one.status
        return
    voters = f" ({sanitize(', '.join(commit.evaluators))})" if commit.evaluators else ""
    told = f"{commit.commit_id}: {commit.consensus_type}{voters}, changed {sanitize(', '.join(commit.files_modified))}"
    yield from wrap_lines("", told, 2, outer=2)
    committed = made.commits.get(commit.proposal_id, "") if made else ""
    if made and committed:
        where = f" on {made.branch.removeprefix('refs/heads/')}" if made.branch else ""
        yield sanitize(f"git commit {committed}{where}{_not_in_history(config, (committed,))}")
    yield _fate(story)
