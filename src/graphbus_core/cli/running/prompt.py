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
_MAX_HISTORY = 1000
_LEVELS = ("debug", "info", "warning", "error")
_DEFAULT_COUNT = 10
_MAX_TREE_LINES = 200
_MAX_CELL_LENGTH = 60


class CommandPrompt(Cmd):
    """Reads commands and runs them on the graph. The docstring of each `do_` method is its help: usage and summary.

    Args:
        graph: The running graph, which was started from artifacts.
        terminal: The terminal from which lines are read.
        folder: The `state_dir`, in which the history is stored.
        breakpoints: The instrument whose breakpoints `break` changes.
        recorder: The instrument whose deliveries `trace` shows.
        is_typed: True if a person types at a terminal, False for a pipe.

    Attributes:
        total: The number of commands so far.
        refused: The number of commands that raised an error.
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
        """Read and run commands until the input ends or the command is `quit`."""
        with interruptible():
            if not self._is_typed:
                with reading_with_signals():
                    any(self.onecmd(line) for line in sys.stdin)  # up to the first command that ends the prompt
                return
            console.print_line("Type `help` for the commands, TAB to complete; Ctrl-D leaves.")
            with _stored_history(self._folder):
                while not self._run_next_line():
                    pass

    def _run_next_line(self) -> bool:
        """Read a line and run it; return True to end the prompt: at the end of input, or after `quit` or a signal."""
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
        except KeyboardInterrupt:  # by Ctrl-C, or because a handler on another thread ends the process
            console.print_note("\nInterrupted." if is_read else "")
            return self._graph.bus.hosting.interruption is not None

    def onecmd(self, line: str) -> bool:
        """Run one command, and print its error if it has one. Return True if it ends the prompt."""
        name, _, rest = line.strip().partition(" ")
        if not name or name.startswith("#"):
            return False
        self.total += 1
        try:
            if name not in _command_names():
                raise UsageError("GBE159", name=name, suggestion=did_you_mean(name, _command_names()))
            return bool(getattr(self, f"do_{name}")(rest.strip()))
        except GraphBusError as error:
            self.refused += 1
            for each in error.errors if isinstance(error, SeveralErrors) else (error,):
                console.print_error(each)
            return False
        finally:
            console.flush()

    # --- commands that act on the graph ---

    def do_call(self, rest: str) -> None:
        """call AGENT.METHOD [DATA]: Call a method and show its result."""
        name, _, text = rest.partition(" ")
        agent, _, method = name.partition(".")
        if not method:
            raise _usage_error("call", "the method must be written as Agent.method")
        arguments = _parse_data("call", text, self._methods().get(name)) or {}
        if not isinstance(arguments, dict):
            raise _usage_error("call", "the arguments must be a JSON object or key=value pairs")
        self._print_result(name, lambda: self._graph.call_with_json(agent, method, arguments))

    def do_publish(self, rest: str) -> None:
        """publish TOPIC [DATA]: Publish an event, wait until all is handled."""
        topic, payload = self._parse_event("publish", rest)
        graph, before = self._graph, self._graph.bus.statistics()
        receipt = graph.publish(topic, payload)
        if graph.ledger is not None:
            graph.settle(graph.grace_s)
        elif receipt is not None:
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
        """request TOPIC [DATA]: Send an event to its one handler, show the answer."""
        topic, payload = self._parse_event("request", rest)
        self._print_result(f"The request of {topic}", lambda: self._graph.bus.request(topic, payload))

    # --- commands that show the state of the graph ---

    def do_nodes(self, rest: str) -> None:
        """nodes [AGENT]: The agents, their topics and their methods."""
        if rest:
            self._graph.node(rest)  # raises for an unknown agent
        subscribed = [(each.name.partition(".")[0], each.topic) for each in self._graph.bus.subscriptions]
        methods = [(*full.split("."), str(schema or "{}")[1:-1]) for full, schema in self._methods().items()]
        rows = [
            (
                console.style(name, "name"),
                ", ".join(topic for agent, topic in subscribed if agent == name),
                ", ".join(f"{method}({fields})" for agent, method, fields in methods if agent == name),
            )
            for name in ([rest] if rest else self._graph.nodes)
        ]
        console.print_table(("agent", "hears", "can be called"), rows)

    def do_topics(self, _rest: str) -> None:
        """topics: The topics, their agents and their payloads."""
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
        """stats: The deliveries so far, by subscription."""
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
                console.sanitize(_encode_json(event.payload)[:_MAX_CELL_LENGTH]),
            )
            for event in list(self._graph.bus.history())[-_parse_count("history", rest) :]
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
            for letter in list(letters)[-_parse_count("dead", rest) :]
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
            console.print_lines(trace_text.tree_lines(found.tree, marked=marked, limit=_MAX_TREE_LINES))
            return
        for root in reversed(list_roots(deliveries, _DEFAULT_COUNT)):
            tree = build_tree(root.event_id, [each for each in deliveries if each.correlation_id == root.event_id])
            console.print_line(next(trace_text.tree_lines(tree)))

    def do_break(self, rest: str) -> None:
        """break [AGENT.METHOD | off]: Stop before a handler or method; `off` removes all."""
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
        """log [LEVEL]: Show or set the log level; debug shows tracebacks."""
        logger = logging.getLogger("graphbus")
        if rest:
            if rest.lower() not in _LEVELS:
                raise _usage_error("log", f"the levels are {', '.join(_LEVELS)}")
            logger.setLevel(rest.upper())
        console.print_line(f"Log level: {logging.getLevelName(logger.level).lower()}")

    def do_help(self, _rest: str) -> None:
        """help: Show this help."""
        for usage, summary in map(_usage_and_summary, _command_names()):
            console.print_line(f"{console.style(f'{usage:26}', 'name')}  {summary}")
        console.print_line("\nDATA is JSON or key=value. TAB completes.")
        console.print_line("Ctrl-C cancels a line or a handler, Ctrl-D leaves.")

    def do_quit(self, _rest: str) -> bool:
        """quit: Stop the graph and leave."""
        return True

    # --- helpers of the commands ---

    @property
    def _artifacts(self) -> BuildArtifacts:
        """The artifacts that the graph was started from."""
        if self._graph.origin is None:
            raise TypeError("the prompt needs a graph that was started from artifacts")
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
        """Return topic -> schema of its payloads, from its publishers or else from its first handler that declares one."""
        declared: dict[str, Schema] = {}
        for agent in self._artifacts.agents.agents:
            for subscription in agent.subscriptions:
                if subscription.declared_schema is not None:
                    declared.setdefault(subscription.topic, subscription.declared_schema)
        return {topic.name: topic.schema or declared.get(topic.name) for topic in self._artifacts.topics.topics}

    def _parse_event(self, command: str, rest: str) -> tuple[str, Any]:
        """Return the topic and the payload of a command `TOPIC [DATA]`; raise GBE160 if they cannot be read."""
        topic, _, text = rest.partition(" ")
        if not topic:
            raise _usage_error(command, "it needs a topic")
        return topic, _parse_data(command, text, self._topics().get(topic))

    def _print_result(self, name: str, work: Callable[[], Any]) -> None:
        """Print the result of a call or request as JSON; an exception in it raises GBE689 with its place."""
        result, error = attempt(work)
        if isinstance(error, GraphBusError):
            raise error
        if error is not None:
            raise RunError("GBE689", where=self._graph.place_of(error), name=name, reason=describe_exception(error))
        console.print_line(console.Verbatim(console.sanitize(_encode_json(to_json_value(result)))))

    # --- completion ---

    def completenames(self, text: str, *_ignored: Any) -> list[str]:
        """Return the commands that begin with `text`, each followed by a space."""
        return [f"{name} " for name in _command_names() if name.startswith(text)]

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
def _stored_history(folder: Path) -> Iterator[None]:
    """Load the history into readline and store it afterwards, readable only by the owner because it contains payloads."""
    lines, refused = attempt(lambda: read_plain(folder / _HISTORY).decode("utf-8", "replace").splitlines())
    for line in lines or ():
        readline.add_history(line)
    try:
        yield
    finally:
        count = readline.get_current_history_length()
        typed = [readline.get_history_item(number) for number in range(max(count - _MAX_HISTORY, 0) + 1, count + 1)]
        if refused is None or isinstance(refused, FileNotFoundError):  # a link or a special file is not overwritten
            _, refused = attempt(lambda: _write_history(folder, "".join(f"{line}\n" for line in typed)))
        if refused is not None:
            console.print_note(console.style(f"The history could not be stored: {refused}.", "dim"))


def _write_history(folder: Path, text: str) -> None:
    """Replace the history file in the folder atomically, readable only by its owner."""
    with Folder.at(folder, make=True) as opened:
        opened.write(f".{_HISTORY}", text.encode(), 0o600)
        opened.replace(f".{_HISTORY}", _HISTORY)


def _command_names() -> list[str]:
    """Return the names of all commands: those of the `do_` methods."""
    return [name.removeprefix("do_") for name in vars(CommandPrompt) if name.startswith("do_")]


def _usage_and_summary(command: str) -> tuple[str, str]:
    """Return the two parts of the docstring of a command: `call AGENT.METHOD [DATA]` and what it does."""
    usage, _, summary = (getattr(CommandPrompt, f"do_{command}").__doc__ or "").partition(": ")
    return usage, summary


def _usage_error(command: str, reason: str) -> UsageError:
    """Return GBE160, whose hint shows how the command is written."""
    return UsageError("GBE160", command=command, reason=reason, example=_usage_and_summary(command)[0])


def _parse_count(command: str, rest: str) -> int:
    """Return the number after a command, 10 if there is none; raise GBE160 for anything else."""
    if rest and not rest.isdecimal():
        raise _usage_error(command, f"{rest!r} is not a number")
    return int(rest or _DEFAULT_COUNT)


def _encode_json(value: Any) -> str:
    """Return JSON on one line, with a space after `:` and `,`."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _parse_data(command: str, text: str, schema: Schema | None) -> Any:
    """Return the value that `read_data` reads from the data of a command; raise GBE160 if it cannot be read."""
    try:
        return read_data(text.strip(), schema)
    except ValueError as error:
        raise _usage_error(command, f"{text.strip()!r} is neither JSON nor key=value ({error})") from None


def read_data(text: str, schema: Schema | None) -> Any:
    """Parse a JSON value, or an object written as `key=value` pairs that are quoted as in a shell; an empty text is None.

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
        key, separator, value = word.partition("=")
        if not separator:
            raise ValueError(f"{word!r} has no =")
        field = schema.get(key) if schema else None
        pairs[key] = value if field and field.type.kind == "str" else _parse_value(value)
    return pairs


def _parse_value(text: str) -> Any:
    """Return the JSON value of a text; the text itself if it is not JSON."""
    try:
        return strict_json.loads(text)
    except ValueError:
        return text
