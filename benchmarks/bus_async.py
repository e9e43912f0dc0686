"""What an `async def` handler costs when its event is published inside the event loop, against awaiting the handler itself."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable

from stopwatch import Row, report

from graphbus_core import Event
from graphbus_core.bus import MessageBus

PAYLOAD = {"order_id": "1001", "status": "confirmed", "total": 105.0, "items": 2, "express": False}
LIMIT = 5.0
CALLS, ROUNDS = 300, 301
BURST = 1_000


async def on_order(event: object) -> None:
    """A handler that does nothing."""


async def timed(work: Callable[[], Awaitable[object]], calls: int = CALLS) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        await work()
    return (time.perf_counter() - started) / calls


async def awaited() -> dict[str, float]:
    """One event after the other, each awaited to its end."""
    taken: dict[str, list[float]] = {"direct": [], "awaited": []}
    async with MessageBus() as bus:
        bus.subscribe("/Order/Created", on_order)
        works = {"direct": lambda: on_order(PAYLOAD), "awaited": lambda: bus.publish_async("/Order/Created", PAYLOAD)}
        gc.disable()
        for _ in range(ROUNDS):
            for name, work in works.items():
                taken[name].append(await timed(work))
        gc.enable()
    return {name: statistics.median(values) for name, values in taken.items()}


def chained() -> float:
    """Async handlers that publish the next event: the way from one to the next, while the thread that has begun waits.

    In the time that all threads together have worked, so that a wake-up of the one that waits would be counted.
    """
    hops = BURST
    with MessageBus(max_hops=hops, max_tree=hops, history=0) as bus:

        async def step(event: Event) -> None:
            if event["left"]:
                bus.publish("/Chain/Step", {"left": event["left"] - 1})

        bus.subscribe("/Chain/Step", step)
        taken = []
        for _ in range(21):
            started = time.process_time()
            bus.publish("/Chain/Step", {"left": hops})
            taken.append((time.process_time() - started) / hops)
    return statistics.median(taken)


def main() -> list[Row]:
    """Measure and print."""
    took = asyncio.run(awaited())
    rows = [
        Row("publish_async inside the loop, 1 async handler", took["awaited"], took["direct"], "await handler", LIMIT),
        Row("a hop in a chain of async handlers", chained(), took["direct"], "await handler", 0),
    ]
    return report("Async handlers", rows)


if __name__ == "__main__":
    main()
