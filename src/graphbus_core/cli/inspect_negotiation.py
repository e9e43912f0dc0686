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
from graphbus_core.errors import NegotiationError, Place, UsageError, did_you_mean
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import GateReport, ProposalEvaluation, ProposalRecord, RungResult, Status
from graphbus_core.model.spending import format_usd
from graphbus_core.negotiation.apply import MadeCommits, load_commits
from graphbus_core.negotiation.commit_message import models_of
from graphbus_core.negotiation.freshness import describe_rule_votes
from graphbus_core.negotiation.transcript import list_sessions, load_transcript, sessions_dir
from graphbus_core.settings import find_root, load

_WIDE = 100
"""On a terminal with fewer columns, the list leaves out the names of files."""
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("accepted", "accept", "passed"), "good"),
    **dict.fromkeys(("rejected", "reject", "failed"), "bad"),
    **dict.fromkeys(("countered", "deferred", "counter", "defer"), "accent"),
    **dict.fromkeys(("superseded", "abstain", "not_run"), "dim"),
    "refused": "warn",
    "pending": "name",
}
"""Status, decision or result of a rung -> its colour."""
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
    **filters: Any,
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
    if (is_overview or is_transcript) and (proposal or any(filters.values())):
        option = "--sessions" if is_overview else "--transcript"
        raise UsageError(
            "GBE132", option=option, other="PROPOSAL or a filter", reason=f"{option} always shows everything"
        )
    root = find_root([Path.cwd()])
    config = ResolvedBuild(root=str(root), paths=(), settings=load(root))
    if is_overview:
        _print_sessions(config, as_json=as_json)
        return
    story = load_story(config, session)
    if is_transcript:
        _print_transcript(config, story.record.session, as_json=as_json)
        return
    git_commits = load_commits(config.artifacts_dir, story.record.session)
    if proposal:
        name = _require_known(story, "proposal", proposal.upper(), story.by_id)
        entry = story.by_id[name]
        document = {**_promotion_fields(story, "session_refusal"), **_proposal_as_document(story, entry, git_commits)}
        console.print_result(document, _proposal_lines(config, story, entry, git_commits), as_json=as_json)
        return
    chosen = [entry for entry in story.cases if _matches_filters(entry, **_check_filters(story, **filters))]
    if as_json:
        console.emit_json(_list_as_document(story, chosen, git_commits))
    else:
        _print_list(config, story, chosen, git_commits, has_diff=has_diff)


def _check_filters(story: Story, *, agent: str, path: str, **others: Any) -> dict[str, Any]:
    """Return the filters; raise GBE406 for an agent or a file that does not occur in the session."""
    path = path.removeprefix("./")
    if agent:
        _require_known(story, "agent", agent, story.record.agents)
    if path:
        _require_known(story, "proposal for", path, story.files)
    return {"agent": agent, "path": path, **others}


def _matches_filters(entry: ProposalStory, *, agent: str, path: str, number: int | None, status: Status | None) -> bool:
    """True if the proposal passes all filters; `""` and None are filters that everything passes."""
    participants = {"", entry.proposal.src, *(vote.agent for vote in entry.record.evaluations)}
    is_selected = number in {None, entry.proposal.round} and status in {None, entry.record.status}
    return is_selected and agent in participants and path in ("", *entry.proposal.files)


def _require_known(story: Story, kind: str, name: str, known: Iterable[str]) -> str:
    """Return the name if it is known; otherwise raise GBE406, in which `kind` says what has no such name."""
    names = sorted(known)
    if name in names:
        return name
    session, suggestion, listed = story.record.session, did_you_mean(name, names), ", ".join(names) or "none"
    raise NegotiationError("GBE406", session=session, kind=kind, name=name, suggestion=suggestion, known=listed)


def _describe_promotion(story: Story) -> str:
    """Return whether the accepted changes are in the source files, by the journal and the record of the session."""
    if story.fate == "undone":
        return "written, then undone"
    if story.fate or story.record.is_applied:
        return "written to the source files"
    return f"not written: {sanitize_line(story.record.refusal)}" if story.record.refusal else "not written"


def _promotion_fields(story: Story, refusal: str = "refusal") -> dict[str, object]:
    return {"session": story.record.session, "is_applied": story.record.is_applied, refusal: story.record.refusal}


def _remark_if_not_in_history(config: ResolvedBuild, commits: Sequence[str]) -> str:
    """Return a remark if the history of HEAD lacks one of these Git commits: it is on another branch, or was removed."""
    from graphbus_core.editing.git import Repository

    with suppress(NegotiationError):
        repository = Repository.find(config.root)
        if repository and not all(map(repository.is_on_head, commits)):
            return ", not in the history of HEAD"
    return ""


