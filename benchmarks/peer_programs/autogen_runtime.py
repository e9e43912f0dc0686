"""autogen-core: actors that exchange messages, on its runtime for one process.

Handlers are async; agents are made when first needed; each message is traced if a tracer is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autogen_core import (
    AgentId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    TopicId,
    TypeSubscription,
    message_handler,
)
from protocol import ORDER, PAYLOAD, Batch, serve
from pydantic import BaseModel

BATCH = 20


@dataclass
class Anything:
    """A message that carries whatever it is given."""

    payload: dict[str, Any]


class Order(BaseModel):
    """A message whose fields are checked when it is made."""

    order_id: str
    status: str
    total: float
    items: int
    express: bool


@dataclass
class Wanted:
    """The arguments of the call."""

    sku: str
    qty: int


@dataclass
class Left:
    """Its result."""

    sku: str
    left: int


@dataclass
class Step:
    """A message of the small graph."""

    order: dict[str, Any]


class Listener(RoutedAgent):
    """Does next to nothing."""

    @message_handler
    async def on_anything(self, message: Anything, ctx: MessageContext) -> None:
        """Hear."""

    @message_handler
    async def on_order(self, message: Order, ctx: MessageContext) -> None:
        """Hear of an order."""


class Stock(RoutedAgent):
    """What the call is about."""

    def __init__(self) -> None:
        super().__init__("Stock")
        self.shelf = {"mug": 3, "cup": 4}

    @message_handler
    async def reserve(self, message: Wanted, ctx: MessageContext) -> Left:
        """Say what would be left."""
        return Left(message.sku, max(0, self.shelf.get(message.sku, 0) - message.qty))


async def published(count: int, message: Callable[[], object]) -> Batch:
    """`publish_message` to so many agents; the runtime can only be waited for as a whole."""
    runtime = SingleThreadedAgentRuntime()
    topic = TopicId("created", "default")
    for number in range(count):
        await Listener.register(runtime, f"listener{number}", lambda: Listener("listener"))
        await runtime.add_subscription(TypeSubscription("created", f"listener{number}"))

    async def work() -> None:
        runtime.start()
        for _ in range(BATCH):
            await runtime.publish_message(message(), topic)
        await runtime.stop_when_idle()

    return Batch(work, BATCH)


async def publish_1() -> Batch:
    """One agent."""
    return await published(1, lambda: Anything(PAYLOAD))


async def publish_10() -> Batch:
    """Ten."""
    return await published(10, lambda: Anything(PAYLOAD))


async def publish_100() -> Batch:
    """A hundred."""
    return await published(100, lambda: Anything(PAYLOAD))


async def typed() -> Batch:
    """One agent, a message of a pydantic class."""
    return await published(1, lambda: Order(**PAYLOAD))


async def call() -> Batch:
    """`send_message`, which gives the handler's result."""
    runtime = SingleThreadedAgentRuntime()
    await Stock.register(runtime, "stock", Stock)
    stock = AgentId("stock", "default")

    async def work() -> None:
        runtime.start()
        for _ in range(BATCH):
            await runtime.send_message(Wanted("mug", 1), stock)
        await runtime.stop_when_idle()

    return Batch(work, BATCH)


SEEN: list[str] = []


class Validator(RoutedAgent):
    """First step."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """Go on with an order that wants something."""
        if message.order["qty"]:
            await self.publish_message(message, TopicId("validated", "default"))


class Reserver(RoutedAgent):
    """Second."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """Go on."""
        await self.publish_message(message, TopicId("reserved", "default"))


class Confirmer(RoutedAgent):
    """Third."""

    @message_handler
    async def on_step(self, message: Step, ctx: MessageContext) -> None:
        """Remember."""
        SEEN.append(message.order["order_id"])


async def first_event() -> None:
    """Each agent publishes the next message."""
    runtime = SingleThreadedAgentRuntime()
    for topic, agent in (("created", Validator), ("validated", Reserver), ("reserved", Confirmer)):
        await agent.register(runtime, topic, lambda agent=agent: agent("step"))
        await runtime.add_subscription(TypeSubscription(topic, topic))
    runtime.start()
    await runtime.publish_message(Step(ORDER), TopicId("created", "default"))
    await runtime.stop_when_idle()
    assert SEEN == ["1001"]


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
