"""Agents that are called by others."""

from __future__ import annotations

from graphbus_core import GraphBusNode, schema_method
from tests.typing.correct.events import Order, Quote


class Pricing(GraphBusNode):
    def on_start(self) -> None: ...

    def on_stop(self) -> None: ...

    @schema_method
    def quote(self, sku: str, qty: int = 1) -> Quote:
        return Quote(sku, 2.5 * qty)

    @schema_method()
    def total(self, orders: list[Order], *, rounded: bool = False) -> float:
        total = sum(each["total"] for each in orders)
        return round(total) if rounded else total

    @schema_method(input_schema={"sku": str}, output_schema={"left": int})
    def stock(self, sku: str) -> dict[str, int]:
        return {"left": len(sku)}


class Rates(GraphBusNode):
    async def on_start(self) -> None: ...

    @schema_method
    async def rate(self, currency: str) -> float:
        return 1.0 if currency == "EUR" else 0.9