# --- all sessions, and the transcript of one ------------------------------------------------------


def _print_sessions(config: ResolvedBuild, *, as_json: bool) -> None:
    """Print a table of all sessions; a session that cannot be read is reported on stderr."""
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
        console.emit_json({"sessions": [_session_as_document(story) for story in stories]})
        return
    headers = ("SESSION", "ENDED BY", "PROPOSED", "ACCEPTED", "FILES", "COST", "CHANGES", "MODEL")
    console.print_table(headers, map(_session_row, stories), right=("PROPOSED", "ACCEPTED", "FILES", "COST"))


def _session_row(story: Story) -> tuple[str, ...]:
    """Return the cells of a session in the table of all sessions."""
    record, ending = story.record, story.record.negotiations.ending
    fate = _describe_promotion(story).partition(":")[0] if record.negotiations.completed else "-"
    counts = (ending.proposals_made, ending.commits_created, ending.files_modified)
    return (
        style(sanitize(record.session), "strong"),
        ending.reason.replace("_", " "),
        *map(str, counts),
        _format_cost(record.spent.cost_usd) or "-",
        fate.removesuffix(" to the source files"),
        sanitize(models_of(record)),
    )


def _session_as_document(story: Story) -> dict[str, object]:
    record = story.record
    fields = {name: getattr(record, name) for name in ("backend", "models", "intent", "spent")}
    return {**_promotion_fields(story), **fields, "fate": story.fate, "ending": record.negotiations.ending}


def _print_transcript(config: ResolvedBuild, session: str, *, as_json: bool) -> None:
    """Print the lines that were printed while the session ran; raise GBE405 if the transcript is damaged."""
    from graphbus_core.cli.live import NegotiationLines

    events, live = load_transcript(config.artifacts_dir, session), NegotiationLines()
    try:
        lines = [] if as_json else [line for event in events for line in live.lines(event.topic, event.payload)]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        where = Place(str(sessions_dir(config.artifacts_dir) / session))
        reason = f"its transcript is damaged ({error})"
        raise NegotiationError("GBE405", where=where, session=session, reason=reason) from error
    console.print_result({"session": session, "events": events}, lines, as_json=as_json)


# --- the proposals of a session ----------------------------------------------------------------


def _list_as_document(
    story: Story, chosen: Iterable[ProposalStory], git_commits: MadeCommits | None
) -> dict[str, object]:
    """Return the session and the chosen proposals for `--json`."""
    record = story.record
    return {
        **_session_as_document(story),
        **{name: getattr(record, name) for name in ("agents", "arbiters", "costs")},
        "git_commits": git_commits.commits if git_commits else {},
        "commits": record.negotiations.completed,
        "proposals": [entry.record for entry in chosen],
        "diffs": {entry.name: story.diffs_of(entry) for entry in chosen},
    }


def _print_list(
    config: ResolvedBuild,
    story: Story,
    chosen: Sequence[ProposalStory],
    git_commits: MadeCommits | None,
    *,
    has_diff: bool,
) -> None:
    """Print the session, its chosen proposals as a table, with `has_diff` their diffs, and further commands to use."""
    console.print_lines(_session_lines(config, story, git_commits))
    console.print_line()
    if not chosen:
        console.print_line("No proposal to show.")
        return
    headers = ("ID", "ROUND", "AGENT", "STATUS", "VOTES", "WHAT", "FILES")
    shown = len(headers) - (0 < terminal_width() < _WIDE)  # a narrow terminal has no room for the files
    console.print_table(headers[:shown], [_proposal_row(entry)[:shown] for entry in chosen], right=("ROUND",))
    for entry in chosen if has_diff else ():
        console.print_lines(_change_lines(story, entry, f"{entry.name}  {sanitize(entry.title)}"))
    others = [name for name in list_sessions(config.artifacts_dir) if name != story.record.session]
    console.print_note()
    console.print_note(style(f"One proposal in full: graphbus inspect-negotiation {chosen[0].name}", "dim"))
    if others:
        console.print_note(style(f"Other sessions: {', '.join(others)}", "dim"))


