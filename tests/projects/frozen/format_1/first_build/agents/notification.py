"""NotificationService: tells customers about their orders and the buyer about empty shelves."""

from __future__ import annotations

from graphbus_core import Event, GraphBusNode, subscribe

LOW_STOCK = 3


class NotificationService(GraphBusNode):
    """Writes the messages of the shop; `sent` holds them, newest last."""

    SYSTEM_PROMPT = """
    I write to customers and to the buyer. I only use what the events of other agents really contain.
    In negotiations I ask for fields with clear names, because they end up in front of people.
    """

    def on_start(self) -> None:
        """Begin with an empty outbox."""
        self.sent: list[str] = []

    @subscribe("/Order/Created")
    def on_order_created(self, event: Event) -> None:
        """Tell the customer how the order stands."""
        self._send(f"Your order {event['order_id']} over {event['total']:.2f} is {event['status']}.")

    @subscribe("/Inventory/Updated")
    def on_inventory_updated(self, event: Event) -> None:
        """Warn the buyer while there is still something left to sell."""
        if event["in_stock"] <= LOW_STOCK:
            self._send(f"Only {event['in_stock']} x {event['sku']} left: please order.")

    def _send(self, message: str) -> None:
        self.sent.append(message)
        self.log(message)
