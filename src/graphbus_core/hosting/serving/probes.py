"""The probes of a running graph, and the server for `--health`, which needs the standard library only.

The server offers probes and metrics, which change nothing, so it needs no token. It serves few short connections, a thread each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Thread, Timer
from time import monotonic
from typing import Any

import msgspec

from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.metrics import CONTENT_TYPE, HandlerMetrics
from graphbus_core.hosting.serving.address import address_error, may_read_without_token

ProbeResult = tuple[int, dict[str, str | float]]
"""The HTTP status of a response, and its body as JSON data."""
_MAX_CONNECTIONS = 32
_TIMEOUT_S = 5.0


def _failed_probe(status: str, **facts: str | float) -> ProbeResult:
    """Return a result with the HTTP status 503; `facts` are further fields of its body."""
    return 503, {"status": status, **facts}


class Status:
    """Answers the probes of a graph: started, ready, alive.

    Args:
        graph: The graph.
        meter: Knows the handlers that are running.
        stuck_after_s: After how many seconds a handler, or the queue, counts as stuck; 0: never.
        queue: The size of the queue of the bus; 0: no limit.

    Attributes:
        is_stopping: True once the shutdown has begun; then the graph is not ready.
    """

    def __init__(self, graph: LiveGraph, meter: HandlerMetrics, *, stuck_after_s: float, queue: int) -> None:
        self._graph = graph
        self._meter = meter
        self._stuck_after_s = stuck_after_s
        self._queue = queue
        self._counts_since: tuple[tuple[int, int, int], float] | None = None
        """The counts of what has begun, and when a probe first saw these counts; None while no event waits."""
        self.is_stopping = False

    def answer(self, path: str) -> ProbeResult | None:
        """Return the answer of the probe at this path; None for another path."""
        probe = {"/livez": self.check_live, "/readyz": self.check_ready, "/startupz": self.check_started}.get(path)
        return None if probe is None else probe()

    def encode_answer(self, path: str) -> tuple[bytes, int]:
        """Return the body and the HTTP status for a path, 404 for one without a probe."""
        status, body = self.answer(path) or (404, {"status": "unknown"})
        return msgspec.json.encode(body), status

    def check_started(self) -> ProbeResult:
        """Return 200: the servers answer only once the graph has started."""
        return 200, {"status": "started"}

    def check_live(self) -> ProbeResult:
        """Return 503 when only a restart helps: a handler or the queue is stuck, or the delivering thread has died."""
        if self._graph.bus.hosting.is_dispatcher_lost and not self.is_stopping:
            return _failed_probe("dead")
        stuck = self._find_stuck_handler() or self._find_stuck_queue() if self._stuck_after_s else None
        return stuck or (200, {"status": "alive"})

    def check_ready(self) -> ProbeResult:
        """Return 503 while the graph stops or cannot reach its ledger, when its thread has died, or when the queue is full."""
        if self.is_stopping:
            return _failed_probe("stopping")
        if self._graph.bus.hosting.is_dispatcher_lost:
            return _failed_probe("dead")
        queued = self._graph.bus.statistics().queued
        if self._queue and queued >= self._queue:
            return _failed_probe("overloaded", queued=queued)
        if self._graph.ledger is not None and not self._graph.ledger.is_reachable:
            return _failed_probe("disconnected")
        return 200, {"status": "ready"}

    def _find_stuck_handler(self) -> ProbeResult | None:
        """Return the failure if a handler has been running for more than `stuck_after_s`; else None."""
        runs = self._meter.runs()
        running_s = monotonic() - runs[0].since if runs else 0.0
        if running_s <= self._stuck_after_s:
            return None
        return _failed_probe("stuck", handler=runs[0].handling.name, running_s=round(running_s, 1))

    def _find_stuck_queue(self) -> ProbeResult | None:
        """Return the failure if events have waited at every probe for `stuck_after_s`, and nothing has begun since; else None."""
        statistics, now = self._graph.bus.statistics(), monotonic()
        begun = (self._meter.begun, statistics.published, statistics.dead_letters)
        if not statistics.queued:
            self._counts_since = None
            return None
        if self._counts_since is None or self._counts_since[0] != begun:
            self._counts_since = begun, now
        waiting_s = now - self._counts_since[1]
        if waiting_s <= self._stuck_after_s:
            return None
        return _failed_probe("stuck", queued=statistics.queued, waiting_s=round(waiting_s, 1))


class ProbeServer:
    """The server for `--health`: answers GET /livez, /readyz, /startupz and /metrics.

    The constructor opens the socket; `start` begins to answer. Port 0 stands for a free one, which is then in `port`.

    Raises:
        RunError: GBE672 when the address cannot be listened on.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            self._server = _make_server(host, port)
        except (OSError, OverflowError) as error:
            raise address_error(host, port, error) from None
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="graphbus-health", daemon=True)

    def start(self, status: Status, metrics: Callable[[], bytes]) -> None:
        """Begin to answer; `metrics` returns the page for /metrics."""
        self._server.RequestHandlerClass = _make_handler_class(status, metrics, self.host)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, and close the socket."""
        self._server.shutdown()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Close the socket of a server that was not started."""
        self._server.server_close()


def _make_server(host: str, port: int) -> Any:
    """Return a listening HTTP server with limits for the number and the duration of connections."""
    import socket
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from socketserver import TCPServer

    def hang_up(connection: socket.socket) -> None:
        """End a connection, so that its thread stops waiting."""
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    class Server(ThreadingHTTPServer):
        block_on_close = False
        request_queue_size = 128
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        free_places = BoundedSemaphore(_MAX_CONNECTIONS)

        def server_bind(self) -> None:
            """Bind as a plain TCP server: the HTTP server also resolves its host name, which may block."""
            TCPServer.server_bind(self)

        def process_request(self, request: Any, client_address: Any) -> None:
            """Start a thread for a connection, or close it if too many are open."""
            if not self.free_places.acquire(blocking=False):
                self.shutdown_request(request)
                return
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # the system gives no more threads
                self.free_places.release()
                raise

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            """Answer on the thread of the connection, which is cut off after `_TIMEOUT_S`."""
            timer = Timer(_TIMEOUT_S, hang_up, (request,))
            try:
                timer.start()
                super().process_request_thread(request, client_address)
            finally:
                timer.cancel()
                self.free_places.release()

        def handle_error(self, *_arguments: object) -> None:
            """Print nothing when a connection breaks."""

    return Server((host, port), BaseHTTPRequestHandler)


def _make_handler_class(status: Status, metrics: Callable[[], bytes], listens_at: str) -> Any:
    """Return the class that answers the requests of one connection; `listens_at` is the host that the server listens at."""
    from http.server import BaseHTTPRequestHandler

    class ProbeRequestHandler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S
        server_version = "graphbus"
        sys_version = ""

        def do_GET(self) -> None:
            """Answer a probe, or send the metrics to clients that may read them."""
            path = self.path.partition("?")[0]
            if path != "/metrics":
                body, number = status.encode_answer(path)
                self._send_response(number, "application/json", body)
            elif may_read_without_token(listens_at, self.headers.get("host", "")):
                self._send_response(200, CONTENT_TYPE, metrics())
            else:
                self._send_response(403, "application/json", b'{"status":"the Host header does not name this machine"}')

        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_arguments: object) -> None:
            """Print no line for a request."""

        def _send_response(self, number: int, kind: str, body: bytes) -> None:
            """Send a response; for HEAD, without the body."""
            self.send_response(number)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("cache-control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return ProbeRequestHandler
