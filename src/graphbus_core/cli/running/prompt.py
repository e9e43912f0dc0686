"""`graphbus run -i`: commands from a person or from a pipe, until the input ends.

terminal:  completion and history; Ctrl-C cancels the line or the running command, Ctrl-D leaves; the exit status is 0
pipe:      each line is a command; empty lines and lines with # are skipped; after a refused command the exit status is 7
"""

from __future__ import annotations

import logging
import readline
import shlex
import sys
from cmd import Cmd
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from graphbus_core import strict_json
from graphbus_core.cli import console
from graphbus_core.cli.running import trace_text
from graphbus_core.cli.running.terminal import Terminal, interruptible
from graphbus_core.cli.running.trace_text import format_clock
from graphbus_core.cli.running.work import stopping_places, to_json_value
from graphbus_core.errors import GraphBusError, RunError, SeveralErrors, UsageError, did_you_mean
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.instruments.breakpoints import Breakpoints, check_names
from graphbus_core.hosting.instruments.trace import SHORT_ID_LENGTH, Tracer, build_tree, find_event, list_roots
from graphbus_core.hosting.signals import reading_with_signals
from graphbus_core.isolation import attempt
from graphbus_core.schema.types import Schema
from graphbus_core.store import BuildArtifacts
from graphbus_core.store.folders import Folder, read_plain

_HISTORY = "prompt_history"
_KEPT_LINES = 1000
_LEVELS = ("debug", "info", "warning", "error")
_LAST = 10
_LINES = 200
_CELL = 60


