"""What probes say of a running graph. Both servers answer them from here."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple

import msgspec

from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.metrics import Meter


class Answer(NamedTuple):
    """The status of a response, and its body as JSON will show it."""

    status: int
    body: dict[str, str | float]


_DEAD = Answer(503, {"status": "dead"})


class Status:
    """Whether the graph is started, ready for requests, and alive.

    Attributes:
        is_stopping: The end has begun: nothing new is taken on.
    """

    def __init__(self, graph: LiveGraph, meter: Meter, *, stuck_after_s: float, queue: int) -> None:
        self._graph = graph
        self._meter = meter
        self._stuck_after_s = stuck_after_s
        self._queue = queue
        self._seen: tuple[tuple[int, int, int], float] | None = (
            None  # what had begun while something waited, and since when
        )
        self.is_stopping = False

    def answer(self, path: str) -> Answer | None:
        """What the probe at this path says; None when it is none."""
        probe = {"/livez": self.live, "/readyz": self.ready, "/startupz": self.started}.get(path)
        return None if probe is None else probe()

    def encoded(self, path: str) -> tuple[bytes, int]:
        """The same as the body and the status of a response."""
        status, body = self.answer(path) or Answer(404, {"status": "unknown"})
        return msgspec.json.encode(body), status

    def started(self) -> Answer:
        """Yes: nothing listens before the graph has started."""
        return Answer(200, {"status": "started"})

    def live(self) -> Answer:
        """No when a handler runs for too long, or what waits is not delivered: only a restart helps."""
        if self._graph.bus.is_dispatcher_lost and not self.is_stopping:
            return _DEAD
        stuck = self._stuck_handler() or self._stuck_queue() if self._stuck_after_s else None
        return stuck or Answer(200, {"status": "alive"})

    def _stuck_handler(self) -> Answer | None:
        longest = self._meter.longest()
        running_s = 0.0 if longest is None else monotonic() - longest.since
        if longest is None or running_s <= self._stuck_after_s:
            return None
        return Answer(503, {"status": "stuck", "handler": longest.name, "running_s": round(running_s, 1)})

    def _stuck_queue(self) -> Answer | None:
        """As far as probes have seen: something waited all the time, and nothing has begun."""
        statistics, now = self._graph.bus.statistics(), monotonic()
        begun = (self._meter.begun, statistics.published, statistics.dead_letters)
        if not statistics.queued:
            self._seen = None
            return None
        seen = self._seen
        if seen is None or seen[0] != begun:
            seen = self._seen = begun, now
        waiting_s = now - seen[1]
        if waiting_s <= self._stuck_after_s:
            return None
        return Answer(503, {"status": "stuck", "queued": statistics.queued, "waiting_s": round(waiting_s, 1)})

    def ready(self) -> Answer:
        """No while the graph stops, when nobody delivers, or when no more events can wait."""
        if self.is_stopping:
            return Answer(503, {"status": "stopping"})
        if self._graph.bus.is_dispatcher_lost:
            return _DEAD
        queued = self._graph.bus.statistics().queued
        if self._queue and queued >= self._queue:
            return Answer(503, {"status": "overloaded", "queued": queued})
        return Answer(200, {"status": "ready"})
