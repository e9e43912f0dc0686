"""The graph that was built, as a test sees it: the artifacts and modules of a real run, in memory and recorded."""

from __future__ import annotations

from collections.abc import Sequence

from graphbus_core import runtime
from graphbus_core.bus.message_bus import OnError
from graphbus_core.clock import Clock
from graphbus_core.hosting.imports import NodeModules
from graphbus_core.hosting.members import compose_built
from graphbus_core.middleware import Middleware
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.testing.graphs import RecordingGraph
from graphbus_core.testing.recording import RecordingBus


def start_built(
    request: RuntimeConfig, clock: Clock, on_error: OnError, middleware: Sequence[Middleware], state_path: str
) -> RecordingGraph:
    """Start the graph of the artifacts; `init` is what `runtime.init_simple_bus` is in a run for real.

    Raises:
        GraphBusError: What the first four stages refuse.
    """

    def init(artifacts: BuildArtifacts, modules: NodeModules, config: ResolvedRun) -> RecordingGraph:
        topics, members = compose_built(artifacts, modules, config)
        around = (*middleware, *modules.middleware)
        bus = RecordingBus(
            on_error=on_error, clock=clock, admit=topics.admit, middleware=around, settings=config.settings
        )
        graph = RecordingGraph(bus, members, clock, state_path)
        graph.place_of = modules.place_of
        graph.at_end(modules.forget)
        graph.start()
        return graph

    stages = runtime.PIPELINE.without("EXECUTE_ENTRYPOINT", "SHUTDOWN").replacing({"INIT_SIMPLE_BUS": init})
    return stages.run(request)[RecordingGraph]
