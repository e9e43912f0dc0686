"""Books: what was earned, kept over every restart."""

from __future__ import annotations

from graphbus_core import GraphBusNode, schema_method, subscribe
from orders.messages import PAID


class Books(GraphBusNode):
    """Books each paid order once, also when it hears of it twice."""

    SYSTEM_PROMPT = """
    I keep the books. An order is booked once, whole, or not at all.
    """

    @subscribe(PAID, key="order_id")
    def on_order_paid(self, order_id: str, total: float) -> None:
        """Add the order to the revenue, both in one step."""
        if f"order/{order_id}" in self.state:
            return
        with self.state.transaction():
            self.state[f"order/{order_id}"] = total
            self.state["revenue"] = self.state.get("revenue", 0.0) + total

    @schema_method(input_schema={}, output_schema={"revenue": float})
    def balance(self) -> dict[str, float]:
        """Say what was earned so far."""
        return {"revenue": self.state.get("revenue", 0.0)}
