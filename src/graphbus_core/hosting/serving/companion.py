"""The servers for `--serve` and `--health`: created before the graph, so that address errors come first, and run beside it.

shutdown:  /readyz answers 503 -> requests in flight end -> the graph stops -> the servers close
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import msgspec

from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import require_packages
from graphbus_core.hosting.metrics import HandlerMetrics, render_metrics
from graphbus_core.hosting.serving.address import Token, find_token
from graphbus_core.hosting.serving.probes import ProbeServer, Status
from graphbus_core.model.config import ResolvedRun, RuntimeConfig
from graphbus_core.settings import find_root, project_info, resolve_run

_POLL_S = 0.01

Show = Callable[[str], None]


class ServerOptions(NamedTuple):
    """The options of the command line about servers.

    Attributes:
        is_serving: Accept calls and events over HTTP.
        host: Overrides the setting `serve.host`; empty: keep it.
        port: Overrides the setting `serve.port`; None: keep it.
        health: Host and port of the server for probes and metrics; None: no such server.
    """

    is_serving: bool = False
    host: str = ""
    port: int | None = None
    health: tuple[str, int] | None = None


class Servers:
    """Both servers of a run. The constructor opens the sockets; clients that connect before the graph is ready wait.

    Args:
        asked: What the command line asks for.
        artifacts: The artifact folder of the graph.
        show: Called with each line for the terminal.

    Attributes:
        meter: Middleware that the caller adds to the graph; probes and metrics read it.
        ports: `"serve"` and `"health"` -> the port that is listened on.

    Raises:
        RunError: GBE671 when packages are missing, GBE672 when an address cannot be listened on.
        UsageError: GBE155, GBE156 when there is no usable token.
    """

    def __init__(self, asked: ServerOptions, artifacts: str, show: Show) -> None:
        run = resolve_run(RuntimeConfig(artifacts=artifacts))
        serve = run.settings.serve
        port = serve.port if asked.port is None else asked.port
        self.meter = HandlerMetrics()
        self.ports: dict[str, int] = {}
        self._config = msgspec.structs.replace(serve, host=asked.host or serve.host, port=port)
        self._queue = run.settings.queue
        self._root = find_root([Path(run.artifacts_dir).parent])
        self._show = show
        self._listener: socket.socket | None = None
        self._probes: ProbeServer | None = None
        with ExitStack() as held:
            if asked.is_serving:
                self._listener, self._token = self._listen(run, held)
            if asked.health:
                self._probes = ProbeServer(*asked.health)
                held.callback(self._probes.close)
                self.ports["health"] = self._probes.port
            self._held = held.pop_all()

    def close(self) -> None:
        """Close the sockets."""
        self._held.close()

    @contextmanager
    def run_beside(self, graph: LiveGraph) -> Iterator[None]:
        """Answer requests within the block and until the graph has stopped; the end of the block waits for open requests."""
        status = Status(graph, self.meter, stuck_after_s=self._config.stuck_after_s, queue=self._queue)
        if self._probes is not None:
            self._probes.start(status, lambda: render_metrics(graph.bus.statistics(), self.meter))
            graph.at_end(self._probes.stop)
            self._show(f"Probes and metrics at http://{_url_host(self._probes.host)}:{self._probes.port}/metrics")
        in_flight = self._serve(self._listener, graph, status) if self._listener else lambda: 0
        try:
            yield
        finally:
            status.is_stopping = True
            deadline = monotonic() + graph.begin_grace()
            while in_flight() and monotonic() < deadline:
                sleep(_POLL_S)

    def _listen(self, run: ResolvedRun, held: ExitStack) -> tuple[socket.socket, Token]:
        """Open the socket of the HTTP server, and find its token."""
        require_packages("--serve", ("starlette", "uvicorn"), extra="serve")
        from graphbus_core.hosting.serving.server import open_listener

        listener = held.enter_context(open_listener(self._config.host, self._config.port))
        self.ports["serve"] = listener.getsockname()[1]
        # Only once the port is ours: until then, the token file may belong to the process that listens there.
        return listener, find_token(self._config, self._root, Path(run.state_dir))

    def _serve(self, listener: socket.socket, graph: LiveGraph, status: Status) -> Callable[[], int]:
        """Start the HTTP server, and return a function that counts the open requests."""
        from graphbus_core.hosting.serving.app import Site
        from graphbus_core.hosting.serving.server import HttpServer

        info, token = project_info(self._root), self._token
        site = Site(graph, self._config, token=token.text, meter=self.meter, status=status, info=info)
        server = HttpServer(site.app(), self._config, listener)
        server.start()
        graph.at_end(server.stop)
        self._show(f"Listening at http://{_url_host(self._config.host)}:{self.ports['serve']}/")
        if token.notice:
            self._show(token.notice)
        return lambda: site.in_flight


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
