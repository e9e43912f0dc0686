"""uvicorn: the only module that knows it. It listens, bounds connections in number and time, and runs the application.

uvicorn keeps time only between two requests; here it is kept over the head of a request and over the reading of answers, too.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any, NamedTuple

import h11
from msgspec import structs
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from graphbus_core.hosting.serving.address import refuse_address
from graphbus_core.hosting.serving.problems import MAX_HEAD_BYTES, MEDIA_TYPE, Problem, problem
from graphbus_core.hosting.serving.wire import read_strictly
from graphbus_core.model.config import ServeConfig

_BACKLOG = 256
"""So many connections may wait to be accepted."""

_OTHER_FILES = 64
"""What a process has open beside connections: its databases, pipes and logs, and probes."""

_log = logging.getLogger("graphbus.http.wire")
_log.setLevel(logging.ERROR)  # what strangers send is no news


class _Connection(H11Protocol):
    """One connection, with bounds.

    Attributes:
        limits: Set in the subclass that `_protocol` makes for one server.
    """

    limits: ServeConfig

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        read_strictly(self.conn)
        self.logger = _log
        self._head_timer: Any = None
        self._write_timer: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._refuse(problem(503, "There are too many connections."))
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timers()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_head_timer()
        elif self._head_timer is None and not self.transport.is_closing():
            self._expect_head()

    def send_400_response(self, msg: str) -> None:
        """What cannot be understood is answered once, if nothing was answered yet, and ends the connection."""
        is_too_large = len(self.conn.trailing_data[0]) > MAX_HEAD_BYTES
        if is_too_large:
            self._refuse(problem(431, f"The head of a request may have {MAX_HEAD_BYTES} bytes."))
        else:
            self._refuse(problem(400, "This is not an HTTP request, or it could be read in two ways."))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.body_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.header_timeout_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        if self.conn.trailing_data[0]:
            self._refuse(problem(408, "The head of the request did not arrive in time."))
        else:
            self.transport.close()

    def _refuse(self, refusal: Problem) -> None:
        """Answer below the application, and hang up."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or not cycle.response_started or cycle.response_complete:
            body = refusal.encode()
            lines = [
                f"HTTP/1.1 {refusal.status} {refusal.title}",
                f"content-type: {MEDIA_TYPE}",
                f"content-length: {len(body)}",
                *(f"{name}: {value}" for name, value in refusal.headers.items() if name != "connection"),
                "connection: close",
            ]
            self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.transport.close()

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_timers(self) -> None:
        self._cancel_head_timer()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


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
    """For how many connections there is room.

    Attributes:
        connections: At the same time.
        backlog: How many more are accepted in one go, before the first of them can be refused.
        files: How many files the process may have open.
    """

    connections: int
    backlog: int
    files: int


def room_for(connections: int) -> Room:
    """See to it that as many files may be open, as far as the system allows.

    A process that cannot accept a connection is told of it again and again, as long as somebody waits to be accepted.
    """
    import resource

    needed = connections + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):  # what the system does not allow although it says so
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return Room(connections, _BACKLOG, needed)
    spare = max(8, soft - _OTHER_FILES)
    backlog = min(_BACKLOG, spare // 4)
    return Room(min(connections, spare - backlog), backlog, soft)


class HttpServer:
    """Runs an ASGI application on a loop and a thread of its own; signals stay where they are.

    Attributes:
        room: For how many connections there is room; fewer than the configuration says where few files may be open.
    """

    def __init__(self, app: Callable[..., Any], config: ServeConfig, listener: socket.socket) -> None:
        self.room = room_for(config.max_connections)
        limits = structs.replace(config, max_connections=self.room.connections)
        protocol = type("Connection", (_Connection,), {"limits": limits})
        self._listener = listener
        self._is_up = Event()
        self._server = Server(
            Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                loop="asyncio",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=self.room.backlog,
                timeout_keep_alive=max(1, round(config.header_timeout_s)),
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                callback_notify=self._tick,
                timeout_notify=0,
            )
        )
        self._thread = Thread(target=self._run, name="graphbus-http", daemon=True)

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()
        self._is_up.wait()
        self._listener.listen(_BACKLOG)  # how many may wait to be accepted is another thing than how many are in one go

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
