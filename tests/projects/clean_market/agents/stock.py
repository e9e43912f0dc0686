"""Keeps the store."""

from __future__ import annotations

from typing import Any

from graphbus_core import schema_method, subscribe

from .service import BaseService


class StockService(BaseService):
    """Reserves goods and asks for more of them."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: dict[str, int] = {}

    @schema_method(
        input_schema={"sku": str, "quantity": int, "order_id": str}, output_schema={"reserved": bool}
    )
    def reserve(self, sku: str, quantity: int, order_id: str) -> dict[str, Any]:
        level = self.levels.get(sku, 0) - quantity
        self.levels[sku] = level
        self.log(f"{order_id}: {quantity} of {sku}")
        if level < 3:
            self.publish("/Stock/Low", self._low(sku, level))
        return {"reserved": True}

    def _low(self, sku: str, level: int) -> dict[str, Any]:
        return {"sku": sku, "level": level}

    @subscribe("/Delivery/Arrived")
    def on_delivery(self, sku: str, quantity: int) -> None:
        self.levels[sku] = self.levels.get(sku, 0) + quantity
