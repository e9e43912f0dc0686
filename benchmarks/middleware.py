"""What it costs to put middleware around handlers.

The measure is who writes it by hand: a `contextlib.contextmanager` in a `with` statement around each handler, on the same bus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stopwatch import Row, medians, report, timed

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.middleware import Handling

PAYLOAD = {"order_id": "1001", "status": "confirmed", "total": 105.0, "items": 2, "express": False}
HANDLERS = 10
LIMIT = 1.2


def around(_handling: Handling) -> Iterator[None]:
    """Do nothing before and nothing after."""
    yield


class Listener:
    def on_event(self, event: Event) -> None:
        """Hear."""


class Wrapped:
    """The same by hand, as often as there would be middleware."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.around = contextmanager(around)

    def on_event(self, event: Event) -> None:
        """Hear, inside of `with` statements."""
        handling = Handling("event", "Wrapped", "Wrapped.on_event", event)
        with self.around(handling):
            if self.count == 1:
                return
            with self.around(handling):
                return


def publish(listeners: list[Listener] | list[Wrapped], count: int = 0) -> Callable[[], object]:
    bus = MessageBus(middleware=[around] * count)
    for listener in listeners:
        bus.subscribe("/Order/Created", listener.on_event)
    return lambda: bus.publish("/Order/Created", PAYLOAD)


def main() -> list[Row]:
    """Measure and print."""
    rows = []
    for count in (1, 2):
        ours = publish([Listener() for _ in range(HANDLERS)], count)
        by_hand = publish([Wrapped(count) for _ in range(HANDLERS)])
        took = medians({"ours": timed(ours, 100), "hand": timed(by_hand, 100)}, rounds=101)
        what = f"publish, {HANDLERS} handlers, each inside of {count} middleware"
        rows.append(Row(what, took["ours"], took["hand"], "`with` statements by hand", LIMIT))
    return report("Middleware", rows)


if __name__ == "__main__":
    main()
