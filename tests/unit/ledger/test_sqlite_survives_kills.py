"""Several processes work on one file and are killed at random moments: nothing is lost, and no effect in a state is doubled."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from graphbus_core.hosting.state import States
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Done, Subscription
from graphbus_core.ledger.sqlite import SqliteLedger
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

WORKERS, KILLS, EVENTS_PER_KILL = 3, 14, 200
SUBSCRIPTIONS = (
    Subscription(agent="Count", handler="Count.on_order", topic="/Order", partition_key="key", partitions=3),
    Subscription(agent="Out", handler="Out.on_counted", topic="/Counted"),
)
# A line `claimed` holds partition, event, and when the lease begins and ends; a line `settles` holds the same and the time.
WORKER = """
import asyncio, json, os, random, sys, time
from contextlib import suppress
from graphbus_core.hosting.state import States
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Done, EngineGone, LeaseLost, RetryAt, StateChange
from graphbus_core.ledger.sqlite import SqliteLedger

path, log = sys.argv[1:]
file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
states = States(path)

def note(what, lease):
    line = [what, lease.partition, lease.envelope.id, lease.token, lease.ends_at - LEASE_S, lease.ends_at, time.time()]
    os.write(file, (json.dumps(line) + "\\n").encode())

async def handle(ledger, lease):
    key = f"count {lease.partition}"
    text, version = states.find("Count", key)
    change = StateChange("Count", {key: str(int(text or 0) + 1)}, {key: version})
    counted = Envelope(id=f"{lease.envelope.id} counted", type="/Counted")
    note("settles", lease)
    if lease.attempt == 1 and lease.envelope.id.endswith("0"):
        await ledger.settle(lease, RetryAt(time.time() + 0.01, "once more"))
    else:
        await ledger.settle(lease, Done(), [change], [counted])

async def main():
    ledger = SqliteLedger(path, lease_s=LEASE_S)
    async for _ in ledger.watch():
        with suppress(EngineGone):
            while leases := await ledger.claim("Count", (0, 1, 2)):
                for lease in leases:
                    note("claimed", lease)
                    await asyncio.sleep(random.uniform(0, 0.003))  # many are killed here
                    with suppress(LeaseLost):
                        await handle(ledger, lease)

LEASE_S = 0.4
asyncio.run(main())
"""


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for worker in running:
        worker.kill()
        worker.wait()


async def append(ledger: SqliteLedger, first: int) -> None:
    numbers = range(first, first + EVENTS_PER_KILL)
    await ledger.append([Envelope(id=f"e{each}", type="/Order", data={"key": each % 17}) for each in numbers])


async def is_idle(ledger: SqliteLedger) -> bool:
    return {each.subscription.agent: each.is_idle for each in await ledger.lag()}["Count"]


async def drain(ledger: SqliteLedger, agent: str) -> list[str]:
    names = []
    while leases := await ledger.claim(agent, (0,), 50):
        for lease in leases:
            names.append(lease.envelope.id)
            await ledger.settle(lease, Done())
    return names


def test_nothing_is_lost_or_doubled(tmp_path: Path, workers: list[subprocess.Popen[bytes]]) -> None:
    path, log = str(tmp_path / "state.sqlite3"), tmp_path / "log"
    ledger = SqliteLedger(path)
    asyncio.run(ledger.open(SUBSCRIPTIONS))

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WORKER, path, str(log)])

    workers += [start() for _ in range(WORKERS)]
    moments = random.Random(7)
    for kill in range(KILLS):
        asyncio.run(append(ledger, kill * EVENTS_PER_KILL))
        time.sleep(moments.uniform(0.05, 0.4))  # the next kill comes while workers work, wait, or start
        killed = workers.pop(moments.randrange(WORKERS))
        killed.kill()
        killed.wait()
        workers.append(start())
    deadline = time.monotonic() + PATIENCE_S
    while not asyncio.run(is_idle(ledger)):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    counted = asyncio.run(drain(ledger, "Out"))
    assert sorted(counted) == sorted(f"e{number} counted" for number in range(KILLS * EVENTS_PER_KILL)), (
        "each effect once"
    )
    with closing(States(path)) as states:
        assert sum(int(states.find("Count", f"count {part}")[0] or 0) for part in range(3)) == len(counted)
        with states.open().connection() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check_log([json.loads(line) for line in log.read_text().splitlines()])
    asyncio.run(ledger.close())


def check_log(lines: list[tuple[str, int, str, int, float, float, float]]) -> None:
    """Check that no two leases of a partition overlap, and that events of a partition came in their order."""
    settled = {(name, token): at for what, _, name, token, _, _, at in lines if what == "settles"}
    claimed = [line[1:6] for line in lines if line[0] == "claimed"]
    for partition in range(3):
        leases = sorted(
            (
                begins,
                min(settled.get((name, token), begins), ends),  # it may be settled too late, and is lost then
                name,
            )  # one that is never settled ends when its process is killed
            for part, name, token, begins, ends in claimed
            if part == partition
        )
        assert all(ends <= begins for (_, ends, _), (begins, _, _) in pairwise(leases)), "one lease at a time"
        numbers = [int(name[1:]) for _, _, name in leases]
        assert numbers == sorted(numbers), "a retry blocks, so that events come in their order"
    assert len(settled) > len({name for name, _ in settled}), "some were handled more than once"
