"""What a trace holds: one event at one handler."""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["done", "failed", "interrupted"]


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