class CommandPrompt(Cmd):
    """Reads commands and runs them on the graph. The docstring of each `do_` method is its help: usage and summary.

    Args:
        folder: The `state_dir`, in which the history is stored.
        is_typed: True if a person types at a terminal, False for a pipe.

    Attributes:
        total: How many lines were commands.
        refused: How many of them were refused.
    """

    prompt = "graphbus> "

    def __init__(
        self,
        graph: LiveGraph,
        terminal: Terminal,
        folder: Path,
        breakpoints: Breakpoints,
        recorder: Tracer,
        *,
        is_typed: bool,
    ) -> None:
        super().__init__()
        self.total = self.refused = 0
        self._graph = graph
        self._terminal = terminal
        self._folder = folder
        self._breakpoints = breakpoints
        self._recorder = recorder
        self._is_typed = is_typed

    def run(self) -> None:
        """Read until the input ends or a line says `quit`."""
        with interruptible():
            if not self._is_typed:
                with reading_with_signals():
                    any(self.onecmd(line) for line in sys.stdin)
                return
            console.print_line("Type `help` for the commands, TAB to complete; Ctrl-D leaves.")
            with _history(self._folder):
                while not self._do_next():
                    pass

    def _do_next(self) -> bool:
        """Read a line and run it; True ends the prompt."""
        is_read = False
        try:
            with self._terminal.reading(self.prompt):
                readline.set_completer(
                    cast("Any", self.complete)
                )  # before each line, because a debugger sets its own completer
                readline.set_completer_delims(" \t\n")
                readline.parse_and_bind("tab: complete")
                line = input(self.prompt)
            is_read = True
            return self.onecmd(line)
        except EOFError:
            console.print_line()
            return True
        except KeyboardInterrupt:  # from the person, or from a handler on another thread that ends the process
            console.print_note("\nInterrupted." if is_read else "")
            return self._graph.bus.interruption is not None

    def onecmd(self, line: str) -> bool:
        """Run one command; an error is printed. True ends the prompt."""
        name, _, rest = line.strip().partition(" ")
        if not name or name.startswith("#"):
            return False
        self.total += 1
        try:
            if name not in _names():
                raise UsageError("GBE159", name=name, suggestion=did_you_mean(name, _names()))
            return bool(getattr(self, f"do_{name}")(rest.strip()))
        except GraphBusError as error:
            self.refused += 1
            for each in error.errors if isinstance(error, SeveralErrors) else (error,):
                console.print_error(each)
            return False
        finally:
            console.flush()

    # --- commands that do something ---

    def do_call(self, rest: str) -> None:
        """call AGENT.METHOD [DATA]: Call a method and show its result."""
        name, _, text = rest.partition(" ")
        agent, _, method = name.partition(".")
        if not method:
            raise _misunderstood("call", "the method must be written as Agent.method")
        arguments = _read("call", text, self._methods().get(name)) or {}
        if not isinstance(arguments, dict):
            raise _misunderstood("call", "the arguments must be a JSON object or key=value pairs")
        self._answer(name, lambda: self._graph.call(agent, method, **arguments))

    def do_publish(self, rest: str) -> None:
        """publish TOPIC [DATA]: Publish an event, wait for what comes of it."""
        topic, payload = self._event("publish", rest)
        graph, before = self._graph, self._graph.bus.statistics()
        receipt = graph.publish(topic, payload)
        if receipt is not None:
            receipt.wait(graph.grace_s)
        elif graph.bus.statistics().failed != before.failed:  # only retries can still be outstanding
            graph.settle(graph.grace_s)
        after = graph.bus.statistics()
        failed = after.failed - before.failed
        parts = [
            console.pluralize(after.published - before.published, "event"),
            console.pluralize(after.delivered - before.delivered, "delivery", "deliveries"),
            *([console.style(f"{failed} failed: see `dead`", "bad")] if failed else []),
        ]
        console.print_line(", ".join(parts))

    def do_request(self, rest: str) -> None:
        """request TOPIC [DATA]: Send an event to the one who answers it."""
        topic, payload = self._event("request", rest)
        self._answer(f"The request of {topic}", lambda: self._graph.bus.request(topic, payload))

    # --- commands that show something ---

    def do_nodes(self, rest: str) -> None:
        """nodes [AGENT]: The agents, what they hear and what can be called."""
        if rest:
            self._graph.node(rest)  # raises for an unknown agent
        heard = [(each.name.partition(".")[0], each.topic) for each in self._graph.bus.subscriptions]
        methods = [(*full.split("."), str(schema or "{}")[1:-1]) for full, schema in self._methods().items()]
        rows = [
            (
                console.style(name, "name"),
                ", ".join(topic for agent, topic in heard if agent == name),
                ", ".join(f"{method}({fields})" for agent, method, fields in methods if agent == name),
            )
            for name in ([rest] if rest else self._graph.nodes)
        ]
        console.print_table(("agent", "hears", "can be called"), rows)

    def do_topics(self, _rest: str) -> None:
        """topics: The topics, their ends and their payloads."""
        schemas = self._topics()
        rows = [
            (
                console.style(topic.name, "name"),
                ", ".join(topic.publishers) or "-",
                ", ".join(topic.subscribers) or "-",
                str(schemas.get(topic.name) or "{anything}")[1:-1],
            )
            for topic in self._artifacts.topics.topics
        ]
        console.print_table(("topic", "from", "to", "payload"), rows)

    def do_stats(self, _rest: str) -> None:
        """stats: What was delivered so far."""
        now = self._graph.bus.statistics()
        rows = [
            (console.style(name, "name"), f"{counts.delivered:,}", f"{counts.failed:,}")
            for name, counts in now.subscriptions.items()
        ]
        console.print_table(("subscription", "delivered", "failed"), rows, right=("delivered", "failed"))
        deliveries = console.pluralize(now.delivered, "delivery", "deliveries")
        console.print_line(
            f"{console.pluralize(now.published, 'event')} published, {now.queued:,} waiting, {deliveries}, "
            f"{now.failed:,} failed, {console.pluralize(now.dead_letters, 'dead letter')}"
        )

    def do_history(self, rest: str) -> None:
        """history [N]: The last events."""
        rows = [
            (
                console.style(event.event_id[:SHORT_ID_LENGTH], "accent"),
                format_clock(event.timestamp),
                console.sanitize(event.topic),
                event.published_by or event.src or "outside",
                console.sanitize(_as_json(event.payload)[:_CELL]),
            )
            for event in list(self._graph.bus.history())[-_count("history", rest) :]
        ]
        console.print_table(("event", "at", "topic", "from", "payload"), rows)

    def do_dead(self, rest: str) -> None:
        """dead [N | replay]: The last dead letters; or deliver them once more."""
        letters = self._graph.bus.dead_letters()
        if rest == "replay":
            died = self._graph.replay_dead_letters(letters)
            console.print_line(
                f"{console.pluralize(len(letters), 'dead letter')} delivered once more, {len(died)} failed again"
            )
            return
        rows = [
            (
                console.style(letter.event.event_id[:SHORT_ID_LENGTH], "accent"),
                format_clock(letter.timestamp),
                console.sanitize(letter.event.topic),
                letter.subscription or "-",
                console.style(console.sanitize(letter.error.partition("\n")[0]), "bad"),
                letter.place,
            )
            for letter in list(letters)[-_count("dead", rest) :]
        ]
        if rows:
            console.print_table(("event", "at", "topic", "handler", "error", "place"), rows, optional=("place",))
        else:
            console.print_line("No dead letters.")

    def do_trace(self, rest: str) -> None:
        """trace [ID | last]: The last events from outside; or all that one has caused."""
        deliveries = list(self._recorder.recorded)
        if rest:
            found = find_event(deliveries, rest)
            marked = "" if found.root == found.event_id else found.event_id
            console.print_lines(trace_text.tree_lines(found.tree, marked=marked, limit=_LINES))
            return
        for root in reversed(list_roots(deliveries, _LAST)):
            tree = build_tree(root.event_id, [each for each in deliveries if each.correlation_id == root.event_id])
            console.print_line(next(trace_text.tree_lines(tree)))

    def do_break(self, rest: str) -> None:
        """break [AGENT.METHOD | off]: Stop before a handler or method, or nowhere."""
        if not self._is_typed:
            raise UsageError("GBE158", option="break")
        names = self._breakpoints.names
        if rest == "off":
            names.clear()
        else:
            check_names(rest.split(), stopping_places(self._graph))
            names.update(rest.split())
        console.print_line(f"Stops before: {', '.join(sorted(names)) or 'nothing'}")

    def do_log(self, rest: str) -> None:
        """log [LEVEL]: How much is logged; debug shows tracebacks."""
        logger = logging.getLogger("graphbus")
        if rest:
            if rest.lower() not in _LEVELS:
                raise _misunderstood("log", f"the levels are {', '.join(_LEVELS)}")
            logger.setLevel(rest.upper())
        console.print_line(f"Log level: {logging.getLevelName(logger.level).lower()}")

    def do_help(self, _rest: str) -> None:
        """help: This."""
        for usage, summary in map(_help_of, _names()):
            console.print_line(f"{console.style(f'{usage:26}', 'name')}  {summary}")
        console.print_line("\nDATA is JSON or key=value. TAB completes.")
        console.print_line("Ctrl-C cancels a line or a handler, Ctrl-D leaves.")

    def do_quit(self, _rest: str) -> bool:
        """quit: Stop the graph in good order."""
        return True

    # --- what the commands work on ---

    @property
    def _artifacts(self) -> BuildArtifacts:
        if self._graph.origin is None:
            raise TypeError("only a graph that was built has a prompt")
        return self._graph.origin.artifacts

    def _methods(self) -> dict[str, Schema | None]:
        """Return `Agent.method` -> input schema, for all methods that can be called."""
        return {
            f"{agent.name}.{method.name}": method.input_schema
            for agent in self._artifacts.agents.agents
            for method in agent.methods
            if method.has_schema
        }

    def _topics(self) -> dict[str, Schema | None]:
        """Every known topic -> the schema of its payloads, from its publishers or otherwise its first handler."""
        heard: dict[str, Schema] = {}
        for agent in self._artifacts.agents.agents:
            for subscription in agent.subscriptions:
                if subscription.declared_schema is not None:
                    heard.setdefault(subscription.topic, subscription.declared_schema)
        return {topic.name: topic.schema or heard.get(topic.name) for topic in self._artifacts.topics.topics}

    def _event(self, command: str, rest: str) -> tuple[str, Any]:
        topic, _, text = rest.partition(" ")
        if not topic:
            raise _misunderstood(command, "it needs a topic")
        return topic, _read(command, text, self._topics().get(topic))

    def _answer(self, name: str, work: Callable[[], Any]) -> None:
        result, error = attempt(work)
        if isinstance(error, GraphBusError):
            raise error
        if error is not None:
            raise RunError("GBE689", where=self._graph.place_of(error), name=name, reason=describe_exception(error))
        console.print_line(console.Verbatim(console.sanitize(_as_json(to_json_value(result)))))

    # --- completion ---

    def completenames(self, text: str, *_ignored: Any) -> list[str]:
        """Return the commands that begin with `text`, each followed by a space."""
        return [f"{name} " for name in _names() if name.startswith(text)]

    def completedefault(self, text: str, line: str, begin: int, _end: int) -> list[str]:
        """Return the completions of `text` after a command."""
        command, *before = line[:begin].split()
        if command in ("call", "publish", "request"):
            schemas = self._methods() if command == "call" else self._topics()
            if before:
                schema = schemas.get(before[0])
                keys = [f"{field.name}=" for field in schema.fields] if schema else []
                return [key for key in keys if key.startswith(text) and f" {key}" not in line[:begin]]
            words: Iterable[str] = schemas
        elif command == "break":
            words = ["off", *stopping_places(self._graph)]
        else:
            words = {"nodes": self._graph.nodes, "dead": ["replay"], "trace": ["last"], "log": _LEVELS}.get(command, ())
        return sorted({f"{word} " for word in words if word.startswith(text)})


