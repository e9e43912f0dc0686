"""Graphs for tests: of classes or of what was built, in memory, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphbus_core.bus.message_bus import OnError
from graphbus_core.clock import Clock
from graphbus_core.hosting.members import compose
from graphbus_core.middleware import Middleware
from graphbus_core.model.config import RuntimeConfig, Validation
from graphbus_core.node import GraphBusNode
from graphbus_core.testing.clock import FakeClock
from graphbus_core.testing.graphs import RecordingGraph
from graphbus_core.testing.recording import RecordingBus


def run_graph(
    *agents: type[GraphBusNode] | GraphBusNode,
    artifacts: str | Path = ".graphbus",
    clock: Clock | None = None,
    validation: Validation | None = None,
    on_error: OnError = "raise",
    middleware: Sequence[Middleware] = (),
    state: str | Path = "",
) -> RecordingGraph:
    """Start a graph that records: `with run_graph(Shop, Stock) as graph: ...`.

    Args:
        agents: Classes, or objects that were made before; they are served in this order. None: the graph that was built.
        artifacts: Where that graph is.
        clock: Where the graph has its time from; a new `FakeClock` by default.
        validation: What happens to arguments, results and payloads that do not fit the declared schemas; `strict` by default, and
            for a graph that was built what its project says.
        on_error: `raise`: the first exception of a handler comes out of the publish or call that caused it. `isolate`: it becomes
            a dead letter, as in a graph that runs for real.
        middleware: What goes around every handler and call, outermost first.
        state: The file with the agents' state; without one it is kept in memory, as long as the graph lives.

    Raises:
        GraphBusError: What `connect` and `graphbus run` refuse.
    """
    clock = FakeClock() if clock is None else clock
    if not agents:
        from graphbus_core.testing.built import start_built

        request = RuntimeConfig(artifacts=str(artifacts), validation=validation)
        return start_built(request, clock, on_error, middleware, str(state))
    topics, members = compose(agents, validation or "strict")
    bus = RecordingBus(on_error=on_error, clock=clock, admit=topics.admit, middleware=middleware)
    graph = RecordingGraph(bus, members, clock, str(state))
    graph.start()
    return graph
