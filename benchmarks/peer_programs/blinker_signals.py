"""blinker: signals within a process.

The first exception of a receiver goes to the sender; a signal that a receiver sends interrupts the one it hears; no schema.
"""

from __future__ import annotations

from collections.abc import Callable

from blinker import Signal
from protocol import ORDER, PAYLOAD, serve


class Listener:
    """A receiver that does next to nothing."""

    def on_signal(self, sender: object, event: object = None) -> None:
        """Hear."""

    async def on_signal_async(self, sender: object, event: object = None) -> None:
        """Hear on the loop."""


LISTENERS = [Listener() for _ in range(100)]  # signals hold their receivers weakly


def publish(count: int) -> Callable[[], object]:
    """`send` to so many receivers."""
    signal = Signal("order_created")
    for listener in LISTENERS[:count]:
        signal.connect(listener.on_signal)
    return lambda: signal.send(None, event=PAYLOAD)


def awaited() -> Callable[[], object]:
    """`send_async` to one receiver."""
    signal = Signal("order_created")
    signal.connect(LISTENERS[0].on_signal_async)

    async def work() -> None:
        await signal.send_async(None, event=PAYLOAD)

    return work


def first_event() -> None:
    """Each receiver sends the next signal."""
    created, validated, reserved = Signal("created"), Signal("validated"), Signal("reserved")
    seen = []

    def validate(sender: object, order: dict[str, object]) -> None:
        if order["qty"]:
            validated.send(None, order=order)

    def reserve(sender: object, order: dict[str, object]) -> None:
        reserved.send(None, order=order)

    def confirm(sender: object, order: dict[str, object]) -> None:
        seen.append(order["order_id"])

    created.connect(validate)
    validated.connect(reserve)
    reserved.connect(confirm)
    created.send(None, order=ORDER)
    assert seen == ["1001"]


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": lambda: publish(1),
            "publish, 10 handlers": lambda: publish(10),
            "publish, 100 handlers": lambda: publish(100),
            "async handler": awaited,
        },
        first_event,
    )
