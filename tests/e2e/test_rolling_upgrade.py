"""Two builds of a graph replace each other, process by process and under load: on a file, and on a NATS server."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphbus_core import build_graph
from graphbus_core.ledger.sqlite_tables import DEAD, PARKED
from tests.fakes.nats_server import NEWEST, NatsServer
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S
from tests.project_files import write_project

Figure = Callable[[str, object], None]

pytestmark = [pytest.mark.slow, pytest.mark.measures_children]

AGENTS = """
    from graphbus_core import GraphBusNode, publishes, schema_method, subscribe


    class Desk(GraphBusNode):
        @schema_method(input_schema={{}}, output_schema={{}})
        def rest(self) -> dict[str, object]:
            return {{}}


    class Checkout(GraphBusNode):
        @subscribe("/Order/Placed")
        @publishes("/Order/Accepted", {{{accepted}}})
        def on_placed(self, n: int) -> None:
            self.state["{build}"] = self.state.get("{build}", 0) + 1
            self.publish("/Order/Accepted", {{{payload}}})


    class Payments(GraphBusNode):
        @subscribe("/Order/Accepted")
        @publishes("/Order/Paid", {{"n": int}})
        def on_accepted(self, {takes}) -> None:
            self.state["{build}"] = self.state.get("{build}", 0) + 1
            self.publish("/Order/Paid", {{"n": n}})


    class Books(GraphBusNode):
        @subscribe("/Order/Paid")
        def on_paid(self, n: int) -> None:
            self.state["{build}"] = self.state.get("{build}", 0) + 1
            self.state["count"] = self.state.get("count", 0) + 1
            self.state["sum"] = self.state.get("sum", 0) + n
    {more}

    def place_orders(graph):
        import time
        from pathlib import Path

        n = 0
        while not Path("../enough").exists():
            n += 1
            graph.publish("/Order/Placed", {{"n": n}})
            time.sleep(0.005)
        Path("../placed").write_text(str(n))
    """
AUDIT = """
        @subscribe("/Order/Paid")
        def audit(self, n: int) -> None:
            self.state["audit"] = self.state.get("audit", 0) + 1
    """
OLD = {"build": "old", "accepted": '"n": int', "payload": '"n": n', "takes": "n: int", "more": ""}
NEW = {"accepted": '"n": int, "currency": str', "payload": '"n": n, "currency": "EUR"', "more": ""}
TAKES_BOTH = 'n: int, currency: str = "EUR"'
BUILDS = {
    "old": OLD,
    "new": {**NEW, "build": "new", "takes": TAKES_BOTH},
    "more": {**NEW, "build": "more", "takes": TAKES_BOTH, "more": AUDIT},
    "wrong": {**NEW, "build": "wrong", "takes": "n: int, currency: str"},
}
AGENTS_WITH_WORK = ("Checkout", "Payments", "Books")


class Fleet:
    """A process for each agent, each of some build."""

    def __init__(self, folder: Path, ledger: str) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name, parts in BUILDS.items():
            settings = f'[tool.graphbus.runtime]\nledger = "{ledger}"\nstate_dir = "{folder}/state"\n'
            files = {"pyproject.toml": settings, "shop/__init__.py": "", "shop/agents.py": AGENTS.format(**parts)}
            build_graph(write_project(folder / name, files) / "shop")
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)

    def can_deploy(self, build: str, running: str) -> bool:
        """Whether `graphbus contract can-deploy` admits a build where another one runs."""
        self.graphbus(running, "deployed", "record", "production", "--component", "shop")
        command = [sys.executable, "-m", "graphbus_core", "contract", "can-deploy", ".graphbus", "--to", "production"]
        done = subprocess.run(
            [*command, "--component", "shop", "--json"], cwd=self.folder / build, check=False, capture_output=True
        )
        answer = json.loads(done.stdout)["can_deploy"]
        assert done.returncode == (0 if answer else 3)
        return bool(answer)

    def start(self, agent: str, build: str, *more: str) -> None:
        """Start a process, and wait until it is ready."""
        log = self.folder / f"{agent}-{build}-{len(list(self.folder.glob('*.log')))}.log"
        command = [sys.executable, "-m", "graphbus_core", "run", "--only", agent, *more]
        with log.open("wb") as file:
            self.processes[agent] = subprocess.Popen(command, cwd=self.folder / build, stdout=file, stderr=file)
        assert comes_true(lambda: b"[RUNTIME] Ready" in log.read_bytes())

    def stop(self, agent: str) -> None:
        process = self.processes.pop(agent)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0

    def replace(self, agent: str, build: str) -> None:
        self.stop(agent)
        self.start(agent, build)

    def state_of(self, agent: str) -> dict[str, Any]:
        with sqlite3.connect(f"file:{self.folder}/state/state.sqlite3?mode=ro", uri=True) as file:
            rows = file.execute("SELECT key, value FROM state WHERE agent = ?", (agent,))
            return {key: json.loads(value) for key, value in rows}

    def count(self, status: int) -> int:
        with sqlite3.connect(f"file:{self.folder}/state/state.sqlite3?mode=ro", uri=True) as file:
            found = file.execute("SELECT count(*) FROM ledger_deliveries WHERE status = ?", (status,))
            return int(found.fetchone()[0])

    def place_orders(self) -> None:
        self.start("Desk", "old", "--entrypoint", "shop.agents:place_orders")

    def end_orders(self) -> int:
        """Let the load end, and give the number of orders."""
        (self.folder / "enough").touch()
        assert self.processes.pop("Desk").wait(PATIENCE_S) == 0
        return int((self.folder / "placed").read_text())

    def check_all_paid(self, orders: int) -> None:
        assert comes_true(lambda: self.state_of("Books").get("count", 0) >= orders)
        assert self.state_of("Books")["sum"] == orders * (orders + 1) // 2
        assert (self.count(PARKED), self.count(DEAD)) == (0, 0)
        assert not self.graphbus("old", "dlq", "ls")["count"]

    def graphbus(self, build: str, *words: str) -> Any:
        command = [sys.executable, "-m", "graphbus_core", *words, "--json"]
        return json.loads(subprocess.run(command, cwd=self.folder / build, check=True, capture_output=True).stdout)


@contextmanager
def fleet_on(ledger: str, folder: Path) -> Iterator[Fleet]:
    fleet = Fleet(folder, ledger)
    try:
        for agent in AGENTS_WITH_WORK:
            fleet.start(agent, "old")
        fleet.place_orders()
        yield fleet
    finally:
        for process in fleet.processes.values():
            process.kill()
            process.wait()


@pytest.fixture(params=["sqlite", "nats"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    if request.param == "sqlite":
        with fleet_on("sqlite", tmp_path) as found:
            yield found
        return
    with NatsServer(NEWEST, tmp_path / "nats") as server, fleet_on(server.url("shop"), tmp_path) as found:
        yield found


def test_a_build_that_can_be_deployed_parks_nothing_under_load_and_back(fleet: Fleet, figure: Figure) -> None:
    for build, running in (("new", "old"), ("old", "new"), ("more", "old")):
        assert fleet.can_deploy(build, running)
        for agent in AGENTS_WITH_WORK:
            fleet.replace(agent, build)
            before = fleet.state_of(agent).get(build, 0)
            assert comes_true(
                lambda before=before, agent=agent, build=build: fleet.state_of(agent).get(build, 0) > before
            )  # type: ignore[misc]
    orders = fleet.end_orders()
    fleet.check_all_paid(orders)
    assert fleet.state_of("Books")["audit"] > 0
    assert not fleet.can_deploy("old", "more"), "what waits for the handler would be parked"
    figure("orders lost, doubled, parked and dead in a rolling upgrade and back", f"0 of {orders}")


def test_what_a_build_cannot_read_is_parked_and_taken_up_after_the_correction(fleet: Fleet) -> None:
    assert not fleet.can_deploy("wrong", "old")
    fleet.replace("Payments", "wrong")
    assert comes_true(lambda: fleet.count(PARKED) > 5)
    orders = fleet.end_orders()
    assert fleet.count(DEAD) == 0
    assert fleet.state_of("Payments").get("wrong", 0) == 0
    fleet.replace("Payments", "new")
    assert fleet.graphbus("new", "ledger", "resume")["resumed"] > 5
    fleet.check_all_paid(orders)
