"""Runtime Mode: six stages from artifacts to a graph that runs as plain Python. Source: seed 001, chapter 2.

    config -> artifacts (verified) -> modules -> bus and agents -> entry point -> shutdown

Nothing here can ask a model, negotiate or change code: these modules cannot be imported from here (import-linter checks it).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from graphbus_core import collector

if __name__ == "__main__":  # while everything below is imported
    collector.pause()
    for _number in (signal.SIGTERM, signal.SIGINT):
        # Nothing has begun, so the process may just end. Without a handler, process 1 of a container ignores these signals.
        signal.signal(_number, lambda *_: sys.exit(0))

import msgspec

from graphbus_core import settings, store
from graphbus_core.bus import MessageBus
from graphbus_core.errors import GraphBusError, Place, RunError, did_you_mean, raise_all
from graphbus_core.hosting.arguments import HELP, Arguments, parse_arguments
from graphbus_core.hosting.graph import GraphOrigin, LiveGraph, check_files, state_path
from graphbus_core.hosting.imports import NodeModules, describe_exception, load_factory, load_middleware, select_agents
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.members import compose_from_build
from graphbus_core.hosting.signals import (
    SignalHandler,
    StopRequested,
    interrupt_main_thread,
    stop_on_signals,
    wait_for_signal,
)
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.model.config import Instrument, ResolvedRun, RuntimeConfig, Validation
from graphbus_core.model.deliveries import DeadLetter, Statistics
from graphbus_core.pipeline import Pipeline, Products
from graphbus_core.store import BuildArtifacts

if TYPE_CHECKING:
    from pathlib import Path

    import networkx as nx

PIPELINE = Pipeline("RUNTIME")

Companion = Callable[[LiveGraph], AbstractContextManager[object]]
"""Makes a context manager, such as an HTTP server, that is entered when the graph is ready and left before it stops."""

_log = Log("graphbus.runtime")


class RunHooks(NamedTuple):
    """Functions of the caller that the stage EXECUTE_ENTRYPOINT runs, in this order.

    Attributes:
        on_ready: Called when all agents have started.
        companions: Context managers that are open during all that follows; left in the reverse order.
        before: Called with the running graph before the entry point.
        work: Called with the running graph instead of the entry point; its result is the result of the run.
    """

    on_ready: Callable[[LiveGraph, BuildArtifacts], None] | None = None
    companions: Sequence[Companion] = ()
    before: Callable[[LiveGraph], None] | None = None
    work: Callable[[LiveGraph], Any] | None = None


class EntrypointResult(msgspec.Struct, frozen=True):
    """What the entry point returned, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None


class RuntimeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run.

    Attributes:
        value: What the entry point, or `work` in its place, returned.
        statistics: Counts of events and deliveries.
        dead_letters: Events that a handler could not handle, oldest first, as many as the bus keeps.
    """

    value: Any
    statistics: Statistics
    dead_letters: tuple[DeadLetter, ...]


@PIPELINE.stage("LOAD_RUNTIME_CONFIG")
def load_runtime_config(request: RuntimeConfig) -> ResolvedRun:
    """Find the artifact folder and merge the request with the settings of its project."""
    return settings.resolve_run(request)


@PIPELINE.stage("LOAD_BUILD_ARTIFACTS")
def load_build_artifacts(config: ResolvedRun) -> BuildArtifacts:
    """Read the artifacts, verify their digests, and check that the source files are still those that were built.

    Raises:
        ArtifactError: GBE501-507 for damaged artifacts, GBE508 for each file that was changed since, GBE515 for bytecode that
            does not record when its source was modified.
    """
    folder = config.artifacts_dir
    artifacts = store.load(folder, without=("negotiations.json", "modified_files.json"))
    if not config.allow_drift and artifacts.manifest is not None:
        raise_all(store.find_drift(folder, artifacts.manifest))
    return artifacts


@PIPELINE.stage("IMPORT_MODULES")
def import_modules(artifacts: BuildArtifacts, config: ResolvedRun) -> NodeModules:
    """Import the modules of the agents that are to run, the middleware and the factory; only from inside the project.

    Before that, a confined run limits this process to the declared powers, for good.

    Raises:
        RunError: GBE601, GBE602, GBE604 for an agent, GBE655 for the factory, GBE663 for middleware; GBE695 for a wrong `--only`;
            GBE652, GBE653 when the process cannot be confined.
        SeveralErrors: For more than one of them.
    """
    manifest = artifacts.manifest
    folder = config.artifacts_dir
    root = os.path.dirname(folder) if manifest is None else store.project_root(folder, manifest)
    chosen, left_out = select_agents(artifacts.agents.agents, config.only)
    modules = NodeModules(root, ["."] if manifest is None else manifest.import_roots)
    if config.is_confined:
        from graphbus_core.hosting.confining import confine_process

        modules.confinement = confine_process(_allow_ledger(config), root)
    (modules.import_some if config.is_partial else modules.import_all)(chosen)
    modules.left_out |= left_out
    if config.settings.middleware:
        modules.middleware = load_middleware(config.settings.middleware, modules)
    if config.settings.factory:
        modules.factory = load_factory(config.settings.factory, modules)
    return modules


def _allow_ledger(config: ResolvedRun) -> ResolvedRun:
    """Return the configuration with the host of a ledger on NATS among the hosts that may be connected to."""
    if not config.settings.ledger:
        return config
    from graphbus_core.ledger.nats_names import is_on_nats, parse_address

    if not is_on_nats(config.settings.ledger):
        return config
    hosts = (*(config.powers.network or ()), parse_address(config.settings.ledger).host)
    return msgspec.structs.replace(config, powers=msgspec.structs.replace(config.powers, network=hosts))


@PIPELINE.stage("INIT_SIMPLE_BUS")
def init_simple_bus(artifacts: BuildArtifacts, modules: NodeModules, config: ResolvedRun) -> LiveGraph:
    """Create the agents in the order of activation, connect them to the bus and start them.

    Raises:
        RunError: GBE603, GBE605, GBE611, GBE656, GBE657 for an agent that cannot be started; GBE643, GBE645 when the file for
            dead letters or states cannot be used; GBE671 when a package for `tracing` is missing.
        SeveralErrors: For more than one of them. After an error the graph is stopped.
    """
    topics, members = compose_from_build(artifacts, modules, config)
    middleware = (*_make_tracing(config), *config.instruments, *modules.middleware)
    bus = MessageBus(
        history=config.settings.history,
        max_hops=config.settings.max_hops,
        max_tree=config.settings.max_tree,
        dead_letters=config.settings.dead_letters,
        mailbox=config.settings.mailbox,
        queue=config.settings.queue,
        admit=topics.admit,
        middleware=middleware,
    )
    graph = LiveGraph(bus, members, grace_s=config.settings.grace_s, state_path=state_path(config))
    graph.place_of = modules.place_of
    graph.factory = modules.factory
    graph.origin = GraphOrigin(artifacts, modules, config)
    graph.left_out = modules.left_out
    graph.confinement = modules.confinement
    graph.is_partial = config.is_partial
    graph.at_end(modules.forget)
    with ExitStack() as undo:
        undo.callback(graph.stop)
        check_files(graph, config)
        if config.settings.ledger:
            from graphbus_core.ledger.attached import attach_ledger

            attach_ledger(graph, config)
        undo.pop_all()
    # A served graph delivers on a thread of its own from here on: agents that never stop publishing cannot delay the next stage.
    graph.start(lambda: _begin_delivering(graph, config))
    return graph


def _begin_delivering(graph: LiveGraph, config: ResolvedRun) -> None:
    """Start the thread that delivers, if the graph is served or has a ledger; and let the ledger hand out events."""
    if config.is_serving or graph.ledger is not None:
        graph.bus.hosting.start_dispatcher(interrupt_main_thread)
    if graph.ledger is not None:
        graph.ledger.begin()


def _make_tracing(config: ResolvedRun) -> tuple[Instrument, ...]:
    """Return the middleware that makes OpenTelemetry spans, if `tracing` is set; GBE671 if its packages are missing."""
    if not config.settings.tracing:
        return ()
    from graphbus_core.hosting.imports import require_packages

    require_packages("`tracing = true`", ["opentelemetry.trace"], extra="otel")
    from graphbus_core.hosting.telemetry import Tracing

    return (Tracing(),)


@PIPELINE.stage("EXECUTE_ENTRYPOINT")
def execute_entrypoint(
    config: ResolvedRun, artifacts: BuildArtifacts, modules: NodeModules, graph: LiveGraph, hooks: RunHooks
) -> EntrypointResult:
    """Call the entry point and the functions in `hooks`. An exception of the entry point is part of the result.

    Raises:
        RunError: GBE606 when there is no such function.
    """
    with ExitStack() as open_companions:
        if hooks.on_ready:
            hooks.on_ready(graph, artifacts)
        for companion in hooks.companions:
            open_companions.enter_context(companion(graph))
        if hooks.before:
            hooks.before(graph)
        result = (
            EntrypointResult(hooks.work(graph)) if hooks.work else call_entrypoint(config.entrypoint, modules, graph)
        )
        if not config.is_serving and result.error is None:
            graph.settle()  # waits for retries too, which the end of the run would drop
    return result


def call_entrypoint(entrypoint: str, modules: NodeModules, graph: LiveGraph) -> EntrypointResult:
    """Call the function that is named as `package.module:function`, with the graph if it takes a parameter.

    An `async def` runs to its end. An empty name calls nothing. An exception is part of the result; one that is no GraphBusError
    is logged, and becomes RunError GBE607.

    Raises:
        RunError: GBE606 when there is no such function.
    """
    if not entrypoint:
        return EntrypointResult()
    function = _find_entrypoint(entrypoint, modules)
    code = getattr(function, "__code__", None)
    arguments = (graph,) if code is not None and code.co_argcount else ()
    value, error = attempt(lambda: _run_to_end(function(*arguments)))
    if error is None or isinstance(error, GraphBusError):
        return EntrypointResult(value, error)
    _log.error("the entry point %s failed", entrypoint, exc_info=error)
    failure = RunError("GBE607", where=modules.place_of(error), name=entrypoint, reason=describe_exception(error))
    failure.__cause__ = error
    return EntrypointResult(None, failure)


@PIPELINE.stage("SHUTDOWN")
def shut_down(graph: LiveGraph, entrypoint: EntrypointResult) -> RuntimeResult:
    """Deliver the events that wait, stop the agents in reverse order, and return the result of the run.

    Raises:
        Exception: What the entry point raised, after the graph has stopped.
    """
    graph.stop()
    if entrypoint.error is not None:
        raise entrypoint.error
    return RuntimeResult(
        value=entrypoint.value, statistics=graph.bus.statistics(), dead_letters=graph.bus.dead_letters()
    )


def _find_entrypoint(entrypoint: str, modules: NodeModules) -> Callable[..., Any]:
    """Return the function that an entry point names; raise GBE606 if there is none."""
    module_name, colon, name = entrypoint.partition(":")
    if not colon or not module_name or not name:
        reason, advice = "the module or the function is missing", "Write it as `package.module:function`."
        raise RunError("GBE606", name=entrypoint, reason=reason, advice=advice)
    module = modules.import_name(module_name)
    function: Any = attempt(lambda: attrgetter(name)(module))[0]
    if not callable(function):
        suggestion = did_you_mean(name, [each for each, value in vars(module).items() if callable(value)])
        near = suggestion.replace(" Did", " (did").replace("?", "?)")
        reason = f"{module_name} has no function {name!r}{near}"
        raise RunError("GBE606", name=entrypoint, reason=reason, advice="Name a function that this module defines.")
    result: Callable[..., Any] = function
    return result


def _run_to_end(value: Any) -> Any:
    """Return a plain result unchanged; run a coroutine to its end on a new event loop, and return its result."""
    if not isinstance(value, Coroutine):
        return value
    from asyncio import run

    return run(value)


# --- from Python ----------------------------------------------------------------------------


def run_runtime_pipeline(
    request: RuntimeConfig,
    *,
    on_ready: Callable[[LiveGraph, BuildArtifacts], None] | None = None,
    before: Callable[[LiveGraph], None] | None = None,
    work: Callable[[LiveGraph], Any] | None = None,
    companions: Sequence[Companion] = (),
) -> RuntimeResult:
    """Run a built graph from its artifacts to its shutdown, and return the result of the run.

    Args:
        request: Which artifacts to run, and how.
        on_ready: Called when all agents have started.
        before: Called with the running graph before the entry point.
        work: Called with the running graph instead of the entry point.
        companions: Make context managers that are open from `on_ready` until the work has ended.

    Raises:
        GraphBusError: What a stage refuses; RunError GBE607 for an exception of the entry point. The graph is stopped first.
        BaseException: KeyboardInterrupt, SystemExit or CancelledError that a handler has raised on another thread.
    """
    PIPELINE.check(RuntimeConfig, RunHooks)
    products = Products(request, RunHooks(on_ready, companions, before, work))
    try:
        PIPELINE.run_on(products)
    finally:
        graph = products.get(LiveGraph)
        if graph is not None:
            graph.stop()
            if graph.bus.hosting.interruption is not None:
                raise graph.bus.hosting.interruption
    return products[RuntimeResult]


def run_graph(
    artifacts: str | Path = ".graphbus", *, allow_drift: bool = False, validation: Validation | None = None
) -> LiveGraph:
    """Start a built graph and return it: `with run_graph() as graph: ...`.

    Args:
        artifacts: The artifact folder.
        allow_drift: Start although source files differ from those that were built.
        validation: What happens to arguments, results and payloads that do not fit; None: as the project's settings say.

    Raises:
        GraphBusError: What the first four stages refuse.
    """
    request = RuntimeConfig(artifacts=str(artifacts), allow_drift=allow_drift, validation=validation)
    return PIPELINE.excluding("EXECUTE_ENTRYPOINT", "SHUTDOWN").run(request)[LiveGraph]


def ready_lines(
    artifacts: BuildArtifacts,
    left_out: Collection[str] = (),
    only: Collection[str] = (),
    confinement: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the lines that the terminal shows when a graph is ready. Source: seed 000.

    Args:
        artifacts: What was built.
        left_out: Names of agents that do not run here.
        only: The names given with `--only`.
        confinement: Lines about the limits of this process.
    """
    built = artifacts.agents.agents
    agents = [agent for agent in built if agent.name not in left_out]
    subscriptions = sum(len(agent.subscriptions) for agent in agents)
    counts = (("agent", len(agents)), ("topic", len(artifacts.topics.topics)), ("subscription", subscriptions))
    loaded = ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counts)
    selection = f"only {', '.join(dict.fromkeys(only))}, " if only else ""
    total = f" ({selection}of {len(built)} agents)" if left_out else ""
    lines = (f"Loaded {loaded}{total}", *confinement, "Ready. Zero LLM calls will be made during execution.")
    return tuple(f"[RUNTIME] {line}" for line in lines)


