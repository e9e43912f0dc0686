"""Where requests begin and end, and uvicorn behind that: the only module that knows it.

A proxy in front may read the end of a request at another place than h11, which is lenient: it takes LF for CR LF, joins
folded headers, and lets Transfer-Encoding win over Content-Length. `Requests` follows a connection as RFC 9112 writes it and
in no other way; it is sans-IO. What could be read in two ways is refused before h11 gets it. A refusal is a request of our own
that the application answers: it comes in the order of the requests before it, and looks like every other refusal.

    HEAD --Content-Length--> BODY --> HEAD
    HEAD --chunked--> SIZE --> CHUNK --> SIZE ... --0--> TRAILERS --> HEAD

Limits for clients that are slow on purpose belong to the proxy in front.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from enum import Enum
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import h11
from uvicorn import Config, Server

from graphbus_core.hosting.serving.address import refuse_address
from graphbus_core.hosting.serving.problems import MAX_HEAD_BYTES, REFUSED
from graphbus_core.model.config import ServeConfig

if TYPE_CHECKING:
    from asyncio import Protocol, Transport

VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,17}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_ONCE = (b"host", b"content-length", b"transfer-encoding")
_MOST_IN_LINE = 4096
"""The size of a chunk with its extensions."""

Fields = list[tuple[bytes, bytes]]


class Part(Enum):
    """What comes next on a connection."""

    HEAD = "head"
    BODY = "body"
    SIZE = "size of a chunk"
    CHUNK = "chunk"
    TRAILERS = "trailers"
    REFUSED = "nothing any more"


class Ambiguous(Exception):  # noqa: N818 - it is raised and caught in this module
    """These bytes are refused.

    Attributes:
        part: Where they stand.
        status: 400, or 431 for a head that is too large.
    """

    def __init__(self, part: Part, status: int = 400) -> None:
        super().__init__(part, status)
        self.part = part
        self.status = status


class Requests:
    """Follows the requests of one connection.

    Attributes:
        part: What comes next.
        passed: What may be read and was not taken yet.
    """

    def __init__(self, most_head_bytes: int) -> None:
        self.part = Part.HEAD
        self.passed = bytearray()
        self._waiting = bytearray()
        self._left = 0
        self._most_head_bytes = most_head_bytes

    @property
    def has_begun(self) -> bool:
        """A head has arrived in part."""
        return self.part is Part.HEAD and bool(self._waiting)

    def take(self) -> bytes:
        """Give what may be read, once."""
        passed = bytes(self.passed)
        self.passed.clear()
        return passed

    def receive(self, data: bytes) -> None:
        """Take more bytes; those that may be read are in `passed` then.

        Raises:
            Ambiguous: What comes next is refused. What came before it is in `passed`.
        """
        self._waiting += data
        step = {
            Part.HEAD: self._read_head,
            Part.BODY: self._read_body,
            Part.SIZE: self._read_size,
            Part.CHUNK: self._read_chunk,
            Part.TRAILERS: self._read_trailers,
            Part.REFUSED: self._waiting.clear,
        }
        while self._waiting and step[self.part]():
            pass

    def refuse(self, status: int = 400) -> Ambiguous:
        """Read nothing more on this connection."""
        part, self.part = self.part, Part.REFUSED
        self._waiting.clear()
        return Ambiguous(part, status)

    def _read_head(self) -> bool:
        head = self._lines()
        if not head:
            return False
        fields = _fields_of_head(head)
        if fields is None or not _is_framed_once(fields):
            raise self.refuse()
        self._pass(len(head))
        named = dict(fields)
        self._left = int(named.get(b"content-length", b"0"))
        self.part = Part.SIZE if b"transfer-encoding" in named else Part.BODY if self._left else Part.HEAD
        return True

    def _read_body(self) -> bool:
        self._left -= self._pass(self._left)
        if not self._left:
            self.part = Part.HEAD
        return not self._left

    def _read_size(self) -> bool:
        end = self._waiting.find(b"\n")
        if end < 0 and len(self._waiting) <= _MOST_IN_LINE:
            return False
        size = _CHUNK.fullmatch(bytes(self._waiting[: end + 1]))
        if size is None:
            raise self.refuse()
        self._pass(end + 1)
        self._left = int(size[1], 16)
        self.part = Part.CHUNK if self._left else Part.TRAILERS
        return True

    def _read_chunk(self) -> bool:
        self._left -= self._pass(self._left)
        if self._left or len(self._waiting) < 2:
            return False
        if self._waiting[:2] != b"\r\n":
            raise self.refuse()
        self._pass(2)
        self.part = Part.SIZE
        return True

    def _read_trailers(self) -> bool:
        if self._waiting[:2] == b"\r\n":
            self._pass(2)
        else:
            trailers = self._lines()
            if not trailers:
                return False
            fields = _fields(trailers.split(b"\r\n")[:-2])
            if fields is None or not _is_framed_once(fields):
                raise self.refuse()
            self._pass(len(trailers))
        self.part = Part.HEAD
        return True

    def _lines(self) -> bytes:
        """The lines up to an empty one; nothing while they are not all there."""
        end = self._waiting.find(b"\r\n\r\n") + 4
        lines = bytes(self._waiting[:end] if end >= 4 else self._waiting)
        if _BARE_LF.search(lines):
            raise self.refuse()
        if len(lines) > self._most_head_bytes:
            raise self.refuse(431)
        return lines if end >= 4 else b""

    def _pass(self, count: int) -> int:
        taken = self._waiting[:count]
        self.passed += taken
        del self._waiting[:count]
        return len(taken)


def _fields_of_head(head: bytes) -> Fields | None:
    """The headers; None if the request line or one of them can be read in two ways."""
    line, *lines = head.split(b"\r\n")[:-2]
    fields = _fields(lines)
    version = line.rpartition(b" ")[2]
    is_plain = not _CONTROL.search(line) and line.partition(b" ")[2].startswith(b"/") and version in VERSIONS
    if fields is None or not is_plain:
        return None
    is_chunked = any(name == b"transfer-encoding" for name, _ in fields)
    return None if is_chunked and version == b"HTTP/1.0" else fields


def _fields(lines: list[bytes]) -> Fields | None:
    """Names in lower case and values; None for a control character or a folded line."""
    if any(_CONTROL.search(line) or line[:1] in (b" ", b"\t") for line in lines):
        return None
    return [(name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]


def _is_framed_once(fields: Fields) -> bool:
    """True if exactly one header says where the request ends and whose it is, in the one way in which that is written."""
    names = [name for name, _ in fields]
    if any(names.count(name) > 1 for name in _ONCE) or {b"content-length", b"transfer-encoding"} <= set(names):
        return False
    return all(
        _LENGTH.fullmatch(value) if name == b"content-length" else value.lower() == b"chunked"
        for name, value in fields
        if name in (b"content-length", b"transfer-encoding")
    )


_BACKLOG = 256
"""So many connections may wait to be accepted."""

_BROKEN = {Part.CHUNK: b"!!"}
"""What h11 refuses in the middle of a body; elsewhere it is a line with a NUL."""


class _Connection:
    """One connection, an `asyncio.Protocol`: the protocol of uvicorn behind the reader."""

    def __init__(self, inner: Protocol, connected: set[_Connection], most: int) -> None:
        self._inner = inner
        self._connected = connected
        self._most = most
        self._requests = Requests(MAX_HEAD_BYTES)

    def connection_made(self, transport: Any) -> None:
        self._transport: Transport = transport
        self._connected.add(self)
        self._inner.connection_made(transport)
        if len(self._connected) > self._most:
            self._refuse(self._requests.refuse(503))

    def connection_lost(self, exc: Exception | None) -> None:
        self._connected.discard(self)
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

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

    def _refuse(self, refusal: Ambiguous) -> None:
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


class HttpServer:
    """Runs an ASGI application on a loop and a thread of its own; signals stay where they are."""

    def __init__(self, app: Callable[..., Any], config: ServeConfig, listener: socket.socket) -> None:
        self._listener = listener
        self._is_up = Event()
        self._server = Server(_configured(app, config, self._tick))
        self._thread = Thread(target=self._run, name="graphbus-http", daemon=True)

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()
        self._is_up.wait()

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


def _configured(app: Callable[..., Any], limits: ServeConfig, tick: Callable[..., Any]) -> Config:
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
        backlog=_BACKLOG,
        timeout_keep_alive=max(1, round(limits.header_timeout_s)),
        timeout_graceful_shutdown=1,
        callback_notify=tick,
        timeout_notify=0,
    )
    config.load()
    protocol: Any = config.http_protocol_class
    connected: set[_Connection] = set()

    def connect(*args: Any, **named: Any) -> _Connection:
        return _Connection(protocol(*args, **named), connected, limits.max_connections)

    config.http_protocol_class = connect  # type: ignore[assignment]  # Server calls it for each connection
    return config
