"""The example `orders`, unchanged, in memory and on each ledger: the same orders are paid and booked."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer

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
