"""Trace: middleware that records each delivery of an event to a handler, in memory or in a file of JSON lines.

The first line of `trace.jsonl` is its version; every other line is one `TracedDelivery`, in the order in which they ended. A line
is written by a single `write` in append mode: several threads and processes can write, and a reader can follow the file. A full
file is renamed to `trace.1.jsonl`, which replaces the previous one.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from time import perf_counter, time
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.bus.dead_letters import place_of
from graphbus_core.errors import Place, RunError
from graphbus_core.errors.system import MOVE_AWAY, UPGRADE, advise_on, reason_of
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.middleware import Handling
from graphbus_core.model.messages import Event
from graphbus_core.store.folders import Folder, read_plain

FILE = "trace.jsonl"
PREVIOUS_FILE = "trace.1.jsonl"
VERSION = 1
SHORT_ID_LENGTH = 8
"""How many digits of an event id are displayed."""

REDACTED = "[redacted]"

_MOST_BYTES = 32 << 20
"""The size at which the file is renamed: about 80,000 deliveries without payloads."""
_READ_BYTES = 1 << 30
_RECORDED = 10_000
_HEADER_BYTES = 200
_LONGEST_KEY = 200
_CANDIDATES = 6  # so many events are listed in the message about an ambiguous id

Outcome = Literal["done", "failed", "interrupted"]

_log = Log("graphbus.trace")


class TracedDelivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of a handler to handle an event; a line of the trace.

    Attributes:
        event_id: The event.
        causation_id: The event whose handler published it; empty for an event from outside.
        correlation_id: The event from outside that all this follows from.
        published_by: The handler that published the event, `Agent.method`; empty for an event from outside.
        published: When it was published, in seconds since the epoch.
        handler: The handler that received it, `Agent.method`.
        attempt: 1 for the first attempt.
        started: When the handler began, in seconds since the epoch.
        duration_s: How long the handler took; for `async def` this includes waiting.
        error: The exception of the handler as one line; empty if it raised none.
        place: Where it was raised, `file:line`; empty if that is not known, and in older traces.
        payload: The payload as JSON text; empty unless payloads are recorded.
        key: The value by which the subscription keeps events in order, as text; empty without one, and in older traces.
    """

    event_id: str
    causation_id: str
    correlation_id: str
    topic: str
    src: str
    published_by: str
    published: float
    handler: str
    attempt: int
    started: float
    duration_s: float
    outcome: Outcome
    error: str = ""
    payload: str = ""
    key: str = ""
    place: str = ""


Take = Callable[[TracedDelivery], None]


