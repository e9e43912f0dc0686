"""A negotiation that is going on as a source of the page: it listens to the bus, and so cannot influence what comes of it."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from threading import Event as Signal
from time import time

import msgspec

from graphbus_core.compiler.project import Project
from graphbus_core.compiler.stages import History, describe_project
from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.messages import Event
from graphbus_core.view.messages import (
    Delivery,
    NegotiationPicture,
    Origin,
    Tick,
)
from graphbus_core.view.negotiation import Board
from graphbus_core.view.project import ProjectSource
from graphbus_core.view.recorder import SAMPLE
from graphbus_core.view.records import MemoryRecords
from graphbus_core.view.trees import Reveal

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

    records: MemoryRecords
    no_replay = _NOTHING_RUNS

    def __init__(self, config: ResolvedBuild) -> None:
        origin = Origin(
            kind="negotiation",
            name=Path(config.root).name,
            server=token_hex(6),
            is_live=True,
            has_payloads=True,
        )
        artifacts = describe_project(Project.read(config), History())
        super().__init__(artifacts, config.artifacts_dir, origin, MemoryRecords(), Reveal(is_recorded=True))
        self._board = Board(config.settings.budget.max_usd)
        self._fresh: list[Delivery] = []
        self._seen_changes = self._published = 0
        self._asked_since_end = Signal()

    def listen(self, event: Event) -> None:
        """Take an event of the negotiation; a handler of `negotiation.TOPICS`."""
        self._board.add(event.topic, event.payload)
        self._published += 1
        self._fresh.append(self.records.add(_trace_of(event)))

    def close(self) -> None:
        """Wait until those who look have fetched the outcome, for a short time, and end all streams."""
        if self.pulse.is_watched:
            self._asked_since_end.clear()
            self._asked_since_end.wait(_LINGER_S)
        session = self._board.picture().session
        self.pulse.close(_GOODBYE.format(session=f" {session}" if session else ""), may_return=False)

    def tick(self, is_watched: bool, is_first: bool) -> Tick:
        """Return the events of the negotiation since the last call."""
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
            negotiation=has_changed or is_first,
        )

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
