"""What the agents of the market tell each other."""

from __future__ import annotations

from typing import TypedDict


class OrderPlaced(TypedDict):
    order_id: str
    sku: str
    quantity: int
    customer_email: str


class PaymentTaken(TypedDict):
    order_id: str
    amount: float
