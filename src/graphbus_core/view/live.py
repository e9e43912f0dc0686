"""The live view of a running graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from threading import Lock
from time import monotonic, time

from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import StoredLetter
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.metrics import HandlerMetrics
from graphbus_core.settings import project_info
from graphbus_core.view.comparing import Side
from graphbus_core.view.counting import Counting
from graphbus_core.view.letters import letter_id, list_letters, read_letters, show_letter
from graphbus_core.view.messages import (
    DeadLetterList,
    EventTree,
    Origin,
    Planned,
    Replayed,
    ReplayOrder,
    ReplayReport,
    Tick,
)
from graphbus_core.view.pages import ViewPages
from graphbus_core.view.project import ProjectSource
from graphbus_core.view.recorder import Recorder, choose_sample
from graphbus_core.view.records import MemoryRecords
from graphbus_core.view.trace_file import find_traces
from graphbus_core.view.trees import Known, Reveal, build_tree

_GOODBYE = "The graph has stopped."


class LiveView:
    """Shows a running graph; an implementation of `companion.GraphView`.

    Args:
        with_payloads: Record payloads, so that the page can show them.
        redacted: The keys of payloads whose values are never shown.

    Attributes:
        meter: The middleware that notes what the handlers do.
    """

    def __init__(self, *, with_payloads: bool = False, redacted: Sequence[str] = ()) -> None:
        self._with_payloads, self._redacted = with_payloads, tuple(redacted)
        self._records = MemoryRecords()
        self._recorder = Recorder(self._records, with_payloads=with_payloads, redacted=redacted)
        self.meter = HandlerMetrics(self._recorder.note, self._recorder.note_failure)

    def open(self, graph: LiveGraph) -> ViewPages:
        """Begin to show a graph that has started."""
        source = GraphSource(
            graph,
            self.meter,
            self._recorder,
            self._records,
            reveal=Reveal(is_recorded=self._with_payloads, redacted=self._redacted),
        )
        source.pulse.start()
        return ViewPages(source)


class GraphSource(ProjectSource):
    """A running graph as a source of the page.

    Args:
        graph: The graph; it was built.
        meter: Knows which handlers run.
        recorder: Gives the deliveries since the last tick.
        records: The deliveries of the past.
        reveal: What of the payloads may be shown.
    """

    def __init__(
        self, graph: LiveGraph, meter: HandlerMetrics, recorder: Recorder, records: MemoryRecords, *, reveal: Reveal
    ) -> None:
        if graph.origin is None:
            raise TypeError("only a graph that was built can be shown")
        folder = Path(graph.origin.config.artifacts_dir)
        origin = Origin(
            kind="run",
            name=project_info(folder.parent).title,
            server=token_hex(6),
            is_live=True,
            has_payloads=reveal.is_recorded,
            may_replay=True,
            redacted=tuple(reveal.redacted),
        )
        super().__init__(graph.origin.artifacts, folder, origin, records, reveal)
        self._graph, self._built = graph, graph.origin
        self._meter, self._recorder = meter, recorder
        self._counting = Counting(graph)
        recorder.root = str(self.root)
        self._shown = 0
        self._replaying = Lock()

    def close(self) -> None:
        """End all streams."""
        self.pulse.close(_GOODBYE)

    # --- the stream ---

    def tick(self, is_watched: bool, is_first: bool) -> Tick:
        """Return what has happened since the last call; without counts while nobody looks."""
        taken = self._recorder.take()
        sample = choose_sample(taken)
        statistics = self._graph.bus.statistics()
        # Deliveries are counted when they begin. Those that run are not left out.
        left_out = max(0, statistics.delivered - self._meter.running - self._shown - len(sample))
        self._shown += len(sample) + left_out
        return Tick(
            at=time(),
            deliveries=sample,
            left_out=left_out,
            first=taken[0].seq if taken else 0,
            last=taken[-1].seq if taken else 0,
            published=statistics.published,
            queued=statistics.queued,
            dead_letters=statistics.dead_letters,
            handlers=self._counting.counts(every=is_first) if is_watched else {},
        )

    # --- requests ---

    def left_out(self) -> dict[str, str]:
        """Return name -> why an agent does not run."""
        return {name: error.sentence for name, error in self._graph.left_out.items()}

    def sides(self) -> dict[str, Side]:
        """Return what can be compared: this run, and the traces in its state folder."""
        return {**find_traces(Path(self._built.config.state_dir)), "this run": self.records}

    def tree(self, event_id: str, *, with_payload: bool) -> EventTree:
        """Return the causal tree of an event; raise GBE685 if nothing is known of it."""
        found = self.records.tree(event_id)
        letters = self.letters()
        bus = self._graph.bus
        planned = bus.hosting.planned_attempts()
        running = [(run.handling.event, run.handling.name) for run in self._meter.runs() if run.handling.event]
        known = Known(
            events=[
                *bus.history(),
                *(each.letter.event for each in letters),
                *(each.event for each in planned),
                *(event for event, _ in running),
            ],
            planned=[
                Planned(
                    event_id=each.event.event_id,
                    handler=each.subscription.name,
                    attempt=each.attempt,
                    at=time() + each.at - monotonic(),
                    error=each.error,
                )
                for each in planned
            ],
            letters=[show_letter(each.letter, self.root, each.replays) for each in letters],
            running=[(event.event_id, name) for event, name in running],
        )
        return build_tree(event_id, found, known, self.reveal._replace(is_asked=with_payload))

    # --- dead letters ---

    def dead_letters(self, *, is_trusted: bool) -> DeadLetterList:
        """Return the dead letters that are kept, newest first."""
        counted, letters = -1, []
        for _ in range(3):  # until none has come while they were read
            before, counted = counted, self._graph.bus.statistics().dead_letters
            if counted == before:
                break
            letters = self.letters()
        return list_letters(letters, root=self.root, may_replay=is_trusted, counted=counted)

    def letters(self) -> list[StoredLetter]:
        """Return the letters of the bus and those of the file that the bus does not have, each once."""
        found = {letter_id(each.letter): each for each in read_letters(Path(self._built.config.state_dir))}
        for letter in self._graph.bus.dead_letters():
            stored = found.get(letter_id(letter))
            replays = 0 if stored is None else stored.replays
            found[letter_id(letter)] = StoredLetter(id=0, letter=letter, replays=replays, has_payload=True)
        return list(found.values())

    def replay(self, order: ReplayOrder) -> ReplayReport:
        """Deliver dead letters again, one after the other, and wait for what comes of each."""
        with self._replaying:
            letters = {letter_id(each.letter): each for each in self.letters()}
            names = list(letters) if order.every else list(dict.fromkeys(order.ids))
            return ReplayReport(replayed=tuple(self._replay_one(name, letters.get(name)) for name in names))

    def _replay_one(self, name: str, stored: StoredLetter | None) -> Replayed:
        """Replay one letter; raise GBE615 if the graph stops meanwhile."""
        if stored is None or not stored.has_payload:
            return Replayed(id=name, outcome="gone", before="" if stored is None else stored.letter.error)
        before = stored.letter.error
        try:
            died = self._graph.replay_dead_letters([stored.letter])
        except RunError as error:
            if error.code != "GBE649":
                raise
            return Replayed(id=name, outcome="gone", before=before, after=error.sentence)
        if died:
            return Replayed(id=name, outcome="failed_again", before=before, after=died[-1].error)
        return Replayed(id=name, outcome="handled", before=before)
