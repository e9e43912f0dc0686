"""Trace: which handler got which event, when, for how long, and with what outcome; in memory, or as JSON lines in a file.

`trace.jsonl` begins with a line that names its version; every other line is one `Delivery`, in the order in which they
ended. Each line is one `write` at the end of the file: any number of threads and processes can write, and whoever follows the
file sees each delivery at once. A full file becomes `trace.1.jsonl`, in the place of the one before it.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from time import perf_counter, time
from typing import Literal

import msgspec

from graphbus_core.errors import Place, RunError
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
