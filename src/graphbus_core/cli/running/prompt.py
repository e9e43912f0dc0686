"""`graphbus run -i`: commands from a person or from a pipe, until the input ends.

terminal:  completion, history; Ctrl-C cancels the line or what it does, Ctrl-D leaves; the exit status is 0
pipe:      each line is a command; empty lines and those that begin with # are skipped; a refused one makes the exit status 7

The docstring of a command is its help: usage, summary, example.
"""

from __future__ import annotations

import logging
import sys
from cmd import Cmd
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from graphbus_core.cli import console
from graphbus_core.cli.running import trace_text
from graphbus_core.cli.running.instruments import Instruments, stopping_places
from graphbus_core.cli.running.terminal import Terminal, interruptible
from graphbus_core.cli.running.trace_text import clock
from graphbus_core.cli.running.typed_values import describe_fields, field_words, pretty, read_value, snippet
from graphbus_core.cli.running.work import plain
from graphbus_core.errors import GraphBusError, RunError, SeveralErrors, UsageError, did_you_mean
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.instruments.breakpoints import check_names
from graphbus_core.hosting.instruments.trace import SHORT, find, plant, roots
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.schema.types import Schema
from graphbus_core.store.beneath import Folder, read_plain

HISTORY = "prompt_history"

_KEPT_LINES = 1000
_PROMPT = "graphbus> "
_LEVELS = ("debug", "info", "warning", "error")
_LAST = 10
_LINES = 200
_IDS = 50
_WIDTH = 60


