"""`graphbus dlq replay`: the graph is started, each letter delivered again, and the file told what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import DeadLetterFile, Keeper, KeptLetter
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.replaying import find_subscription, replay
from graphbus_core.hosting.signals import Stopped, stop_on_signals
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest
from graphbus_core.model.deliveries import DeadLetter

_FAILED = RunError.exit_status


class Outcome(NamedTuple):
    """What came of one letter.

    Attributes:
        number: Of the letter.
        where: Topic and handler.
        error: Empty when it was handled.
    """

    number: int
    where: str
    error: str


def replay_letters(
    file: DeadLetterFile, numbers: Sequence[int], artifacts: str, *, allow_drift: bool, as_json: bool
) -> int:
    """Replay letters one after the other and say what came of each; gives the exit status.

    Raises:
        GraphBusError: What `graphbus run` refuses; then nothing was delivered.
    """
    outcomes: list[Outcome] = []

    def work(graph: LiveGraph) -> None:
        if graph.bus.keeper is None:  # what dies of a replay is kept, whatever the project says of other runs
            keeper = Keeper(file.path)
            graph.bus.keeper = keeper
            graph.at_end(keeper.close)
        for number in numbers:
            outcomes.append(_replay(graph, file, number))
            if not as_json:
                console.out(_line(outcomes[-1]))

    request = RuntimeRequest(artifacts=artifacts, allow_drift=allow_drift)
    try:
        with show_logs(), stop_on_signals() as patience:

            def on_ready(graph: LiveGraph, _artifacts: BuildArtifacts) -> None:
                runtime.spare_handlers(patience, graph)

            runtime.run_runtime_pipeline(request, on_ready=on_ready, work=work)
    except Stopped as stopped:
        _conclude(outcomes, len(numbers), as_json=as_json)
        return stopped.exit_status
    _conclude(outcomes, len(numbers), as_json=as_json)
    return _FAILED if any(outcome.error for outcome in outcomes) else 0


def _replay(graph: LiveGraph, file: DeadLetterFile, number: int) -> Outcome:
    kept = file.find(number)  # one at a time: each may be large, and somebody may drop it meanwhile
    if kept is None:
        return Outcome(number, "", "it was dropped meanwhile")
    where = f"{kept.letter.event.topic} > {kept.letter.subscription or 'all handlers'}"
    return Outcome(number, where, _deliver(graph, file, kept))


def _deliver(graph: LiveGraph, file: DeadLetterFile, kept: KeptLetter) -> str:
    """Deliver a letter, write down what came of it, and give what went wrong."""
    if not kept.has_payload:
        return "its payload was no JSON and could not be kept"
    try:
        find_subscription(graph.bus, kept.letter)
    except RunError as gone:
        return gone.sentence.rstrip(".")
    file.begin_replay(kept.id)
    died = replay(graph.bus, kept.letter, graph.wait_for)
    file.end_replay(kept, died)
    return _tell(died)


def _tell(died: Sequence[DeadLetter]) -> str:
    """What went wrong, in one line; nothing when nothing did."""
    return "; ".join(dict.fromkeys(letter.error for letter in died))


def _line(outcome: Outcome) -> str:
    if not outcome.error:
        return f"{console.paint('✓', 'good')} {outcome.number}  {console.plain(outcome.where)}"
    told = ": ".join(filter(None, (console.plain(outcome.where), console.plain(outcome.error))))
    return f"{console.paint('✗', 'bad')} {outcome.number}  {told}"


def _conclude(outcomes: Sequence[Outcome], asked: int, *, as_json: bool) -> None:
    failed = [outcome for outcome in outcomes if outcome.error]
    handled = len(outcomes) - len(failed)
    if as_json:
        document: dict[str, Any] = {
            "replayed": [outcome.number for outcome in outcomes if not outcome.error],
            "failed": [{"id": outcome.number, "error": outcome.error} for outcome in failed],
            "not_tried": asked - len(outcomes),
        }
        console.emit_json(document)
        return
    parts = [f"{handled} handled and removed"]
    parts += [f"{len(failed)} failed and kept"] if failed else []
    parts += [f"{asked - len(outcomes)} not tried"] if asked > len(outcomes) else []
    console.say(f"{', '.join(parts)}.")
