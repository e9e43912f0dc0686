"""Each planted defect of an engine is found by a test of the suite, so that a green suite says something."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any
from unittest import SkipTest

import msgspec
import pytest

from graphbus_core.clock import Clock
from graphbus_core.hosting.state import States
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.memory_queue import Delivery, Queue
from graphbus_core.ledger.seam import (
    Dead,
    Done,
    Lag,
    Lease,
    LeaseLost,
    Ledger,
    Outcome,
    Parked,
    Released,
    RetryAt,
    StateChange,
    StateConflict,
    Subscription,
)
from graphbus_core.testing.ledger_suite import LedgerSuite

State = Sequence[StateChange]
Events = Sequence[Envelope]


class AppendsTwice(MemoryLedger):
    async def append(self, events: Events) -> None:
        self._ids.clear()
        await super().append(events)


class ForgetsIdsOfDoneEvents(MemoryLedger):
    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        super()._apply(delivery, outcome)
        if isinstance(outcome, Done):
            self._ids.discard(delivery.envelope.id)


class StoresOutgoingTwice(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        self._ids.difference_update(each.id for each in outgoing)
        await super().settle(lease, outcome, state, outgoing)


class DropsPayloads(MemoryLedger):
    async def append(self, events: Events) -> None:
        await super().append([msgspec.structs.replace(each, trail=()) for each in events])


class MatchesByPrefix(MemoryLedger):
    def _route(self, topic: str) -> list[Subscription]:
        return [each for each in self._subscriptions.values() if topic.startswith(each.topic.split("*")[0])]


class GivesOneHandlerOfAnAgent(MemoryLedger):
    def _route(self, topic: str) -> list[Subscription]:
        return list({each.agent: each for each in super()._route(topic)}.values())


class SettlesWithAnyToken(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        await super().settle(self._with_valid_token(lease), outcome, state, outgoing)

    def _with_valid_token(self, lease: Lease) -> Lease:
        delivery = self.deliveries.get(lease.delivery)
        return lease if delivery is None else msgspec.structs.replace(lease, token=delivery.token)


class ExtendsWithAnyToken(SettlesWithAnyToken):
    settle = MemoryLedger.settle

    async def extend(self, lease: Lease) -> Lease:
        return await super().extend(self._with_valid_token(lease))


class RestartsTokens(MemoryLedger):
    def _lease(self, delivery: Delivery, now: float) -> Lease:
        delivery.token = 0
        return super()._lease(delivery, now)


class ExtendsNothing(MemoryLedger):
    async def extend(self, lease: Lease) -> Lease:
        self._find_leased(lease)
        return lease


class SettlesMoreThanOnce(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        if lease.delivery in self.deliveries:
            await super().settle(lease, outcome, state, outgoing)


class AppliesOutgoingOfALostLease(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        self._append(outgoing)
        await super().settle(lease, outcome, state)


class AppliesStateOfALostLease(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        if self.states.write_together(state) is not None:
            raise StateConflict
        await super().settle(lease, outcome, (), outgoing)


class LosesOutgoing(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        await super().settle(lease, outcome, state)


class LosesOutgoingOfFailures(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        await super().settle(lease, outcome, state, outgoing if isinstance(outcome, Done) else ())


class WritesStateInSpiteOfAConflict(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        blind = [StateChange(each.agent, each.changes) for each in state]
        await super().settle(lease, outcome, blind, outgoing)


class WritesStatesUpToAConflict(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        for each in state:
            if self.states.write_together([each]) is not None:
                raise StateConflict
        await super().settle(lease, outcome, (), outgoing)


class EndsTheLeaseAfterAConflict(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        try:
            await super().settle(lease, outcome, state, outgoing)
        except StateConflict:
            await super().settle(lease, Released())
            raise


class IgnoresListedKeys(MemoryLedger):
    async def settle(self, lease: Lease, outcome: Outcome, state: State = (), outgoing: Events = ()) -> None:
        unlisted = [StateChange(each.agent, each.changes, each.expected) for each in state]
        await super().settle(lease, outcome, unlisted, outgoing)


class PutsRetriesAtTheEnd(MemoryLedger):
    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        super()._apply(delivery, outcome)
        if isinstance(outcome, RetryAt):
            self._queue_of(delivery).open.move_to_end(delivery.number)


class LetsEveryRetryPass(MemoryLedger):
    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        await super().open([msgspec.structs.replace(each, on_retry="skip") for each in subscriptions])


class LetsNoRetryPass(MemoryLedger):
    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        await super().open([msgspec.structs.replace(each, on_retry="block") for each in subscriptions])


class RetriesAtOnce(MemoryLedger):
    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        super()._apply(delivery, RetryAt(0.0, outcome.error) if isinstance(outcome, RetryAt) else outcome)


class CountsReleasesAsAttempts(MemoryLedger):
    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        super()._apply(delivery, RetryAt(0.0) if isinstance(outcome, Released) else outcome)


class ForgetsAttempts(MemoryLedger):
    def _count_failure(self, delivery: Delivery, error: str) -> None:
        pass


class RetriesDeadLetters(MemoryLedger):
    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        super()._apply(delivery, RetryAt(0.0) if isinstance(outcome, Dead) else outcome)


class ForgetsParked(MemoryLedger):
    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        super()._apply(delivery, Done() if isinstance(outcome, Parked) else outcome)


class _WithQueues(MemoryLedger):
    """An engine with another kind of queue."""

    queue: type[Queue]

    def _queue_of(self, delivery: Delivery) -> Queue:
        name = (delivery.subscription.agent, delivery.partition)
        if name not in self._queues:
            self._queues[name] = self.queue()
        return self._queues[name]


class KeepsEndedLeases(_WithQueues):
    class queue(Queue):
        def find_claimable(self, now: float, limit: int) -> list[Delivery]:
            return [] if self.leased else super().find_claimable(now, limit)


class ForgetsUnfinished(_WithQueues):
    class queue(Queue):
        def find_claimable(self, now: float, limit: int) -> list[Delivery]:
            found = super().find_claimable(now, limit)
            for each in found:
                each.unfinished = 0
            return found


class HandsOutTwoOfAPartition(_WithQueues):
    class queue(Queue):
        def find_claimable(self, now: float, limit: int) -> list[Delivery]:
            free = (each for number, each in self.open.items() if number not in self.leased and each.due <= now)
            return super().find_claimable(now, limit) or list(free)[:limit]


class HandsOutTheNewestFirst(_WithQueues):
    class queue(Queue):
        def find_claimable(self, now: float, limit: int) -> list[Delivery]:
            return super().find_claimable(now, 1000)[::-1][:limit]


class VoidsOnlyTheFirstLease(_WithQueues):
    class queue(Queue):
        def find_claimable(self, now: float, limit: int) -> list[Delivery]:
            ended = dict(self.leased)
            found = super().find_claimable(now, limit)
            if found:
                self.leased.update({number: each for number, each in ended.items() if each not in found})
            return found


class IgnoresTheLimit(MemoryLedger):
    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        return await super().claim(agent, partitions, 1000)


class GivesOtherPartitions(MemoryLedger):
    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        return await super().claim(agent, range(100), limit)


class BeginsWithTheFirstPartition(MemoryLedger):
    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        leases: list[Lease] = []
        for partition in partitions:
            leases += await super().claim(agent, [partition], limit - len(leases))
        return leases


class GivesAnyAgent(MemoryLedger):
    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        agents = [agent, *(each.agent for each in self._subscriptions.values())]
        found = [await super(GivesAnyAgent, self).claim(each, partitions, limit) for each in agents]
        return max(found, key=bool)


class DropsDeliveriesOfRemovedSubscriptions(MemoryLedger):
    def _adopt(self, delivery: Delivery, subscription: Subscription | None, *, is_leased: bool) -> None:
        super()._adopt(delivery, subscription, is_leased=is_leased)
        if subscription is None:
            del self.deliveries[delivery.number]


class KeepsDeliveriesOfRemovedSubscriptionsOpen(MemoryLedger):
    def _adopt(self, delivery: Delivery, subscription: Subscription | None, *, is_leased: bool) -> None:
        super()._adopt(delivery, subscription or delivery.subscription, is_leased=is_leased)


class KeepsOldPartitions(MemoryLedger):
    def _adopt(self, delivery: Delivery, subscription: Subscription | None, *, is_leased: bool) -> None:
        partitions = delivery.subscription.partitions
        kept = subscription and msgspec.structs.replace(subscription, partitions=partitions)
        super()._adopt(delivery, kept, is_leased=is_leased)


class CountsLeasedAsWaiting(MemoryLedger):
    def _kind_of(self, delivery: Delivery, now: float) -> str:
        return {"leased": "waiting"}.get(kind := super()._kind_of(delivery, now), kind)


class KnowsNoAges(MemoryLedger):
    async def lag(self) -> Sequence[Lag]:
        return [msgspec.structs.replace(each, oldest_s=0.0) for each in await super().lag()]


class WakesNobody(MemoryLedger):
    async def watch(self) -> AsyncIterator[None]:
        while True:
            await self._changes.wait(None)
            yield


class WakesForAppendsOnly(MemoryLedger):
    def _apply(self, delivery: Delivery, outcome: Outcome) -> None:
        self._changes.note, note = lambda *_: None, self._changes.note  # type: ignore[method-assign] # the defect
        super()._apply(delivery, outcome)
        self._changes.note = note  # type: ignore[method-assign] # as above


class DoesNotWakeForTime(MemoryLedger):
    def _set_due(self, delivery: Delivery, due: float) -> None:
        delivery.due = due


class WakesOneWatcher(MemoryLedger):
    async def watch(self) -> AsyncIterator[None]:
        watcher = super().watch()
        while True:
            await anext(watcher)
            first, *_ = self.__dict__.setdefault("watchers", [watcher])
            if watcher is not first:
                await self._changes.wait(None)
                continue
            yield


class ResumesEveryBuild(MemoryLedger):
    async def resume(self, build: str = "") -> int:
        return await super().resume()


class ForgetsNoDeadLetter(MemoryLedger):
    async def forget(self, deliveries: Collection[int]) -> None:
        pass


def defects() -> Iterable[type[MemoryLedger]]:
    found = [each for each in globals().values() if isinstance(each, type) and issubclass(each, MemoryLedger)]
    return [each for each in found if each.__module__ == __name__ and not each.__name__.startswith("_")]


class LosesAllInACrash(MemoryLedger):
    """Its suite says that it survives one."""


class _Suite(LedgerSuite):
    kind: Callable[..., MemoryLedger] = MemoryLedger

    def make(self, clock: Clock) -> MemoryLedger:
        return type(self).kind(clock, lease_s=self.lease_s)

    def reopen(self, ledger: Ledger) -> Ledger | None:
        return self.make(self.clock) if isinstance(ledger, LosesAllInACrash) else None

    def states(self, ledger: Ledger) -> States:
        assert isinstance(ledger, MemoryLedger)
        return ledger.states


@cache
def failures(kind: Callable[..., MemoryLedger]) -> list[str]:
    """Return the names of the tests that fail with an engine."""
    patience_s = 10.0 if kind is MemoryLedger else 0.2  # a defect that never wakes is found after any time
    suite: Any = type("Suite", (_Suite,), {"kind": kind, "patience_s": patience_s})
    return [name for name in dir(LedgerSuite) if name.startswith("test_") and not passes(getattr(suite(), name))]


def passes(test: Callable[[], None]) -> bool:
    try:
        test()
    except (AssertionError, LeaseLost, StateConflict):
        return False
    except SkipTest:
        return True
    return True


def test_an_engine_without_defects_fails_no_test() -> None:
    assert failures(MemoryLedger) == []


@pytest.mark.parametrize("defect", defects(), ids=lambda each: each.__name__)
def test_the_suite_finds(defect: type[MemoryLedger]) -> None:
    assert failures(defect)


def test_each_test_of_the_suite_finds_a_defect() -> None:
    """A test that no defect fails would promise nothing."""
    found = {name for defect in defects() for name in failures(defect)}
    wanted = {name for name in dir(LedgerSuite) if name.startswith("test_")}
    assert wanted <= found