class Prompt(Cmd):
    """Reads lines and does what they say.

    Args:
        is_typed: A person types at a terminal.
        folder: The `state_dir`; what was typed is kept there.

    Attributes:
        total: How many lines were commands.
        refused: How many of them were refused.
    """

    def __init__(
        self,
        graph: LiveGraph,
        instruments: Instruments,
        terminal: Terminal,
        folder: Path,
        *,
        is_typed: bool,
    ) -> None:
        super().__init__()
        self.total = self.refused = 0
        self._graph = graph
        self._instruments = instruments
        self._terminal = terminal
        self._history = folder / HISTORY
        self._is_typed = is_typed
        self._typed: list[str] = []

    def run(self) -> None:
        """Read until the input ends or a line says `quit`."""
        with interruptible():
            if self._is_typed:
                self._talk()
            else:
                any(self.onecmd(line) for line in sys.stdin)

    # --- reading lines ---

    def _talk(self) -> None:
        console.out("Type `help` for the commands, TAB to complete; Ctrl-D leaves.")
        is_kept = self._read_history()
        try:
            while not self._do_next():
                pass
        finally:
            if is_kept:
                self._write_history()

    def _do_next(self) -> bool:
        """Read a line and do what it says; True ends the prompt."""
        is_read = False
        try:
            with self._terminal.line(_PROMPT):
                self._prepare_completion()
                line = input(_PROMPT)
            is_read = True
            self._typed += [line] if line and "\n" not in line else []
            return self.onecmd(line)
        except EOFError:
            console.out()
            return True
        except KeyboardInterrupt:
            self._say_interrupted(is_read=is_read)
            return self._is_over

    def _say_interrupted(self, *, is_read: bool) -> None:
        waiting = self._graph.bus.statistics().queued
        more = f" What still waits ({waiting}) is delivered with the next event." if waiting else ""
        if not is_read:
            console.out()
        elif not self._is_over:
            console.say(f"\nInterrupted.{more}")

    @property
    def _is_over(self) -> bool:
        """A handler on another thread has ended the process, and that thread has interrupted this one."""
        return self._graph.bus.interruption is not None

    def onecmd(self, line: str) -> bool:
        """Do what one line says; a refusal is shown. True ends the prompt."""
        name, _, rest = line.strip().partition(" ")
        if not name or name.startswith("#"):
            return False
        self.total += 1
        try:
            return bool(self._find(name)(rest.strip()))
        except GraphBusError as error:
            self.refused += 1
            for each in error.errors if isinstance(error, SeveralErrors) else (error,):
                console.error(each)
            return False
        finally:
            console.flush()

    def _find(self, name: str) -> Callable[[str], bool | None]:
        """The command with this name, or the only one whose name begins so; UsageError GBE159 when there is none."""
        names = _names()
        matching = [each for each in names if each == name] or [each for each in names if each.startswith(name)]
        if name == "exit":
            matching = ["quit"]
        if len(matching) != 1:
            several = " or ".join(map(repr, matching))
            suggestion = f" Did you mean {several}?" if matching else did_you_mean(name, names)
            raise UsageError("GBE159", name=name, suggestion=suggestion)
        work: Callable[[str], bool | None] = getattr(self, f"do_{matching[0]}")
        return work

    # --- commands that do something ---

    def do_call(self, rest: str) -> None:
        """call AGENT.METHOD [DATA]
        Call a method and show its result.
        call Stock.take sku=mug count=2
        """
        name, _, text = rest.partition(" ")
        agent, _, method = name.partition(".")
        if not method:
            raise _misunderstood("call", "the method is written as Agent.method")
        arguments = _read("call", text, self._methods().get(name)) or {}
        if not isinstance(arguments, dict):
            raise _misunderstood("call", "arguments have names: a JSON object, or key=value")
        self._answer(name, lambda: self._graph.call(agent, method, **arguments))

    def do_publish(self, rest: str) -> None:
        """publish TOPIC [DATA]
        Publish an event, wait for what comes of it.
        publish /Order/Placed {"order_id": "1"}
        """
        topic, payload = self._event("publish", rest)
        graph = self._graph
        before = graph.bus.statistics()
        receipt = graph.publish(topic, payload)
        is_over = True
        if receipt is not None:
            is_over = receipt.wait(graph.grace_s)
        elif graph.bus.statistics().failed != before.failed:  # only further attempts can still be outstanding
            is_over = graph.settle(graph.grace_s)
        after = graph.bus.statistics()
        deliveries, failed = after.delivered - before.delivered, after.failed - before.failed
        parts = [f"{_many(after.published - before.published, 'event')}, {_many(deliveries, 'delivery', 'deliveries')}"]
        if failed:
            parts.append(console.paint(f"{failed} failed: see `dead`", "bad"))
        if after.queued:
            parts.append(console.paint(f"{after.queued} still wait", "warn"))
        if not is_over:
            parts.append(console.paint(f"not at the end of it after {graph.grace_s:g} s: see `stats`", "warn"))
        console.out(", ".join(parts))

    def do_request(self, rest: str) -> None:
        """request TOPIC [DATA]
        Send an event to the one who answers it.
        request /Price/Asked sku=mug
        """
        topic, payload = self._event("request", rest)
        self._answer(f"The request of {topic}", lambda: self._graph.bus.request(topic, payload))

    # --- commands that show something ---

    def do_nodes(self, rest: str) -> None:
        """nodes [AGENT]
        The agents, what they hear and what can be called.
        nodes Stock
        """
        wanted = rest.split()
        for name in wanted:
            self._graph.node(name)  # refuses an unknown one
        heard: dict[str, list[str]] = {}
        for each in self._graph.bus.subscriptions:
            heard.setdefault(each.name.partition(".")[0], []).append(each.topic)
        methods: dict[str, list[str]] = {}
        for full, schema in self._methods().items():
            agent, _, method = full.partition(".")
            methods.setdefault(agent, []).append(f"{method}({describe_fields(schema)})")
        rows = [
            (console.paint(name, "name"), ", ".join(heard.get(name, ())), ", ".join(methods.get(name, ())))
            for name in wanted or self._graph.nodes
        ]
        rows += [
            (console.paint(name, "gone"), "left out:", console.plain(why.sentence))
            for name, why in self._graph.left_out.items()
            if not wanted
        ]
        console.table(("agent", "hears", "can be called"), rows)

    def do_topics(self, _rest: str) -> None:
        """topics
        The topics, their ends and their payloads.
        topics
        """
        schemas = self._topics()
        rows = [
            (
                console.paint(topic.name, "name"),
                ", ".join(topic.publishers) or ("outside" if topic.is_external else "-"),
                ", ".join(topic.subscribers) or ("outside" if topic.is_external else "-"),
                describe_fields(schemas.get(topic.name)) or "anything",
            )
            for topic in self._artifacts.topics.topics
        ]
        console.table(("topic", "from", "to", "payload"), rows)

    def do_stats(self, _rest: str) -> None:
        """stats
        What was delivered so far.
        stats
        """
        now = self._graph.bus.statistics()
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

    def do_history(self, rest: str) -> None:
        """history [N]
        The last events.
        history 20
        """
        events = islice(reversed(self._graph.bus.history()), _count("history", rest))
        rows = [
            (
                console.paint(event.event_id[:SHORT], "accent"),
                clock(event.timestamp),
                console.plain(event.topic),
                event.published_by or event.src or "outside",
                _shortened(pretty(event.payload, 1 << 20)),
            )
            for event in events
        ]
        console.table(("event", "at", "topic", "from", "payload"), rows[::-1])

    def do_dead(self, rest: str) -> None:
        """dead [N | replay]
        The last dead letters; or deliver them once more.
        dead 20
        """
        letters = self._graph.bus.dead_letters()
        if rest == "replay":
            died = self._graph.replay_dead_letters(letters)
            console.out(f"{_many(len(letters), 'dead letter')} delivered once more, {_bad(len(died))} failed again")
            return
        rows = [
            (
                console.paint(letter.event.event_id[:SHORT], "accent"),
                clock(letter.timestamp),
                console.plain(letter.event.topic),
                letter.subscription or "-",
                console.paint(console.plain(letter.error.partition("\n")[0]), "bad"),
                letter.place,
            )
            for letter in islice(reversed(letters), _count("dead", rest))
        ]
        if not letters:
            console.out("No dead letters.")
            return
        headers = ("event", "at", "topic", "handler", "error", "place")
        used = len(headers) - (not any(row[-1] for row in rows))
        console.table(headers[:used], [row[:used] for row in rows[::-1]])

    def do_trace(self, rest: str) -> None:
        """trace [ID | last | on | off]
        The last roots; one tree; each delivery at once.
        trace 3f2a91c4
        """
        recorder = self._instruments.recorder
        if recorder is None:
            raise UsageError("GBE160", command="trace", reason="this graph records no deliveries", example="trace last")
        if rest in ("on", "off"):
            recorder.show = self._instruments.say_delivery if rest == "on" else None
            return
        deliveries = list(recorder.recorded)
        if not rest:
            for root in reversed(roots(deliveries, _LAST)):
                tree = plant(root.event_id, [each for each in deliveries if each.correlation_id == root.event_id])
                console.out(next(trace_text.tree_lines(tree)))
            return
        found = find(deliveries, rest)
        marked = "" if found.root == found.event_id else found.event_id
        for line in trace_text.tree_lines(found.tree, marked=marked, limit=_LINES):
            console.out(line)

    def do_break(self, rest: str) -> None:
        """break [AGENT.METHOD | off]
        Stop before a handler or method, or nowhere.
        break Stock.on_taken
        """
        breakpoints = self._instruments.breakpoints
        if breakpoints is None or not self._is_typed:
            raise UsageError("GBE158", option="break")
        words = rest.split()
        if words[:1] == ["off"]:
            check_names(words[1:], breakpoints.names)
            breakpoints.remove(words[1:])
        else:
            check_names(words, stopping_places(self._graph, self._artifacts))
            breakpoints.names.update(words)
        console.out(f"Stops before: {', '.join(sorted(breakpoints.names)) or 'nothing'}")

    def do_profile(self, _rest: str) -> None:
        """profile
        How long the handlers took.
        profile
        """
        if self._instruments.profiler is not None:
            profile = self._instruments.profiler.profile()
            trace_text.show(profile, profile.handlers)

    def do_log(self, rest: str) -> None:
        """log [LEVEL]
        How much is logged; debug shows tracebacks.
        log debug
        """
        logger = logging.getLogger("graphbus")
        words = rest.lower().removeprefix("level").split()
        if words:
            if words[0] not in _LEVELS:
                raise _misunderstood("log", f"the levels are {', '.join(_LEVELS)}")
            logger.setLevel(words[0].upper())
        console.out(f"Log level: {logging.getLevelName(logger.level).lower()}")

    def do_help(self, rest: str) -> None:
        """help [COMMAND]
        This, or more about one command.
        help call
        """
        if rest:
            usage, summary, example = _help_of(self._find(rest))
            name, _, after = usage.partition(" ")
            console.out(f"{console.paint(name, 'name')} {after}\n  {summary}\n  Example: {example}")
            return
        rows = [_help_of(getattr(self, f"do_{name}")) for name in _names()]
        width = max(len(usage) for usage, *_ in rows)
        for usage, summary, _example in rows:
            console.out(f"{console.paint(usage.ljust(width), 'name')}  {summary}")
        console.out("\nDATA is JSON or key=value. TAB completes.")
        console.out("Ctrl-C cancels a line or a handler, Ctrl-D leaves.")

    def do_quit(self, _rest: str) -> bool:
        """quit
        Stop the graph in good order.
        quit
        """
        return True

    # --- what the commands work on ---

    @property
    def _artifacts(self) -> BuildArtifacts:
        """What the graph is made of now: it may have been reloaded."""
        if self._graph.origin is None:
            raise TypeError("only a graph that was built has a prompt")
        return self._graph.origin.artifacts

    def _methods(self) -> dict[str, Schema | None]:
        """`Agent.method` -> what it takes, for all that can be called."""
        return {
            f"{agent.name}.{method.name}": method.input_schema
            for agent in self._artifacts.agents.agents
            for method in agent.methods
            if method.has_schema
        }

    def _topics(self) -> dict[str, Schema | None]:
        """Every known topic -> the schema of its payloads, from its publishers or else from its first handler."""
        heard: dict[str, Schema] = {}
        for agent in self._artifacts.agents.agents:
            for subscription in agent.subscriptions:
                if subscription.declared is not None:
                    heard.setdefault(subscription.topic, subscription.declared)
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
        console.out(console.plain(pretty(plain(result))))

    # --- completion ---

    def _prepare_completion(self) -> None:
        """Before each line: a debugger has set its own completion."""
        readline = self._terminal.readline
        if readline is not None:
            readline.set_completer(self.complete)
            readline.set_completer_delims(" \t\n")
            readline.parse_and_bind("tab: complete")

    def complete(self, text: str, state: int) -> str | None:  # type: ignore[override]  # as readline wants it
        """Give the n-th word that may stand for this one; readline asks until there is none."""
        if state == 0:
            super().complete(text, 0)
            found = {word for word in self.completion_matches or () if word.startswith(text)}
            self.completion_matches = sorted(word if word[-1] in "=:}" else f"{word} " for word in found)
        matches = self.completion_matches or []
        return matches[state] if state < len(matches) else None

    def completedefault(self, text: str, line: str, _begin: int, end: int) -> list[str]:
        """Give the words that may stand in the place of `text` after a command."""
        command = line.partition(" ")[0]
        if command in ("call", "publish", "request"):
            return _with_data(self._methods() if command == "call" else self._topics(), text, line[:end])
        ids = [event.event_id[:SHORT] for event in self._graph.bus.history()[-_IDS:]]
        words: dict[str, Iterable[str]] = {
            "nodes": self._graph.nodes,
            "dead": ["replay"],
            "trace": ["on", "off", "last", *ids],
            "break": ["off", *stopping_places(self._graph, self._artifacts)],
            "log": _LEVELS,
            "help": _names(),
        }
        return list(words.get(command, ()))

    # --- history ---

    def _read_history(self) -> bool:
        """Let readline know what was typed before; False if the file cannot be read and must be left alone."""
        if self._terminal.readline is None:
            return False
        self._terminal.readline.clear_history()
        try:
            for line in self._kept_lines():
                self._terminal.readline.add_history(line)
        except OSError as error:
            told = f"What was typed before cannot be read: {error.strerror}. What is typed now is not kept."
            console.say(console.paint(told, "dim"))
            return False
        return True

    def _kept_lines(self) -> list[str]:
        try:
            return read_plain(self._history).decode("utf-8", "replace").splitlines()[-_KEPT_LINES:]
        except FileNotFoundError:
            return []

    def _write_history(self) -> None:
        """Add what was typed to what is in the file now: another prompt may have added to it.

        Only the owner may read it, for it holds payloads.
        """
        try:
            lines = [*self._kept_lines(), *self._typed][-_KEPT_LINES:]
            with Folder.at(self._history.parent, make=True) as folder:
                folder.write(f".{HISTORY}", "".join(f"{line}\n" for line in lines).encode(), 0o600)
                folder.replace(f".{HISTORY}", HISTORY)
        except OSError as error:
            console.say(console.paint(f"What was typed cannot be kept: {error.strerror}.", "dim"))


