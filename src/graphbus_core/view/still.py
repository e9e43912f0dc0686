"""What is recorded as a source of the page: the artifacts of a build, a session, or a trace, which is followed if it grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from time import time

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.hosting.dead_letters import StoredLetter
from graphbus_core.hosting.serving.pages import Asked, Send
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.view.comparing import Side
from graphbus_core.view.letters import find_places, list_letters, read_letters
from graphbus_core.view.messages import (
    Bye,
    DeadLetterList,
    DeliveryPage,
    EventTree,
    GraphPicture,
    Hello,
    NegotiationPicture,
    Origin,
    ReplayOrder,
    ReplayReport,
    SourceKind,
    Tick,
)
from graphbus_core.view.project import ProjectSource, origin_for
from graphbus_core.view.pulse import WATCHED_S, Pulse, encode_part
from graphbus_core.view.records import MemoryRecords, Query
from graphbus_core.view.trace_file import Appended, FileRecords, Growth
from graphbus_core.view.trees import Known, Reveal, build_tree

_NO_TRACE = "No trace was recorded here: `graphbus run --trace` writes one."
_READ_ONLY = "Dead letters are replayed by `graphbus dlq replay`, or on the page of a graph that runs."
_GOODBYE = "This does not change: nothing more will come."
_CLOSED = "The view has ended."


class StillSource(ProjectSource):
    """A trace, artifacts or a session.

    Args:
        kind: What of it is shown first.
        name: Its name for people.
        artifacts: The graph.
        folder: The folder of the artifacts.
        records: The trace; None if there is none.
        state_dir: Where the dead letters are; None if that is not known.
        sides: What can be compared.
        session: The session that is shown first; empty: the last one.
        redacted: The keys of payloads whose values are never shown.
        note: What is wrong with it.
    """

    def __init__(
        self,
        kind: SourceKind,
        name: str,
        artifacts: Artifacts,
        folder: str | Path,
        *,
        records: FileRecords | None = None,
        state_dir: Path | None = None,
        sides: Mapping[str, Side] | None = None,
        session: str = "",
        redacted: Sequence[str] = (),
        note: str = "",
    ) -> None:
        super().__init__(artifacts, folder)
        problem = records.problem() if records is not None else "" if kind == "negotiation" else _NO_TRACE
        is_shown = records is not None and records.is_readable()
        self._records = records if records is not None and is_shown else MemoryRecords()
        self._growth = Growth(records) if records is not None and is_shown else None
        self._state_dir, self._session, self._sides = state_dir, session, dict(sides or {})
        self._reveal = Reveal(is_recorded=records is not None, redacted=redacted)
        self.origin = Origin(
            kind=kind,
            name=name,
            server=token_hex(6),
            is_live=False,
            has_payloads=records is not None,
            redacted=tuple(redacted),
            note=" ".join(filter(None, (note, problem))),
        )
        self._remark, self._dead = note, 0
        self._pulse = Pulse(self.origin.server, self._hello, self._tick)

    def start(self) -> None:
        """Begin to look whether the trace grows, if there is one that can be read."""
        if self._growth is not None:
            self._pulse.start()

    def follow(self, asked: Asked, last_id: str, send: Send) -> Callable[[], None]:
        """Send what is appended to the trace; without one, the first and the last message, as nothing comes between them."""
        if self._growth is not None:
            return self._pulse.follow(asked, last_id, send)
        send(encode_part("hello", self._hello(asked)))
        send(encode_part("bye", Bye(reason=_GOODBYE, may_return=False)))
        send(None)
        return lambda: None

    def close(self) -> None:
        """End all streams."""
        self._pulse.close(_CLOSED)

    def _hello(self, asked: Asked) -> Hello:
        return self._greet(is_trusted=asked.is_trusted)

    def _greet(self, *, is_trusted: bool) -> Hello:
        oldest, newest = attempt(self._records.bounds)[0] or (0, 0)  # the file may be gone: the next request says so
        origin = origin_for(self.origin, is_trusted=is_trusted)
        return Hello(origin=origin, oldest=oldest, newest=newest, interval_s=WATCHED_S if self._growth else 0.0)

    def _tick(self, is_watched: bool, is_first: bool) -> Tick:
        """Return what was appended to the trace since the last call; it is only looked at while somebody looks."""
        new = self._growth.look() if self._growth is not None and is_watched else Appended()
        if new.is_other_file:
            self.origin = msgspec.structs.replace(self.origin, server=token_hex(6))
            self._pulse.begin_anew(self._greet(is_trusted=False))
        if new.last or is_first:
            self._dead = len(self._letters())
        return Tick(
            at=time(),
            deliveries=(),
            left_out=0,
            first=new.first,
            last=new.last,
            published=0,
            queued=0,
            dead_letters=self._dead,
            handlers={},
        )

    def graph(self, *, is_trusted: bool) -> GraphPicture:
        """Return the drawing of the graph; the note of its origin says what is wrong with the trace now."""
        if isinstance(self._records, FileRecords):
            problem = attempt(self._records.problem)[0] or ""
            self.origin = msgspec.structs.replace(self.origin, note=" ".join(filter(None, (self._remark, problem))))
        return super().graph(is_trusted=is_trusted)

    def deliveries(self, query: Query) -> DeliveryPage:
        """Return deliveries of the trace."""
        return self._records.page(query)

    def tree(self, event_id: str, *, with_payload: bool) -> EventTree:
        """Return the causal tree of an event; raise GBE685 if it is not in the trace."""
        letters = list_letters(self._letters(), root=self.root, may_replay=False).letters
        reveal = self._reveal._replace(is_asked=with_payload)
        events = [each.letter.event for each in self._letters()]
        return build_tree(event_id, self._records.tree(event_id), Known(events=events, letters=letters), reveal)

    def _letters(self) -> list[StoredLetter]:
        return [] if self._state_dir is None else read_letters(self._state_dir)

    def failing_places(self, name: str) -> list[str]:
        """Return the places at which a handler has failed."""
        return find_places(name, self._letters(), self._records)

    def dead_letters(self, *, is_trusted: bool) -> DeadLetterList:
        """Return the dead letters in the file of the graph; they are not replayed here."""
        del is_trusted
        return list_letters(self._letters(), root=self.root, may_replay=False, note=_READ_ONLY)

    def replay(self, order: ReplayOrder) -> ReplayReport:
        """Refuse: nothing runs here."""
        del order
        raise RunError("GBE694", reason="no graph runs here", advice=_READ_ONLY)

    def negotiation(self, session: str) -> NegotiationPicture:
        """Return a session; raise GBE404 or GBE405 if it cannot be shown."""
        return super().negotiation(session or self._session)

    def sides(self) -> Mapping[str, Side]:
        """Return what can be compared."""
        return self._sides
