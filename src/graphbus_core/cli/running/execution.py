"""Runs a graph in this process with the options of `graphbus run`.

instruments: middleware around every handler and call, made before the graph     (--trace, --profile, --break)
companions:  context managers around the running graph; they end before it stops        (--serve, --health)
work:        the task of the main thread: calls and events, the prompt, or waiting for a signal
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from graphbus_core import runtime, settings
from graphbus_core.cli import console
from graphbus_core.cli.running.terminal import Terminal
from graphbus_core.cli.running.work import OneShot, stopping_places
from graphbus_core.errors import GraphBusError, RunError, UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.instruments.breakpoints import Breakpoints, check_names
from graphbus_core.hosting.instruments.profile import Profiler, save_profile
from graphbus_core.hosting.instruments.trace import TracedDelivery, TraceFile, Tracer
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import SignalHandler, StopRequested, stop_on_signals, wait_for_signal
from graphbus_core.model.config import Instrument, RuntimeConfig, Validation
from graphbus_core.store import BuildArtifacts

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = [
    click.option(
        "-i",
        "--interactive",
        "is_interactive",
        is_flag=True,
        help="Read commands from the terminal while the graph runs.",
    ),
    click.option("--serve", "is_served", is_flag=True, help="Accept calls and events over HTTP."),
    click.option("--host", default="", metavar="HOST", help="The address that --serve listens on (127.0.0.1)."),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="The port that --serve listens on (8765); 0 means any free port.",
    ),
    click.option("--view", "is_viewed", is_flag=True, help="Show the running graph on a page of --serve."),
    click.option("--view-payloads", "views_payloads", is_flag=True, help="Let the page show payloads, too."),
    click.option("--health", default="", metavar="[HOST:]PORT", help="Serve only probes and metrics, without a token."),
]


def shared_options(command: _F) -> _F:
    """Add the options that `graphbus run` and `graphbus dev` have in common to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line, by the names of the command's parameters.

    Attributes:
        outlives_entrypoint: The graph keeps running after the entry point has returned or failed, as in `graphbus dev`.
        is_view_implied: Nobody has asked for --serve: only the page is told of, by the supervisor.
    """

    artifacts: str
    entrypoint: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    publications: tuple[tuple[str, str], ...] = ()
    validation: Validation | None = None
    allow_drift: bool = False
    is_partial: bool = False
    only: tuple[str, ...] = ()
    partition: int | None = None
    is_confined: bool = False
    ledger: str | None = None
    is_watched: bool = False
    outlives_entrypoint: bool = False
    is_interactive: bool = False
    breaks: tuple[str, ...] = ()
    is_traced: bool = False
    traces_payloads: bool = False
    is_profiled: bool = False
    is_served: bool = False
    host: str = ""
    port: int | None = None
    health: str = ""
    is_viewed: bool = False
    views_payloads: bool = False
    is_view_implied: bool = False
    as_json: bool = False

    def refuse_contradictions(self) -> None:
        """Raise an error for options that do not fit together.

        Raises:
            UsageError: GBE131, an option needs another one; GBE132, two contradict each other; GBE158, there is no terminal.
        """
        for option, is_given, needed, is_satisfied in (
            ("--trace-payloads", self.traces_payloads, "--trace", self.is_traced),
            ("--host", bool(self.host), "--serve", self.is_served),
            ("--port", self.port is not None, "--serve", self.is_served),
            ("--view", self.is_viewed, "--serve", self.is_served),
            ("--view-payloads", self.views_payloads, "--view", self.is_viewed),
        ):
            if is_given and not is_satisfied:
                raise UsageError("GBE131", option=option, needed=needed)
        for one, other, is_given, reason in (
            ("--confined", "--watch", self.is_confined and self.is_watched, "a confined graph cannot write artifacts"),
            (
                "-i",
                "--entrypoint",
                self.is_interactive and bool(self.entrypoint),
                "the prompt replaces the entry point",
            ),
            ("-i", "--json", self.is_interactive and self.as_json, "the prompt writes to stdout"),
            ("--break", "--json", bool(self.breaks) and self.as_json, "the debugger writes to stdout"),
        ):
            if is_given:
                raise UsageError("GBE132", option=one, other=other, reason=reason)
        if self.breaks and not _has_terminal():
            raise UsageError("GBE158", option="--break")

    @property
    def stays_up(self) -> bool:
        """True if the graph keeps running after its work is done, until a signal or the end of the prompt."""
        if self.is_interactive or self.is_served or self.health or self.is_watched:
            # With an entry point, `graphbus run` ends when the entry point ends.
            return self.outlives_entrypoint or not self.entrypoint
        return not (self.calls or self.publications or self.entrypoint)

    def request(self, instruments: tuple[Instrument, ...] = ()) -> RuntimeConfig:
        """Return the configuration for Runtime Mode.

        A separate thread delivers events if the main thread only waits. At the prompt it does not, so that Ctrl-C can interrupt
        a handler.
        """
        return RuntimeConfig(
            artifacts=self.artifacts,
            entrypoint=self.entrypoint,
            allow_drift=self.allow_drift,
            validation=self.validation,
            is_serving=self.is_served or (self.stays_up and not self.is_interactive),
            instruments=instruments,
            is_partial=self.is_partial,
            only=self.only,
            partition=self.partition,
            is_confined=self.is_confined,
            ledger=self.ledger,
        )


class Link:
    """The connection to the supervisor, used by the process that runs the graph."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._may_proceed = Event()
        self.is_ready = False

    def receive(self) -> Any:
        """Wait for the next message of the supervisor.

        Raises:
            StopRequested: The supervisor has sent "end", or has ended itself.
        """
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            message = "end"
        if message == "end":
            raise StopRequested(signal.SIGTERM)
        return message

    def tell(self, kind: str, content: object = ()) -> None:
        """Send a message to the supervisor; do nothing if the supervisor has ended."""
        with suppress(OSError):
            self._connection.send((kind, content))

    def listen(self, patience: SignalHandler, write: Callable[[str], object]) -> None:
        """Start a thread that receives messages: it ends the graph, lets `ready` return, or writes the text that was sent."""

        def listen() -> None:
            try:
                while True:
                    message = self.receive()
                    if message == "proceed":
                        self._may_proceed.set()
                    else:
                        write(message)
            except StopRequested:
                patience.request_stop()

        Thread(target=listen, name="graphbus-supervisor", daemon=True).start()

    def ready(self, lines: tuple[str, ...]) -> None:
        """Report that the graph runs, and wait until the supervisor has printed these lines."""
        self.is_ready = True
        modules = tuple(name for name in sys.modules.copy() if name.startswith("graphbus_core."))
        self.tell("ready", (lines, modules))  # the next process imports these modules in advance
        self._may_proceed.wait()


