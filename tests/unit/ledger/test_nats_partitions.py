"""An agent on NATS whose events are divided by key among processes with files of their own, on real servers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from graphbus_core import build_graph
from graphbus_core.errors import RunError
from graphbus_core.hosting.state import States
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.nats import NatsLedger, deploy_stream
from graphbus_core.ledger.seam import Done, Subscription
from graphbus_core.model.config import NatsConfig
from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S
from tests.project_files import write_project

THREE = NatsConfig(partitions={"Bill": 3})
TWO = NatsConfig(partitions={"Bill": 2})
ONE = NatsConfig()

_apps = count()


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(kind, tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def url(server: NatsServer) -> str:
    return server.url(f"app{next(_apps)}")


def bill(settings: NatsConfig, key: str = "customer") -> list[Subscription]:
    """The subscriptions of an agent with a handler that has a key, and one that has none."""
    by_key = Subscription(
        agent="Bill",
        handler="Bill.on_order",
        topic="/Order",
        partition_key=key,
        partitions=settings.partitions.get("Bill", 1),
    )
    return [by_key, Subscription(agent="Bill", handler="Bill.on_all", topic="/**")]


def orders(first: int, end: int) -> list[Envelope]:
    return [Envelope(id=str(n), type="/Order", time=1.5, data={"customer": n % 7}) for n in range(first, end)]


def open_bill(url: str, folder: Path, settings: NatsConfig, partition: int | None = None, file: str = "") -> NatsLedger:
    return NatsLedger(url, str(folder / f"{file or partition}.sqlite3"), settings=settings, partition=partition)


async def handle_some(ledger: NatsLedger, settings: NatsConfig) -> dict[str, list[int]]:
    """Handle what is in the file; return handler -> the numbers of its orders."""
    found = defaultdict(list)
    for partition in range(settings.partitions.get("Bill", 1)):
        for lease in await ledger.claim("Bill", (partition,), 10):
            found[lease.subscription.handler].append(int(lease.envelope.id))
            await ledger.settle(lease, Done())
    return found


async def handle_all(ledgers: Sequence[NatsLedger], settings: NatsConfig, number: int) -> list[dict[str, list[int]]]:
    """Handle until each handler has handled this many orders; return what each ledger has handled."""
    handled: list[dict[str, list[int]]] = [{"Bill.on_order": [], "Bill.on_all": []} for _ in ledgers]

    async def work() -> None:
        while sum(len(each) for found in handled for each in found.values()) < 2 * number:
            for ledger, found in zip(ledgers, handled, strict=True):
                for handler, numbers in (await handle_some(ledger, settings)).items():
                    found[handler] += numbers
            await asyncio.sleep(0.001)

    await asyncio.wait_for(work(), PATIENCE_S)
    return handled


async def close_all(ledgers: Sequence[NatsLedger]) -> None:
    for each in ledgers:
        await each.close()


def test_each_key_belongs_to_one_process(url: str, tmp_path: Path) -> None:
    """Its events keep their order; handlers without a key run in the process with partition 0."""

    async def main() -> None:
        ledgers = [open_bill(url, tmp_path, THREE, partition) for partition in range(3)]
        for each in ledgers:
            await each.open(bill(THREE))
        await ledgers[2].append(orders(0, 100))
        handled = await handle_all(ledgers, THREE, 100)
        assert [found["Bill.on_all"] for found in handled] == [[*range(100)], [], []]
        owners = defaultdict(set)
        for owner, found in enumerate(handled):
            for customer in range(7):
                mine = [n for n in found["Bill.on_order"] if n % 7 == customer]
                assert mine == sorted(mine)
                owners[customer] |= {owner} if mine else set()
        assert sorted(n for found in handled for n in found["Bill.on_order"]) == [*range(100)]
        assert all(len(each) == 1 for each in owners.values())
        assert len(set().union(*owners.values())) > 1
        await close_all(ledgers)

    asyncio.run(main())


def test_a_process_may_handle_all_partitions(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        ledger = open_bill(url, tmp_path, THREE)
        await ledger.open(bill(THREE))
        await ledger.append(orders(0, 20))
        (handled,) = await handle_all([ledger], THREE, 20)
        assert handled["Bill.on_all"] == sorted(handled["Bill.on_order"]) == [*range(20)]
        await ledger.close()

    asyncio.run(main())


@pytest.mark.parametrize(("settings", "partition"), [(ONE, None), (THREE, 1)])
def test_a_second_process_with_another_file_is_refused(
    url: str, tmp_path: Path, settings: NatsConfig, partition: int | None
) -> None:
    """While the first one runs; one with the same file may share it, and another one may take its place."""

    async def main() -> None:
        first, same, other = (open_bill(url, tmp_path, settings, partition, file=name) for name in "aab")
        await first.open(bill(settings))
        await same.open(bill(settings))
        with pytest.raises(RunError, match=rf"\({os.getpid()} on .*\) handles .*Bill") as refused:
            await other.open(bill(settings))
        assert refused.value.code == "GBE692"
        await close_all([first, same, other])
        later = open_bill(url, tmp_path, settings, partition, file="b")
        await later.open(bill(settings))
        await later.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [(ONE, THREE, "customer"), (THREE, ONE, "customer"), (THREE, TWO, "customer"), (THREE, THREE, "sku")],
)
def test_processes_that_divide_events_in_another_way_are_refused(
    url: str, tmp_path: Path, before: NatsConfig, after: NatsConfig, key: str
) -> None:
    async def main() -> None:
        first = open_bill(url, tmp_path, before, file="a")
        await first.open(bill(before))
        second = open_bill(url, tmp_path, after, file="a")
        with pytest.raises(RunError, match="divides the events of Bill in another way"):
            await second.open(bill(after, key))
        await close_all([first, second])

    asyncio.run(main())


def test_events_that_wait_are_divided_in_another_way_by_a_deployment(url: str, tmp_path: Path) -> None:
    """Nothing is lost or handled twice, however often; while something is under way, it is refused."""

    async def main() -> None:
        publisher = NatsLedger(url, str(tmp_path / "publisher"), agents=[])
        plan = [ONE, THREE, TWO, ONE]
        for step, settings in enumerate(plan):
            waiting = orders(10 * step, 10 * step + 10)
            if step == 1:  # what one consumer has not handed out yet is divided, too
                await publisher.append(waiting)
            await deploy_stream(url, settings, bill(settings))
            if step != 1:
                await publisher.append(waiting)
            ledger = open_bill(url, tmp_path, settings, file=str(step))
            await ledger.open(bill(settings))
            (handled,) = await handle_all([ledger], settings, 10)
            assert handled["Bill.on_all"] == sorted(handled["Bill.on_order"]) == [int(each.id) for each in waiting]
            other = THREE if settings is ONE else ONE
            with pytest.raises(RunError, match="a process that runs"):
                await deploy_stream(url, other, bill(other))
            await ledger.close()
        await publisher.close()

    asyncio.run(main())


# --- processes ---

SHOP = """
    import time

    from graphbus_core import GraphBusNode, subscribe


    class Shop(GraphBusNode):
        \"\"\"Runs in the process that publishes.\"\"\"


    class Bill(GraphBusNode):
        @subscribe("/Order", key="customer")
        def on_order(self, customer: str, n: int) -> None:
            self.state[customer] = [*self.state.get(customer, []), n]


    def place(graph):
        for n in range(ORDERS):
            graph.publish("/Order", {"customer": f"customer {n % 7}", "n": n})
            time.sleep(0.005)
    """
ORDERS, KILLS = 400, 4


def run(folder: Path, url: str, place: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a process with a state folder of its own."""
    (folder / f"{place}.toml").write_text(f'[runtime]\nstate_dir = "{folder}/{place}"\n')
    environment = {**os.environ, "GRAPHBUS_CONFIG": str(folder / f"{place}.toml")}
    command = [sys.executable, "-m", "graphbus_core.runtime", "--ledger", url, *options]
    with (folder / f"{place}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def billed(folder: Path, partition: int) -> dict[str, list[int]]:
    """Return customer -> the orders that a process has billed."""
    path = folder / f"bill{partition}" / "state.sqlite3"
    with closing(States(str(path))) as states:
        return {key: json.loads(states.find("Bill", key)[0] or "[]") for key in states.keys("Bill")}


@contextmanager
def bills(folder: Path, url: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run a process for each of two partitions."""
    running = [run(folder, url, f"bill{n}", "--only=Bill", f"--partition={n}") for n in range(2)]
    try:
        yield running
    finally:
        for each in running:
            each.kill()
            each.wait()


@pytest.mark.slow
def test_the_order_of_a_key_survives_kills_of_the_processes_that_share_an_agent(tmp_path: Path) -> None:
    """Each order is billed once, in the order of its customer, and each customer in one process."""
    settings = "[tool.graphbus.runtime.nats.partitions]\nBill = 2\n"
    write_project(
        tmp_path, {"pyproject.toml": settings, "shop/__init__.py": "", "shop/a.py": SHOP.replace("ORDERS", str(ORDERS))}
    )
    build_graph(tmp_path / "shop")
    chance = random.Random(4)
    with NatsServer(NEWEST, tmp_path / "nats") as server, bills(tmp_path, url := server.url("shop")) as running:
        place = run(tmp_path, url, "shop", "--only=Shop", "--entrypoint=shop.a:place")
        for _ in range(KILLS):
            chosen = chance.randrange(2)
            with suppress(subprocess.TimeoutExpired):
                place.wait(chance.uniform(0.2, 1.0))
            running[chosen].kill()
            running[chosen].wait()
            running[chosen] = run(tmp_path, url, f"bill{chosen}", "--only=Bill", f"--partition={chosen}")
        assert place.wait(PATIENCE_S) == 0
        assert comes_true(lambda: sum(len(o) for n in range(2) for o in billed(tmp_path, n).values()) >= ORDERS)
    found = [billed(tmp_path, n) for n in range(2)]
    assert found[0].keys().isdisjoint(found[1].keys())
    wanted = {f"customer {c}": [*range(c, ORDERS, 7)] for c in range(7)}
    assert found[0] | found[1] == wanted
