"""What contracts and the event loop cost: a payload that is checked, a method that is called, a handler that is awaited."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Any

from bus_publish import PAYLOAD, Listener
from stopwatch import Row, medians, report, timed

from graphbus_core import GraphBusNode, connect, publishes, schema_method, subscribe
from graphbus_core.bus import MessageBus
from graphbus_core.hosting.contracts import TopicContracts
from graphbus_core.schema.types import BOOL, FLOAT, INT, STR, Field, Schema

CALLS = 300
AWAITS = 200
ROUNDS = 151
CHECK_S = 350e-9
ORDER = Schema(
    (Field("order_id", STR), Field("status", STR), Field("total", FLOAT), Field("items", INT), Field("express", BOOL))
)


class Stock(GraphBusNode):
    """A method of the kind that agents have: it looks something up and gives a few fields."""

    def on_start(self) -> None:
        """Fill the shelf."""
        self.shelf = {"mug": 3, "cup": 4}

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema={"sku": str, "left": int})
    def reserve(self, sku: str, qty: int) -> dict[str, Any]:
        """Say what would be left."""
        left = max(0, self.shelf.get(sku, 0) - qty)
        return {"sku": sku, "left": left}


@publishes("/Tick/Seen", {"number": int})
class Ticker(GraphBusNode):
    """Publishes inside the loop what it hears there."""

    begun_s = took_s = 0.0
    heard = 0

    @subscribe("/Tick/Wanted")
    async def on_wanted(self) -> None:
        """Publish so many events, and measure from here until the last is heard."""
        self.heard, self.begun_s = 0, time.thread_time()
        for number in range(AWAITS):
            self.publish("/Tick/Seen", {"number": number})

    @subscribe("/Tick/Seen")
    async def on_seen(self, event: object) -> None:
        """Hear."""
        self.heard += 1
        if self.heard == AWAITS:
            self.took_s = time.thread_time() - self.begun_s


def typed_payload() -> list[Row]:
    """The same publish with the check of five fields, and on a bus that looks at no payload: what the check adds."""

    def publish(schema: Schema | None) -> Callable[[], object]:
        bus = MessageBus(admit=TopicContracts({"/Order/Created": schema}, None, "strict").admit if schema else None)
        bus.subscribe("/Order/Created", Listener().on_event)
        return lambda: bus.publish("/Order/Created", PAYLOAD)

    took = medians({"checked": timed(publish(ORDER), CALLS), "free": timed(publish(None), CALLS)}, rounds=ROUNDS)
    limit = (took["free"] + CHECK_S) / took["free"]
    return [Row("publish, 5 fields checked", took["checked"], took["free"], "unchecked", limit, "unchecked + 350 ns")]


def checked_call() -> list[Row]:
    """`call(agent, method)` with arguments and result checked, against the bare method."""
    with connect(Stock) as graph:
        bare = graph.node("Stock").reserve  # type: ignore[attr-defined]
        took = medians(
            {
                "ours": timed(lambda: graph.call("Stock", "reserve", sku="mug", qty=1), CALLS),
                "bare": timed(lambda: bare(sku="mug", qty=1), CALLS),
            },
            rounds=ROUNDS,
        )
    return [Row("call, input and output checked", took["ours"], took["bare"], "the bare method", 3.5)]


def awaited() -> list[Row]:
    """An `async def` handler whose events are published inside the loop, against `await` of a coroutine that does nothing.

    Both are taken inside the loop, in the time that its thread has worked: the way of the first event there from the thread that
    publishes it, and its way back, belong to no event that is published inside. The collector is off, as in the other rows.
    """

    async def hear(_event: object) -> None:
        pass

    async def wait() -> float:
        started = time.thread_time()
        for _ in range(AWAITS):
            await hear(PAYLOAD)
        return (time.thread_time() - started) / AWAITS

    with connect(Ticker) as graph:
        ticker = graph.node("Ticker")
        assert isinstance(ticker, Ticker)

        def ours() -> float:
            graph.publish("/Tick/Wanted")
            return ticker.took_s / AWAITS

        gc.disable()
        try:
            took = medians({"ours": ours, "await": lambda: asyncio.run(wait())}, rounds=ROUNDS)
        finally:
            gc.enable()
    return [Row("publish inside the loop, async handler", took["ours"], took["await"], "await", 5.0)]


def main() -> list[Row]:
    """Measure and print."""
    return report("Contracts and the event loop", typed_payload() + checked_call() + awaited())


if __name__ == "__main__":
    main()
