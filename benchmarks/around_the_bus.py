"""What stands around the bus: a dispatcher, requests, a second attempt, an agent's state, a call over HTTP.

Each against what one would write without it: a thread pool, a publish, SQLite by hand, a bare route of the same server library.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stopwatch import Row, medians, report, timed

from graphbus_core import Event, build_graph
from graphbus_core.bus import MessageBus
from graphbus_core.hosting.state import States
from graphbus_core.model.deliveries import DeliveryPolicy

PROJECT = Path(__file__).parent / "peer_programs" / "order_flow"
TOKEN = "a-token-of-the-benchmark"
ORDERS, CALLS = 200, 50
ORDER = {"order_id": "1001", "sku": "mug", "qty": 2}
BARE = """
import uvicorn, socket
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def reserve(request):
    wanted = await request.json()
    return JSONResponse({"sku": wanted["sku"], "left": max(0, 3 - wanted["qty"])})

listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listening.bind(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
app = Starlette(routes=[Route("/call/Stock/reserve", reserve, methods=["POST"])])
config = uvicorn.Config(app, log_level="critical", access_log=False)
uvicorn.Server(config).run(sockets=[listening])
"""


def round_trips() -> list[Row]:
    """To another thread and back: publish to a dispatcher and wait for the receipt; a request and its answer."""

    def answer(event: Event) -> dict[str, object]:
        return {"left": 3 - event["qty"]}

    with MessageBus(dispatcher=True) as served, MessageBus() as bus, ThreadPoolExecutor(1) as pool:
        for each in (served, bus):
            each.subscribe("/Order/Created", answer)

        def dispatched() -> None:
            receipt = served.publish("/Order/Created", ORDER)
            assert receipt is not None
            receipt.wait()

        took = medians(
            {
                "dispatched": timed(dispatched, 50),
                "pooled": timed(lambda: pool.submit(answer, ORDER).result(), 50),
                "request": timed(lambda: bus.request("/Order/Created", ORDER), 200),
                "publish": timed(lambda: bus.publish("/Order/Created", ORDER), 200),
            },
            rounds=51,
        )
    return [
        Row(
            "publish to a dispatcher, wait for the receipt", took["dispatched"], took["pooled"], "a thread pool of one"
        ),
        Row("request and answer, plain handler", took["request"], took["publish"], "publish"),
    ]


def second_attempts() -> list[Row]:
    """Events that fail once, without a pause before the second attempt, until all are handled."""

    def send(policy: DeliveryPolicy, fails: int) -> Callable[[], float]:
        left = 0

        def handler(event: Event) -> None:
            nonlocal left
            attempts = seen[event] = seen.get(event, 0) + 1
            if attempts <= fails:
                raise TimeoutError
            left -= 1

        seen: dict[Event, int] = {}
        bus = stack.enter_context(MessageBus())
        bus.subscribe("/Order/Created", handler, policy=policy)

        def run() -> float:
            nonlocal left
            left = ORDERS
            started = time.perf_counter()
            for _ in range(ORDERS):
                bus.publish("/Order/Created", ORDER)
            assert bus.settle()
            took = time.perf_counter() - started
            assert not left, left
            seen.clear()
            return took / ORDERS

        return run

    logger = logging.getLogger("graphbus.bus")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        with ExitStack() as stack:
            again = DeliveryPolicy(retries=1, backoff_s=0.0)
            took = medians({"twice": send(again, 1), "once": send(again, 0)}, rounds=15)
    finally:
        logger.disabled = was_disabled
    return [Row("an event that fails once and is handled at once again", took["twice"], took["once"], "no failure")]


def states() -> list[Row]:
    """Reading and writing one key of an agent's state, against a table of SQLite by hand with as much safety."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ours = States(str(Path(folder, "ours.sqlite3")))
        stack.callback(ours.close)
        state = ours.of("Stock")
        connection = sqlite3.connect(Path(folder, "bare.sqlite3"), isolation_level=None)
        stack.callback(connection.close)
        state["order"] = ORDER
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT)")

        def put() -> None:
            connection.execute("REPLACE INTO state VALUES ('order', ?)", (json.dumps(ORDER),))

        def get() -> object:
            return json.loads(connection.execute("SELECT value FROM state WHERE key = 'order'").fetchone()[0])

        put()
        took = medians(
            {
                "set": timed(lambda: state.__setitem__("order", ORDER), 20),
                "put": timed(put, 20),
                "read": timed(lambda: state["order"], 200),
                "get": timed(get, 200),
            },
            rounds=21,
        )
    return [
        Row("`self.state[key] = value`, one commit", took["set"], took["put"], "sqlite3 by hand"),
        Row("`self.state[key]`", took["read"], took["get"], "sqlite3 by hand"),
    ]


@contextmanager
def served(command: list[str], folder: Path) -> Iterator[http.client.HTTPConnection]:
    """Start a server that says where it listens, and connect to it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment | {"GRAPHBUS_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = next(line for line in process.stdout if "http://127.0.0.1:" in line)
        connection = http.client.HTTPConnection(
            "127.0.0.1", int(address.rpartition(":")[2].strip().rstrip("/")), timeout=10
        )
        yield connection
        connection.close()
    finally:
        process.terminate()
        process.communicate(timeout=20)


def calls_over_http() -> list[Row]:
    """The same question on one connection that stays open, to a graph that is served and to a bare route that checks nothing."""
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}

    def ask(connection: http.client.HTTPConnection) -> Callable[[], object]:
        def once() -> None:
            connection.request("POST", "/call/Stock/reserve", '{"sku": "mug", "qty": 1}', headers)
            answer = connection.getresponse()
            assert json.loads(answer.read()) == {"sku": "mug", "left": 2}, answer.status

        return once

    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(
            shutil.copytree(PROJECT, Path(name, "flow"), ignore=shutil.ignore_patterns("__pycache__", ".graphbus"))
        )
        build_graph(folder / "agents")
        graphbus = str(Path(sys.executable).parent / "graphbus")
        ours = stack.enter_context(served([graphbus, "run", ".graphbus/", "--serve", "--port", "0"], folder))
        bare = stack.enter_context(served([sys.executable, "-c", BARE], folder))
        took = medians({"ours": timed(ask(ours), CALLS), "bare": timed(ask(bare), CALLS)}, rounds=15)
    return [Row("a call over HTTP, token and contract checked", took["ours"], took["bare"], "a bare starlette route")]


def main() -> list[Row]:
    """Measure and print."""
    return report("Around the bus", [*round_trips(), *second_attempts(), *states(), *calls_over_http()])


if __name__ == "__main__":
    main()
