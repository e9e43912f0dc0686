"""The office of the granary: its books, its letters, its boss."""

from __future__ import annotations

from graphbus_core import Event, GraphBusNode, schema_method, subscribe

from agents.grain import STORED
from agents.reporting import BaseReporting


class Office(BaseReporting):
    """Keeps the books."""

    def on_start(self) -> None:
        self.tonnes = 0.0

    @subscribe(STORED)
    def on_stored(self, event: Event) -> None:
        self.tonnes += event["tonnes"]

    @schema_method(input_schema={"name": str}, output_schema={"path": str})
    def report(self, name: str) -> dict[str, str]:
        """Write down how much there is."""
        return {"path": self.keep(f"{name}.txt", self.heading(name) + f"{self.tonnes:.1f} t\n")}


class Foreman(GraphBusNode):
    """Has the last word."""

    IS_ARBITER = True
