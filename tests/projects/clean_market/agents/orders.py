"""Takes orders and says how they fare."""

from __future__ import annotations

from typing import Any

from graphbus_core import depends_on, publishes, schema_method, subscribe

from .events import OrderPlaced, PaymentTaken
from .service import BaseService

ORDER_PLACED = "/Order/Placed"
ORDER_CONFIRMED = "/Order/Confirmed"


@publishes(ORDER_PLACED, OrderPlaced)
@depends_on("PricingService", "StockService")
class OrderService(BaseService):
    """Takes orders."""

    @schema_method(
        input_schema={"sku": str, "quantity": int, "customer_email": str},
        output_schema={"order_id": str, "total": float},
    )
    def place(self, sku: str, quantity: int, customer_email: str) -> dict[str, Any]:
        quote = self.call("PricingService", "quote", sku=sku, quantity=quantity)
        order_id = f"{sku}-{quantity}"
        self.call("StockService", "reserve", sku=sku, quantity=quantity, order_id=order_id)
        self.publish(
            ORDER_PLACED,
            {"order_id": order_id, "sku": sku, "quantity": quantity, "customer_email": customer_email},
        )
        return {"order_id": order_id, "total": quote["total"]}

    @subscribe("/Payment/Taken")
    def on_payment(self, payment: PaymentTaken) -> None:
        order_id = payment["order_id"]
        self.publish(ORDER_CONFIRMED, {"order_id": order_id, "amount": payment["amount"]})
