"""Refusals of source files and of the graph that they describe: exit status 3."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE201": Entry("This file has a syntax error: {reason}.", "Correct it; the other files were still read."),
    "GBE202": Entry(
        "This file is not text in {encoding}: {reason}.",
        "Save it as UTF-8 or declare its encoding in the first line.",
    ),
    "GBE203": Entry(
        "This file has {size_bytes} bytes; GraphBus reads files up to {limit_bytes}.",
        "Exclude it with `exclude` in [tool.graphbus], or split it.",
    ),
    "GBE204": Entry("This file cannot be read: {reason}.", "Check its permissions."),
    "GBE205": Entry(
        "This link leads in a circle or out of the project.",
        "Remove the link or exclude it with `exclude` in [tool.graphbus].",
    ),
    "GBE206": Entry(
        "This file is nested too deeply to be read.",
        "Split its longest expression, or exclude the file with `exclude` in [tool.graphbus].",
    ),
    "GBE210": Entry(
        "Two agents are called {name}; the other one is at {other}.",
        "Agent names are unique in a graph: rename one of the classes.",
    ),
    "GBE211": Entry(
        "{agent} depends on {name}, which is no agent of this graph.{suggestion}",
        "Correct the name in @depends_on, or add the agent.",
    ),
    "GBE212": Entry(
        "The dependencies form a circle: {cycle}.",
        "Remove one @depends_on; events may go round, dependencies may not.",
    ),
    "GBE213": Entry(
        "There is no agent in {paths}.",
        "An agent is a class that derives from GraphBusNode; `graphbus generate agent NAME` writes one.",
    ),
    "GBE214": Entry(
        "{handler} cannot be called with an event.",
        "Take nothing, `event`, `payload`, both, or fields of the payload by name; no *args, none by position only.",
    ),
    "GBE215": Entry(
        "{handler} subscribes to {topic!r}, which is no topic.",
        "Topics look like `/Order/Created`; `*` stands for one segment, `**` at the end for one or more.",
    ),
    "GBE216": Entry(
        "{agent} publishes to {topic!r}, which is no topic.",
        "Topics look like `/Order/Created`: letters, digits, `_` and `-` in each segment, and no wildcards.",
    ),
    "GBE220": Entry(
        "There is no {path}: no negotiation of this project has been locked.",
        "`graphbus build PATHS --enable-agents` negotiates and writes it; commit it.",
    ),
    "GBE221": Entry(
        "{agent}: {what}.",
        "`graphbus build PATHS --enable-agents` lets the agents settle on it; then commit the files and the lock.",
    ),
    "GBE222": Entry(
        "The lock cannot be read: {reason}.",
        "Restore it from version control, or negotiate again; after a merge keep both agents' blocks and one session.",
    ),
}
