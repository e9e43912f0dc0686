"""Keeps the stock."""

from __future__ import annotations

from typing import Any

from graphbus_core import schema_method, subscribe

from agents.audited import BaseAudited
from agents.contracts import RESERVATION, StockChanged, Topics


class Inventory(BaseAudited):
    """Reserves what there is."""

    def __init__(self) -> None:
        super().__init__()
        self.stock = {"mug": 3, "pen": 0}

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema=RESERVATION)
    def reserve(self, sku: str, qty: int) -> dict[str, Any]:
        result: dict[str, Any] = {"reserved": False}
        left = self.stock.get(sku, 0) - qty
        if left < 0:
            result["missing"] = [sku]
            return result
        self.stock[sku] = left
        result.update(reserved=True, missing=[])
        self._changed(sku)
        return result

    def _changed(self, sku: str) -> None:
        payload = {"sku": sku, "in_stock": self.stock[sku]}
        if self.stock[sku] == 0:
            payload["tags"] = ["empty"]
        self.publish(Topics.STOCK, payload)

    @subscribe(Topics.STOCK)
    def on_changed(self, change: StockChanged) -> None:
        self.log("%s: %d", change.sku, change.in_stock)

    @subscribe(Topics.REJECTED)
    def on_rejected(self, order_id: str, skus: list, reason: str = "") -> None:
        self.log("%s lacks %s (%s)", order_id, skus, reason)
