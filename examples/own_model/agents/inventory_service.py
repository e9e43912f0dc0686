"""InventoryService: counts what was ordered."""

from graphbus_core import Event, GraphBusNode, subscribe


class InventoryService(GraphBusNode):
    """Keeps count of the orders."""

    def __init__(self) -> None:
        super().__init__()
        self.orders = 0

    @subscribe("/Order/Created")
    def on_order_created(self, event: Event) -> None:
        self.orders += 1
        self.log(f"{self.orders} so far, the last one is {event['order_id']}")
