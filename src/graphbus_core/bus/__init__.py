"""The bus: in-process publish and subscribe. Both modes run on it.

`message_bus` is the face; begin with `core`, whose head says what happens to an event and who may touch what.

    core       what there is to do, as data             sync, loop   the drivers, on threads and on an event loop
    routes     who hears which topic                    signatures   what a handler is called with
    outcomes   what becomes of an attempt               failures     and how that is carried out: retries, dead_letters
    receipts   what came of an event                    publishing, calls, closing   what is asked of a bus
"""

from graphbus_core.bus.message_bus import MessageBus, SimpleMessageBus

__all__ = ["MessageBus", "SimpleMessageBus"]
