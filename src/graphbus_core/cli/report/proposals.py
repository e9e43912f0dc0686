"""The proposals: each a block that opens, with reasons, difference, gate, votes and outcome; and the filter above them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphbus_core.cli.negotiating.live import counted
from graphbus_core.cli.report.diffs import diffs_of, show_diff
from graphbus_core.cli.report.markup import Child, Markup, element, together
from graphbus_core.cli.report.story import DECISIONS, RUNGS, STATUSES, Case, Story
from graphbus_core.cli.report.timeline import CONSENSUS, keys_of, tally
from graphbus_core.model.proposals import GateReport, ProposalEvaluation, RungResult, SchemaChange, Status
from graphbus_core.model.spending import dollars
from graphbus_core.schema.types import Schema

_RUNG_STATUS = {"passed": "Passed", "failed": "Refused", "not_run": "Not run"}


def proposals(story: Story) -> Markup:
    """Give the filter and all proposals in order."""
    if not story.cases:
        return element("p", "Nobody proposed anything.", class_="quiet")
    return together(
        _filter(story),
        element("div", (_block(story, case) for case in story.cases), class_="proposals"),
        element("p", "No proposal is like that.", id="none-left", class_="quiet", hidden=True),
    )


def _filter(story: Story) -> Markup:
    involved = sorted({name for case in story.cases for name in case.everybody})
    statuses = dict.fromkeys(case.record.status for case in story.cases)
    rounds = sorted({case.proposal.round for case in story.cases})
    return element(
        "form",
        _choice("agent", "Agent", ((story.agent_numbers[name], name) for name in involved)),
        _choice("file", "File", ((story.file_numbers[path], path) for path in story.files)),
        _choice("status", "Status", ((status, STATUSES[status]) for status in statuses)),
        _choice("round", "Round", ((number, str(number)) for number in rounds)),
        element("button", "Clear", type="reset"),
        element("button", "Open all", type="button", id="open-all", aria_pressed="false"),
        element("p", counted(len(story.cases), "proposal"), id="count", role="status"),
        id="filter",
        class_="filter",
        aria_label="Filter of the proposals",
        data_script=True,
        hidden=True,
    )


def _choice(name: str, title: str, options: Iterable[tuple[str | int, str]]) -> Markup:
    choices = (element("option", text, value=value) for value, text in options)
    select = element("select", element("option", "all", value=""), choices, id=f"filter-{name}", name=name)
    return element("span", element("label", title, for_=f"filter-{name}"), select)


def _block(story: Story, case: Case) -> Markup:
    status = case.record.status
    facts = (case.proposal.src, f"round {case.proposal.round}", *([f"votes: {tally(case)}"] if case.votes else []))
    summary = element(
        "summary",
        element("span", case.name, class_="number"),
        element("h3", case.title),
        badge(status),
        element("span", " · ".join(facts), class_="quiet"),
    )
    body = element("div", _body(story, case), class_="body", id=case.anchor)
    return element("details", summary, body, class_="proposal", **keys_of(story, case))


def badge(status: Status) -> Markup:
    """Give a status as a word with a colour of its own."""
    return element("span", STATUSES[status], class_=f"badge {status}")


def _body(story: Story, case: Case) -> Iterator[Markup]:
    yield element("p", case.proposal.reason, class_="reason") if case.proposal.reason else together()
    yield element("dl", (_fact(label, value) for label, value in _facts(story, case) if value), class_="facts")
    yield element("h4", "Change")
    yield together(show_diff(diff) for diff in diffs_of(case.record))
    changes = case.record.commit.schema_changes if case.record.commit else case.proposal.schema_changes
    if changes:
        yield together(
            element("h4", "Contract"), element("dl", (_contract(change) for change in changes), class_="contract")
        )
    yield element("h4", "Gate")
    yield from _gate(case)
    if case.record.evaluations:
        yield element("h4", "Votes")
        yield element("ul", (_vote(story, vote) for vote in case.record.evaluations), class_="votes")
    yield element("h4", "Outcome")
    yield element("p", _outcome(story, case))


def _fact(label: str, value: Child) -> Markup:
    return element("div", element("dt", label), element("dd", value))


def _facts(story: Story, case: Case) -> Iterator[tuple[str, Child]]:
    proposal = case.proposal
    yield "Proposed by", proposal.src
    yield "To", proposal.dst
    yield "Affects", ", ".join(proposal.affects)
    yield "Intent", proposal.intent
    yield "Mends", proposal.finding
    yield "Priority", str(proposal.priority) if proposal.priority else ""
    yield "Needs", _links(story, proposal.dependencies)
    yield "Counters", _links(story, [proposal.parent] if proposal.parent else [])
    yield "Countered by", _links(story, [other.name for other in story.counters.get(case.name, ())])
    yield "Cost", dollars(story.record.costs[case.name]) if case.name in story.record.costs else ""
    graph = element("a", "Show in the graph", href="#graph", data_show=case.anchor)
    yield "Agents", graph


def _links(story: Story, names: Iterable[str]) -> list[Child]:
    found = [(name, story.by_name.get(name)) for name in names]
    return [(element("a", name, href=f"#{case.anchor}") if case else name, " ") for name, case in found]


def _contract(change: SchemaChange) -> Iterator[Markup]:
    yield element("dt", element("code", change.method))
    pairs = (
        ("input", change.input_schema_before, change.input_schema_after),
        ("output", change.output_schema_before, change.output_schema_after),
    )
    for name, before, after in pairs:
        if before != after:
            yield element(
                "dd", f"{name} ", element("del", _schema(before)), " becomes ", element("ins", _schema(after))
            )


def _schema(schema: Schema | None) -> str:
    return "not declared" if schema is None else str(schema)


# --- the gate ----------------------------------------------------------------------------------


def _gate(case: Case) -> Iterator[Markup]:
    if not case.climbs:
        yield element("p", "It did not come to the gate.", class_="quiet")
    for number, report in enumerate(case.climbs, start=1):
        yield _climb(case, report, number)


def _climb(case: Case, report: GateReport, number: int) -> Markup:
    count = len(case.climbs)
    caption = f"Climb {number} of {count}: {'passed' if report.passed else 'refused'}" if count > 1 else "The rungs"
    head = element("tr", (element("th", title, scope="col") for title in ("Rung", "Result", "Code", "What it says")))
    table = element(
        "table",
        element("caption", caption, class_=None if count > 1 else "unseen"),
        element("thead", head),
        element("tbody", (_rung(rung) for rung in report.rungs)),
        class_="gate",
    )
    return element(
        "div", table, class_="scroll", role="region", tabindex=0, aria_label=f"Gate of {case.name}, climb {number}"
    )


def _rung(rung: RungResult) -> Markup:
    place = f"{rung.path}:{rung.line}" if rung.path and rung.line else rung.path
    return element(
        "tr",
        element("th", element("b", rung.rung), f" {RUNGS.get(rung.rung, '')}", scope="row"),
        element("td", element("span", _RUNG_STATUS[rung.status], class_=f"result {rung.status}")),
        element("td", element("code", rung.code) if rung.code else "–"),
        element(
            "td",
            element("code", place) if place else None,
            " " if place else None,
            rung.message or (None if place else "–"),
        ),
    )


# --- votes and outcome -------------------------------------------------------------------------


def _vote(story: Story, vote: ProposalEvaluation) -> Markup:
    counter = vote.counter_proposal
    return element(
        "li",
        element(
            "p",
            element("b", vote.evaluator),
            element("span", " arbiter", class_="quiet") if vote.is_arbiter else None,
            " ",
            element("span", DECISIONS[vote.decision], class_=f"decision {vote.decision}"),
            element("span", _circumstances(vote), class_="quiet"),
        ),
        element("p", vote.reasoning) if vote.reasoning else None,
        element("ul", _remarks(vote)) if any(True for _ in _remarks(vote)) else None,
        element("p", "Proposed instead: ", counter.title or counter.intent) if counter else None,
    )


def _circumstances(vote: ProposalEvaluation) -> str:
    impact = vote.impact_assessment
    parts = [
        f"round {vote.round}" if vote.round else "",
        f"confidence {vote.confidence:.0%}" if vote.confidence != 1 else "",
        f"{impact.estimated_risk} risk" if impact.estimated_risk != "low" else "",
        "breaks a contract" if impact.breaks_contracts else "",
        f"touches {', '.join(impact.affects_dependencies)}" if impact.affects_dependencies else "",
    ]
    return "".join(f" · {part}" for part in parts if part)


def _remarks(vote: ProposalEvaluation) -> Iterator[Markup]:
    for evidence in vote.evidence:
        state = "verified: a veto" if evidence.is_verified else "unsubstantiated"
        text = element("pre", evidence.text, class_="scroll", tabindex=0) if "\n" in evidence.text else evidence.text
        detail = element("span", f" {evidence.detail}", class_="quiet") if evidence.detail else None
        yield element("li", element("b", f"Evidence ({evidence.kind}, {state}) "), text, detail)
    proven = {evidence.text for evidence in vote.evidence}
    yield from (element("li", element("b", "Concern "), text) for text in vote.concerns if text not in proven)
    yield from (element("li", element("b", "Suggestion "), text) for text in vote.suggestions)


def _outcome(story: Story, case: Case) -> Child:
    commit = case.record.commit
    if commit is None:
        reason = case.record.refusal
        return (badge(case.record.status), f" {reason}" if reason else None)
    voters = f" ({', '.join(commit.evaluators)})" if commit.evaluators else ""
    files = ", ".join(commit.files_modified)
    return (
        badge(case.record.status),
        f" {commit.commit_id}: {CONSENSUS[commit.consensus_type]}{voters}. Changes {files}. {story.outcome}.",
    )
