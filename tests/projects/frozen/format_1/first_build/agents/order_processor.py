"""OrderProcessor: what an order costs, what it takes from stock, and the news that it exists."""

from __future__ import annotations

from agents.orders import Confirmation, Item, Order
from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe


@depends_on("InventoryService")
class OrderProcessor(GraphBusNode):
    """Turns a placed order into a confirmed one, or into one that waits for new stock."""

    SYSTEM_PROMPT = """
    I process orders. I add up what they cost, let InventoryService reserve their items and announce them on /Order/Created.
    In negotiations I look after two things: totals stay right, and everybody who hears of an order hears the same fields.
    """

    @subscribe("/Order/Placed")
    def on_order_placed(self, order: Order) -> None:
        """Process an order that comes from outside of the graph, e.g. from the web shop."""
        self.process_order(order["order_id"], order["items"])

    @schema_method(
        input_schema={"order_id": str, "items": list[Item]},
        output_schema={"status": str, "total": float, "event_id": str},
    )
    @publishes("/Order/Created", Confirmation)
    def process_order(self, order_id: str, items: list[Item]) -> dict[str, str | float]:
        """Reserve the items, add up the price and announce the order.

        What can be had is reserved even if something else is missing: it is kept for this customer.
        """
        total = sum(item["price"] * item["qty"] for item in items)
        reserved = [self._reserve(item) for item in items]
        status = "confirmed" if all(reserved) else "backordered"
        self.publish("/Order/Created", {"order_id": order_id, "status": status, "total": total})
        return {"status": status, "total": total, "event_id": f"ord_{order_id}"}

    @subscribe("/Inventory/Updated")
    def on_inventory_update(self, event: Event) -> None:
        """Keep a trace of the stock in the log."""
        self.log(f"Inventory changed: {event['in_stock']} x {event['sku']} left")

    def _reserve(self, item: Item) -> bool:
        """Ask for one item of an order; False when there is not enough of it."""
        reservation = self.call("InventoryService", "reserve", sku=item["sku"], qty=item["qty"])
        return bool(reservation["reserved"])
