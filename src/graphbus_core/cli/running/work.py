"""The events and calls that `graphbus run` makes on a running graph, and their results."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from graphbus_core import strict_json
from graphbus_core.cli import console
from graphbus_core.errors import GraphBusError, RunError, UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.isolation import attempt
from graphbus_core.runtime import RuntimeResult
from graphbus_core.schema.values import has_nan_or_infinity

_EXAMPLES = {
    "--call": """OrderProcessor.process_order '{"order_id": "1", "items": []}'""",
    "--publish": """/Order/Placed '{"order_id": "1", "items": []}'""",
}

_log = logging.getLogger("graphbus.runtime")


class OneShot:
    """The events and calls of the command line, and the results of the calls so far. It is false if there are none.

    Args:
        publications: `--publish`: topic and JSON.
        calls: `--call`: `Agent.method` and JSON.
        as_json: Do not print each result; `document` returns all.

    Raises:
        UsageError: GBE130 for an event or call that is not valid.
    """

    def __init__(
        self, publications: Sequence[tuple[str, str]], calls: Sequence[tuple[str, str]], *, as_json: bool
    ) -> None:
        self.results: list[dict[str, Any]] = []
        self._publications = [(topic, _read_json("--publish", topic, text)) for topic, text in publications]
        self._calls = [_read_call(*each) for each in calls]
        self._as_json = as_json

    def __bool__(self) -> bool:
        return bool(self._publications or self._calls)

    def document(self, result: RuntimeResult) -> dict[str, Any]:
        """Return the JSON document of a run: results of calls and entry point, statistics and dead letters."""
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
            "entrypoint": to_json_value(result.value),
            "statistics": result.statistics,
            "dead_letters": letters,
        }

    def do(self, graph: LiveGraph) -> None:
        """Publish the events, then make the calls and print their results."""
        for topic, payload in self._publications:
            graph.publish(topic, payload)
        for agent, method, arguments in self._calls:
            result = _call_method(graph, agent, method, arguments)
            self.results.append({"agent": agent, "method": method, "result": result})
            if not self._as_json:
                console.print_line(console.Verbatim(msgspec.json.encode(result).decode()))


def _call_method(graph: LiveGraph, agent: str, method: str, arguments: dict[str, Any]) -> Any:
    """Return the result of a call as a JSON value.

    Raises:
        RunError: GBE625 for an exception of the method, with its line; GBE623 for NaN, which JSON cannot represent;
            and what `LiveGraph.call` raises.
    """
    result, error = attempt(lambda: graph.call_with_json(agent, method, arguments))
    if isinstance(error, GraphBusError):
        raise error
    if error is not None:
        _log.error("the call of %s.%s failed", agent, method, exc_info=error)
        place, reason = graph.place_of(error), describe_exception(error)
        raise RunError("GBE625", where=place, agent=agent, method=method, reason=reason) from error
    if has_nan_or_infinity(attempt(lambda: _to_json_types(result))[0]):
        reason = "it contains NaN or Infinity, which JSON cannot represent"
        raise RunError("GBE623", agent=agent, method=method, reason=reason)
    return to_json_value(result)


def to_json_value(value: object) -> Any:
    """Convert a value to JSON types. If it has none, or contains NaN or Infinity, its `repr` is returned."""
    plain, error = attempt(lambda: _to_json_types(value))
    return repr(value) if error or has_nan_or_infinity(plain) else plain


def _to_json_types(value: object) -> Any:
    """Convert a value to JSON types, with keys as strings; NaN and Infinity stay floats."""
    return msgspec.to_builtins(value, enc_hook=_to_plain_value, str_keys=True)


def _to_plain_value(value: object) -> object:
    """Return the fields of a pydantic model, and the `repr` of any other object without a JSON form."""
    dump = getattr(value, "model_dump", None)
    return dump() if dump else repr(value)


def _read_call(name: str, text: str) -> tuple[str, str, dict[str, Any]]:
    """Parse a `--call`: return the agent, the method and its arguments; raise GBE130 if it is not valid."""
    agent, _, method = name.partition(".")
    arguments = _read_json("--call", name, text)
    if not method:
        raise _invalid_option("--call", name, "the method must be written as Agent.method")
    if not isinstance(arguments, dict):
        raise _invalid_option("--call", name, "the arguments must be a JSON object")
    return agent, method, arguments


def _read_json(option: str, name: str, text: str) -> Any:
    """Parse the JSON that follows an option and a name, e.g. `--publish TOPIC JSON`; raise GBE130 if it is not valid."""
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise _invalid_option(option, name, f"{text!r} is not JSON ({error})") from None


def _invalid_option(option: str, name: str, reason: str) -> UsageError:
    """Return GBE130, whose hint has an example of the option."""
    return UsageError("GBE130", option=option, name=name, reason=reason, example=f"{option} {_EXAMPLES[option]}")


def stopping_places(graph: LiveGraph) -> Iterator[str]:
    """Yield each `Agent.method` at which a debugger can stop: handlers and `@schema_method`s."""
    yield from (subscription.name for subscription in graph.bus.subscriptions)
    for agent in graph.origin.artifacts.agents.agents if graph.origin else ():
        yield from (f"{agent.name}.{method.name}" for method in agent.methods if method.has_schema)
