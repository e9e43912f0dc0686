"""OrderProcessor: what an order costs."""

from graphbus_core import GraphBusNode, publishes, schema_method


class OrderProcessor(GraphBusNode):
    """Adds up orders and announces them."""

    SYSTEM_PROMPT = """
    I process orders. A total that is wrong is worse than an order that is refused.
    """

    @schema_method(
        input_schema={"order_id": str, "items": list[dict[str, float]]},
        output_schema={"status": str, "total": float},
    )
    @publishes("/Order/Created", {"order_id": str, "total": float})
    def process_order(self, order_id: str, items: list[dict[str, float]]) -> dict[str, str | float]:
        total = float(sum(item["price"] * item["qty"] for item in items))
        self.publish("/Order/Created", {"order_id": order_id, "total": total})
        return {"status": "confirmed", "total": total}