def _session_lines(config: ResolvedBuild, story: Story, git_commits: MadeCommits | None) -> Iterator[str]:
    """Yield the outcome of the session, whether its changes were written, its intent, and its model with the cost."""
    record, ending, spent = story.record, story.record.negotiations.ending, story.record.spent
    detail = f" ({sanitize(ending.detail)})" if ending.detail else ""
    yield (
        f"{style(record.session, 'strong')}  {ending.proposals_made} proposed, {ending.commits_created} accepted, "
        f"{pluralize(ending.files_modified, 'file')}, {pluralize(ending.rounds_executed, 'round')}; "
        f"ended by {ending.reason.replace('_', ' ')}{detail}"
    )
    if record.negotiations.completed:
        committed = f", {pluralize(len(git_commits.commits), 'git commit')}" if git_commits else ""
        lost = _remark_if_not_in_history(config, tuple(git_commits.commits.values())[-1:]) if git_commits else ""
        yield f"accepted changes: {_describe_promotion(story)}{committed}{lost}"
    if record.intent:
        yield f"intent: {sanitize(record.intent)}"
    if record.models:
        price = _format_cost(spent.cost_usd) or ("unknown cost" if spent.unpriced else "$0")
        tokens = f"{spent.usage.total_tokens:,} tokens"
        asked = pluralize(spent.requests, "request")
        asked += f" ({pluralize(spent.unusable, 'unusable answer')})" if spent.unusable else ""
        yield f"model: {sanitize(models_of(record))}; {asked}, {tokens}, {price}"
    if describe_rule_votes(record.models):
        yield describe_rule_votes(record.models)


def _proposal_row(entry: ProposalStory) -> tuple[str, ...]:
    """Return the cells of a proposal in the list; votes are accepts out of accepts and rejects, `-` without voters."""
    proposal, commit = entry.proposal, entry.record.commit
    accepts, has_voters = entry.count("accept"), any(not vote.is_arbiter for vote in entry.votes)
    tally = f"{accepts}/{accepts + entry.count('reject')}" if has_voters else "-"
    return (
        entry.name,
        str(proposal.round),
        style(sanitize(proposal.src), "name"),
        style(entry.record.status, _ROLES[entry.record.status]),
        f"{tally} {commit.consensus_type}" if commit else tally,
        sanitize(entry.title),
        sanitize(", ".join(proposal.files)),
    )


# --- one proposal ------------------------------------------------------------------------------


def _proposal_as_document(story: Story, entry: ProposalStory, git_commits: MadeCommits | None) -> dict[str, Any]:
    commit = git_commits.commits.get(entry.name, "") if git_commits else ""
    facts = {"git_commit": commit, "cost_usd": story.record.costs.get(entry.name), "diffs": story.diffs_of(entry)}
    return {**facts, **msgspec.to_builtins(entry.record)}


def _proposal_lines(
    config: ResolvedBuild, story: Story, entry: ProposalStory, git_commits: MadeCommits | None
) -> Iterator[str]:
    """Yield one proposal in full: facts, diff, earlier attempts, gate, votes, review and outcome."""
    record = entry.record
    yield f"{style(entry.name, 'strong')}  {style(record.status, _ROLES[record.status])}  {sanitize(entry.title)}"
    for label, value in _proposal_facts(story, entry).items():
        if value:
            yield from console.labelled_lines(label, sanitize(value), 12)
    yield from _change_lines(story, entry)
    sections = {
        "Earlier attempts": (
            f"{style('refused', 'bad')}  {sanitize(_failures_text(each))}"
            for each in entry.reports[:-1]
            if not each.passed
        ),
        "Gate": (_rung_line(rung) for rung in (record.gate.rungs if record.gate else ())),
        "Removed": map(sanitize, record.gate.removed if record.gate else ()),
        "Votes": _vote_lines(record.evaluations, describe_rule_votes(story.record.models)),
        "Review": (sanitize(step.text) for step in entry.steps if step.text.startswith("A person")),
        "Outcome": _outcome_lines(config, story, record, git_commits),
    }
    for name, lines in sections.items():
        found = [f"  {line}" for line in lines]
        if found:
            yield from _section_lines(name, found)


