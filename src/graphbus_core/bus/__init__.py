"""The bus: in-process publish and subscribe. Both modes run on it.

MessageBus is one object, told in layers, each of which adds one thing to the next:

    message_bus > closing > awaiting > answering > delivering > waiting > judging > queueing

They stand on `routing` (who gets the events of which topic), `signatures` (what a handler is called with), `lanes` (where
`async def` runs), `receipts` and `ledger` (what came of an event), `redelivery` and `retries` (what comes again, and when).
"""

from graphbus_core.bus.message_bus import MessageBus, SimpleMessageBus

__all__ = ["MessageBus", "SimpleMessageBus"]
