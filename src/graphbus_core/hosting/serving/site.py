"""What is behind the routes: a graph that is called and published to by threads of the crew, and pages about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import SimpleQueue
from secrets import token_hex
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

import msgspec

from graphbus_core.bus.receipts import Receipt
from graphbus_core.errors import GraphBusError, RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.metrics import Meter, exposition
from graphbus_core.hosting.serving import openapi
from graphbus_core.hosting.serving.address import PROBES, Guard
from graphbus_core.hosting.serving.probes import Status
from graphbus_core.hosting.serving.problems import Problem, internal, is_of_the_client, problem_of
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import AgentsArtifact, BuildArtifacts, ProjectInfo
from graphbus_core.model.config import ServeConfig
from graphbus_core.schema.json import Json, plain_model
from graphbus_core.schema.values import has_no_number

R = TypeVar("R")


class Errand:
    """One piece of work; `settle` gets its result, or the Exception that it raised, on the thread that did it."""

    __slots__ = ("is_dropped", "settle", "work")

    def __init__(self, work: Callable[[], object], settle: Callable[[Any, Exception | None], None]) -> None:
        self.work = work
        self.settle = settle
        self.is_dropped = False


class Crew:
    """Does work for a server.

    Args:
        size: Threads; each is started when first needed.
        backlog: How much work may wait for them.
    """

    def __init__(self, size: int, backlog: int) -> None:
        self._size = max(1, size)
        self._limit = self._size + backlog
        self._line: SimpleQueue[Errand | None] = SimpleQueue()
        self._lock = Lock()
        self._threads = 0
        self.in_hand = 0

    async def do(self, work: Callable[[], R], timeout_s: float) -> tuple[R | None, Exception | None]:
        """Have the work done by a thread, and give its result and None, or None and the Exception that it raised.

        Raises:
            RunError: GBE678 when too much waits, GBE679 when the time is up; what has not begun then never does.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[R | None, Exception | None]] = loop.create_future()

        def give(result: Any, error: Exception | None) -> None:
            if not future.done():
                future.set_result((result, error))

        def settle(result: Any, error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it the one who waited
                loop.call_soon_threadsafe(give, result, error)

        errand = Errand(work, settle)
        self._accept(errand)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise RunError("GBE679", timeout_s=timeout_s) from None
        finally:
            errand.is_dropped = True

    def dismiss(self) -> None:
        """Let the threads end. One that is at work ends after it."""
        for _ in range(self._threads):
            self._line.put(None)

    def _accept(self, errand: Errand) -> None:
        with self._lock:
            if self.in_hand >= self._limit:
                raise RunError("GBE678", count=self.in_hand)
            self.in_hand += 1
            is_short = self._threads < min(self._size, self.in_hand)
            self._threads += is_short
        if is_short:
            self._hire()
        self._line.put(errand)

    def _hire(self) -> None:
        """Start one more thread; where the system gives none, those that there are have to do.

        Raises:
            RunError: GBE678 when there are none.
        """
        try:
            Thread(target=self._work, name="graphbus-http-worker", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    self.in_hand -= 1
                    raise RunError("GBE678", count=self.in_hand) from None

    def _work(self) -> None:
        try:
            while (errand := self._line.get()) is not None:
                self._perform(errand)
        finally:
            with self._lock:
                self._threads -= 1

    def _perform(self, errand: Errand) -> None:
        """Do it; whatever else than an Exception ends it ends the thread too, and another one takes its place."""
        result: object = None
        error: Exception | None = RunError("GBE618")
        try:
            if not errand.is_dropped:
                result, error = attempt(errand.work)
        finally:
            with self._lock:
                self.in_hand -= 1
            errand.settle(result, error)


_MAX_DEPTH = 100

_log = logging.getLogger("graphbus.http")


class Site:
    """One graph, for all requests.

    Attributes:
        in_flight: Requests that wait for the graph and are not answered yet.
    """

    def __init__(
        self,
        graph: LiveGraph,
        config: ServeConfig,
        *,
        token: str,
        meter: Meter,
        status: Status,
        info: ProjectInfo,
    ) -> None:
        self.config = config
        self._info = info
        self.guard = Guard(config, token)
        self.crew = Crew(config.concurrency, config.backlog)
        self.meter = meter
        self.status = status
        self.in_flight = 0
        self._graph = graph
        self._trace = _trace_of(graph)
        self._described: tuple[BuildArtifacts, bytes] | None = None

    # --- on a thread of the crew ---

    def call(self, agent: str, method: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Call a method with the arguments in the body, and give its result as JSON.

        Raises:
            RunError: GBE670 for a body that is no JSON object, what the graph refuses, GBE625 when the method itself was refused
                something, GBE623 for a result that JSON does not have.
        """
        arguments = read_object(body)
        with self._trace.going_on(headers):
            result, error = attempt(lambda: self._graph.call(agent, method, **arguments))
        if isinstance(error, GraphBusError) and is_of_the_client(error) and not _is_about(error, agent, method):
            where = self._graph.place_of(error)
            raise RunError(
                "GBE625", where=where, agent=agent, method=method, reason=error.sentence.rstrip(".")
            ) from error
        if error is not None:
            raise error
        return _encoded(result, agent, method)

    def publish(self, topic: str, body: bytes, headers: Mapping[str, str]) -> Receipt:
        """Publish the payload in the body, and give the receipt of the event.

        Raises:
            RunError: GBE670 for a body that is no JSON, and what the graph refuses.
        """
        payload = read_json(body) if body.strip() else None
        with self._trace.going_on(headers):
            receipt = self._graph.publish(topic, payload)
        if receipt is None:
            raise TypeError("only a graph with a dispatcher can be served")
        return receipt

    # --- pages ---

    def metrics(self) -> bytes:
        """Everything that is counted and measured, for Prometheus."""
        return exposition(self._graph.bus.statistics(), self.meter)

    def openapi(self) -> bytes:
        """The description of the graph as it runs now."""
        artifacts = self._current
        if self._described is None or self._described[0] is not artifacts:
            self._described = artifacts, _pretty(self._describe(artifacts))
        return self._described[1]

    def index(self) -> bytes:
        """What can be requested here."""
        paths = self._describe(self._current)["paths"]
        return _pretty(
            {
                "call": [f"POST {path}" for path in paths if path.startswith("/call/")],
                "publish": [f"POST {path}" for path in paths if path.startswith("/publish/")],
                "pages": [f"GET {path}" for path in (*sorted(PROBES), "/metrics", "/openapi.json")],
            }
        )

    def _describe(self, artifacts: BuildArtifacts) -> dict[str, Any]:
        """The graph without the agents that run in other processes."""
        away = {name for name, why in self._graph.left_out.items() if why.code == "GBE696"}
        here = tuple(agent for agent in artifacts.agents.agents if agent.name not in away)
        present = msgspec.structs.replace(artifacts, agents=AgentsArtifact(here))
        return openapi.document(present, self._info, wait_limit_s=self.config.call_timeout_s)

    # --- refusals ---

    def refusal(self, what: str, error: Exception) -> Problem:
        """What the client may know; what it may not know is logged."""
        known = problem_of(error)
        if known is not None:
            return known
        request_id = token_hex(8)
        if isinstance(error, GraphBusError):
            _log.error("%s failed (request %s): %s", what, request_id, error)
        else:
            _log.error("%s failed (request %s)", what, request_id, exc_info=error)
        return internal(what, request_id)

    @property
    def _current(self) -> BuildArtifacts:
        if self._graph.origin is None:
            raise TypeError("only a graph that was built can be served")
        return self._graph.origin.artifacts


def _is_about(error: GraphBusError, agent: str, method: str) -> bool:
    """True for a refusal of this call itself: its method can meet the same ones in what it calls and publishes."""
    return error.data.get("agent") == agent and error.data.get("method", method) == method


def _encoded(result: Any, agent: str, method: str) -> bytes:
    encoded, error = attempt(lambda: msgspec.json.encode(result, enc_hook=plain_model))
    if encoded is None:
        reason = "" if error is None else describe_exception(error)
        raise RunError("GBE623", agent=agent, method=method, reason=f"it is not JSON ({reason})") from error
    if b"null" in encoded and has_no_number(msgspec.to_builtins(result, enc_hook=plain_model)):
        raise RunError(
            "GBE623", agent=agent, method=method, reason="it holds NaN or Infinity, which JSON does not have"
        )
    return encoded


def wait_seconds(text: str, limit_s: float) -> float | None:
    """Read `?wait=SECONDS`; None for what is no number of seconds up to the limit."""
    try:
        seconds = float(text or 0)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= limit_s else None


def accepted(receipt: Receipt) -> tuple[int, bytes]:
    """The status and the body for an event that is on its way."""
    return 202, msgspec.json.encode({"event_id": receipt.event.event_id, "status": "accepted"})


def settled(receipt: Receipt) -> tuple[int, bytes]:
    """The same for who has waited: what became of the event, if that is known by now."""
    if not receipt.is_done:
        return accepted(receipt)
    event_id = receipt.event.event_id
    failed = sorted({each.handler for each in receipt.results if each.error is not None})
    if failed:
        return 200, msgspec.json.encode({"event_id": event_id, "status": "failed", "failed": failed})
    return 200, msgspec.json.encode({"event_id": event_id, "status": "delivered"})


class _Trace(Protocol):
    """How the trace that a client has begun goes on."""

    def going_on(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """In what this thread does."""


class _NoTrace:
    def going_on(self, _headers: Mapping[str, str]) -> AbstractContextManager[None]:
        return nullcontext()


def _trace_of(graph: LiveGraph) -> _Trace:
    if graph.origin is None or not graph.origin.config.settings.tracing:
        return _NoTrace()
    from graphbus_core.hosting.telemetry import Tracing

    return next(each for each in graph.bus.middleware if isinstance(each, Tracing))


def _pretty(document: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


# --- bodies: strict, so that no two readers can read two things in them ---


def read_json(body: bytes) -> Json:
    """Read one JSON document.

    Raises:
        RunError: GBE670 for what is not JSON in UTF-8: NaN, Infinity and numbers without end, half a surrogate pair, a name twice
            in one object; and for what is nested too deep.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RunError("GBE670", reason=str(error).rstrip(".")) from None
    if body.count(b"[") + body.count(b"{") > _MAX_DEPTH:
        _refuse_depth(value)
    if body.count(b":") > 1:
        _refuse_duplicates(body)
    return value


def read_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; nothing at all is an empty one.

    Raises:
        RunError: GBE670 for what is not JSON, or not an object.
    """
    value = read_json(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise RunError("GBE670", reason="it must be an object, `{...}`")
    return value


def _refuse_depth(value: Json) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        level = [item for container in level for item in _items(container) if isinstance(item, dict | list)]
        if not level:
            return
    raise RunError("GBE670", reason=f"it is nested more than {_MAX_DEPTH} deep")


def _items(container: Json) -> Iterable[Json]:
    return container.values() if isinstance(container, dict) else container if isinstance(container, list) else ()


def _refuse_duplicates(body: bytes) -> None:
    import json

    def unique(pairs: list[tuple[str, Any]]) -> None:
        names = {name for name, _ in pairs}
        if len(names) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise RunError("GBE670", reason=f"the name {twice!r} stands twice in one object")

    json.loads(body, object_pairs_hook=unique)
