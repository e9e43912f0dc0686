"""Knows what things cost."""

from __future__ import annotations

from typing import Any

from graphbus_core import schema_method

from .service import BaseService

PRICES = {"mug": 4.5, "plate": 7.0}


class PricingService(BaseService):
    """Makes quotes."""

    @schema_method(input_schema={"sku": str, "quantity": int}, output_schema={"total": float, "currency": str})
    def quote(self, sku: str, quantity: int) -> dict[str, Any]:
        price = PRICES.get(sku, 1.0)
        return {"total": price * quantity, "currency": "EUR"}

    @schema_method(input_schema={"sku": str, "price": float}, output_schema={"changed": bool})
    def change_price(self, sku: str, price: float) -> dict[str, Any]:
        PRICES[sku] = price
        self.publish("/Price/Changed", {"sku": sku, "price": price})
        return {"changed": True}
