"""What a simulation has observed at the ledger: events, deliveries and how they ended; and what was wrong with that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from graphbus_core.errors import RunError
from graphbus_core.isolation import attempt
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Dead, Done, Lease, Outcome, Parked, Subscription
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
PARKED = "No event stays parked when all processes run one build."
VERSION = "No event is a dead letter because another build has published it."
REST = "The graph comes to rest."


class Record:
    """Watches what is applied to the ledger of a run.

    Args:
        subscriptions: All subscriptions of the graph.

    Attributes:
        events: All events by id, in the order in which they were appended.
        outcomes: How each delivery was settled, attempt by attempt: `done`, `retry`, `dead`, `parked`, `released`.
        dead: The dead letters, with their events and handlers.
        lines: When who did what, in order; for the transcript.
    """

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.events: dict[str, Envelope] = {}
        self.outcomes: dict[DeliveryKey, list[str]] = {}
        self.dead: list[tuple[Envelope, str, Dead]] = []
        self.lines: list[tuple[float, str, str]] = []
        self._violations: list[Violation] = []  # what was wrong at once
        self._route = cache(lambda topic: [each for each in subscriptions if matches(each.topic, topic)])
        self._backlogs: dict[tuple[str, int], dict[DeliveryKey, Subscription]] = {}
        self._parked: dict[DeliveryKey, tuple[Lease, Parked]] = {}
        self._resumed: set[DeliveryKey] = set()  # later events of their agents may be done by now

    @property
    def is_open(self) -> bool:
        """True if a delivery has not ended."""
        return any(self._backlogs.values())

    def note(self, at: float, who: str, operation: str, arguments: Sequence[Any], result: Any, *, build: str) -> None:
        """Note an operation that was applied to the ledger by a process of a build.

        Its arguments and its result are those that it has in `Ledger`.
        """
        match operation, arguments:
            case "append", (events,):
                self._note_events(events)
                said = [f"appends {', '.join(f'{each.type} {each.id}' for each in events)}"]
            case "claim", _ if result:
                self._note_claim(result)
                said = [f"gets {each.subscription.handler} {each.envelope.id} #{each.token}" for each in result]
            case "settle", (lease, outcome, *state_and_outgoing):
                self._note_outcome(lease, outcome, build)
                for events in state_and_outgoing[1:]:
                    self._note_events(events)
                word = type(outcome).__name__.lower()
                said = [f"settles {lease.subscription.handler} {lease.envelope.id}: {word}"]
            case "resume", (resumed,):
                self._note_resumed(resumed)
                return
            case _:
                return
        self.lines += [(at, who, what) for what in said]

    def _note_events(self, events: Iterable[Envelope]) -> None:
        """Note events that were appended; those that are known already change nothing."""
        for event in events:
            if event.id not in self.events:
                self.events[event.id] = event
                for each in self._route(event.type):
                    backlog = self._backlogs.setdefault((each.agent, each.partition_of(event)), {})
                    backlog[event.id, each.handler, each.topic] = each

    def _note_claim(self, leases: Sequence[Lease]) -> None:
        """Check what was handed out by one claim: nothing else of the same agent and partition comes before it."""
        claimed = {_key_of(each) for each in leases}
        for lease in leases:
            event, handler, _ = key = _key_of(lease)
            if key in self._backlog_of(lease):
                self._check_order(lease, claimed)
            else:
                what = f"{handler} got event {event}, which was not for it or had been settled"
                self._violations.append(Violation(ONCE, what, event, handler))

    def _note_resumed(self, build: str) -> None:
        """Note that the parked events of a build (empty: of all) were handed out again."""
        for key, (lease, _) in list(self._parked.items()):
            if build in ("", lease.envelope.build):
                del self._parked[key]
                self._backlog_of(lease)[key] = lease.subscription
                self._resumed.add(key)

    def _note_outcome(self, lease: Lease, outcome: Outcome, build: str) -> None:
        event, handler, _ = key = _key_of(lease)
        self.outcomes.setdefault(key, []).append(type(outcome).__name__.lower().removesuffix("at"))
        if isinstance(outcome, Dead):
            self.dead.append((lease.envelope, handler, outcome))
            if lease.envelope.build not in ("", build):
                what = f"event {event} is a dead letter of {handler}"
                self._violations.append(Violation(VERSION, what, event, handler))
        if isinstance(outcome, Parked):
            self._parked[key] = lease, outcome
        if isinstance(outcome, Done | Dead | Parked):
            self._check_order(lease, ())
            if self._backlog_of(lease).pop(key, None) is None:
                self._violations.append(
                    Violation(ONCE, f"{handler} was settled twice for event {event}", event, handler)
                )

    def _check_order(self, lease: Lease, claimed: Collection[DeliveryKey]) -> None:
        """Check that no event before that of the lease is open, except those in `claimed` and those that a retry may overtake."""
        event, handler, _ = key = _key_of(lease)
        for earlier, subscription in self._backlog_of(lease).items():
            if earlier[0] == event or key in self._resumed:
                return
            if subscription.on_retry == "block" and earlier not in claimed:
                what = f"{handler} got event {event} before {earlier[1]} was done with event {earlier[0]}"
                self._violations.append(Violation(ORDER, what, event, handler))
                return

    def _backlog_of(self, lease: Lease) -> dict[DeliveryKey, Subscription]:
        return self._backlogs.get((lease.subscription.agent, lease.partition), {})

    def violations(self, check: Callable[[Envelope], object]) -> Iterator[Violation]:
        """Yield what is wrong with the events and deliveries of a run that has ended, without comparing it with another run.

        Args:
            check: Raises RunError for an event whose payload does not fit its topic.
        """
        yield from self._violations
        for (event, handler, _), (_, parked) in self._parked.items():
            yield Violation(PARKED, f"event {event} is parked for {handler}: {parked.why}", event, handler)
        for event, handler, _ in (key for backlog in self._backlogs.values() for key in backlog):
            yield Violation(LOST, f"event {event} was never settled by {handler}", event, handler)
        for envelope, handler, dead in self.dead:
            if not dead.error or not dead.reason:
                what = f"the dead letter of {handler} on event {envelope.id} has none"
                yield Violation(REASON, what, envelope.id, handler)
        for envelope in self.events.values():
            _, error = attempt(lambda envelope=envelope: check(envelope))  # type: ignore[misc]  # its type is inferred as Never
            if isinstance(error, RunError):
                yield Violation(SCHEMA, error.sentence, envelope.id)

    def causal_tree(self, chosen: str) -> Iterator[str]:
        """Yield the tree of the events with the same root as the chosen one, with the outcome of each attempt."""
        stack = [("", self.events[chosen].correlationid or chosen)]
        while stack:
            indent, key = stack.pop()
            if key not in self.events:
                continue
            mark = "  <-- here" if key == chosen else ""
            yield f"{indent}{self.events[key].type}  {key}{mark}"
            for (event, handler, _), words in self.outcomes.items():
                if event == key:
                    yield f"{indent}  > {handler}: {', '.join(words)}"
            children = [each.id for each in self.events.values() if each.causationid == key]
            stack += [(f"{indent}    ", child) for child in reversed(children)]


def _key_of(lease: Lease) -> DeliveryKey:
    return lease.envelope.id, lease.subscription.handler, lease.subscription.topic
