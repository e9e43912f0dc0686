"""The seam between a graph and an engine that remembers its events: the `Ledger` protocol and the values that cross it.

    append -> event -- one delivery for each subscription --> claim -> lease -> settle -> done, retried, dead or parked

An engine remembers and hands out. What happens after an attempt is decided above it, in `worker` with `bus.outcomes`; so
attempts, retries, dead letters and checks of schemas work the same on every engine.

What an engine promises
=======================
Safety     `append` and `settle` return when a crash of any process can no longer undo them.
Once       An event is stored once for each id, however often it is appended: a repeated `append` changes nothing.
Atomicity  `settle` applies outcome, changes of states and outgoing events together or not at all.
Fencing    Each lease has a token. When a lease has ended and was handed out again, the older one can neither settle nor
           extend: both raise `LeaseLost`, and nothing of it is applied.
Order      Deliveries of one agent and partition are claimed in the order in which their events were appended. A delivery
           that waits for a retry holds back those behind it, unless its subscription says `on_retry="skip"`.
Honesty    A delivery that was claimed and never settled is handed out again when its lease ends, with `unfinished` counted up.

What a worker must do: extend or settle all leases of one claim before they end, begin with the first, and give the later ones of
a partition back (`Released`) when one before them is to be retried and blocks, or was left unfinished and is handled next.

All times are seconds since the epoch on the clock of the engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, runtime_checkable
from zlib import crc32

import msgspec

from graphbus_core.hosting.state import Texts
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.model.deliveries import DeadLetter, OnRetry, Reason

REMOVED = "Its subscription does not exist any more."
"""Why the deliveries of a removed subscription are parked; they are open again when the subscription is."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A handler and the topic or pattern whose events it gets.

    Attributes:
        agent: The agent of the handler; its deliveries have one order.
        handler: The handler, as `Agent.method`.
        topic: A topic or a pattern.
        partition_key: The field of the payload by whose value deliveries are divided into partitions; empty: all in one.
        partitions: How many partitions there are.
        on_retry: `block`: a delivery that waits for a retry holds back the later ones of its partition; `skip`: it does not.
    """

    agent: str
    handler: str
    topic: str
    partition_key: str = ""
    partitions: int = 1
    on_retry: OnRetry = "block"

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from the others; the further fields may change from one build to the next."""
        return self.agent, self.handler, self.topic

    def partition_of(self, envelope: Envelope) -> int:
        """Return the partition of an event, in 0..partitions-1; the same in every process and engine."""
        if not self.partition_key or self.partitions == 1:
            return 0
        value = envelope.data.get(self.partition_key) if isinstance(envelope.data, dict) else None
        return crc32(msgspec.json.encode(value, order="deterministic")) % self.partitions


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to handle one delivery until `ends_at`.

    Attributes:
        delivery: The number of the delivery in its ledger.
        envelope: The event.
        subscription: The handler that gets it.
        partition: The partition of the delivery.
        attempt: The number of this attempt, from 1; unfinished ones are not counted.
        unfinished: How many leases of this delivery have ended without being settled or given back.
        token: The fencing token: higher for each later lease of the delivery.
        ends_at: When the lease ends, unless it is extended.
        failed_at: When the first attempt failed; None before that.
        last_error: The error of the last failed attempt, in one line.
    """

    delivery: int
    envelope: Envelope
    subscription: Subscription
    partition: int = 0
    attempt: int = 1
    unfinished: int = 0
    token: int = 0
    ends_at: float = 0.0
    failed_at: float | None = None
    last_error: str = ""


# --- how a lease is settled ---


class Done(msgspec.Struct, frozen=True):
    """The event is handled."""


class RetryAt(msgspec.Struct, frozen=True):
    """The event is delivered again, not before `at`; `error` says in one line why the attempt failed."""

    at: float
    error: str = ""


class Dead(msgspec.Struct, frozen=True):
    """The delivery becomes a dead letter; the fields are those of `DeadLetter`."""

    reason: Reason
    error: str
    place: str = ""
    traceback: str = ""


class Parked(msgspec.Struct, frozen=True):
    """The delivery is set aside until a person or a newer build takes it up; `why` says in a sentence what it waits for."""

    why: str


class Released(msgspec.Struct, frozen=True):
    """The lease is given back without an attempt: the next claim may hand the delivery out at once."""


Outcome = Done | RetryAt | Dead | Parked | Released


class StateChange(msgspec.Struct, frozen=True):
    """What a handler changed in the state of one agent, and what it had read there.

    Attributes:
        agent: The agent.
        changes: The keys to set and delete.
        expected: Key -> the version that was read; 0 for a key that did not exist.
        expected_keys: All keys that existed when they were listed; None: they were not listed.
    """

    agent: str
    changes: Texts = MappingProxyType({})
    expected: Mapping[str, int] = MappingProxyType({})
    expected_keys: frozenset[str] | None = None


class LeaseLost(Exception):  # noqa: N818 - a message, not a mistake
    """The lease has ended, and the delivery may have been handed out again. Nothing of the call was applied."""


class StateConflict(Exception):  # noqa: N818 - as above
    """A key that the handler read has changed since. Nothing of the call was applied, and the lease is still held."""


class EngineGone(Exception):  # noqa: N818 - as above
    """The engine cannot be reached now. Whether the operation was applied is not known; it may be repeated."""


class AgentMissing(Exception):  # noqa: N818 - as above
    """No process runs the agent that is asked. Nobody will answer the question later either."""


# --- what people look at ---


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """The open deliveries of one subscription.

    Attributes:
        subscription: The subscription.
        waiting: Deliveries that may be claimed now or wait behind others.
        leased: Deliveries that a process has claimed.
        retrying: Deliveries that wait for a retry.
        parked: Deliveries that are set aside.
        dead: Dead letters.
        oldest_s: The age in seconds of the oldest event among the waiting ones; 0 if none waits.
    """

    subscription: Subscription
    waiting: int = 0
    leased: int = 0
    retrying: int = 0
    parked: int = 0
    dead: int = 0
    oldest_s: float = 0.0

    @property
    def is_idle(self) -> bool:
        """True if nothing waits, runs or is to be retried."""
        return not (self.waiting or self.leased or self.retrying)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine does itself.

    Attributes:
        atomic_settle: Outcome, states and outgoing events are one transaction of the engine.
        survives: What an event survives once `append` has returned.
        several_processes: Several processes may use it at the same time.
        replay: It keeps events that are done for a while, and can hand them out again: `History.replay`.
    """

    atomic_settle: bool
    survives: Literal["nothing", "process", "host"]
    several_processes: bool
    replay: bool = False


