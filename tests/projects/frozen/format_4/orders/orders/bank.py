"""The bank at the other end of the line; every fiftieth call the line is down."""

from __future__ import annotations

import asyncio

SLOW_CARD = "5555"
"""A card of a bank that takes 0.4 s."""
DEAD_LINE = "9999"
"""A card of a bank that is never reached."""


class LineDown(ConnectionError):
    """The bank was not reached; nothing was charged."""


class CardDeclined(Exception):
    """The bank says no, and will say it again."""


class Bank:
    """Charges cards. The same order is charged once, however often it is asked for."""

    def __init__(self) -> None:
        self.charged: dict[str, float] = {}
        self._calls = 0

    async def charge(self, order_id: str, card: str, amount: float) -> None:
        """Take the money, or raise LineDown or CardDeclined."""
        self._calls += 1
        await asyncio.sleep(0.4 if card == SLOW_CARD else 0.001)
        if self._calls % 50 == 0 or card == DEAD_LINE:
            raise LineDown("the bank does not answer")
        if card == "0000":
            raise CardDeclined(f"the card for order {order_id} was declined")
        self.charged[order_id] = amount
