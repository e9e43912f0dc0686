"""Puts the pipeline under load: `graphbus run .graphbus/ --entrypoint orders.main:load`."""

from __future__ import annotations

from time import perf_counter

from graphbus_core import LiveGraph
from orders.around import metrics
from orders.messages import PLACED, Line

ORDERS = 500


def load(graph: LiveGraph) -> None:
    """Place many orders at once, and say what came of them."""
    started = perf_counter()

    def place() -> None:
        for number in range(ORDERS):
            lines: list[Line] = [{"sku": "mug", "qty": 1}, {"sku": "poster", "qty": 2}]
            graph.publish(PLACED, {"order_id": f"L{number}", "card": "4711", "lines": lines})

    graph.bus.run(place)
    graph.settle()
    took_s = perf_counter() - started
    print(f"{ORDERS} orders in {took_s:.2f} s, revenue {graph.call('Books', 'balance')['revenue']:.2f}")
    for name in sorted(metrics.attempts):
        print(f"  {name}: {metrics.attempts[name]} attempts, {metrics.failed[name]} failed")
