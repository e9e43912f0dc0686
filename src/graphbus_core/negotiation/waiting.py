"""What is told while answers are awaited: not in the transcript, for when something is heard is chance."""

from __future__ import annotations

from graphbus_core.bus import MessageBus

TOPIC = "/Negotiation/Awaited"


class Waiting:
    """Publishes how many answers are awaited and how much of them has come, whenever that changes."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._told = (0, 0)

    def __call__(self, awaited: int, characters: int) -> None:
        """Tell it, unless it was told already."""
        if (awaited, characters) != self._told:
            self._told = (awaited, characters)
            self._bus.publish(TOPIC, {"awaited": awaited, "characters": characters})
