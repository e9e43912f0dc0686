"""Brings the goods."""

from __future__ import annotations

from typing import Any

from graphbus_core import depends_on, subscribe

from .mailer import MailService
from .service import BaseService


@depends_on(MailService)
class ShippingService(BaseService):
    """Packs what is paid for."""

    @subscribe("/Order/Confirmed")
    def on_confirmed(self, event: dict[str, Any]) -> None:
        order_id = event["order_id"]
        self.log(f"pack {order_id}")

    @subscribe("/Order/Placed")
    def on_placed(self, event: dict[str, Any]) -> None:
        address = event["customer_email"]
        self.call("MailService", "send", address=address, subject=f"Order {event['order_id']}")


class LedgerService(BaseService):
    """Writes down what came in."""

    @subscribe("/Order/Confirmed")
    def on_confirmed(self, order_id: str, amount: float) -> None:
        self.log(f"{order_id}: {amount}")
