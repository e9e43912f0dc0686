"""pyee: an event emitter as in Node. A listener is called in place; an exception goes to the emitter's caller; no schema."""

from __future__ import annotations

from collections.abc import Callable

from protocol import ORDER, PAYLOAD, Batch, serve
from pyee.base import EventEmitter

BATCH = 100


class Listener:
    """A listener that does next to nothing."""

    def on_event(self, event: object) -> None:
        """Hear."""

    async def on_event_async(self, event: object) -> None:
        """Hear on the loop."""


def publish(count: int) -> Callable[[], object]:
    """`emit` to so many listeners."""
    emitter = EventEmitter()
    for _ in range(count):
        emitter.on("order_created", Listener().on_event)
    return lambda: emitter.emit("order_created", PAYLOAD)


def awaited() -> Batch:
    """`emit` starts a task for each event; the emitter can wait for all of them."""
    from pyee.asyncio import AsyncIOEventEmitter

    emitter = AsyncIOEventEmitter()
    emitter.on("order_created", Listener().on_event_async)

    async def work() -> None:
        for _ in range(BATCH):
            emitter.emit("order_created", PAYLOAD)
        await emitter.wait_for_complete()

    return Batch(work, BATCH)


def first_event() -> None:
    """Each listener emits the next event."""
    emitter = EventEmitter()
    seen = []

    @emitter.on("created")
    def validate(order: dict[str, object]) -> None:
        if order["qty"]:
            emitter.emit("validated", order)

    @emitter.on("validated")
    def reserve(order: dict[str, object]) -> None:
        emitter.emit("reserved", order)

    @emitter.on("reserved")
    def confirm(order: dict[str, object]) -> None:
        seen.append(order["order_id"])

    emitter.emit("created", ORDER)
    assert seen == ["1001"]


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": lambda: publish(1),
            "publish, 10 handlers": lambda: publish(10),
            "publish, 100 handlers": lambda: publish(100),
            "async handler": awaited,
        },
        first_event,
    )
