"""Data about the deliveries of a bus: policies, dead letters and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from graphbus_core.model.messages import Event

OnRetry = Literal["block", "skip"]


class DeliveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How events are delivered to a subscription: the arguments of `@subscribe` besides the topic.

    Attributes:
        retries: The largest number of retries after a failure.
        backoff_s: Seconds before the first retry; the wait doubles with each further one.
        retry_on: The exceptions after which a retry is made. There is none after a payload that does not fit its schema.
        timeout_s: Seconds that an `async def` handler may take; None: no limit.
        concurrency: The largest number of events that an `async def` handler handles at the same time.
        key: The field of the payload within whose values a ledger keeps events in order; empty: one order for all events.
        on_retry: Whether a ledger holds back the later events of a key while one waits for a retry.
    """

    retries: int = 0
    backoff_s: float = 0.1
    retry_on: tuple[type[Exception], ...] = (Exception,)
    timeout_s: float | None = None
    concurrency: int = 1
    key: str = ""
    on_retry: OnRetry = "block"


ONCE = DeliveryPolicy()
"""The policy of a plain `@subscribe(topic)`: one attempt, and one event at a time."""


Reason = Literal["handler", "hops", "tree", "full", "closed", "gone", "unfinished"]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An event whose delivery failed for good, to one subscription or to all.

    Attributes:
        subscription: The name of the handler; empty if the event was stopped before it reached any.
        reason: `handler`: the handler raised an exception; `hops`: the causal chain was too long; `tree`: its root had too many
            descendants; `full`: the queue was full; `closed`: the bus was closed; `gone`: the handler was unsubscribed before
            a retry; `unfinished`: processes ended again and again while they handled it.
        error: The error on one line.
        timestamp: When it became a dead letter, after the last attempt; seconds since the epoch.
        place: For `handler`: where the exception was raised, `file:line`.
        first_timestamp: When the first attempt failed; equal to `timestamp` if there was only one.
        attempts: The number of deliveries to this subscription; 0 if there was none.
        traceback: For `handler`: the text of the traceback; empty if the payload was refused by its schema.
    """

    event: Event
    subscription: str
    reason: Reason
    error: str
    timestamp: float
    place: str = ""
    first_timestamp: float = 0.0
    attempts: int = 0
    traceback: str = ""


class Counts(msgspec.Struct, frozen=True):
    """The numbers of events that were delivered to one subscription, and of those among them that failed."""

    delivered: int
    failed: int


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a bus so far.

    Attributes:
        published: Events whose delivery has begun.
        queued: Events that wait for delivery.
        delivered: Calls of the handlers of present subscriptions, failed ones included.
        failed: Calls of them that failed.
        dead_letters: All dead letters, including older ones that are no longer kept in memory.
        subscriptions: `"handler <- topic"` -> counts of that subscription.
    """

    published: int
    queued: int
    delivered: int
    failed: int
    dead_letters: int
    subscriptions: dict[str, Counts]


class Metric(msgspec.Struct, frozen=True):
    """A metric with its samples, each the labels and the value."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    samples: Sequence[tuple[Mapping[str, str], float]]
