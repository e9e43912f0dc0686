"""Tugs: the boats that pull ships to their berths."""

from __future__ import annotations

import asyncio

from graphbus_core import GraphBusNode, schema_method

FLEET = 4
PULL_T = 20_000


class Tugs(GraphBusNode):
    """Lends tugs, never more than there are."""

    SYSTEM_PROMPT = """
    I lend tugs to ships. A ship waits until there are enough for it; I look after the order in which ships are served.
    """

    async def on_start(self) -> None:
        """Begin with all tugs at the quay."""
        self.free = FLEET
        self.served: list[str] = []
        self._turn = asyncio.Lock()

    @schema_method(input_schema={"call_sign": str, "tonnage": int}, output_schema={"tugs": int, "trips": int})
    async def assist(self, call_sign: str, tonnage: int) -> dict[str, int]:
        """Pull a ship to its berth."""
        wanted = min(FLEET, 1 + tonnage // PULL_T)
        async with self._turn:
            self.free -= wanted
            await self._pull(wanted)
            self.free += wanted
        self.served.append(call_sign)
        return {"tugs": wanted, "trips": len(self.served)}

    async def _pull(self, tugs: int) -> None:
        for _ in range(tugs):
            await asyncio.sleep(0)
