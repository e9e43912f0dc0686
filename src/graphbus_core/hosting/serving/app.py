"""starlette: the only module that knows it. Routes, bodies and responses; what they mean is in `site`."""

from __future__ import annotations

import logging
from asyncio import Event, get_running_loop, timeout
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphbus_core.bus.receipts import Receipt
from graphbus_core.errors import RunError
from graphbus_core.hosting.metrics import CONTENT_TYPE
from graphbus_core.hosting.serving.address import PROBES
from graphbus_core.hosting.serving.problems import MEDIA_TYPE, Problem, problem
from graphbus_core.hosting.serving.site import Site, outcome

_log = logging.getLogger("graphbus.http")

_LINGER_S = 1.0
_LINGER_BYTES = 4_194_304
_JSON = "application/json"
_CLIENT_GONE = 499  # as proxies write it
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_ONCE = ("host", "origin", "authorization", "content-type", "content-length")
"""Headers that decide something: two of them could be read in two ways."""
_HEADERS = {401: {"www-authenticate": 'Bearer realm="graphbus"'}, 503: {"retry-after": "1"}}
_DETAILS = {404: "There is nothing at this address. `GET /` lists what there is.", 405: "This address takes {allow}."}


def make_app(site: Site) -> ASGIApp:
    """Make the ASGI application for one site."""
    pages = _Pages(site)
    routes: list[BaseRoute] = [
        Route("/", pages.index),
        Route("/openapi.json", pages.openapi),
        Route("/metrics", pages.metrics),
        *(Route(path, pages.probe) for path in sorted(PROBES)),
        Route("/call/{agent}/{method}", pages.call, methods=["POST"]),
        Route("/publish/{topic:path}", pages.publish, methods=["POST"]),
    ]
    handlers = {HTTPException: _answer_http_exception, Exception: pages.answer_failure}
    app = Starlette(routes=routes, exception_handlers=handlers, middleware=[Middleware(_Door, site=site)])
    app.router.redirect_slashes = False
    origins = list(site.config.allowed_origins)
    headers = ["authorization", "content-type", "traceparent"]
    return CORSMiddleware(app, allow_origins=origins, allow_headers=headers) if origins else app


class _Door:
    """What every request passes first: headers that mean one thing, the guard, and the clock."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        request = Request(scope, receive)
        started = perf_counter()
        statuses: list[int] = []
        has_more = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"

        async def receive_part() -> Message:
            nonlocal has_more
            message = await receive()
            has_more = message.get("more_body", False)
            return message

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                if has_more and "expect" not in request.headers:  # who asks first sends nothing when the answer is no
                    await _discard(receive)
                statuses.append(message["status"])
                message["headers"] = [*message["headers"], *_ALWAYS]
            await send(message)

        refusal = self._judge(request)
        self._site.in_flight += refusal is None
        try:
            app = self._app if refusal is None else _refuse(refusal)
            await app(scope, receive_part, send_marked)
        except ClientDisconnect:
            pass
        finally:
            self._site.in_flight -= refusal is None
        self._tell(request, statuses, perf_counter() - started)

    def _judge(self, request: Request) -> Problem | None:
        names = [name for name, _ in request.headers.items()]
        if any(names.count(name) > 1 for name in _ONCE) or {"content-length", "transfer-encoding"} <= {*names}:
            return problem(400, "A header contradicts another one.")
        try:
            self._site.guard.check(request.method, request.scope["path"], request.headers)
        except RunError as error:
            return self._site.refusal("The request", error)
        if self._site.status.is_stopping and request.method == "POST":
            return problem(503, "The server is stopping.")
        return None

    def _tell(self, request: Request, statuses: list[int], seconds: float) -> None:
        """One line per request that has reached the graph; a guard, a probe or a scrape is no news."""
        route = request.scope.get("route")
        status = statuses[0] if statuses else _CLIENT_GONE
        name = "" if route is None else route.path.replace(":path", "")
        self._site.meter.answered(name, status, seconds)
        if request.method == "POST" and name:
            path = request.scope.get("raw_path", b"").decode("ascii", "replace")[:200]
            _log.info("POST %s %d in %.1f ms", path, status, seconds * 1000)


class _Pages:
    """One method per route."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def index(self, _request: Request) -> Response:
        return Response(self._site.index(), media_type=_JSON)

    async def openapi(self, _request: Request) -> Response:
        return Response(self._site.openapi(), media_type=_JSON)

    async def metrics(self, _request: Request) -> Response:
        return Response(self._site.metrics(), headers={"content-type": CONTENT_TYPE})

    async def probe(self, request: Request) -> Response:
        return Response(*self._site.status.encoded(request.scope["path"]), media_type=_JSON)

    async def call(self, request: Request) -> Response:
        agent, method = request.path_params["agent"], request.path_params["method"]

        def work(body: bytes) -> Response:
            return Response(self._site.call(agent, method, body, request.headers), media_type=_JSON)

        return await self._answer(request, work, f"{agent}.{method}")

    async def publish(self, request: Request) -> Response:
        topic = "/" + request.path_params["topic"]
        limit_s = self._site.config.call_timeout_s
        wait_s = _seconds(request.query_params.get("wait", ""), limit_s)
        if wait_s is None:
            return _refuse(problem(400, f"`wait` must be a number of seconds from 0 to {limit_s:g}."))
        receipts: list[Receipt] = []

        def work(body: bytes) -> Response:
            receipts.append(self._site.publish(topic, body, request.headers))
            return _outcome(receipts[0], has_waited=False)

        answer = await self._answer(request, work, topic)
        if wait_s and receipts:
            await _wait_for(receipts[0], wait_s)
            return _outcome(receipts[0], has_waited=True)
        return answer

    async def answer_failure(self, _request: Request, error: Exception) -> Response:
        """Whatever else has failed in here is logged and answered with 500."""
        return _refuse(self._site.refusal("The request", error))

    async def _answer(self, request: Request, work: Callable[[bytes], Response], what: str) -> Response:
        """Read the body, have a thread do the work, and give its response, or a refusal."""
        config = self._site.config
        try:
            body = await _read(request, config.max_body_bytes)
            answer, error = await self._site.workers.do(lambda: work(body), config.call_timeout_s)
        except RunError as refused:
            answer, error = None, refused
        if answer is None:
            return _refuse(self._site.refusal(what, error or RunError("GBE618")))
        return answer