def raise_for_dead_letters(result: RuntimeResult) -> None:
    """Raise RunError GBE630 when there are dead letters, so that a run in which events were lost has an exit status above 0."""
    if result.dead_letters:
        first = result.dead_letters[0]
        count = result.statistics.dead_letters
        raise RunError(
            "GBE630",
            where=Place(first.place) if first.place else None,
            count=f"{count} deliver{'y' if count == 1 else 'ies'}",
            topic=first.event.topic,
            subscription=first.subscription or "the bus",
            error=first.error,
        )


def let_handlers_finish(signal_handler: SignalHandler, graph: LiveGraph) -> None:
    """Let a signal stop the graph only when the main thread is not delivering events, or when the grace is over.

    The grace begins with the signal.
    """
    main_thread = threading.main_thread().ident
    signal_handler.is_busy = lambda: graph.bus.hosting.is_drained_by(main_thread)
    signal_handler.begin_grace = graph.begin_grace


# --- python -m graphbus_core.runtime --------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a graph from the command line; `graphbus run` has more options and reports more.

    Args:
        arguments: The words of the command line; None: those of this process.

    Returns:
        The exit status: 0, also after SIGTERM and Ctrl-C, or the status of the error.
    """
    try:
        given = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        if given is None:
            sys.stdout.write(HELP)
            return 0
        with show_logs(), ExitStack() as stack, stop_on_signals() as signal_handler:
            instruments, companions = _make_servers(given, stack)
            request = msgspec.structs.replace(given.request, instruments=instruments)

            def on_ready(graph: LiveGraph, artifacts: BuildArtifacts) -> None:
                lines = ready_lines(artifacts, graph.left_out, request.only, graph.confinement)
                sys.stdout.write("".join(f"{line}\n" for line in lines))
                sys.stdout.flush()
                let_handlers_finish(signal_handler, graph)

            result = run_runtime_pipeline(
                request,
                work=None if request.entrypoint else _wait_until_stopped,
                on_ready=on_ready,
                companions=companions,
            )
            raise_for_dead_letters(result)
    except StopRequested:
        return 0
    except GraphBusError as error:
        sys.stderr.write(f"{error}\n")
        return error.status
    return 0


def _make_servers(given: Arguments, stack: ExitStack) -> tuple[tuple[Instrument, ...], tuple[Companion, ...]]:
    """Return the instruments and companions of `--health` and `--serve`, both empty without these; `stack` closes their sockets.

    Raises:
        GraphBusError: GBE157 for a wrong address, and what `Servers` raises.
    """
    if not given.health and not given.serve:
        return (), ()
    from graphbus_core.hosting.serving.address import parse_address
    from graphbus_core.hosting.serving.companion import ServerOptions, Servers

    health = parse_address(given.health, "127.0.0.1") if given.health else None
    host, port = parse_address(given.serve, "127.0.0.1") if given.serve else ("", None)
    servers = Servers(ServerOptions(bool(given.serve), host, port, health), given.request.artifacts, _write_line)
    stack.callback(servers.close)
    return (servers.meter,), (servers.run_beside,)


def _write_line(line: str) -> None:
    sys.stderr.write(f"[RUNTIME] {line}\n")


def _wait_until_stopped(_graph: LiveGraph) -> None:
    """Block until a signal raises `StopRequested`; the work of a run without an entry point."""
    wait_for_signal()


def __getattr__(name: str) -> nx.DiGraph[Any]:
    if name == "RUNTIME_PIPELINE":
        return PIPELINE.as_graph()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    collector.resume()
    sys.exit(main())