@contextmanager
def _history(folder: Path) -> Iterator[None]:
    """Load the history into readline and store it afterwards, readable only by the owner because it contains payloads."""
    lines, refused = attempt(lambda: read_plain(folder / _HISTORY).decode("utf-8", "replace").splitlines())
    for line in lines or ():
        readline.add_history(line)
    try:
        yield
    finally:
        count = readline.get_current_history_length()
        typed = [readline.get_history_item(number) for number in range(max(count - _KEPT_LINES, 0) + 1, count + 1)]
        if refused is None or isinstance(refused, FileNotFoundError):  # a link or a special file is not overwritten
            _, refused = attempt(lambda: _keep(folder, "".join(f"{line}\n" for line in typed)))
        if refused is not None:
            console.print_note(console.style(f"What was typed is not kept: {refused}.", "dim"))


def _keep(folder: Path, text: str) -> None:
    with Folder.at(folder, make=True) as opened:
        opened.write(f".{_HISTORY}", text.encode(), 0o600)
        opened.replace(f".{_HISTORY}", _HISTORY)


def _names() -> list[str]:
    return [name.removeprefix("do_") for name in vars(CommandPrompt) if name.startswith("do_")]


def _help_of(command: str) -> tuple[str, str]:
    usage, _, summary = (getattr(CommandPrompt, f"do_{command}").__doc__ or "").partition(": ")
    return usage, summary


