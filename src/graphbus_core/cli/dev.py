"""`graphbus dev`: a running graph that follows its source files. Checks, builds and reloads after each save.

check, build (wait for a save until that works) -> the stages of Runtime Mode -> save, save, save ... -> Ctrl-C
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

import click
import msgspec

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.running.development import Development, Saved, causes
from graphbus_core.cli.running.instruments import InstrumentOptions, ready
from graphbus_core.cli.running.people import People
from graphbus_core.cli.running.serving import Beside, servers, serving_options
from graphbus_core.cli.running.terminal import LogStream, Terminal
from graphbus_core.cli.running.watching import Watcher, need
from graphbus_core.errors import GraphBusError, UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import LOOK_S, Patience, Stopped, look_for_signal, stop_on_signals, wait_for_signal
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest


@click.command("dev", short_help="Run the agents, and reload them on each save.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@click.option("-i", "--interactive", "is_interactive", is_flag=True, help="Type commands to the running graph.")
@serving_options
@click.option("--clear", "clears", is_flag=True, help="Clear the terminal before what a save has to say.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per line to stdout, for editors.")
def dev(**given: object) -> int:
    """Check, build and run the agents in PATH (the working directory by default), and do so again whenever a file is saved.

    The graph stays up: agents keep what they know, events that are published meanwhile wait for the new code. While a
    file has an error, the old code keeps running. Source files are never written. Ctrl-C ends it in good order.

    Exit status: 0 ended by Ctrl-C, SIGTERM or at the prompt; 2 wrong usage, or watchfiles is not installed; 7 an `on_stop`
    failed in the end.

    \b
    Examples:
      graphbus dev agents/
      graphbus dev agents/ --entrypoint my_shop.main:run
      graphbus dev agents/ -i
      graphbus dev agents/ --serve --port 8765
    """
    options = msgspec.convert(given, DevOptions)
    need("graphbus dev")
    for option, is_given in (("--entrypoint", bool(options.entrypoint)), ("--json", options.as_json)):
        if options.is_interactive and is_given:
            raise UsageError("GBE132", option="-i", other=option, reason="the prompt takes its place")
    terminal = Terminal()
    lines = LogStream(terminal) if options.is_interactive else None
    with show_logs(lines, is_brief=options.is_interactive), _no_bytecode(), ExitStack() as stack:
        return _Session(options, terminal, stack).run()


class DevOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was given on the command line; the fields are named as the parameters of the command."""

    paths: tuple[str, ...]
    entrypoint: str
    is_interactive: bool
    is_served: bool
    host: str
    port: int | None
    health: str
    clears: bool
    as_json: bool


class Teller:
    """Writes what happens to stdout: lines for people, or one JSON object per line."""

    def __init__(
        self, terminal: Terminal, *, clears: bool = False, as_json: bool = False, is_at_a_prompt: bool = False
    ) -> None:
        self.development: Development | None = None
        self._terminal = terminal
        self._clears = clears
        self._as_json = as_json
        self._how_to_end = "" if is_at_a_prompt else " Ctrl-C ends it."  # there it cancels a line

    def saved(self, saved: Saved) -> None:
        """Tell what came of a save."""
        from graphbus_core.cli.running import development_text as text

        if self._as_json:
            self._line(text.document(saved))
        elif self.development is not None:
            if self._clears:
                console.clear()
            lines = text.lines(saved, self.development.root, self.development.project)
            self._terminal.say_above("\n".join(lines), console.out)
        console.flush()

    def waiting(self, errors: Sequence[GraphBusError], root: str) -> None:
        """Tell that nothing runs yet, and why."""
        from graphbus_core.cli.running import development_text as text

        if self._as_json:
            self._line({"event": "waiting", "errors": [console.describe(error) for error in errors]})
        else:
            for error in errors:
                for line in text.error_lines(error, root):
                    console.out(line)
            console.out("Nothing runs yet: waiting for a save that mends this.")
        console.flush()

    def running(self, artifacts: BuildArtifacts, seconds: float) -> None:
        """Tell that the graph is ready, and what is wrong with it."""
        from graphbus_core.cli.running import development_text as text

        development = self.development
        findings = development.findings if development else ()
        if self._as_json:
            agents = [each.name for each in artifacts.agents.agents]
            found = text.findings(findings)
            self._line({"event": "ready", "agents": agents, "findings": found, "seconds": round(seconds, 4)})
        elif development is not None:
            for line in text.finding_lines(findings, development.project):
                console.out(line)
            for line in runtime.ready_lines(artifacts):
                console.out(line)
            took = console.paint(f"(ready in {seconds * 1000:.0f} ms)", "dim")
            console.out(f"Watching {console.plain(development.shown_paths)} {took}.{self._how_to_end}")
        console.flush()

    def stopped(self) -> None:
        """Tell that the graph was stopped in good order."""
        if self._as_json:
            self._line({"event": "stopped"})
        else:
            console.out("\nStopped.")

    @staticmethod
    def _line(document: object) -> None:
        console.out(msgspec.json.encode(document).decode())


