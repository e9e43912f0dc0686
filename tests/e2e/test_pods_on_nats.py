"""What `graphbus k8s generate` writes for NATS, run: each pod's own command and environment, as processes on a real server.

Only what belongs to the container is replaced: its paths, and its port, which the pods would share here.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from graphbus_core.cli import main
from graphbus_core.deploy.names import CONFIG, HEALTH_PORT, HOME, STATE
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.nats import NatsLedger
from tests.fakes.kubernetes_documents import write_built
from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer, free_port
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.measures_children]
CREDENTIALS = "anna:right"
ORDER = {"order_id": "1", "card": "4711", "lines": [{"sku": "mug", "qty": 2}]}


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read(url: str) -> Any:
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except URLError:
        return {}


class PodProcess:
    """The container of a StatefulSet, as a process with nothing but its own environment."""

    def __init__(self, folder: Path, project: Path, agent: str, secret: dict[str, str]) -> None:
        spec = yaml.safe_load((project / f"k8s/{agent}/statefulset.yaml").read_text())["spec"]["template"]["spec"]
        (self.container,) = spec["containers"]
        self.state = folder / agent
        self.state.mkdir()
        port = free_port()
        self.ready = f"http://127.0.0.1:{port}{self.container['readinessProbe']['httpGet']['path']}"
        text = yaml.safe_load((project / "k8s/configmap.yaml").read_text())["data"]["graphbus.toml"]
        settings = self.state / "graphbus.toml"
        settings.write_text(text.replace(STATE, str(self.state / "state")))
        here = {HOME: str(project), f"0.0.0.0:{HEALTH_PORT}": f"127.0.0.1:{port}", CONFIG: str(settings)}
        self._command = [sys.executable, *self.container["command"][1:], *self.container["args"]]
        for there, place in here.items():
            self._command = [word.replace(there, place) for word in self._command]
        self._environment = {
            each["name"]: here[each["value"]] if "value" in each else secret[each["valueFrom"]["secretKeyRef"]["name"]]
            for each in self.container["env"]
        }
        self._cwd = project

    @contextmanager
    def running(self) -> Iterator[PodProcess]:
        """Run it until it is ready, and end it as a cluster does."""
        with (self.state / "log").open("wb") as log:
            process = subprocess.Popen(
                self._command, cwd=self._cwd, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            until(lambda: process.poll() is not None or read(self.ready).get("status") == "ready")
            assert process.poll() is None, (self.state / "log").read_text()
            yield self
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, (self.state / "log").read_text()
        finally:
            process.kill()
            process.wait()


def lag_for_keda(scaler: Any) -> int:
    """Read what KEDA reads: the events that nobody has got, and those that nobody has acknowledged."""
    said = scaler["spec"]["triggers"][0]["metadata"]
    place, account = said["natsServerMonitoringEndpoint"], said["account"]
    found = read(f"http://{place}/jsz?acc={account}&consumers=true&config=true")
    (stream,) = [
        each
        for details in found["account_details"]
        if details["name"] == account
        for each in details["stream_detail"]
        if each["name"] == said["stream"]
    ]
    (consumer,) = [each for each in stream["consumer_detail"] if each["name"] == said["consumer"]]
    return int(consumer["num_pending"] + consumer["num_ack_pending"])


async def place_an_order(url: str, path: Path) -> None:
    shop = NatsLedger(url, str(path), agents=[])
    await shop.append([Envelope(id="1", type="/Order/Placed", time=time.time(), data=ORDER)])
    await shop.close()


@pytest.mark.parametrize("kind", [NEWEST, OLDEST])
def test_the_pods_of_the_orders_book_an_order(kind: str, tmp_path: Path) -> None:
    project = write_built("orders", tmp_path / "orders")
    monitoring = free_port()
    users = f'authorization {{ user: anna, password: "right" }}\nhttp: "127.0.0.1:{monitoring}"'
    with NatsServer(kind, tmp_path / "nats", config=users) as server:
        words = ["k8s", "generate", "-n", "production", "--topology", "per-agent", "--ledger", server.url("orders")]
        scaling = ["--replicas", "Payments=1..3", "--monitoring", f"127.0.0.1:{monitoring}"]
        assert main(["-C", str(project), *words, *scaling]) == 8, "its pods would share the events"
        with (project / "pyproject.toml").open("a") as settings:
            settings.write('[tool.graphbus.runtime.nats]\nshared = ["Payments"]\n')
        assert main(["-C", str(project), *words, *scaling]) == 0
        assert CREDENTIALS not in "".join(path.read_text() for path in project.glob("k8s/**/*.yaml"))
        scaler = yaml.safe_load((project / "k8s/payments/scaledobject.yaml").read_text())
        url = server.url("orders", CREDENTIALS)
        secret = {"graphbus-orders-ledger": url}
        checkout, pricing, payments, books = (
            PodProcess(tmp_path, project, agent, secret) for agent in ("checkout", "pricing", "payments", "books")
        )
        with ExitStack() as running:
            for pod in (books, pricing, checkout):
                running.enter_context(pod.running())
            asyncio.run(place_an_order(url, tmp_path / "shop.sqlite3"))
            until(lambda: lag_for_keda(scaler) == 1)
            running.enter_context(payments.running())
            until(lambda: lag_for_keda(scaler) == 0)
            until(lambda: ask_for_the_balance(project, url) == 25.0)


def ask_for_the_balance(project: Path, url: str) -> float:
    """Ask the pod of the agent Books from another process."""
    command = [sys.executable, "-m", "graphbus_core", "run", "--only", "outside", "--call", "Books.balance", "{}"]
    environment = {**os.environ, "GRAPHBUS_LEDGER": url}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout.splitlines()[-1])["revenue"])
