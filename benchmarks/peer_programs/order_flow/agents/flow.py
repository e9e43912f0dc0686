"""Validate, reserve, confirm: three agents that both packages named graphbus can read, and a method to call."""

from graphbus_core import GraphBusNode, schema_method, subscribe


class Validator(GraphBusNode):
    """First step."""

    SYSTEM_PROMPT = "I validate."

    @subscribe("/Order/Created")
    def on_created(self, payload):
        """Go on with an order that wants something."""
        if payload["qty"]:
            self.publish("/Order/Validated", dict(payload))


class Stock(GraphBusNode):
    """Second."""

    SYSTEM_PROMPT = "I reserve."

    @schema_method(input_schema={"sku": str, "qty": int}, output_schema={"sku": str, "left": int})
    def reserve(self, sku: str, qty: int) -> dict:
        """Say what would be left."""
        return {"sku": sku, "left": max(0, {"mug": 3, "cup": 4}.get(sku, 0) - qty)}

    @subscribe("/Order/Validated")
    def on_validated(self, payload):
        """Go on."""
        self.publish("/Order/Reserved", dict(payload))


class Confirmation(GraphBusNode):
    """Third."""

    SYSTEM_PROMPT = "I confirm."
    seen = ()

    @subscribe("/Order/Reserved")
    def on_reserved(self, payload):
        """Remember."""
        self.seen = (*self.seen, payload["order_id"])
