"""Retries: the further attempts of a bus that wait for their time. What is due joins the queue like any other event."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from graphbus_core.bus.routing import Subscription
from graphbus_core.clock import Clock, Timer
from graphbus_core.log import Log
from graphbus_core.model.messages import Event

_log = Log("graphbus.bus")


class Waiting(NamedTuple):
    """A further attempt that waits.

    Attributes:
        attempt: Which one it will be, from 2.
        due: When, on the clock's `monotonic`.
        error: What the last attempt has raised, one line.
    """

    event: Event
    subscription: Subscription
    attempt: int
    due: float
    error: str


class Retries:
    """What waits, by event and subscription. Safe from any thread.

    Args:
        clock: Whose time counts.
        enqueue: Takes what is due; it must be quick.
        deliver: Called after it, to see that somebody delivers.
        limit: How many may wait. What fails while others are in the way for long must not fill the memory.
    """

    def __init__(
        self, clock: Clock, enqueue: Callable[[Waiting], None], deliver: Callable[[], None], limit: int
    ) -> None:
        self._clock = clock
        self._enqueue = enqueue
        self._deliver = deliver
        self._limit = limit
        self._changing = Lock()
        self._waiting: dict[tuple[Event, Subscription], tuple[Waiting, Timer]] = {}
        self._first_failures: dict[tuple[Event, Subscription], float] = {}
        self._is_over = False

    def plan(self, event: Event, subscription: Subscription, *, attempt: int, delay_s: float, error: str) -> bool:
        """Let the event be delivered again to this subscription, not before so many seconds; False when that cannot be."""
        key = event, subscription
        waiting = Waiting(event, subscription, attempt, self._clock.monotonic() + delay_s, error)
        with self._changing:
            if self._is_over:
                return False
            if len(self._waiting) >= self._limit:
                why = "%s is not tried again on %s: %d further attempts wait already"
                _log.error(why, subscription.name, event.topic, self._limit)
                return False
            self._first_failures.setdefault(key, self._clock.time())
            self._waiting[key] = waiting, self._clock.after(delay_s, lambda: self._fall_due(waiting))
        return True

    def first_failure(self, event: Event, subscription: Subscription) -> float | None:
        """When the first attempt failed, if there has been a further one."""
        return self._first_failures.get((event, subscription))

    def forget(self, event: Event, subscription: Subscription) -> None:
        """Let go of what has come to its end."""
        self._first_failures.pop((event, subscription), None)

    def next_due(self) -> float | None:
        """When the next attempt is due, on the clock's `monotonic`; None when none waits."""
        with self._changing:
            return min((waiting.due for waiting, _ in self._waiting.values()), default=None)

    def cancel(self) -> list[tuple[Waiting, float]]:
        """Let nothing fall due any more, and give what has waited, each with the time of its first failure."""
        with self._changing:
            self._is_over = True
            left = list(self._waiting.values())
            self._waiting.clear()
        for _, timer in left:
            timer.cancel()
        now = self._clock.time()
        return [(waiting, self._first_failures.pop((waiting.event, waiting.subscription), now)) for waiting, _ in left]

    def _fall_due(self, waiting: Waiting) -> None:
        key = waiting.event, waiting.subscription
        with self._changing:
            if key not in self._waiting:
                return
            self._enqueue(waiting)  # before it is taken out, so that a look at both never misses it
            del self._waiting[key]
        self._deliver()
