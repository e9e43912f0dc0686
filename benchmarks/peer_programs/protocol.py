"""What every program here does: measure one thing per line of input, nanoseconds per operation as one line of JSON.

A program needs nothing but its library and this file. `first-event` as argument: build the small graph, send one event through
it, say how much memory that took, and end.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # a first event is measured as well: what a library does without is not imported for it
    import asyncio
    from collections.abc import Callable

PAYLOAD = {"order_id": "1001", "status": "confirmed", "total": 105.0, "items": 2, "express": False}
ORDER = {"order_id": "1001", "sku": "mug", "qty": 2}
TURN_S = 0.0005
"""How long one turn lasts: less than a time slice, or a busy machine measures how it shares its time."""
TURNS = 41
"""So many turns are a round. What it gives is their lower quartile: others on the machine make turns longer, never shorter."""


class Batch(NamedTuple):
    """Work that does so many operations at once, because the library waits for them together."""

    work: Callable[[], Any]
    operations: int


class Measure:
    """One prepared measure and how many operations make a turn."""

    def __init__(self, prepared: Any, runner: asyncio.Runner) -> None:
        from inspect import iscoroutinefunction

        self._work, self._operations = prepared if isinstance(prepared, Batch) else (prepared, 1)
        self._runner = runner
        self._is_async = iscoroutinefunction(self._work)
        self._calls = 1
        while (took_s := min(self._round_s(3))) < TURN_S / 2:
            self._calls = max(self._calls + 1, min(self._calls * 10, round(self._calls * TURN_S / max(took_s, 1e-9))))
        self._turns = max(1, min(TURNS, round(TURNS * TURN_S / took_s)))  # fewer of what takes longer

    def take_ns(self) -> float:
        """Nanoseconds of one operation: one round."""
        took_s = sorted(self._round_s(self._turns))[self._turns // 4]
        return took_s * 1e9 / (self._calls * self._operations)

    def _round_s(self, turns: int) -> list[float]:
        """Seconds of so many turns, the collector off."""
        import gc

        gc.collect()
        gc.disable()
        try:
            if self._is_async:
                return self._runner.run(self._take_async(turns))
            return [self._take() for _ in range(turns)]
        finally:
            gc.enable()

    def _take(self) -> float:
        from time import perf_counter

        work = self._work
        started = perf_counter()
        for _ in range(self._calls):
            work()
        return perf_counter() - started

    async def _take_async(self, turns: int) -> list[float]:
        from time import perf_counter

        work, took_s = self._work, []
        for _ in range(turns):
            started = perf_counter()
            for _ in range(self._calls):
                await work()
            took_s.append(perf_counter() - started)
        return took_s


def resident_bytes() -> int:
    """What this process holds in memory."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def serve(measures: dict[str, Callable[[], Any]], first_event: Callable[[], Any]) -> None:
    """Answer the lines of standard input until it ends; what the library prints goes nowhere.

    Args:
        measures: Name -> a function, plain or async, that sets the measure up and gives the work: a function of no arguments,
            plain or async, or a `Batch`.
        first_event: Builds the small graph and sends one event through it; may be async.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    if sys.argv[1:] == ["first-event"]:
        done = first_event()
        if done is not None:
            import asyncio

            asyncio.new_event_loop().run_until_complete(done)
        answers.write(f'{{"resident_bytes": {resident_bytes()}}}\n')
        answers.flush()
    else:
        _answer(measures, answers)
    os._exit(0)  # some libraries cannot be closed from here, and there is nothing to lose


def _answer(measures: dict[str, Callable[[], Any]], answers: Any) -> None:
    import asyncio
    import json
    from inspect import iscoroutinefunction

    def say(**fields: object) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    say(measures=list(measures))
    prepared: dict[str, Measure] = {}
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            name = line.strip()
            if name not in prepared:
                maker = measures[name]
                prepared[name] = Measure(runner.run(maker()) if iscoroutinefunction(maker) else maker(), runner)
            say(measure=name, ns=prepared[name].take_ns())
        answers.flush()
        os._exit(0)  # before the loop ends: not all libraries let it
