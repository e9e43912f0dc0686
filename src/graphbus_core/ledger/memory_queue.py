"""The deliveries of one agent and partition in the engine in memory, and which of them may be leased."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import Dead, Parked, Subscription
from graphbus_core.model.deliveries import DeadLetter


class Delivery(msgspec.Struct, eq=False):
    """An event for one subscription, as MemoryLedger keeps it until it is done.

    Attributes:
        number: Its place in the order.
        attempts: How many attempts have failed.
        due: When its lease or the wait for its retry ends; 0 if it has neither.
        outcome: How it was settled for good; None while it is open.
        ended_at: When it was settled for good.
    """

    number: int
    envelope: Envelope
    subscription: Subscription
    partition: int
    attempts: int = 0
    unfinished: int = 0
    token: int = 0
    due: float = 0.0
    failed_at: float | None = None
    last_error: str = ""
    outcome: Dead | Parked | None = None
    ended_at: float = 0.0


class Queue:
    """The open deliveries of one agent and partition in their order, and those among them that are leased."""

    __slots__ = ("leased", "open")

    def __init__(self) -> None:
        self.open: OrderedDict[int, Delivery] = OrderedDict()
        self.leased: dict[int, Delivery] = {}

    def put_back(self, delivery: Delivery) -> None:
        """Open a delivery again that was set aside, in its place."""
        self.open[delivery.number] = delivery
        self.open = OrderedDict(sorted(self.open.items()))

    def find_claimable(self, now: float, limit: int) -> list[Delivery]:
        """Return the deliveries that may be leased now; leases of the queue that have ended are void from now on."""
        if any(each.due > now for each in self.leased.values()):
            return []
        for each in self.leased.values():
            each.unfinished += 1
            each.due = 0.0
        self.leased.clear()
        found: list[Delivery] = []
        for each in self.open.values():
            if len(found) >= limit or (each.due > now and each.subscription.on_retry == "block"):
                break
            if each.due <= now:
                found.append(each)
        return found


def letter_of(delivery: Delivery, outcome: Dead) -> DeadLetter:
    """Return the dead letter of a delivery with this outcome."""
    return DeadLetter(
        event=delivery.envelope.to_event(),
        subscription=delivery.subscription.handler,
        timestamp=delivery.ended_at,
        first_timestamp=delivery.ended_at if delivery.failed_at is None else delivery.failed_at,
        attempts=delivery.attempts,
        **msgspec.structs.asdict(outcome),
    )
