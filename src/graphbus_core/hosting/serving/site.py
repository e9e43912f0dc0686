"""What is behind the routes: a graph that threads call and publish to, and pages about it."""

from __future__ import annotations

import logging
from asyncio import Future, Semaphore, get_running_loop, timeout
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from secrets import token_hex
from threading import Thread
from typing import Any, TypeVar

import msgspec

from graphbus_core.bus.receipts import Receipt
from graphbus_core.errors import GraphBusError, RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.metrics import Meter, exposition
from graphbus_core.hosting.serving import openapi
from graphbus_core.hosting.serving.address import PROBES, Guard
from graphbus_core.hosting.serving.probes import Status
from graphbus_core.hosting.serving.problems import Problem, is_of_the_client, problem, problem_of
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import AgentsArtifact, ProjectInfo
from graphbus_core.model.config import ServeConfig
from graphbus_core.schema.json import Json, plain_model
from graphbus_core.schema.values import has_no_number
from graphbus_core.strict_json import loads

R = TypeVar("R")
_Outcome = tuple[R | None, Exception | None]

_log = logging.getLogger("graphbus.http")


class Workers:
    """Does blocking work for a loop, each piece on a daemon thread: a pool of the library would wait for a handler that hangs.

    Args:
        size: Pieces of work at the same time.
        backlog: How many more may wait.
    """

    def __init__(self, size: int, backlog: int) -> None:
        self._size = size
        self._backlog = backlog
        self._free = Semaphore(size)
        self._waiting = 0

    async def do(self, work: Callable[[], R], timeout_s: float) -> _Outcome[R]:
        """Have the work done, and give its result and None, or None and the Exception that it raised.

        Raises:
            RunError: GBE678 when too much waits, GBE679 when the time is up; what has not begun then never does.
        """
        if self._free.locked() and self._waiting >= self._backlog:
            raise RunError("GBE678", count=self._size + self._waiting)
        try:
            async with timeout(timeout_s):
                self._waiting += 1
                try:
                    await self._free.acquire()
                finally:
                    self._waiting -= 1
                return await self._begin(work)
        except TimeoutError:
            raise RunError("GBE679", timeout_s=timeout_s) from None

    def _begin(self, work: Callable[[], R]) -> Future[_Outcome[R]]:
        loop = get_running_loop()
        future: Future[_Outcome[R]] = loop.create_future()

        def end(outcome: _Outcome[R]) -> None:
            self._free.release()
            if not future.done():
                future.set_result(outcome)

        def perform() -> None:
            outcome: _Outcome[R] = None, RunError("GBE618")  # for what ends the thread
            try:
                outcome = attempt(work)
            finally:
                with suppress(RuntimeError):  # the loop has ended, and with it the one who waited
                    loop.call_soon_threadsafe(end, outcome)

        try:
            Thread(target=perform, name="graphbus-http-worker", daemon=True).start()
        except RuntimeError:  # the system gives no more threads
            self._free.release()
            raise RunError("GBE678", count=self._size + self._waiting) from None
        return future


