"""`--health`: probes and metrics alone, with nothing but the standard library. For containers.

Nothing can be called or changed here, so there is no token. Connections are few, short, and one thread each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Thread, Timer
from typing import Any

from graphbus_core.hosting.metrics import CONTENT_TYPE
from graphbus_core.hosting.serving.address import refuse_address
from graphbus_core.hosting.serving.guard import may_read_without_token
from graphbus_core.hosting.serving.status import Status

_MAX_CONNECTIONS = 32
_TIMEOUT_S = 5.0


class ProbeServer:
    """Answers GET /livez, /readyz, /startupz and /metrics.

    Raises:
        RunError: GBE672 when the address cannot be had.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            self._server = _make_server(host, port)
        except (OSError, OverflowError) as error:
            raise refuse_address(host, port, error) from None
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="graphbus-health", daemon=True)

    def start(self, status: Status, metrics: Callable[[], bytes]) -> None:
        """Answer from now on."""
        self._server.RequestHandlerClass = _answerer(status, metrics, self.host)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._thread.join()
        self.close()

    def close(self) -> None:
        """Let go of the address."""
        self._server.server_close()


def _make_server(host: str, port: int) -> Any:
    import socket
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from socketserver import TCPServer

    def hang_up(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        free = BoundedSemaphore(_MAX_CONNECTIONS)

        def server_bind(self) -> None:
            """Like that of a plain TCP server: the one for HTTP asks for the name of the address, which can take long."""
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
            """A connection that breaks is no news."""

    return Server((host, port), BaseHTTPRequestHandler)


def _answerer(status: Status, metrics: Callable[[], bytes], listens_at: str) -> Any:
    from http.server import BaseHTTPRequestHandler

    class Answerer(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S
        server_version = "graphbus"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics" and not may_read_without_token(listens_at, self.headers.get("host", "")):
                self._send(403, "application/json", b'{"status":"the Host is not this machine"}')
            elif path == "/metrics":
                self._send(200, CONTENT_TYPE, metrics())
            else:
                body, number = status.encoded(path)
                self._send(number, "application/json", body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_given: object) -> None:
            """Probes are no news."""

        def _send(self, number: int, kind: str, body: bytes) -> None:
            self.send_response(number)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("cache-control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Answerer