EntryState = Literal["waiting", "leased", "retrying", "parked", "dead", "done"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the ledger, for one of its handlers.

    Attributes:
        envelope: The event.
        state: The state of the delivery, as `Lag` counts it; or `done`.
        handler: The handler; empty for an event that all handlers are done with.
        why: Why it is parked, or the error of the last attempt; empty if there is none.
    """

    envelope: Envelope
    state: EntryState
    handler: str = ""
    why: str = ""


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to hand out again, and to whom.

    Attributes:
        since: They were published at this time or later.
        until: They were published before this time.
        topic: A topic or pattern; empty: all.
        handlers: The handlers, as `Agent.method`; empty: all that subscribe to them now.
    """

    since: float
    until: float
    topic: str = ""
    handlers: Collection[str] = ()


class Question(msgspec.Struct, frozen=True):
    """A request or call that another process has made to an agent; `text` is its JSON."""

    number: int
    agent: str
    text: str


@runtime_checkable
class Questions(Protocol):
    """What an engine offers in addition if agents of different processes can ask each other. Nothing of it is durable."""

    async def ask(self, agent: str, text: str, timeout_s: float, missing_s: float) -> str:
        """Put a question to the process that hosts an agent, and return the answer.

        Raises:
            AgentMissing: For `missing_s`, or for all of `timeout_s`, there was no process that takes it. An engine may need up to
                a second to know.
            TimeoutError: There was no answer in this time.
        """

    async def take_questions(self, agents: Collection[str]) -> Sequence[Question]:
        """Return the questions to these agents that wait; each is returned once. `watch` tells of new ones."""

    async def answer(self, question: Question, text: str) -> None:
        """Answer a question; nobody may wait for it any more."""

    async def leave_questions(self) -> None:
        """Leave further questions to other processes, or to a later one; those that came before are taken as always."""


class Settled(NamedTuple):
    """A lease that was settled: what must be called on the loop of the engine soon, and the leases that follow."""

    note: Callable[[], None]
    leases: Sequence[Lease]


@runtime_checkable
class SettlesHere(Protocol):
    """What an engine offers in addition if its `settle` waits for nothing but a file: it is possible on any thread."""

    def settle_here(
        self,
        lease: Lease,
        outcome: Outcome,
        state: Sequence[StateChange],
        outgoing: Sequence[Envelope],
        limit: int = 0,
    ) -> Settled:
        """Do what `Ledger.settle` does, and in the same transaction claim at most `limit` further ones of its partition."""


class Ledger(Protocol):
    """An engine. See the head of this module for what each implementation promises.

    Every method may raise `EngineGone`, and RunError for what cannot be mended by trying again.
    """

    capabilities: Capabilities

    @property
    def is_reachable(self) -> bool:
        """False while it is known that the engine cannot be reached, although calls may succeed."""

    async def open(self, subscriptions: Sequence[Subscription]) -> None:
        """Connect, and replace the subscriptions that get deliveries of later events.

        The open deliveries of removed subscriptions are parked, leased ones too. They are open again, at their place in the
        order, when their subscription is back. The other methods work without `open`, with the subscriptions of the last one.
        """

    async def append(self, events: Sequence[Envelope]) -> None:
        """Store events, with a delivery for each matching subscription; an event whose id is stored already is skipped."""

    async def claim(self, agent: str, partitions: Collection[int], limit: int = 1) -> Sequence[Lease]:
        """Return leases for the next deliveries of an agent in these partitions, at most `limit`; empty if none is due.

        They are in the order of their events. A partition from which a delivery is leased gives none.
        """

    async def extend(self, lease: Lease) -> Lease:
        """Return the lease with a later end.

        Raises:
            LeaseLost: It has ended and was handed out again.
        """

    async def settle(
        self, lease: Lease, outcome: Outcome, state: Sequence[StateChange] = (), outgoing: Sequence[Envelope] = ()
    ) -> None:
        """End a lease: apply the outcome, the changes of states and the outgoing events together.

        Raises:
            LeaseLost: It has ended and was handed out again.
            StateConflict: A key that the handler read has changed.
        """

    async def dead_letters(self, agents: Collection[str]) -> Sequence[tuple[int, DeadLetter]]:
        """Return the dead letters of these agents with the numbers of their deliveries, oldest first."""

    async def forget(self, deliveries: Collection[int]) -> None:
        """Forget dead letters, which somebody else keeps now; numbers of other deliveries are ignored."""

    async def resume(self, build: str = "") -> int:
        """Hand out again what is parked: events that this build has published, or all (empty). Return how many.

        Deliveries of removed subscriptions stay parked.
        """

    def watch(self) -> AsyncIterator[Collection[str]]:
        """Yield at once, and then whenever a delivery may have become due; several changes may be told by one.

        What is yielded are the agents whose deliveries these are; empty: any, and a question may have come.
        """

    async def lag(self) -> Sequence[Lag]:
        """Return the open deliveries of each subscription."""

    async def close(self) -> None:
        """Disconnect. Leases that are held end by themselves. Closing twice does nothing."""


class History(Ledger, Protocol):
    """An engine whose events people can look at, and hand out again."""

    async def entries(self, topic: str, states: Collection[EntryState], limit: int) -> Sequence[Entry]:
        """Return the latest events, latest first, at most `limit`; those of a topic or pattern (empty: all), in these states."""

    async def replay(self, request: ReplayRequest, *, is_dry: bool = False) -> Sequence[Entry]:
        """Hand out again what each handler is done with, and return it; with `is_dry` only return it.

        An event keeps its id. What its handler publishes is delivered again, although the ids are the same as before; so an event
        that a chosen one causes is not handed out a second time.

        Raises:
            RunError: GBE698, the engine forgets events that are done.
        """
