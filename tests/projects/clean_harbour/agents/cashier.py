"""Cashier: invoices for berths."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from agents.shapes import Invoice, Kind, Moored, Topics
from graphbus_core import GraphBusNode, publishes, schema_method, subscribe

CENT = Decimal("0.01")
MINIMUM = Decimal("120.00")
RATES = {
    Kind.CONTAINER: Decimal("0.085"),
    Kind.TANKER: Decimal("0.1125"),
    Kind.FERRY: Decimal("0.04"),
}


class Cashier(GraphBusNode):
    """Writes an invoice for every ship that moors."""

    SYSTEM_PROMPT = """
    I write invoices. Amounts are decimal numbers, rounded once, at the end; numbers of invoices have no gaps.
    """

    def on_start(self) -> None:
        """Begin with the invoices that were written before."""
        self.state.setdefault("next", 1)
        self.invoices: list[Invoice] = []

    @subscribe(Topics.MOORED)
    @publishes(Topics.INVOICED, Invoice)
    def on_moored(self, ship: Moored) -> None:
        """Write an invoice for the first day."""
        amount = dues(Kind(ship["kind"]), ship["tonnage"], 1)
        invoice: Invoice = {"number": self._next(), "call_sign": ship["call_sign"], "amount": str(amount)}
        self.invoices.append(invoice)
        self.log("invoice %d: %s", invoice["number"], shown(amount))
        self.publish(Topics.INVOICED, invoice)

    @schema_method(input_schema={"call_sign": str}, output_schema={"invoices": int, "total": str})
    def statement(self, call_sign: str) -> dict[str, int | str]:
        """Give what a ship was billed."""
        amounts = []
        for invoice in self.invoices:
            if invoice["call_sign"] == call_sign:
                amounts.append(Decimal(invoice["amount"]))
        total = sum(amounts, Decimal("0.00"))
        return {"invoices": len(amounts), "total": str(total)}

    def _next(self) -> int:
        number = int(self.state["next"])
        self.state["next"] = number + 1
        return number


def dues(kind: Kind, tonnage: int, days: int) -> Decimal:
    """Give what a ship pays for its berth, never less than `MINIMUM`."""
    amount = RATES[kind] * tonnage * days
    if amount < MINIMUM:
        amount = MINIMUM
    return amount.quantize(CENT, rounding=ROUND_HALF_UP)


def shown(amount: Decimal) -> str:
    """Give an amount as a person reads it."""
    return "€ " + format(amount, ",.2f")
