"""Trace: which handler got which event, when, for how long, and with what outcome; in memory, or as JSON lines in a file.

`trace.jsonl` begins with a line that names its version; every other line is one `Delivery`, in the order in which they
ended. Each line is one `write` at the end of the file: any number of threads and processes can write, and whoever follows the
file sees each delivery at once. A full file becomes `trace.1.jsonl`, in the place of the one before it.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import Lock
from time import perf_counter, time
from typing import Literal, NamedTuple

import msgspec

from graphbus_core.errors import Place, RunError, did_you_mean
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.middleware import Handling
from graphbus_core.model.messages import Event
from graphbus_core.store.beneath import Folder, read_plain

FILE = "trace.jsonl"
FULL = "trace.1.jsonl"
VERSION = 1
MOST_BYTES = 32 << 20
"""How large the file becomes: about 80,000 deliveries without payloads."""

_READ_BYTES = 1 << 30
_KEPT = 10_000
_HEADER_BYTES = 200

Outcome = Literal["done", "failed", "interrupted"]

_log = Log("graphbus.trace")


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


Take = Callable[[Delivery], None]


class Tracer:
    """Middleware that takes down every delivery, on the thread of the handler.

    Args:
        take: Gets each delivery; without it the last 10,000 are recorded.
        show: Gets each delivery after that; may be exchanged while the graph runs.

    Attributes:
        recorded: The last deliveries, in the order in which they ended.
    """

    def __init__(self, take: Take | None = None, *, show: Take | None = None, with_payloads: bool = False) -> None:
        self.recorded: deque[Delivery] = deque(maxlen=_KEPT)
        self.show = show
        self._take = take or self.recorded.append
        self._with_payloads = with_payloads

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Take down what becomes of an event; a call is no delivery."""
        if handling.event is None:
            yield
            return
        with _Watching(self, handling, handling.event):
            yield

    def note(
        self, handling: Handling, event: Event, started: float, duration_s: float, error: BaseException | None
    ) -> None:
        """Take down one delivery that has ended."""
        delivery = Delivery(
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
            outcome=_outcome(error),
            error="" if error is None else describe_error(error),
            payload=_as_json(event.payload) if self._with_payloads else "",
        )
        self._take(delivery)
        if self.show is not None:
            self.show(delivery)


class _Watching:
    """Looks at the clock when a handler begins and when it ends, however it does."""

    __slots__ = ("_begun", "_event", "_handling", "_started", "_tracer")

    def __init__(self, tracer: Tracer, handling: Handling, event: Event) -> None:
        self._tracer = tracer
        self._handling = handling
        self._event = event

    def __enter__(self) -> None:
        self._started, self._begun = time(), perf_counter()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._tracer.note(self._handling, self._event, self._started, perf_counter() - self._begun, error)


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return "done"
    return "failed" if isinstance(error, Exception) else "interrupted"


def describe_error(error: BaseException) -> str:
    """Describe what was raised in one line."""
    if isinstance(error, RunError):
        return f"{error.sentence} [{error.code}]"
    first = str(error).partition("\n")[0].encode("utf-8", "replace").decode()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _as_json(payload: object) -> str:
    text, _ = attempt(lambda: msgspec.json.encode(payload, enc_hook=repr).decode())
    return text or ""


class TraceFile:
    """The file, open for adding to it; a process that is killed has lost no delivery that ended before.

    A disk that takes nothing more is logged once; then the graph runs on without a trace.

    Args:
        folder: The `state_dir`.
        most_bytes: How large the file becomes before the next one is begun.

    Raises:
        RunError: GBE683 when it cannot be opened; GBE643 when it is damaged or a newer GraphBus has written it.
    """

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._turning = Lock()
        self._handle = -1
        try:
            self._open()
        except OSError as error:
            raise _unwritable(folder / FILE, error) from None

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Write nothing more. Twice is once."""
        with self._turning:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def add(self, delivery: Delivery) -> None:
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
            _log.error("%s The graph runs on without a trace.", _sentence(error, self._folder / FILE))

    def _turn(self) -> None:
        with self._turning:
            if self._bytes <= self._most_bytes or self._handle < 0:
                return
            with Folder.at(self._folder) as folder:
                known = folder.status(FILE)
                if known is not None and os.path.samestat(known, os.fstat(self._handle)):
                    folder.replace(FILE, FULL)
            before = self._handle
            self._open()
            os.close(before)

    def _open(self) -> None:
        with Folder.at(self._folder, make=True) as folder:
            handle = folder.open_own(FILE, 0o600)  # payloads are for its owner alone
        header = os.pread(handle, _HEADER_BYTES, 0)
        if not header:
            os.write(handle, msgspec.json.encode(_Header(trace_version=VERSION)) + b"\n")
        try:
            if header:
                _check(header, self._folder / FILE)
        except RunError:
            os.close(handle)
            raise
        fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)
        self._handle, self._bytes = handle, os.fstat(handle).st_size


class _Header(msgspec.Struct, frozen=True):
    trace_version: int


def _check(content: bytes, path: Path) -> None:
    reason = "it is damaged"
    try:
        version = msgspec.json.decode(content.partition(b"\n")[0], type=_Header).trace_version
        if version == VERSION:
            return
        reason = "a newer GraphBus has written it"
    except msgspec.DecodeError:
        pass
    raise RunError("GBE643", where=Place(str(path)), what="The trace", reason=reason)


def _unwritable(path: Path, error: OSError) -> RunError:
    return RunError("GBE683", where=Place(str(path)), what="The trace", reason=error.strerror or str(error))


def _sentence(error: OSError | RunError, path: Path) -> str:
    return (error if isinstance(error, RunError) else _unwritable(path, error)).sentence


def read(folder: Path) -> list[Delivery]:
    """Give the deliveries of a trace in the order in which they ended; a graph may be writing to it.

    Raises:
        RunError: GBE684 when there is no trace; GBE643 when it is damaged or a newer GraphBus has written it.
    """
    found: list[Delivery] = []
    if not (folder / FILE).is_file():
        raise RunError("GBE684", reason="no graph has written one yet")
    for path in (folder / FULL, folder / FILE):
        try:
            content = read_plain(path, _READ_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RunError("GBE684", reason=error.strerror or str(error)) from None
        _check(content, path)
        found += _deliveries(content)
    return found


def _deliveries(content: bytes) -> Iterator[Delivery]:
    """A line that a full disk has cut off, or that is being written, is left out."""
    decoder = msgspec.json.Decoder(Delivery)
    for line in content.split(b"\n")[1:]:
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            continue


SHORT = 8
"""How many digits of an id are shown."""

_CANDIDATES = 6


class Handled(msgspec.Struct, frozen=True, kw_only=True):
    """What one handler did with an event; `caused` are the events that it has published meanwhile."""

    delivery: Delivery
    caused: tuple[Caused, ...] = ()


class Caused(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its deliveries, in the order in which they ended.

    Attributes:
        topic: Empty when the trace holds no delivery of it: it is forgotten, or it had none.
        published: Seconds since the epoch; 0 when it is not known.
    """

    event_id: str
    topic: str
    src: str
    published_by: str
    published: float
    payload: str
    handled: tuple[Handled, ...]
    unplaced: tuple[Caused, ...] = ()


