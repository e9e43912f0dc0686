"""NatsLedger while the network or the server fails: nothing is lost or doubled, and it goes on afterwards.

The network is cut by a network namespace whose cable is pulled, where the machine allows it; everywhere, by a server that stops:
then the connection stays, and nothing is answered.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphbus_core.hosting.state import States
from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer
from tests.fakes.network import Network
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.measures_children

MILL = """
import asyncio, contextlib, logging, sys
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.nats import NatsLedger
from graphbus_core.ledger.seam import Done, EngineGone, StateChange, Subscription

logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)

async def main(url, path, number):
    subscriptions = [Subscription(agent="Mill", handler="Mill.grind", topic="/Grain"),
                     Subscription(agent="Store", handler="Store.keep", topic="/Flour")]
    ledger = NatsLedger(url, path, ack_wait_s=3.0)
    await ledger.open(subscriptions)

    async def publish():
        for name in range(number):
            while True:
                with contextlib.suppress(EngineGone):
                    await ledger.append([Envelope(id=str(name), type="/Grain", time=1.5, data="x" * 1000)])
                    break
                print("publishing waits", flush=True)
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.01)

    publishing = asyncio.create_task(publish())
    found = []
    while len(found) < number:
        for lease in await ledger.claim("Mill", (0,)):
            change = StateChange("Mill", {lease.envelope.id: "1"}, {lease.envelope.id: 0})  # fails if it is done twice
            flour = Envelope(id="f" + lease.envelope.id, type="/Flour", time=1.5)
            await ledger.settle(lease, Done(), [change], [flour])
        for lease in await ledger.claim("Store", (0,)):
            found.append(lease.envelope.id)
            await ledger.settle(lease, Done())
            print("kept", len(found), flush=True)
        await asyncio.sleep(0.002)
    assert found == ["f" + str(name) for name in range(number)], found
    while not all(each.is_idle for each in await ledger.lag()):
        await asyncio.sleep(0.01)
    await ledger.close()
    print("all kept in order", flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
_EVENTS = 200


class Mill:
    """A process that publishes events, handles them, and handles what its handlers publish; it says how far it is."""

    def __init__(self, url: str, path: Path, *before: str) -> None:
        self.path = str(path)
        command = [*before, sys.executable, "-c", MILL, url, self.path, str(_EVENTS)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def read_until(self, text: str) -> None:
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if text in line:
                return
        raise AssertionError("".join(lines[-30:]))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def expect_all(self) -> None:
        """Every event was kept once, in order."""
        self.read_until("all kept in order")
        assert self._process.wait(PATIENCE_S) == 0
        assert len(States(self.path).keys("Mill")) == _EVENTS


@pytest.fixture(params=[NEWEST, OLDEST])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["publishing waits", "is lost; events wait"], ids=["a moment", "half a minute"])
def test_a_network_that_is_cut_loses_and_doubles_nothing(sign: str, kind: str, tmp_path: Path) -> None:
    """A short cut leaves the connection, which then sends again; a long one is noticed by the process, which connects anew."""
    with Network() as network, NatsServer(kind, tmp_path / "nats", host=network.host) as server:
        mill = Mill(server.url("mill"), tmp_path / "state.sqlite3", *network.inside)
        try:
            mill.read_until("kept 50")
            network.cut()
            mill.read_until(sign)
            network.mend()
            mill.expect_all()
        finally:
            mill.end()


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["publishing waits", "is lost; events wait"], ids=["a moment", "half a minute"])
def test_a_server_that_does_not_answer_loses_and_doubles_nothing(sign: str, kind: str, tmp_path: Path) -> None:
    with NatsServer(kind, tmp_path / "nats") as server:
        assert server.process is not None
        mill = Mill(server.url("mill"), tmp_path / "state.sqlite3")
        try:
            mill.read_until("kept 50")
            server.process.send_signal(signal.SIGSTOP)
            mill.read_until(sign)
            server.process.send_signal(signal.SIGCONT)
            mill.expect_all()
        finally:
            mill.end()


@pytest.mark.slow
def test_a_broker_that_is_gone_for_a_minute_is_waited_for(tmp_path: Path) -> None:
    with NatsServer(NEWEST, tmp_path / "nats") as server:
        mill = Mill(server.url("mill"), tmp_path / "state.sqlite3")
        try:
            mill.read_until("kept 50")
            server.kill()
            time.sleep(60)
            server.start()
            mill.expect_all()
        finally:
            mill.end()
