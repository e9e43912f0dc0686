"""What `graphbus run` puts around the handlers: made before the graph, put away when it has stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.errors import UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.signals import Stopped
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import Instrument, RuntimeRequest


class InstrumentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `graphbus run` that ask for instruments."""

    artifacts: str
    breaks: tuple[str, ...]
    is_traced: bool
    traces_payloads: bool
    is_profiled: bool
    as_json: bool


class Instruments(NamedTuple):
    """Middleware, outermost first, and what is to be looked at when the graph is ready."""

    middleware: tuple[Instrument, ...] = ()
    check: Callable[[LiveGraph, BuildArtifacts], None] = lambda _graph, _artifacts: None


def ready(options: InstrumentOptions, stack: ExitStack) -> Instruments:
    """Make the instruments that were asked for; the stack puts them away.

    Raises:
        UsageError: GBE131, GBE132 and GBE158 for options that do not fit together or to the terminal.
        RunError: GBE683 when nothing can be written.
    """
    if options.traces_payloads and not options.is_traced:
        raise UsageError("GBE131", option="--trace-payloads", needed="--trace")
    middleware: list[Instrument] = []
    check = Instruments().check
    if options.breaks:
        breakpoints, check = _breakpoints(options)
        middleware.append(breakpoints)
    if options.is_traced or options.is_profiled:
        folder = Path(settings.resolve_run(RuntimeRequest(artifacts=options.artifacts)).state_dir)
        if options.is_traced:
            middleware.append(_tracer(folder, stack, with_payloads=options.traces_payloads))
        if options.is_profiled:
            middleware.append(_profiler(folder, stack))
    return Instruments(tuple(middleware), check)


def _breakpoints(options: InstrumentOptions) -> tuple[Instrument, Callable[[LiveGraph, BuildArtifacts], None]]:
    from graphbus_core.cli.terminal import Terminal
    from graphbus_core.hosting.instruments.breaks import Breakpoints, check_names

    if options.as_json:
        raise UsageError("GBE132", option="--break", other="--json", reason="the debugger talks on stdout")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("GBE158", option="--break")
    breakpoints = Breakpoints(options.breaks, terminal=Terminal().taken)
    return breakpoints, lambda graph, artifacts: check_names(options.breaks, stopping_places(graph, artifacts))


def stopping_places(graph: LiveGraph, artifacts: BuildArtifacts) -> Iterator[str]:
    """Every `Agent.method` that a graph can stop at: its handlers, and the methods that can be called."""
    yield from (subscription.name for subscription in graph.bus.subscriptions)
    for agent in artifacts.agents.agents:
        yield from (f"{agent.name}.{method.name}" for method in agent.methods if method.has_schema)


def _tracer(folder: Path, stack: ExitStack, *, with_payloads: bool) -> Instrument:
    from graphbus_core.cli.trace_text import delivery_line
    from graphbus_core.hosting.instruments.trace import Tracer

    is_watched = sys.stderr.isatty()
    show = (lambda delivery: console.say(delivery_line(delivery))) if is_watched else None
    return stack.enter_context(Tracer(folder, with_payloads=with_payloads, show=show))


def _profiler(folder: Path, stack: ExitStack) -> Instrument:
    from graphbus_core.cli.profile import show
    from graphbus_core.hosting.instruments.profile import Profiler, save

    profiler = Profiler()

    def put_away(kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        profile = profiler.profile()
        if kind is not None and not profile.handlers:
            return  # the graph did not start
        save(profile, folder)
        if kind is None or issubclass(kind, Stopped):
            show(profile, profile.handlers, console.say)

    stack.push(put_away)
    return profiler