class _Session:
    """One call of the command."""

    def __init__(self, options: DevOptions, terminal: Terminal, stack: ExitStack) -> None:
        self._options = options
        self._teller = Teller(
            terminal, clears=options.clears, as_json=options.as_json, is_at_a_prompt=options.is_interactive
        )
        self._development = self._teller.development = Development(options.paths, self._teller.saved)
        artifacts = self._development.config.artifacts_dir
        self._beside: Beside = servers(
            stack,
            artifacts,
            is_served=options.is_served,
            host=options.host,
            port=options.port,
            health=options.health,
        )
        wanted = InstrumentOptions(
            artifacts=artifacts,
            is_interactive=options.is_interactive,
            breaks=(),
            is_traced=False,
            traces_payloads=False,
            is_profiled=False,
            as_json=options.as_json,
        )
        self._instruments = ready(wanted, terminal, stack)
        self._people = People(terminal, self._instruments, wanted)
        self._saves: SimpleQueue[tuple[str, ...] | UsageError] = SimpleQueue()
        self._told: list[str] = []
        self._has_graph = False

    def run(self) -> int:
        config = self._development.config
        try:
            with (
                stop_on_signals() as patience,
                Watcher(Path(config.root), self._on_saved, self._on_failure, exclude=self._development.excluded),
            ):
                while not self._run_once(patience):
                    self._wait_for_save(patience)
        except Stopped:
            self._teller.stopped()
        return 0

    def _on_saved(self, paths: tuple[str, ...]) -> None:
        if self._has_graph:
            self._development.on_saved(paths)
        else:
            self._saves.put(paths)

    def _on_failure(self, error: UsageError) -> None:
        if self._has_graph:
            console.error(error)
        else:
            self._saves.put(error)

    def _wait_for_save(self, patience: Patience) -> None:
        patience.is_busy = lambda: False
        saved = self._next_save()
        if isinstance(saved, UsageError):
            raise saved
        if saved:
            self._told = []

    def _next_save(self) -> tuple[str, ...] | UsageError:
        while True:
            look_for_signal()
            with suppress(Empty):
                return self._saves.get(timeout=LOOK_S)

    def _run_once(self, patience: Patience) -> bool:
        """Build, and run until a signal; False when the graph could not be built or started."""
        started = perf_counter()
        patience.is_busy = lambda: True
        try:
            built = self._development.build()
            request = RuntimeRequest(
                artifacts=built.config.artifacts_dir,
                entrypoint=self._options.entrypoint,
                is_serving=self._options.is_served or not self._options.is_interactive,
                instruments=(*self._beside.middleware, *self._instruments.middleware),
            )

            def on_ready(graph: LiveGraph, artifacts: BuildArtifacts) -> None:
                self._has_graph = True
                runtime.spare_handlers(patience, graph)
                self._teller.running(artifacts, perf_counter() - started)
                self._people.meet(graph, artifacts)

            companions = (*self._beside.companions, self._development.beside)
            runtime.run_runtime_pipeline(request, on_ready=on_ready, companions=companions, work=self._work)
        except GraphBusError as error:
            if self._has_graph:  # while it stopped
                raise
            self._wait_for(causes(error))
            return False
        return True

    def _wait_for(self, errors: Sequence[GraphBusError]) -> None:
        told = [str(error) for error in errors]
        if told != self._told:
            self._teller.waiting(errors, self._development.root)
        self._told = told

    def _work(self, graph: LiveGraph) -> Any:
        """Talk with who is at the prompt until they leave; else call the entry point, if there is one, and stay up."""
        if self._options.is_interactive:
            self._people.talk(graph)
            return
        if self._options.entrypoint and graph.origin is not None:
            result = runtime.call_entrypoint(self._options.entrypoint, graph.origin.modules, graph)
            if isinstance(result.error, GraphBusError):
                console.error(result.error)
        wait_for_signal()


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Bytecode is told from newer source by the second; while files are saved all the time, that is too coarse."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
