"""Runs a graph in this process, as the options of `graphbus run` ask for.

instruments: middleware around every handler and call, made before the graph     (--trace, --profile, --break)
companions:  stand beside the running graph, left in reverse order before it stops   (--serve, --health)
work:        what the main thread does: calls and events, the prompt, or waiting for a signal
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.running.instruments import InstrumentOptions, Instruments, ready
from graphbus_core.cli.running.people import People
from graphbus_core.cli.running.serving import servers
from graphbus_core.cli.running.supervisor_link import SupervisorLink
from graphbus_core.cli.running.terminal import LogStream, Terminal
from graphbus_core.cli.running.work import OneShot
from graphbus_core.errors import GraphBusError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import Stopped, stop_on_signals, wait_for_signal
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest, Validation


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


def request_of(options: RunOptions, instruments: Instruments | None = None) -> RuntimeRequest:
    """What the options ask of Runtime Mode."""
    return RuntimeRequest(
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
    request: RuntimeRequest,
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
            result = runtime.execute_entrypoint(graph.origin.config, graph.origin.modules, graph)
            if isinstance(result.error, GraphBusError):
                console.error(result.error)
        wait_for_signal()

    return stay_up
