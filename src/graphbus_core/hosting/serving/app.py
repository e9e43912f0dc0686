"""starlette: the only module that knows it. Routes and responses; what they mean is in `site`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import perf_counter
from typing import Any, TypeVar

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
from graphbus_core.hosting.serving.problems import MEDIA_TYPE, REFUSED, REFUSED_HEADS, Problem, problem
from graphbus_core.hosting.serving.site import Site, accepted, settled, wait_seconds

R = TypeVar("R")

_log = logging.getLogger("graphbus.http")

_LINGER_S = 1.0
_LINGER_BYTES = 4_194_304
_JSON = "application/json"
_CLIENT_GONE = 499  # as proxies write it
_Answer = tuple[int, bytes]  # status and body
_ALWAYS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_ONCE = ("origin", "authorization", "content-type")
"""Headers that decide something: two of them could be read in two ways. `wire` knows further ones."""

_DETAILS = {404: "There is nothing at this address. `GET /` lists what there is.", 405: "This address takes {allow}."}


def make_app(site: Site) -> ASGIApp:
    """The ASGI application for one site."""
    pages = _Pages(site)
    routes: list[BaseRoute] = [
        Route("/", pages.index),
        Route("/openapi.json", pages.openapi),
        Route("/metrics", pages.metrics),
        *(Route(path, pages.probe) for path in ("/livez", "/readyz", "/startupz")),
        Route("/call/{agent}/{method}", pages.call, methods=["POST"]),
        Route("/publish/{topic:path}", pages.publish, methods=["POST"]),
    ]
    origins = list(site.config.allowed_origins)
    cors = Middleware(
        CORSMiddleware, allow_origins=origins, allow_headers=["authorization", "content-type", "traceparent"]
    )
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _answer_http_exception},
        middleware=[Middleware(_Door, site=site)],
    )
    app.router.redirect_slashes = False
    return cors.cls(app, *cors.args, **cors.kwargs) if origins else app


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

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                message["headers"] = [*message["headers"], *_ALWAYS]
            await send(message)

        refusal = self._judge(request)
        with suppress(ClientDisconnect):
            if refusal is None:
                await self._app(scope, receive, send_marked)
            else:
                await _discard(request)
                await _refuse(refusal, hangs_up=True)(scope, receive, send_marked)
        self._tell(request, statuses, perf_counter() - started)

    def _judge(self, request: Request) -> Problem | None:
        names = [name for name, _ in request.headers.items()]
        refused = request.headers.get(REFUSED, "")  # a client that sends it itself is refused, too
        if refused:
            status = int(refused) if refused in map(str, REFUSED_HEADS) else 400
            return problem(status, REFUSED_HEADS[status])
        twice = next((name for name in _ONCE if names.count(name) > 1), "")
        if twice:
            return problem(400, f"The header {twice} contradicts another one.")
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
            _log.info("POST %s %d in %.1f ms", _shown(request), status, seconds * 1000)


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

        def work(body: bytes) -> _Answer:
            return 200, self._site.call(agent, method, body, request.headers)

        return await self._answer(request, work, f"{agent}.{method}", self._site.config.call_timeout_s)

    async def publish(self, request: Request) -> Response:
        topic = "/" + request.path_params["topic"]
        limit_s = self._site.config.call_timeout_s
        wait_s = wait_seconds(request.query_params.get("wait", ""), limit_s)
        if wait_s is None:
            await _discard(request)
            return _refuse(problem(400, f"`wait` must be a number of seconds from 0 to {limit_s:g}."))

        receipts: list[Receipt] = []

        def work(body: bytes) -> _Answer:
            receipts.append(self._site.publish(topic, body, request.headers))
            return accepted(receipts[0])

        answer = await self._answer(request, work, topic, limit_s)
        if wait_s and receipts:
            await self._wait_for(request, receipts[0], wait_s)
            status, content = settled(receipts[0])
            return Response(content, status, media_type=_JSON)
        return answer

    async def _wait_for(self, request: Request, receipt: Receipt, wait_s: float) -> None:
        """Wait until the event and all that came of it is handled, or the time is up; no thread waits with it."""
        from asyncio import Event, get_running_loop, timeout

        loop, is_done = get_running_loop(), Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it the one who waited
                loop.call_soon_threadsafe(is_done.set)

        self._site.in_flight += 1
        try:
            receipt.then(tell)
            async with timeout(wait_s):
                await _unless_gone(request, is_done.wait())
        except TimeoutError:
            pass
        finally:
            self._site.in_flight -= 1

    async def _answer(
        self, request: Request, work: Callable[[bytes], _Answer], what: str, timeout_s: float
    ) -> Response:
        """Read the body, have a thread do the work, and turn what comes of it into a response."""
        self._site.in_flight += 1
        try:
            body = await _read(request, self._site.config.max_body_bytes, self._site.config.body_timeout_s)
            done, error = await _unless_gone(request, self._try(lambda: work(body), timeout_s))
        except RunError as refused:
            await _discard(request)
            return _refuse(self._site.refusal(what, refused))
        except TimeoutError:
            return _refuse(problem(408, "The body did not arrive in time."))
        finally:
            self._site.in_flight -= 1
        if done is None:
            return _refuse(self._site.refusal(what, error or RunError("GBE618")))
        status, content = done
        return Response(content, status, media_type=_JSON)

    async def _try(self, work: Callable[[], R], timeout_s: float) -> tuple[R | None, Exception | None]:
        try:
            return await self._site.crew.do(work, timeout_s)
        except RunError as refused:
            return None, refused


async def _read(request: Request, limit: int, timeout_s: float) -> bytes:
    """The body, as far as it is JSON by its headers and not too long; of unknown length it is counted while it arrives.

    Raises:
        RunError: GBE676, GBE677.
        TimeoutError: It does not arrive in time.
        ClientDisconnect: It does not arrive at all.
    """
    from asyncio import timeout

    length = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
    if length and int(length) > limit:
        raise RunError("GBE676", limit=limit)
    encoding = request.headers.get("content-encoding", "identity")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if length != "0" and (media_type != _JSON or encoding != "identity"):
        raise RunError("GBE677", got=(encoding if encoding != "identity" else media_type) or "nothing in particular")
    body = bytearray()
    async with timeout(timeout_s):
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise RunError("GBE676", limit=limit)
    return bytes(body)


async def _discard(request: Request) -> None:
    """Take what a client is still sending, within reason: to hang up on it at once would cost it the answer, too."""
    from asyncio import timeout

    if "expect" in request.headers:  # it asks first, and sends nothing when the answer is no
        return
    left = _LINGER_BYTES
    with suppress(TimeoutError):
        async with timeout(_LINGER_S):
            while left > 0:
                message = await request.receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


async def _unless_gone(request: Request, outcome: Awaitable[Any]) -> Any:
    """The outcome, unless the client leaves first.

    Raises:
        ClientDisconnect: It has left; work that has not begun is not done.
    """
    from asyncio import FIRST_COMPLETED, ensure_future, wait

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work, gone = ensure_future(outcome), ensure_future(leave())
    try:
        await wait({work, gone}, return_when=FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        gone.cancel()


def _refuse(refusal: Problem, *, hangs_up: bool = False) -> Response:
    """A refusal; it hangs up where the body may not have been read to its end."""
    headers = dict(refusal.headers)
    if hangs_up or refusal.status in (408, 413, 415):
        headers["connection"] = "close"
    return Response(refusal.encode(), refusal.status, headers=headers, media_type=MEDIA_TYPE)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    """Addresses and methods that the routes do not know."""
    headers = dict(getattr(error, "headers", None) or {})
    status = getattr(error, "status_code", 500)
    detail = _DETAILS.get(status, "The request was refused.").format(allow=headers.get("Allow", ""))
    await _discard(request)
    refusal = problem(status, detail)
    return Response(refusal.encode(), status, headers={**headers, "connection": "close"}, media_type=MEDIA_TYPE)


def _shown(request: Request) -> str:
    """The path for the log, as it was sent: without the query, without anything that ends a line."""
    raw: bytes = request.scope.get("raw_path", b"")
    return raw.decode("ascii", "replace")[:200]
