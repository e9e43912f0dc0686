"""The course of a session: round after round, and for each proposal the stations that it came through."""

from __future__ import annotations

from collections.abc import Iterator

from graphbus_core.cli.report.markup import Markup, element
from graphbus_core.cli.report.story import DECISIONS, STATUSES, VOTES, Case, Story
from graphbus_core.model.proposals import Consensus

CONSENSUS: dict[Consensus, str] = {
    "unanimous": "everybody agreed",
    "majority": "most agreed",
    "arbiter": "the arbiter decided",
    "override": "a person decided",
}


def timeline(story: Story) -> Markup:
    """Give the rounds as a list of lists."""
    if not story.rounds:
        return element("p", "The session ended before its first round.", class_="quiet")
    return element("ol", (_round(story, number) for number in story.rounds), class_="rounds")


def _round(story: Story, number: int) -> Markup:
    cases = [case for case in story.cases if case.proposal.round == number]
    notes = [note for note in story.notes if note.round == number]
    rows = [_row(story, case) for case in cases]
    said = [element("li", element("b", note.agent), f" {note.text}") for note in notes]
    quiet = element("p", "Nobody had anything to propose.", class_="quiet") if not cases else None
    return element(
        "li",
        element("h3", f"Round {number}"),
        quiet,
        element("ul", rows, class_="steps") if rows else None,
        element("ul", said, class_="notes") if said else None,
    )


def _row(story: Story, case: Case) -> Markup:
    link = element("a", element("b", case.name), " ", case.title, href=f"#{case.anchor}")
    by = element("span", case.proposal.src, class_="quiet")
    return element(
        "li",
        element("p", link, " ", by),
        element("ol", _stations(story, case), class_="stations", aria_label=f"Stations of {case.name}"),
        **keys_of(story, case),
    )


def keys_of(story: Story, case: Case) -> dict[str, str | int | bool]:
    """Give what the filter looks at, as numbers: names could hold anything."""
    agents = [str(story.agent_numbers[name]) for name in case.everybody]
    files = [str(story.file_numbers[path]) for path in case.proposal.files]
    return {
        "data_case": case.anchor,
        "data_agents": " ".join(agents),
        "data_concerns": " ".join(str(story.agent_numbers[name]) for name in (case.proposal.src, *case.affected)),
        "data_files": " ".join(files),
        "data_status": case.record.status,
        "data_round": case.proposal.round,
    }


def _stations(story: Story, case: Case) -> Iterator[Markup]:
    parent = case.proposal.parent
    yield _station("Proposed" if not parent else f"Proposed against {parent}")
    for step in case.steps:
        if step is VOTES:
            yield from _judged(case)
        else:
            yield _station(step.text, step.role)
    commit = case.record.commit
    if commit:
        yield _station(f"Commit {commit.commit_id}: {CONSENSUS[commit.consensus_type]}", "good")
    else:
        yield _station(STATUSES[case.record.status], "end")


def _judged(case: Case) -> Iterator[Markup]:
    if any(not vote.is_arbiter for vote in case.votes):
        yield _station(f"Votes: {tally(case)}")
    for vote in case.votes:
        if vote.is_arbiter:
            yield _station(f"Arbiter {vote.evaluator}: {DECISIONS[vote.decision].lower()}")


def tally(case: Case) -> str:
    """Give the votes as words: `2 accept, 1 reject`."""
    counts = ((name.lower(), case.count(decision)) for decision, name in DECISIONS.items())
    return ", ".join(f"{count} {name}" for name, count in counts if count) or "none"


def _station(text: str, role: str = "") -> Markup:
    return element("li", text, class_=role or None)
