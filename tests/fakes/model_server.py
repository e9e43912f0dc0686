"""A server on this machine that speaks what the providers speak: Anthropic Messages and OpenAI Chat Completions, streamed or not.

    with ModelServer(lambda request: Answer("## nothing")) as server:
        client = open_client("stub:m", server.config("anthropic"), server.environ)

The script decides what is answered, the server how it looks on the wire and what it costs: input is counted, and whether it
was in the provider's cache follows from what was sent before. Every request is kept in `server.requests`.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from graphbus_core.model.config import LLMConfig, ProviderConfig, Wire
from tests.fakes.model_speech import (
    Answer,
    Broken,
    Caches,
    Counted,
    Failure,
    Message,
    Raw,
    Reply,
    Request,
    read_anthropic,
    read_openai,
)
from tests.fakes.model_wires import Anthropic, OpenAI
from tests.patience import PATIENCE_S

KEY_VARIABLE = "STUB_API_KEY"
KEY = "stub-key-5bd1e8a1c0"
Script = Callable[[Request], "Reply | str"]

__all__ = [
    "KEY",
    "KEY_VARIABLE",
    "Answer",
    "Broken",
    "Failure",
    "Message",
    "ModelServer",
    "Raw",
    "Reply",
    "Request",
    "Script",
]


class ModelServer:
    """Serves a script on a free port of 127.0.0.1 until the `with` block ends.

    Args:
        script: Request -> what to answer. Called in the thread of the connection, several at a time.
        min_cache_tokens: Shorter prefixes are not cached, as with the real providers.

    Attributes:
        pages: Path -> status, body and headers of the answer to a GET; every other GET is answered with 404.
        pages_read: The headers of each GET, with its path under `path`.
    """

    def __init__(self, script: Script | None = None, *, min_cache_tokens: int = 1024) -> None:
        self.script: Script = script or (lambda _request: Answer("ok"))
        self.requests: list[Request] = []
        self.pages: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.pages_read: list[dict[str, str]] = []
        self.most_at_once = 0
        self._under_way = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._caches = Caches(min_cache_tokens)
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def environ(self) -> dict[str, str]:
        """The environment that a client of this server needs."""
        return {KEY_VARIABLE: KEY}

    def url(self, wire: Wire) -> str:
        return f"http://127.0.0.1:{self.port}" + ("/v1" if wire == "openai" else "")

    def config(
        self, wire: Wire = "anthropic", *, input_usd: float = 0.0, output_usd: float = 0.0, **settings: Any
    ) -> LLMConfig:
        """Settings with this server as the provider `stub` and `stub:test-model` as the model; `settings` win."""
        stub = ProviderConfig(
            base_url=self.url(wire),
            wire=wire,
            key_env=KEY_VARIABLE,
            default_model="test-model",
            input_usd=input_usd,
            output_usd=output_usd,
        )
        return LLMConfig(**{"model": "stub:test-model", "providers": {"stub": stub}, **settings})

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    # --- for the handler ---------------------------------------------------------------------

    def answer(
        self, wire: Wire, path: str, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> tuple[Request, Reply]:
        system, messages = read_anthropic(body) if wire == "anthropic" else read_openai(body)
        with self._lock:
            request = Request(
                len(self.requests) + 1, wire, path, str(body.get("model")), system, messages, headers, body
            )
            self.requests.append(request)
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        reply = self.script(request)
        return request, Answer(reply) if isinstance(reply, str) else reply

    def done(self) -> None:
        with self._lock:
            self._under_way -= 1

    def count(self, request: Request) -> Counted:
        with self._lock:
            if request.wire == "anthropic":
                return self._caches.count_anthropic(request.body)
            return self._caches.count_openai(request)

    def wait(self, seconds: float) -> None:
        """Sleep, but not past the end of the server."""
        if seconds > 0:
            self._stopped.wait(seconds)

    def wait_for_the_end(self) -> None:
        self._stopped.wait(PATIENCE_S)


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        self._connections: set[socket.socket] = set()
        self._handlers: list[threading.Thread] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._handlers.append(thread)
        thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of many tests."""

    def hang_up(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._handlers:
            thread.join(PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """The suite is quiet."""

    def do_GET(self) -> None:
        owner = self.server.owner
        owner.pages_read.append({"path": self.path} | {name.lower(): value for name, value in self.headers.items()})
        self.send_whole(*owner.pages.get(self.path, (404, b"{}", {})))

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
        wire: Wire = "openai" if "/chat/completions" in self.path else "anthropic"
        request, reply = self.server.owner.answer(wire, self.path, headers, body)
        try:
            speaker = Anthropic(self, request) if wire == "anthropic" else OpenAI(self, request)
            speaker.say(reply)
        finally:
            self.server.owner.done()

    def wait(self, seconds: float) -> None:
        self.server.owner.wait(seconds)

    def wait_for_the_end(self) -> None:
        self.server.owner.wait_for_the_end()

    def count(self, request: Request) -> Counted:
        return self.server.owner.count(request)

    # --- how answers go out ------------------------------------------------------------------

    def send_whole(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", "request-id": "req_stub", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send_event(self, event: str, data: str) -> None:
        text = (f"event: {event}\n" if event else "") + f"data: {data}\n\n"
        chunk = text.encode()
        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def send_raw(self, data: bytes) -> None:
        self.wfile.write(data)

    def hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