def _misunderstood(command: str, reason: str) -> UsageError:
    return UsageError("GBE160", command=command, reason=reason, example=_help_of(command)[0])


def _count(command: str, rest: str) -> int:
    if rest and not rest.isdecimal():
        raise _misunderstood(command, f"{rest!r} is not a number")
    return int(rest or _LAST)


def _as_json(value: Any) -> str:
    """Return JSON on one line, with a space after `:` and `,`."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _read(command: str, text: str, schema: Schema | None) -> Any:
    try:
        return read_data(text.strip(), schema)
    except ValueError as error:
        raise _misunderstood(command, f"{text.strip()!r} is neither JSON nor key=value ({error})") from None


def read_data(text: str, schema: Schema | None) -> Any:
    """Read one JSON value, or an object written as `key=value` pairs, quoted as in a shell; an empty text is None.

    The value of a pair is JSON if it is valid JSON, otherwise a string; for a string field it is always a string.

    Raises:
        ValueError: The text is neither.
    """
    if not text:
        return None
    if text[0] in '{["' or "=" not in text:
        return strict_json.loads(text)
    pairs = {}
    for word in shlex.split(text):
        key, is_pair, value = word.partition("=")
        if not is_pair:
            raise ValueError(f"{word!r} has no =")
        field = schema.get(key) if schema else None
        pairs[key] = value if field and field.type.kind == "str" else _as_typed(value)
    return pairs


def _as_typed(text: str) -> Any:
    try:
        return strict_json.loads(text)
    except ValueError:
        return text
