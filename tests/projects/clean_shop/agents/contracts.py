"""What the agents say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NotRequired, TypedDict


class Topics(StrEnum):
    """Where events go."""

    PLACED = "/Order/Placed"
    CONFIRMED = "/Order/Confirmed"
    REJECTED = "/Order/Rejected"
    STOCK = "/Inventory/Changed"


AUDIT: Final = "/Audit/Written"


class Item(TypedDict):
    sku: str
    qty: int
    price: float
    note: NotRequired[str]


class Confirmed(TypedDict):
    order_id: str
    total: float
    items: list[Item]


@dataclass
class StockChanged:
    sku: str
    in_stock: int
    tags: list[str] = field(default_factory=list)


RESERVATION = {"reserved": bool, "missing": list}
