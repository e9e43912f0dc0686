"""Checkout: from an order to an accepted order."""

from __future__ import annotations

from graphbus_core import GraphBusNode, subscribe
from orders.messages import ACCEPTED, PLACED, PRICE_ASKED, Order


class Checkout(GraphBusNode):
    """Takes orders of the web shop."""

    SYSTEM_PROMPT = """
    I take orders, ask for their price and pass them on. I decide nothing about prices or payment.
    """

    @subscribe(PLACED, key="order_id")
    def on_order_placed(self, order: Order) -> None:
        """Ask for the price, and accept the order."""
        quote = self.request(PRICE_ASKED, {"lines": order["lines"]}, timeout_s=1.0)
        self.publish(ACCEPTED, {"order_id": order["order_id"], "card": order["card"], "total": quote["total"]})