class Tracer:
    """Middleware that records every delivery, on the thread of the handler.

    Args:
        take: Called with each delivery, such as `TraceFile.add`; None: the last 10,000 are kept in `recorded`.
        show: Called with each delivery after `take`; the attribute may be changed while the graph runs.
        with_payloads: Record payloads, too.
        redacted: Parts of the names of keys whose values are not recorded as `key` of a delivery; payloads keep them.

    Attributes:
        recorded: The last deliveries in the order in which they ended, if there is no `take`.
    """

    def __init__(
        self,
        take: Take | None = None,
        *,
        show: Take | None = None,
        with_payloads: bool = False,
        redacted: Collection[str] = (),
    ) -> None:
        self.recorded: deque[TracedDelivery] = deque(maxlen=_RECORDED)
        self.show = show
        self._take = take or self.recorded.append
        self._with_payloads = with_payloads
        self._redacted = redacted

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Record a delivery, and pass it to `take` and then to `show`; calls of methods are not recorded."""
        if handling.event is None:
            yield
            return
        started, begun = time(), perf_counter()
        has_returned = False
        try:
            yield
            has_returned = True
        finally:
            ended = describe_end(None if has_returned else sys.exception())
            facts = describe_delivery(handling, handling.event, ended, self._redacted, with_payload=self._with_payloads)
            delivery = TracedDelivery(**facts, started=started, duration_s=perf_counter() - begun)
            self._take(delivery)
            if self.show is not None:
                self.show(delivery)


class HandlerEnd(NamedTuple):
    """How a handler ended: its outcome, its exception as one line, and where that was raised."""

    outcome: Outcome = "done"
    error: str = ""
    place: str = ""


def describe_end(error: BaseException | None) -> HandlerEnd:
    """Return how a handler ended that raised this exception; None: it returned."""
    if error is None:
        return HandlerEnd()
    outcome: Outcome = "failed" if isinstance(error, Exception) else "interrupted"
    return HandlerEnd(outcome, _error_line(error), place_of(error))


def describe_delivery(
    handling: Handling, event: Event, ended: HandlerEnd, redacted: Collection[str], *, with_payload: bool
) -> dict[str, Any]:
    """Return the fields of a `TracedDelivery` of this event, all but `started` and `duration_s`; see `is_redacted`."""
    return {
        "event_id": event.event_id,
        "causation_id": event.causation_id,
        "correlation_id": event.correlation_id,
        "topic": event.topic,
        "src": event.src,
        "published_by": event.published_by,
        "published": event.timestamp,
        "handler": handling.name,
        "attempt": handling.attempt,
        **ended._asdict(),
        "payload": _encode_payload(event.payload) if with_payload else "",
        "key": REDACTED if is_redacted(handling.key, redacted) else key_of(event, handling.key) if handling.key else "",
    }


def is_redacted(name: str, keys: Iterable[str]) -> bool:
    """True if the values of a key are not shown: one of `keys` is a part of its name, in upper or lower case."""
    return any(key.lower() in name.lower() for key in keys)


def key_of(event: Event, field: str) -> str:
    """Return the value of a field of the payload as text, at most `_LONGEST_KEY` characters; empty without such a value."""
    value, _ = attempt(lambda: event.get(field))
    if value is None:
        return ""
    return (value if isinstance(value, str) else _encode_payload(value))[:_LONGEST_KEY]


def _error_line(error: BaseException) -> str:
    """Return an exception as one line: its sentence and code, or its type and the first line of its message."""
    if isinstance(error, RunError):
        return f"{error.sentence} [{error.code}]"
    first = str(error).partition("\n")[0].encode("utf-8", "replace").decode()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _encode_payload(payload: object) -> str:
    """Return a payload as JSON text, with the repr of parts that are not JSON; empty if that fails."""
    text, _ = attempt(lambda: msgspec.json.encode(payload, enc_hook=repr).decode())
    return text or ""


# --- the file -------------------------------------------------------------------------------


class TraceFile:
    """The open trace file. Each delivery is written at once, so a killed process loses none that ended before.

    After an error of the disk, which is logged, the graph runs on without a trace.

    Args:
        folder: The project's `state_dir`.
        most_bytes: The size at which the file is renamed and a new one is begun.

    Raises:
        RunError: GBE683 when it cannot be opened; GBE643 when it is damaged or a newer GraphBus has written it.
    """

    def __init__(self, folder: Path, *, most_bytes: int = _MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._rotation_lock = Lock()
        self._handle = -1
        try:
            self._open()
        except OSError as error:
            raise self._make_write_error(error) from None

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._rotation_lock:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def add(self, delivery: TracedDelivery) -> None:
        """Write one delivery, and begin the next file when this one is full. An error is logged and ends the trace."""
        line = msgspec.json.encode(delivery) + b"\n"
        if self._handle < 0:
            return
        try:
            os.write(self._handle, line)
            self._bytes += len(line)
            if self._bytes > self._most_bytes:
                self._begin_next_file()
        except (OSError, RunError) as error:
            self.close()
            refusal = error if isinstance(error, RunError) else self._make_write_error(error)
            _log.error("%s The graph runs on without a trace.", refusal.sentence)

    def _begin_next_file(self) -> None:
        """Rename the full file and open a new one. If another thread has done so, do nothing; if another process, open it."""
        with self._rotation_lock:
            if self._bytes <= self._most_bytes or self._handle < 0:
                return
            with Folder.at(self._folder) as folder:
                known = folder.status(FILE)
                # If it is another file, another process has renamed ours.
                if known is not None and os.path.samestat(known, os.fstat(self._handle)):
                    folder.replace(FILE, PREVIOUS_FILE)
            before = self._handle
            self._open()
            os.close(before)

    def _open(self) -> None:
        """Open the file; write its first line if the file is new, else check the version in it.

        Raises:
            RunError: GBE643 when the file is damaged or a newer GraphBus has written it.
        """
        with Folder.at(self._folder, make=True) as folder:
            handle = folder.open_own(FILE, 0o600)  # readable for the owner only, because of payloads
        try:
            header = os.pread(handle, _HEADER_BYTES, 0)
            if header:
                check_version(header, self._folder / FILE)
            else:
                os.write(handle, msgspec.json.encode({"trace_version": VERSION}) + b"\n")
        except RunError:
            os.close(handle)
            raise
        fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)  # other processes may write to the same file
        self._handle, self._bytes = handle, os.fstat(handle).st_size

    def _make_write_error(self, error: OSError) -> RunError:
        """Make the error GBE683: the trace cannot be written."""
        place = Place(str(self._folder / FILE))
        advice = advise_on(error, place.path)
        return RunError("GBE683", where=place, what="The trace", reason=reason_of(error), advice=advice)


def check_version(content: bytes, path: Path) -> None:
    """Raise GBE643 unless the first line of a trace states the version that this GraphBus writes."""
    header = content.partition(b"\n")[0]
    version, _ = attempt(lambda: msgspec.json.decode(header, type=dict[str, int])["trace_version"])
    if version != VERSION:
        reason = "it is damaged" if version is None else "a newer GraphBus has written it"
        advice = MOVE_AWAY if version is None else UPGRADE
        raise RunError("GBE643", where=Place(str(path)), what="The trace", reason=reason, advice=advice)


def read_trace(folder: Path) -> list[TracedDelivery]:
    """Return the deliveries of both trace files in the order in which they ended; a graph may be writing meanwhile.

    Raises:
        RunError: GBE684 when there is no trace; GBE643 when it is damaged or a newer GraphBus has written it.
    """
    found: list[TracedDelivery] = []
    if not (folder / FILE).is_file():
        raise RunError("GBE684", folder=os.path.relpath(folder))
    for path in (folder / PREVIOUS_FILE, folder / FILE):
        try:
            content = read_plain(path, _READ_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            where, advice = Place(str(path)), advise_on(error, path)
            raise RunError("GBE643", where=where, what="The trace", reason=reason_of(error), advice=advice) from None
        check_version(content, path)
        found += _decode_deliveries(content)
    return found


def _decode_deliveries(content: bytes) -> Iterator[TracedDelivery]:
    """Yield the delivery of each line; incomplete lines, from a full disk or a write in progress, are left out."""
    decoder = msgspec.json.Decoder(TracedDelivery)
    for line in content.split(b"\n")[1:]:
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            continue


# --- causes and effects ---------------------------------------------------------------------


class EventTree(NamedTuple):
    """An event and all events that follow from it.

    Attributes:
        event_id: The event at the root.
        deliveries: Event id -> its deliveries, oldest first; an event without handlers, or no longer in the trace, is missing.
        effects: Event id -> the ids of the events that its handlers published, oldest first.
    """

    event_id: str
    deliveries: dict[str, list[TracedDelivery]]
    effects: dict[str, list[str]]


def build_tree(event_id: str, deliveries: Sequence[TracedDelivery]) -> EventTree:
    """Return the tree below an event, given all deliveries with its correlation id, oldest first."""
    tree = EventTree(event_id, {}, {})
    for delivery in deliveries:
        if delivery.event_id not in tree.deliveries and delivery.causation_id:
            tree.effects.setdefault(delivery.causation_id, []).append(delivery.event_id)
        tree.deliveries.setdefault(delivery.event_id, []).append(delivery)
    return tree


class RootSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `graphbus trace`: an event from outside, and totals over all events that follow from it.

    Attributes:
        topic: The topic of the event; empty if none of its own deliveries is in the trace.
        published: When the event, or else the first one that follows from it, was published.
        events: How many events, this one included.
        deliveries: How many deliveries.
        failed: How many of the deliveries failed or were interrupted.
        busy_s: The sum of the durations of all handlers.
    """

    event_id: str
    topic: str
    src: str
    published: float
    events: int
    deliveries: int
    failed: int
    busy_s: float


