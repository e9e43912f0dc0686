"""bubus: an async event bus whose events are pydantic models. It keeps the results of all handlers and the tree of events."""

import logging
from collections.abc import Callable
from typing import Any

from bubus import BaseEvent, EventBus
from protocol import ORDER, PAYLOAD, serve

logging.disable(logging.CRITICAL)


class Anything(BaseEvent):
    """An event that carries whatever it is given."""

    payload: dict[str, Any]


class OrderCreated(BaseEvent):
    """An event whose fields are checked."""

    order_id: str
    status: str
    total: float
    items: int
    express: bool


class Reserve(BaseEvent):
    """A question."""

    sku: str
    qty: int


class Created(BaseEvent):
    """The small graph, first event."""

    order: dict[str, Any]


class Validated(Created):
    """Second."""


class Reserved(Created):
    """Third."""


def listener() -> Callable[[Any], None]:
    """A handler that does next to nothing; each has a name of its own."""

    def hear(event: Any) -> None:
        pass

    return hear


async def published(count: int) -> Callable[[], object]:
    """`await bus.dispatch(...)` with so many handlers."""
    bus = EventBus(name=f"Bus{count}")
    for number in range(count):
        hear = listener()
        hear.__name__ = hear.__qualname__ = f"hear{number}"
        bus.on(Anything, hear)

    async def work() -> None:
        await bus.dispatch(Anything(payload=PAYLOAD))

    return work


async def publish_1() -> Any:
    """One handler."""
    return await published(1)


async def publish_10() -> Any:
    """Ten."""
    return await published(10)


async def publish_100() -> Any:
    """A hundred."""
    return await published(100)


async def typed() -> Any:
    """One handler of an event with typed fields."""
    bus = EventBus(name="Typed")
    bus.on(OrderCreated, listener())

    async def work() -> None:
        await bus.dispatch(OrderCreated(**PAYLOAD))

    return work


async def awaited() -> Any:
    """One async handler."""
    bus = EventBus(name="Awaited")

    async def hear(event: Anything) -> None:
        pass

    bus.on(Anything, hear)

    async def work() -> None:
        await bus.dispatch(Anything(payload=PAYLOAD))

    return work


async def call() -> Any:
    """The result of the one handler."""
    bus = EventBus(name="Calls")
    shelf = {"mug": 3, "cup": 4}

    def reserve(event: Reserve) -> dict[str, Any]:
        return {"sku": event.sku, "left": max(0, shelf.get(event.sku, 0) - event.qty)}

    bus.on(Reserve, reserve)

    async def work() -> None:
        await bus.dispatch(Reserve(sku="mug", qty=1)).event_result()

    return work


async def first_event() -> None:
    """Each handler dispatches the next event."""
    bus = EventBus(name="First")
    seen = []

    async def validate(event: Created) -> None:
        if event.order["qty"]:
            await bus.dispatch(Validated(order=event.order))

    async def reserve(event: Validated) -> None:
        await bus.dispatch(Reserved(order=event.order))

    async def confirm(event: Reserved) -> None:
        seen.append(event.order["order_id"])

    bus.on(Created, validate)
    bus.on(Validated, reserve)
    bus.on(Reserved, confirm)
    await bus.dispatch(Created(order=ORDER))
    await bus.wait_until_idle()
    assert seen == ["1001"]


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": publish_1,
            "publish, 10 handlers": publish_10,
            "publish, 100 handlers": publish_100,
            "typed payload": typed,
            "async handler": awaited,
            "call": call,
        },
        first_event,
    )
