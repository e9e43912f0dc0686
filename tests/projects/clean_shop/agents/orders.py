"""Takes orders and confirms or rejects them."""

from __future__ import annotations

from typing import Any

from graphbus_core import Event, depends_on, publishes, schema_method, subscribe

from agents.audited import BaseAudited
from agents.contracts import Confirmed, Item, Topics


@publishes(Topics.CONFIRMED, Confirmed)
@depends_on("Inventory")
class Orders(BaseAudited):
    """Confirms what can be reserved."""

    SYSTEM_PROMPT = """
    I take orders.
    """
    LIMITS = {"items": 100}

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, str] = {}

    @schema_method(
        input_schema={"order_id": str, "items": list[Item], "discount": float},
        output_schema={"status": str, "total": float, "error": str | None},
    )
    def place(self, order_id: str, items: list[Item], discount: float = 0.0, **extra: object) -> dict[str, Any]:
        """Place an order."""
        try:
            total = self._total(items) * (1 - discount)
        except (KeyError, TypeError) as error:
            self.log("bad order %s: %s", order_id, error)
            return self._failed(str(error))
        missing = [item["sku"] for item in items if not self._reserve(item)]
        if missing:
            self.publish(Topics.REJECTED, {"order_id": order_id, "reason": "missing", "skus": missing})
            return self._failed("missing: " + ", ".join(missing))
        self.publish(Topics.CONFIRMED, {"order_id": order_id, "total": total, "items": items})
        self.audit("confirmed", order_id=order_id)
        self._seen[order_id] = "confirmed"
        return {"status": "confirmed", "total": total, "error": None}

    def _reserve(self, item: Item) -> bool:
        reservation = self.call("Inventory", "reserve", sku=item["sku"], qty=item["qty"])
        return bool(reservation["reserved"])

    @staticmethod
    def _failed(reason: str) -> dict[str, Any]:
        return {"status": "failed", "total": 0.0, "error": reason}

    @staticmethod
    def _total(items: list[Item], already: tuple[float, ...] = ()) -> float:
        return sum(item["price"] * item["qty"] for item in items) + sum(already)

    @subscribe(Topics.PLACED)
    def on_placed(self, event: Event) -> None:
        if "items" not in event:
            return
        self.place(event["order_id"], event["items"], event.get("discount", 0.0))

    @subscribe("/Inventory/*")
    def on_inventory(self, event):
        self.log(f"{event.topic}: {event.payload} from {event.src} at {event.timestamp:.0f}")
