"""An order is validated, reserved and confirmed, with GraphBus."""

from graphbus_core import GraphBusNode, connect, publishes, subscribe


@publishes("/Order/Validated", {"order_id": str, "sku": str, "qty": int})
@publishes("/Order/Closed", {"order_id": str, "status": str})
class Validation(GraphBusNode):
    @subscribe("/Order/Placed")
    def validate(self, order_id: str, sku: str, qty: int) -> None:
        if qty > 0:
            self.publish("/Order/Validated", {"order_id": order_id, "sku": sku, "qty": qty})
        else:
            self.publish("/Order/Closed", {"order_id": order_id, "status": "invalid"})


@publishes("/Order/Reserved", {"order_id": str})
@publishes("/Order/Closed", {"order_id": str, "status": str})
class Stock(GraphBusNode):
    def on_start(self) -> None:
        self.left = {"mug": 1_000_000}

    @subscribe("/Order/Validated")
    def reserve(self, order_id: str, sku: str, qty: int) -> None:
        if self.left.get(sku, 0) < qty:
            self.publish("/Order/Closed", {"order_id": order_id, "status": "sold out"})
        else:
            self.left[sku] -= qty
            self.publish("/Order/Reserved", {"order_id": order_id})


class Confirmation(GraphBusNode):
    def on_start(self) -> None:
        self.status: dict[str, str] = {}

    @subscribe("/Order/Reserved")
    def confirm(self, order_id: str) -> None:
        self.status[order_id] = "confirmed"

    @subscribe("/Order/Closed")
    def close(self, order_id: str, status: str) -> None:
        self.status[order_id] = status


graph = connect(Validation, Stock, Confirmation)


def handle(order: dict) -> str:
    graph.publish("/Order/Placed", order)
    return graph.node("Confirmation").status.pop(order["order_id"])
