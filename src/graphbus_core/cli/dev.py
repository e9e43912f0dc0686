"""`graphbus dev`: a running graph that follows its source files. Checks, builds and reloads after each save.

check, build (wait for a save until that works) -> the stages of Runtime Mode -> save, save, save ... -> Ctrl-C
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import click
import msgspec

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.development import Development, Saved, causes
from graphbus_core.cli.watching import Watcher, need
from graphbus_core.errors import GraphBusError, UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import Patience, Stopped, stop_on_signals, wait_for_signal
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest


@click.command("dev", short_help="Run the agents, and reload them on each save.")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@click.option("--clear", "clears", is_flag=True, help="Clear the terminal before what a save has to say.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object per line to stdout, for editors.")
def dev(*, paths: tuple[str, ...], entrypoint: str, clears: bool, as_json: bool) -> int:
    """Check, build and run the agents in PATH (the working directory by default), and do so again whenever a file is saved.

    The graph stays up: agents keep what they know, events that are published meanwhile wait for the new code. While a
    file has an error, the old code keeps running. Source files are never written. Ctrl-C ends it in good order.

    Exit status: 0 ended by Ctrl-C or SIGTERM; 2 wrong usage, or watchfiles is not installed.

    \b
    Examples:
      graphbus dev agents/
      graphbus dev agents/ --entrypoint my_shop.main:run
      graphbus dev agents/ --json
    """
    need("graphbus dev")
    teller = Teller(clears=clears, as_json=as_json)
    with show_logs(), _no_bytecode():
        return _Session(paths, entrypoint, teller).run()


class Teller:
    """Writes what happens to stdout: lines for people, or one JSON object per line."""

    def __init__(self, *, clears: bool = False, as_json: bool = False) -> None:
        self.development: Development | None = None
        self._clears = clears
        self._as_json = as_json

    def saved(self, saved: Saved) -> None:
        """Tell what came of a save."""
        from graphbus_core.cli import development_text as text

        if self._as_json:
            self._line(text.document(saved))
        elif self.development is not None:
            if self._clears:
                console.clear()
            for line in text.lines(saved, self.development.root, self.development.project):
                console.out(line)
        console.flush()

    def waiting(self, errors: Sequence[GraphBusError], root: str) -> None:
        """Tell that nothing runs yet, and why."""
        from graphbus_core.cli import development_text as text

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
        from graphbus_core.cli import development_text as text

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
            console.out(f"Watching {console.plain(development.shown_paths)} {took}. Ctrl-C ends it.")
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

    def __init__(self, paths: tuple[str, ...], entrypoint: str, teller: Teller) -> None:
        self._entrypoint = entrypoint
        self._teller = teller
        self._development = teller.development = Development(paths, teller.saved)
        self._saves: SimpleQueue[tuple[str, ...] | UsageError] = SimpleQueue()
        self._told: list[str] = []
        self._has_graph = False

    def run(self) -> int:
        config = self._development.config
        try:
            with (
                stop_on_signals() as patience,
                Watcher(Path(config.root), self._on_saved, self._on_failure, exclude=config.settings.exclude),
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
        saved = self._saves.get()
        if isinstance(saved, UsageError):
            raise saved
        if saved:
            self._told = []

    def _run_once(self, patience: Patience) -> bool:
        """Build, and run until a signal; False when the graph could not be built or started."""
        started = perf_counter()
        patience.is_busy = lambda: True
        try:
            built = self._development.build()
            request = RuntimeRequest(artifacts=built.config.artifacts_dir, entrypoint=self._entrypoint, is_serving=True)

            def on_ready(graph: LiveGraph, artifacts: BuildArtifacts) -> None:
                self._has_graph = True
                runtime.spare_handlers(patience, graph)
                self._teller.running(artifacts, perf_counter() - started)

            runtime.run_runtime_pipeline(
                request, on_ready=on_ready, companions=[self._development.beside], work=self._work
            )
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
        """Call the entry point, if there is one, and stay up."""
        if self._entrypoint and graph.origin is not None:
            result = runtime.execute_entrypoint(graph.origin.config, graph.origin.modules, graph)
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
