"""Ships and invoices on their way through the harbour."""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict


class Topics(StrEnum):
    """Where events go."""

    SIGHTED = "/Ship/Sighted"
    DEPARTED = "/Ship/Departed"
    MOORED = "/Ship/Moored"
    REFUSED = "/Ship/Refused"
    INVOICED = "/Invoice/Issued"


class Kind(StrEnum):
    """What a ship carries."""

    CONTAINER = "container"
    TANKER = "tanker"
    FERRY = "ferry"


class Sighting(TypedDict):
    """A ship that asks for a berth."""

    call_sign: str
    kind: str
    length_m: float
    tonnage: int


class Moored(TypedDict):
    """A ship at its berth."""

    call_sign: str
    kind: str
    tonnage: int
    berth: int


class Invoice(TypedDict):
    """What a ship owes; the amount is a decimal number in text."""

    number: int
    call_sign: str
    amount: str
