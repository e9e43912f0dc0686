"""InventoryService: what is in stock, and who may take it."""

from __future__ import annotations

from graphbus_core import GraphBusNode, schema_method, subscribe


class InventoryService(GraphBusNode):
    """Knows the stock and gives it out, never more than there is."""

    SYSTEM_PROMPT = """
    I keep the stock. I reserve items for orders and announce every change on /Inventory/Updated.
    In negotiations I reject whatever could let me promise the same item twice.
    """

    def on_start(self) -> None:
        """Begin the day with full shelves."""
        self.stock: dict[str, int] = {"mug": 12, "poster": 40, "shirt": 5}

    @schema_method(input_schema={"sku": str, "quantity": int}, output_schema={"reserved": bool, "in_stock": int})
    def reserve(self, sku: str, quantity: int) -> dict[str, bool | int]:
        """Take items off the shelf, all of them or none."""
        available = self.stock.get(sku, 0)
        if not 0 < quantity <= available:
            return {"reserved": False, "in_stock": available}
        self._set(sku, available - quantity)
        return {"reserved": True, "in_stock": self.stock[sku]}

    @subscribe("/Delivery/Arrived")
    def on_delivery(self, sku: str, quantity: int) -> None:
        """Put new items on the shelf."""
        self._set(sku, self.stock.get(sku, 0) + quantity)

    def _set(self, sku: str, in_stock: int) -> None:
        self.stock[sku] = in_stock
        self.publish("/Inventory/Updated", {"sku": sku, "in_stock": in_stock})
