"""The document: head with its policy, header with the outcome, sections, help. The same session gives the same bytes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

from graphbus_core.cli.negotiating.live import counted
from graphbus_core.cli.report import tables
from graphbus_core.cli.report.graph_svg import graph
from graphbus_core.cli.report.markup import Child, Markup, element, raw_element
from graphbus_core.cli.report.proposals import proposals
from graphbus_core.cli.report.story import ENDINGS, Story
from graphbus_core.cli.report.timeline import timeline
from graphbus_core.model.spending import dollars

GENERATOR = "GraphBus report"
_HERE = Path(__file__).parent
_KEYS = (
    ("j, k", "next and previous proposal"),
    ("Enter, Space", "open or close the proposal that has the focus"),
    ("o", "open or close all proposals"),
    ("/", "go to the filter"),
    ("t", "light or dark"),
    ("?", "this help"),
    ("Esc", "close this help"),
)


def page(story: Story) -> bytes:
    """Give the whole page. It is ASCII, so that it survives any stream that it is written to."""
    document = element("html", _head(story), _body(story), lang="en")
    return f"<!doctype html>\n{document}\n".encode("ascii", "xmlcharrefreplace")


def _head(story: Story) -> Markup:
    script = (_HERE / "behaviour.js").read_text(encoding="ascii")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="generator", content=GENERATOR),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{story.record.session}: negotiation report"),
        raw_element("style", (_HERE / "style.css").read_text(encoding="ascii")),
        raw_element("script", script),
    )


def _body(story: Story) -> Markup:
    sections = [
        ("timeline", "Timeline", timeline(story)),
        ("graph", "Graph", graph(story)),
        ("proposals", "Proposals", proposals(story)),
        ("votes", "Votes", tables.votes(story)),
        ("cost", "Cost", tables.cost(story)),
    ]
    links = (element("li", element("a", title, href=f"#{name}")) for name, title, _ in sections)
    return element(
        "body",
        element("a", "Skip to the report", href="#main", class_="skip-link"),
        element("header", element("div", _brand(story), _buttons(), class_="bar-row"), class_="top"),
        element("nav", element("ul", links), aria_label="Sections"),
        element("main", _outcome(story), [_section(*section) for section in sections], id="main", tabindex=-1),
        element("footer", element("p", _origin(story))),
        _help(),
    )


def _brand(story: Story) -> Markup:
    return element(
        "p", element("b", "GraphBus"), " ", element("span", f"Session {story.record.session}", class_="quiet")
    )


def _buttons() -> Markup:
    return element(
        "p",
        element("button", "Dark", type="button", id="theme", aria_pressed="false", data_script=True, hidden=True),
        element("button", "Keys", type="button", id="keys", data_script=True, hidden=True, aria_haspopup="dialog"),
        class_="buttons",
    )


def _section(name: str, title: str, content: Child) -> Markup:
    return element(
        "section", element("h2", title, id=f"{name}-title"), content, id=name, aria_labelledby=f"{name}-title"
    )


# --- the outcome -------------------------------------------------------------------------------


def _outcome(story: Story) -> Markup:
    record = story.record
    return element(
        "section",
        element("p", "Negotiation report", class_="eyebrow"),
        element("h1", _headline(story)),
        element("p", _lead(story), class_="lead"),
        element("p", element("b", "Intent: "), record.intent, class_="intent") if record.intent else None,
        element("p", element("b", "Why they were not written: "), record.refusal, class_="alert")
        if record.refusal
        else None,
        element("dl", (_figure(*figure) for figure in _figures(story)), class_="figures"),
        tables.files(story),
        id="outcome",
        aria_label="Outcome",
    )


def _headline(story: Story) -> str:
    ending = story.record.negotiations.ending
    if not story.cases:
        return "Nobody proposed anything"
    made = counted(max(ending.proposals_made, len(story.cases)), "proposal")
    return f"{len(story.record.negotiations.completed)} of {made} accepted"


def _lead(story: Story) -> str:
    ending = story.record.negotiations.ending
    detail = f" ({ending.detail})" if ending.detail else ""
    reached = ENDINGS[ending.reason].format(rounds=counted(ending.rounds_executed, "round"))
    return f"{reached}{detail}. {story.outcome}."


def _figures(story: Story) -> Iterator[tuple[str, str, str]]:
    record = story.record
    ending, statuses = record.negotiations.ending, [case.record.status for case in story.cases]
    others = {status: statuses.count(status) for status in dict.fromkeys(statuses) if status != "accepted"}
    yield (
        "Commits",
        str(len(record.negotiations.completed)),
        ", ".join(f"{count} {status}" for status, count in others.items()) or "none turned down",
    )
    yield "Files changed", str(ending.files_modified), tables.lines_changed(story)
    judges = f"arbiters: {', '.join(record.arbiters)}" if record.arbiters else "no arbiter"
    yield "Agents", str(len(record.agents)), judges
    if story.was_free:
        yield "Cost", "$0", "no model was asked"
    else:
        tokens = record.spent.usage
        yield "Cost", dollars(record.spent.cost_usd), f"{tokens.input_tokens:,} tokens in, {tokens.output_tokens:,} out"
    roles = (
        ", ".join(f"{role}: {name}" for role, name in sorted(record.models.items()))
        if len(story.models) > 1
        else "negotiated"
    )
    yield (
        "Models" if len(story.models) > 1 else "Model",
        story.models[0] if record.models or record.backend != "rules" else "Rules",
        roles,
    )


def _figure(title: str, value: str, detail: str) -> Markup:
    return element("div", element("dt", title), element("dd", element("b", value), element("span", detail)))


def _origin(story: Story) -> Child:
    name = story.record.session
    return (
        "Made by ",
        element("code", f"graphbus report {name}"),
        ". The same facts on the command line: ",
        element("code", f"graphbus inspect-negotiation --session {name}"),
        ".",
    )


def _help() -> Markup:
    rows = ((element("dt", element("kbd", key)), element("dd", text)) for key, text in _KEYS)
    close = element("button", "Close", type="button", id="help-close")
    return element(
        "dialog",
        element("h2", "Keys", id="help-title"),
        element("dl", rows),
        close,
        id="help",
        aria_labelledby="help-title",
    )
