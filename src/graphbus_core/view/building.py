"""A negotiation that is going on as a source of the page: it listens to the bus, and so cannot influence what comes of it."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from threading import Event as Signal
from time import time

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import History, describe_project
from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.hosting.serving.pages import Asked
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.messages import Event
from graphbus_core.view.messages import (
    DeadLetterList,
    Delivery,
    DeliveryPage,
    EventTree,
    Hello,
    NegotiationPicture,
    Origin,
    ReplayOrder,
    ReplayReport,
    Tick,
)
from graphbus_core.view.negotiation import Board
from graphbus_core.view.project import ProjectSource, origin_for
from graphbus_core.view.pulse import WATCHED_S, Pulse
from graphbus_core.view.recorder import SAMPLE
from graphbus_core.view.records import MemoryRecords, Query
from graphbus_core.view.trees import Known, Reveal, build_tree

_LINGER_S = 2.0
"""How long a build waits at its end for the pages that look at it to fetch the outcome."""
_GOODBYE = "The command has ended. `graphbus view{session}` shows the session again."
_NOTHING_RUNS = "Nothing runs during a build, so nothing fails."
_LISTENER = "(negotiation)"


class BuildSource(ProjectSource):
    """A build with agents, or a negotiation.

    Args:
        config: Its configuration.
    """

    def __init__(self, config: ResolvedBuild) -> None:
        super().__init__(describe_project(Project.read(config), History()), Path(config.artifacts_dir))
        self.origin = Origin(
            kind="negotiation",
            name=Path(config.root).name,
            server=token_hex(6),
            is_live=True,
            has_payloads=True,
        )
        self._board, self._records = Board(config.settings.budget.max_usd), MemoryRecords()
        self._fresh: list[Delivery] = []
        self._seen_changes = self._published = 0
        self._asked_since_end = Signal()
        self.pulse = Pulse(self.origin.server, self._hello, self._tick)
        self.follow = self.pulse.follow

    def listen(self, event: Event) -> None:
        """Take an event of the negotiation; a handler of `negotiation.TOPICS`."""
        self._board.add(event.topic, event.payload)
        self._published += 1
        self._fresh.append(self._records.add(_trace_of(event)))

    def close(self) -> None:
        """Wait until those who look have fetched the outcome, for a short time, and end all streams."""
        if self.pulse.is_watched:
            self._asked_since_end.clear()
            self._asked_since_end.wait(_LINGER_S)
        session = self._board.picture().session
        self.pulse.close(_GOODBYE.format(session=f" {session}" if session else ""), may_return=False)

    def _hello(self, asked: Asked) -> Hello:
        oldest, newest = self._records.bounds()
        origin = origin_for(self.origin, is_trusted=asked.is_trusted)
        return Hello(origin=origin, oldest=oldest, newest=newest, interval_s=WATCHED_S)

    def _tick(self, is_watched: bool, is_first: bool) -> Tick:
        del is_watched
        fresh, self._fresh = self._fresh, []
        has_changed = self._board.changes != self._seen_changes
        self._seen_changes = self._board.changes
        return Tick(
            at=time(),
            deliveries=tuple(fresh[-SAMPLE:]),
            left_out=max(0, len(fresh) - SAMPLE),
            first=fresh[0].seq if fresh else 0,
            last=fresh[-1].seq if fresh else 0,
            published=self._published,
            queued=0,
            dead_letters=0,
            handlers={},
            negotiation=has_changed or is_first,
        )

    def deliveries(self, query: Query) -> DeliveryPage:
        """Return the events of the negotiation so far."""
        return self._records.page(query)

    def tree(self, event_id: str, *, with_payload: bool) -> EventTree:
        """Return one event of the negotiation; raise GBE685 if there is none with this id."""
        reveal = Reveal(is_asked=with_payload, is_recorded=True)
        return build_tree(event_id, self._records.tree(event_id), Known(), reveal)

    def dead_letters(self, *, is_trusted: bool) -> DeadLetterList:
        """Return none."""
        del is_trusted
        return DeadLetterList(letters=(), total=0, may_replay=False, note=_NOTHING_RUNS)

    def replay(self, order: ReplayOrder) -> ReplayReport:
        """Refuse: nothing runs here."""
        del order
        raise RunError("GBE694", reason="no graph runs here", advice=_NOTHING_RUNS)

    def negotiation(self, session: str) -> NegotiationPicture:
        """Return the negotiation so far, or a session of the past."""
        picture = self._board.picture()
        self._asked_since_end.set()
        if session and session != picture.session:
            return super().negotiation(session)
        return picture if picture.state != "none" else msgspec.structs.replace(picture, note="It has not begun yet.")


def _trace_of(event: Event) -> TracedDelivery:
    """Return an event of a negotiation as a delivery to us."""
    return TracedDelivery(
        event_id=event.event_id,
        causation_id=event.causation_id,
        correlation_id=event.correlation_id,
        topic=event.topic,
        src=str(event.get("agent", "")),
        published_by="",
        published=event.timestamp,
        handler=_LISTENER,
        attempt=1,
        started=event.timestamp,
        duration_s=0.0,
        outcome="done",
        payload=msgspec.json.encode(event.payload).decode(),
    )
