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
        "No negotiation has come to its end here yet: there is no session in {folder}.",
        "`graphbus negotiate agents/` or `graphbus build agents/ --enable-agents` runs one, "
        "`--resume` goes on with one that was interrupted.",
    ),
    "GBE404": Entry("There is no session {session}.{suggestion}", "Sessions: {known}."),
    "GBE405": Entry(
        "What was kept of session {session} cannot be read: {reason}.",
        "Read it with the GraphBus that wrote it, or delete its folder; sources and artifacts do not depend on it.",
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
    "GBE411": Entry(
        "arbiter_domains names {name}, which is no arbiter.{suggestion}",
        "Arbiters: {known}. A class becomes one with `IS_ARBITER = True`, or by its name in arbiter_agents.",
    ),
    "GBE420": Entry(
        "Another negotiation of this project is running (process {process}).",
        "Wait for its end, or end it; a dry run is possible at any time.",
    ),
    "GBE421": Entry(
        "There is no session to go on with in {folder}: none was interrupted.",
        "Leave `--resume` out to begin a new one.",
    ),
    "GBE422": Entry(
        "Session {session} cannot go on: {what} since it was interrupted.",
        "Undo that change, or leave `--resume` out to begin a new session; its answers stay in the cache.",
    ),
    "GBE423": Entry(
        "Session {session} cannot be replayed: {reason}.",
        "A session can be replayed while its folder or the lock is there and the files that it read are as it left them.",
    ),
    "GBE424": Entry(
        "The replay of session {session} differs from its record: {what}.",
        "Something outside of the record had a say: another GraphBus, another Python, or a test that depends on chance.",
    ),
    "GBE425": Entry(
        "The session is done, but the lock cannot be written: {reason}.",
        "Make room or give permission, then negotiate again; the changes of the session are in your files.",
    ),
    "GBE426": Entry(
        "Session {session} came to nothing, because nobody could answer: {reason}",
        "`graphbus doctor --test` tries the model; --resume goes on with this session, --model rules needs none.",
    ),
    "GBE427": Entry(
        "{session} cannot be resumed, because it was not begun here by your GraphBus, or its files were changed since.",
        "Negotiate anew. `graphbus inspect-negotiation {session}` shows what was said.",
    ),
    "GBE430": Entry("git cannot be run: {reason}.", "Install git, or do without what needs it."),
    "GBE431": Entry(
        "`git {command}` refuses: {reason}.", "What git says of it is meant for you: GraphBus changed nothing."
    ),
    "GBE432": Entry("There is no commit {revision!r} in this repository.", "`git log --oneline` shows what there is."),
    "GBE433": Entry("No commit can be made here: {reason}.", "{advice}"),
    "GBE434": Entry(
        "Changes of {path} could not be committed: {reason}.",
        "Nothing was asked of anybody yet. Mend this, or negotiate without --commit.",
    ),
    "GBE435": Entry(
        "The accepted changes of session {session} are written, but none of them is committed: {reason}.",
        "Nothing is lost: `git diff` shows them, `graphbus undo` takes them back, `graphbus build` builds with them.",
    ),
    "GBE436": Entry(
        "{path} is no file that a decision could have written.{suggestion}", "It must be a text file below {root}."
    ),
    "GBE437": Entry("{path} has no line {line}: it has {count}.", "Lines count from 1."),
}
