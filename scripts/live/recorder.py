"""A proxy before a model's server that keeps every request with its answer, for figures that do not rest on GraphBus's own word.

    with Recorder("http://127.0.0.1:8080/v1") as recorder:
        ...                       # GraphBus asks `recorder.url`
    recorder.exchanges

It listens on 127.0.0.1 only and passes bytes on as they come.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

SILENCE_S = 600
_PIECE_BYTES = 65_536
_NOT_PASSED_ON = {"host", "connection", "authorization", "content-length", "accept-encoding"}


class Exchange(NamedTuple):
    """One request and what the server answered.

    Attributes:
        head: The request line and headers, as they came.
        body: The body of the request.
        status: The HTTP status; 0 if the server gave none.
        answer: The text of the answer, its pieces joined.
        finish: Why the model stopped, in the word of the server; empty if the answer broke off.
        input_tokens: As the server counts them, like `output_tokens`; 0 if it does not.
        seconds: From the request to the last byte of the answer.
    """

    head: str
    body: str
    status: int = 0
    answer: str = ""
    finish: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the request; empty if it is no chat."""
        with suppress(ValueError, AttributeError):
            return list(json.loads(self.body).get("messages", []))
        return []

    @property
    def is_answered(self) -> bool:
        """True if the server gave a whole answer to a chat."""
        return bool(self.messages) and self.status == 200 and bool(self.finish)


class Recorder:
    """Passes requests on to the server at `base_url`, with its `key` if it needs one, until the `with` block ends."""

    def __init__(self, base_url: str, key: str = "") -> None:
        self.target = urlsplit(base_url)
        self.key = key
        self._lock = threading.Lock()
        self._kept: list[Exchange] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The address that takes the place of `base_url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.target.path.rstrip('/')}"

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """All requests so far, in the order in which they came; one that is still under way has the status 0."""
        with self._lock:
            return tuple(self._kept)

    def begin(self, request: Exchange) -> int:
        """Keep a request, before it is passed on; return its place for `end`."""
        with self._lock:
            self._kept.append(request)
            return len(self._kept) - 1

    def end(self, place: int, status: int, data: bytes, seconds: float) -> None:
        """Add the answer to a request."""
        answer = read_answer(data)
        with self._lock:
            self._kept[place] = self._kept[place]._replace(status=status, seconds=seconds, **answer._asdict())

    def connect(self) -> HTTPConnection:
        """Return a connection to the server, not yet open."""
        make = HTTPSConnection if self.target.scheme == "https" else HTTPConnection
        return make(self.target.hostname or "", self.target.port, timeout=SILENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, owner: Recorder) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept, not printed."""

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass the request on and the answer back, and keep both, also when one side hangs up."""
        started = time.monotonic()
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        place = self.server.owner.begin(Exchange(f"{self.requestline}\n{self.headers}", body.decode(errors="replace")))
        received = bytearray()
        self.status = 0
        with suppress(OSError, HTTPException):
            for piece in self._ask(body):
                received += piece
                self.wfile.write(piece)
        if not self.status:
            self.send_error(502)
        self.server.owner.end(place, self.status, bytes(received), time.monotonic() - started)

    def _ask(self, body: bytes) -> Iterator[bytes]:
        """Send the request to the server; yield the answer as it comes, after its head has gone back."""
        owner = self.server.owner
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON}
        if owner.key:
            headers["authorization"] = f"Bearer {owner.key}"
        with closing(owner.connect()) as connection:
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            self.status = response.status
            self.send_response(response.status)
            for name in ("content-type", "retry-after"):
                if value := response.headers.get(name):
                    self.send_header(name, value)
            self.end_headers()
            while piece := response.read1(_PIECE_BYTES):
                yield piece


class _Answer(NamedTuple):
    answer: str
    finish: str
    input_tokens: int
    output_tokens: int


def read_answer(data: bytes) -> _Answer:
    """Return text, end and tokens of a chat completion, streamed or whole; empty fields for what is neither."""
    text, finish = "", ""
    usage: dict[str, Any] = {}
    for document in _read_documents(data):
        for choice in document.get("choices") or []:
            said = choice.get("delta") or choice.get("message") or {}
            calls = (call.get("function") or {} for call in said.get("tool_calls") or [])
            text += (said.get("content") or "") + "".join(call.get("arguments") or "" for call in calls)
            finish = choice.get("finish_reason") or finish
        usage = document.get("usage") or usage
    return _Answer(text, finish, usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)


def _read_documents(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of an answer: those after `data:` of a stream, else the whole."""
    streamed = [line[len(b"data:") :] for line in data.splitlines() if line.startswith(b"data:")]
    for text in streamed or [data]:
        with suppress(ValueError):
            document = json.loads(text)
            if isinstance(document, dict):
                yield document
