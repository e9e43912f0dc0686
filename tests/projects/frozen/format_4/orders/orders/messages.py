"""What goes from agent to agent: each topic, with the type of its payloads."""

from __future__ import annotations

from typing import TypedDict

from graphbus_core import Topic


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


class Question(TypedDict):
    """What somebody wants the price of."""

    lines: list[Line]


class Paid(TypedDict):
    """An order whose money has come."""

    order_id: str
    total: float


class Refused(TypedDict):
    """An order that nobody pays."""

    order_id: str


PLACED = Topic("/Order/Placed", Order)
ACCEPTED = Topic("/Order/Accepted", Accepted)
PAID = Topic("/Order/Paid", Paid)
REFUSED = Topic("/Order/Refused", Refused)
PRICE_ASKED = Topic("/Price/Asked", Question)
