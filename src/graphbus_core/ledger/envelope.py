"""Envelope: an event as a ledger keeps it, with the attributes of CloudEvents 1.0; and its conversion from and to `Event`.

Source: CloudEvents 1.0 (`id`, `source`, `type`, `time`, `data`). Extension attributes: `correlationid`, `causationid`, `hops`,
`trail` and `build`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from graphbus_core.model.messages import Event, restore_event
from graphbus_core.schema.json import Json


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a ledger.

    Attributes:
        id: The id of the event; a ledger stores each id once.
        type: The topic.
        source: The agent that published it; empty if it was published from outside of the graph.
        time: When it was published, in seconds since the epoch.
        data: The payload, a JSON value.
        correlationid: The id of the event at the root of the causal tree.
        causationid: The id of the event whose handler published this one; empty for a root.
        hops: The number of events before it in its causal chain.
        trail: The last links of the causal chain, as `Event.trail`.
        build: The digest of the build that published it; empty if there is none.
    """

    id: str
    type: str
    source: str = ""
    time: float = 0.0
    data: Json = None
    correlationid: str = ""
    causationid: str = ""
    hops: int = 0
    trail: tuple[tuple[str, str], ...] = ()
    build: str = ""

    def to_event(self) -> Event:
        """Return the event; its ids, and those of the events that its handlers publish, are the same in every delivery."""
        return restore_event(
            self.type,
            self.data,
            self.source,
            self.time,
            hops=self.hops,
            event_id=self.id,
            causation_id=self.causationid,
            correlation_id=self.correlationid or self.id,
            trail=self.trail,
        )


def envelope_of(event: Event, *, build: str = "") -> Envelope:
    """Return the envelope of an event.

    Raises:
        RunError: GBE612 or GBE613, the payload is not JSON or too large.
    """
    return Envelope(
        id=event.event_id,
        type=event.topic,
        source=event.src,
        time=event.timestamp,
        data=event.payload,
        correlationid=event.correlation_id,
        causationid=event.causation_id,
        hops=event.hops,
        trail=event.trail,
        build=build,
    )


def encode_envelope(envelope: Envelope) -> str:
    """Return an envelope as JSON text in the structured mode of CloudEvents 1.0."""
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(envelope).items()
        if name == "data" or value not in ("", (), None)
    }
    time = datetime.fromtimestamp(envelope.time, UTC).isoformat()
    return msgspec.json.encode(
        {"specversion": "1.0", "datacontenttype": "application/json", **fields, "time": time}
    ).decode()


def decode_envelope(text: str | bytes) -> Envelope:
    """Return the envelope in a JSON text.

    Raises:
        ValueError: The text is no JSON, or not an event of CloudEvents 1.0 with our extensions.
    """
    fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    if fields.get("specversion") != "1.0":
        raise ValueError("it is not an event of CloudEvents 1.0")
    fields["time"] = datetime.fromisoformat(str(fields.get("time", ""))).timestamp()
    return msgspec.convert(fields, Envelope)
