"""Logbook: what happened in the harbour, newest last."""

from __future__ import annotations

from datetime import UTC, datetime

from agents.shapes import Topics
from graphbus_core import Event, GraphBusNode, schema_method, subscribe


class Logbook(GraphBusNode):
    """Writes a line for every event of a ship."""

    SYSTEM_PROMPT = """
    I keep the log of the harbour. I write down what was said, in the order in which it was said, and change nothing afterwards.
    """

    def on_start(self) -> None:
        """Begin a new page."""
        self.lines: list[str] = []
        self.counts: dict[str, int] = {}

    @subscribe("/Ship/*")
    def on_ship(self, event: Event) -> None:
        """Write down an event of a ship."""
        what = event.topic.rpartition("/")[2].lower()
        if what in self.counts:
            self.counts[what] += 1
        else:
            self.counts[what] = 1
        self._write(f"{what} {event['call_sign']}", event.timestamp)

    @subscribe(Topics.REFUSED)
    def on_refused(self, call_sign: str, reason: str) -> None:
        """Write down why a ship was refused."""
        self._write(f"{call_sign}: {reason}", 0.0)

    @schema_method(input_schema={"limit": int}, output_schema={"lines": list[str], "count": int})
    def page(self, limit: int) -> dict[str, list[str] | int]:
        """Give the newest lines."""
        return {"lines": self.lines[-limit:] if limit > 0 else [], "count": len(self.lines)}

    def _write(self, text: str, timestamp: float) -> None:
        if timestamp:
            time = datetime.fromtimestamp(timestamp, UTC).strftime("%H:%M")
            text = time + " " + text
        self.lines.append(text)
