"""What the tests of `LedgerSuite` are made of: engines on a fake clock, events, claims, wake-ups and checks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from graphbus_core.clock import Clock
from graphbus_core.hosting.state import States
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import (
    Done,
    Lease,
    LeaseLost,
    Ledger,
    Subscription,
)
from graphbus_core.testing.clock import FakeClock

if TYPE_CHECKING:
    import asyncio

_Test = TypeVar("_Test", bound="LedgerChecks")

_QUIET_S = 0.02
"""When an engine tells nothing for this long, a test takes it that all wake-ups of earlier changes have come."""
_MANY = 500
"""More deliveries or wake-ups than a test makes."""


def on_new_ledger(*subscriptions: Subscription) -> Callable[[Callable[[_Test, Ledger], Awaitable[None]]], Any]:
    """Make a test of a coroutine function: it gets an engine that was opened with these subscriptions."""

    def make_test(body: Callable[[_Test, Ledger], Awaitable[None]]) -> Callable[[_Test], None]:
        def test(self: _Test) -> None:
            from asyncio import run

            run(self.run(body, subscriptions))

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return make_test


class LedgerChecks:
    """What a subclass of `LedgerSuite` defines, and what its tests use.

    Attributes:
        lease_s: How long a lease of the engines lasts.
        patience_s: How long a test waits for a wake-up before it fails.
        clock: The clock of the running test.
    """

    lease_s: float = 0.05
    patience_s: float = 10.0
    clock: FakeClock

    # --- what a subclass defines ---

    def make(self, clock: Clock) -> Ledger:
        """Return a new, empty engine; `open` has not been called."""
        raise NotImplementedError

    def states(self, ledger: Ledger) -> States:
        """Return the states that the engine writes, to read them."""
        raise NotImplementedError

    def reopen(self, ledger: Ledger) -> Ledger | None:
        """Return what another process would use after the one with `ledger` has crashed; None: nothing survives a crash."""
        return None

    async def open_processes(self, ledger: Ledger, subscription: Subscription) -> list[tuple[Ledger, Sequence[int]]]:
        """Return what several processes of an agent use, opened with this subscription, and which partitions each claims.

        By default two processes claim all of them from one engine.
        """
        return [(ledger, range(subscription.partitions))] * 2

    async def let_pass(self, seconds: float) -> None:
        """Let this time pass on the clock of the engine."""
        self.clock.advance(seconds)

    # --- what the tests use ---

    async def run(self: _Test, body: Callable[[_Test, Ledger], Awaitable[None]], given: Sequence[Subscription]) -> None:
        """Run one test with a new clock and a new engine."""
        self.clock = FakeClock()
        ledger = self.make(self.clock)
        await ledger.open(given)
        try:
            await body(self, ledger)
        finally:
            await ledger.close()

    def event(self, name: str, topic: str = "/Order", key: str = "") -> Envelope:
        """Return an event whose id is `name`."""
        return Envelope(id=name, type=topic, time=self.clock.time(), data={"name": name, "key": key})

    def events(self, names: str) -> list[Envelope]:
        """Return an event on `/Order` for each letter."""
        return [self.event(name) for name in names]

    async def claim(self, ledger: Ledger, agent: str = "Stock", partitions: Collection[int] = (0,)) -> Lease:
        """Return the lease of the next delivery; fail if there is none."""
        leases = await ledger.claim(agent, partitions)
        check("a delivery of this agent can be claimed", len(leases), 1)
        return leases[0]

    async def claim_names(self, ledger: Ledger, agent: str = "Stock", *, limit: int = 1) -> str:
        """Claim, and return the ids of the events as one text."""
        return names_of(await ledger.claim(agent, (0,), limit))

    async def drain(self, ledger: Ledger, agent: str = "Stock", partitions: Collection[int] = (0,)) -> str:
        """Claim and settle as done until there is nothing to claim; return the ids of the events."""
        names = ""
        while leases := await ledger.claim(agent, partitions):
            names += names_of(leases)
            check("an engine does not hand out done events for ever", len(names) < _MANY, True)
            await ledger.settle(leases[0], Done())
        return names

    async def counts(self, ledger: Ledger) -> dict[str, tuple[int, int, int, int, int]]:
        """Return agent -> the numbers of waiting, leased, retrying, parked and dead deliveries; only agents that have any."""
        found = {
            each.subscription.agent: (each.waiting, each.leased, each.retrying, each.parked, each.dead)
            for each in await ledger.lag()
        }
        return {agent: counts for agent, counts in found.items() if any(counts)}

    async def expect_lost(self, attempt: Awaitable[object]) -> None:
        """Fail unless the attempt raises LeaseLost."""
        await expect_raised(LeaseLost, attempt)

    async def lose_lease(self, ledger: Ledger) -> tuple[Lease, Lease]:
        """Claim the event `a`, let the lease end, claim again; return both leases."""
        await ledger.append(self.events("a"))
        old = await self.claim(ledger)
        await self.let_pass(self.lease_s)
        return old, await self.claim(ledger)


class Wakes:
    """Counts wake-ups; unlike `wait_for(anext(...))`, it never cancels a step of the iterator, which would end a generator."""

    def __init__(self, watcher: AsyncIterator[Collection[str]], patience_s: float) -> None:
        self._watcher = watcher
        self._patience_s = patience_s
        self._step: asyncio.Future[Collection[str]] | None = None

    async def _has_come(self, timeout_s: float) -> bool:
        """Return whether a wake-up comes within the time."""
        from asyncio import ensure_future, wait

        if self._step is None:
            self._step = ensure_future(anext(self._watcher))
        done, _ = await wait([self._step], timeout=timeout_s)
        if done:
            self._step.result()
            self._step = None
        return bool(done)

    async def drain(self) -> None:
        """Take the wake-ups of what happened before."""
        for _ in range(_MANY):
            if not await self._has_come(_QUIET_S):
                return
        raise AssertionError("watch wakes again and again although nothing changes")

    async def expect(self, what: str) -> None:
        """Fail unless a wake-up comes."""
        check(f"watch wakes: {what}", await self._has_come(self._patience_s), True)

    async def expect_after(self, what: str, change: Awaitable[object]) -> None:
        """Make a change, and fail unless a wake-up comes after it."""
        await self.drain()
        await change
        await self.expect(what)

    async def close(self) -> None:
        """End the waiting step."""
        from asyncio import CancelledError

        if self._step is not None:
            self._step.cancel()
            with suppress(CancelledError, StopAsyncIteration):
                await self._step


def names_of(leases: Iterable[Lease]) -> str:
    """Return the ids of the events of leases as one text."""
    return "".join(lease.envelope.id for lease in leases)


def check(promise: str, found: object, wanted: object) -> None:
    """Raise AssertionError, in words that do not need the source of the suite, unless both are equal."""
    if found != wanted:
        raise AssertionError(f"{promise}: expected {wanted!r}, found {found!r}")


async def expect_raised(kind: type[Exception], attempt: Awaitable[object]) -> None:
    """Raise AssertionError unless the attempt raises this exception."""
    try:
        await attempt
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
