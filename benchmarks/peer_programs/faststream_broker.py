"""FastStream with its test broker for NATS: the whole way of a message, encoding included, without a server.

What is measured is the framework around a broker; in production the network comes on top, and messages outlive the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from faststream.nats import NatsBroker, TestNatsBroker
from protocol import ORDER, PAYLOAD, serve
from pydantic import BaseModel

OPEN = AsyncExitStack()


class Order(BaseModel):
    """An order whose fields are checked before the handler runs."""

    order_id: str
    status: str
    total: float
    items: int
    express: bool


class Wanted(BaseModel):
    """The arguments of the call."""

    sku: str
    qty: int


class Left(BaseModel):
    """Its result."""

    sku: str
    left: int


def new_broker() -> NatsBroker:
    """A broker that logs nothing."""
    return NatsBroker(logger=None, log_level=logging.CRITICAL)


async def published(count: int, kind: type) -> Callable[[], object]:
    """`publish` to so many subscribers of one subject."""
    broker = new_broker()
    for _ in range(count):

        async def hear(event: kind) -> None:  # type: ignore[valid-type]
            """Do next to nothing."""

        hear.__annotations__["event"] = kind
        broker.subscriber("order.created")(hear)
    await OPEN.enter_async_context(TestNatsBroker(broker))

    async def work() -> None:
        await broker.publish(PAYLOAD, "order.created")

    return work


async def publish_1() -> Any:
    """One subscriber."""
    return await published(1, dict)


async def publish_10() -> Any:
    """Ten."""
    return await published(10, dict)


async def publish_100() -> Any:
    """A hundred."""
    return await published(100, dict)


async def typed() -> Any:
    """One subscriber with a pydantic model."""
    return await published(1, Order)


async def call() -> Any:
    """`request`, arguments and result as pydantic models."""
    broker = new_broker()
    shelf = {"mug": 3, "cup": 4}

    async def reserve(wanted: Wanted) -> Left:
        return Left(sku=wanted.sku, left=max(0, shelf.get(wanted.sku, 0) - wanted.qty))

    reserve.__annotations__.update(wanted=Wanted)
    reserve.__annotations__["return"] = Left
    broker.subscriber("stock.reserve")(reserve)
    await OPEN.enter_async_context(TestNatsBroker(broker))

    async def work() -> None:
        answer = await broker.request({"sku": "mug", "qty": 1}, "stock.reserve")
        await answer.decode()

    return work


async def first_event() -> None:
    """Each subscriber publishes the next message."""
    broker = new_broker()
    seen = []

    @broker.subscriber("order.created")
    async def validate(order: dict) -> None:  # type: ignore[type-arg]
        if order["qty"]:
            await broker.publish(order, "order.validated")

    @broker.subscriber("order.validated")
    async def reserve(order: dict) -> None:  # type: ignore[type-arg]
        await broker.publish(order, "order.reserved")

    @broker.subscriber("order.reserved")
    async def confirm(order: dict) -> None:  # type: ignore[type-arg]
        seen.append(order["order_id"])

    async with TestNatsBroker(broker):
        await broker.publish(ORDER, "order.created")
    assert seen == ["1001"]


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": publish_1,
            "publish, 10 handlers": publish_10,
            "publish, 100 handlers": publish_100,
            "typed payload": typed,
            "async handler": publish_1,
            "call": call,
        },
        first_event,
    )
