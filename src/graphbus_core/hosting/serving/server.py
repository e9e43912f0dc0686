"""uvicorn: the only module that knows it. It listens, and runs the application.

A protocol of ours stands between the socket and that of uvicorn: it lets pass what `wire` has read, bounds the number of
connections and the time of a head and of a client that does not read. A refusal is a request of our own that the application
answers: it comes in the order of the requests before it, and looks like every other refusal.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import h11
from msgspec import structs
from uvicorn import Config, Server

from graphbus_core.hosting.serving.address import refuse_address
from graphbus_core.hosting.serving.problems import MAX_HEAD_BYTES, REFUSED
from graphbus_core.hosting.serving.wire import Ambiguous, Part, Requests
from graphbus_core.model.config import ServeConfig

if TYPE_CHECKING:
    from asyncio import Protocol, TimerHandle, Transport

_BACKLOG = 256
"""So many connections may wait to be accepted."""

_OTHER_FILES = 64
"""What a process has open beside connections: its databases, pipes and logs, and probes."""

_BROKEN = {Part.CHUNK: b"!!"}
"""What h11 refuses in the middle of a body; elsewhere it is a line with a NUL."""


class _Connection:
    """One connection, an `asyncio.Protocol`: that of uvicorn behind the limits."""

    def __init__(self, inner: Protocol, limits: ServeConfig, connected: set[_Connection]) -> None:
        self._inner = inner
        self._limits = limits
        self._connected = connected
        self._requests = Requests(MAX_HEAD_BYTES)
        self._head_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        from asyncio import get_running_loop

        self._transport: Transport = transport
        self._loop = get_running_loop()
        self._connected.add(self)
        self._inner.connection_made(transport)
        if len(self._connected) > self._limits.max_connections:
            self._refuse(self._requests.refuse(503))
        else:
            self._head_timer = self._loop.call_later(self._limits.header_timeout_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connected.discard(self)
        self._stop_waiting_for_head()
        self.resume_writing()
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def data_received(self, data: bytes) -> None:
        refusal = None
        try:
            self._requests.receive(data)
        except Ambiguous as found:
            refusal = found
        passed = self._requests.take()
        if passed:
            self._give(passed)
        if refusal is not None:
            self._refuse(refusal)
        elif not self._requests.has_begun:
            self._stop_waiting_for_head()
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._limits.header_timeout_s, self._head_is_late)

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        self._write_timer = self._loop.call_later(self._limits.body_timeout_s, self._transport.abort)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        self._inner.resume_writing()

    def _head_is_late(self) -> None:
        if self._requests.has_begun:
            self._refuse(self._requests.refuse(408))
        else:
            self._transport.close()

    def _stop_waiting_for_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, refusal: Ambiguous) -> None:
        self._stop_waiting_for_head()
        if refusal.part is Part.HEAD:
            self._give(
                f"GET / HTTP/1.1\r\nhost: -\r\n{REFUSED}: {refusal.status}\r\nconnection: close\r\n\r\n".encode()
            )
        else:
            self._give(_BROKEN.get(refusal.part, b"\0\r\n\r\n"))

    def _give(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            self._inner.data_received(data)
        except h11.LocalProtocolError:  # uvicorn would answer once more what it has answered already
            self._transport.close()


def listen(host: str, port: int) -> socket.socket:
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
        raise refuse_address(host, port, error) from None


class Room(NamedTuple):
    """How many connections fit into the files that a process may have open.

    Attributes:
        connections: At the same time.
        backlog: How many more are accepted in one go, before the first of them can be refused.
        files: How many files the process may have open.
    """

    connections: int
    backlog: int
    files: int


def room_for(connections: int) -> Room:
    """Raise the limit of open files as far as necessary and possible; where it stays too low, allow fewer connections.

    A process that cannot accept a connection is woken again and again, as long as somebody waits to be accepted.
    """
    needed = connections + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        with suppress(OSError, ValueError):  # some systems refuse what their own hard limit allows
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
            soft = files
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return Room(connections, _BACKLOG, needed)
    spare = max(8, soft - _OTHER_FILES)
    backlog = min(_BACKLOG, spare // 4)
    return Room(min(connections, spare - backlog), backlog, soft)


class HttpServer:
    """Runs an ASGI application on a loop and a thread of its own; signals stay where they are.

    Attributes:
        room: How many connections it takes: fewer than configured where few files may be open.
    """

    def __init__(self, app: Callable[..., Any], config: ServeConfig, listener: socket.socket) -> None:
        self.room = room_for(config.max_connections)
        limits = structs.replace(config, max_connections=self.room.connections)
        self._listener = listener
        self._is_up = Event()
        self._server = Server(_configured(app, limits, self.room.backlog, self._tick))
        self._thread = Thread(target=self._run, name="graphbus-http", daemon=True)

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()
        self._is_up.wait()
        self._listener.listen(
            _BACKLOG
        )  # how many may wait to be accepted; uvicorn has set how many are accepted in one go

    def stop(self) -> None:
        """Hang up, and end the thread."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._is_up.set()

    async def _tick(self) -> None:
        self._is_up.set()


def _configured(app: Callable[..., Any], limits: ServeConfig, backlog: int, tick: Callable[..., Any]) -> Config:
    config = Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        interface="asgi3",
        log_config=None,
        log_level="error",  # what strangers send is no news
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=backlog,
        timeout_keep_alive=max(1, round(limits.header_timeout_s)),
        timeout_graceful_shutdown=1,
        callback_notify=tick,
        timeout_notify=0,
    )
    config.load()
    protocol: Any = config.http_protocol_class
    connected: set[_Connection] = set()

    def connect(*args: Any, **named: Any) -> _Connection:
        return _Connection(protocol(*args, **named), limits, connected)

    config.http_protocol_class = connect  # type: ignore[assignment]  # Server calls it for each connection
    return config
