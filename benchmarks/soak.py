"""Ten million events of all kinds through one bus: none lost, none twice, and the memory stays where it was.

    order (2 plain handlers) -> now and then a line (published by a handler), a note (async handler), a failure, a second attempt

The resident memory of the process is read between batches; what the first twentieth needs to fill its rings and caches does not
count. Run it with `make soak`, or `benchmarks/soak.py 1000000` for fewer events.
"""

from __future__ import annotations

import gc
import logging
import statistics
import sys
import time
from collections import Counter

from stopwatch import Row, report

from graphbus_core import Event
from graphbus_core.bus import MessageBus
from graphbus_core.model.deliveries import DeliveryPolicy

EVENTS = 10_000_000
SAMPLES = 100
DRIFT_BYTES = 5_000_000
LINE_EVERY, NOTE_EVERY, FAIL_EVERY, RETRY_EVERY = 4, 100, 1_000, 10_000


def resident_bytes() -> int:
    """What this process holds in memory, when all garbage is collected."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


class Traffic:
    """A bus with its handlers, which count what they get; `send` publishes orders that are numbered on and on."""

    def __init__(self) -> None:
        self.bus = MessageBus()
        self.heard: Counter[str] = Counter()
        self.sent = 0
        self.failed_once: set[int] = set()
        self.bus.subscribe("/Soak/Order", self.on_order)
        self.bus.subscribe("/Soak/*", self.on_anything)
        self.bus.subscribe("/Soak/Note", self.on_note, owner="notes")
        again = DeliveryPolicy(retries=1, backoff_s=0.001)
        self.bus.subscribe("/Soak/Again", self.on_again, policy=again, owner="again")

    def on_order(self, event: Event) -> None:
        """Publish lines and notes, and fail now and then."""
        self.heard["orders"] += 1
        number = event["number"]
        if number % LINE_EVERY == 0:
            self.bus.publish("/Soak/Line", {"number": number})
        if number % NOTE_EVERY == 0:
            self.bus.publish("/Soak/Note", {"number": number})
        if number % RETRY_EVERY == 0:
            self.bus.publish("/Soak/Again", {"number": number})
        if number % FAIL_EVERY == 0:
            raise ValueError(number)

    def on_anything(self, event: Event) -> None:
        """Count all events."""
        self.heard["events"] += 1

    async def on_note(self, event: Event) -> None:
        """Count on the event loop."""
        self.heard["notes"] += 1

    def on_again(self, event: Event) -> None:
        """Fail the first time."""
        number = event["number"]
        if number not in self.failed_once:
            self.failed_once.add(number)
            raise TimeoutError(number)
        self.failed_once.remove(number)
        self.heard["second attempts"] += 1

    def send(self, count: int) -> None:
        """Publish so many orders."""
        publish = self.bus.publish
        for number in range(self.sent, self.sent + count):
            publish("/Soak/Order", {"number": number, "sku": "mug", "qty": 2})
        self.sent += count

    def expected(self) -> Counter[str]:
        """What the handlers must have counted, no more and no less."""

        def every(many: int) -> int:
            return -(-self.sent // many)

        children = every(LINE_EVERY) + every(NOTE_EVERY) + every(RETRY_EVERY)
        return Counter(
            {
                "orders": self.sent,
                "events": self.sent + children,
                "notes": every(NOTE_EVERY),
                "second attempts": every(RETRY_EVERY),
            }
        )


def drift_bytes(samples: list[int]) -> float:
    """How much larger the process was in the last tenth than in the first, each by its median; negative when it shrank."""
    tenth = max(1, len(samples) // 10)
    return statistics.median(samples[-tenth:]) - statistics.median(samples[:tenth])


def soak(events: int = EVENTS) -> tuple[float, float]:
    """Send them all and give the events per second and the drift in bytes.

    Raises:
        AssertionError: An event was lost, or delivered twice.
    """
    logger = logging.getLogger("graphbus.bus")
    was_disabled, logger.disabled = logger.disabled, True  # thousands of tracebacks that are meant to be
    traffic = Traffic()
    per_order = 1 + 1 / LINE_EVERY + 1 / NOTE_EVERY + 1 / RETRY_EVERY
    orders = round(events / per_order)
    try:
        traffic.send(orders // 20)
        samples = [resident_bytes()]
        started, before = time.perf_counter(), traffic.heard["events"]
        for _ in range(SAMPLES):
            traffic.send((orders - orders // 20) // SAMPLES)
            samples.append(resident_bytes())
        took_s = time.perf_counter() - started
        assert traffic.bus.settle(), "it does not come to rest"
        assert traffic.heard == traffic.expected(), (traffic.heard, traffic.expected())
        assert traffic.bus.statistics().dead_letters == -(-traffic.sent // FAIL_EVERY)
        return (traffic.heard["events"] - before) / took_s, drift_bytes(samples)
    finally:
        traffic.bus.close()
        logger.disabled = was_disabled


def main(events: int = EVENTS) -> list[Row]:
    """Measure and print."""
    rate, drift = soak(events)
    print(f"\n{events:,} events at {rate:,.0f} events a second; the memory moved by {drift / 1e6:+.2f} MB")
    what = f"memory that {events:,} events leave behind"
    return report("Soak", [Row(what, max(drift, 0.0), DRIFT_BYTES, "limit", 1.0, "5 MB", "B")])


if __name__ == "__main__":
    main(*(int(text.replace("_", "")) for text in sys.argv[1:]))
