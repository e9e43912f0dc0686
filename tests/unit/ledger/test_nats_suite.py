"""NatsLedger passes the suite of all engines, on the newest and on the oldest server that is supported.

What an event needs to come from the server into the file takes time on the clock of the machine, so this engine waits for it
after each call: the suite looks at once. Leases and retries use the clock of the test.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from graphbus_core.clock import Clock
from graphbus_core.hosting.state import States
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.nats import NatsLedger
from graphbus_core.ledger.seam import Done, Lease, Ledger, Outcome, StateChange, Subscription
from graphbus_core.model.config import NatsConfig
from graphbus_core.testing.ledger_checks import check, on_new_ledger
from graphbus_core.testing.ledger_suite import BLOCKING, SKIPPING, LedgerSuite
from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer
from tests.patience import PATIENCE_S

_apps = count()


class InStep(NatsLedger):
    """Returns from each call when all events for this process are in its file."""

    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        await super().open(subscriptions)
        await self.wait_for_events()

    async def append(self, events: Sequence[Envelope]) -> None:
        await super().append(events)
        await self.wait_for_events()

    async def settle(
        self, lease: Lease, outcome: Outcome, state: Sequence[StateChange] = (), outgoing: Sequence[Envelope] = ()
    ) -> None:
        await super().settle(lease, outcome, state, outgoing)
        if outgoing:
            await self.wait_for_events()

    async def wait_for_events(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while any((await self._count_waiting()).values()):
            assert time.monotonic() < deadline, await self._count_waiting()
            await asyncio.sleep(0.002)

    def crash(self) -> None:
        """End as `kill -9` does: nothing is given back, and nothing is handled any more."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._pumps.clear()


class LookingFirst(InStep):
    """Waits for what others have published, too, before it claims."""

    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        await self.wait_for_events()
        return await super().claim(agent, partitions, limit)


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(request.param, tmp_path_factory.mktemp("nats")) as running:
        yield running


class TestNatsLedger(LedgerSuite):
    @pytest.fixture(autouse=True)
    def _use_server(self, server: NatsServer, tmp_path: Path) -> None:
        self.url = server.url(f"suite{next(_apps)}")
        self.path = str(tmp_path / "state.sqlite3")

    def make(self, clock: Clock) -> NatsLedger:
        return InStep(self.url, self.path, clock, lease_s=self.lease_s)

    def reopen(self, ledger: Ledger) -> NatsLedger:
        assert isinstance(ledger, InStep)
        ledger.crash()
        return InStep(self.url, self.path, self.clock, lease_s=self.lease_s)

    async def open_processes(self, ledger: Ledger, subscription: Subscription) -> list[tuple[Ledger, Sequence[int]]]:
        """Return a process for each partition, with a file of its own, in another application."""
        url, count = self.url + "p", subscription.partitions
        settings = NatsConfig(partitions={subscription.agent: count})
        found: list[tuple[Ledger, Sequence[int]]] = []
        for number in range(count):
            path = f"{self.path}{number}"
            each = LookingFirst(url, path, self.clock, self.lease_s, settings=settings, partition=number)
            await each.open([subscription])
            found.append((each, range(count)))
        return found

    @on_new_ledger(BLOCKING, SKIPPING)
    async def test_deliveries_of_a_removed_subscription_are_parked(self, ledger: Ledger) -> None:
        """Unlike with other engines, the server also keeps the later events for an agent that is away, in their order."""
        await ledger.append(self.events("abc"))
        lease = await self.claim(ledger)
        await ledger.open([SKIPPING])
        check("they are parked", (await self.counts(ledger))["Stock"], (0, 0, 0, 3, 0))
        await self.expect_lost(ledger.settle(lease, Done()))
        await ledger.append(self.events("d"))
        check("nothing to claim", await self.claim_names(ledger), "")
        check("other subscriptions go on", await self.drain(ledger, "Mail"), "abcd")
        await ledger.open([BLOCKING, SKIPPING])
        await ledger.append(self.events("e"))
        check("they are open again", await self.drain(ledger), "abcde")

    def states(self, ledger: Ledger) -> States:
        return States(self.path)
