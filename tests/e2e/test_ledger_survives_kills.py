"""Orders in three processes on one ledger, which are killed and stopped at random: nothing is lost, and no effect is doubled."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.nats_server import NEWEST, NatsServer
from tests.fakes.orders_fleet import GROUPS, Outcome, fleet, make_project

Figure = Callable[[str, object], None]

ORDERS, ENDS = 300, 12


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_nothing_is_lost_or_doubled_when_processes_end(number: signal.Signals, tmp_path: Path, figure: Figure) -> None:
    outcome, took_s = end_processes(tmp_path, "sqlite", number)
    figure(f"{ENDS} processes ended with {number.name}, {ORDERS} orders on SQLite", outcome)
    assert outcome == (0, 0, 0)
    if number == signal.SIGTERM:
        assert max(took_s) < 10


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_processes_on_nats_are_killed(tmp_path: Path, figure: Figure) -> None:
    with NatsServer(NEWEST, tmp_path / "nats") as server:
        outcome, _ = end_processes(tmp_path, server.url("orders"), signal.SIGKILL)
    figure(f"{ENDS} processes killed, {ORDERS} orders on NATS", outcome)
    assert outcome == (0, 0, 0)


def end_processes(folder: Path, ledger: str, number: signal.Signals) -> tuple[Outcome, list[float]]:
    """Place orders, and end processes meanwhile; return what came of the orders, and the seconds that each end took."""
    chance = random.Random(16)
    with fleet(make_project(folder / "orders"), ledger) as running:
        running.place(ORDERS, 0.02)
        took_s = []
        for _ in range(ENDS):
            time.sleep(chance.uniform(0.0, 0.5))
            took_s.append(running.restart(chance.choice(GROUPS), number))
        return running.wait_until_done(ORDERS), took_s
