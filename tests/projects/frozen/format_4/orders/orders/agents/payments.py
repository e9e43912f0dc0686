"""Payments: gets the money from the bank."""

from __future__ import annotations

from graphbus_core import GraphBusNode, subscribe
from orders.bank import Bank, CardDeclined, LineDown
from orders.messages import ACCEPTED, PAID, REFUSED, Accepted


class Payments(GraphBusNode):
    """Charges cards, again when the line was down, eight at a time; each card in the order of its orders."""

    SYSTEM_PROMPT = """
    I talk to the bank. A line that is down is no reason to lose an order; a card that is declined is no reason to ask again.
    """

    def on_start(self) -> None:
        """Call the bank."""
        self.bank = Bank()

    @subscribe(ACCEPTED, retries=5, backoff=0.01, retry_on=LineDown, timeout=5.0, concurrency=8, key="card")
    async def on_order_accepted(self, order: Accepted) -> None:
        """Charge the card, and say what came of it."""
        try:
            await self.bank.charge(order["order_id"], order["card"], order["total"])
        except CardDeclined:
            self.publish(REFUSED, {"order_id": order["order_id"]})
        else:
            self.publish(PAID, {"order_id": order["order_id"], "total": order["total"]})