def _seconds(text: str, limit_s: float) -> float | None:
    """Read `?wait=SECONDS`; None for what is no number of seconds up to the limit."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= limit_s else None


def _outcome(receipt: Receipt, *, has_waited: bool) -> Response:
    document = outcome(receipt, has_waited=has_waited)
    status = 202 if document["status"] == "accepted" else 200
    return Response(msgspec.json.encode(document), status, media_type=_JSON)


async def _wait_for(receipt: Receipt, wait_s: float) -> None:
    """Wait until the event and all that came of it is handled, or the time is up; no thread waits with it."""
    loop, is_done = get_running_loop(), Event()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it the one who waited
            loop.call_soon_threadsafe(is_done.set)

    receipt.then(tell)
    with suppress(TimeoutError):
        async with timeout(wait_s):
            await is_done.wait()


async def _read(request: Request, limit: int) -> bytes:
    """The body, as far as it is JSON by its headers and not too long; of unknown length it is counted while it arrives.

    Raises:
        RunError: GBE676, GBE677.
        ClientDisconnect: It does not arrive.
    """
    length = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
    if length and int(length) > limit:
        raise RunError("GBE676", limit=limit)
    encoding = request.headers.get("content-encoding", "identity")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if length != "0" and (media_type != _JSON or encoding != "identity"):
        raise RunError("GBE677", got=(encoding if encoding != "identity" else media_type) or "nothing in particular")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RunError("GBE676", limit=limit)
    return bytes(body)


async def _discard(receive: Receive) -> None:
    """Take what a client is still sending, within reason: to hang up on it at once would cost it the answer, too."""
    left = _LINGER_BYTES
    with suppress(TimeoutError):
        async with timeout(_LINGER_S):
            while left > 0:
                message = await receive()
                left = left - len(message["body"]) if message.get("more_body") else 0


def _refuse(refusal: Problem, headers: dict[str, str] | None = None) -> Response:
    headers = headers or _HEADERS.get(refusal.status)
    return Response(msgspec.json.encode(refusal), refusal.status, headers=headers, media_type=MEDIA_TYPE)


async def _answer_http_exception(_request: Request, error: Exception) -> Response:
    """Addresses and methods that the routes do not know."""
    headers = dict(getattr(error, "headers", None) or {})
    status = getattr(error, "status_code", 500)
    detail = _DETAILS.get(status, "The request was refused.").format(allow=headers.get("Allow", ""))
    return _refuse(problem(status, detail), headers)
