"""Pricing: what articles cost."""

from __future__ import annotations

from typing import ClassVar

from graphbus_core import GraphBusNode, subscribe
from orders.messages import PRICE_ASKED, Line


class Pricing(GraphBusNode):
    """Answers what an order costs."""

    SYSTEM_PROMPT = """
    I know the prices and nobody else does. An article that I do not know has no price, not a price of zero.
    """

    PRICES: ClassVar[dict[str, float]] = {"mug": 12.5, "shirt": 20.0, "poster": 7.0}

    @subscribe(PRICE_ASKED)
    def on_price_asked(self, lines: list[Line]) -> dict[str, float]:
        """Add up the lines."""
        return {"total": sum(self.PRICES[line["sku"]] * line["qty"] for line in lines)}
