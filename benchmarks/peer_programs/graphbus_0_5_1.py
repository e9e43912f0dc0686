"""graphbus 0.5.1, an unrelated package with our distribution's name.

It keeps a history and statistics, and prints each delivery, here into nothing. Schemas are not checked.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol import ORDER, PAYLOAD, serve

from graphbus_core.runtime.executor import run_runtime
from graphbus_core.runtime.message_bus import MessageBus


class Listener:
    """A handler that does next to nothing."""

    def on_event(self, event: object) -> None:
        """Hear."""


def publish(count: int) -> Callable[[], object]:
    """`publish` to so many handlers."""
    bus = MessageBus()
    for _ in range(count):
        bus.subscribe("/Order/Created", Listener().on_event)
    return lambda: bus.publish("/Order/Created", PAYLOAD)


def call() -> Callable[[], object]:
    """Without checks."""
    executor = run_runtime(".graphbus")
    return lambda: executor.call_method("Stock", "reserve", sku="mug", qty=1)


def first_event() -> None:
    """From the artifacts in `.graphbus/` to the third step."""
    executor = run_runtime(".graphbus")
    executor.publish("/Order/Created", ORDER)
    assert executor.get_node("Confirmation").seen == ("1001",)
    executor.stop()


if __name__ == "__main__":
    serve(
        {
            "publish, 1 handler": lambda: publish(1),
            "publish, 10 handlers": lambda: publish(10),
            "publish, 100 handlers": lambda: publish(100),
            "call": call,
        },
        first_event,
    )
