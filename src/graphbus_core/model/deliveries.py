"""What a bus tells about its deliveries: dead letters and counts."""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.model.messages import Event


class DeliveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a subscription wants its events: what `@subscribe` is given besides the topic.

    Attributes:
        retries: How often an event is delivered again after a failure.
        backoff_s: Seconds before the first further attempt; each later one waits twice as long.
        retry_on: Which exceptions are worth a further attempt; refusals of schemas never are.
        timeout_s: How long an `async def` handler may take; None: as long as it wants.
        concurrency: How many events an `async def` handler may have in hand at once.
    """

    retries: int = 0
    backoff_s: float = 0.1
    retry_on: tuple[type[Exception], ...] = (Exception,)
    timeout_s: float | None = None
    concurrency: int = 1


ONCE = DeliveryPolicy()
"""One attempt, one at a time: the policy of a plain `@subscribe(topic)`."""


Reason = Literal["handler", "hops", "tree", "full", "closed", "gone"]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An event that one subscription, or all of them, did not get or could not handle.

    Attributes:
        subscription: The name of the handler; empty when the event was stopped before it reached any.
        reason: `handler` raised, the chain had too many `hops`, the root's `tree` was too large, the queue was `full`, the
            bus was `closed`, or the handler was `gone` before a further attempt.
        error: What was wrong, one line.
        timestamp: When it became a dead letter: after the last attempt.
        first_timestamp: When the first attempt failed; the same for a single one.
        attempts: How often it was delivered to this subscription; 0 when it was never.
        traceback: For `handler`: the text of its traceback; empty for a refusal, which says where it is wrong.
        place: For `handler`: where it raised, `file:line`. For `hops` and `tree`, `event.trail` says how it came there.
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
    """What became of the events of one subscription; those that failed were delivered, too."""

    delivered: int
    failed: int


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """What a bus has done so far.

    Attributes:
        published: Events whose delivery has begun.
        queued: Events that wait.
        delivered: Calls of handlers of present subscriptions, failed ones included.
        dead_letters: All of them, also those that the ring has forgotten.
        subscriptions: `"handler <- topic"` -> its counts.
    """

    published: int
    queued: int
    delivered: int
    failed: int
    dead_letters: int
    subscriptions: dict[str, Counts]
