"""The bus: in-process publish and subscribe. Build Mode and Runtime Mode both run on it.

`message_bus` is the public interface. Start reading at `core`: its head explains how an event is delivered.

    core       the state, as plain data                 sync, loop     the drivers, on threads and on an event loop
    routes     which handlers get which topic           signatures     which arguments a handler takes
    outcomes   what follows from an attempt             failures       carries that out: retries and dead_letters
    receipts   when an event is done                    publishing, calls, closing   the operations of the bus
    hosting    what a graph or a ledger does with it
"""

from graphbus_core.bus.message_bus import MessageBus, SimpleMessageBus

__all__ = ["MessageBus", "SimpleMessageBus"]
