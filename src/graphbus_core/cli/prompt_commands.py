"""The commands of the prompt: what each does with the running graph, and how its arguments are completed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from graphbus_core.cli import console, trace_text
from graphbus_core.cli.durations import clock
from graphbus_core.cli.profile import show as show_profile
from graphbus_core.cli.prompt_words import describe_fields, field_words, pretty, read_value, snippet
from graphbus_core.cli.run_instruments import Instruments, stopping_places
from graphbus_core.cli.run_work import plain
from graphbus_core.errors import GraphBusError, RunError, UsageError, did_you_mean
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.instruments.breaks import check_names
from graphbus_core.hosting.instruments.trace_tree import plant
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.schema import Field, Schema

_LEVELS = ("debug", "info", "warning", "error")
_LAST = 10
_LINES = 200
_WIDTH = 60


class Session(NamedTuple):
    """What the commands work on."""

    graph: LiveGraph
    built: BuildArtifacts
    instruments: Instruments
    is_typed: bool
    """A person types at a terminal."""

    @property
    def artifacts(self) -> BuildArtifacts:
        """What the graph is made of at the time: it may have been reloaded."""
        return self.built if self.graph.origin is None else self.graph.origin.artifacts

    def agents(self) -> list[str]:
        """The agents that run."""
        return list(self.graph.nodes)

    def methods(self) -> dict[str, Schema | None]:
        """`Agent.method` -> what it takes, for all that can be called."""
        return {
            f"{agent.name}.{method.name}": method.input_schema
            for agent in self.artifacts.agents.agents
            for method in agent.methods
            if method.has_schema
        }

    def topics(self) -> dict[str, Schema | None]:
        """Every topic that is known -> what its payloads look like, by its publishers or else by its first handler."""
        heard: dict[str, Schema] = {}
        for agent in self.artifacts.agents.agents:
            for subscription in agent.subscriptions:
                if subscription.payload.kind == "record":
                    heard.setdefault(subscription.topic, Schema(subscription.payload.fields))
                elif subscription.fields:
                    needed = (Field(each.name, each.type, not each.has_default) for each in subscription.fields)
                    heard.setdefault(subscription.topic, Schema(tuple(needed)))
        return {topic.name: topic.schema or heard.get(topic.name) for topic in self.artifacts.topics.topics}


class Command(NamedTuple):
    """A word at the prompt.

    Attributes:
        usage: What follows it.
        work: Gets the session and the rest of the line.
        candidates: Words that may follow, given the line so far and the word that is being typed.
    """

    name: str
    usage: str
    summary: str
    example: str
    work: Callable[[Session, str], None]
    candidates: Callable[[Session, str, str], Iterable[str]] = lambda _session, _line, _text: ()


def misunderstood(command: str, reason: str) -> UsageError:
    """Make the refusal of a line."""
    return UsageError("GBE160", command=command, reason=reason, example=BY_NAME[command].example)


# --- doing something ---


def _call(session: Session, rest: str) -> None:
    name, _, text = rest.partition(" ")
    agent, dot, method = name.partition(".")
    if not dot or not method:
        raise misunderstood("call", "the method is written as Agent.method")
    arguments = _read("call", text, session.methods().get(name))
    if not isinstance(arguments or {}, dict):
        raise misunderstood("call", "arguments have names: a JSON object, or key=value")
    result, error = attempt(lambda: session.graph.call(agent, method, **(arguments or {})))
    if isinstance(error, GraphBusError):
        raise error
    if error is not None:
        where = session.graph.place_of(error)
        raise RunError("GBE689", where=where, agent=agent, method=method, reason=describe_exception(error))
    console.out(console.plain(pretty(plain(result))))


def _publish(session: Session, rest: str) -> None:
    topic, _, text = rest.partition(" ")
    if not topic:
        raise misunderstood("publish", "it needs a topic")
    before = session.graph.bus.statistics()
    session.graph.publish(topic, _read("publish", text, session.topics().get(topic)))
    session.graph.settle(session.graph.grace_s)
    after = session.graph.bus.statistics()
    events, deliveries = after.published - before.published, after.delivered - before.delivered
    failed, waiting = after.failed - before.failed, after.queued
    parts = [f"{_many(events, 'event')}, {_many(deliveries, 'delivery', 'deliveries')}"]
    if failed:
        parts.append(console.paint(f"{failed} failed: see `dead`", "bad"))
    if waiting:
        parts.append(console.paint(f"{waiting} still wait", "warn"))
    console.out(", ".join(parts))


def _read(command: str, text: str, schema: Schema | None) -> Any:
    try:
        return read_value(text, schema)
    except ValueError as error:
        raise misunderstood(command, str(error)) from None


# --- looking ---


def _nodes(session: Session, rest: str) -> None:
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


def _topics(session: Session, _rest: str) -> None:
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


def _stats(session: Session, _rest: str) -> None:
    now = session.graph.bus.statistics()
    rows = [
        (console.paint(name, "name"), f"{counts.delivered:,}", _bad(counts.failed))
        for name, counts in now.subscriptions.items()
    ]
    console.table(("subscription", "delivered", "failed"), rows, right=("delivered", "failed"))
    console.out(
        f"{_many(now.published, 'event')} published, {now.queued:,} waiting, "
        f"{_many(now.delivered, 'delivery', 'deliveries')}, {_bad(now.failed)} failed, "
        f"{_many(now.dead_letters, 'dead letter')}"
    )


def _history(session: Session, rest: str) -> None:
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


def _dead(session: Session, rest: str) -> None:
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
    console.table(("event", "at", "topic", "handler", "error", "place"), rows[::-1])


def _trace(session: Session, rest: str) -> None:
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


def _break(session: Session, rest: str) -> None:
    breakpoints = session.instruments.breakpoints
    if breakpoints is None or not session.is_typed:
        raise UsageError("GBE158", option="break")
    words = rest.split()
    if words[:1] == ["off"]:
        check_names(words[1:], breakpoints.names)
        breakpoints.remove(words[1:])
    else:
        check_names(words, stopping_places(session.graph, session.artifacts))
        breakpoints.names.update(words)
    console.out(f"Stops before: {', '.join(sorted(breakpoints.names)) or 'nothing'}")


def _profile(session: Session, _rest: str) -> None:
    if session.instruments.profiler is not None:
        profile = session.instruments.profiler.profile()
        show_profile(profile, profile.handlers)


def _log(_session: Session, rest: str) -> None:
    logger = logging.getLogger("graphbus")
    words = rest.lower().removeprefix("level").split()
    if words:
        if words[0] not in _LEVELS:
            raise misunderstood("log", f"the levels are {', '.join(_LEVELS)}")
        logger.setLevel(words[0].upper())
    console.out(f"Log level: {logging.getLevelName(logger.level).lower()}")


def _help(_session: Session, rest: str) -> None:
    if rest:
        command = find(rest)
        console.out(f"{console.paint(command.name, 'name')} {command.usage}")
        console.out(f"  {command.summary}")
        console.out(f"  Example: {command.example}")
        return
    width = max(len(f"{each.name} {each.usage}") for each in COMMANDS)
    for each in COMMANDS:
        console.out(f"{console.paint(f'{each.name} {each.usage}'.ljust(width), 'name')}  {each.summary}")
    console.out("\nDATA is JSON or key=value. TAB completes; Ctrl-C cancels a line or a handler, Ctrl-D leaves.")


def _quit(_session: Session, _rest: str) -> None:
    raise EOFError


# --- completing ---


def _with_data(names: Callable[[Session], dict[str, Schema | None]]) -> Callable[[Session, str, str], Iterable[str]]:
    def candidates(session: Session, line: str, text: str) -> Iterable[str]:
        words = line.split()
        if len(words) < 2 or (len(words) == 2 and text):
            return names(session)
        schema = names(session).get(words[1])
        if schema is None or not schema.fields:
            return ()
        return [snippet(schema)] if len(words) == 2 else field_words(schema, line, text)

    return candidates


def _first(*words: str) -> Callable[[Session, str, str], Iterable[str]]:
    return lambda _session, _line, _text: words


def _ids(session: Session, _line: str, _text: str) -> Iterable[str]:
    return ("on", "off", *(event.event_id[: trace_text.SHORT] for event in session.graph.bus.history()[-50:]))


def _places(session: Session, _line: str, _text: str) -> Iterable[str]:
    return ("off", *stopping_places(session.graph, session.artifacts))


COMMANDS: Sequence[Command] = (
    Command(
        "call", "AGENT.METHOD [DATA]", "Call a method and show its result.", "call Stock.take sku=mug count=2",
        _call, _with_data(Session.methods),
    ),
    Command(
        "publish", "TOPIC [DATA]", "Publish an event and wait for all that comes of it.",
        'publish /Order/Placed {"order_id": "1"}', _publish, _with_data(Session.topics),
    ),
    Command("nodes", "[AGENT]", "The agents, what they hear and what can be called.", "nodes", _nodes,
            lambda session, _line, _text: session.agents()),
    Command("topics", "", "The topics, their ends and their payloads.", "topics", _topics),
    Command("stats", "", "What was delivered so far.", "stats", _stats),
    Command("history", "[N]", "The last events.", "history 20", _history),
    Command("dead", "[N]", "The last dead letters.", "dead", _dead),
    Command("trace", "[EVENT | on | off]", "The last roots, the tree of one event, or every delivery as it happens.",
            "trace 3f2a91c4", _trace, _ids),
    Command("break", "[AGENT.METHOD | off]", "Stop before a handler or method; without a name: where it stops.",
            "break Stock.on_taken", _break, _places),
    Command("profile", "", "How long the handlers took.", "profile", _profile),
    Command("log", "[LEVEL]", "How much of the log is shown; debug shows tracebacks.", "log debug", _log, _first(*_LEVELS)),
    Command("help", "[COMMAND]", "This, or more about one command.", "help call", _help,
            lambda _session, _line, _text: BY_NAME),
    Command("quit", "", "Stop the graph in good order.", "quit", _quit),
)  # fmt: skip
BY_NAME: dict[str, Command] = {command.name: command for command in COMMANDS}


def find(name: str) -> Command:
    """Give a command by its name or by how its name begins.

    Raises:
        UsageError: GBE159 when there is none.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    if name == "exit":
        return BY_NAME["quit"]
    matching = [command for command in COMMANDS if command.name.startswith(name)]
    if len(matching) != 1:
        raise UsageError("GBE159", name=name, suggestion=did_you_mean(name, BY_NAME))
    return matching[0]


def _count(command: str, rest: str) -> int:
    if not rest:
        return _LAST
    if not rest.isdecimal():
        raise misunderstood(command, f"{rest!r} is no number")
    return int(rest)


def _many(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def _bad(count: int) -> str:
    return console.paint(f"{count:,}", "bad") if count else "0"


def _shortened(text: str) -> str:
    return console.plain(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…")
