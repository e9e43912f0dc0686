"""Trace: which handler got which event, when, for how long, and with what outcome; in memory, or as JSON lines in a file.

`trace.jsonl` begins with a line that names its version; every other line is one `TracedDelivery`, in the order in which they
ended. Each line is one `write` at the end of the file: any number of threads and processes can write, and a reader that
follows the file sees each delivery at once. A full file becomes `trace.1.jsonl`, in the place of the one before it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from time import perf_counter, time
from typing import Literal, NamedTuple

import msgspec

from graphbus_core.errors import Place, RunError
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.middleware import Handling
from graphbus_core.model.messages import Event
from graphbus_core.store.folders import Folder, read_plain

FILE = "trace.jsonl"
PREVIOUS_FILE = "trace.1.jsonl"
VERSION = 1
SHORT_ID_LENGTH = 8
"""How many digits of an id are shown."""

_MOST_BYTES = 32 << 20
"""How large the file becomes: about 80,000 deliveries without payloads."""
_READ_BYTES = 1 << 30
_RECORDED = 10_000
_HEADER_BYTES = 200
_CANDIDATES = 6

Outcome = Literal["done", "failed", "interrupted"]

_log = Log("graphbus.trace")


class TracedDelivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event at one handler.

    Attributes:
        published_by: The handler that published the event, `Agent.method`; empty from outside of the graph.
        published: When it was published, in seconds since the epoch.
        handler: `Agent.method`.
        attempt: 1 for the first time.
        started: Seconds since the epoch.
        duration_s: Until the handler was done; an `async def` handler may have waited most of it.
        error: What it raised, one line.
        payload: JSON, or empty: payloads are written only when asked for.
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


Take = Callable[[TracedDelivery], None]


class Tracer:
    """Middleware that records every delivery, on the thread of the handler.

    Args:
        take: Gets each delivery; without it the last 10,000 are recorded.
        show: Gets each delivery after that; may be exchanged while the graph runs.
        with_payloads: Record payloads, too.

    Attributes:
        recorded: The last deliveries, in the order in which they ended.
    """

    def __init__(self, take: Take | None = None, *, show: Take | None = None, with_payloads: bool = False) -> None:
        self.recorded: deque[TracedDelivery] = deque(maxlen=_RECORDED)
        self.show = show
        self._take = take or self.recorded.append
        self._with_payloads = with_payloads

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Record one delivery; a call is none."""
        if handling.event is None:
            yield
            return
        started, begun = time(), perf_counter()
        has_returned = False
        try:
            yield
            has_returned = True
        finally:
            error = None if has_returned else sys.exception()
            self._note(handling, handling.event, started, perf_counter() - begun, error)

    def _note(
        self, handling: Handling, event: Event, started: float, duration_s: float, error: BaseException | None
    ) -> None:
        outcome: Outcome = "done" if error is None else "failed" if isinstance(error, Exception) else "interrupted"
        delivery = TracedDelivery(
            event_id=event.event_id,
            causation_id=event.causation_id,
            correlation_id=event.correlation_id,
            topic=event.topic,
            src=event.src,
            published_by=event.published_by,
            published=event.timestamp,
            handler=handling.name,
            attempt=handling.attempt,
            started=started,
            duration_s=duration_s,
            outcome=outcome,
            error="" if error is None else _describe(error),
            payload=_as_json(event.payload) if self._with_payloads else "",
        )
        self._take(delivery)
        if self.show is not None:
            self.show(delivery)


def _describe(error: BaseException) -> str:
    if isinstance(error, RunError):
        return f"{error.sentence} [{error.code}]"
    first = str(error).partition("\n")[0].encode("utf-8", "replace").decode()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _as_json(payload: object) -> str:
    text, _ = attempt(lambda: msgspec.json.encode(payload, enc_hook=repr).decode())
    return text or ""


# --- the file -------------------------------------------------------------------------------


