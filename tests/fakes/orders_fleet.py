"""The example `orders` in three processes on one ledger, which are ended at will, and what came of each order.

    Shop -- orders --> Checkout and Pricing -- accepted --> Payments -- paid --> Books and Tally, which counts both topics

Tally fails at random after it has counted, so what it keeps of a failed attempt would be seen as doubled.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.patience import PATIENCE_S
from tests.project_files import write_project

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"
SHOP = ("Shop",)
GROUPS = (("Checkout", "Pricing"), ("Payments",), ("Books", "Tally"))
PRICE = 12.5

MORE = {
    "orders/agents/shop.py": """
        from graphbus_core import GraphBusNode


        class Shop(GraphBusNode):
            \"\"\"Runs in the process that publishes, so that nothing is handled there.\"\"\"
        """,
    "orders/agents/tally.py": """
        import random

        from graphbus_core import Event, GraphBusNode, subscribe
        from orders.messages import ACCEPTED, PAID


        class Tally(GraphBusNode):
            \"\"\"Keeps under each order and topic which event of all it was, as often as it comes.\"\"\"

            def count(self, event: Event) -> None:
                number = self.state["count"] = self.state.get("count", 0) + 1
                key = f"{event.topic} {event['order_id']}"
                self.state[key] = [*self.state.get(key, []), number]
                if random.random() < 0.05:
                    raise OSError("the pencil broke")

            @subscribe(ACCEPTED, retries=30, backoff=0.001)
            def on_accepted(self, event: Event) -> None:
                self.count(event)

            @subscribe(PAID, retries=30, backoff=0.001)
            async def on_paid(self, event: Event) -> None:
                self.count(event)
        """,
    "orders/shop.py": """
        import sys
        import time

        from orders.messages import PLACED


        def place(graph):
            count, pause_s = map(float, open("wanted.txt").read().split())
            for number in range(int(count)):
                order = {"order_id": str(number), "card": "4711", "lines": [{"sku": "mug", "qty": 1}]}
                graph.publish(PLACED, order)
                time.sleep(pause_s)
        """,
}


class Outcome(NamedTuple):
    """What came of the orders: how many effects are missing, happened again, or came before one that was published earlier."""

    lost: int
    doubled: int
    order_breaks: int


def graphbus(*arguments: str) -> list[str]:
    """Return a command."""
    return [sys.executable, "-m", "graphbus_core", *arguments]


def make_project(folder: Path) -> Path:
    """Copy the example, with the agents that publish and count, and build it."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".graphbus", "__pycache__"))
    write_project(folder, MORE)
    subprocess.run(graphbus("build", "orders"), cwd=folder, check=True, capture_output=True)
    return folder


class Fleet:
    """A process for each group of agents."""

    def __init__(self, folder: Path, ledger: str) -> None:
        self._folder, self._ledger = folder, ledger
        self._processes: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}
        for group in GROUPS:
            self.start(group)

    def _run(self, agents: tuple[str, ...], *options: str) -> subprocess.Popen[bytes]:
        only = [word for agent in agents for word in ("--only", agent)]
        with (self._folder / f"{agents[0]}.log").open("ab") as log:
            command = graphbus("run", "--ledger", self._ledger, *only, *options)
            return subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)

    def start(self, group: tuple[str, ...]) -> None:
        """Start the process of a group."""
        self._processes[group] = self._run(group)

    def kill_all(self) -> None:
        """Kill all processes."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def end(self, group: tuple[str, ...], number: signal.Signals) -> float:
        """End a process, and return the seconds that this takes."""
        began = time.monotonic()
        self._processes[group].send_signal(number)
        self._processes[group].wait(PATIENCE_S)
        return time.monotonic() - began

    def restart(self, group: tuple[str, ...], number: signal.Signals) -> float:
        """End a process and start it again; return the seconds that its end takes."""
        took_s = self.end(group, number)
        self.start(group)
        return took_s

    def place(self, orders: int, pause_s: float) -> None:
        """Start a process that publishes orders, with a pause after each."""
        (self._folder / "wanted.txt").write_text(f"{orders} {pause_s}")
        self._processes[SHOP] = self._run(SHOP, "--entrypoint", "orders.shop:place")

    def wait_until_done(self, orders: int) -> Outcome:
        """Wait until each order was counted in both topics and nothing is left to do; return what came of them."""
        assert self._processes[SHOP].wait(PATIENCE_S) == 0
        deadline = time.monotonic() + PATIENCE_S
        while self._left(orders):
            assert time.monotonic() < deadline, f"events wait, and nobody handles them: {self._left(orders)}"
            time.sleep(0.1)
        return self._outcome(orders)

    def _query(self, query: str, *values: object) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(f"file:{self._folder}/.graphbus/state/state.sqlite3?mode=ro", uri=True)) as file:
            return file.execute(query, values).fetchall()

    def _left(self, orders: int) -> dict[str, int]:
        """Return what there is left to do: effects, and what waits in the file."""
        tables = [name for (name,) in self._query("SELECT name FROM sqlite_master WHERE name = 'ledger_outbox'")]
        waiting = {each: len(self._query(f"SELECT id FROM {each}")) for each in ("ledger_deliveries", *tables)}
        return {
            name: count for name, count in {"effects": 2 * orders - len(self._counted()), **waiting}.items() if count
        }

    def _counted(self) -> dict[str, list[int]]:
        rows = self._query("SELECT key, value FROM state WHERE agent = 'Tally' AND key <> 'count'")
        return {key: json.loads(value) for key, value in rows}

    def _outcome(self, orders: int) -> Outcome:
        counted = self._counted()
        topics = [
            [counted.get(f"{topic} {n}", []) for n in range(orders)] for topic in ("/Order/Accepted", "/Order/Paid")
        ]
        booked = len(self._query("SELECT key FROM state WHERE agent = 'Books' AND key LIKE 'order/%'"))
        ((_, revenue),) = self._query("SELECT key, value FROM state WHERE agent = 'Books' AND key = 'revenue'")
        assert float(revenue) == booked * PRICE
        firsts = [[numbers[0] for numbers in topic if numbers] for topic in topics]
        return Outcome(
            lost=orders - booked + sum(not numbers for topic in topics for numbers in topic),
            doubled=sum(len(numbers) - 1 for topic in topics for numbers in topic if numbers),
            order_breaks=sum(one > other for each in firsts for one, other in pairwise(each)),
        )


@contextmanager
def fleet(folder: Path, ledger: str) -> Iterator[Fleet]:
    """Start the processes; they are killed when the `with` block ends."""
    running = Fleet(folder, ledger)
    try:
        yield running
    finally:
        running.kill_all()
