"""What it costs to publish, with everything on: order, history, statistics, isolation, ids on demand.

The measure of all things is a loop that calls the same handlers itself; the peers are the two signal libraries that people use.
"""

from __future__ import annotations

from collections.abc import Callable

from stopwatch import Row, medians, report, timed

from graphbus_core import Event
from graphbus_core.bus import MessageBus

PAYLOAD = {"order_id": "1001", "status": "confirmed", "total": 105.0, "items": 2, "express": False}
LIMITS = {1: 8.0, 10: 2.6, 100: 1.6}
CALLS = {1: 500, 10: 300, 100: 60}  # turns shorter than a time slice, or a busy machine measures its own scheduler
CHAIN = 100_000


class Listener:
    """A handler that does next to nothing; every library is given bound methods of the same kind."""

    def on_event(self, event: object) -> None:
        """Hear."""

    def on_signal(self, sender: object, event: object = None) -> None:
        """Hear, as blinker calls."""


def direct(listeners: list[Listener]) -> Callable[[], object]:
    handlers = [listener.on_event for listener in listeners]

    def publish() -> None:
        for handler in handlers:
            handler(PAYLOAD)

    return publish


def graphbus(listeners: list[Listener]) -> Callable[[], object]:
    bus = MessageBus()
    for listener in listeners:
        bus.subscribe("/Order/Created", listener.on_event)
    return lambda: bus.publish("/Order/Created", PAYLOAD)


def pyee(listeners: list[Listener]) -> Callable[[], object]:
    from pyee.base import EventEmitter

    emitter = EventEmitter()
    for listener in listeners:
        emitter.on("order_created", listener.on_event)
    return lambda: emitter.emit("order_created", PAYLOAD)


def blinker(listeners: list[Listener]) -> Callable[[], object]:
    from blinker import Signal

    signal = Signal("order_created")
    for listener in listeners:
        signal.connect(listener.on_signal)
    return lambda: signal.send(None, event=PAYLOAD)


def fan_out() -> list[Row]:
    """One publish to 1, 10 and 100 handlers."""
    rows = []
    for count, limit in LIMITS.items():
        listeners = [Listener() for _ in range(count)]
        makers = {"direct": direct, "ours": graphbus, "pyee": pyee, "blinker": blinker}
        took = medians({name: timed(make(listeners), CALLS[count]) for name, make in makers.items()}, rounds=301)
        what = f"publish, {count} handler{'s' * (count > 1)}"
        rows.append(Row(what, took["ours"], took["direct"], "direct calls", limit))
        rows += [Row(what, took["ours"], took[peer], peer, 1.0) for peer in ("pyee", "blinker")]
    return rows


def large_payload() -> list[Row]:
    """Text of a megabyte, or ten thousand records, against five fields."""
    bus = MessageBus()
    bus.subscribe("/Order/Created", Listener().on_event)
    payloads = {
        "small": PAYLOAD,
        "text of 1 MB": {"text": "x" * 1_000_000},
        "10,000 records": {"records": [{"sku": "mug", "qty": number} for number in range(10_000)]},
    }
    took = medians(
        {
            name: timed(lambda it=payload: bus.publish("/Order/Created", it), CALLS[1])
            for name, payload in payloads.items()
        },
        rounds=301,
    )
    return [
        Row(f"publish, {name}, 1 handler", took[name], took["small"], "5 fields", 1.25)
        for name in payloads
        if name != "small"
    ]


def chain(hops: int) -> Callable[[], object]:
    """A handler that publishes the next event until there were so many; none may be lost."""
    bus = MessageBus(max_hops=hops, max_tree=hops, history=0)
    seen = 0

    def step(event: Event) -> None:
        nonlocal seen
        seen += 1
        if event["left"]:
            bus.publish("/Chain/Step", {"left": event["left"] - 1})

    bus.subscribe("/Chain/Step", step)

    def run() -> None:
        nonlocal seen
        seen = 0
        bus.publish("/Chain/Step", {"left": hops})
        assert seen == hops + 1, seen

    return run


def chains() -> list[Row]:
    """A hundred thousand hops on a flat stack: each costs what one of a thousand costs."""
    took = medians({"long": timed(chain(CHAIN)), "short": timed(chain(1_000), 10)}, rounds=5)
    long, short = took["long"] / CHAIN, took["short"] / 1_000
    return [Row(f"a hop in a chain of {CHAIN:,}", long, short, "a hop in a chain of 1,000", 1.25)]


def main() -> list[Row]:
    """Measure and print."""
    return report("Publishing on the bus", fan_out() + large_payload() + chains())


if __name__ == "__main__":
    main()
