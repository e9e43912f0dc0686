"""What the programs behind `ledgers.py` do: measure one thing per line of input, and answer with one line of JSON.

{"measure": "events", "count": 5000}  ->  seconds of one event, stored by the publisher until handled by the one consumer
{"measure": "singles", "count": 500}  ->  the same, where the publisher waits for each event until it is stored
{"measure": "hops", "count": 200}     ->  seconds of each event, published alone
{"measure": "lost", "count": 50}      ->  how many events are never handled if the first attempt of each fails
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

BATCH = 500
"""How many events a publisher sends before it waits until they are stored."""
QUIET_S = 3.0
"""What has not been handled after this pause counts as lost."""

Append = Callable[[Sequence[dict[str, Any]]], Awaitable[None]]
Handle = Callable[[dict[str, Any]], None]


def event_of(number: int) -> dict[str, Any]:
    """Return the payload of an event: 80 bytes of JSON."""
    return {"n": number, "text": "x" * (80 - len(json.dumps({"n": number, "text": ""})))}


class Measures:
    """Counts what the consumer handles, and measures."""

    def __init__(self) -> None:
        self.append: Append
        self._loop = asyncio.get_running_loop()
        self._first = 0
        self._wanted: set[int] = set()
        self._failing: set[int] = set()
        self._is_done = asyncio.Event()
        self._done_at = 0.0

    def handle(self, payload: dict[str, Any]) -> None:
        """Handle an event; on any thread. The first attempt fails if that is measured."""
        number = payload["n"]
        if number in self._failing:
            self._failing.discard(number)
            raise OSError("the first attempt fails")
        self._wanted.discard(number)
        if not self._wanted:
            self._done_at = perf_counter()
            self._loop.call_soon_threadsafe(self._is_done.set)

    def _expect(self, count: int) -> list[dict[str, Any]]:
        numbers = range(self._first, self._first + count)
        self._first += count
        self._wanted = set(numbers)
        self._is_done.clear()
        return [event_of(number) for number in numbers]

    async def events(self, count: int, batch: int = BATCH) -> float:
        """Return the seconds that one of many events takes."""
        payloads = self._expect(count)
        began = perf_counter()
        for start in range(0, count, batch):
            await self.append(payloads[start : start + batch])
        await self._is_done.wait()
        return (self._done_at - began) / count

    async def singles(self, count: int) -> float:
        """Return the seconds that one of many events takes, each published when the one before it is stored."""
        return await self.events(count, batch=1)

    async def hops(self, count: int) -> list[float]:
        """Return the seconds from the publication of an event until its handler begins, one after the other."""
        took = []
        for _ in range(count):
            payloads = self._expect(1)
            began = perf_counter()
            await self.append(payloads)
            await self._is_done.wait()
            took.append(self._done_at - began)
        return took

    async def lost(self, count: int) -> int:
        """Return how many events are lost when the first attempt of each fails."""
        payloads = self._expect(count)
        self._failing = set(self._wanted)
        await self.append(payloads)
        left = count + 1
        while self._wanted and len(self._wanted) < left:
            left = len(self._wanted)
            await asyncio.sleep(QUIET_S)
        return len(self._wanted)


def serve(start: Callable[[str, Handle], Awaitable[Append]]) -> None:
    """Answer the lines of standard input until it ends.

    Args:
        start: Connects to the ledger that the argument of the program names, lets the consumer call a function with the payload
            of each event, and returns a function that publishes events and waits until they are stored.
    """

    async def main() -> None:
        measures = Measures()
        measures.append = await start(sys.argv[1], measures.handle)
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            answer = await getattr(measures, asked["measure"])(asked["count"])
            print(json.dumps(answer), flush=True)

    asyncio.run(main())
