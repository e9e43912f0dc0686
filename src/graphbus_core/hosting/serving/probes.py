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


def _failure(status: str, **facts: str | float) -> ProbeResult:
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
        self._seen: tuple[tuple[int, int, int], float] | None = None
        """Counts of what had begun when events were first seen waiting, and the time; see `_stuck_queue`."""
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
        if self._graph.bus.is_dispatcher_lost and not self.is_stopping:
            return _failure("dead")
        stuck = self._stuck_handler() or self._stuck_queue() if self._stuck_after_s else None
        return stuck or (200, {"status": "alive"})

    def check_ready(self) -> ProbeResult:
        """Return 503 while the graph stops, when its delivering thread has died, or when the queue is full."""
        if self.is_stopping:
            return _failure("stopping")
        if self._graph.bus.is_dispatcher_lost:
            return _failure("dead")
        queued = self._graph.bus.statistics().queued
        if self._queue and queued >= self._queue:
            return _failure("overloaded", queued=queued)
        return 200, {"status": "ready"}

    def _stuck_handler(self) -> ProbeResult | None:
        """Return the answer if a handler has been running for more than `stuck_after_s`."""
        longest = self._meter.longest_running()
        running_s = 0.0 if longest is None else monotonic() - longest.since
        if longest is None or running_s <= self._stuck_after_s:
            return None
        return _failure("stuck", handler=longest.name, running_s=round(running_s, 1))

    def _stuck_queue(self) -> ProbeResult | None:
        """Return the answer if at each probe for `stuck_after_s` events waited, and no handler began in between."""
        statistics, now = self._graph.bus.statistics(), monotonic()
        begun = (self._meter.begun, statistics.published, statistics.dead_letters)
        if not statistics.queued:
            self._seen = None
            return None
        if self._seen is None or self._seen[0] != begun:
            self._seen = begun, now
        waiting_s = now - self._seen[1]
        if waiting_s <= self._stuck_after_s:
            return None
        return _failure("stuck", queued=statistics.queued, waiting_s=round(waiting_s, 1))


class ProbeServer:
    """The server for `--health`: answers GET /livez, /readyz, /startupz and /metrics.

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
        self._server.RequestHandlerClass = _request_handler(status, metrics, self.host)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, and close the socket."""
        self._server.shutdown()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._server.server_close()


def _make_server(host: str, port: int) -> Any:
    """Return a listening HTTP server with limits for the number and the duration of connections."""
    import socket
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from socketserver import TCPServer

    def hang_up(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    class Server(ThreadingHTTPServer):
        block_on_close = False
        request_queue_size = 128
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        free = BoundedSemaphore(_MAX_CONNECTIONS)

        def server_bind(self) -> None:
            """Bind as a plain TCP server: the HTTP server also resolves its host name, which may block."""
            TCPServer.server_bind(self)

        def process_request(self, request: Any, client_address: Any) -> None:
            if not self.free.acquire(blocking=False):
                self.shutdown_request(request)
                return
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # the system gives no more threads
                self.free.release()
                raise

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            patience = Timer(_TIMEOUT_S, hang_up, (request,))
            try:
                patience.start()
                super().process_request_thread(request, client_address)
            finally:
                patience.cancel()
                self.free.release()

        def handle_error(self, *_given: object) -> None:
            """Do not print broken connections."""

    return Server((host, port), BaseHTTPRequestHandler)


def _request_handler(status: Status, metrics: Callable[[], bytes], listens_at: str) -> Any:
    """Return the class that answers the requests of one connection."""
    from http.server import BaseHTTPRequestHandler

    class ProbeRequestHandler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S
        server_version = "graphbus"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path != "/metrics":
                body, number = status.encode_answer(path)
                self._send(number, "application/json", body)
            elif may_read_without_token(listens_at, self.headers.get("host", "")):
                self._send(200, CONTENT_TYPE, metrics())
            else:
                self._send(403, "application/json", b'{"status":"the Host is not this machine"}')

        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *_given: object) -> None:
            """Do not print requests."""

        def _send(self, number: int, kind: str, body: bytes) -> None:
            self.send_response(number)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("cache-control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return ProbeRequestHandler
