"""The comparison of two builds both ways as text, JSON and remarks for annotations and SARIF. Nothing is printed here."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.cli.formats import Remark
from graphbus_core.contracts.both_ways import BothWays, EdgeAnswers, Problem, Verdict, Way, find_deploy_order
from graphbus_core.contracts.messages import OUTSIDE, MessageKind
from graphbus_core.model.agent import SourceSpan

_MARKS: Mapping[Verdict, tuple[str, console.Role]] = {
    "fits": ("✓", "good"),
    "breaks": ("✗", "bad"),
    "waits": ("~", "warn"),
    "unknown": ("?", "warn"),
    "none": ("-", "dim"),
}
_CASES: Mapping[tuple[Way, ...], str] = {
    ("forward",): "Old {messages} {fate} while both builds run.",
    ("back",): "New {messages} {fate} while both builds run.",
    ("forward", "queued"): "{messages} on their way, retries and dead letters {fate}.",
    ("back", "rollback"): "New {messages} {fate} while both builds run, and after a rollback.",
}
_MESSAGES: Mapping[MessageKind, str] = {
    "event": "events for {hurt}",
    "request": "requests of {hurt}",
    "call": "calls of {hurt}",
    "answer": "answers to {hurt}",
    "task": "messages for {hurt}",
}
_FATES: Mapping[MessageKind, tuple[str, str]] = {
    "event": ("are parked", "may fail"),
    "request": ("fail", "may fail"),
    "call": ("fail", "may fail"),
    "answer": ("cannot be read", "may not be readable"),
    "task": ("fail", "may fail"),
}
"""Kind -> what becomes of messages that do not fit, and of those that are not known to fit."""
_COUNTED: Mapping[tuple[Verdict, bool], str] = {
    ("breaks", True): "broken",
    ("unknown", True): "unknown",
    ("waits", True): "waiting",
    ("breaks", False): "broken in both builds",
    ("unknown", False): "unknown in both builds",
    ("fits", False): "fit both ways",
}
"""Verdict of an edge, and whether a change is its reason -> how such edges are counted."""


class Builds(NamedTuple):
    """Two builds, what their comparison found, and how to name places in them.

    Attributes:
        old: The name of the old build.
        new: The name of the new one.
        found: The comparison.
        root: The project root of the new build on disk; empty if it is not there, as for a revision.
    """

    old: str
    new: str
    found: BothWays
    root: str = ""

    def is_sent_by_new(self, problem: Problem) -> bool:
        """True if the new build sends the messages of a problem."""
        return problem.ways[-1] in ("back", "rollback")

    def is_read_in_new(self, problem: Problem) -> bool:
        """True if the place of the consumer is in the new build."""
        return self.is_sent_by_new(problem) == problem.is_gone

    def place(self, span: SourceSpan, *, is_new: bool) -> str:
        """Return a place as `path:line`, relative to the working directory if it is there."""
        if not is_new:
            return f"{span.path}:{span.line} in {self.old}"
        return f"{os.path.relpath(os.path.join(self.root, span.path)) if self.root else span.path}:{span.line}"


# --- text -------------------------------------------------------------------------------------


def as_lines(builds: Builds) -> Iterator[str]:
    """Yield the report as text: each edge that does not fit, with the reasons and the order of deploys; then a summary."""
    yield style(sanitize(f"Messages between {builds.old} and {builds.new}"), "strong")
    yield ""
    for edge in builds.found.edges:
        shown = [each for each in edge.problems if each.is_new]
        if shown:
            yield f"{style(*_MARKS[shown[0].verdict])} {edge.kind} {style(sanitize(title_of(edge)), 'strong')}"
            for each in shown:
                yield from _problem_lines(edge, each, builds)
            yield from (f"    {sanitize(line)}" for line in filter(None, [advice_on(edge)]))
            yield ""
    yield from _summary_lines(builds.found)


def title_of(edge: EdgeAnswers) -> str:
    """Return `Till → /Sold → Books.on_sold`; for calls, the channel is the name of the consumer."""
    return " → ".join(dict.fromkeys((edge.producer, edge.channel, edge.consumer)))


def _problem_lines(edge: EdgeAnswers, problem: Problem, builds: Builds) -> Iterator[str]:
    yield f"    {sanitize(_sentence_of(edge, problem))}"
    sent = builds.place(problem.sent_at, is_new=builds.is_sent_by_new(problem))
    read = builds.place(problem.read_at, is_new=builds.is_read_in_new(problem))
    yield style(sanitize(f"        sent at {sent}, read at {read}"), "dim")


def _sentence_of(edge: EdgeAnswers, problem: Problem) -> str:
    """Return what is wrong, and what becomes of which messages."""
    first = f"{problem.why[0].upper()}{problem.why[1:]}."
    if problem.verdict == "waits" or (problem.is_gone and edge.kind == "event"):
        return first
    fate = "are handled wrongly" if problem.is_mixed_up else _FATES[edge.kind][problem.verdict == "unknown"]
    case = _CASES[problem.ways].format(messages=_MESSAGES[edge.kind].format(hurt=problem.hurt), fate=fate)
    return f"{first} {case[0].upper()}{case[1:]}"


def advice_on(edge: EdgeAnswers) -> str:
    """Return the order of deploys in which nothing on this edge breaks; empty if each order will do."""
    reader, writer = (unit or name for unit, name in zip(edge.units[::-1], (edge.consumer, edge.producer), strict=True))
    is_stored = edge.kind in ("event", "task")
    match edge.order:
        case "readers first":
            return f"Readers first: deploy {reader}, then {writer}."
        case "writers first" if is_stored:
            wait = f"wait until nothing of the old build waits for {edge.consumer}"
            return f"Writers first: deploy {writer}, {wait}, then deploy {reader}."
        case "writers first":
            return f"Writers first: deploy {writer}, then {reader}."
        case "two steps":
            return f"Two steps: let {reader} accept both and deploy it; then let {writer} send the new {edge.kind}."
        case "none":
            return f"No order of deploys is safe: {_describe_dead_end(edge)}."
    return ""


def _describe_dead_end(edge: EdgeAnswers) -> str:
    """Return why no order of deploys is safe on an edge, and what is."""
    if any(each.is_mixed_up for each in edge.problems):
        return f"both {edge.kind}s look alike. Give the new one another name"
    if edge.producer == OUTSIDE:
        return f"{OUTSIDE} is not deployed with it. Let {edge.consumer} accept both"
    return f"{edge.producer} goes on sending. Keep {edge.consumer} until nothing waits for it, and stop {edge.producer} meanwhile"


def _summary_lines(found: BothWays) -> Iterator[str]:
    """Yield the number of edges by verdict, the order of deploys for all of them, and what was not compared."""
    counts = Counter((edge.verdict, edge.is_new) for edge in found.edges)
    listed = ", ".join(f"{counts[key]} {words}" for key, words in _COUNTED.items() if counts[key])
    worst = next((key for key in _COUNTED if counts[key]), ("fits", False))
    mark = "unknown" if worst == ("breaks", False) else worst[0]  # no change of this comparison
    yield f"{style(*_MARKS[mark])} {pluralize(len(found.edges), 'edge')}{': ' if listed else ''}{listed}."
    order = find_deploy_order(found.edges)
    if order:
        yield f"Deploy in this order: {sanitize(', '.join(order))}."
    for build, unread in zip(("old", "new"), found.unread, strict=True):
        for why, count in Counter(each.why for each in unread).items():
            places = f"{pluralize(count, 'place')} of the {build} build"
            yield f"{style(*_MARKS['unknown'])} Not compared: {places}, because {sanitize(why)}."


# --- JSON and remarks ---------------------------------------------------------------------------


def as_document(found: BothWays) -> dict[str, Any]:
    """Return the comparison for `--json`. Paths are relative to the project, lines count from 1."""
    return {
        "edges": [_edge_as_document(edge) for edge in found.edges],
        "deploy_order": find_deploy_order(found.edges),
        "unread": [
            {"build": build, **_place_as_document(each.span), "why": each.why}
            for build, unread in zip(("old", "new"), found.unread, strict=True)
            for each in unread
        ],
    }


def _edge_as_document(edge: EdgeAnswers) -> dict[str, Any]:
    names = ("kind", "channel", "producer", "consumer", "verdict", "answers", "order")
    return {
        **{name: getattr(edge, name) for name in names},
        "advice": advice_on(edge),
        "problems": [
            {
                **{name: getattr(each, name) for name in ("ways", "verdict", "field", "why", "hurt", "is_new")},
                "sent_at": _place_as_document(each.sent_at),
                "read_at": _place_as_document(each.read_at),
            }
            for each in edge.problems
        ],
    }


def _place_as_document(span: SourceSpan) -> dict[str, Any]:
    return {"path": span.path, "line": span.line}


def as_remarks(builds: Builds, *, is_allowed: bool) -> Iterator[Remark]:
    """Yield a remark for each break of a change, at that end of the edge that is in the new build."""
    for edge in builds.found.breaks:
        for each in (each for each in edge.problems if each.verdict == "breaks" and each.is_new):
            places = {
                builds.is_sent_by_new(each): ("sent", each.sent_at),
                builds.is_read_in_new(each): ("read", each.read_at),
            }
            span = places[True][1] if True in places else None
            related = [
                (f"{word} here, in {builds.old}", span.path, _region_of(span)) for word, span in _old_places(places)
            ]
            yield Remark(
                "warning" if is_allowed else "error", "", f"{edge.kind.capitalize()} broken: {title_of(edge)}",
                _sentence_of(edge, each), advice_on(edge), span.path if span else "", _region_of(span) if span else {},
                tuple(related), (edge.kind, title_of(edge), each.field, *each.ways),
            )  # fmt: skip


def _old_places(places: Mapping[bool, tuple[str, SourceSpan]]) -> Sequence[tuple[str, SourceSpan]]:
    return [places[False]] if False in places else []


def _region_of(span: SourceSpan) -> dict[str, int]:
    return {"startLine": span.line, "endLine": span.end_line}
