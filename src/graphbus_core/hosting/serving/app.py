"""The ASGI application of a served graph: routes, request bodies, worker threads and responses. Only it imports starlette."""

from __future__ import annotations

import logging
from asyncio import Event, Queue, get_running_loop, timeout
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from secrets import token_hex
from time import perf_counter
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graphbus_core.bus.receipts import Receipt
from graphbus_core.errors import GraphBusError, RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.metrics import CONTENT_TYPE, HandlerMetrics, render_metrics
from graphbus_core.hosting.serving import openapi
from graphbus_core.hosting.serving.address import PROBES, RequestGuard
from graphbus_core.hosting.serving.pages import CONTENT_SECURITY_POLICY, PREFIX, Asked, Pages
from graphbus_core.hosting.serving.probes import Status
from graphbus_core.hosting.serving.problems import (
    MEDIA_TYPE,
    ProblemDetails,
    is_of_the_client,
    make_problem,
    problem_of,
)
from graphbus_core.hosting.serving.workers import Workers
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import AgentsArtifact, ProjectInfo
from graphbus_core.model.config import ServeConfig
from graphbus_core.schema.json import Json, encode_model
from graphbus_core.schema.values import has_nan_or_infinity
from graphbus_core.strict_json import loads

_log = logging.getLogger("graphbus.http")

_LINGER_S = 1.0
_LINGER_BYTES = 4_194_304
"""How long, and how much, of a body is still read after its request was refused."""
_JSON = "application/json"
_EVENTS = "text/event-stream"
_STREAM = f"{PREFIX}events"
_MOST_PARTS = 64
"""How many parts of a stream wait for a slow client before the stream ends; the client may take it up again."""
_HEADERS_OF_PAGES = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_CLIENT_GONE = 499  # the status that proxies log when the client hangs up before the answer
_HEADERS_OF_ALL = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_SINGLE_HEADERS = ("host", "origin", "authorization", "content-type", "content-length")
"""Headers that may occur only once: of two values, a proxy might evaluate one and this server the other."""
_HEADERS_BY_STATUS = {401: {"www-authenticate": 'Bearer realm="graphbus"'}, 503: {"retry-after": "1"}}
_DETAILS = {404: "This address does not exist. `GET /` lists all addresses.", 405: "This address accepts {allow}."}