def run_graph_here(options: RunOptions, link: Link | None = None) -> int:
    """Run the graph in this process, and return the exit status.

    Args:
        options: What to run, and how.
        link: The connection to the supervisor that started this process; None without one.
    """
    with ExitStack() as stack:
        return _Run(options, link, stack).run()


class _Run:
    """One run of a graph with its instruments and servers.

    Args:
        options: What to run, and how.
        link: The connection to the supervisor; None without one.
        stack: Closing it closes the terminal, the log, the servers and the files of the instruments.
    """

    def __init__(self, options: RunOptions, link: Link | None, stack: ExitStack) -> None:
        self._options = options
        self._link = link
        self._one_shot = OneShot(options.publications, options.calls, as_json=options.as_json)
        resolved = settings.resolve_run(RuntimeConfig(artifacts=options.artifacts))
        self._state_dir = Path(resolved.state_dir)
        self._is_typed = options.is_interactive and _has_terminal()
        self._refused = self._total = 0
        self._terminal = _open_terminal(options, stack)
        self._write_line: Callable[[str], object] = self._terminal.write if self._terminal else console.print_note
        stack.enter_context(show_logs(self._terminal, is_brief=options.is_interactive))
        served, self._companions = _make_servers(options, stack)
        self._breakpoints = Breakpoints(options.breaks)
        self._recorder = Tracer(with_payloads=True)
        self._instruments: list[Instrument] = [*served]
        if self._terminal:
            self._breakpoints.terminal = self._terminal.reading
            self._instruments.append(self._breakpoints)
        if options.is_interactive:
            self._instruments.append(self._recorder)
        if options.is_traced:
            file = stack.enter_context(TraceFile(self._state_dir))
            show = self._show_delivery if sys.stderr.isatty() else None
            self._instruments.append(
                Tracer(
                    file.add,
                    show=show,
                    with_payloads=options.traces_payloads,
                    redacted=resolved.settings.serve.redact,
                )
            )
        if options.is_profiled:
            self._instruments.append(_make_profiler(self._state_dir, stack))

    def _show_delivery(self, delivery: TracedDelivery) -> None:
        """Print the line of a traced delivery."""
        from graphbus_core.cli.running.trace_text import delivery_line

        self._write_line(delivery_line(delivery))

    def run(self) -> int:
        """Run the graph until its work is done or a signal comes, print the JSON document, and return the exit status."""
        options, one_shot = self._options, self._one_shot
        try:
            with stop_on_signals() as patience, console.reserve_stdout() if options.as_json else nullcontext():
                if self._link is not None:
                    self._link.listen(patience, self._write_line if options.is_interactive else console.print_line)

                def on_ready(graph: LiveGraph, artifacts: BuildArtifacts) -> None:
                    runtime.let_handlers_finish(patience, graph)
                    self._announce_start(graph, artifacts)

                work = self._run_prompt if options.is_interactive else self._keep_running
                result = runtime.run_runtime_pipeline(
                    options.request(tuple(self._instruments)),
                    on_ready=on_ready,
                    companions=self._companions,
                    before=one_shot.do if one_shot else None,
                    work=work if options.stays_up else None,
                )
        except StopRequested as stopped:
            if options.as_json:
                console.emit_json({"calls": one_shot.results, "stopped_by": stopped.number})
            return 0 if options.stays_up or not one_shot else stopped.exit_status
        if options.as_json:
            console.emit_json(one_shot.document(result))
        if not self._is_typed:  # a person at the prompt has seen the failures; they do not change the exit status
            if self._refused:
                raise RunError("GBE688", count=self._refused, total=self._total)
            runtime.raise_for_dead_letters(result)
        return 0

    def _announce_start(self, graph: LiveGraph, artifacts: BuildArtifacts) -> None:
        """Print that the graph runs, and which agents are left out.

        Raises:
            RunError: GBE682, a name in `--break` is neither a handler nor a method.
        """
        check_names(self._options.breaks, stopping_places(graph))
        for name, error in graph.left_out.items():
            if error.code != "GBE696":  # left out because of --only
                place = f"{error.where}: " if error.where else ""
                console.print_note(
                    f"[RUNTIME] Left out {name}: {console.sanitize(f'{place}{error.sentence}')} [{error.code}]"
                )
        lines = runtime.ready_lines(artifacts, graph.left_out, self._options.only, graph.confinement)
        if self._link is not None:
            self._link.ready(lines)
            return
        has_results = self._options.as_json or self._options.calls  # stdout is reserved for results
        for line in lines:
            (console.print_note if has_results else console.print_line)(line)
        console.flush()

    def _run_prompt(self, graph: LiveGraph) -> None:
        """Run the prompt until it ends, and record how many of its commands were refused."""
        from graphbus_core.cli.running.prompt import CommandPrompt

        assert self._terminal is not None  # noqa: S101 - every interactive run has one
        prompt = CommandPrompt(
            graph, self._terminal, self._state_dir, self._breakpoints, self._recorder, is_typed=self._is_typed
        )
        try:
            prompt.run()
        finally:
            self._total, self._refused = prompt.total, prompt.refused

    def _keep_running(self, graph: LiveGraph) -> None:
        """Call the entry point, if there is one, and then wait for a signal; print an error of GraphBus in the entry point."""
        if self._options.entrypoint and graph.origin is not None:
            result = runtime.call_entrypoint(self._options.entrypoint, graph.origin.modules, graph)
            if isinstance(result.error, GraphBusError):
                console.print_error(result.error)
        wait_for_signal()