def _names() -> list[str]:
    return [name.removeprefix("do_") for name in vars(Prompt) if name.startswith("do_")]


def _help_of(command: Callable[[str], object]) -> tuple[str, str, str]:
    usage, summary, example = (line.strip() for line in (command.__doc__ or "-\n-\n-").strip().split("\n"))
    return usage, summary, example


def _read(command: str, text: str, schema: Schema | None) -> Any:
    try:
        return read_value(text, schema)
    except ValueError as error:
        raise _misunderstood(command, str(error)) from None


def _misunderstood(command: str, reason: str) -> UsageError:
    example = _help_of(getattr(Prompt, f"do_{command}"))[2]
    return UsageError("GBE160", command=command, reason=reason, example=example)


def _with_data(schemas: dict[str, Schema | None], text: str, line: str) -> list[str]:
    words = line.split()
    if len(words) < 2 or (len(words) == 2 and text):
        return list(schemas)
    schema = schemas.get(words[1])
    if schema is None or not schema.fields:
        return []
    return [snippet(schema)] if len(words) == 2 else field_words(schema, line, text)


def _count(command: str, rest: str) -> int:
    if not rest:
        return _LAST
    if not rest.isdecimal():
        raise _misunderstood(command, f"{rest!r} is no number")
    return int(rest)


def _many(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def _bad(count: int) -> str:
    return console.paint(f"{count:,}", "bad") if count else "0"


def _shortened(text: str) -> str:
    return console.plain(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…")
