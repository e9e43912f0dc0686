"""Orders are placed, and the stock is counted."""

from __future__ import annotations

from graphbus_core import Event, GraphBusNode, publishes, subscribe


@publishes("/Order/Placed")
class Orders(GraphBusNode):
    """Takes orders."""

    def place(self, order_id: str, sku: str, amount: int) -> None:
        self.publish("/Order/Placed", {"order_id": order_id, "sku": sku, "amount": amount})


class Stock(GraphBusNode):
    """Counts what was ordered."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: dict[str, int] = {}

    @subscribe("/Order/Placed")
    def on_placed(self, event: Event) -> None:
        """Add the amount of an order."""
        self.ordered[event["sku"]] = self.ordered.get(event["sku"], 0) + event["amount"]


class Referee(GraphBusNode):
    """Settles disputes."""

    IS_ARBITER = True
