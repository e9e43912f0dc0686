"""Writes letters."""

from __future__ import annotations

from graphbus_core import GraphBusNode, subscribe

from agents.contracts import AUDIT, Confirmed, Topics


class Mailing(GraphBusNode):
    """Sends a letter for each order, by way of a topic that is made of the order's kind."""

    @subscribe(Topics.CONFIRMED)
    def on_confirmed(self, confirmed: Confirmed) -> None:
        kind = "large" if confirmed["total"] > 100 else "small"
        self.publish(f"/Mail/{kind}", {"to": confirmed["order_id"], "lines": self._lines(confirmed)})

    def _lines(self, confirmed: Confirmed, *, head: list[str] | None = None) -> list[str]:
        lines = list(head or [])
        for item in confirmed["items"]:
            lines.append(f"{item['qty']} x {item['sku']}" + item.get("note", ""))
        return lines

    @subscribe(AUDIT)
    def on_audit(self, event):
        data = event.payload
        try:
            detail = data["order_id"]
        except KeyError:
            detail = "-"
        self.log(f"{data['agent']} {data['action']} {detail}")


class Judge(GraphBusNode):
    """Decides."""

    IS_ARBITER = True
