"""The example `orders`, unchanged, in memory and on each ledger: the same orders are paid and booked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from graphbus_core.hosting.state import States
from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"


@pytest.mark.slow
@pytest.mark.parametrize("ledger", ["", "sqlite"], ids=["memory", "sqlite"])
def test_the_same_orders_are_booked(ledger: str, tmp_path: Path) -> None:
    book_orders(ledger, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NEWEST, OLDEST])
def test_the_same_orders_are_booked_on_nats(kind: str, tmp_path: Path) -> None:
    with NatsServer(kind, tmp_path / "nats") as server:
        book_orders(server.url("orders"), tmp_path)


def book_orders(ledger: str, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".graphbus", "__pycache__"))
    graphbus = [sys.executable, "-m", "graphbus_core"]
    subprocess.run([*graphbus, "build", "orders"], cwd=folder, check=True, capture_output=True)
    options = ["--ledger", ledger] if ledger else []
    command = [*graphbus, "run", *options, "--entrypoint", "orders.main:load"]
    finished = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    lines = finished.stdout.splitlines()
    said = next(line for line in lines if line.startswith("500 orders in "))
    assert said.endswith("revenue 13250.00")
    assert "  Payments.on_order_accepted: 510 attempts, 10 failed" in lines
    assert "  Books.on_order_paid: 500 attempts, 0 failed" in lines


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NEWEST, OLDEST])
def test_orders_are_booked_by_processes_that_may_do_no_more_than_their_agent(kind: str, tmp_path: Path) -> None:
    """Each has its own user of the server and its own file; orders come in where Checkout is."""
    folder = tmp_path / "orders"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".graphbus", "__pycache__"))
    graphbus = [sys.executable, "-m", "graphbus_core"]
    agents = {"Checkout-outside": "Checkout", "Payments": "Payments", "Pricing": "Pricing", "Books": "Books"}
    groups = [word for user in agents for word in ("--agents", user.replace("-", ","))]
    generate = ["nats", "generate", "--ledger", "nats://host/orders", "-o", str(tmp_path / "nats"), *groups]
    for command in (["build", "orders"], generate):
        subprocess.run([*graphbus, *command], cwd=folder, check=True, capture_output=True)
    users = ["operator", "outside", *agents]
    passwords = {f"GRAPHBUS_NATS_ORDERS_{each.upper().replace('-', '_')}": f"of-{each}" for each in users}
    running: list[subprocess.Popen[str]] = []
    config = 'accounts { include "accounts.conf" }'
    with NatsServer(kind, tmp_path / "nats", config=config, environment=passwords) as server:
        urls = {user: server.url("orders", f"orders.{user}:of-{user}") for user in users}
        deploy = [*graphbus, "nats", "deploy", "--ledger", urls["operator"]]
        subprocess.run(deploy, cwd=folder, check=True, capture_output=True)
        try:
            for user, agent in agents.items():
                if user != "Checkout-outside":
                    command = ["-m", "graphbus_core.runtime", "--ledger", urls[user], "--only", agent]
                    running.append(start([sys.executable, *command], folder, tmp_path / f"{agent}.toml"))
            order = {"card": "4711", "lines": [{"sku": "mug", "qty": 2}]}
            orders = [json.dumps({**order, "order_id": str(number)}) for number in range(20)]
            placed = [word for each in orders for word in ("--publish", "/Order/Placed", each)]
            command = [*graphbus, "run", "--ledger", urls["Checkout-outside"], "--only", "Checkout", *placed]
            checkout = start(command, folder, tmp_path / "Checkout.toml")
            running.append(checkout)
            output, _ = checkout.communicate(timeout=PATIENCE_S)
            assert checkout.returncode == 0, output
            assert comes_true(lambda: revenue(tmp_path / "Books.state") == 500.0)
        finally:
            for each in running:
                each.terminate()
                each.communicate(timeout=PATIENCE_S)


def start(command: list[str], folder: Path, config: Path) -> subprocess.Popen[str]:
    """Run a command with state files of its own."""
    config.write_text(f'[runtime]\nstate_dir = "{config.with_suffix(".state")}"\n')
    environment = {**os.environ, "GRAPHBUS_CONFIG": str(config)}
    pipe, output = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=output, text=True)


def revenue(state_dir: Path) -> float:
    with closing(States(str(state_dir / "state.sqlite3"))) as states:
        return float(states.find("Books", "revenue")[0] or 0)
