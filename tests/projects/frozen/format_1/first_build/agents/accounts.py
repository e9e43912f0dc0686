"""AccountsService: what the shop earned, and what it would earn with fuller shelves."""

from __future__ import annotations

from agents.orders import Confirmation
from graphbus_core import GraphBusNode, schema_method, subscribe


class AccountsService(GraphBusNode):
    """Adds up the orders of the day."""

    SYSTEM_PROMPT = """
    I add up totals by the status of their orders. I need /Order/Created to carry a total that is a number and a status that I
    know; I reject changes that would let an order count twice or under two names.
    """

    def on_start(self) -> None:
        """Begin the day with empty books."""
        self._totals: dict[str, dict[str, float]] = {"confirmed": {}, "backordered": {}}

    @subscribe("/Order/Created")
    def on_order_created(self, order: Confirmation) -> None:
        """Enter an order; one that is announced again replaces its first entry."""
        for entries in self._totals.values():
            entries.pop(order["order_id"], None)
        self._totals[order["status"]][order["order_id"]] = order["total"]

    @schema_method(input_schema={}, output_schema={"earned": float, "waiting": float})
    def balance(self) -> dict[str, float]:
        """Give the sums over confirmed and over backordered orders."""
        return {
            "earned": sum(self._totals["confirmed"].values(), start=0.0),
            "waiting": sum(self._totals["backordered"].values(), start=0.0),
        }