def list_roots(deliveries: Sequence[TracedDelivery], limit: int = 0) -> list[RootSummary]:
    """Return the last `limit` events from outside (0: all), the one with the latest delivery first."""
    trees: dict[str, list[TracedDelivery]] = {}
    for each in deliveries:
        tree = trees.pop(each.correlation_id, [])
        tree.append(each)
        trees[each.correlation_id] = tree  # the keys are in the order of their last deliveries
    last = list(reversed(trees))
    return [_summarize_tree(event_id, trees[event_id]) for event_id in (last[:limit] if limit else last)]


def _summarize_tree(event_id: str, tree: Sequence[TracedDelivery]) -> RootSummary:
    """Return the row for an event from outside, given all deliveries that follow from it."""
    own = next((each for each in tree if each.event_id == event_id), None)
    return RootSummary(
        event_id=event_id,
        topic=own.topic if own else "",
        src=own.src if own else "",
        published=min(each.published for each in tree),
        events=len({each.event_id for each in tree}),
        deliveries=len(tree),
        failed=sum(each.outcome != "done" for each in tree),
        busy_s=sum(each.duration_s for each in tree),
    )


class TracedEvent(NamedTuple):
    """An event in a trace, the event from outside that it follows from, and all deliveries with the same root."""

    event_id: str
    root: str
    deliveries: list[TracedDelivery]

    @property
    def tree(self) -> EventTree:
        """The tree of the event from outside, of which this event is a part."""
        return build_tree(self.root, self.deliveries)


def find_event(deliveries: Sequence[TracedDelivery], word: str) -> TracedEvent:
    """Find an event by the beginning of its id.

    Args:
        deliveries: The trace, oldest first.
        word: The beginning of the id; or `last`, for the event from outside that the last delivery follows from.

    Raises:
        RunError: GBE685 when there is none, GBE686 when there are several.
    """
    word = deliveries[-1].correlation_id if word == "last" and deliveries else word.lower()
    root_of: dict[str, str] = {}
    for each in reversed(deliveries):  # their causes and roots too, which may have no delivery in the trace
        for event_id in (each.event_id, each.causation_id or each.event_id, each.correlation_id):
            root_of.setdefault(event_id, each.correlation_id)
    matching = [event_id for event_id in root_of if event_id.startswith(word)]
    if not matching:
        raise RunError("GBE685", event_id=word)
    if len(matching) > 1:
        known = ", ".join(event_id[:SHORT_ID_LENGTH] for event_id in matching[:_CANDIDATES])
        raise RunError("GBE686", count=len(matching), event_id=word, known=known)
    root = root_of[matching[0]]
    return TracedEvent(matching[0], root, [each for each in deliveries if each.correlation_id == root])
