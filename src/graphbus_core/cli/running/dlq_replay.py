"""`graphbus dlq replay`: start the graph, deliver each letter again, and write the result to the file."""

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
    """Delivers selected dead letters again, and stores and prints the results."""

    def __init__(self, file: DeadLetterFile, numbers: Sequence[int], *, as_json: bool) -> None:
        self._file = file
        self._numbers = numbers
        self._as_json = as_json
        self._running: dict[int, StoredLetter] = {}
        self._replays: Replayer | None = None
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
            if self._replays is not None:
                self._replays.note_finished()  # during the grace
        self._conclude()
        return (RunError.exit_status if self._failed else 0) if status is None else status

    def _deliver_all(self, graph: LiveGraph) -> None:
        if not isinstance(
            graph.bus.keeper, DeadLetterKeeper
        ):  # letters that fail again are always stored, whatever the settings say
            keeper = DeadLetterKeeper(self._file.path)
            graph.bus.keeper = keeper
            graph.at_end(keeper.close)
        self._replays = Replayer(graph, self._note)
        for number in self._numbers:
            kept = self._file.find(
                number
            )  # loaded one at a time: each may be large, and may be dropped in the meantime
            if kept is None:
                self._tell(number, "", "it was dropped meanwhile")
            elif error := _why_not(graph, kept):
                self._tell(number, _where(kept), error)
            else:
                self._file.begin_replay(number)
                self._running[id(kept.letter)] = kept
                self._replays.deliver(kept.letter)
        self._replays.wait()

    def _note(self, letter: DeadLetter, died: Sequence[DeadLetter]) -> None:
        kept = self._running.pop(id(letter))
        self._file.end_replay(kept, died)
        self._tell(kept.id, _where(kept), "; ".join(dict.fromkeys(each.error for each in died)))

    def _tell(self, number: int, where: str, error: str) -> None:
        if error:
            self._failed[number] = error
        else:
            self._handled.append(number)
        if not self._as_json:
            sign = style("✗", "bad") if error else style("✓", "good")
            console.print_line(f"{sign} {number}  {sanitize(': '.join(filter(None, (where, error))))}")

    def _conclude(self) -> None:
        unfinished = len(self._numbers) - len(self._handled) - len(self._failed)
        if self._as_json:
            failed = [{"id": number, "error": error} for number, error in self._failed.items()]
            console.emit_json({"replayed": self._handled, "failed": failed, "unfinished": unfinished})
            return
        parts = [f"{len(self._handled)} handled and removed"]
        parts += [f"{len(self._failed)} failed and kept"] if self._failed else []
        parts += [f"{unfinished} stopped before the end and kept"] if unfinished else []
        console.print_note(f"{', '.join(parts)}.")


def _why_not(graph: LiveGraph, kept: StoredLetter) -> str:
    """Return why a letter cannot be delivered; empty if it can."""
    try:
        find_subscription(graph.bus, kept.letter)
    except RunError as gone:
        return gone.sentence.rstrip(".")
    return "" if kept.has_payload else "its payload was no JSON and could not be kept"


def _where(kept: StoredLetter) -> str:
    return f"{kept.letter.event.topic} > {kept.letter.subscription or 'all handlers'}"