def _section_lines(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", style(title, "strong"))
    yield from lines


def _proposal_facts(story: Story, entry: ProposalStory) -> dict[str, str]:
    """Return label -> text of each fact about a proposal; empty for what it lacks."""
    proposal, gate = entry.proposal, entry.record.gate
    contracts = proposal.schema_changes or (gate.schema_changes if gate else ())
    return {
        "session": f"{story.record.session}, round {proposal.round}",
        "by": proposal.src,
        "to": proposal.dst or "",
        "affects": ", ".join(proposal.affects),
        "intent": proposal.intent,
        "fixes": proposal.finding,
        "why": proposal.reason,
        "contracts": ", ".join(change.method for change in contracts),
        "needs": ", ".join(proposal.dependencies),
        "counters": proposal.parent or "",
        "countered by": ", ".join(story.counters(entry.name)),
        "cost": _format_cost(story.record.costs.get(entry.name)),
    }


def _format_cost(usd: float | None) -> str:
    """Return an amount as text; empty for zero and for an unknown amount."""
    return format_usd(usd) if usd else ""


def _change_lines(story: Story, entry: ProposalStory, title: str = "") -> Iterator[str]:
    """Yield the diff that the voters saw, or the edits if there is none; then the committed diff, if that is another one."""
    diffs, commit = story.diffs_of(entry), entry.record.commit
    found = diffs.values() if diffs else map(diff_of, entry.proposal.code_changes)
    heading = "Change" if diffs else "Edits as proposed; line numbers count from the edited text"
    yield from _section_lines(title or heading, _diff_lines(found))
    if commit and commit.resolution != diffs:
        yield from _section_lines("Change as committed, after other changes", _diff_lines(commit.resolution.values()))


def _diff_lines(diffs: Iterable[str]) -> Iterator[str]:
    return console.diff_lines("\n".join(diff.rstrip("\n") for diff in diffs))


def _rung_line(rung: RungResult) -> str:
    """Return the line of one rung: name, result, code, message and place."""
    status = rung.status.replace("_", " ")
    place = f"({rung.path}{f':{rung.line}' if rung.line else ''})" if rung.path else ""
    detail = " ".join(filter(None, (rung.code, rung.message, place)))
    gap = " " * (len("not run") - len(status)) if detail else ""
    name = f"{style(rung.rung, 'strong')} {RUNGS.get(rung.rung, ''):<{_RUNG_WIDTH}}"
    return f"{name}  {style(status, _ROLES[rung.status])}{gap}  {sanitize(detail)}".rstrip()


def _failures_text(report: GateReport) -> str:
    """Return code and message of each rung that refused the change, separated by semicolons."""
    failed = (rung for rung in report.rungs if rung.status == "failed")
    return "; ".join(f"{rung.code or rung.rung} {rung.message}" for rung in failed)


def _vote_lines(votes: Sequence[ProposalEvaluation], meaning: str) -> Iterator[str]:
    """Yield what the votes prove, if `meaning` says so, then each vote.

    A vote has its evaluator, decision, confidence and reason; then its impact, evidence and suggestions.
    """
    if votes and meaning:
        yield style(meaning, "dim")
    names = [sanitize(vote.evaluator) for vote in votes]
    for name, vote in zip(names, votes, strict=True):
        sure = f" ({vote.confidence:.0%} sure)" if vote.confidence < 1 else ""
        decision = style(vote.decision, _ROLES[vote.decision])
        head = f"{style(name.ljust(max(map(len, names))), 'name')}  {decision}{sure}"
        yield f"{head}: {sanitize(vote.reasoning)}" if vote.reasoning else head
        yield from (f"    {line}" for line in (*_impact_lines(vote), *_evidence_lines(vote), *_suggestion_lines(vote)))


def _impact_lines(vote: ProposalEvaluation) -> Iterator[str]:
    """Yield the impact that a voter expects, if it is more than a low risk."""
    impact = vote.impact_assessment
    expected = ["breaks contracts"] if impact.breaks_contracts else []
    expected += [f"{impact.estimated_risk} risk"] if impact.estimated_risk != "low" else []
    expected += [f"affects {', '.join(impact.affects_dependencies)}"] if impact.affects_dependencies else []
    if expected:
        yield f"expects: {sanitize(', '.join(expected))}"


def _evidence_lines(vote: ProposalEvaluation) -> Iterator[str]:
    """Yield the evidence of a vote, and its concerns that are not evidence."""
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


def _suggestion_lines(vote: ProposalEvaluation) -> Iterator[str]:
    yield from (f"suggestion: {sanitize(suggestion)}" for suggestion in vote.suggestions)
    counter = vote.counter_proposal
    if counter:
        yield f"counter-proposal: {sanitize(counter.title or counter.intent)}"


def _outcome_lines(
    config: ResolvedBuild, story: Story, one: ProposalRecord, git_commits: MadeCommits | None
) -> Iterator[str]:
    """Yield the status and reason of a proposal that was not accepted, or else its commit and whether it was written."""
    commit = one.commit
    if commit is None:
        yield f"{one.status}: {sanitize(one.refusal)}" if one.refusal else one.status
        return
    voters = f" ({sanitize(', '.join(commit.evaluators))})" if commit.evaluators else ""
    outcome = (
        f"{commit.commit_id}: {commit.consensus_type}{voters}, changed {sanitize(', '.join(commit.files_modified))}"
    )
    yield from wrap_lines("", outcome, 2, outer=2)
    committed = git_commits.commits.get(commit.proposal_id, "") if git_commits else ""
    if git_commits and committed:
        where = f" on {git_commits.branch.removeprefix('refs/heads/')}" if git_commits.branch else ""
        yield sanitize(f"git commit {committed}{where}{_remark_if_not_in_history(config, (committed,))}")
    yield _describe_promotion(story)
