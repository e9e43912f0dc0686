"""A server of the view's page whose answers a test decides: what a real graph shows seldom, slowly, or never.

It speaks the messages of `graphbus_core.view.messages` and serves the page as it is in the package.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

import graphbus_core.view
from graphbus_core.view.messages import Bye, Delivery, DeliveryPage, GraphPicture, Hello, Tick

STATIC = Path(graphbus_core.view.__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Answer = msgspec.Struct | tuple[int, Mapping[str, str]]


class ViewSite:
    """What the server answers, and what it has been asked.

    Attributes:
        answers: Path below /view/, without its query -> the message, or a status and a problem.
        deliveries: What `/view/deliveries` gives, oldest first.
        ends: Why the stream ends at once; empty: it stays open.
        may_return: As in `Bye`.
        late: Deliveries that come before the next stream begins, and after the list was asked for.
        orders: The bodies of POST requests.
    """

    def __init__(self, picture: GraphPicture, deliveries: tuple[Delivery, ...] = ()) -> None:
        self.answers: dict[str, Answer] = {"graph": picture}
        self.deliveries = deliveries
        self.ends = ""
        self.may_return = False
        self.late: tuple[Delivery, ...] = ()
        self.orders: list[Any] = []
        self.port = 0
        self._streams: list[Queue[Tick | None]] = []
        self._server: ThreadingHTTPServer | None = None

    @property
    def picture(self) -> GraphPicture:
        """The graph, if it is answered."""
        found = self.answers["graph"]
        assert isinstance(found, GraphPicture)
        return found

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/view/"

    @property
    def watchers(self) -> int:
        return len(self._streams)

    def start(self) -> None:
        """Answer, on the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), type("Handler", (_Handler,), {"site": self}))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Answer nobody, and break all streams off."""
        if self._server is None:
            return
        self.break_off()
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    def break_off(self) -> None:
        """Break all streams off."""
        for stream in list(self._streams):
            stream.put(None)

    def restart_as(self, server: str) -> None:
        """Break the streams off and come back as another server."""
        self.stop()
        origin = msgspec.structs.replace(self.picture.origin, server=server)
        self.answers["graph"] = msgspec.structs.replace(self.picture, origin=origin)
        self.start()

    def send(self, tick: Tick) -> None:
        """Send a tick to every page that looks."""
        for stream in list(self._streams):
            stream.put(tick)

    def stream(self) -> Iterator[bytes]:
        """The events of one connection."""
        own: Queue[Tick | None] = Queue()
        self._streams.append(own)
        self.deliveries, self.late = self.deliveries + self.late, ()
        newest = self.deliveries[-1].seq if self.deliveries else 0
        try:
            yield _event("hello", Hello(origin=self.picture.origin, oldest=1, newest=newest, interval_s=0.25))
            if self.ends:
                yield _event("bye", Bye(reason=self.ends, may_return=self.may_return))
                return
            while (tick := own.get()) is not None:
                yield _event("tick", tick)
        finally:
            self._streams.remove(own)


def _event(name: str, message: msgspec.Struct) -> bytes:
    return f"event: {name}\ndata: {msgspec.json.encode(message).decode()}\n\n".encode()


class _Handler(BaseHTTPRequestHandler):
    """Answers for `site`, which a subclass sets."""

    site: ViewSite

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).removeprefix("/view/")
        if path == "events":
            self._stream()
        elif path == "" or path.startswith("static/"):
            self._file(STATIC / (path.removeprefix("static/") or "index.html"))
        elif path == "deliveries" and path not in self.site.answers:
            self._json(_page(self.site.deliveries, parse_qs(urlsplit(self.path).query)))
        else:
            self._json(self.site.answers.get(path, (404, {"title": "Not Found", "detail": f"There is no {path}."})))

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        self.site.orders.append(msgspec.json.decode(self.rfile.read(size)))
        assert self.headers["x-graphbus-view"] == "1"
        self._json(self.site.answers[f"POST {self.path.removeprefix('/view/')}"])

    def _stream(self) -> None:
        self._head(200, "text/event-stream")
        with suppress(BrokenPipeError, ConnectionResetError):
            for event in self.site.stream():
                self.wfile.write(event)
                self.wfile.flush()
        self.close_connection = True

    def _file(self, path: Path) -> None:
        self._head(200, mimetypes.guess_type(path.name)[0] or "text/html")
        self.wfile.write(path.read_bytes())

    def _json(self, answer: Answer) -> None:
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        self._head(status, "application/json")
        self.wfile.write(msgspec.json.encode(body))

    def _head(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-security-policy", POLICY)
        self.send_header("connection", "close")
        self.end_headers()


def _page(all_of_them: tuple[Delivery, ...], query: Mapping[str, list[str]]) -> DeliveryPage:
    """The newest deliveries before the one that is named, or the oldest after it."""
    limit, after = int(query.get("limit", ["100"])[0]), int(query.get("after", ["0"])[0])
    before = int(query.get("before", [str(1 << 60)])[0])
    fitting = [each for each in all_of_them if after < each.seq < before]
    return DeliveryPage(
        deliveries=tuple(fitting[:limit] if after else fitting[-limit:]),
        has_older=not after and len(fitting) > limit,
        has_newer=after > 0 and len(fitting) > limit,
        oldest=all_of_them[0].seq if all_of_them else 0,
        newest=all_of_them[-1].seq if all_of_them else 0,
    )


@contextmanager
def view_site(picture: GraphPicture, deliveries: tuple[Delivery, ...] = ()) -> Iterator[ViewSite]:
    """Serve on a free port of this machine."""
    site = ViewSite(picture, deliveries)
    site.start()
    try:
        yield site
    finally:
        site.stop()
