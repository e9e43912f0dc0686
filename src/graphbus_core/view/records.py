"""The deliveries that the view can look back at: the last ones of a running graph, in memory, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import NamedTuple, Protocol

import msgspec

from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.model.topics import is_pattern, matches
from graphbus_core.view.messages import Delivery, DeliveryPage

MOST_KEPT = 10_000
MOST_BYTES = 32 << 20
LONGEST_PAGE = 1000
LARGEST_TREE = 2000
"""So many deliveries of one tree are shown at most."""
_OWN_BYTES = 700
"""About what a delivery takes without its texts."""


class Query(NamedTuple):
    """Which deliveries are wanted.

    Attributes:
        before: Only those with a lower number, the latest of them; 0: up to the newest.
        after: If not 0, only those with a higher number, the earliest of them.
        limit: How many at most.
        topic: Only this topic or pattern; empty: all.
        agent: Only those that this agent, or this handler (`Agent.method`), received or published.
        key: Only those with this key.
        is_failed: Only those that did not succeed, and repeated attempts.
    """

    before: int = 0
    after: int = 0
    limit: int = 200
    topic: str = ""
    agent: str = ""
    key: str = ""
    is_failed: bool = False

    @property
    def is_selective(self) -> bool:
        """True if some deliveries do not fit."""
        return bool(self.topic or self.agent or self.key or self.is_failed)

    def fits(self, delivery: TracedDelivery) -> bool:
        """True if a delivery is wanted, whatever its number."""
        if self.is_failed and delivery.outcome == "done" and delivery.attempt == 1:
            return False
        if self.key and delivery.key != self.key:
            return False
        if self.topic and not _has_topic(delivery.topic, self.topic):
            return False
        return not self.agent or any(_is_of(name, self.agent) for name in (delivery.handler, delivery.published_by))


def _has_topic(topic: str, wanted: str) -> bool:
    return matches(wanted, topic) if is_pattern(wanted) else topic == wanted


def _is_of(name: str, wanted: str) -> bool:
    """True if `Agent.method` is the wanted handler, or one of the wanted agent."""
    return name == wanted or name.partition(".")[0] == wanted


class Found(NamedTuple):
    """A delivery with its payload as JSON text, empty if that was not recorded."""

    delivery: Delivery
    payload: str


class Records(Protocol):
    """Deliveries with numbers that grow; `FileRecords` reads them from a trace."""

    def bounds(self) -> tuple[int, int]:
        """Return the numbers of the oldest and the newest delivery; 0 and 0 if there is none."""

    def page(self, query: Query) -> DeliveryPage:
        """Return the deliveries that fit, oldest first."""

    def tree(self, event_id: str) -> Sequence[Found]:
        """Return the deliveries that follow from the same event from outside as this event; empty if it is not known."""

    def all(self) -> Iterable[TracedDelivery]:
        """Yield the deliveries, oldest first, for comparing."""


class MemoryRecords:
    """The last deliveries. One thread adds, any thread reads.

    Args:
        most: How many are kept.
        most_bytes: About how many bytes they take at most.
    """

    def __init__(self, most: int = MOST_KEPT, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: deque[Found] = deque()
        self._lock = Lock()
        self._newest = 0
        self.bytes = 0

    def add(self, traced: TracedDelivery) -> Delivery:
        """Keep a delivery, drop the oldest ones beyond the bounds, and return it with its number, without its payload."""
        facts = msgspec.structs.asdict(traced) | {"payload": ""}
        with self._lock:
            self._newest += 1
            found = Found(Delivery(**facts, seq=self._newest, has_payload=bool(traced.payload)), traced.payload)
            self._kept.append(found)
            self.bytes += _size_of(found)
            while len(self._kept) > self._most or (self.bytes > self._most_bytes and len(self._kept) > 1):
                self.bytes -= _size_of(self._kept.popleft())
        return found.delivery

    def bounds(self) -> tuple[int, int]:
        """Return the numbers of the oldest and the newest delivery; 0 and 0 if there is none."""
        with self._lock:
            return (self._kept[0].delivery.seq, self._newest) if self._kept else (0, 0)

    def _copy(self) -> list[Found]:
        with self._lock:
            return list(self._kept)

    def page(self, query: Query) -> DeliveryPage:
        """Return the deliveries that fit, oldest first."""
        kept = [each.delivery for each in self._copy()]
        oldest, newest = (kept[0].seq, kept[-1].seq) if kept else (0, 0)
        wanted = [each for each in kept if query.fits(each)]
        if query.after:
            right = [each for each in wanted if each.seq > query.after]
            shown, has_newer = right[: query.limit], len(right) > query.limit
            has_older = len(right) < len(wanted)
        else:
            left = [each for each in wanted if each.seq < query.before] if query.before else wanted
            shown, has_older = left[-query.limit :], len(left) > query.limit
            has_newer = len(left) < len(wanted)
        return DeliveryPage(
            deliveries=tuple(shown), has_older=has_older, has_newer=has_newer, oldest=oldest, newest=newest
        )

    def tree(self, event_id: str) -> Sequence[Found]:
        """Return the deliveries that follow from the same event from outside as this event; empty if it is not known."""
        kept = self._copy()
        roots = (each.delivery.correlation_id for each in reversed(kept) if names_event(each.delivery, event_id))
        root = next(roots, None)
        return list(islice((each for each in kept if each.delivery.correlation_id == root), LARGEST_TREE))

    def all(self) -> Iterator[TracedDelivery]:
        """Yield the deliveries, oldest first, with their payloads."""
        for found in self._copy():
            yield msgspec.structs.replace(found.delivery, payload=found.payload)


def names_event(delivery: TracedDelivery, event_id: str) -> bool:
    """True if a delivery is of this event, or names it as its cause or root."""
    return event_id in (delivery.event_id, delivery.causation_id, delivery.correlation_id)


def _size_of(found: Found) -> int:
    delivery = found.delivery
    return _OWN_BYTES + len(found.payload) + len(delivery.error) + len(delivery.key)
