"""A graph that remembers what happened in it."""

from __future__ import annotations

from collections.abc import Iterable

from graphbus_core.bus.receipts import Receipt
from graphbus_core.clock import Clock
from graphbus_core.hosting.graph import LiveGraph, Member
from graphbus_core.isolation import attempt
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.schema.json import Json
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
        """Stop. What has ended the test goes up as it is, also if more fails while the rest is delivered; that is in the log."""
        if any(raised):
            attempt(self.stop)
        else:
            self.stop()

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """The events that a handler could not handle, after all attempts."""
        return self.bus.dead_letters()

    def publish_all(self, *events: tuple[str, Json]) -> None:
        """Publish (topic, payload) after (topic, payload); the first is delivered when all of them wait."""

        def publish() -> None:
            for topic, payload in events:
                self.publish(topic, payload)

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
