"""`graphbus run`: the six stages of Runtime Mode, with work to do or until a signal.

instruments: middleware around every handler and call, made before the graph     (--trace, --profile, --break)
companions:  stand beside the running graph, left in reverse order before it stops   (--serve, --watch)
work:        what the main thread does: calls and events, the prompt, or waiting for a signal
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click
import msgspec

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.running.instruments import InstrumentOptions, Instruments, instrument_options, ready
from graphbus_core.cli.running.people import People
from graphbus_core.cli.running.reloading import followers
from graphbus_core.cli.running.serving import servers, serving_options
from graphbus_core.cli.running.terminal import LogStream, Terminal
from graphbus_core.cli.running.work import OneShot
from graphbus_core.errors import UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import Stopped, stop_on_signals, wait_for_signal
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest, Validation


class RunOptions(InstrumentOptions, frozen=True, kw_only=True):
    """What was given on the command line; the fields are named as the parameters of the command."""

    entrypoint: str
    calls: tuple[tuple[str, str], ...]
    publications: tuple[tuple[str, str], ...]
    validation: Validation | None
    allow_drift: bool
    is_partial: bool
    only: tuple[str, ...]
    is_served: bool
    host: str
    port: int | None
    health: str
    is_watched: bool
    is_confined: bool

    @property
    def stays_up(self) -> bool:
        """The graph runs on when the work is done, until a signal comes, or the person at the prompt leaves."""
        if self.is_interactive or self.is_served or self.health or self.is_watched:
            return not self.entrypoint
        return not (self.calls or self.publications or self.entrypoint)

    @property
    def is_serving(self) -> bool:
        """A thread of its own delivers, because the main thread waits; at the prompt it does not, and Ctrl-C can interrupt it."""
        return self.is_served or (self.stays_up and not self.is_interactive)


@click.command("run", short_help="Run the graph as plain Python.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@click.option(
    "--call",
    "calls",
    nargs=2,
    multiple=True,
    metavar="AGENT.METHOD JSON",
    help="Call a @schema_method and print its result; may be repeated.",
)
@click.option(
    "--publish",
    "publications",
    nargs=2,
    multiple=True,
    metavar="TOPIC JSON",
    help="Publish an event; may be repeated. Events come before calls.",
)
@click.option(
    "--validation",
    type=click.Choice(["strict", "warn", "off"]),
    help="What happens to what does not fit its schema: refused (strict), logged, or not looked at.",
)
@click.option("--allow-drift", is_flag=True, help="Start although source files differ from what was built.")
@click.option("--partial", "is_partial", is_flag=True, help="Leave out the agents that cannot start.")
@click.option("--only", multiple=True, metavar="AGENT", help="Run this agent without the others; may be repeated.")
@click.option(
    "--confined", "is_confined", is_flag=True, help="Enforce [tool.graphbus.powers] with Landlock and seccomp."
)
@click.option("--watch", "is_watched", is_flag=True, help="Build and reload whenever a source file is saved.")
@instrument_options
@serving_options
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def run(**given: object) -> int:
    """Run the graph that a build has written to ARTIFACTS, a folder (.graphbus by default). No model is asked.

    With --entrypoint, --call or --publish it does that, delivers everything that comes of it and ends; else it stays up
    until SIGTERM or Ctrl-C, delivers what waits, stops the agents and ends with 0. With --serve, --health or --watch it
    always stays up, unless there is an entry point.

    Exit status: 0 done; 6 the artifacts are damaged or outdated; 7 the graph cannot start, a call or an event was
    refused, or a handler failed (not while it stays up: then a failure is logged and counted); 130 and 143 when a
    signal came before the work was done.

    \b
    Examples:
      graphbus run
      graphbus run --serve --port 8765
      graphbus run --publish /Order/Placed '{"order_id": "1", "items": []}'
      graphbus run --call OrderProcessor.process_order '{"order_id": "1"}'
      graphbus run .graphbus/ --entrypoint my_shop.main:run
      graphbus run --confined --serve
    """
    options = msgspec.convert(given, RunOptions)
    _refuse_contradictions(options)
    one_shot = OneShot(options.publications, options.calls, as_json=options.as_json)
    terminal = Terminal()
    lines = LogStream(terminal) if options.is_interactive or options.breaks else None
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
        companions = (*beside.companions, *followers(terminal, is_watched=options.is_watched, as_json=options.as_json))
        people = People(terminal, instruments, options)
        return _run(_request(options, instruments), options, one_shot, people, companions)


def _refuse_contradictions(options: RunOptions) -> None:
    if options.is_confined and options.is_watched:
        reason = "each build writes artifacts, which a confined graph may not"
        raise UsageError("GBE132", option="--confined", other="--watch", reason=reason)
    for option, is_given, reason in (
        ("--entrypoint", bool(options.entrypoint), "the prompt takes the place of the entry point"),
        ("--json", options.as_json, "the prompt talks on stdout"),
    ):
        if options.is_interactive and is_given:
            raise UsageError("GBE132", option="-i", other=option, reason=reason)


def _request(options: RunOptions, instruments: Instruments) -> RuntimeRequest:
    return RuntimeRequest(
        artifacts=options.artifacts,
        entrypoint=options.entrypoint,
        allow_drift=options.allow_drift,
        validation=options.validation,
        is_serving=options.is_serving,
        instruments=instruments.middleware,
        is_partial=options.is_partial,
        only=options.only,
        is_confined=options.is_confined,
    )


def _run(
    request: RuntimeRequest,
    options: RunOptions,
    one_shot: OneShot,
    people: People,
    companions: tuple[runtime.Companion, ...],
) -> int:
    try:
        with stop_on_signals() as patience:

            def on_ready(graph: LiveGraph, artifacts: BuildArtifacts) -> None:
                _say_ready(graph, artifacts, options)
                runtime.spare_handlers(patience, graph)
                people.meet(graph, artifacts)

            result = runtime.run_runtime_pipeline(
                request,
                on_ready=on_ready,
                companions=companions,
                before=one_shot.do if one_shot else None,
                work=(people.talk if options.is_interactive else _stay_up) if options.stays_up else None,
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


def _say_ready(graph: LiveGraph, artifacts: BuildArtifacts, options: RunOptions) -> None:
    for line in runtime.ready_lines(artifacts, graph.left_out, options.only, graph.confinement):
        (console.say if options.as_json else console.out)(line)
    for name, why in graph.left_out.items():
        if why.code == "GBE696":
            continue  # nobody asked for it
        place = f"{why.where}: " if why.where else ""
        console.say(f"[RUNTIME] Left out {name}: {console.plain(f'{place}{why.sentence}')} [{why.code}]")
    console.flush()


def _stay_up(_graph: LiveGraph) -> Any:
    wait_for_signal()
