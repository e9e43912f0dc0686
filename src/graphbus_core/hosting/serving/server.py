"""Runs uvicorn on an event loop and a thread of its own; the only module that imports it.

Each connection carries one request. If a proxy and a server disagree about where a request ends, a client can smuggle a second
one into the connection of another client; as only the first request of a connection is answered, that has no effect. Limits
for deliberately slow clients belong to a proxy in front of the server.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Thread
from typing import Any

from uvicorn import Config, Server

from graphbus_core.hosting.serving.address import address_error
from graphbus_core.model.config import ServeConfig

_BACKLOG = 256
"""How many connections may wait to be accepted."""
_MAX_HEAD_BYTES = 16_384
_TICK_S = 0.1
"""So often uvicorn's `on_tick` wants to be called, which sets the date of answers."""
_POLL_S = 0.002
_END_S = 1.0
"""How long open connections may take at the end for the rest of their answers."""


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


class _Server(Server):
    """uvicorn's server, which looks every 0.1 s whether it shall end and then waits for 0.1 s more; this one ends at once."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    def end(self) -> None:
        """Begin the end; any thread may call it."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended by itself
                self._loop.call_soon_threadsafe(self._wake.set)

    async def main_loop(self) -> None:
        """Serve until the end."""
        self._loop = asyncio.get_running_loop()
        for tick in count():
            if await self.on_tick(tick):
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the sockets, wait until the open connections are done, and cancel what is not."""
        del sockets  # `HttpServer.stop` closes the only one
        state = self.server_state
        for server in self.servers:
            server.close()
        for connection in list(state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._done(), _END_S)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    async def _done(self) -> None:
        """Wait until no connection is open, which uvicorn tells nobody."""
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


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
        self._server = _Server(
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
            )
        )
        self._thread = Thread(target=self._server.run, args=([listener],), name="graphbus-http", daemon=True)

    def start(self) -> None:
        """Start the thread that answers requests."""
        self._thread.start()

    def stop(self) -> None:
        """Close all connections, and end the thread."""
        self._server.end()
        self._thread.join()
        self._listener.close()
