"""What a simulation has observed at the ledger: events, deliveries and how they ended; and what was wrong with that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Dead, Done, Lease, Outcome, Parked, RetryAt, Subscription
from graphbus_core.model.topics import matches

DeliveryKey = tuple[str, str, str]
"""The id of an event, the handler, and the topic of its subscription."""


class Violation(msgspec.Struct, frozen=True):
    """An invariant that does not hold.

    Attributes:
        invariant: Which one, as a sentence.
        what: What was found, in one line.
        event: The id of an event that it concerns; empty if there is none.
        handler: The handler that it concerns, or an agent; empty if there is none.
    """

    invariant: str
    what: str
    event: str = ""
    handler: str = ""


LOST = "Nothing is lost."
ONCE = "Effects happen once."
SAME = "The result is the same as without faults."
ORDER = "An agent handles the events of a key in their order."
REASON = "Every dead letter has a reason."
SCHEMA = "Every payload fits its schema."
REST = "The graph comes to rest."


class Record:
    """Watches what is applied to the ledger of a run.

    Args:
        subscriptions: All subscriptions of the graph.

    Attributes:
        events: All events by id, in the order in which they were appended.
        outcomes: How each delivery was settled, attempt by attempt: `done`, `retry`, `dead`, `parked`, `released`.
        dead: The dead letters, with their events and handlers.
        violations: What was wrong at once.
        lines: What happened, in order; for the transcript.
        open: How many deliveries have not ended.
    """

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.events: dict[str, Envelope] = {}
        self.outcomes: dict[DeliveryKey, list[str]] = {}
        self.dead: list[tuple[Envelope, str, Dead]] = []
        self.parked = 0
        self.violations: list[Violation] = []
        self.lines: list[tuple[float, str, str]] = []
        self.open = 0
        self._subscriptions = subscriptions
        self._routes: dict[str, list[Subscription]] = {}
        self._backlogs: dict[tuple[str, int], dict[DeliveryKey, Subscription]] = {}

    def note_events(self, events: Iterable[Envelope]) -> None:
        """Note events that were appended; those that are known already change nothing."""
        for event in events:
            if event.id in self.events:
                continue
            self.events[event.id] = event
            for each in self._route(event.type):
                backlog = self._backlogs.setdefault((each.agent, each.partition_of(event)), {})
                backlog[event.id, each.handler, each.topic] = each
                self.open += 1

    def _route(self, topic: str) -> list[Subscription]:
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = [each for each in self._subscriptions if matches(each.topic, topic)]
        return route

    def note_claim(self, leases: Sequence[Lease]) -> None:
        """Note what was handed out by one claim, and check that nothing else of the same agent and partition comes before it."""
        claimed = {_key_of(each) for each in leases}
        for lease in leases:
            key = _key_of(lease)
            if key not in self._backlog_of(lease):
                what = f"{key[1]} got event {key[0]}, which was not for it or had been settled"
                self.violations.append(Violation(ONCE, what, key[0], key[1]))
            else:
                self._check_order(lease, claimed)

    def _check_order(self, lease: Lease, claimed: Collection[DeliveryKey]) -> None:
        """Check that no event before that of the lease is open, except those in `claimed` and those that a retry may overtake."""
        key = _key_of(lease)
        for earlier, subscription in self._backlog_of(lease).items():
            if earlier[0] == key[0]:
                return
            if subscription.on_retry == "block" and earlier not in claimed:
                what = f"{key[1]} got event {key[0]} before {earlier[1]} was done with event {earlier[0]}"
                self.violations.append(Violation(ORDER, what, key[0], key[1]))
                return

    def _backlog_of(self, lease: Lease) -> dict[DeliveryKey, Subscription]:
        return self._backlogs.get((lease.subscription.agent, lease.partition), {})

    def note_outcome(self, lease: Lease, outcome: Outcome, outgoing: Sequence[Envelope]) -> None:
        """Note how a lease was settled."""
        key = _key_of(lease)
        match outcome:
            case Dead():
                self.dead.append((lease.envelope, key[1], outcome))
                word = "dead"
            case Parked():
                self.parked += 1
                word = "parked"
            case _:
                word = "done" if isinstance(outcome, Done) else "retry" if isinstance(outcome, RetryAt) else "released"
        self.outcomes.setdefault(key, []).append(word)
        if word in ("done", "dead", "parked"):
            self._check_order(lease, ())
            self._end(key, lease)
        self.note_events(outgoing)

    def _end(self, key: DeliveryKey, lease: Lease) -> None:
        if self._backlog_of(lease).pop(key, None) is None:
            what = f"{key[1]} was settled twice for event {key[0]}"
            self.violations.append(Violation(ONCE, what, key[0], key[1]))
        else:
            self.open -= 1

    def left(self) -> list[DeliveryKey]:
        """Return the deliveries that have not ended."""
        return [key for backlog in self._backlogs.values() for key in backlog]


def _key_of(lease: Lease) -> DeliveryKey:
    return lease.envelope.id, lease.subscription.handler, lease.subscription.topic
