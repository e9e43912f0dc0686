"""What `graphbus run` does with a running graph: publish, call, and write down what came of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from graphbus_core.cli import console
from graphbus_core.errors import GraphBusError, RunError, UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.isolation import attempt
from graphbus_core.runtime import RuntimeResult
from graphbus_core.schema.values import has_no_number

_EXAMPLES = {
    "--call": """OrderProcessor.process_order '{"order_id": "1", "items": []}'""",
    "--publish": """/Order/Placed '{"order_id": "1", "items": []}'""",
}

_log = logging.getLogger("graphbus.runtime")


class Call(NamedTuple):
    """One `--call`."""

    agent: str
    method: str
    arguments: dict[str, Any]


class Publication(NamedTuple):
    """One `--publish`."""

    topic: str
    payload: Any


class OneShot:
    """What was asked for on the command line, and what came of it so far.

    Args:
        publications: `--publish`: topic and JSON.
        calls: `--call`: `Agent.method` and JSON.
        as_json: Keep the results for one document instead of writing each.

    Raises:
        UsageError: GBE130 for one that cannot be understood.
    """

    def __init__(
        self, publications: Sequence[tuple[str, str]], calls: Sequence[tuple[str, str]], *, as_json: bool
    ) -> None:
        self.publications = [_read_publication(*each) for each in publications]
        self.calls = [_read_call(*each) for each in calls]
        self.as_json = as_json
        self.results: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self.publications or self.calls)

    def document(self, result: RuntimeResult) -> dict[str, Any]:
        """What a run with an end writes to stdout with `--json`."""
        letters = [
            {
                "topic": letter.event.topic,
                "event_id": letter.event.event_id,
                "subscription": letter.subscription,
                "reason": letter.reason,
                "error": letter.error,
                "place": letter.place,
            }
            for letter in result.dead_letters
        ]
        return {
            "calls": self.results,
            "entrypoint": plain(result.value),
            "statistics": result.statistics,
            "dead_letters": letters,
        }

    def do(self, graph: LiveGraph) -> None:
        """Publish the events, then make the calls."""
        for publication in self.publications:
            graph.publish(publication.topic, publication.payload)
        for call in self.calls:
            result = _result_of(call, _call_agent(graph, call))
            self.results.append({"agent": call.agent, "method": call.method, "result": result})
            if not self.as_json:
                console.out(msgspec.json.encode(result).decode())


def _call_agent(graph: LiveGraph, call: Call) -> Any:
    """Give the result of a call.

    Raises:
        RunError: GBE625 for an exception of the user's method, with its line, and what `LiveGraph.call` raises.
    """
    result, error = attempt(lambda: graph.call(call.agent, call.method, **call.arguments))
    if error is None:
        return result
    if isinstance(error, GraphBusError):
        raise error
    _log.error("the call of %s.%s failed", call.agent, call.method, exc_info=error)
    raise RunError(
        "GBE625",
        where=graph.place_of(error),
        agent=call.agent,
        method=call.method,
        reason=describe_exception(error),
    ) from error


def plain(value: object) -> Any:
    """The value as JSON can show it; what it has no form for is shown as text."""
    told, error = _told(value)
    return repr(value) if error or has_no_number(told) else told


def _result_of(call: Call, value: object) -> Any:
    """The result of a call as JSON can show it; RunError GBE623 for NaN, which a reader would find as null, or as a text."""
    told, error = _told(value)
    if error is None and has_no_number(told):
        reason = "it holds NaN or Infinity, which JSON does not have"
        raise RunError("GBE623", agent=call.agent, method=call.method, reason=reason)
    return plain(value)


def _told(value: object) -> tuple[Any, Exception | None]:
    return attempt(lambda: msgspec.to_builtins(value, enc_hook=_as_plain, str_keys=True))


def _as_plain(value: object) -> object:
    """What JSON has no form for is shown as text."""
    dump = getattr(value, "model_dump", None)
    return dump() if dump else repr(value)


def _read_publication(topic: str, text: str) -> Publication:
    return Publication(topic, _read_json("--publish", topic, text))


def _read_call(name: str, text: str) -> Call:
    agent, _, method = name.partition(".")
    arguments = _read_json("--call", name, text)
    if not method:
        raise _misunderstood("--call", name, "it must be written as Agent.method")
    if not isinstance(arguments, dict):
        raise _misunderstood("--call", name, "the arguments must be a JSON object")
    return Call(agent, method, arguments)


def _read_json(option: str, name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise _misunderstood(option, name, f"{text!r} is not JSON ({error})") from None


def _misunderstood(option: str, name: str, reason: str) -> UsageError:
    return UsageError("GBE130", option=option, name=name, reason=reason, example=_EXAMPLES[option])