class PageSite:
    """A site that serves only pages, such as the live view of a file.

    Args:
        config: The settings of the server.
        token: The token that requests must carry.
        meter: Measures the requests.
        pages: Answers below `pages.PREFIX`; None: there are no pages.

    Attributes:
        in_flight: How many accepted requests are not answered yet, without streams.
        is_stopping: No more calls and events are accepted.
    """

    def __init__(self, config: ServeConfig, *, token: str, meter: HandlerMetrics, pages: Pages | None = None) -> None:
        self.guard = RequestGuard(config, token)
        self.meter = meter
        self.in_flight = 0
        self._config = config
        self._pages = pages
        self._workers = Workers(config.concurrency, config.backlog)

    @property
    def is_stopping(self) -> bool:
        """False: a file is shown until the end."""
        return False

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the site."""
        if self._pages is None:
            return []
        return [
            Route(PREFIX.rstrip("/"), _redirect_to_page),
            Route(_STREAM, self._answer_stream),
            Route(f"{PREFIX}{{path:path}}", self._answer_page, methods=["GET", "POST"]),
        ]

    def app(self) -> ASGIApp:
        """Return a new ASGI application that answers all routes."""
        handlers = {HTTPException: _answer_http_exception, Exception: self._answer_failure}
        filters = [Middleware(_RequestFilter, site=self)]
        app = Starlette(routes=self.routes(), exception_handlers=handlers, middleware=filters)
        app.router.redirect_slashes = False
        origins = list(self._config.allowed_origins)
        headers = ["authorization", "content-type", "traceparent"]
        return CORSMiddleware(app, allow_origins=origins, allow_headers=headers) if origins else app

    async def _answer_page(self, request: Request) -> Response:
        """Answer a request below the prefix of pages; `?token=` is exchanged for the cookie, so that it leaves the address."""
        token = request.query_params.get("token")
        if token is not None and request.method == "GET":
            return self._exchange_token(token)

        def respond(body: bytes) -> Response:
            answer = self._find_pages().answer(self._asked(request, body))
            return Response(answer.body, answer.status, headers=_HEADERS_OF_PAGES, media_type=answer.media_type)

        return await self._answer_with(request, respond, "The view")

    def _exchange_token(self, token: str) -> Response:
        """Return a redirection to the page: with the cookie for the right token, else with `?refused=1`."""
        if not self.guard.is_token(token):
            return Response(status_code=303, headers={"location": f"{PREFIX}?refused=1"})
        cookie = f"{self.guard.cookie}; Path={PREFIX}; HttpOnly; SameSite=Strict"
        return Response(
            status_code=303, headers={"location": PREFIX, "set-cookie": cookie, "referrer-policy": "no-referrer"}
        )

    async def _answer_stream(self, request: Request) -> Response:
        """Answer `GET /view/events` with a stream that lasts until the client hangs up or the server stops."""
        if request.method == "HEAD":
            return Response(headers=_HEADERS_OF_PAGES, media_type=_EVENTS)
        parts = _stream_parts(self._find_pages(), self._asked(request, b""), request.headers.get("last-event-id", ""))
        return StreamingResponse(parts, headers=_HEADERS_OF_PAGES, media_type=_EVENTS)

    def _asked(self, request: Request, body: bytes) -> Asked:
        path = request.scope["path"].removeprefix(PREFIX)
        is_trusted = self.guard.is_trusted(request.method, request.scope["path"], request.headers)
        return Asked(request.method, path, dict(request.query_params), body, is_trusted)

    def _find_pages(self) -> Pages:
        if self._pages is None:
            raise TypeError("there are no pages, and so no route that leads here")
        return self._pages

    async def _answer_failure(self, _request: Request, error: Exception) -> Response:
        """Answer an unexpected error in a route: log it, and return status 500."""
        return _problem_response(self.refusal("The request", error))

    async def _answer_with(self, request: Request, respond: Callable[[bytes], Response], what: str) -> Response:
        """Read the body, call `respond` with it on a thread, and return its response, or one for the error.

        Args:
            request: The request.
            respond: Makes the response from the body.
            what: The method or topic, for the log.

        Raises:
            ClientDisconnect: The client hangs up before the end of the body.
        """
        try:
            body = await _read_body(request, self._config.max_body_bytes)
            answer, error = await self._workers.do(lambda: respond(body), self._config.call_timeout_s)
        except RunError as refused:
            answer, error = None, refused
        return _problem_response(self.refusal(what, error or RunError("GBE618"))) if answer is None else answer

    def refusal(self, what: str, error: Exception) -> ProblemDetails:
        """Return the problem to send for an error. An error of the server is logged, and the client gets only a request id.

        Args:
            what: The method, topic or `The request`, as the beginning of a sentence.
            error: The error.
        """
        problem = problem_of(error)
        if problem is not None:
            return problem
        request_id = token_hex(8)
        if isinstance(error, GraphBusError):
            _log.error("%s failed (request %s): %s", what, request_id, error)
        else:
            _log.error("%s failed (request %s)", what, request_id, exc_info=error)
        hint = "The log of the server reports the error under this request id."
        return make_problem(500, f"{what} failed.", hint=hint, request_id=request_id)


class Site(PageSite):
    """The HTTP interface of one graph, with a method for each route.

    Args:
        graph: The running graph; it was built, and its bus has a dispatcher.
        config: The settings of the server.
        token: The token that requests must carry.
        meter: Measures the requests, and knows the handlers that are running.
        status: Answers the probes.
        info: Name, version and description of the project, for the OpenAPI document.
        pages: Answers below `pages.PREFIX`; None: there are no pages.
    """

    def __init__(
        self,
        graph: LiveGraph,
        config: ServeConfig,
        *,
        token: str,
        meter: HandlerMetrics,
        status: Status,
        info: ProjectInfo,
        pages: Pages | None = None,
    ) -> None:
        if graph.origin is None:
            raise TypeError("only a graph that was built can be served")
        super().__init__(config, token=token, meter=meter, pages=pages)
        self.status = status
        self._graph = graph
        self._continue_trace = _find_trace_context(graph) if graph.origin.config.settings.tracing else nullcontext
        # The OpenAPI document leaves out the agents that `--only` excludes.
        excluded = {name for name, error in graph.left_out.items() if error.code == "GBE696"}
        artifacts = graph.origin.artifacts
        agents = tuple(agent for agent in artifacts.agents.agents if agent.name not in excluded)
        described = msgspec.structs.replace(artifacts, agents=AgentsArtifact(agents))
        self._description = openapi.describe_api(described, info, wait_limit_s=config.call_timeout_s)

    @property
    def is_stopping(self) -> bool:
        """True once the shutdown has begun."""
        return self.status.is_stopping

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the site."""
        return [
            Route("/", self._answer_index),
            Route("/openapi.json", self._answer_openapi),
            Route("/metrics", self._answer_metrics),
            *(Route(path, self._answer_probe) for path in sorted(PROBES)),
            Route("/call/{agent}/{method}", self._answer_call, methods=["POST"]),
            Route("/publish/{topic:path}", self._answer_publish, methods=["POST"]),
            *super().routes(),
        ]

    async def _answer_index(self, _request: Request) -> Response:
        """Answer `GET /` with a list of all routes."""
        paths = self._description["paths"]
        views = () if self._pages is None else (PREFIX,)
        listed = {
            "call": [f"POST {path}" for path in paths if path.startswith("/call/")],
            "publish": [f"POST {path}" for path in paths if path.startswith("/publish/")],
            "pages": [f"GET {path}" for path in (*sorted(PROBES), "/metrics", "/openapi.json", *views)],
        }
        return _json_response(listed)

    async def _answer_openapi(self, _request: Request) -> Response:
        return _json_response(self._description)

    async def _answer_metrics(self, _request: Request) -> Response:
        page = render_metrics(self._graph.bus.statistics(), self.meter, self._graph.ledger_metrics())
        return Response(page, headers={"content-type": CONTENT_TYPE})

    async def _answer_probe(self, request: Request) -> Response:
        return Response(*self.status.encode_answer(request.scope["path"]), media_type=_JSON)

    async def _answer_call(self, request: Request) -> Response:
        """Answer `POST /call/AGENT/METHOD`."""
        agent, method = request.path_params["agent"], request.path_params["method"]

        def respond(body: bytes) -> Response:
            return Response(self._call_method(agent, method, body, request.headers), media_type=_JSON)

        return await self._answer_with(request, respond, f"{agent}.{method}")

    async def _answer_publish(self, request: Request) -> Response:
        """Answer `POST /publish/TOPIC[?wait=SECONDS]`: status 202, or after `wait` 200 if the event was handled in that time."""
        topic = "/" + request.path_params["topic"]
        limit_s = self._config.call_timeout_s
        wait_s = _parse_seconds(request.query_params.get("wait", ""), limit_s)
        if wait_s is None:
            return _problem_response(make_problem(400, f"`wait` must be a number of seconds from 0 to {limit_s:g}."))
        receipts: list[Receipt] = []

        def respond(body: bytes) -> Response:
            receipts.append(self._publish_event(topic, body, request.headers))
            return _make_receipt_response(receipts[0], has_waited=False)

        answer = await self._answer_with(request, respond, topic)
        if wait_s and receipts and self._graph.ledger is None:  # there is none if the request was refused
            await _wait_until_done(receipts[0], wait_s)
            return _make_receipt_response(receipts[0], has_waited=True)
        return answer

    def _call_method(self, agent: str, method: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Call a method with the JSON object in the body as arguments, and return its result as JSON.

        Raises:
            RunError: GBE670 for a body that is no JSON object, what `LiveGraph.call` raises, GBE625 when the method itself
                made an invalid call or publish, GBE623 for a result that is not JSON.
        """
        arguments = _parse_json(body) if body.strip() else {}
        if not isinstance(arguments, dict):
            reason, advice = "it is not an object", 'Send the arguments as a JSON object, e.g. `{"order_id": "1"}`.'
            raise RunError("GBE670", reason=reason, advice=advice)
        with self._continue_trace(headers):
            result, error = attempt(lambda: self._graph.call_with_json(agent, method, arguments))
        # An error of the client's kind that is not about this call is one in the code of the method.
        if isinstance(error, GraphBusError) and is_of_the_client(error) and not _is_about_call(error, agent, method):
            where, reason = self._graph.place_of(error), error.sentence.rstrip(".")
            raise RunError("GBE625", where=where, agent=agent, method=method, reason=reason) from error
        if error is not None:
            raise error
        return _encode_result(result, agent, method)

    def _publish_event(self, topic: str, body: bytes, headers: Mapping[str, str]) -> Receipt:
        """Publish the payload in the body, and return the receipt of the event.

        Raises:
            RunError: GBE670 for a body that is not JSON, and what `LiveGraph.publish` raises.
        """
        payload = _parse_json(body) if body.strip() else None
        with self._continue_trace(headers):
            receipt = self._graph.publish(topic, payload)
        if receipt is None:
            raise TypeError("only a graph with a dispatcher can be served")
        return receipt


class _RequestFilter:
    """Middleware around all routes: refuses ambiguous headers and requests without authorization, and measures the rest."""

    def __init__(self, app: ASGIApp, site: PageSite) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an accepted request on to its route, or answer why it is refused; count it in the metrics in both cases."""
        request = Request(scope, receive)
        started = perf_counter()
        statuses: list[int] = []  # the status of the response, once it was sent
        has_more = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"

        async def receive_part() -> Message:
            nonlocal has_more
            message = await receive()
            has_more = message.get("more_body", False)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                # A client that has sent `Expect: 100-continue` sends no body after a refusal.
                if has_more and "expect" not in request.headers:
                    await _discard_body(receive)
                statuses.append(message["status"])
                message["headers"] = [*message["headers"], *_HEADERS_OF_ALL]
            await send(message)

        refusal = self._find_problem(request)
        is_awaited = refusal is None and request.scope["path"] != _STREAM  # the shutdown waits for no stream
        self._site.in_flight += is_awaited
        try:
            app = self._app if refusal is None else _problem_response(refusal)
            await app(scope, receive_part, send_with_headers)
        except ClientDisconnect:  # an answer would reach no client
            pass
        finally:
            self._site.in_flight -= is_awaited
        self._record_request(request, statuses, perf_counter() - started)

    def _find_problem(self, request: Request) -> ProblemDetails | None:
        """Return why a request is refused before its body is read; None for one that is accepted."""
        names = [name for name, _ in request.headers.items()]
        is_repeated = any(names.count(name) > 1 for name in _SINGLE_HEADERS)
        if is_repeated or {"content-length", "transfer-encoding"} <= {*names}:
            return make_problem(400, "The headers contradict each other.")
        try:
            self._site.guard.check(request.method, request.scope["path"], request.headers)
        except RunError as error:
            return self._site.refusal("The request", error)
        if self._site.is_stopping and request.method == "POST":
            return make_problem(503, "The server is stopping.")
        return None

    def _record_request(self, request: Request, statuses: list[int], seconds: float) -> None:
        """Count a request in the metrics, and log it if it was a call or publish."""
        route = request.scope.get("route")
        status = statuses[0] if statuses else _CLIENT_GONE
        name = "" if route is None else route.path.replace(":path", "")
        self._site.meter.count_request(name, status, seconds)
        if request.method == "POST" and name:
            path = request.scope.get("raw_path", b"").decode("ascii", "replace")[:200]
            _log.info("POST %s %d in %.1f ms", path, status, seconds * 1000)


def _parse_seconds(text: str, limit_s: float) -> float | None:
    """Parse the value of `?wait=SECONDS`, empty for 0; None if it is no number from 0 to the limit."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= limit_s else None


def _make_receipt_response(receipt: Receipt, *, has_waited: bool) -> Response:
    """Return the response for a published event: status 202, or 200 with the outcome if the client has waited and it is done."""
    document: dict[str, Json] = {"event_id": receipt.event.event_id, "status": "accepted"}
    if has_waited and receipt.is_done:
        failed = sorted({each.handler for each in receipt.results if each.error is not None})
        document |= {"status": "failed", "failed": failed} if failed else {"status": "delivered"}
    status = 202 if document["status"] == "accepted" else 200
    return Response(msgspec.json.encode(document), status, media_type=_JSON)


async def _wait_until_done(receipt: Receipt, wait_s: float) -> None:
    """Wait until a receipt is done or `wait_s` have passed, without blocking the event loop."""
    loop, is_done = get_running_loop(), Event()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop has ended, so nothing waits for this
            loop.call_soon_threadsafe(is_done.set)

    receipt.call_when_done(notify)
    with suppress(TimeoutError):
        async with timeout(wait_s):
            await is_done.wait()


async def _read_body(request: Request, limit: int) -> bytes:
    """Read the body of a request, which must be declared as JSON in its headers and have at most `limit` bytes.

    Raises:
        RunError: GBE676 for a body that is too large, GBE677 for another content type or encoding.
        ClientDisconnect: The client hangs up before the end of the body.
    """
    length = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
    if length and int(length) > limit:
        raise RunError("GBE676", limit=limit)
    encoding = request.headers.get("content-encoding", "identity")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if length != "0" and (media_type != _JSON or encoding != "identity"):
        if encoding != "identity":
            raise RunError("GBE677", got=f"with the encoding {encoding}", advice="Send it without `Content-Encoding`.")
        got = f"as {media_type}" if media_type else "without a content type"
        raise RunError("GBE677", got=got, advice="Send JSON with the header `Content-Type: application/json`.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RunError("GBE676", limit=limit)
    return bytes(body)


async def _redirect_to_page(_request: Request) -> Response:
    return Response(status_code=307, headers={"location": PREFIX})


async def _stream_parts(pages: Pages, asked: Asked, last_id: str) -> AsyncIterator[bytes]:
    """Yield the parts of a stream of events until it ends, or until its client is too slow."""
    loop = get_running_loop()
    waiting: Queue[bytes | None] = Queue()

    def put(part: bytes | None) -> None:
        waiting.put_nowait(part if waiting.qsize() < _MOST_PARTS else None)

    def send(part: bytes | None) -> None:
        with suppress(RuntimeError):  # the loop has ended, so nothing waits for this
            loop.call_soon_threadsafe(put, part)

    end = pages.follow(asked, last_id, send)
    try:
        while (part := await waiting.get()) is not None:
            yield part
    finally:
        end()


async def _discard_body(receive: Receive) -> None:
    """Read and drop what a client still sends, for `_LINGER_S` and `_LINGER_BYTES` at most.

    If the server closed the connection at once, the client would not get the response.
    """
    left = _LINGER_BYTES
    with suppress(TimeoutError):
        async with timeout(_LINGER_S):
            while left > 0:
                message = await receive()
                left = left - len(message["body"]) if message.get("more_body") else 0


def _problem_response(problem: ProblemDetails, headers: dict[str, str] | None = None) -> Response:
    """Return the response for a problem, with these headers or else those that its status needs."""
    headers = headers or _HEADERS_BY_STATUS.get(problem.status)
    return Response(msgspec.json.encode(problem), problem.status, headers=headers, media_type=MEDIA_TYPE)


async def _answer_http_exception(_request: Request, error: Exception) -> Response:
    """Answer a request for an unknown address, or with a method that the address does not accept."""
    headers = dict(getattr(error, "headers", None) or {})
    status = getattr(error, "status_code", 500)
    detail = _DETAILS.get(status, "The request was refused.").format(allow=headers.get("Allow", ""))
    return _problem_response(make_problem(status, detail), headers)


def _find_trace_context(graph: LiveGraph) -> Callable[[Mapping[str, str]], AbstractContextManager[Any]]:
    """Return `Tracing.continue_trace` of the graph's middleware: it makes the trace in the headers of a request current."""
    from graphbus_core.hosting.telemetry import Tracing

    return next(each for each in graph.bus.middleware if isinstance(each, Tracing)).continue_trace


def _parse_json(body: bytes) -> Json:
    """Return the value of a JSON document; raise GBE670 for any other text."""
    try:
        return loads(body)
    except ValueError as error:
        raise RunError("GBE670", reason=str(error), advice="Send one JSON document (RFC 8259) in UTF-8.") from None


def _is_about_call(error: GraphBusError, agent: str, method: str) -> bool:
    """True when an error concerns this very call, and not a call or publish that the method itself made."""
    return error.data.get("agent") == agent and error.data.get("method", method) == method


def _encode_result(result: Any, agent: str, method: str) -> bytes:
    """Return a result as JSON; raise GBE623 for one that is not JSON, NaN and Infinity included."""
    encoded, error = attempt(lambda: msgspec.json.encode(result, enc_hook=encode_model))
    if encoded is None:
        reason = "" if error is None else describe_exception(error)
        raise RunError("GBE623", agent=agent, method=method, reason=f"it is not JSON ({reason})") from error
    if b"null" in encoded and has_nan_or_infinity(msgspec.to_builtins(result, enc_hook=encode_model)):
        reason = "it holds NaN or Infinity, which JSON cannot represent"
        raise RunError("GBE623", agent=agent, method=method, reason=reason)
    return encoded


def _json_response(document: dict[str, Any]) -> Response:
    """Return a response with a document as indented JSON."""
    return Response(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n", media_type=_JSON)
