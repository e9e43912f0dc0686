"""What the agents say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ARRIVED: Final = "/Truck/Arrived"
WEIGHED: Final = "/Grain/Weighed"
STORED: Final = "/Grain/Stored"


@dataclass
class Load:
    """What is on a truck, and in which order it was loaded."""

    grain: str
    kg: float
    layers: list[str] = field(default_factory=list)


def receipt(load: Load) -> str:
    """Put a load into words."""
    return f"{load.kg:.0f} kg of {load.grain}"
