"""HarbourMaster: who may moor where."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from enum import Enum, auto

from agents.shapes import Moored, Sighting, Topics
from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe

logger = logging.getLogger(__name__)

CALL_SIGN = re.compile(r"[A-Z][A-Z0-9]{3,6}")
COUNTRIES = {"D": "Germany", "PA": "Netherlands", "LA": "Norway", "SM": "Sweden", "OJ": "Finland"}


class BerthState(Enum):
    """What can be done with a berth."""

    FREE = auto()
    TAKEN = auto()
    CLOSED = auto()


@dataclass
class Berth:
    """A place at the quay."""

    number: int
    length_m: float
    state: BerthState = BerthState.FREE
    ship: str = ""

    def fits(self, length_m: float) -> bool:
        """Tell whether a ship of this length can be moored here now."""
        return self.state is BerthState.FREE and length_m <= self.length_m


@depends_on("Tugs")
class HarbourMaster(GraphBusNode):
    """Gives each ship the shortest berth that it fits."""

    SYSTEM_PROMPT = """
    I give out berths. No two ships share one, and I refuse a ship rather than let it wait in the fairway.
    """

    async def on_start(self) -> None:
        """Open the quay."""
        self.berths = [Berth(1, 90.0), Berth(2, 180.0), Berth(3, 400.0)]

    @subscribe(Topics.SIGHTED)
    @publishes(Topics.MOORED, Moored)
    async def on_sighted(self, ship: Sighting) -> None:
        """Moor a ship, or refuse it."""
        if not is_call_sign(ship["call_sign"]):
            self.publish(Topics.REFUSED, {"call_sign": ship["call_sign"], "reason": "no call sign"})
            return
        call_sign = normalized(ship["call_sign"])
        berth = self._find(ship["length_m"])
        if berth is None:
            logger.warning("no berth for %s of %.1f m", call_sign, ship["length_m"])
            self.publish(Topics.REFUSED, {"call_sign": call_sign, "reason": "no berth"})
            return
        berth.state, berth.ship = BerthState.TAKEN, call_sign
        result = await self.call("Tugs", "assist", call_sign=call_sign, tonnage=ship["tonnage"])
        self.log(f"{call_sign} moored at {berth.number} with {result['tugs']} tug(s)")
        self.publish(
            Topics.MOORED,
            {"call_sign": call_sign, "kind": ship["kind"], "tonnage": ship["tonnage"], "berth": berth.number},
        )

    @subscribe(Topics.DEPARTED)
    async def on_departed(self, event: Event) -> None:
        """Free the berth of a ship."""
        for berth in self.berths:
            if berth.ship == event["call_sign"]:
                berth.state, berth.ship = BerthState.FREE, ""

    @schema_method(input_schema={}, output_schema={"free": list[int], "taken": int})
    async def overview(self) -> dict[str, list[int] | int]:
        """Give the free berths and the number of those that are taken."""
        free = [berth.number for berth in self.berths if berth.state is BerthState.FREE]
        taken = sum(1 for berth in self.berths if berth.state is BerthState.TAKEN)
        return {"free": free, "taken": taken}

    def _find(self, length_m: float) -> Berth | None:
        found = None
        for berth in self.berths:
            if berth.fits(length_m):
                if found is None or berth.length_m < found.length_m:
                    found = berth
        return found


def normalized(text: str) -> str:
    """Give a call sign in capitals without spaces and hyphens: `pb-xk 7` -> `PBXK7`."""
    return re.sub(r"[\s-]+", "", text).upper()


def is_call_sign(text: str) -> bool:
    """Tell whether a text is a call sign."""
    return CALL_SIGN.fullmatch(normalized(text)) is not None


def country(call_sign: str) -> str:
    """Give the country of a call sign, or nothing."""
    for prefix, name in COUNTRIES.items():
        if call_sign.startswith(prefix):
            return name
    return ""
