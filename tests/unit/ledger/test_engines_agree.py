"""The engines in memory and in SQLite show the same after the same calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import closing
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbus_core.hosting.database import MEMORY
from graphbus_core.hosting.state import States
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.seam import (
    Dead,
    Done,
    Lease,
    LeaseLost,
    Ledger,
    OnRetry,
    Parked,
    Released,
    RetryAt,
    StateChange,
    StateConflict,
    Subscription,
)
from graphbus_core.ledger.sqlite import SqliteLedger
from graphbus_core.testing import FakeClock
from tests import thoroughness

LEASE_S = 8.0
AGENTS = ("A", "B")


def subscription(agent: str, handler: str, topic: str, partitions: int, on_retry: OnRetry) -> Subscription:
    return Subscription(
        agent=agent,
        handler=f"{agent}.{handler}",
        topic=topic,
        partition_key="key",
        partitions=partitions,
        on_retry=on_retry,
    )


class Both:
    """Two engines that get the same calls; each call compares what they return or raise."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.memory = MemoryLedger(self.clock, lease_s=LEASE_S)
        self.sqlite = SqliteLedger(MEMORY, self.clock, lease_s=LEASE_S)
        self.leases: list[tuple[Lease, Lease]] = []

    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        await self.call("open", subscriptions)

    async def append(self, ids: str, topic: str, key: str) -> None:
        events = [Envelope(id=each, type=topic, time=self.clock.time(), data={"key": key}) for each in ids]
        await self.call("append", events)

    async def claim(self, agent: str, partitions: Sequence[int], limit: int) -> None:
        found = await self.call("claim", agent, partitions, limit)
        self.leases += zip(*found, strict=True)

    async def extend(self, which: int) -> None:
        await self.on_lease("extend", which)

    async def settle(self, which: int, outcome: object, state: Sequence[StateChange], outgoing: str) -> None:
        if isinstance(outcome, RetryAt):
            outcome = RetryAt(self.clock.time() + outcome.at, outcome.error)
        events = [Envelope(id=each, type="/X", time=self.clock.time(), data={"key": each}) for each in outgoing]
        await self.on_lease("settle", which, outcome, state, events)

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def on_lease(self, name: str, which: int, *given: object) -> None:
        if self.leases:
            ours, theirs = self.leases[-1 - which % len(self.leases)]
            found = [await result_of(getattr(self.memory, name)(ours, *given))]
            found.append(await result_of(getattr(self.sqlite, name)(theirs, *given)))
            assert visible(found[0]) == visible(found[1])

    async def call(self, name: str, *given: object) -> list[Any]:
        found = [await result_of(getattr(each, name)(*given)) for each in (self.memory, self.sqlite)]
        assert visible(found[0]) == visible(found[1])
        return found

    async def compare(self) -> None:
        assert await lag(self.memory) == await lag(self.sqlite)
        states = States()
        states._database = self.sqlite._database  # the same file: the states are in it
        assert self.memory.states.snapshot().agents == states.snapshot().agents


async def result_of(call: Awaitable[object]) -> object:
    try:
        return await call
    except (LeaseLost, StateConflict) as refusal:
        return type(refusal)


def visible(result: object) -> object:
    """Return a result without the numbers by which an engine finds its rows."""
    if isinstance(result, Lease):
        return msgspec.structs.replace(result, delivery=0)
    return [visible(each) for each in result] if isinstance(result, (list, tuple)) else result


async def lag(ledger: Ledger) -> list[object]:
    found = [each for each in await ledger.lag() if not each.is_idle or each.parked or each.dead]
    return sorted(found, key=lambda each: each.subscription.key)


topics = st.sampled_from(["/X", "/Y"])
patterns = st.sampled_from(["/X", "/Y", "/*"])
ids = st.text("abcdefghij", max_size=4)
which = st.sampled_from([0, 0, 0, 1, 2, 3, 5])
on_retry = st.sampled_from(["block", "skip"])
subscriptions = st.lists(
    st.builds(subscription, st.sampled_from(AGENTS), st.sampled_from("fg"), patterns, st.integers(1, 2), on_retry),
    min_size=1,
    max_size=5,
    unique_by=lambda each: each.key,
)
outcomes = st.one_of(
    st.just(Done()),
    st.builds(RetryAt, st.sampled_from([-1.0, 0.0, 2.0, 10.0]), st.just("no")),
    st.just(Released()),
    st.just(Dead("handler", "no \ud800")),
    st.just(Parked("why")),
)
versions = st.dictionaries(st.sampled_from("xy"), st.integers(0, 4), max_size=1)
changes = st.builds(
    StateChange,
    st.sampled_from(AGENTS),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from([None, "1", "2"]), max_size=2),
    versions,
    st.none() | st.frozensets(st.sampled_from("xy")),
)
append = st.tuples(st.just("append"), ids, topics, st.sampled_from(["", "k", "l"]))
partitions = st.sampled_from([(0,), (1, 0), (0, 1)])
claim = st.tuples(st.just("claim"), st.sampled_from(AGENTS), partitions, st.sampled_from([1, 1, 2, 3, 0]))
settle = st.tuples(st.just("settle"), which, outcomes, st.just([]) | st.lists(changes, max_size=2), ids)
calls = st.one_of(
    append,
    *[claim] * 4,  # most calls, as in a graph
    *[settle] * 3,
    st.tuples(st.just("extend"), which),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 2.0, LEASE_S])),
    st.tuples(st.just("open"), subscriptions),
)


@settings(max_examples=1000 if thoroughness.is_thorough else 200)
@given(subscriptions, st.lists(calls, min_size=20, max_size=80))
def test_engines_agree(first: list[Subscription], steps: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        both = Both()
        with closing(both.sqlite._connect()):
            await both.open(first)
            for name, *given_ in [*steps, ("claim", "A", (0, 1), 9), ("claim", "B", (0, 1), 9)]:
                await getattr(both, name)(*given_)
                await both.compare()

    asyncio.run(run())
