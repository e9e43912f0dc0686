"""What is recorded as a source of the page: the artifacts of a build, a session, or a trace, which is followed if it grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from time import time

import msgspec

from graphbus_core.hosting.dead_letters import StoredLetter
from graphbus_core.hosting.serving.pages import Asked, Send
from graphbus_core.isolation import attempt
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.view.comparing import Side
from graphbus_core.view.letters import read_letters
from graphbus_core.view.messages import (
    Bye,
    GraphPicture,
    NegotiationPicture,
    Origin,
    SourceKind,
    Tick,
)
from graphbus_core.view.project import ProjectSource
from graphbus_core.view.pulse import encode_part
from graphbus_core.view.records import MemoryRecords
from graphbus_core.view.trace_file import Appended, FileRecords, Growth
from graphbus_core.view.trees import Reveal

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

    no_replay = _READ_ONLY

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
        problem = records.problem() if records is not None else "" if kind == "negotiation" else _NO_TRACE
        is_shown = records is not None and records.is_readable()
        self._growth = Growth(records) if records is not None and is_shown else None
        self._state_dir, self._session, self._sides = state_dir, session, dict(sides or {})
        origin = Origin(
            kind=kind,
            name=name,
            server=token_hex(6),
            is_live=False,
            has_payloads=records is not None,
            redacted=tuple(redacted),
            note=" ".join(filter(None, (note, problem))),
        )
        shown = records if records is not None and is_shown else MemoryRecords()
        super().__init__(artifacts, folder, origin, shown, Reveal(is_recorded=records is not None, redacted=redacted))
        self._remark, self._dead = note, 0

    def start(self) -> None:
        """Begin to look whether the trace grows, if there is one that can be read."""
        if self._growth is not None:
            self.pulse.start()

    def follow(self, asked: Asked, last_id: str, send: Send) -> Callable[[], None]:
        """Send what is appended to the trace; without one, the first and the last message, as nothing comes between them."""
        if self._growth is not None:
            return super().follow(asked, last_id, send)
        send(encode_part("hello", self.hello(is_trusted=asked.is_trusted)))
        send(encode_part("bye", Bye(reason=_GOODBYE, may_return=False)))
        send(None)
        return lambda: None

    def close(self) -> None:
        """End all streams."""
        self.pulse.close(_CLOSED)

    def tick(self, is_watched: bool, is_first: bool) -> Tick:
        """Return what was appended to the trace since the last call; it is only looked at while somebody looks."""
        new = self._growth.look() if self._growth is not None and is_watched else Appended()
        if new.is_other_file:
            self.origin = msgspec.structs.replace(self.origin, server=token_hex(6))
            self.pulse.begin_anew(self.hello(is_trusted=False))
        if new.last or is_first:
            self._dead = len(self.letters())
        return Tick(at=time(), first=new.first, last=new.last, dead_letters=self._dead)

    def graph(self, *, is_trusted: bool) -> GraphPicture:
        """Return the drawing of the graph; the note of its origin says what is wrong with the trace now."""
        if isinstance(self.records, FileRecords):
            problem = attempt(self.records.problem)[0] or ""
            self.origin = msgspec.structs.replace(self.origin, note=" ".join(filter(None, (self._remark, problem))))
        return super().graph(is_trusted=is_trusted)

    def letters(self) -> Sequence[StoredLetter]:
        """Return the dead letters in the file of the graph."""
        return [] if self._state_dir is None else read_letters(self._state_dir)

    def negotiation(self, session: str) -> NegotiationPicture:
        """Return a session; raise GBE404 or GBE405 if it cannot be shown."""
        return super().negotiation(session or self._session)

    def sides(self) -> Mapping[str, Side]:
        """Return what can be compared."""
        return self._sides
