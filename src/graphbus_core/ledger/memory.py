"""MemoryLedger: the engine that keeps everything in the memory of one process, for tests and the simulator.

It is deterministic: no threads, nothing random, and the clock that is given is all that it reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec

from graphbus_core.clock import Clock
from graphbus_core.hosting.state import States
from graphbus_core.ledger.changes import Changes
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.memory_queue import Delivery, Queue, letter_of
from graphbus_core.ledger.memory_states import MemoryStates
from graphbus_core.ledger.seam import (
    REMOVED,
    Capabilities,
    Dead,
    Lag,
    Lease,
    LeaseLost,
    Outcome,
    Parked,
    Released,
    RetryAt,
    StateChange,
    StateConflict,
    Subscription,
)
from graphbus_core.model.deliveries import DeadLetter
from graphbus_core.model.topics import matches


class MemoryLedger:
    """A `Ledger` in memory. Nothing survives the process, and the ids of all events are kept. Several nodes may share one.

    Args:
        clock: Only its `time` is used; watchers also use timers of the running event loop.
        states: Where the states of agents are written; None: in a `MemoryStates`.
        lease_s: How long a lease lasts.

    Attributes:
        states: The states of agents.
        deliveries: All deliveries that are not done, dead and parked ones too, by their number.
    """

    capabilities = Capabilities(atomic_settle=True, survives="nothing", several_processes=False)
    is_reachable = True

    def __init__(self, clock: Clock, states: States | None = None, lease_s: float = 30.0) -> None:
        self.states = MemoryStates() if states is None else states
        self.deliveries: dict[int, Delivery] = {}
        self._now = clock.time
        self._lease_s = lease_s
        self._subscriptions: dict[tuple[str, str, str], Subscription] = {}
        self._routes: dict[str, list[Subscription]] = {}
        self._ids: set[str] = set()
        self._queues: dict[tuple[str, int], Queue] = {}
        self._dues: list[tuple[float, int]] = []  # a heap; entries whose delivery has another `due` now are void
        self._numbers = count(1)
        self._changes = Changes(self._note_due)

    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        """Replace the subscriptions; see `Ledger.open`."""
        present = {each.key: each for each in subscriptions}
        if present == self._subscriptions:
            return
        self._subscriptions = present
        self._routes.clear()
        leased = {number for queue in self._queues.values() for number in queue.leased}
        self._queues.clear()
        for each in sorted(self.deliveries.values(), key=lambda delivery: delivery.number):
            self._adopt(each, present.get(each.subscription.key), is_leased=each.number in leased)
        self._changes.note()

    def _adopt(self, delivery: Delivery, subscription: Subscription | None, *, is_leased: bool) -> None:
        """Put a delivery into its queue as its subscription is now; park it if there is none."""
        if subscription is None:
            if delivery.outcome is None:
                self._set_aside(delivery, Parked(REMOVED))
            return
        if delivery.outcome == Parked(REMOVED):
            delivery.outcome, delivery.due = None, 0.0
        delivery.subscription = subscription
        delivery.partition = subscription.partition_of(delivery.envelope)
        if delivery.outcome is None:
            self._queue_of(delivery).open[delivery.number] = delivery
            if is_leased:
                self._queue_of(delivery).leased[delivery.number] = delivery

    def _queue_of(self, delivery: Delivery) -> Queue:
        name = (delivery.subscription.agent, delivery.partition)
        queue = self._queues.get(name)
        return self._queues.setdefault(name, Queue()) if queue is None else queue

    async def append(self, events: Sequence[Envelope]) -> None:
        """Store events; see `Ledger.append`."""
        self._append(events)

    def _append(self, events: Iterable[Envelope]) -> None:
        for event in events:
            if event.id in self._ids:
                continue
            self._ids.add(event.id)
            for subscription in self._route(event.type):
                partition = subscription.partition_of(event)
                delivery = Delivery(next(self._numbers), event, subscription, partition)
                self.deliveries[delivery.number] = self._queue_of(delivery).open[delivery.number] = delivery
                self._changes.note(subscription.agent)

    def _route(self, topic: str) -> list[Subscription]:
        """Return the subscriptions that get the events of a topic."""
        route = self._routes.get(topic)
        if route is None:
            route = [each for each in self._subscriptions.values() if matches(each.topic, topic)]
            self._routes[topic] = route
        return route

    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        """Return leases for the next deliveries; see `Ledger.claim`."""
        now = self._now()
        found: list[Delivery] = []
        for partition in partitions if limit > 0 else ():
            queue = self._queues.get((agent, partition))
            if queue is not None and queue.open:
                found += queue.find_claimable(now, limit)
        found.sort(key=lambda delivery: delivery.number)
        return [self._lease(each, now) for each in found[:limit]]

    def _lease(self, delivery: Delivery, now: float) -> Lease:
        delivery.token += 1
        self._queue_of(delivery).leased[delivery.number] = delivery
        self._set_due(delivery, now + self._lease_s)
        return Lease(
            delivery=delivery.number,
            envelope=delivery.envelope,
            subscription=delivery.subscription,
            partition=delivery.partition,
            attempt=delivery.attempts + 1,
            unfinished=delivery.unfinished,
            token=delivery.token,
            ends_at=delivery.due,
            failed_at=delivery.failed_at,
            last_error=delivery.last_error,
        )

    def _set_due(self, delivery: Delivery, due: float) -> None:
        delivery.due = due
        heappush(self._dues, (due, delivery.number))
        if self._dues[0] == (due, delivery.number):  # else the watchers look again before that
            self._changes.look_again()

    async def extend(self, lease: Lease) -> Lease:
        """Return the lease with a later end; see `Ledger.extend`."""
        delivery = self._find_leased(lease)
        self._set_due(delivery, self._now() + self._lease_s)
        return msgspec.structs.replace(lease, ends_at=delivery.due)

    def _find_leased(self, lease: Lease) -> Delivery:
        """Return the delivery of a lease; raise LeaseLost if it has another lease now, or none."""
        delivery = self.deliveries.get(lease.delivery)
        is_leased = delivery is not None and lease.delivery in self._queue_of(delivery).leased
        if delivery is None or not is_leased or delivery.token != lease.token:
            raise LeaseLost(lease.envelope.id)
        return delivery

    async def settle(
        self, lease: Lease, outcome: Outcome, state: Sequence[StateChange] = (), outgoing: Sequence[Envelope] = ()
    ) -> None:
        """End a lease; see `Ledger.settle`."""
        delivery = self._find_leased(lease)
        conflict = self.states.write_together(state) if state else None
        if conflict is not None:
            raise StateConflict(conflict)
        self._append(outgoing)
        self._apply(delivery, outcome)

    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        queue = self._queue_of(delivery)
        del queue.leased[delivery.number]
        match outcome:
            case RetryAt(at, error):
                self._count_failure(delivery, error)
                self._set_due(delivery, at)
            case Released():
                delivery.due = 0.0
            case Dead(_, error):
                self._count_failure(delivery, error)
                self._set_aside(delivery, outcome)
            case Parked():
                self._set_aside(delivery, outcome)
            case _:
                del queue.open[delivery.number], self.deliveries[delivery.number]
        if queue.open:
            self._changes.note(delivery.subscription.agent)

    def _count_failure(self, delivery: Delivery, error: str) -> None:
        delivery.attempts += 1
        delivery.last_error = error
        delivery.failed_at = self._now() if delivery.failed_at is None else delivery.failed_at

    def _set_aside(self, delivery: Delivery, outcome: Dead | Parked) -> None:
        self._queue_of(delivery).open.pop(delivery.number, None)
        delivery.outcome, delivery.due, delivery.ended_at = outcome, 0.0, self._now()

    async def dead_letters(self, agents: Collection[str]) -> Sequence[tuple[int, DeadLetter]]:
        """Return the dead letters of these agents; see `Ledger.dead_letters`."""
        return [
            (number, letter_of(each, each.outcome))
            for number, each in sorted(self.deliveries.items())
            if isinstance(each.outcome, Dead) and each.subscription.agent in agents
        ]

    async def forget(self, deliveries: Collection[int]) -> None:
        """Forget dead letters; see `Ledger.forget`."""
        for number in deliveries:
            each = self.deliveries.get(number)
            if each is not None and isinstance(each.outcome, Dead):
                del self.deliveries[number]

    async def resume(self, build: str = "") -> int:
        """Hand out again what is parked; see `Ledger.resume`."""
        found = [
            each
            for each in self.deliveries.values()
            if isinstance(each.outcome, Parked)
            and each.outcome != Parked(REMOVED)
            and build in ("", each.envelope.build)
        ]
        for each in found:
            each.outcome = None
            self._queue_of(each).put_back(each)
        if found:
            self._changes.note()
        return len(found)

    def watch(self) -> AsyncIterator[Collection[str]]:
        """Yield whenever a delivery may have become due; see `Ledger.watch`."""
        return self._changes.watch()

    def _note_due(self) -> float | None:
        """Note leases and waits that have ended; return after how many seconds the next one ends, None: there is none."""
        now = self._now()
        while self._dues:
            due, number = self._dues[0]
            delivery = self.deliveries.get(number)
            is_void = delivery is None or delivery.due != due
            if due > now and not is_void:
                return due - now
            heappop(self._dues)
            if not is_void and delivery is not None:
                self._changes.note(delivery.subscription.agent)
        return None

    async def lag(self) -> Sequence[Lag]:
        """Return the open deliveries of each subscription, and of removed ones that have any."""
        now = self._now()
        found: dict[tuple[str, str, str], Lag] = {
            each.key: Lag(subscription=each) for each in self._subscriptions.values()
        }
        for each in self.deliveries.values():
            kind, key = self._kind_of(each, now), each.subscription.key
            lag = found.get(key) or Lag(subscription=each.subscription)
            age_s = now - each.envelope.time if kind == "waiting" else 0.0
            found[key] = msgspec.structs.replace(
                lag, **{kind: getattr(lag, kind) + 1, "oldest_s": max(lag.oldest_s, age_s)}
            )
        return list(found.values())

    def _kind_of(self, delivery: Delivery, now: float) -> str:
        """Return the field of `Lag` that counts a delivery."""
        if delivery.outcome is not None:
            return "dead" if isinstance(delivery.outcome, Dead) else "parked"
        if delivery.due <= now:
            return "waiting"
        return "leased" if delivery.number in self._queue_of(delivery).leased else "retrying"

    async def close(self) -> None:
        """Do nothing: other nodes may use it further."""
