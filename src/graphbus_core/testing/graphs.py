"""Graphs for tests: of classes or of what was built, in memory, on a clock that stands still, and recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from graphbus_core.bus.message_bus import OnError
from graphbus_core.bus.receipts import Receipt
from graphbus_core.clock import Clock
from graphbus_core.hosting.graph import LiveGraph, Member
from graphbus_core.hosting.imports import Factory, NodeModules
from graphbus_core.hosting.members import compose_from_build, compose_from_classes
from graphbus_core.isolation import attempt
from graphbus_core.middleware import Middleware
from graphbus_core.model.config import ResolvedRun, RuntimeConfig, Validation
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.topics import Topic
from graphbus_core.node import GraphBusNode
from graphbus_core.schema.json import Json
from graphbus_core.store import BuildArtifacts
from graphbus_core.testing.clock import FakeClock
from graphbus_core.testing.recording import Recorded, RecordingBus

_MOST_TIMERS = 100_000


class RecordingGraph(Recorded, LiveGraph):
    """A running graph that remembers what happened in it.

    Attributes:
        clock: Where it has its time from.
    """

    def __init__(self, bus: RecordingBus, members: Iterable[Member], clock: Clock, state_path: str = "") -> None:
        super().__init__(bus, members, state_path=state_path)
        self.clock = clock
        self._recorded_bus = bus
        self._recorder = bus._recorder

    def __enter__(self) -> RecordingGraph:
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop. The exception that ended the test is raised unchanged; failures while the rest is delivered are only logged."""
        if any(raised):
            attempt(self.stop)
        else:
            self.stop()

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The events that a handler could not handle, after all attempts."""
        return self.bus.dead_letters()

    def publish_all(self, *events: tuple[str | Topic[Any], Json]) -> None:
        """Publish (topic, payload) after (topic, payload); the first is delivered when all of them wait."""

        def publish() -> None:
            for topic, payload in events:
                self.bus.publish(topic, payload)

        self.bus.run(publish)

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Wait until a receipt is done. With a `FakeClock` time passes until it is, unless rest is enough."""
        if isinstance(self.clock, FakeClock) and not is_rest_enough:
            self.settle()
        return super().wait_for(receipt, is_rest_enough=is_rest_enough)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Deliver everything that waits. With a `FakeClock` time passes until nothing waits for it: no retry is left either."""
        if not isinstance(self.clock, FakeClock):
            return super().settle(timeout_s)
        self.bus.run(lambda: None)
        return any(not self.clock.advance_to_next() for _ in range(_MOST_TIMERS))


def run_graph(
    *agents: type[GraphBusNode] | GraphBusNode,
    artifacts: str | Path = ".graphbus",
    clock: Clock | None = None,
    validation: Validation | None = None,
    on_error: OnError = "raise",
    middleware: Sequence[Middleware] = (),
    state: str | Path = "",
    factory: Factory | None = None,
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
        factory: What makes the objects of classes, `make(cls: type[T]) -> T`; by default they are made without arguments, and
            those of a graph that was built as its project says.

    Raises:
        GraphBusError: What `connect` and `graphbus run` refuse.
    """
    time = FakeClock() if clock is None else clock
    if agents:
        topics, members = compose_from_classes(agents, validation or "strict")
        bus = RecordingBus(on_error=on_error, clock=time, admit=topics.admit, learn=topics.learn, middleware=middleware)
        graph = RecordingGraph(bus, members, time, str(state))
        graph.factory = factory
        graph.start()
        return graph

    def init(artifacts: BuildArtifacts, modules: NodeModules, config: ResolvedRun) -> RecordingGraph:
        """Do what `runtime.init_simple_bus` does in a run for real."""
        topics, members = compose_from_build(artifacts, modules, config)
        around = (*middleware, *modules.middleware)
        bus = RecordingBus(
            on_error=on_error, clock=time, admit=topics.admit, middleware=around, settings=config.settings
        )
        graph = RecordingGraph(bus, members, time, str(state))
        graph.place_of = modules.place_of
        graph.factory = factory or modules.factory
        graph.at_end(modules.forget)
        graph.start()
        return graph

    from graphbus_core import runtime  # most tests have no build

    stages = runtime.PIPELINE.excluding("EXECUTE_ENTRYPOINT", "SHUTDOWN").replacing({"INIT_SIMPLE_BUS": init})
    return stages.run(RuntimeConfig(artifacts=str(artifacts), validation=validation))[RecordingGraph]
