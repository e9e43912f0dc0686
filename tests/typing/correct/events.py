"""The events of a shop, each as a topic with its type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NotRequired, TypedDict

import msgspec

from graphbus_core import Topic


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Order(TypedDict):
    order_id: str
    total: float
    colour: NotRequired[Colour]


class Parcel(TypedDict):
    parcel_id: str
    sent_at: datetime


@dataclass
class Quote:
    sku: str
    amount: float


class Receipt(msgspec.Struct):
    order_id: str
    lines: list[str] = []


CREATED = Topic("/Order/Created", Order)
PAID = Topic("/Order/Paid", Order)
ANY_ORDER = Topic("/Order/*", Order)
SENT = Topic("/Parcel/Sent", Parcel)
QUOTED = Topic("/Quote/Made", Quote)
PRINTED = Topic("/Receipt/Printed", Receipt)
BATCH = Topic("/Order/Batch", list[Order])
TICK = Topic("/Clock/Tick", int)
STOCK_LEFT = Topic("/Stock/Left", str)