def _has_terminal() -> bool:
    """True if a person can type and see the output: stdin and stdout are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _open_terminal(options: RunOptions, stack: ExitStack) -> Terminal | None:
    """Return the terminal that prompt, debugger and log lines share; None if there is neither prompt nor debugger."""
    if not (options.is_interactive or options.breaks):
        return None
    terminal = Terminal()
    stack.callback(terminal.restore)
    return terminal


def _make_servers(
    options: RunOptions, stack: ExitStack
) -> tuple[tuple[Instrument, ...], tuple[runtime.Companion, ...]]:
    """Return the instruments and companions for --serve and --health; closing the stack releases their addresses.

    Raises:
        UsageError: GBE155-157 for a token or an address that cannot be used.
        RunError: GBE671 when packages are missing, GBE672 when an address is in use.
    """
    if not options.is_served and not options.health:
        return (), ()
    from graphbus_core.hosting.serving.address import parse_address
    from graphbus_core.hosting.serving.companion import ServerOptions, Servers

    probes = parse_address(options.health, "127.0.0.1") if options.health else None
    view = None
    if options.is_viewed:
        from graphbus_core.view.live import LiveView

        redacted = settings.resolve_run(RuntimeConfig(artifacts=options.artifacts)).settings.serve.redact
        view = LiveView(with_payloads=options.views_payloads, redacted=redacted)
    server_options = ServerOptions(options.is_served, options.host, options.port, probes, view)

    def show(line: str) -> None:
        if not options.is_view_implied:
            console.print_note(f"[RUNTIME] {line}")

    servers = Servers(server_options, options.artifacts, show)
    stack.callback(servers.close)
    return (servers.meter,), (servers.run_beside,)


def _make_profiler(folder: Path, stack: ExitStack) -> Profiler:
    """Return an instrument that measures every handler. Closing the stack saves its profile, and prints it after a success."""
    from graphbus_core.cli.running.trace_text import print_profile

    profiler = Profiler()

    def save_and_print(
        kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Save the profile, and print it unless the run ended with an error."""
        profile = profiler.profile()
        if kind is None or profile.handlers:
            save_profile(profile, folder)
        if kind is None or issubclass(kind, StopRequested):
            print_profile(profile, profile.handlers, console.print_note)

    stack.push(save_and_print)
    return profiler
