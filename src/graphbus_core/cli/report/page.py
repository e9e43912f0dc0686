"""Renders the report: converts a session to values of the template `page.html`. Functions `..._values` return such values."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from graphbus_core.cli.console import pluralize
from graphbus_core.cli.report.graph import graph_values, proposal_links
from graphbus_core.cli.report.story import VOTES, ProposalStep, ProposalStory, Story, diff_of
from graphbus_core.cli.report.template import Value, Values, fill_template
from graphbus_core.editing.rungs.codes import RUNGS
from graphbus_core.model.proposals import (
    CodeChange,
    Consensus,
    GateReport,
    ProposalEvaluation,
    ProposalRecord,
    RungResult,
    SchemaChange,
    TerminationReason,
    VoteDecision,
)
from graphbus_core.model.spending import Spend, format_usd

_HERE = Path(__file__).parent
_ENDINGS: dict[TerminationReason, str] = {
    "convergence": "Converged after {rounds}",
    "max_rounds": "Stopped after {rounds}, the limit",
    "file_limit": "Stopped after {rounds}: the limit of changed files was reached",
    "manual": "Stopped by hand after {rounds}",
    "budget": "Stopped after {rounds}: the budget is used up",
    "oscillation": "Stopped after {rounds}: the proposals went in circles",
    "error": "Stopped by an error after {rounds}",
}
_CONSENSUS: dict[Consensus, str] = {
    "unanimous": "all agents agreed",
    "majority": "most agents agreed",
    "arbiter": "the arbiter decided",
    "override": "a person decided",
}
_LETTERS: dict[VoteDecision, str] = {"accept": "A", "reject": "R", "counter": "C", "defer": "D", "abstain": "–"}
_RESULTS = {"passed": "Passed", "failed": "Refused", "not_run": "Not run"}
_MIN_USD = 0.00005


def render_page(story: Story) -> bytes:
    """Return the whole page in ASCII, so that every stream can encode it. The same session always gives the same bytes."""
    script = (_HERE / "behaviour.js").read_bytes()
    cases = [_proposal_values(story, case) for case in story.cases]
    values = {
        "script_digest": base64.b64encode(hashlib.sha256(script).digest()).decode(),
        "session": story.record.session,
        **_outcome_values(story),
        "rounds": [_round_values(story, number, cases) for number in story.rounds],
        **graph_values(story),
        "cases": cases,
        "case_count": pluralize(len(cases), "proposal"),
        "choices": list(_filter_values(story)),
        "voices": list(_vote_rows(story)),
        "decisions": [{"decision": decision, "letter": letter} for decision, letter in _LETTERS.items()],
        **_cost_values(story),
    }
    return f"{fill_template(_HERE / 'page.html', values)}\n".encode("ascii", "xmlcharrefreplace")


# --- the outcome -------------------------------------------------------------------------------


def _outcome_values(story: Story) -> Values:
    """Return the headline, key figures and changed files of the session."""
    record, ending = story.record, story.record.negotiations.ending
    proposals = pluralize(max(ending.proposals_made, len(story.cases)), "proposal")
    detail = f" ({ending.detail})" if ending.detail else ""
    reached = _ENDINGS[ending.reason].format(rounds=pluralize(ending.rounds_executed, "round"))
    return {
        "headline": f"{len(record.negotiations.completed)} of {proposals} accepted"
        if story.cases
        else "No agent made a proposal",
        "lead": f"{reached}{detail}. {story.outcome}.",
        "intent": record.intent,
        "refusal": record.refusal,
        "figures": [{"title": title, "value": value, "detail": detail} for title, value, detail in _key_figures(story)],
        "files": _changed_files(story),
    }


def _key_figures(story: Story) -> Iterator[tuple[str, str, str]]:
    """Yield title, value and detail of each key figure of the session."""
    record, tokens = story.record, story.record.spent.usage
    statuses = [case.record.status for case in story.cases]
    others = [f"{statuses.count(each)} {each}" for each in dict.fromkeys(statuses) if each != "accepted"]
    diffs = [diff for case in story.cases if case.record.commit for diff in diffs_of(case.record)]
    lines = f"{pluralize(_count_lines(diffs, '+'), 'line')} added, {_count_lines(diffs, '-')} removed"
    yield "Commits", str(len(record.negotiations.completed)), ", ".join(others) or "no others"
    yield "Files changed", str(record.negotiations.ending.files_modified), lines if diffs else "nothing was written"
    arbiters = f"arbiters: {', '.join(record.arbiters)}" if record.arbiters else "no arbiter"
    yield "Agents", str(len(record.agents)), arbiters
    if story.was_free:
        yield "Cost", "$0", "no model was asked"
    else:
        yield (
            "Cost",
            format_usd(record.spent.cost_usd),
            f"{tokens.input_tokens:,} tokens in, {tokens.output_tokens:,} out",
        )
    roles = ", ".join(f"{role}: {name}" for role, name in sorted(record.models.items()))
    models = list(dict.fromkeys(record.models.values())) or [record.backend.replace("rules", "Rules")]
    yield ("Models", models[0], roles) if len(models) > 1 else ("Model", models[0], "negotiated")


def _changed_files(story: Story) -> list[Values]:
    """Return every file that accepted proposals changed, with the number of lines added and removed."""
    changes: dict[str, list[tuple[ProposalStory, _FileDiff]]] = {}
    for case in story.cases:
        for diff in diffs_of(case.record) if case.record.commit else ():
            changes.setdefault(diff.path, []).append((case, diff))
    return [
        {
            "path": path,
            "added": _count_lines((diff for _, diff in own), "+"),
            "removed": _count_lines((diff for _, diff in own), "-"),
            "by": proposal_links(case for case, _ in own),
        }
        for path, own in sorted(changes.items())
    ]


def _count_lines(diffs: Iterable[_FileDiff], sign: str) -> int:
    """Return the number of lines with this sign in all the diffs."""
    return sum(diff.count_lines(sign) for diff in diffs)


def _round_values(story: Story, number: int, cases: list[Values]) -> Values:
    """Return the proposals and notes of a round; `cases` holds the values of all proposals."""
    return {
        "round": number,
        "in_round": [case for case in cases if case["round"] == number],
        "notes": [{"agent": note.agent, "text": note.text} for note in story.notes if note.round == number],
    }


# --- the proposals -----------------------------------------------------------------------------


def _filter_values(story: Story) -> Iterator[Values]:
    """Yield the filters for proposals. Agents and files are identified by numbers, because names may contain any character."""
    agents = {name for case in story.cases for name in case.concerned}
    statuses = dict.fromkeys(case.record.status for case in story.cases)
    options: dict[str, list[tuple[Value, Value]]] = {
        "agent": [(story.agents.index(name), name) for name in sorted(agents)],
        "file": list(enumerate(story.files)),
        "status": [(status, status.capitalize()) for status in statuses],
        "round": [(number, number) for number in sorted({case.proposal.round for case in story.cases})],
    }
    for name, pairs in options.items():
        values = [{"value": value, "text": text} for value, text in pairs]
        yield {"choice": name, "title": name.capitalize(), "options": values}


def _proposal_values(story: Story, case: ProposalStory) -> Values:
    """Return the values of one proposal for its section, the timeline and the filters."""
    proposal, record = case.proposal, case.record
    changes = record.commit.schema_changes if record.commit else proposal.schema_changes
    return {
        "name": case.name,
        "title": case.title,
        "anchor": case.anchor,
        "status": record.status,
        "status_name": record.status.capitalize(),
        "src": proposal.src,
        "round": proposal.round,
        "tally": _tally_text(case) if case.votes else "",
        "agent_keys": _join_indexes(story.agents, case.concerned),
        "concern_keys": _join_indexes(story.agents, (proposal.src, *case.affected)),
        "file_keys": _join_indexes(story.files, proposal.files),
        "stations": [step._asdict() for step in _timeline_steps(case)],
        "reason": proposal.reason,
        "facts": list(_proposal_facts(story, case)),
        "diffs": [_diff_values(diff) for diff in diffs_of(record, story.diffs_of(case))],
        "contract": [{"method": change.method, "sides": list(_changed_schemas(change))} for change in changes],
        "climbs": [
            _gate_values(report, number, len(case.reports)) for number, report in enumerate(case.reports, start=1)
        ],
        "votes": [_vote_values(vote) for vote in record.evaluations],
        "outcome": _outcome_text(story, case),
    }


def _join_indexes(known: tuple[str, ...], names: Iterable[str]) -> str:
    """Return the indexes of the names in `known`, separated by spaces; the script of the page compares these numbers."""
    return " ".join(str(known.index(name)) for name in names)


def _timeline_steps(case: ProposalStory) -> Iterator[ProposalStep]:
    """Yield the steps of a proposal in the timeline, from `Proposed` to its commit or status."""
    parent = case.proposal.parent
    yield ProposalStep(f"Proposed against {parent}" if parent else "Proposed")
    for step in case.steps:
        if step is VOTES:
            yield from _vote_steps(case)
        else:
            yield step
    commit = case.record.commit
    if commit:
        yield ProposalStep(f"Commit {commit.commit_id}: {_CONSENSUS[commit.consensus_type]}", "good")
    else:
        yield ProposalStep(case.record.status.capitalize(), "end")


def _vote_steps(case: ProposalStory) -> Iterator[ProposalStep]:
    """Yield a step with the numbers of votes, and a step for each arbiter."""
    if any(not vote.is_arbiter for vote in case.votes):
        yield ProposalStep(f"Votes: {_tally_text(case)}")
    yield from (ProposalStep(f"Arbiter {vote.agent}: {vote.decision}") for vote in case.votes if vote.is_arbiter)


def _tally_text(case: ProposalStory) -> str:
    """Return the votes as text: `2 accept, 1 reject`."""
    counts = ((decision, case.count(decision)) for decision in _LETTERS)
    return ", ".join(f"{count} {decision}" for decision, count in counts if count) or "none"


def _proposal_facts(story: Story, case: ProposalStory) -> Iterator[Values]:
    """Yield label, text and links of each fact about a proposal; facts without content are left out."""
    proposal, costs = case.proposal, story.record.costs
    facts: tuple[tuple[str, Value, Sequence[str]], ...] = (
        ("Proposed by", proposal.src, ()),
        ("To", proposal.dst, ()),
        ("Affects", ", ".join(proposal.affects), ()),
        ("Intent", proposal.intent, ()),
        ("Fixes", proposal.finding, ()),
        ("Priority", proposal.priority, ()),
        ("Needs", "", proposal.dependencies),
        ("Counters", "", [proposal.parent] if proposal.parent else ()),
        ("Countered by", "", story.counters(case.name)),
        ("Cost", format_usd(costs[case.name]) if case.name in costs else "", ()),
    )
    for label, text, names in facts:
        if text or names:
            yield {"label": label, "text": text or "", "links": [_link_values(story, name) for name in names]}


def _link_values(story: Story, name: str) -> Values:
    """Return a link to a proposal; its anchor is empty if the session has no proposal with this ID."""
    return {"name": name, "anchor": story.by_id[name].anchor if name in story.by_id else ""}


def _changed_schemas(change: SchemaChange) -> Iterator[Values]:
    """Yield the input and the output schema of a method before and after, those that differ."""
    sides = (
        ("input", change.input_schema_before, change.input_schema_after),
        ("output", change.output_schema_before, change.output_schema_after),
    )
    for side, before, after in sides:
        if before != after:
            texts = ("not declared" if schema is None else str(schema) for schema in (before, after))
            yield {"side": side, **dict(zip(("before", "after"), texts, strict=True))}


def _gate_values(report: GateReport, number: int, count: int) -> Values:
    """Return a gate report, which is the attempt `number` of `count` attempts at the gate."""
    caption = f"Attempt {number} of {count}: {'passed' if report.passed else 'refused'}"
    return {
        "number": number,
        "is_one_of_many": count > 1,
        "caption": caption if count > 1 else "The rungs",
        "rungs": [_rung_values(rung) for rung in report.rungs],
        "removed": [{"text": text} for text in report.removed],
    }


def _rung_values(rung: RungResult) -> Values:
    """Return one row of the table of a gate report."""
    place = f"{rung.path}:{rung.line}" if rung.path and rung.line else rung.path
    return {
        "rung": rung.rung,
        "rung_name": RUNGS.get(rung.rung, "").capitalize(),
        "result": rung.status,
        "result_name": _RESULTS[rung.status],
        "code": rung.code,
        "place": place,
        "message": rung.message or (None if place else "–"),
    }


def _vote_values(vote: ProposalEvaluation) -> Values:
    """Return one vote with its remarks and counter-proposal."""
    counter = vote.counter_proposal
    return {
        "evaluator": vote.agent,
        "is_arbiter": vote.is_arbiter,
        "decision": vote.decision,
        "decision_name": vote.decision.capitalize(),
        "circumstances": "".join(f" · {each}" for each in _vote_details(vote)),
        "reasoning": vote.reasoning,
        "remarks": list(_vote_remarks(vote)),
        "instead": (counter.title or counter.intent) if counter else "",
    }


def _vote_details(vote: ProposalEvaluation) -> Iterator[str]:
    """Yield the round of a vote, and its confidence and impact where they are not the defaults."""
    impact = vote.impact_assessment
    if vote.round:
        yield f"round {vote.round}"
    if vote.confidence != 1:
        yield f"confidence {vote.confidence:.0%}"
    if impact.estimated_risk != "low":
        yield f"{impact.estimated_risk} risk"
    if impact.breaks_contracts:
        yield "breaks a contract"
    if impact.affects_dependencies:
        yield f"touches {', '.join(impact.affects_dependencies)}"


def _vote_remarks(vote: ProposalEvaluation) -> Iterator[Values]:
    """Yield the evidence of a vote, its further concerns, and its suggestions."""
    for evidence in vote.evidence:
        label = f"Evidence ({evidence.kind}, {'verified: a veto' if evidence.is_verified else 'unsubstantiated'})"
        yield {"label": label, "text": evidence.text, "is_code": "\n" in evidence.text, "detail": evidence.detail}
    proven = {evidence.text for evidence in vote.evidence}
    remarks = [("Concern", text) for text in vote.concerns if text not in proven]
    for label, text in (*remarks, *(("Suggestion", text) for text in vote.suggestions)):
        yield {"label": label, "text": text, "is_code": False, "detail": ""}


def _outcome_text(story: Story, case: ProposalStory) -> str:
    """Return who accepted the proposal, and which files it changes, or why it was refused."""
    commit = case.record.commit
    if commit is None:
        return case.record.refusal
    voters = f" ({', '.join(commit.evaluators)})" if commit.evaluators else ""
    decision = f"{commit.commit_id}: {_CONSENSUS[commit.consensus_type]}{voters}"
    return f"{decision}. Changes {', '.join(commit.files_modified)}. {story.outcome}."


# --- votes and cost ----------------------------------------------------------------------------


def _vote_rows(story: Story) -> Iterator[Values]:
    """Yield a row for each agent that voted or proposed, with a cell for each proposal; nothing if no agent voted."""
    voters = {vote.agent for case in story.cases for vote in case.votes}
    proposers = {case.proposal.src for case in story.cases} if voters else set[str]()
    by_case = [{vote.agent: vote for vote in case.votes} for case in story.cases]
    for name in story.agents:
        if name in voters | proposers:
            votes = (own.get(name) for own in by_case)
            cells = [_vote_cell(case, name, vote) for case, vote in zip(story.cases, votes, strict=True)]
            yield {"agent": name, "cells": cells}


def _vote_cell(case: ProposalStory, name: str, vote: ProposalEvaluation | None) -> Values:
    """Return one cell of the table of votes: the letter of the vote, or whether the agent made the proposal itself."""
    if vote is None:
        return {"is_own": name == case.proposal.src, "decision": ""}
    sign = ("§" if vote.is_arbiter else "") + ("!" if any(evidence.is_verified for evidence in vote.evidence) else "")
    return {
        "is_own": False,
        "decision": vote.decision,
        "letter": f"{_LETTERS[vote.decision]}{sign}",
        "words": f"{name} on {case.name}: {vote.decision}{' as arbiter' if vote.is_arbiter else ''}",
    }


def _cost_values(story: Story) -> Values:
    """Return the totals of the session and the cost of each proposal."""
    spent = story.record.spent
    return {
        "was_free": story.was_free,
        "answered": pluralize(spent.calls, "question") if spent.calls else "",
        "amounts": [
            {"what": what, "amount": f"{amount:,}", "detail": detail} for what, amount, detail in _cost_rows(spent)
        ],
        "dollars": format_usd(spent.cost_usd),
        "unpriced": pluralize(spent.unpriced, "request") if spent.unpriced else "",
        "prices": list(_costs_by_proposal(story)),
    }


def _cost_rows(spent: Spend) -> Iterator[tuple[str, int, str]]:
    """Yield label, number and explanation of the questions, requests and tokens of a session."""
    usage = spent.usage
    cached = f"{spent.cached:,} of them answered from a cache or record on this machine"
    fresh = f"{usage.input_tokens - usage.cache_read_tokens:,} new"
    yield "Questions answered", spent.calls, "by rules or by a model"
    yield "Requests to models", spent.requests, cached
    yield "Input tokens", usage.input_tokens, f"{fresh}, {usage.cache_read_tokens:,} read from the provider's cache"
    yield "Written to the cache", usage.cache_write_tokens, "input tokens that the provider keeps for later requests"
    yield "Output tokens", usage.output_tokens, "the answers, including reasoning"
    yield "All tokens", usage.total_tokens, "input and output"


def _costs_by_proposal(story: Story) -> Iterator[Values]:
    """Yield the cost of each proposal, and of all other requests together, with the width of its bar in pixels."""
    costs, total = story.record.costs, story.record.spent.cost_usd
    if not costs:
        return
    most = max(*costs.values(), total - sum(costs.values()), 0.000001)

    def cost_row(amount: float, **values: Value) -> Values:
        return {**values, "amount": format_usd(amount), "bar": max(round(96 * amount / most), 1)}

    for case in story.cases:
        if case.name in costs:
            outcome = case.record.status.capitalize()
            yield cost_row(costs[case.name], anchor=case.anchor, name=case.name, title=case.title, outcome=outcome)
    others = total - sum(costs.get(name, 0.0) for name in dict.fromkeys(case.name for case in story.cases))
    if others >= _MIN_USD:
        yield cost_row(
            others,
            anchor="",
            name="Other",
            title="analysis, and other requests that concern no single proposal",
            outcome="",
        )


# --- diffs, with old and new lines side by side -------------------------------

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@(.*)")
_Sign = Literal[" ", "+", "-"]
_SIGNS: dict[str, _Sign] = {" ": " ", "": " ", "+": "+", "-": "-"}


class Line(NamedTuple):
    """A line of a hunk, with its line numbers in the old and the new file; 0 if that file does not contain it."""

    sign: _Sign
    old: int
    new: int
    text: str


class _Hunk(NamedTuple):
    """A hunk of a diff; `heading` is the text after the second `@@`, `ends` holds remarks such as `No newline at end of file`."""

    heading: str
    lines: list[Line]
    ends: list[str]


class _FileDiff(NamedTuple):
    """The diff of one file; `note` names the part of the file to which line numbers refer, empty for the whole file."""

    path: str
    hunks: tuple[_Hunk, ...]
    note: str = ""

    def count_lines(self, sign: str) -> int:
        """Count the lines with this sign."""
        return sum(line.sign == sign for hunk in self.hunks for line in hunk.lines)


def diffs_of(record: ProposalRecord, recorded: Mapping[str, str] | None = None) -> tuple[_FileDiff, ...]:
    """Return the committed diffs; of a proposal that was not accepted the `recorded` ones, else those of its edits.

    Args:
        record: The proposal.
        recorded: Path -> unified diff, from the record of the session.
    """
    diffs = record.commit.resolution if record.commit else recorded
    if diffs:
        return tuple(_FileDiff(path, read_diff(text)) for path, text in sorted(diffs.items()))
    return tuple(_diff_of_change(change) for change in record.proposal.code_changes)


def _diff_of_change(change: CodeChange) -> _FileDiff:
    """Return the diff of a proposed change; its line numbers count from the beginning of the changed definition."""
    where = f"in {change.target}" if change.target else "in the module"
    return _FileDiff(change.file_path, read_diff(diff_of(change)), f"{change.operation.replace('_', ' ')} {where}")


def read_diff(text: str) -> tuple[_Hunk, ...]:
    """Parse a unified diff of one file into hunks; lines outside of hunks are ignored."""
    found: list[_Hunk] = []
    old = new = 0
    for line in text.removesuffix("\n").split("\n"):
        start = _HUNK.fullmatch(line)
        sign = _SIGNS.get(line[:1])
        if start:
            old, new = int(start[1]), int(start[2])
            found.append(_Hunk(start[3].strip(), [], []))
        elif found and line.startswith("\\"):
            found[-1].ends.append(line[1:].strip())
        elif found and sign:
            found[-1].lines.append(Line(sign, 0 if sign == "+" else old, 0 if sign == "-" else new, line[1:]))
            old, new = old + (sign != "+"), new + (sign != "-")
    return tuple(found)


def _diff_values(diff: _FileDiff) -> Values:
    """Return the template values for the diff of one file."""
    return {
        "path": diff.path,
        "added": diff.count_lines("+"),
        "removed": diff.count_lines("-"),
        "note": diff.note,
        "hunks": [
            {"heading": hunk.heading or ("⋯" if index else ""), "runs": _split_into_runs(hunk), "ends": hunk.ends}
            for index, hunk in enumerate(diff.hunks)
        ],
    }


def _split_into_runs(hunk: _Hunk) -> list[Values]:
    """Return runs of lines: unchanged ones alternate with removed lines and the lines that replace them."""
    runs: list[Values] = []
    for is_same, group in groupby(hunk.lines, key=lambda line: line.sign == " "):
        lines = list(group)
        if is_same:
            runs.append({"same": [line._asdict() for line in lines], "gone": [], "came": []})
        else:
            gone, came = ([line for line in lines if line.sign == sign] for sign in "-+")
            runs.append({"same": [], "gone": _mark_changes(gone, came), "came": _mark_changes(came, gone)})
    return runs


def _mark_changes(lines: Sequence[Line], others: Sequence[Line]) -> list[Values]:
    """Return the lines split at the part that differs from the line on the other side, if both sides have equally many lines."""
    facing = others if len(lines) == len(others) else lines  # compared with itself, a line has no part that differs
    return [
        {**line._asdict(), **dict(zip(("text", "mark", "rest"), split_at_change(line.text, other.text), strict=True))}
        for line, other in zip(lines, facing, strict=True)
    ]


def split_at_change(text: str, other: str) -> tuple[str, str, str]:
    """Return the parts of a line before, in and after the difference; the first is the whole line if little is the same."""
    shorter = min(len(text), len(other))
    head = next((index for index in range(shorter) if text[index] != other[index]), shorter)
    tail = next((index for index in range(shorter - head) if text[-1 - index] != other[-1 - index]), shorter - head)
    end = len(text) - tail
    is_alike = 2 * (head + tail) >= shorter and (text[:head] + text[end:]).strip()
    return (text[:head], text[head:end], text[end:]) if is_alike else (text, "", "")
