"""`graphbus dlq replay`: start the graph, deliver each letter again, and remove it or store its new failure."""

from __future__ import annotations

from collections.abc import Sequence

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.console import sanitize, style
from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import (
    DeadLetterFile,
    DeadLetterKeeper,
    Replayer,
    StoredLetter,
    find_subscription,
)
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.logs import show_logs
from graphbus_core.hosting.signals import StopRequested, stop_on_signals
from graphbus_core.model.config import RuntimeConfig
from graphbus_core.model.deliveries import DeadLetter


class DeadLetterReplay:
    """Delivers selected dead letters again, and stores and prints the results.

    Args:
        file: The file from which the letters are read, and in which the results are stored.
        numbers: The IDs of the letters, in the order of delivery.
        as_json: Print one JSON document at the end instead of a line for each letter.
    """

    def __init__(self, file: DeadLetterFile, numbers: Sequence[int], *, as_json: bool) -> None:
        self._file = file
        self._numbers = numbers
        self._as_json = as_json
        self._running: dict[int, StoredLetter] = {}
        self._replayer: Replayer | None = None
        self._handled: list[int] = []
        self._failed: dict[int, str] = {}

    def run(self, artifacts: str, *, allow_drift: bool) -> int:
        """Start the graph, deliver the letters, print each result, and return the exit status.

        Raises:
            GraphBusError: The graph cannot start; nothing was delivered.
        """
        status = None
        try:
            with show_logs(), stop_on_signals() as patience:
                runtime.run_runtime_pipeline(
                    RuntimeConfig(artifacts=artifacts, allow_drift=allow_drift),
                    on_ready=lambda graph, _artifacts: runtime.let_handlers_finish(patience, graph),
                    work=self._deliver_all,
                )
        except StopRequested as stopped:
            status = stopped.exit_status
        finally:
            if self._replayer is not None:
                self._replayer.note_finished()  # stores the results of handlers that finished after a signal
        self._print_totals()
        return (RunError.exit_status if self._failed else 0) if status is None else status

    def _deliver_all(self, graph: LiveGraph) -> None:
        """Deliver the letters one after the other, and wait until all their handlers have finished."""
        # Letters that fail again are stored even if the settings do not ask for it.
        if not isinstance(graph.bus.hosting.letters.keeper, DeadLetterKeeper):
            keeper = DeadLetterKeeper(self._file.path)
            graph.bus.hosting.letters.keeper = keeper
            graph.at_end(keeper.close)
        self._replayer = Replayer(graph, self._store_result)
        for number in self._numbers:
            kept = self._file.find(number)  # one at a time: letters may be large, or dropped by another process
            if kept is None:
                self._record_result(number, "", "it was dropped in the meantime")
            elif error := _find_obstacle(graph, kept):
                self._record_result(number, _describe_delivery(kept), error)
            else:
                self._file.begin_replay(number)
                self._running[id(kept.letter)] = kept
                self._replayer.deliver(kept.letter)
        self._replayer.wait()

    def _store_result(self, letter: DeadLetter, died: Sequence[DeadLetter]) -> None:
        """Store and print the result of a letter; `died` holds its new dead letters, none if it was handled."""
        kept = self._running.pop(id(letter))
        self._file.end_replay(kept, died)
        self._record_result(kept.id, _describe_delivery(kept), "; ".join(dict.fromkeys(each.error for each in died)))

    def _record_result(self, number: int, where: str, error: str) -> None:
        """Record the result of one letter and, without `--json`, print it; an empty error means that it was handled."""
        if error:
            self._failed[number] = error
        else:
            self._handled.append(number)
        if not self._as_json:
            sign = style("✗", "bad") if error else style("✓", "good")
            console.print_line(f"{sign} {number}  {sanitize(': '.join(filter(None, (where, error))))}")

    def _print_totals(self) -> None:
        """Print how many letters were handled, failed or not finished, or the JSON document."""
        unfinished = len(self._numbers) - len(self._handled) - len(self._failed)
        if self._as_json:
            failed = [{"id": number, "error": error} for number, error in self._failed.items()]
            console.emit_json({"replayed": self._handled, "failed": failed, "unfinished": unfinished})
            return
        parts = [f"{len(self._handled)} handled and removed"]
        parts += [f"{len(self._failed)} failed and kept"] if self._failed else []
        parts += [f"{unfinished} not finished and kept"] if unfinished else []
        console.print_note(f"{', '.join(parts)}.")


def _find_obstacle(graph: LiveGraph, kept: StoredLetter) -> str:
    """Return why a letter cannot be delivered; empty if it can."""
    try:
        find_subscription(graph.bus, kept.letter)
    except RunError as gone:
        return gone.sentence.rstrip(".")
    return "" if kept.has_payload else "its payload was not JSON, so it was not stored"


def _describe_delivery(kept: StoredLetter) -> str:
    """Return `topic > handler` of a letter; a letter that had reached no handler goes to all of them."""
    return f"{kept.letter.event.topic} > {kept.letter.subscription or 'all handlers'}"
