"""`graphbus dlq replay`: start the graph, deliver each letter again, and write the result to the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import DeadLetterFile, Keeper, KeptLetter, Replays, find_subscription
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import Stopped, stop_on_signals
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.model.deliveries import DeadLetter

_FAILED = RunError.exit_status


class Outcome(NamedTuple):
    """The result of one letter.

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
    """Replay letters, the oldest first, and print each result; gives the exit status.

    Raises:
        GraphBusError: What `graphbus run` refuses; then nothing was delivered.
    """
    replaying = _Replaying(file, print_line=None if as_json else lambda outcome: console.out(_line(outcome)))
    request = RuntimeConfig(artifacts=artifacts, allow_drift=allow_drift)
    status: int | None = None
    try:
        with show_logs(), stop_on_signals() as patience:

            def on_ready(graph: LiveGraph, _artifacts: BuildArtifacts) -> None:
                runtime.spare_handlers(patience, graph)

            runtime.run_runtime_pipeline(request, on_ready=on_ready, work=lambda graph: replaying.run(graph, numbers))
    except Stopped as stopped:
        status = stopped.exit_status
    finally:
        replaying.note_finished()  # during the grace
    outcomes = replaying.outcomes
    _conclude(outcomes, len(numbers), replaying.unfinished, as_json=as_json)
    if status is None:
        status = _FAILED if any(outcome.error for outcome in outcomes) else 0
    return status


class _Replaying:
    """Letters of the file that are being delivered, and the results so far."""

    def __init__(self, file: DeadLetterFile, print_line: Callable[[Outcome], None] | None) -> None:
        self._file = file
        self._print_line = print_line
        self._running: dict[int, KeptLetter] = {}
        self._replays: Replays | None = None
        self.outcomes: list[Outcome] = []

    @property
    def unfinished(self) -> int:
        """How many letters have begun and have no result."""
        return len(self._running)

    def run(self, graph: LiveGraph, numbers: Sequence[int]) -> None:
        """Deliver them, and wait for the results."""
        if graph.bus.keeper is None:  # what dies of a replay is kept, whatever the project says of other runs
            keeper = Keeper(self._file.path)
            graph.bus.keeper = keeper
            graph.at_end(keeper.close)
        self._replays = Replays(graph.bus, graph, self._note)
        for number in numbers:
            self._deliver(graph, self._replays, number)
        self._replays.wait()

    def note_finished(self) -> None:
        """Write down the results that there are."""
        if self._replays is not None:
            self._replays.note_finished()

    def _note(self, letter: DeadLetter, died: Sequence[DeadLetter]) -> None:
        kept = self._running.pop(id(letter))
        self._file.end_replay(kept, died)
        self._add(kept.id, _where(kept), "; ".join(dict.fromkeys(each.error for each in died)))

    def _deliver(self, graph: LiveGraph, replays: Replays, number: int) -> None:
        kept = self._file.find(number)  # one at a time: each may be large, and may be dropped in between
        if kept is None:
            self._add(number, "", "it was dropped meanwhile")
            return
        try:
            find_subscription(graph.bus, kept.letter)
        except RunError as gone:
            self._add(number, _where(kept), gone.sentence.rstrip("."))
            return
        if not kept.has_payload:
            self._add(number, _where(kept), "its payload was no JSON and could not be kept")
            return
        self._file.begin_replay(number)
        self._running[id(kept.letter)] = kept
        replays.deliver(kept.letter)

    def _add(self, number: int, where: str, error: str) -> None:
        self.outcomes.append(Outcome(number, where, error))
        if self._print_line is not None:
            self._print_line(self.outcomes[-1])


def _where(kept: KeptLetter) -> str:
    return f"{kept.letter.event.topic} > {kept.letter.subscription or 'all handlers'}"


def _line(outcome: Outcome) -> str:
    if not outcome.error:
        return f"{console.paint('✓', 'good')} {outcome.number}  {console.plain(outcome.where)}"
    told = ": ".join(filter(None, (console.plain(outcome.where), console.plain(outcome.error))))
    return f"{console.paint('✗', 'bad')} {outcome.number}  {told}"


def _conclude(outcomes: Sequence[Outcome], asked: int, unfinished: int, *, as_json: bool) -> None:
    failed = [outcome for outcome in outcomes if outcome.error]
    handled = len(outcomes) - len(failed)
    not_tried = asked - len(outcomes) - unfinished
    if as_json:
        document: dict[str, Any] = {
            "replayed": [outcome.number for outcome in outcomes if not outcome.error],
            "failed": [{"id": outcome.number, "error": outcome.error} for outcome in failed],
            "unfinished": unfinished,
            "not_tried": not_tried,
        }
        console.emit_json(document)
        return
    parts = [f"{handled} handled and removed"]
    parts += [f"{len(failed)} failed and kept"] if failed else []
    parts += [f"{unfinished} stopped before the end and kept"] if unfinished else []
    parts += [f"{not_tried} not tried"] if not_tried else []
    console.say(f"{', '.join(parts)}.")
