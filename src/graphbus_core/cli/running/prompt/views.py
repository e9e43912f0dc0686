"""The commands of the prompt that show something of the running graph."""

from __future__ import annotations

from itertools import islice

from graphbus_core.cli import console
from graphbus_core.cli.running import trace_text
from graphbus_core.cli.running.durations import clock
from graphbus_core.cli.running.prompt.session import Session, misunderstood
from graphbus_core.cli.running.prompt.words import describe_fields, pretty
from graphbus_core.errors import RunError, did_you_mean
from graphbus_core.hosting.instruments.trace_tree import plant

_LAST = 10
_LINES = 200
_WIDTH = 60


def nodes(session: Session, rest: str) -> None:
    """The agents, what they hear and what can be called."""
    wanted = rest.split()
    for name in wanted:
        session.graph.node(name)  # refuses an unknown one
    heard: dict[str, list[str]] = {}
    for each in session.graph.bus.subscriptions:
        heard.setdefault(each.name.partition(".")[0], []).append(each.topic)
    methods = session.methods()
    rows = [
        (
            console.paint(name, "name"),
            ", ".join(heard.get(name, ())),
            ", ".join(
                f"{full.partition('.')[2]}({describe_fields(schema)})"
                for full, schema in methods.items()
                if full.startswith(f"{name}.")
            ),
        )
        for name in session.agents()
        if not wanted or name in wanted
    ]
    rows += [
        (console.paint(name, "gone"), "left out:", console.plain(why.sentence))
        for name, why in session.graph.left_out.items()
        if not wanted
    ]
    console.table(("agent", "hears", "can be called"), rows)


def topics(session: Session, _rest: str) -> None:
    """The topics, their ends and their payloads."""
    schemas = session.topics()
    rows = [
        (
            console.paint(topic.name, "name"),
            ", ".join(topic.publishers) or ("outside" if topic.is_external else "-"),
            ", ".join(topic.subscribers) or ("outside" if topic.is_external else "-"),
            describe_fields(schemas.get(topic.name)) or "anything",
        )
        for topic in session.artifacts.topics.topics
    ]
    console.table(("topic", "from", "to", "payload"), rows)


def stats(session: Session, _rest: str) -> None:
    """What was delivered so far."""
    now = session.graph.bus.statistics()
    rows = [
        (console.paint(name, "name"), f"{counts.delivered:,}", _bad(counts.failed))
        for name, counts in now.subscriptions.items()
    ]
    console.table(("subscription", "delivered", "failed"), rows, right=("delivered", "failed"))
    console.out(
        f"{many(now.published, 'event')} published, {now.queued:,} waiting, "
        f"{many(now.delivered, 'delivery', 'deliveries')}, {_bad(now.failed)} failed, "
        f"{many(now.dead_letters, 'dead letter')}"
    )


def history(session: Session, rest: str) -> None:
    """The last events, oldest first."""
    count = _count("history", rest)
    events = session.graph.bus.history()
    rows = [
        (
            console.paint(event.event_id[: trace_text.SHORT], "accent"),
            clock(event.timestamp),
            console.plain(event.topic),
            event.published_by or event.src or "outside",
            _shortened(pretty(event.payload, 1 << 20)),
        )
        for event in islice(reversed(events), count)
    ]
    console.table(("event", "at", "topic", "from", "payload"), rows[::-1])


def dead(session: Session, rest: str) -> None:
    """The last dead letters, oldest first; `replay` delivers them once more."""
    if rest == "replay":
        again = session.graph.bus.dead_letters()
        died = session.graph.replay_dead_letters(again)
        console.out(f"{many(len(again), 'dead letter')} delivered once more, {_bad(len(died))} failed again")
        return
    count = _count("dead", rest)
    letters = session.graph.bus.dead_letters()
    if not letters:
        console.out("No dead letters.")
        return
    rows = [
        (
            console.paint(letter.event.event_id[: trace_text.SHORT], "accent"),
            clock(letter.timestamp),
            console.plain(letter.event.topic),
            letter.subscription or "-",
            console.paint(console.plain(letter.error.partition("\n")[0]), "bad"),
            letter.place,
        )
        for letter in islice(reversed(letters), count)
    ]
    headers = ("event", "at", "topic", "handler", "error", "place")
    used = len(headers) - (not any(row[-1] for row in rows))
    console.table(headers[:used], [row[:used] for row in rows[::-1]])


def trace(session: Session, rest: str) -> None:
    """The last roots, the tree of one event, or every delivery as it happens."""
    recorder = session.instruments.recorder
    if recorder is None:
        return
    if rest in ("on", "off"):
        recorder.show = session.instruments.say_delivery if rest == "on" else None
        return
    deliveries = recorder.deliveries()
    if not rest:
        roots = dict.fromkeys(reversed([each.correlation_id for each in deliveries]))
        for root in reversed(list(islice(roots, _LAST))):
            tree = plant(root, [each for each in deliveries if each.correlation_id == root])
            console.out(next(trace_text.tree_lines(tree)))
        return
    ids = [name for each in deliveries for name in (each.event_id, each.correlation_id)]
    if rest == "last" and ids:
        rest = deliveries[-1].correlation_id
    found = list(dict.fromkeys(each for each in ids if each.startswith(rest.lower())))
    if not found:
        near = did_you_mean(rest, {each[: trace_text.SHORT] for each in ids})
        raise RunError("GBE685", event_id=rest, suggestion=near)
    if len(found) > 1:
        raise RunError("GBE686", count=len(found), event_id=rest, known=trace_text.suggestions(found[:6]))
    root = next(each.correlation_id for each in deliveries if found[0] in (each.event_id, each.correlation_id))
    tree = plant(root, [each for each in deliveries if each.correlation_id == root])
    for line in trace_text.tree_lines(tree, marked="" if root == found[0] else found[0], limit=_LINES):
        console.out(line)


def _count(command: str, rest: str) -> int:
    if not rest:
        return _LAST
    if not rest.isdecimal():
        raise misunderstood(command, f"{rest!r} is no number")
    return int(rest)


def many(count: int, one: str, several: str = "") -> str:
    """A number and its noun."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def _bad(count: int) -> str:
    return console.paint(f"{count:,}", "bad") if count else "0"


def _shortened(text: str) -> str:
    return console.plain(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…")
