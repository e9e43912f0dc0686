"""NotificationService: writes to customers."""

from graphbus_core import Event, GraphBusNode, subscribe


class NotificationService(GraphBusNode):
    """Tells customers what they owe."""

    @subscribe("/Order/Created")
    def on_order_created(self, event: Event) -> None:
        self.log(f"Your order {event['order_id']} costs {event['total']:.2f}")