def plant(event_id: str, deliveries: Sequence[Delivery]) -> Caused:
    """Make the tree below an event from all deliveries of its root, oldest first."""
    own: dict[str, list[Delivery]] = {}
    effects: dict[str, list[str]] = {}
    for delivery in deliveries:
        if delivery.event_id not in own and delivery.causation_id:
            effects.setdefault(delivery.causation_id, []).append(delivery.event_id)
        own.setdefault(delivery.event_id, []).append(delivery)
    # leaves first, so that the depth of a tree is not limited by the stack
    order = [event_id]
    for each in order:
        order += effects.get(each, ())
    made: dict[str, Caused] = {}
    for each in reversed(order):
        made[each] = _caused(each, own.get(each, []), [made[effect] for effect in effects.get(each, ())])
    return made[event_id]


def _caused(event_id: str, own: Sequence[Delivery], effects: Sequence[Caused]) -> Caused:
    last = {delivery.handler: index for index, delivery in enumerate(own)}  # the last attempt of each handler
    handled = [
        Handled(
            delivery=delivery,
            caused=tuple(each for each in effects if last.get(each.published_by) == index),
        )
        for index, delivery in enumerate(own)
    ]
    first = own[0] if own else None
    return Caused(
        event_id=event_id,
        topic=first.topic if first else "",
        src=first.src if first else "",
        published_by=first.published_by if first else "",
        published=first.published if first else 0.0,
        payload=first.payload if first else "",
        handled=tuple(handled),
        unplaced=tuple(each for each in effects if each.published_by not in last),
    )


class Root(msgspec.Struct, frozen=True, kw_only=True):
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


def roots(deliveries: Sequence[Delivery], limit: int = 0) -> list[Root]:
    """Give the last roots, that with the last delivery first; 0: all."""
    trees: dict[str, list[Delivery]] = {}
    for each in deliveries:
        tree = trees.pop(each.correlation_id, [])
        tree.append(each)
        trees[each.correlation_id] = tree  # the keys are in the order of their last deliveries
    last = list(reversed(trees))
    return [_root(event_id, trees[event_id]) for event_id in (last[:limit] if limit else last)]


def _root(event_id: str, tree: Sequence[Delivery]) -> Root:
    own = [each for each in tree if each.event_id == event_id]
    return Root(
        event_id=event_id,
        topic=own[0].topic if own else "",
        src=own[0].src if own else "",
        published=min(each.published for each in tree),
        events=len({each.event_id for each in tree}),
        deliveries=len(tree),
        failed=sum(each.outcome != "done" for each in tree),
        busy_s=sum(each.duration_s for each in tree),
    )


class Found(NamedTuple):
    """An event of a trace, and the deliveries of its root."""

    event_id: str
    root: str
    deliveries: list[Delivery]

    @property
    def tree(self) -> Caused:
        """What the root has caused."""
        return plant(self.root, self.deliveries)


def find(deliveries: Sequence[Delivery], word: str) -> Found:
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
        near = did_you_mean(word, [event_id[: max(len(word), SHORT)] for event_id in islice(root_of, 1000)])
        raise RunError("GBE685", event_id=word, suggestion=near)
    if len(matching) > 1:
        known = ", ".join(event_id[:SHORT] for event_id in matching[:_CANDIDATES])
        raise RunError("GBE686", count=len(matching), event_id=word, known=known)
    root = root_of[matching[0]]
    return Found(matching[0], root, [each for each in deliveries if each.correlation_id == root])
