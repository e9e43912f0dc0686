"""No library: the same functions, called by name."""

from __future__ import annotations

from collections.abc import Callable

from protocol import ORDER, PAYLOAD, Batch, serve

BATCH = 100


class Listener:
    """A handler that does next to nothing."""

    def on_event(self, event: object) -> None:
        """Hear."""

    async def on_event_async(self, event: object) -> None:
        """Hear on the loop."""


class Stock:
    """What the call is about."""

    def __init__(self) -> None:
        self.shelf = {"mug": 3, "cup": 4}

    def reserve(self, sku: str, qty: int) -> dict[str, object]:
        """Say what would be left."""
        return {"sku": sku, "left": max(0, self.shelf.get(sku, 0) - qty)}


def publish(count: int) -> Callable[[], object]:
    """A loop over the handlers."""
    handlers = [Listener().on_event for _ in range(count)]

    def work() -> None:
        for handler in handlers:
            handler(PAYLOAD)

    return work


def awaited() -> Batch:
    """Coroutines that are awaited one after the other; many at once, because to await `work` costs as much as one of them."""
    handler = Listener().on_event_async

    async def work() -> None:
        for _ in range(BATCH):
            await handler(PAYLOAD)

    return Batch(work, BATCH)


def call() -> Callable[[], object]:
    """The bare method."""
    reserve = Stock().reserve
    return lambda: reserve(sku="mug", qty=1)


def first_event() -> None:
    """Three functions, one after the other."""
    seen = []

    def validate(order: dict[str, object]) -> None:
        if order["qty"]:
            reserve(order)

    def reserve(order: dict[str, object]) -> None:
        confirm(order)

    def confirm(order: dict[str, object]) -> None:
        seen.append(order["order_id"])

    validate(ORDER)
    assert seen == ["1001"]


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": lambda: publish(1),
            "publish, 10 handlers": lambda: publish(10),
            "publish, 100 handlers": lambda: publish(100),
            "async handler": awaited,
            "call": call,
        },
        first_event,
    )
