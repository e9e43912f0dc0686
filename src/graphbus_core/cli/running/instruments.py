"""What `graphbus run` puts around the handlers: made before the graph, put away when it has stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.running.terminal import Terminal
from graphbus_core.errors import UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.instruments.breakpoints import Breakpoints, check_names
from graphbus_core.hosting.instruments.profile import Profiler, save
from graphbus_core.hosting.instruments.trace import Delivery, TraceFile, Tracer
from graphbus_core.hosting.signals import Stopped
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import Instrument, RuntimeConfig

F = TypeVar("F", bound=Callable[..., Any])


def instrument_options(command: F) -> F:
    """Add the options to a command."""
    for option in reversed(
        [
            click.option(
                "-i", "--interactive", "is_interactive", is_flag=True, help="Type commands to the running graph."
            ),
            click.option(
                "--break", "breaks", multiple=True, metavar="AGENT.METHOD", help="Stop before it; may be repeated."
            ),
            click.option("--trace", "is_traced", is_flag=True, help="Write down every delivery, for `graphbus trace`."),
            click.option("--trace-payloads", "traces_payloads", is_flag=True, help="Write down the payloads, too."),
            click.option(
                "--profile", "is_profiled", is_flag=True, help="Measure every handler, for `graphbus profile`."
            ),
        ]
    ):
        command = option(command)
    return command


class InstrumentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `graphbus run` that ask for instruments."""

    artifacts: str
    is_interactive: bool
    breaks: tuple[str, ...]
    is_traced: bool
    traces_payloads: bool
    is_profiled: bool
    as_json: bool


class Instruments(NamedTuple):
    """What is put around the handlers; the prompt works with some of it.

    Attributes:
        middleware: All of it, outermost first.
        say_delivery: Shows one delivery.
    """

    middleware: tuple[Instrument, ...] = ()
    breakpoints: Breakpoints | None = None
    recorder: Tracer | None = None
    profiler: Profiler | None = None
    say_delivery: Callable[[Delivery], None] | None = None


def ready(options: InstrumentOptions, terminal: Terminal, stack: ExitStack) -> Instruments:
    """Make the instruments that were asked for; the stack puts them away. The prompt has breakpoints, trace and profile anyway.

    Raises:
        UsageError: GBE131, GBE132 and GBE158 for options that do not fit together or to the terminal.
        RunError: GBE683 when nothing can be written.
    """
    if options.traces_payloads and not options.is_traced:
        raise UsageError("GBE131", option="--trace-payloads", needed="--trace")
    breakpoints = _breakpoints(options, terminal) if options.breaks or options.is_interactive else None
    stack.callback(terminal.restore)
    say_delivery = _say_above(terminal)
    tracer = recorder = profiler = None
    folder = Path(settings.resolve_run(RuntimeConfig(artifacts=options.artifacts)).state_dir)
    if options.is_traced:
        tracer = _tracer(folder, stack, say_delivery, with_payloads=options.traces_payloads)
    if options.is_interactive:
        recorder = Tracer(with_payloads=True)
    if options.is_profiled or options.is_interactive:
        profiler = _profiler(folder if options.is_profiled else None, stack)
    middleware = (breakpoints, tracer, recorder, profiler)
    return Instruments(
        tuple(each for each in middleware if each is not None), breakpoints, recorder, profiler, say_delivery
    )


def check(instruments: Instruments, graph: LiveGraph, artifacts: BuildArtifacts) -> None:
    """Raise RunError GBE682 for a breakpoint where the graph has no handler and no method."""
    if instruments.breakpoints is not None:
        check_names(instruments.breakpoints.names, stopping_places(graph, artifacts))


def _breakpoints(options: InstrumentOptions, terminal: Terminal) -> Breakpoints:
    if options.breaks and options.as_json:
        raise UsageError("GBE132", option="--break", other="--json", reason="the debugger talks on stdout")
    if options.breaks and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("GBE158", option="--break")
    return Breakpoints(options.breaks, terminal=terminal.taken, quits_for_good=not options.is_interactive)


def stopping_places(graph: LiveGraph, artifacts: BuildArtifacts) -> Iterator[str]:
    """Every `Agent.method` that a graph can stop at: its handlers, and the methods that can be called."""
    yield from (subscription.name for subscription in graph.bus.subscriptions)
    for agent in artifacts.agents.agents:
        yield from (f"{agent.name}.{method.name}" for method in agent.methods if method.has_schema)


def _say_above(terminal: Terminal) -> Callable[[Delivery], None]:
    def say(delivery: Delivery) -> None:
        from graphbus_core.cli.running.trace_text import delivery_line

        terminal.say_above(delivery_line(delivery), console.say)

    return say


def _tracer(folder: Path, stack: ExitStack, show: Callable[[Delivery], None], *, with_payloads: bool) -> Tracer:
    file = stack.enter_context(TraceFile(folder))
    return Tracer(file.add, with_payloads=with_payloads, show=show if sys.stderr.isatty() else None)


def _profiler(folder: Path | None, stack: ExitStack) -> Profiler:
    from graphbus_core.cli.running.trace_text import show

    profiler = Profiler()

    def put_away(kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        profile = profiler.profile()
        if folder is None or (kind is not None and not profile.handlers):
            return  # nobody has asked for it, or the graph did not start
        save(profile, folder)
        if kind is None or issubclass(kind, Stopped):
            show(profile, profile.handlers, console.say)

    stack.push(put_away)
    return profiler
