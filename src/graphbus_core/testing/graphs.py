"""Graphs for tests: they run in memory with a fake clock and record what happens. Made from classes or from a build."""

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
    """A running graph that records events, deliveries and calls; see `Recorded` for its queries and assertions.

    Attributes:
        clock: The clock of its bus.
    """

    def __init__(self, bus: RecordingBus, members: Iterable[Member], clock: Clock, state_path: str = "") -> None:
        super().__init__(bus, members, state_path=state_path)  # an empty path: the state lives in memory
        self.clock = clock
        self._recorded_bus = bus
        self._recorder = bus._recorder

    def __enter__(self) -> RecordingGraph:
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop the graph. If the block has raised, errors of the shutdown are ignored, so that they do not hide its exception."""
        if any(raised):
            attempt(self.stop)
        else:
            self.stop()

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Return the events whose delivery failed for good, oldest first."""
        return self.bus.dead_letters()

    def publish_all(self, *events: tuple[str | Topic[Any], Json]) -> None:
        """Publish several events, each a tuple `(topic, payload)`, before any is delivered; then deliver them on this thread."""

        def publish() -> None:
            for topic, payload in events:
                self.bus.publish(topic, payload)

        self.bus.run(publish)

    def wait_for(self, receipt: Receipt, *, is_rest_enough: bool = False) -> bool:
        """Wait until the event of a receipt is done; with a `FakeClock`, time passes for its retries unless `is_rest_enough`."""
        if isinstance(self.clock, FakeClock) and not is_rest_enough:
            self.settle()
        return super().wait_for(receipt, is_rest_enough=is_rest_enough)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until no event or retry is left; return False if some are left after `timeout_s` seconds (None: no limit).

        With a `FakeClock`, time passes until no timer waits.
        """
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
    """Start a graph that records what happens: `with run_graph(Shop, Stock) as graph: ...`.

    Args:
        agents: Agent classes, or objects of them; handlers of one topic run in this order. None: the graph that was built.
        artifacts: The artifact folder of the graph that was built.
        clock: The clock of the graph; None: a new `FakeClock`.
        validation: Whether values that do not fit their schemas raise (`"strict"`), are logged (`"warn"`), or are not checked
            (`"off"`). None: `"strict"`, or for a graph that was built, as its project says.
        on_error: `"raise"`: the publish or call that caused it raises the first exception of a handler. `"isolate"`: it becomes a
            dead letter, as with `graphbus run`.
        middleware: Wraps every handler and call, outermost first.
        state: The file of the agents' state; empty: the state lives in memory, until the graph stops.
        factory: Creates the agents, `make(cls: type[T]) -> T`. None: classes are called without arguments; a graph that was built
            uses the factory of its project.

    Returns:
        The running graph.

    Raises:
        GraphBusError: What `connect` and `runtime.run_graph` raise.
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
        """Make and start a recording graph; this replaces the stage of a run that starts a plain one."""
        topics, members = compose_from_build(artifacts, modules, config)
        wrappers = (*middleware, *modules.middleware)
        bus = RecordingBus(
            on_error=on_error, clock=time, admit=topics.admit, middleware=wrappers, settings=config.settings
        )
        graph = RecordingGraph(bus, members, time, str(state))
        graph.place_of = modules.place_of
        graph.factory = factory or modules.factory
        graph.at_end(modules.forget)
        graph.start()
        return graph

    from graphbus_core import runtime  # not needed for most tests, which pass classes

    stages = runtime.PIPELINE.excluding("EXECUTE_ENTRYPOINT", "SHUTDOWN").replacing({"INIT_SIMPLE_BUS": init})
    return stages.run(RuntimeConfig(artifacts=str(artifacts), validation=validation))[RecordingGraph]
