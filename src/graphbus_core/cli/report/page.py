"""The report as one page: a session as values of the template `page.html`."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
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
    "unanimous": "everybody agreed",
    "majority": "most agreed",
    "arbiter": "the arbiter decided",
    "override": "a person decided",
}
_LETTERS: dict[VoteDecision, str] = {"accept": "A", "reject": "R", "counter": "C", "defer": "D", "abstain": "–"}
_RESULTS = {"passed": "Passed", "failed": "Refused", "not_run": "Not run"}
_LEAST_USD = 0.00005


def render_page(story: Story) -> bytes:
    """Return the whole page, in ASCII so that any stream can carry it. The same session always gives the same bytes."""
    script = (_HERE / "behaviour.js").read_bytes()
    cases = [_case(story, case) for case in story.cases]
    values = {
        "script_digest": base64.b64encode(hashlib.sha256(script).digest()).decode(),
        "session": story.record.session,
        **_outcome(story),
        "rounds": [_round(story, number, cases) for number in story.rounds],
        **graph_values(story),
        "cases": cases,
        "case_count": pluralize(len(cases), "proposal"),
        "choices": list(_choices(story)),
        "voices": list(_voices(story)),
        "decisions": [{"decision": decision, "letter": letter} for decision, letter in _LETTERS.items()],
        **_cost(story),
    }
    return f"{fill_template(_HERE / 'page.html', values)}\n".encode("ascii", "xmlcharrefreplace")


# --- the outcome -------------------------------------------------------------------------------


def _outcome(story: Story) -> Values:
    record, ending = story.record, story.record.negotiations.ending
    made = pluralize(max(ending.proposals_made, len(story.cases)), "proposal")
    detail = f" ({ending.detail})" if ending.detail else ""
    reached = _ENDINGS[ending.reason].format(rounds=pluralize(ending.rounds_executed, "round"))
    return {
        "headline": f"{len(record.negotiations.completed)} of {made} accepted"
        if story.cases
        else "Nobody proposed anything",
        "lead": f"{reached}{detail}. {story.outcome}.",
        "intent": record.intent,
        "refusal": record.refusal,
        "figures": [{"title": title, "value": value, "detail": detail} for title, value, detail in _figures(story)],
        "files": _files(story),
    }


def _figures(story: Story) -> Iterator[tuple[str, str, str]]:
    record, tokens = story.record, story.record.spent.usage
    statuses = [case.record.status for case in story.cases]
    others = [f"{statuses.count(each)} {each}" for each in dict.fromkeys(statuses) if each != "accepted"]
    diffs = [diff for case in story.cases if case.record.commit for diff in diffs_of(case.record)]
    lines = f"{pluralize(_lines(diffs, '+'), 'line')} added, {_lines(diffs, '-')} removed"
    yield "Commits", str(len(record.negotiations.completed)), ", ".join(others) or "none turned down"
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


def _files(story: Story) -> list[Values]:
    """Return every file that accepted proposals changed, with the number of lines added and removed."""
    changes: dict[str, list[tuple[ProposalStory, _FileDiff]]] = {}
    for case in story.cases:
        for diff in diffs_of(case.record) if case.record.commit else ():
            changes.setdefault(diff.path, []).append((case, diff))
    return [
        {
            "path": path,
            "added": _lines((diff for _, diff in own), "+"),
            "removed": _lines((diff for _, diff in own), "-"),
            "by": proposal_links(case for case, _ in own),
        }
        for path, own in sorted(changes.items())
    ]


def _lines(diffs: Iterable[_FileDiff], sign: str) -> int:
    return sum(diff.count_lines(sign) for diff in diffs)


def _round(story: Story, number: int, cases: list[Values]) -> Values:
    return {
        "round": number,
        "in_round": [case for case in cases if case["round"] == number],
        "notes": [{"agent": note.agent, "text": note.text} for note in story.notes if note.round == number],
    }


# --- the proposals -----------------------------------------------------------------------------


def _choices(story: Story) -> Iterator[Values]:
    """Yield the filters for proposals; agents and files are numbers, because their names may contain anything."""
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


def _case(story: Story, case: ProposalStory) -> Values:
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
        "tally": _tally(case) if case.votes else "",
        "agent_keys": _keys(story.agents, case.concerned),
        "concern_keys": _keys(story.agents, (proposal.src, *case.affected)),
        "file_keys": _keys(story.files, proposal.files),
        "stations": [step._asdict() for step in _stations(case)],
        "reason": proposal.reason,
        "facts": list(_facts(story, case)),
        "diffs": [_diff_values(diff) for diff in diffs_of(record)],
        "contract": [{"method": change.method, "sides": list(_sides(change))} for change in changes],
        "climbs": [
            _gate_report(report, number, len(case.reports)) for number, report in enumerate(case.reports, start=1)
        ],
        "votes": [_vote(vote) for vote in record.evaluations],
        "outcome": _outcome_of(story, case),
    }


def _keys(known: tuple[str, ...], names: Iterable[str]) -> str:
    """Return names as their indexes in a list, which the script of the page can compare safely."""
    return " ".join(str(known.index(name)) for name in names)


def _stations(case: ProposalStory) -> Iterator[ProposalStep]:
    parent = case.proposal.parent
    yield ProposalStep(f"Proposed against {parent}" if parent else "Proposed")
    for step in case.steps:
        if step is VOTES:
            yield from _judged(case)
        else:
            yield step
    commit = case.record.commit
    if commit:
        yield ProposalStep(f"Commit {commit.commit_id}: {_CONSENSUS[commit.consensus_type]}", "good")
    else:
        yield ProposalStep(case.record.status.capitalize(), "end")


def _judged(case: ProposalStory) -> Iterator[ProposalStep]:
    if any(not vote.is_arbiter for vote in case.votes):
        yield ProposalStep(f"Votes: {_tally(case)}")
    yield from (ProposalStep(f"Arbiter {vote.agent}: {vote.decision}") for vote in case.votes if vote.is_arbiter)


def _tally(case: ProposalStory) -> str:
    """Return the votes as text: `2 accept, 1 reject`."""
    counts = ((decision, case.count(decision)) for decision in _LETTERS)
    return ", ".join(f"{count} {decision}" for decision, count in counts if count) or "none"


def _facts(story: Story, case: ProposalStory) -> Iterator[Values]:
    proposal, costs = case.proposal, story.record.costs
    facts: tuple[tuple[str, Value, Sequence[str]], ...] = (
        ("Proposed by", proposal.src, ()),
        ("To", proposal.dst, ()),
        ("Affects", ", ".join(proposal.affects), ()),
        ("Intent", proposal.intent, ()),
        ("Mends", proposal.finding, ()),
        ("Priority", proposal.priority, ()),
        ("Needs", "", proposal.dependencies),
        ("Counters", "", [proposal.parent] if proposal.parent else ()),
        ("Countered by", "", story.counters(case.name)),
        ("Cost", format_usd(costs[case.name]) if case.name in costs else "", ()),
    )
    for label, text, names in facts:
        if text or names:
            yield {"label": label, "text": text or "", "links": [_link(story, name) for name in names]}


def _link(story: Story, name: str) -> Values:
    return {"name": name, "anchor": story.by_name[name].anchor if name in story.by_name else ""}


def _sides(change: SchemaChange) -> Iterator[Values]:
    sides = (
        ("input", change.input_schema_before, change.input_schema_after),
        ("output", change.output_schema_before, change.output_schema_after),
    )
    for side, before, after in sides:
        if before != after:
            told = ("not declared" if schema is None else str(schema) for schema in (before, after))
            yield {"side": side, **dict(zip(("before", "after"), told, strict=True))}


def _gate_report(report: GateReport, number: int, count: int) -> Values:
    caption = f"Attempt {number} of {count}: {'passed' if report.passed else 'refused'}"
    return {
        "number": number,
        "is_one_of_many": count > 1,
        "caption": caption if count > 1 else "The rungs",
        "rungs": [_rung(rung) for rung in report.rungs],
    }


def _rung(rung: RungResult) -> Values:
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


def _vote(vote: ProposalEvaluation) -> Values:
    counter = vote.counter_proposal
    return {
        "evaluator": vote.agent,
        "is_arbiter": vote.is_arbiter,
        "decision": vote.decision,
        "decision_name": vote.decision.capitalize(),
        "circumstances": "".join(f" · {each}" for each in _circumstances(vote)),
        "reasoning": vote.reasoning,
        "remarks": list(_remarks(vote)),
        "instead": (counter.title or counter.intent) if counter else "",
    }


def _circumstances(vote: ProposalEvaluation) -> Iterator[str]:
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


def _remarks(vote: ProposalEvaluation) -> Iterator[Values]:
    for evidence in vote.evidence:
        label = f"Evidence ({evidence.kind}, {'verified: a veto' if evidence.is_verified else 'unsubstantiated'})"
        yield {"label": label, "text": evidence.text, "is_code": "\n" in evidence.text, "detail": evidence.detail}
    proven = {evidence.text for evidence in vote.evidence}
    remarks = [("Concern", text) for text in vote.concerns if text not in proven]
    for label, text in (*remarks, *(("Suggestion", text) for text in vote.suggestions)):
        yield {"label": label, "text": text, "is_code": False, "detail": ""}


def _outcome_of(story: Story, case: ProposalStory) -> str:
    commit = case.record.commit
    if commit is None:
        return case.record.refusal
    voters = f" ({', '.join(commit.evaluators)})" if commit.evaluators else ""
    how = f"{commit.commit_id}: {_CONSENSUS[commit.consensus_type]}{voters}"
    return f"{how}. Changes {', '.join(commit.files_modified)}. {story.outcome}."


# --- votes and cost ----------------------------------------------------------------------------


def _voices(story: Story) -> Iterator[Values]:
    """Yield a row for each agent that voted or proposed, with a cell for each proposal; nothing if no agent voted."""
    voters = {vote.agent for case in story.cases for vote in case.votes}
    proposers = {case.proposal.src for case in story.cases} if voters else set[str]()
    by_case = [{vote.agent: vote for vote in case.votes} for case in story.cases]
    for name in story.agents:
        if name in voters | proposers:
            votes = (own.get(name) for own in by_case)
            cells = [_cell(case, name, vote) for case, vote in zip(story.cases, votes, strict=True)]
            yield {"agent": name, "cells": cells}


def _cell(case: ProposalStory, name: str, vote: ProposalEvaluation | None) -> Values:
    if vote is None:
        return {"is_own": name == case.proposal.src, "decision": ""}
    sign = ("§" if vote.is_arbiter else "") + ("!" if any(evidence.is_verified for evidence in vote.evidence) else "")
    return {
        "is_own": False,
        "decision": vote.decision,
        "letter": f"{_LETTERS[vote.decision]}{sign}",
        "words": f"{name} on {case.name}: {vote.decision}{' as arbiter' if vote.is_arbiter else ''}",
    }


def _cost(story: Story) -> Values:
    spent = story.record.spent
    return {
        "was_free": story.was_free,
        "answered": pluralize(spent.calls, "question") if spent.calls else "",
        "amounts": [
            {"what": what, "amount": f"{amount:,}", "detail": detail} for what, amount, detail in _amounts(spent)
        ],
        "dollars": format_usd(spent.cost_usd),
        "unpriced": pluralize(spent.unpriced, "request") if spent.unpriced else "",
        "prices": list(_prices(story)),
    }


def _amounts(spent: Spend) -> Iterator[tuple[str, int, str]]:
    usage = spent.usage
    cached = f"{spent.cached:,} of them answered from a cache or a record of this machine"
    fresh = f"{usage.input_tokens - usage.cache_read_tokens:,} new"
    yield "Questions answered", spent.calls, "by rules or by a model"
    yield "Requests to models", spent.requests, cached
    yield "Input tokens", usage.input_tokens, f"{fresh}, {usage.cache_read_tokens:,} read from the provider's cache"
    yield "Written to the cache", usage.cache_write_tokens, "input tokens that the provider keeps for later requests"
    yield "Output tokens", usage.output_tokens, "the answers, thinking included"
    yield "All tokens", usage.total_tokens, "input and output"


def _prices(story: Story) -> Iterator[Values]:
    costs, total = story.record.costs, story.record.spent.cost_usd
    if not costs:
        return
    most = max(*costs.values(), total - sum(costs.values()), 0.000001)

    def price(amount: float, **values: Value) -> Values:
        return {**values, "amount": format_usd(amount), "bar": max(round(96 * amount / most), 1)}

    for case in story.cases:
        if case.name in costs:
            outcome = case.record.status.capitalize()
            yield price(costs[case.name], anchor=case.anchor, name=case.name, title=case.title, outcome=outcome)
    others = total - sum(costs.get(name, 0.0) for name in dict.fromkeys(case.name for case in story.cases))
    if others >= _LEAST_USD:
        yield price(others, anchor="", name="Other", title="analysis, and questions about no one proposal", outcome="")


# --- differences of files: hunks of runs, old and new side by side -------------------------------

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@(.*)")
_Sign = Literal[" ", "+", "-"]
_SIGNS: dict[str, _Sign] = {" ": " ", "": " ", "+": "+", "-": "-"}


class Line(NamedTuple):
    """One line of a hunk with its line numbers in the old and the new file; 0 if it is not in that file."""

    sign: _Sign
    old: int
    new: int
    text: str


class _Hunk(NamedTuple):
    """A hunk of a diff; `heading` is the text after the second `@@`, `ends` the notes after a backslash."""

    heading: str
    lines: list[Line]
    ends: list[str]


class _FileDiff(NamedTuple):
    """The diff of one file; `note` says what its line numbers count from if that is not the file."""

    path: str
    hunks: tuple[_Hunk, ...]
    note: str = ""

    def count_lines(self, sign: str) -> int:
        """Count the lines with this sign."""
        return sum(line.sign == sign for hunk in self.hunks for line in hunk.lines)


def diffs_of(record: ProposalRecord) -> tuple[_FileDiff, ...]:
    """Return the committed diffs, otherwise the diffs of the proposed changes."""
    if record.commit and record.commit.resolution:
        return tuple(_FileDiff(path, read_diff(text)) for path, text in sorted(record.commit.resolution.items()))
    return tuple(_proposed(change) for change in record.proposal.code_changes)


def _proposed(change: CodeChange) -> _FileDiff:
    where = f"in {change.target}" if change.target else "in the module"
    return _FileDiff(change.file_path, read_diff(diff_of(change)), f"{change.operation.replace('_', ' ')} {where}")


def read_diff(text: str) -> tuple[_Hunk, ...]:
    """Read a unified diff of one file; lines outside of hunks are ignored."""
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
            {"heading": hunk.heading or ("⋯" if index else ""), "runs": _runs(hunk), "ends": hunk.ends}
            for index, hunk in enumerate(diff.hunks)
        ],
    }


def _runs(hunk: _Hunk) -> list[Values]:
    """Return runs of lines: unchanged ones alternate with removed lines and the lines that replace them."""
    runs: list[Values] = []
    for is_same, group in groupby(hunk.lines, key=lambda line: line.sign == " "):
        lines = list(group)
        if is_same:
            runs.append({"same": [line._asdict() for line in lines], "gone": [], "came": []})
        else:
            gone, came = ([line for line in lines if line.sign == sign] for sign in "-+")
            runs.append({"same": [], "gone": _marked(gone, came), "came": _marked(came, gone)})
    return runs


def _marked(lines: Sequence[Line], others: Sequence[Line]) -> list[Values]:
    """Mark in each line what differs from its counterpart, if both sides have equally many lines."""
    facing = others if len(lines) == len(others) else lines
    return [
        {**line._asdict(), **dict(zip(("text", "mark", "rest"), split_at_change(line.text, other.text), strict=True))}
        for line, other in zip(lines, facing, strict=True)
    ]


def split_at_change(text: str, other: str) -> tuple[str, str, str]:
    """Split a line into the parts before, in and after the change; the line is not split if little of it is the same."""
    shorter = min(len(text), len(other))
    head = next((index for index in range(shorter) if text[index] != other[index]), shorter)
    tail = next((index for index in range(shorter - head) if text[-1 - index] != other[-1 - index]), shorter - head)
    end = len(text) - tail
    is_alike = 2 * (head + tail) >= shorter and (text[:head] + text[end:]).strip()
    return (text[:head], text[head:end], text[end:]) if is_alike else (text, "", "")
