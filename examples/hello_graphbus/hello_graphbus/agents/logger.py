"""LoggerService: keeps a log of what was printed."""

from __future__ import annotations

from datetime import UTC, datetime

from graphbus_core import Event, GraphBusNode, subscribe


class LoggerService(GraphBusNode):
    """Logs each printed message with the time at which it was published."""

    SYSTEM_PROMPT = """
    I listen to /Message/Printed and log every message with a timestamp in UTC. I only read; I publish nothing.
    """

    @subscribe("/Message/Printed")
    def on_message_printed(self, event: Event) -> None:
        """Log one line: when, what, how long."""
        moment = datetime.fromtimestamp(event.timestamp, tz=UTC)
        self.log(f"{moment:%Y-%m-%d %H:%M:%S} printed {event['message']!r} ({event['characters']} characters)")
