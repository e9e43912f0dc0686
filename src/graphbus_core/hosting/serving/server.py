"""uvicorn, on a loop and a thread of its own: the only module that knows it.

A connection carries one request. Where a proxy and a server disagree about the end of a request, one client can speak in the
name of the next; here nothing that follows the first request of a connection is ever answered, so no disagreement helps anybody.
Limits for clients that are slow on purpose belong to the proxy in front.
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
    """Take the address before anything is started for it.

    Raises:
        RunError: GBE672 when it is taken, forbidden, or not ours.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # Head and body of an answer go out one by one; without this the second waits 40 ms for the client's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        raise address_error(host, port, error) from None


class HttpServer:
    """Runs an ASGI application behind a socket that listens already; signals stay with the main thread."""

    def __init__(self, app: Callable[..., Any], config: ServeConfig, listener: socket.socket) -> None:
        self._listener = listener
        self._server = Server(
            Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                loop="asyncio",
                interface="asgi3",
                log_config=None,
                log_level="critical",  # what strangers send is no news; `app` logs what fails in it
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
        """Answer requests from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Hang up, and end the thread."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
