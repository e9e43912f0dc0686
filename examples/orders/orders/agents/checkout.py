"""Checkout: from an order to an accepted order."""

from __future__ import annotations

from graphbus_core import GraphBusNode, depends_on, publishes, subscribe
from orders.messages import Accepted, Order


@depends_on("Pricing")
class Checkout(GraphBusNode):
    """Takes orders of the web shop."""

    SYSTEM_PROMPT = """
    I take orders, ask for their price and pass them on. I decide nothing about prices or payment.
    """

    @subscribe("/Order/Placed")
    @publishes("/Order/Accepted", Accepted)
    def on_order_placed(self, order: Order) -> None:
        """Ask for the price, and accept the order."""
        quote = self.call("Pricing", "quote", lines=order["lines"])
        self.publish("/Order/Accepted", {"order_id": order["order_id"], "card": order["card"], "total": quote["total"]})
