"""Refusals around a negotiation: exit status 5."""

from __future__ import annotations

from graphbus_core.errors.entry import Entry

ENTRIES: dict[str, Entry] = {
    "GBE401": Entry(
        "arbiter_agents names {name}, which is no agent of this graph.{suggestion}",
        "Agents: {known}.",
    ),
    "GBE402": Entry(
        "The session {session} is there already.",
        "Ask for another name, or leave `session` empty to get the next free one.",
    ),
    "GBE403": Entry(
        "No negotiation has taken place here yet: there is no session in {folder}.",
        "`graphbus negotiate agents/` or `graphbus build agents/ --enable-agents` runs one.",
    ),
    "GBE404": Entry("There is no session {session}.{suggestion}", "Sessions: {known}."),
    "GBE405": Entry(
        "What was kept of session {session} cannot be read: {reason}.",
        "Delete its folder; sources and artifacts do not depend on it.",
    ),
    "GBE406": Entry("Session {session} has no {kind} {name}.{suggestion}", "It has: {known}."),
    "GBE407": Entry(
        "What was said in session {session} cannot be kept: {reason}; no source file was changed.",
        "Make room or give permission, then negotiate again.",
    ),
    "GBE408": Entry(
        "{session!r} is no name for a session.",
        "Use letters, digits, `-`, `_` and `.`, or leave the name out to get the next free one.",
    ),
    "GBE409": Entry(
        "The changes accepted in session {session} do not pass the gate together ({reason}), so that none was written.",
        "`graphbus inspect-negotiation --session {session}` shows them; negotiate again with fewer rounds.",
    ),
    "GBE410": Entry(
        "The changes of session {session} were written, but its record cannot be renewed: {reason}.",
        "Make room or give permission; `graphbus undo` takes the changes back, `graphbus build` builds with them.",
    ),
    "GBE430": Entry("git cannot be run: {reason}.", "Install git, or do without what needs it."),
    "GBE431": Entry("`git {command}` refuses: {reason}.", "What git says of it is meant for you: GraphBus changed nothing."),
    "GBE432": Entry("There is no commit {revision!r} in this repository.", "`git log --oneline` shows what there is."),
}
