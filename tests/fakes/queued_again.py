"""Queues an event once more, as the time of a planned attempt does, without waiting for that time."""

from __future__ import annotations

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.bus.core import Delivery
from graphbus_core.bus.routes import LiveSubscription


def deliver_again(bus: MessageBus, event: Event, subscription: LiveSubscription | None, attempt: int = 1) -> None:
    sync, core = bus._sync, bus._core
    if core.receipts.followed:
        core.receipts.hold(event)
    entry = sync.queue_entry(event, subscription)
    if isinstance(entry, Delivery):
        entry.attempt = attempt
    core.queue.append(entry)
    sync.wake_other_thread()
