"""Runs a graph in this process, as the options of `graphbus run` ask for.

instruments: middleware around every handler and call, made before the graph     (--trace, --profile, --break)
companions:  stand beside the running graph, left in reverse order before it stops   (--serve, --health)
work:        what the main thread does: calls and events, the prompt, or waiting for a signal
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from graphbus_core import runtime, settings
from graphbus_core.cli import console
from graphbus_core.cli.running.instruments import InstrumentOptions, Instruments, check, ready
from graphbus_core.cli.running.terminal import LogStream, Terminal
from graphbus_core.cli.running.work import OneShot
from graphbus_core.errors import GraphBusError, RunError, UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import Patience, Stopped, stop_on_signals, wait_for_signal
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import Instrument, RuntimeConfig, Validation

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Show(NamedTuple):
    """What is to be shown above the line of the prompt."""

    text: str


class Imported(NamedTuple):
    """The modules of the project are imported."""


class Ready(NamedTuple):
    """The graph runs.

    Attributes:
        lines: What a person is to know of it.
        modules: The modules of GraphBus that it needs, so that the next process has them before it is needed.
    """

    lines: tuple[str, ...]
    modules: tuple[str, ...]


class Failed(NamedTuple):
    """The graph could not start, or did not end well."""

    errors: tuple[GraphBusError, ...]


class SupervisorLink:
    """The supervisor, as seen from the process that runs the graph.

        supervisor                          the process
        (starts it)                         imports GraphBus
        Order(options, arguments)     ->    imports the modules of the project
                                      <-    Imported | Failed
        "go"                          ->    makes and starts the agents
                                      <-    Ready | Failed
        "proceed"                     ->    does what the options ask for, and stays up
        Show(text)                    ->    writes it above the line that is being typed
        "end", or it is gone          ->    ends as after SIGTERM

    Everything up to `Imported` happens while the old code still runs, so a module that cannot be imported does no harm.

    Attributes:
        show: Writes text that it sends while somebody may be typing.
    """

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.show: Callable[[str], None] = console.out
        self._connection = connection
        self._may_proceed = Event()

    def wait(self) -> Any:
        """Give its next message.

        Raises:
            Stopped: It wants this process to end, or is gone.
        """
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            message = "end"
        if message == "end":
            raise Stopped(signal.SIGTERM)
        return message

    def tell(self, message: Imported | Ready | Failed) -> None:
        """Send a message; nobody may be left to read it."""
        try:
            self._connection.send(message)
        except OSError:
            return

    def listen(self, patience: Patience) -> None:
        """From now on end the graph when it says so, whatever the main thread does."""

        def listen() -> None:
            try:
                while True:
                    message = self.wait()
                    if isinstance(message, Show):
                        self.show(message.text)
                    else:
                        self._may_proceed.set()
            except Stopped:
                patience.ask()

        Thread(target=listen, name="graphbus-supervisor", daemon=True).start()

    def ready(self, lines: tuple[str, ...]) -> None:
        """Report that the graph runs, and go on when that has been shown."""
        modules = tuple(name for name in sys.modules.copy() if name.startswith("graphbus_core."))
        self.tell(Ready(lines, modules))
        self._may_proceed.wait()


F = TypeVar("F", bound=Callable[..., Any])


def serving_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(
        [
            click.option("--serve", "is_served", is_flag=True, help="Take calls and events over HTTP."),
            click.option("--host", default="", metavar="HOST", help="Where --serve listens (127.0.0.1)."),
            click.option(
                "--port", type=click.IntRange(0, 65535), metavar="PORT", help="Its port (8765); 0: any that is free."
            ),
            click.option(
                "--health", default="", metavar="[HOST:]PORT", help="Probes and metrics alone, without a token."
            ),
        ]
    ):
        command = option(command)
    return command


class Beside(NamedTuple):
    """What a run gets for its servers.

    Attributes:
        middleware: What measures for them.
        companions: The servers themselves.
        ports: Where they listen: `serve` and `health`.
    """

    middleware: tuple[Instrument, ...] = ()
    companions: tuple[runtime.Companion, ...] = ()
    ports: Mapping[str, int] = MappingProxyType({})


def servers(stack: ExitStack, artifacts: str, *, is_served: bool, host: str, port: int | None, health: str) -> Beside:
    """Make the servers that were asked for; the stack lets go of their addresses.

    Raises:
        UsageError: GBE131 for --host or --port without --serve, GBE155-157 for a token or an address that cannot be used.
        RunError: GBE671 when packages are missing, GBE672 when an address cannot be had.
    """
    for option, value in (("--host", host or None), ("--port", port)):
        if value is not None and not is_served:
            raise UsageError("GBE131", option=option, needed="--serve")
    if not is_served and not health:
        return Beside()
    from graphbus_core.hosting.serving.address import read_address
    from graphbus_core.hosting.serving.companion import Asked, Servers

    probes = read_address(health, "127.0.0.1") if health else None
    made = Servers(Asked(is_served, host, port, probes), artifacts, lambda line: console.say(f"[RUNTIME] {line}"))
    stack.callback(made.close)
    return Beside((made.meter,), (made.beside,), made.ports)


class People:
    """The person or the pipe at the terminal.

    Attributes:
        is_typing: A person is at the prompt, and not a pipe: a failure was seen there, and does not change the exit status.
        total: How many lines were commands.
        refused: How many of them were refused.
    """

    def __init__(self, terminal: Terminal, instruments: Instruments, options: InstrumentOptions) -> None:
        self.is_typing = options.is_interactive and sys.stdin.isatty() and sys.stdout.isatty()
        self.total = self.refused = 0
        self._terminal = terminal
        self._instruments = instruments
        self._options = options

    def meet(self, graph: LiveGraph, artifacts: BuildArtifacts) -> None:
        """Check the breakpoints when the graph is ready.

        Raises:
            RunError: GBE682 for a breakpoint that it does not have.
        """
        check(self._instruments, graph, artifacts)

    def talk(self, graph: LiveGraph) -> None:
        """Do what is typed until the input ends."""
        from graphbus_core.cli.running.prompt import Prompt

        folder = Path(settings.resolve_run(RuntimeConfig(artifacts=self._options.artifacts)).state_dir)
        prompt = Prompt(graph, self._instruments, self._terminal, folder, is_typed=self.is_typing)
        try:
            prompt.run()
        finally:
            self.total, self.refused = prompt.total, prompt.refused

    def raise_for_refused(self) -> None:
        """Raise RunError GBE688 when lines from a pipe were refused."""
        if self.refused and not self.is_typing:
            raise RunError("GBE688", count=self.refused, total=self.total)


class RunOptions(InstrumentOptions, frozen=True, kw_only=True):
    """What was given on the command line; the fields are named as the parameters of the command.

    Attributes:
        outlives_entrypoint: The graph stays up when the entry point has returned or failed, as in `graphbus dev`.
    """

    entrypoint: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    publications: tuple[tuple[str, str], ...] = ()
    validation: Validation | None = None
    allow_drift: bool = False
    is_partial: bool = False
    only: tuple[str, ...] = ()
    is_served: bool = False
    host: str = ""
    port: int | None = None
    health: str = ""
    is_watched: bool = False
    is_confined: bool = False
    outlives_entrypoint: bool = False

    @property
    def stays_up(self) -> bool:
        """The graph runs on when the work is done, until a signal comes, or the person at the prompt leaves."""
        if self.is_interactive or self.is_served or self.health or self.is_watched:
            return self.outlives_entrypoint or not self.entrypoint
        return not (self.calls or self.publications or self.entrypoint)

    @property
    def is_serving(self) -> bool:
        """A thread of its own delivers, because the main thread waits; at the prompt it does not, and Ctrl-C can interrupt it."""
        return self.is_served or (self.stays_up and not self.is_interactive)


def run_graph_here(options: RunOptions, supervisor: SupervisorLink | None = None) -> int:
    """Run the graph in this process, and give the exit status.

    Args:
        options: What to run, and how.
        supervisor: The process that has started this one and may end it.
    """
    one_shot = OneShot(options.publications, options.calls, as_json=options.as_json)
    terminal = Terminal()
    lines = LogStream(terminal) if options.is_interactive or options.breaks else None
    if supervisor is not None:
        supervisor.show = lambda text: terminal.say_above(text, console.out)
    with show_logs(lines, is_brief=options.is_interactive), ExitStack() as stack:
        beside = servers(
            stack,
            options.artifacts,
            is_served=options.is_served,
            host=options.host,
            port=options.port,
            health=options.health,
        )
        instruments = ready(options, terminal, stack)
        instruments = instruments._replace(middleware=(*beside.middleware, *instruments.middleware))
        people = People(terminal, instruments, options)
        request = request_of(options, instruments)
        return _run(request, options, one_shot, people, companions=beside.companions, supervisor=supervisor)


def request_of(options: RunOptions, instruments: Instruments | None = None) -> RuntimeConfig:
    """What the options ask of Runtime Mode."""
    return RuntimeConfig(
        artifacts=options.artifacts,
        entrypoint=options.entrypoint,
        allow_drift=options.allow_drift,
        validation=options.validation,
        is_serving=options.is_serving,
        instruments=instruments.middleware if instruments else (),
        is_partial=options.is_partial,
        only=options.only,
        is_confined=options.is_confined,
    )


def _run(
    request: RuntimeConfig,
    options: RunOptions,
    one_shot: OneShot,
    people: People,
    *,
    companions: tuple[runtime.Companion, ...],
    supervisor: SupervisorLink | None,
) -> int:
    try:
        with stop_on_signals() as patience:
            if supervisor is not None:
                supervisor.listen(patience)

            def on_ready(graph: LiveGraph, artifacts: BuildArtifacts) -> None:
                runtime.spare_handlers(patience, graph)
                people.meet(graph, artifacts)
                _say_ready(graph, artifacts, options, supervisor)

            result = runtime.run_runtime_pipeline(
                request,
                on_ready=on_ready,
                companions=companions,
                before=one_shot.do if one_shot else None,
                work=(people.talk if options.is_interactive else _staying_up(options)) if options.stays_up else None,
            )
    except Stopped as stopped:
        if options.as_json:
            console.emit_json({"calls": one_shot.results, "stopped_by": stopped.number})
        return 0 if options.stays_up or not one_shot else stopped.exit_status
    if options.as_json:
        console.emit_json(one_shot.document(result))
    people.raise_for_refused()
    if not people.is_typing:
        runtime.raise_for_dead_letters(result)
    return 0


def _say_ready(
    graph: LiveGraph, artifacts: BuildArtifacts, options: RunOptions, supervisor: SupervisorLink | None
) -> None:
    for name, why in graph.left_out.items():
        if why.code == "GBE696":
            continue  # nobody asked for it
        place = f"{why.where}: " if why.where else ""
        console.say(f"[RUNTIME] Left out {name}: {console.plain(f'{place}{why.sentence}')} [{why.code}]")
    lines = runtime.ready_lines(artifacts, graph.left_out, options.only, graph.confinement)
    if supervisor is not None:
        supervisor.ready(lines)
        return
    for line in lines:
        (console.say if options.as_json else console.out)(line)
    console.flush()


def _staying_up(options: RunOptions) -> Callable[[LiveGraph], None]:
    def stay_up(graph: LiveGraph) -> None:
        if options.entrypoint and graph.origin is not None:
            result = runtime.call_entrypoint(options.entrypoint, graph.origin.modules, graph)
            if isinstance(result.error, GraphBusError):
                console.error(result.error)
        wait_for_signal()

    return stay_up
