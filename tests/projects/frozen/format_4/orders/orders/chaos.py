"""Orders that come one after the other, with trouble among them: what there is to see with `graphbus run --serve --view`.

every 20th      the card is of a bank that takes its time         the orders behind it wait
every 250th     the card is of a bank whose line stays down       five retries, then a dead letter
one in 1,000    the article has no price                          a handler fails, always for the same order
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from time import monotonic, sleep

from graphbus_core import LiveGraph
from orders.bank import DEAD_LINE, SLOW_CARD
from orders.messages import PLACED, Order

ORDERS_A_SECOND = 50
UNPRICED = "calendar"


def order(number: int) -> Order:
    """Return the order with this number; from 1 on, those with trouble are always the same."""
    card = DEAD_LINE if number % 250 == 0 else SLOW_CARD if number % 20 == 0 else "4711"
    return {
        "order_id": f"C{number}",
        "card": card,
        "lines": [{"sku": UNPRICED if number % 1000 == 777 else "mug", "qty": 1 + number % 3}],
    }


def orders(first: int = 1) -> Iterator[Order]:
    """Yield one order after the other."""
    return map(order, count(first))


def chaos(graph: LiveGraph) -> None:
    """Place orders until the graph stops."""
    started = monotonic()
    for number, each in enumerate(orders()):
        if graph.is_stopped:
            return
        graph.publish(PLACED, each)
        sleep(max(0.0, started + (number + 1) / ORDERS_A_SECOND - monotonic()))
