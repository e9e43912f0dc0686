"""Trace: an instrument that writes down which handler got which event, when, for how long, and what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition, Thread
from time import perf_counter, time
from typing import NamedTuple

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.hosting.instruments.traced import Delivery, Outcome
from graphbus_core.isolation import attempt
from graphbus_core.log import Log
from graphbus_core.middleware import Handling
from graphbus_core.model.messages import Event

KEPT = 100_000

_BATCH = 1000
_PENDING = 20_000
_PAUSE_S = 0.2

Show = Callable[[Delivery], None]

_log = Log("graphbus.trace")


class Noted(NamedTuple):
    """What is taken down while the graph waits; ids and text are made of it later, on the thread that writes."""

    event: Event
    handler: str
    attempt: int
    started: float
    duration_s: float
    error: BaseException | None


class Noting:
    """Middleware that takes every delivery down and hands it to `_take`, in the thread of the handler.

    Args:
        show: Gets each delivery at once; may be exchanged while the graph runs.
    """

    def __init__(self, show: Show | None = None, *, with_payloads: bool = False) -> None:
        self.show = show
        self._with_payloads = with_payloads

    def __call__(self, handling: Handling) -> Iterator[None]:
        """Take down what becomes of an event; a call is none."""
        event = handling.event
        if event is None:
            yield
            return
        with _Watching(self, handling, event):
            yield

    def note(self, noted: Noted) -> None:
        """Take down one delivery."""
        self._take(noted)
        if self.show is not None:
            self.show(self._delivery(noted))

    def _take(self, noted: Noted) -> None:
        raise NotImplementedError

    def _delivery(self, noted: Noted) -> Delivery:
        event, error = noted.event, noted.error
        return Delivery(
            event_id=event.event_id,
            causation_id=event.causation_id,
            correlation_id=event.correlation_id,
            topic=event.topic,
            src=event.src,
            published_by=event.published_by,
            published=event.timestamp,
            handler=noted.handler,
            attempt=noted.attempt,
            started=noted.started,
            duration_s=noted.duration_s,
            outcome=_outcome(error),
            error="" if error is None else describe_error(error),
            payload=msgspec.json.encode(event.payload).decode() if self._with_payloads else "",
        )


class _Watching:
    """Looks at the clock when a handler begins and when it ends, however it does."""

    __slots__ = ("_begun", "_event", "_handling", "_noting", "_started")

    def __init__(self, noting: Noting, handling: Handling, event: Event) -> None:
        self._noting = noting
        self._handling = handling
        self._event = event

    def __enter__(self) -> None:
        self._started, self._begun = time(), perf_counter()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        took_s = perf_counter() - self._begun
        handling = self._handling
        self._noting.note(Noted(self._event, handling.name, handling.attempt, self._started, took_s, error))


class Recorder(Noting):
    """A trace in memory: the last deliveries.

    Args:
        kept: How many.
    """

    def __init__(self, *, kept: int = 10_000) -> None:
        super().__init__(with_payloads=True)
        self._noted: deque[Noted] = deque(maxlen=kept)

    def deliveries(self) -> list[Delivery]:
        """Give them in the order in which they ended."""
        return [self._delivery(each) for each in self._noted.copy()]

    def _take(self, noted: Noted) -> None:
        self._noted.append(noted)


class Tracer(Noting):
    """A trace on disk, written by a thread of its own. Close it when the graph has stopped: nothing is lost then.

    A graph that delivers faster than the disk takes it waits for the disk. When the file cannot be written any more, that is
    logged once, and the graph runs on without a trace.

    Args:
        folder: The `state_dir`.
        with_payloads: Write payloads, too; they may hold what nobody else shall read.
        kept: How many deliveries the file holds.
        show: See `Noting`.

    Raises:
        RunError: GBE683 when the file cannot be opened.
    """

    def __init__(
        self, folder: Path, *, with_payloads: bool = False, kept: int = KEPT, show: Show | None = None
    ) -> None:
        from graphbus_core.hosting.instruments.trace_file import FILE, TraceFile  # sqlite3 is not free

        super().__init__(show, with_payloads=with_payloads)
        self._file = TraceFile(folder / FILE, kept=kept)
        self._pending: deque[Noted] = deque()
        self._changed = Condition()
        self._is_closing = False
        self._is_broken = False
        self._thread = Thread(target=self._write_all, name="graphbus-trace", daemon=True)
        """Started with the first delivery: a process that is confined before that has no thread which is not."""

    def _take(self, noted: Noted) -> None:
        if self._is_broken:
            return
        self._pending.append(noted)
        if self._thread.ident is None:
            self._begin()
        if len(self._pending) > _PENDING:
            self._wait_for_room()

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is still to be written, and close the file. Twice is once."""
        if self._is_closing:
            return
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        attempt(self._file.close)

    def _begin(self) -> None:
        with self._changed:
            if self._thread.ident is None:
                self._thread.start()

    def _wait_for_room(self) -> None:
        with self._changed:
            self._changed.notify_all()
            while len(self._pending) > _PENDING and self._thread.is_alive() and not self._is_broken:
                self._changed.wait(_PAUSE_S)

    def _write_all(self) -> None:
        while not self._is_broken:
            with self._changed:
                if len(self._pending) < _BATCH and not self._is_closing:
                    self._changed.wait(_PAUSE_S)
            if self._pending:
                self._write_some()
                with self._changed:
                    self._changed.notify_all()
            elif self._is_closing:
                return

    def _write_some(self) -> None:
        count = min(len(self._pending), _BATCH)
        batch = [self._delivery(self._pending.popleft()) for _ in range(count)]
        _, error = attempt(lambda: self._file.add(batch))
        if error is not None:
            self._is_broken = True
            self._pending.clear()
            sentence = error.sentence if isinstance(error, RunError) else str(error)
            _log.error("%s The graph runs on without a trace.", sentence)


def _outcome(error: BaseException | None) -> Outcome:
    if error is None:
        return "done"
    return "failed" if isinstance(error, Exception) else "interrupted"


def describe_error(error: BaseException) -> str:
    """What was raised, one line."""
    if isinstance(error, RunError):
        return f"{error.sentence} [{error.code}]"
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
