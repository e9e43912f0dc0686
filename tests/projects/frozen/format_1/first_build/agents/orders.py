"""The shapes that orders have on their way through the shop."""

from __future__ import annotations

from typing import TypedDict


class Item(TypedDict):
    """One line of an order: how many of what, at which price for one."""

    sku: str
    price: float
    qty: int


class Order(TypedDict):
    """An order as the web shop places it."""

    order_id: str
    items: list[Item]


class Confirmation(TypedDict):
    """What becomes of an order: `status` is `confirmed` or `backordered`."""

    order_id: str
    status: str
    total: float