class Site:
    """One graph, for all requests.

    Attributes:
        in_flight: Requests that were let in and are not answered yet.
    """

    def __init__(
        self, graph: LiveGraph, config: ServeConfig, *, token: str, meter: Meter, status: Status, info: ProjectInfo
    ) -> None:
        if graph.origin is None:
            raise TypeError("only a graph that was built can be served")
        self.config = config
        self.guard = Guard(config, token)
        self.workers = Workers(config.concurrency, config.backlog)
        self.meter = meter
        self.status = status
        self.in_flight = 0
        self._graph = graph
        self._going_on = _tracing_of(graph) if graph.origin.config.settings.tracing else nullcontext
        # The agents that run in other processes are not described.
        away = {name for name, why in graph.left_out.items() if why.code == "GBE696"}
        artifacts = graph.origin.artifacts
        here = tuple(agent for agent in artifacts.agents.agents if agent.name not in away)
        present = msgspec.structs.replace(artifacts, agents=AgentsArtifact(here))
        self._description = openapi.document(present, info, wait_limit_s=config.call_timeout_s)

    # --- on a worker ---

    def call(self, agent: str, method: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Call a method with the arguments in the body, and give its result as JSON.

        Raises:
            RunError: GBE670 for a body that is no JSON object, what the graph refuses, GBE625 when the method itself was refused
                something, GBE623 for a result that JSON does not have.
        """
        arguments = _read(body) if body.strip() else {}
        if not isinstance(arguments, dict):
            raise RunError("GBE670", reason="it must be an object, `{...}`")
        with self._going_on(headers):
            result, error = attempt(lambda: self._graph.call(agent, method, **arguments))
        if isinstance(error, GraphBusError) and is_of_the_client(error) and not _is_about(error, agent, method):
            where, reason = self._graph.place_of(error), error.sentence.rstrip(".")
            raise RunError("GBE625", where=where, agent=agent, method=method, reason=reason) from error
        if error is not None:
            raise error
        return _encoded(result, agent, method)

    def publish(self, topic: str, body: bytes, headers: Mapping[str, str]) -> Receipt:
        """Publish the payload in the body, and give the receipt of the event.

        Raises:
            RunError: GBE670 for a body that is no JSON, and what the graph refuses.
        """
        payload = _read(body) if body.strip() else None
        with self._going_on(headers):
            receipt = self._graph.publish(topic, payload)
        if receipt is None:
            raise TypeError("only a graph with a dispatcher can be served")
        return receipt

    # --- pages ---

    def metrics(self) -> bytes:
        """Everything that is counted and measured, for Prometheus."""
        return exposition(self._graph.bus.statistics(), self.meter)

    def openapi(self) -> bytes:
        """The description of the graph."""
        return _pretty(self._description)

    def index(self) -> bytes:
        """What can be requested here."""
        paths = self._description["paths"]
        return _pretty(
            {
                "call": [f"POST {path}" for path in paths if path.startswith("/call/")],
                "publish": [f"POST {path}" for path in paths if path.startswith("/publish/")],
                "pages": [f"GET {path}" for path in (*sorted(PROBES), "/metrics", "/openapi.json")],
            }
        )

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
        hint = "The log of the server says more about this request."
        return problem(500, f"{what} failed.", hint=hint, request_id=request_id)


def outcome(receipt: Receipt, *, has_waited: bool) -> dict[str, Json]:
    """Say what became of an event, for one who has waited, if it is known by now."""
    event_id = receipt.event.event_id
    if not has_waited or not receipt.is_done:
        return {"event_id": event_id, "status": "accepted"}
    failed = sorted({each.handler for each in receipt.results if each.error is not None})
    return {
        "event_id": event_id,
        "status": "failed" if failed else "delivered",
        **({"failed": failed} if failed else {}),
    }


def _tracing_of(graph: LiveGraph) -> Callable[[Mapping[str, str]], AbstractContextManager[Any]]:
    from graphbus_core.hosting.telemetry import Tracing

    return next(each for each in graph.bus.middleware if isinstance(each, Tracing)).going_on


def _read(body: bytes) -> Json:
    try:
        return loads(body)
    except ValueError as error:
        raise RunError("GBE670", reason=str(error)) from None


def _is_about(error: GraphBusError, agent: str, method: str) -> bool:
    """True for a refusal of this call itself: its method can meet the same ones in what it calls and publishes."""
    return error.data.get("agent") == agent and error.data.get("method", method) == method


def _encoded(result: Any, agent: str, method: str) -> bytes:
    encoded, error = attempt(lambda: msgspec.json.encode(result, enc_hook=plain_model))
    if encoded is None:
        reason = "" if error is None else describe_exception(error)
        raise RunError("GBE623", agent=agent, method=method, reason=f"it is not JSON ({reason})") from error
    if b"null" in encoded and has_no_number(msgspec.to_builtins(result, enc_hook=plain_model)):
        reason = "it holds NaN or Infinity, which JSON does not have"
        raise RunError("GBE623", agent=agent, method=method, reason=reason)
    return encoded


def _pretty(document: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
