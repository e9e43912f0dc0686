"""What goes from agent to agent."""

from __future__ import annotations

from typing import TypedDict


class Line(TypedDict):
    """So many pieces of one article."""

    sku: str
    qty: int


class Order(TypedDict):
    """What a customer wants, and how it is paid."""

    order_id: str
    card: str
    lines: list[Line]


class Accepted(TypedDict):
    """An order with its price."""

    order_id: str
    card: str
    total: float
