"""Runs uvicorn on an event loop and a thread of its own; the only module that imports it.

Each connection carries one request. If a proxy and a server disagree about where a request ends, a client can smuggle a second
one into the connection of another client; as only the first request of a connection is answered, that has no effect. Limits
for deliberately slow clients belong to a proxy in front of the server.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Thread
from typing import Any

from uvicorn import Config, Server

from graphbus_core.hosting.serving.address import address_error
from graphbus_core.model.config import ServeConfig

_BACKLOG = 256
"""How many connections may wait to be accepted."""
_MAX_HEAD_BYTES = 16_384


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address.

    Raises:
        RunError: GBE672 when the address is in use, forbidden, or not of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # Head and body of a response are sent separately; with Nagle's algorithm the body would wait 40 ms for an
        # acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        raise address_error(host, port, error) from None


class HttpServer:
    """Serves an ASGI application on a listening socket, from a thread of its own; signals stay with the main thread.

    Args:
        app: The application.
        config: The largest number of connections.
        listener: The socket.
        has_lifespan: The application wants to be told its start and its end.
    """

    def __init__(
        self, app: Callable[..., Any], config: ServeConfig, listener: socket.socket, *, has_lifespan: bool = False
    ) -> None:
        self._listener = listener
        self._server = Server(
            Config(
                app,
                http="h11",
                ws="none",
                lifespan="on" if has_lifespan else "off",
                loop="asyncio",
                interface="asgi3",
                log_config=None,
                log_level="critical",  # invalid requests are not logged; `app` logs its own errors
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("connection", "close")],
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
                limit_concurrency=config.max_connections + 1,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = Thread(target=self._server.run, args=([listener],), name="graphbus-http", daemon=True)

    def start(self) -> None:
        """Start the thread that answers requests."""
        self._thread.start()

    def stop(self) -> None:
        """Close all connections, and end the thread."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
