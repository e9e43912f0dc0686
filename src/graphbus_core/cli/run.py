"""`graphbus run`: the six stages of Runtime Mode, with work to do or until a signal."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import click
import msgspec

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.errors import GraphBusError, RunError, UsageError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.imports import describe_exception
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import Stopped, stop_on_signals, wait_for_signal
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest

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


@click.command("run", short_help="Run the graph as plain Python.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--entrypoint", default="", metavar="MODULE:FUNCTION", help="Call this function with the running graph.")
@click.option(
    "--call",
    "calls",
    nargs=2,
    multiple=True,
    metavar="AGENT.METHOD JSON",
    help="Call a @schema_method and print its result; may be repeated.",
)
@click.option(
    "--publish",
    "publications",
    nargs=2,
    multiple=True,
    metavar="TOPIC JSON",
    help="Publish an event; may be repeated. Events come before calls.",
)
@click.option(
    "--validation",
    type=click.Choice(["strict", "warn", "off"]),
    help="What happens to what does not fit its schema: refused (strict), logged, or not looked at.",
)
@click.option("--allow-drift", is_flag=True, help="Start although source files differ from what was built.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def run(
    *,
    artifacts: str,
    entrypoint: str,
    calls: tuple[tuple[str, str], ...],
    publications: tuple[tuple[str, str], ...],
    validation: Any,
    allow_drift: bool,
    as_json: bool,
) -> int:
    """Run the graph that a build has written to ARTIFACTS, a folder (.graphbus by default). No model is asked.

    With --entrypoint, --call or --publish it does that, delivers everything that comes of it and ends; else it stays up
    until SIGTERM or Ctrl-C, delivers what waits, stops the agents and ends with 0.

    Exit status: 0 done; 6 the artifacts are damaged or outdated; 7 the graph cannot start, a call or an event was
    refused, or a handler failed (not while it stays up: then a failure is logged and counted); 130 and 143 when a
    signal came before the work was done.

    \b
    Examples:
      graphbus run
      graphbus run .graphbus/ --publish /Order/Placed '{"order_id": "1", "items": []}'
      graphbus run .graphbus/ --call OrderProcessor.process_order '{"order_id": "1", "items": []}'
      graphbus run .graphbus/ --entrypoint my_shop.main:run
    """
    work = _Work(
        [_read_publication(*each) for each in publications], [_read_call(*each) for each in calls], as_json=as_json
    )
    request = RuntimeRequest(artifacts=artifacts, entrypoint=entrypoint, allow_drift=allow_drift, validation=validation)
    with show_logs():
        return _run(request, work)


class _Work:
    """What to do with the running graph, and what came of it so far."""

    def __init__(self, publications: list[Publication], calls: list[Call], *, as_json: bool) -> None:
        self.publications = publications
        self.calls = calls
        self.as_json = as_json
        self.results: list[dict[str, Any]] = []

    def do(self, graph: LiveGraph) -> None:
        for publication in self.publications:
            graph.publish(publication.topic, publication.payload)
        for call in self.calls:
            result = _plain(_call(graph, call))
            self.results.append({"agent": call.agent, "method": call.method, "result": result})
            if not self.as_json:
                console.out(msgspec.json.encode(result).decode())


def _run(request: RuntimeRequest, work: _Work) -> int:
    has_work = bool(work.calls or work.publications)
    stays_up = not has_work and not request.entrypoint
    try:
        with stop_on_signals() as patience:

            def on_ready(graph: LiveGraph, artifacts: BuildArtifacts) -> None:
                for line in runtime.ready_lines(artifacts):
                    (console.say if work.as_json else console.out)(line)
                console.flush()
                runtime.spare_handlers(patience, graph)

            result = runtime.run_runtime_pipeline(
                request,
                on_ready=on_ready,
                before=work.do if has_work else None,
                work=_stay_up if stays_up else None,
            )
    except Stopped as stopped:
        if work.as_json:
            console.emit_json({"calls": work.results, "stopped_by": stopped.number})
        return stopped.exit_status if has_work else 0
    if work.as_json:
        console.emit_json(_document(work, result))
    runtime.raise_for_dead_letters(result)
    return 0


def _call(graph: LiveGraph, call: Call) -> Any:
    """The result; an exception of the user's method becomes a refusal that names its line."""
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


def _stay_up(_graph: LiveGraph) -> None:
    wait_for_signal()


def _document(work: _Work, result: runtime.RuntimeResult) -> dict[str, Any]:
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
        "calls": work.results,
        "entrypoint": _plain(result.value),
        "statistics": result.statistics,
        "dead_letters": letters,
    }


def _plain(value: object) -> Any:
    """The value as JSON can show it."""
    plain, error = attempt(lambda: msgspec.to_builtins(value, enc_hook=_as_plain, str_keys=True))
    return repr(value) if error else plain


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
