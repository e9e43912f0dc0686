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
        """No when one handler has been running for too long: all that comes after it waits, and only a restart helps."""
        longest = self._meter.longest()
        if longest is not None and self._stuck_after_s:
            running_s = monotonic() - longest.since
            if running_s > self._stuck_after_s:
                return Answer(503, {"status": "stuck", "handler": longest.name, "running_s": round(running_s, 1)})
        return Answer(200, {"status": "alive"})

    def ready(self) -> Answer:
        """No while the graph stops, or when no more events can wait."""
        if self.is_stopping:
            return Answer(503, {"status": "stopping"})
        queued = self._graph.bus.statistics().queued
        if self._queue and queued >= self._queue:
            return Answer(503, {"status": "overloaded", "queued": queued})
        return Answer(200, {"status": "ready"})
