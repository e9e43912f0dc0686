"""Buys what runs out."""

from __future__ import annotations

from typing import Any

from graphbus_core import depends_on, schema_method, subscribe

from .service import BaseService


@depends_on("PricingService")
class PurchasingService(BaseService):
    """Orders goods from suppliers."""

    @subscribe("/Stock/Low")
    def on_stock_low(self, event: dict[str, Any]) -> None:
        sku = event["sku"]
        missing = 10 - event["level"]
        if missing < 1:
            self.fail("the shelf is full")
            return
        payload = {"sku": sku, "quantity": missing}
        self.publish("/Delivery/Arrived", payload)
        self.call("PricingService", "change_price", sku=sku, price=2.5)

    @schema_method(input_schema={"supplier": str}, output_schema={"supplier": str, "rating": int})
    def rate(self, supplier: str) -> dict[str, Any]:
        rating = len(supplier)
        return {"supplier": supplier, "rating": rating}
