"""GraphBus with everything on that is on by default.

One order of events, isolation, history, statistics, ids on demand, schemas where they are declared.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol import ORDER, PAYLOAD, serve

from graphbus_core import GraphBusNode, connect, publishes, run_graph, schema_method, subscribe
from graphbus_core.bus import MessageBus


class Listener:
    """A handler that does next to nothing."""

    def on_event(self, event: object) -> None:
        """Hear."""

    async def on_event_async(self, event: object) -> None:
        """Hear on the loop."""


@publishes("/Order/Created", {"order_id": str, "status": str, "total": float, "items": int, "express": bool})
class Orders(GraphBusNode):
    """Says what an order looks like, and hears one."""

    @subscribe("/Order/Created")
    def on_event(self, event: object) -> None:
        """Hear."""


class Stock(GraphBusNode):
    """What the call is about."""

    def on_start(self) -> None:
        """Fill the shelf."""
        self.shelf = {"mug": 3, "cup": 4}

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema={"sku": str, "left": int})
    def reserve(self, sku: str, qty: int) -> dict[str, object]:
        """Say what would be left."""
        return {"sku": sku, "left": max(0, self.shelf.get(sku, 0) - qty)}


def publish(count: int) -> Callable[[], object]:
    """`publish` to so many handlers."""
    bus = MessageBus()
    for _ in range(count):
        bus.subscribe("/Order/Created", Listener().on_event)
    return lambda: bus.publish("/Order/Created", PAYLOAD)


def typed() -> Callable[[], object]:
    """One handler, five fields checked."""
    bus = connect(Orders).bus
    return lambda: bus.publish("/Order/Created", PAYLOAD)


async def awaited() -> Callable[[], object]:
    """`publish_async` to one handler, on the loop of the program."""
    bus = MessageBus()
    bus.adopt_loop()
    bus.subscribe("/Order/Created", Listener().on_event_async)

    async def work() -> None:
        await bus.publish_async("/Order/Created", PAYLOAD)

    return work


def call() -> Callable[[], object]:
    """Arguments and result checked."""
    graph = connect(Stock)
    return lambda: graph.call("Stock", "reserve", sku="mug", qty=1)


def first_event() -> None:
    """From the artifacts in `.graphbus/`, verified, to the third step."""
    with run_graph(".graphbus/") as graph:
        graph.publish("/Order/Created", ORDER)
        assert graph.node("Confirmation").seen == ("1001",)  # type: ignore[attr-defined]


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": lambda: publish(1),
            "publish, 10 handlers": lambda: publish(10),
            "publish, 100 handlers": lambda: publish(100),
            "typed payload": typed,
            "async handler": awaited,
            "call": call,
        },
        first_event,
    )
