"""Takes the money."""

from __future__ import annotations

from typing import Any

from graphbus_core import depends_on, subscribe

from .events import OrderPlaced
from .service import BaseService


@depends_on("PricingService")
class BillingService(BaseService):
    """Charges for orders."""

    @subscribe("/Order/Placed")
    def on_order(self, order: OrderPlaced) -> None:
        quote = self.call("PricingService", "quote", sku=order["sku"], quantity=order["quantity"])
        self.publish("/Payment/Taken", {"order_id": order["order_id"], "amount": quote["total"]})

    @subscribe("/Price/Changed")
    def on_price(self, sku: str, price: float) -> None:
        self.log(f"{sku} is {price} now")

    @subscribe("/Service/Failed")
    def on_failure(self, event: dict[str, Any]) -> None:
        self.log(f"{event['service']}: {event['reason']}")