class TraceFile:
    """The file, open for adding to it; a process that is killed has lost no delivery that ended before.

    A disk that takes nothing more is logged once; then the graph runs on without a trace.

    Args:
        folder: The `state_dir`.
        most_bytes: How large the file becomes before the next one is begun.

    Raises:
        RunError: GBE683 when it cannot be opened; GBE643 when it is damaged or a newer GraphBus has written it.
    """

    def __init__(self, folder: Path, *, most_bytes: int = _MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._turning = Lock()
        self._handle = -1
        try:
            self._open()
        except OSError as error:
            raise self._unwritable(error) from None

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._turning:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def add(self, delivery: TracedDelivery) -> None:
        """Write one delivery."""
        line = msgspec.json.encode(delivery) + b"\n"
        if self._handle < 0:
            return
        try:
            os.write(self._handle, line)
            self._bytes += len(line)
            if self._bytes > self._most_bytes:
                self._turn()
        except (OSError, RunError) as error:
            self.close()
            refusal = error if isinstance(error, RunError) else self._unwritable(error)
            _log.error("%s The graph runs on without a trace.", refusal.sentence)

    def _turn(self) -> None:
        with self._turning:
            if self._bytes <= self._most_bytes or self._handle < 0:
                return
            with Folder.at(self._folder) as folder:
                known = folder.status(FILE)
                if known is not None and os.path.samestat(known, os.fstat(self._handle)):  # else another has done it
                    folder.replace(FILE, PREVIOUS_FILE)
            before = self._handle
            self._open()
            os.close(before)

    def _open(self) -> None:
        with Folder.at(self._folder, make=True) as folder:
            handle = folder.open_own(FILE, 0o600)  # payloads are for its owner alone
        try:
            header = os.pread(handle, _HEADER_BYTES, 0)
            if header:
                _check(header, self._folder / FILE)
            else:
                os.write(handle, msgspec.json.encode({"trace_version": VERSION}) + b"\n")
        except RunError:
            os.close(handle)
            raise
        fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)
        self._handle, self._bytes = handle, os.fstat(handle).st_size

    def _unwritable(self, error: OSError) -> RunError:
        place = Place(str(self._folder / FILE))
        return RunError("GBE683", where=place, what="The trace", reason=error.strerror or str(error))


def _check(content: bytes, path: Path) -> None:
    header = content.partition(b"\n")[0]
    version, _ = attempt(lambda: msgspec.json.decode(header, type=dict[str, int])["trace_version"])
    if version != VERSION:
        reason = "it is damaged" if version is None else "a newer GraphBus has written it"
        raise RunError("GBE643", where=Place(str(path)), what="The trace", reason=reason)


def read_trace(folder: Path) -> list[TracedDelivery]:
    """Give the deliveries of a trace in the order in which they ended; a graph may be writing to it.

    Raises:
        RunError: GBE684 when there is no trace; GBE643 when it is damaged or a newer GraphBus has written it.
    """
    found: list[TracedDelivery] = []
    if not (folder / FILE).is_file():
        raise RunError("GBE684", reason="no graph has written one yet")
    for path in (folder / PREVIOUS_FILE, folder / FILE):
        try:
            content = read_plain(path, _READ_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RunError("GBE684", reason=error.strerror or str(error)) from None
        _check(content, path)
        found += _deliveries(content)
    return found


def _deliveries(content: bytes) -> Iterator[TracedDelivery]:
    """Decode each line; one that a full disk has cut off, or that is being written, is left out."""
    decoder = msgspec.json.Decoder(TracedDelivery)
    for line in content.split(b"\n")[1:]:
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            continue


# --- causes and effects ---------------------------------------------------------------------


class EventTree(NamedTuple):
    """An event and everything that it has caused.

    Attributes:
        event_id: The event.
        deliveries: Event -> its deliveries, oldest first; an event that the trace has forgotten, or that nobody heard, has none.
        effects: Event -> the events that its handlers have published, oldest first.
    """

    event_id: str
    deliveries: dict[str, list[TracedDelivery]]
    effects: dict[str, list[str]]


def build_tree(event_id: str, deliveries: Sequence[TracedDelivery]) -> EventTree:
    """Make the tree below an event from all deliveries of its root, oldest first."""
    tree = EventTree(event_id, {}, {})
    for delivery in deliveries:
        if delivery.event_id not in tree.deliveries and delivery.causation_id:
            tree.effects.setdefault(delivery.causation_id, []).append(delivery.event_id)
        tree.deliveries.setdefault(delivery.event_id, []).append(delivery)
    return tree


class RootSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One event from outside, with its effects as far as the trace still holds them.

    Attributes:
        topic: That of the root; empty if its own deliveries are forgotten or it had none.
        published: When the root, or else the first event of its tree, was published.
        busy_s: The durations of all handlers together.
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
    """Give the last roots, that with the last delivery first; 0: all."""
    trees: dict[str, list[TracedDelivery]] = {}
    for each in deliveries:
        tree = trees.pop(each.correlation_id, [])
        tree.append(each)
        trees[each.correlation_id] = tree  # the keys are in the order of their last deliveries
    last = list(reversed(trees))
    return [_root(event_id, trees[event_id]) for event_id in (last[:limit] if limit else last)]


def _root(event_id: str, tree: Sequence[TracedDelivery]) -> RootSummary:
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
    """An event of a trace, and the deliveries of its root."""

    event_id: str
    root: str
    deliveries: list[TracedDelivery]

    @property
    def tree(self) -> EventTree:
        """What the root has caused."""
        return build_tree(self.root, self.deliveries)


def find_event(deliveries: Sequence[TracedDelivery], word: str) -> TracedEvent:
    """Find an event by its id, by the beginning of its id, or as the `last` one from outside.

    Raises:
        RunError: GBE685 when there is none, GBE686 when there are several.
    """
    word = deliveries[-1].correlation_id if word == "last" and deliveries else word.lower()
    root_of: dict[str, str] = {}
    for each in reversed(deliveries):
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
