"""Writes to customers."""

from __future__ import annotations

from typing import Any

from graphbus_core import schema_method, subscribe

from .service import BaseService


class MailService(BaseService):
    """Sends what there is to say."""

    SUBSCRIBE = ["/Stock/Low", "/Price/Changed"]

    def handle_event(self, topic: str, payload: dict[str, Any]) -> None:
        self.log(f"{topic}: {payload['sku']}")

    @subscribe("/Order/Placed")
    def on_placed(self, event: dict[str, Any]) -> None:
        self.log(f"{event['customer_email']}: we have your order {event['order_id']}")

    @subscribe("/Order/Confirmed")
    def on_confirmed(self, event: dict[str, Any]) -> None:
        amount = event["amount"]
        self.log(f"{event['order_id']} is paid: {amount}")

    @schema_method(input_schema={"address": str, "subject": str}, output_schema={"sent": bool})
    def send(self, address: str, subject: str) -> dict[str, Any]:
        self.log(f"{address}: {subject}")
        return {"sent": True}
