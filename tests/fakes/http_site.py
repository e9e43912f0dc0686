"""A small built graph that is served for real on a free port of this machine, and a client that sends what it is told."""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from graphbus_core import build_graph
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.serving.companion import ServerOptions, Servers
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.runtime import PIPELINE
from tests.patience import PATIENCE_S
from tests.project_files import write_project

TOKEN = "a-token-of-the-tests"
BEARER = {"authorization": f"Bearer {TOKEN}"}
JSON = {"content-type": "application/json"}

AGENTS = '''
    import time
    from typing import TypedDict

    from graphbus_core import GraphBusNode, publishes, schema_method, subscribe


    class Order(TypedDict):
        order_id: str
        quantity: int


    class Till(GraphBusNode):
        """Counts."""

        def on_start(self):
            self.total = 0
            self.heard = []

        @schema_method(input_schema={"amount": int}, output_schema={"total": int})
        def add(self, amount):
            """Add an amount."""
            self.total += amount
            return {"total": self.total}

        @schema_method(input_schema={"value": object}, output_schema={"value": object})
        def echo(self, value):
            return {"value": value}

        @schema_method(input_schema={}, output_schema={"total": int})
        def read(self):
            return {"total": self.total}

        @schema_method(input_schema={}, output_schema={"total": int})
        def lie(self):
            return {"total": "plenty"}

        @schema_method(input_schema={"seconds": float}, output_schema={})
        def sleep(self, seconds):
            time.sleep(seconds)

        @schema_method(input_schema={}, output_schema={})
        def fail(self):
            raise ValueError("the secret of the house")

        @publishes("/Order/Placed", Order)
        @schema_method(input_schema={}, output_schema={})
        def order(self):
            self.publish("/Order/Placed", {"order_id": "1", "quantity": 1})

        @subscribe("/Order/Placed")
        def on_order(self, event):
            self.heard.append(event["order_id"])
            if event["quantity"] < 0:
                raise ValueError("the secret of the house")
            if event["quantity"] > 90:
                time.sleep(event["quantity"] / 1000)


    class Clock(GraphBusNode):
        @schema_method(input_schema={}, output_schema={"late": bool})
        async def ask(self):
            return {"late": False}
    '''


class Answer(NamedTuple):
    """A response; `document` is its JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class SiteClient(NamedTuple):
    """Where the graph is served, and the graph itself."""

    port: int
    health_port: int
    graph: LiveGraph

    def request(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        """Send one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, dict(headers))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def post(self, path: str, document: Any = None, headers: Mapping[str, str] = {}) -> Answer:
        """Send a JSON document with the token."""
        return self.request("POST", path, json.dumps(document), BEARER | JSON | dict(headers))

    def get(self, path: str, headers: Mapping[str, str] = {}) -> Answer:
        """Read a page."""
        return self.request("GET", path, None, headers)

    def connect(self) -> socket.socket:
        """A connection on which anything may be sent."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def raw(self, data: bytes) -> bytes:
        """Send these bytes, and read until the server hangs up."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)

    def is_alive(self) -> bool:
        """The server answers as if nothing had happened."""
        return self.get("/livez").status == 200


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side hangs up, however it does it."""
    parts = []
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


_numbers = count(1)


def build_site(folder: Path, serve: str = "", agents: str = AGENTS, runtime: str = "") -> Path:
    """Write and build the project; `serve` is the text of its `[tool.graphbus.runtime.serve]`."""
    package = f"site{next(_numbers)}"  # two graphs of one process cannot have modules of one name
    settings = (
        '[tool.graphbus]\nexternal_topics = ["/Order/Cancelled"]\n'
        f"[tool.graphbus.runtime]\n{runtime}\n[tool.graphbus.runtime.serve]\n{serve}\n"
    )
    root = write_project(folder, {"pyproject.toml": settings, f"{package}/till.py": agents})
    build_graph(root / package)
    return root


@contextmanager
def served(root: Path, **asked: Any) -> Iterator[SiteClient]:
    """Run the graph and its servers; the token is `TOKEN`."""
    artifacts = str(root / ".graphbus")
    wanted = ServerOptions(**{"is_serving": True, "port": 0, "health": ("127.0.0.1", 0), **asked})
    servers = Servers(wanted, artifacts, lambda _line: None)
    request = RuntimeConfig(artifacts=artifacts, is_serving=True, instruments=(servers.meter,))
    graph = PIPELINE.excluding("EXECUTE_ENTRYPOINT", "SHUTDOWN").run(request)[LiveGraph]
    with graph, servers.run_beside(graph):
        yield SiteClient(servers.ports.get("serve", 0), servers.ports.get("health", 0), graph)


class LogKeeper(logging.Handler):
    """Keeps what was logged, with its tracebacks, for a look at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def kept_log() -> Iterator[LogKeeper]:
    """Keep the log of everything from INFO on."""
    root, keeper = logging.getLogger(), LogKeeper()
    ours = logging.getLogger("graphbus")
    before = ours.level
    root.addHandler(keeper)
    ours.setLevel(logging.INFO)
    try:
        yield keeper
    finally:
        ours.setLevel(before)
        root.removeHandler(keeper)
