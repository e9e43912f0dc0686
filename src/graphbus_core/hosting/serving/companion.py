"""The servers for `--serve` and `--health`: created before the graph, so that address errors come first, and run beside it.

shutdown:  /readyz answers 503 -> requests in flight end -> the graph stops -> the servers close
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_urlsafe
from time import monotonic, sleep
from typing import NamedTuple, Protocol

import msgspec

from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import require_packages
from graphbus_core.hosting.metrics import HandlerMetrics, render_metrics
from graphbus_core.hosting.serving.address import Token, find_token
from graphbus_core.hosting.serving.pages import Pages
from graphbus_core.hosting.serving.probes import ProbeServer, Status
from graphbus_core.model.config import ResolvedRun, RuntimeConfig, ServeConfig
from graphbus_core.settings import find_root, project_info, resolve_run

_POLL_S = 0.01

Show = Callable[[str], None]


class GraphView(Protocol):
    """What shows a running graph; `graphbus_core.view.live` implements it."""

    @property
    def meter(self) -> HandlerMetrics:
        """The middleware that measures handlers and notes what they do."""

    def open(self, graph: LiveGraph) -> Pages:
        """Begin to show a graph that has started; `Pages.close` ends it."""


class ServerOptions(NamedTuple):
    """The options of the command line about servers.

    Attributes:
        is_serving: Accept calls and events over HTTP.
        host: Overrides the setting `serve.host`; empty: keep it.
        port: Overrides the setting `serve.port`; None: keep it.
        health: Host and port of the server for probes and metrics; None: no such server.
        view: Shows the graph below `pages.PREFIX`; None: it is not shown.
    """

    is_serving: bool = False
    host: str = ""
    port: int | None = None
    health: tuple[str, int] | None = None
    view: GraphView | None = None


class Servers:
    """The servers of a run. The constructor opens the sockets; clients that connect before the graph is ready wait.

    Args:
        options: The options of the command line about servers.
        artifacts: The artifact folder of the graph.
        show: Called with each line for the terminal.

    Attributes:
        meter: Middleware that the caller adds to the graph; probes and metrics read it.
        ports: `"serve"` and `"health"` -> the port that is listened on.

    Raises:
        RunError: GBE671 when packages are missing, GBE672 when an address cannot be listened on.
        UsageError: GBE155, GBE156 when there is no usable token.
    """

    def __init__(self, options: ServerOptions, artifacts: str, show: Show) -> None:
        run = resolve_run(RuntimeConfig(artifacts=artifacts))
        serve = run.settings.serve
        port = serve.port if options.port is None else options.port
        self.meter = HandlerMetrics() if options.view is None else options.view.meter
        self.ports: dict[str, int] = {}
        self._config = msgspec.structs.replace(serve, host=options.host or serve.host, port=port)
        self._queue = run.settings.queue
        self._root = find_root([Path(run.artifacts_dir).parent])
        self._show = show
        self._view = options.view
        self._listener: socket.socket | None = None
        self._probes: ProbeServer | None = None
        with ExitStack() as sockets:
            if options.is_serving:
                self._listener, self._token = self._open_listener(run, sockets)
            if options.health:
                self._probes = ProbeServer(*options.health)
                sockets.callback(self._probes.close)
                self.ports["health"] = self._probes.port
            self._sockets = sockets.pop_all()  # no error: keep them open

    def close(self) -> None:
        """Close the sockets."""
        self._sockets.close()

    @contextmanager
    def run_beside(self, graph: LiveGraph) -> Iterator[None]:
        """Within the block, and until the graph has stopped, answer requests.

        At the end of the block /readyz answers 503, and the block waits for open requests, for the grace of the graph at most.
        """
        status = Status(graph, self.meter, stuck_after_s=self._config.stuck_after_s, queue=self._queue)
        if self._probes is not None:
            self._probes.start(
                status, lambda: render_metrics(graph.bus.statistics(), self.meter, graph.ledger_metrics())
            )
            graph.at_end(self._probes.stop)
            self._show(f"Probes and metrics at http://{_url_host(self._probes.host)}:{self._probes.port}/metrics")
        in_flight = self._start_http_server(self._listener, graph, status) if self._listener else lambda: 0
        try:
            yield
        finally:
            status.is_stopping = True
            deadline = monotonic() + graph.begin_grace()
            while in_flight() and monotonic() < deadline:
                sleep(_POLL_S)

    def _open_listener(self, run: ResolvedRun, sockets: ExitStack) -> tuple[socket.socket, Token]:
        """Open the socket of the HTTP server, which `sockets` closes, and find its token."""
        require_packages("--serve", ("starlette", "uvicorn"), extra="serve")
        from graphbus_core.hosting.serving.server import open_listener

        listener = sockets.enter_context(open_listener(self._config.host, self._config.port))
        self.ports["serve"] = listener.getsockname()[1]
        # Only now that this process has the port: the token file may belong to another process that listens there.
        return listener, find_token(self._config, self._root, Path(run.state_dir))

    def _start_http_server(self, listener: socket.socket, graph: LiveGraph, status: Status) -> Callable[[], int]:
        """Start the HTTP server, which the graph stops at its end; return a function that returns the number of open requests."""
        from graphbus_core.hosting.serving.app import Site
        from graphbus_core.hosting.serving.server import HttpServer

        info, token = project_info(self._root), self._token
        pages = None if self._view is None else self._view.open(graph)
        site = Site(graph, self._config, token=token.text, meter=self.meter, status=status, info=info, pages=pages)
        server = HttpServer(site.app(), self._config, listener)
        server.start()
        graph.at_end(server.stop)
        address = f"http://{_url_host(self._config.host)}:{self.ports['serve']}/"
        self._show(f"Listening at {address}")
        if token.notice:
            self._show(token.notice)
        if pages is not None:
            graph.at_end(pages.close)
            # only where the token is shown anyway
            self._show(f"View at {address}view/" + (f"?token={token.text}" if token.is_shown else ""))
        return lambda: site.in_flight


def _url_host(host: str) -> str:
    """Return a host as a URL writes it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


@contextmanager
def serve_pages(pages: Pages, config: ServeConfig, what: str) -> Iterator[str]:
    """Within the block, serve pages without a graph, and yield their address with a token that exists only as long as the block.

    Args:
        pages: They are closed at the end.
        config: Host and port.
        what: The option or command that needs the packages, for messages.

    Raises:
        RunError: GBE671 when packages are missing, GBE672 when the address cannot be listened on.
    """
    require_packages(what, ("starlette", "uvicorn"), extra="serve")
    from graphbus_core.hosting.serving.app import PageSite
    from graphbus_core.hosting.serving.server import HttpServer, open_listener

    token = token_urlsafe(24)
    listener = open_listener(config.host, config.port)
    site = PageSite(config, token=token, meter=HandlerMetrics(), pages=pages)
    server = HttpServer(site.app(), config, listener)
    port = listener.getsockname()[1]
    server.start()
    try:
        yield f"http://{_url_host(config.host)}:{port}/view/?token={token}"
    finally:
        pages.close()
        server.stop()
