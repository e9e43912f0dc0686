"""The commands of the prompt: what each does with the running graph, and how its arguments are completed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from graphbus_core.cli import console
from graphbus_core.cli.running import trace_text
from graphbus_core.cli.running.instruments import stopping_places
from graphbus_core.cli.running.profile_text import show as show_profile
from graphbus_core.cli.running.prompt.session import EXAMPLES, Session, misunderstood
from graphbus_core.cli.running.prompt.views import dead, history, many, nodes, stats, topics, trace
from graphbus_core.cli.running.prompt.words import field_words, pretty, read_value, snippet
from graphbus_core.cli.running.work import plain
from graphbus_core.errors import GraphBusError, RunError, UsageError, did_you_mean
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.instruments.breaks import check_names
from graphbus_core.isolation import attempt
from graphbus_core.schema.types import Schema

_LEVELS = ("debug", "info", "warning", "error")


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
    work: Callable[[Session, str], None]
    candidates: Callable[[Session, str, str], Iterable[str]] = lambda _session, _line, _text: ()


# --- doing something ---


def _call(session: Session, rest: str) -> None:
    name, _, text = rest.partition(" ")
    agent, dot, method = name.partition(".")
    if not dot or not method:
        raise misunderstood("call", "the method is written as Agent.method")
    arguments = _read("call", text, session.methods().get(name))
    if not isinstance(arguments or {}, dict):
        raise misunderstood("call", "arguments have names: a JSON object, or key=value")
    _answer(session, name, lambda: session.graph.call(agent, method, **(arguments or {})))


def _request(session: Session, rest: str) -> None:
    topic, _, text = rest.partition(" ")
    if not topic:
        raise misunderstood("request", "it needs a topic")
    payload = _read("request", text, session.topics().get(topic))
    _answer(session, f"The request of {topic}", lambda: session.graph.bus.request(topic, payload))


def _answer(session: Session, name: str, work: Callable[[], Any]) -> None:
    result, error = attempt(work)
    if isinstance(error, GraphBusError):
        raise error
    if error is not None:
        raise RunError("GBE689", where=session.graph.place_of(error), name=name, reason=describe_exception(error))
    console.out(console.plain(pretty(plain(result))))


def _publish(session: Session, rest: str) -> None:
    topic, _, text = rest.partition(" ")
    if not topic:
        raise misunderstood("publish", "it needs a topic")
    graph = session.graph
    before = graph.bus.statistics()
    receipt = graph.publish(topic, _read("publish", text, session.topics().get(topic)))
    is_over = True
    if receipt is not None:
        is_over = receipt.wait(graph.grace_s)
    elif graph.bus.statistics().failed != before.failed:  # further attempts may wait; all else has been waited for
        is_over = graph.settle(graph.grace_s)
    after = graph.bus.statistics()
    events, deliveries = after.published - before.published, after.delivered - before.delivered
    failed, waiting = after.failed - before.failed, after.queued
    parts = [f"{many(events, 'event')}, {many(deliveries, 'delivery', 'deliveries')}"]
    if failed:
        parts.append(console.paint(f"{failed} failed: see `dead`", "bad"))
    if waiting:
        parts.append(console.paint(f"{waiting} still wait", "warn"))
    if not is_over:
        parts.append(console.paint(f"not at the end of it after {graph.grace_s:g} s: see `stats`", "warn"))
    console.out(", ".join(parts))


def _read(command: str, text: str, schema: Schema | None) -> Any:
    try:
        return read_value(text, schema)
    except ValueError as error:
        raise misunderstood(command, str(error)) from None


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
        console.out(f"  Example: {EXAMPLES[command.name]}")
        return
    width = max(len(f"{each.name} {each.usage}") for each in COMMANDS)
    for each in COMMANDS:
        console.out(f"{console.paint(f'{each.name} {each.usage}'.ljust(width), 'name')}  {each.summary}")
    console.out("\nDATA is JSON or key=value. TAB completes.")
    console.out("Ctrl-C cancels a line or a handler, Ctrl-D leaves.")


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


def _words(*words: str) -> Callable[[Session, str, str], Iterable[str]]:
    return lambda _session, _line, _text: words


def _agents(session: Session, _line: str, _text: str) -> Iterable[str]:
    return session.agents()


def _ids(session: Session, _line: str, _text: str) -> Iterable[str]:
    return ("on", "off", "last", *(event.event_id[: trace_text.SHORT] for event in session.graph.bus.history()[-50:]))


def _places(session: Session, _line: str, _text: str) -> Iterable[str]:
    return ("off", *stopping_places(session.graph, session.artifacts))


COMMANDS: Sequence[Command] = (
    Command("call", "AGENT.METHOD [DATA]", "Call a method and show its result.", _call, _with_data(Session.methods)),
    Command(
        "publish", "TOPIC [DATA]", "Publish an event, wait for what comes of it.", _publish, _with_data(Session.topics)
    ),
    Command(
        "request", "TOPIC [DATA]", "Send an event to the one who answers it.", _request, _with_data(Session.topics)
    ),
    Command("nodes", "[AGENT]", "The agents, what they hear and what can be called.", nodes, _agents),
    Command("topics", "", "The topics, their ends and their payloads.", topics),
    Command("stats", "", "What was delivered so far.", stats),
    Command("history", "[N]", "The last events.", history),
    Command("dead", "[N | replay]", "The last dead letters; or deliver them once more.", dead, _words("replay")),
    Command("trace", "[ID | last | on | off]", "The last roots; one tree; each delivery at once.", trace, _ids),
    Command("break", "[AGENT.METHOD | off]", "Stop before a handler or method, or nowhere.", _break, _places),
    Command("profile", "", "How long the handlers took.", _profile),
    Command("log", "[LEVEL]", "How much is logged; debug shows tracebacks.", _log, _words(*_LEVELS)),
    Command("help", "[COMMAND]", "This, or more about one command.", _help, _words(*EXAMPLES)),
    Command("quit", "", "Stop the graph in good order.", _quit),
)
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
        several = " or ".join(repr(command.name) for command in matching)
        suggestion = f" Did you mean {several}?" if matching else did_you_mean(name, BY_NAME)
        raise UsageError("GBE159", name=name, suggestion=suggestion)
    return matching[0]
